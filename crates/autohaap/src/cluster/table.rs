//! The catalogue as rows for `autohaap devices`, every value with its provenance.

use serde::Serialize;

use crate::cluster::catalogue::{CatalogueEntry, catalogue};
use crate::cluster::{DeviceType, Precision, Provenance, Sourced};
use crate::error::Problem;
use crate::units::{ByteRate, Bytes, FlopRate};

/// One device in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Canonical name.
    pub name: String,
    /// Vendor.
    pub vendor: String,
    /// Architecture.
    pub architecture: String,
    /// Usable memory.
    pub memory_bytes: Option<Bytes>,
    /// Memory bandwidth.
    pub memory_bandwidth_bytes_per_s: Option<ByteRate>,
    /// Datasheet rate of dense 16-bit products.
    pub datasheet_flops: Option<FlopRate>,
    /// Best measured rate.
    pub measured_flops: Option<FlopRate>,
    /// Bandwidth inside a node, per device and direction.
    pub link_bytes_per_s: ByteRate,
    /// Name of the link.
    pub link: String,
    /// Collective library.
    pub collective_library: String,
    /// Whether bf16 products run on it.
    pub bf16: bool,
    /// Whether a flash-attention kernel exists.
    pub flash_attention: bool,
    /// Confidence of the row.
    pub confidence: String,
    /// Whether planning needs figures that nobody publishes.
    pub usable: bool,
}

/// One figure of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceFigure {
    /// Key, as in a cluster file where one exists.
    pub key: String,
    /// Value with unit, for people.
    pub text: String,
    /// Value in base units, for scripts; absent for words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Where it comes from.
    pub from: Provenance,
    /// Document or reason.
    pub source: String,
}

fn known<T: Copy + PartialOrd + Default>(value: T) -> Option<T> {
    (value > T::default()).then_some(value)
}

impl CatalogueEntry {
    /// The entry as a row of the list.
    pub fn row(&self) -> DeviceRow {
        let d = &self.device;
        let sheet = d
            .datasheet_peak
            .get(&Precision::Bf16)
            .or_else(|| d.datasheet_peak.get(&Precision::Fp16));
        DeviceRow {
            name: d.name.clone(),
            vendor: d.vendor.clone(),
            architecture: d.architecture.clone(),
            memory_bytes: known(d.memory.value),
            memory_bandwidth_bytes_per_s: known(d.memory_bandwidth.value),
            datasheet_flops: sheet.map(|p| p.value),
            measured_flops: d.measured_peak.as_ref().map(|p| p.value),
            link_bytes_per_s: d.intra.bandwidth.value,
            link: self.link.clone(),
            collective_library: d.collective_library.clone(),
            bf16: d.supports(Precision::Bf16),
            flash_attention: d.flash_attention,
            confidence: d.confidence.clone(),
            usable: d.missing_figures().is_empty(),
        }
    }

    /// Every figure of the device with its provenance.
    pub fn figures(&self) -> Vec<DeviceFigure> {
        let d = &self.device;
        let mut figures = d.figures();
        let link = &d.intra;
        let mut add =
            |key: &str, text: String, value: Option<f64>, from: Provenance, source: Option<&String>| {
                let source = source.cloned().unwrap_or_default();
                figures.push(DeviceFigure {
                    key: key.to_owned(),
                    text,
                    value,
                    from,
                    source,
                });
            };
        for point in &link.table {
            let op = format!("{:?}", point.op);
            let text = format!("{} for {} on {} ranks", point.time_s, point.bytes, point.ranks);
            add(
                &format!("intra.table.{op}"),
                text,
                Some(point.time_s.0),
                self.link_table.from,
                self.link_table.source.as_ref(),
            );
        }
        let words = [
            ("intra.fabric", format!("{:?} ({})", link.fabric, self.link)),
            ("typical_network", self.typical_network.clone()),
            ("devices_per_node", self.devices_per_node.clone()),
            ("collective_library", d.collective_library.clone()),
            (
                "flash_attention",
                if d.flash_attention {
                    "yes".into()
                } else {
                    "no".into()
                },
            ),
        ];
        for (key, text) in words {
            add(key, text, None, Provenance::Datasheet, Some(&d.source));
        }
        let assumed = "used when a shorthand gives no network".to_owned();
        add(
            "assumed_network",
            self.assumed_network.clone(),
            None,
            Provenance::Assumed,
            Some(&assumed),
        );
        figures
    }
}

impl DeviceType {
    /// Speeds, memory and the link inside a node, each with its provenance.
    pub fn figures(&self) -> Vec<DeviceFigure> {
        let d = self;
        let mut figures = Vec::new();
        let mut add =
            |key: &str, text: String, value: Option<f64>, from: Provenance, source: Option<&String>| {
                let source = source.cloned().unwrap_or_default();
                figures.push(DeviceFigure {
                    key: key.to_owned(),
                    text,
                    value,
                    from,
                    source,
                });
            };
        let rate = |r: &Sourced<ByteRate>| (r.value.to_string(), Some(r.value.0), r.from, r.source.clone());
        add(
            "memory",
            d.memory.value.to_string(),
            Some(d.memory.value.0),
            d.memory.from,
            d.memory.source.as_ref(),
        );
        let (text, value, from, source) = rate(&d.memory_bandwidth);
        add("memory_bandwidth", text, value, from, source.as_ref());
        for (precision, peak) in &d.datasheet_peak {
            let key = format!("peak.{}", format!("{precision:?}").to_lowercase());
            add(
                &key,
                peak.value.to_string(),
                Some(peak.value.0),
                peak.from,
                peak.source.as_ref(),
            );
        }
        if let Some(peak) = &d.measured_peak {
            add(
                "measured_peak",
                peak.value.to_string(),
                Some(peak.value.0),
                peak.from,
                peak.source.as_ref(),
            );
        }
        for (class, share) in &d.efficiency {
            let key = match class {
                crate::model::OperatorClass::Gemm => "efficiency.gemm",
                crate::model::OperatorClass::ExpertGemm => "efficiency.expert_gemm",
                crate::model::OperatorClass::Attention => "efficiency.attention",
                crate::model::OperatorClass::Memory => "efficiency.memory",
            };
            add(
                key,
                format!("{:.2}", share.value),
                Some(share.value),
                share.from,
                share.source.as_ref(),
            );
        }
        let link = &d.intra;
        for (key, value) in [
            ("intra.bandwidth", &link.bandwidth),
            ("intra.pair_bandwidth", &link.pair_bandwidth),
        ] {
            let (text, value, from, source) = rate(value);
            add(key, text, value, from, source.as_ref());
        }
        add(
            "intra.latency",
            link.latency.value.to_string(),
            Some(link.latency.value.0),
            link.latency.from,
            link.latency.source.as_ref(),
        );
        add(
            "intra.efficiency",
            format!("{:.2}", link.efficiency.value),
            Some(link.efficiency.value),
            link.efficiency.from,
            link.efficiency.source.as_ref(),
        );
        figures
    }
}

/// All devices of the catalogue as rows.
pub fn device_table() -> Vec<DeviceRow> {
    catalogue().iter().map(CatalogueEntry::row).collect()
}

/// One device by forgiving name: its entry, its figures, and what was assumed about the name.
#[allow(
    clippy::result_large_err,
    reason = "a problem is made once, at the end of an input"
)]
pub fn device_detail(
    name: &str,
) -> Result<(&'static CatalogueEntry, Vec<DeviceFigure>, Option<String>), Problem> {
    let found = crate::cluster::find_device(name)?;
    Ok((found.entry, found.entry.figures(), found.assumed))
}
