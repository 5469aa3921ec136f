//! The device catalogue: every known accelerator with its datasheet figures, measured figures and labelled defaults.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::cluster::defaults;
use crate::cluster::{Collective, DeviceType, Fabric, Link, LinkPoint, Precision, Provenance, Sourced};
use crate::units::{ByteRate, Bytes, FlopRate, Seconds};

/// The table as compiled in.
const TABLE: &str = include_str!("../../../../data/devices/catalogue.toml");

/// Size of the message at which published bus bandwidths of large messages hold.
const LARGE_MESSAGE: Bytes = Bytes(536_870_912.0);

/// One device of the catalogue: the type used in a cluster and what helps to find and describe it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CatalogueEntry {
    /// The device type as a cluster uses it.
    pub device: DeviceType,
    /// Other names of the device.
    pub aliases: Vec<String>,
    /// Whether the bare family name means this one.
    pub preferred: bool,
    /// Year of launch, 0 = not stated.
    pub launch_year: u32,
    /// Memory as sold, in GB; 0 = not published.
    pub memory_sold_gb: f64,
    /// Further sizes under which the same device is sold or listed, in GB.
    pub memory_gb_aliases: Vec<f64>,
    /// Name of the link inside a node.
    pub link: String,
    /// Whether devices read each other's memory over the bus; without it, traffic is staged through host memory.
    pub peer_to_peer: bool,
    /// Typical devices in a node, as published.
    pub devices_per_node: String,
    /// Typical network between nodes, as published.
    pub typical_network: String,
    /// The network a shorthand without `@` assumes, in shorthand form.
    pub assumed_network: String,
    /// Origin of the measured points of the link: measured on the device, or assumed from a relative.
    pub link_table: Sourced<()>,
    /// Traps and remarks.
    pub notes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    device: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    preferred: bool,
    vendor: String,
    architecture: String,
    collective_library: String,
    #[serde(default)]
    launch_year: u32,
    memory_gb: Option<f64>,
    #[serde(default)]
    memory_gb_aliases: Vec<f64>,
    measured_memory_gib: Option<f64>,
    assumed_memory_gib: Option<f64>,
    memory_source: Option<String>,
    memory_bandwidth_gbps: Option<f64>,
    measured_memory_bandwidth_gbps: Option<f64>,
    bf16_tflops: Option<f64>,
    fp16_tflops: Option<f64>,
    fp8_tflops: Option<f64>,
    tf32_tflops: Option<f64>,
    fp32_tflops: Option<f64>,
    measured_matmul_tflops: Option<f64>,
    measured_gemm_efficiency: Option<f64>,
    assumed_gemm_efficiency: Option<f64>,
    gemm_source: Option<String>,
    flash_attention: bool,
    link: String,
    fabric: Fabric,
    link_gbps: Option<f64>,
    pair_gbps: Option<f64>,
    host_gbps: Option<f64>,
    #[serde(default = "yes")]
    peer_to_peer: bool,
    devices_per_node: String,
    typical_network: String,
    assumed_network: String,
    confidence: String,
    source: String,
    #[serde(default)]
    notes: String,
    #[serde(default)]
    link_table: Vec<BusRow>,
    #[serde(default)]
    link_table_assumed: bool,
    #[serde(default)]
    link_table_source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BusRow {
    op: Collective,
    ranks: u32,
    bus_gbps: f64,
}

fn yes() -> bool {
    true
}

/// All devices known by name, in the order of the table.
pub fn catalogue() -> &'static [CatalogueEntry] {
    static PARSED: OnceLock<Vec<CatalogueEntry>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let table: Table = toml::from_str(TABLE).expect("the compiled-in device table parses");
        table.device.into_iter().map(Row::into_entry).collect()
    })
}

/// The catalogue entry with exactly this canonical name.
pub fn catalogue_entry(name: &str) -> Option<&'static CatalogueEntry> {
    catalogue().iter().find(|entry| entry.device.name == name)
}

/// The time of one call from a published bus bandwidth: busbw = S / t times 2(n-1)/n for an all-reduce, (n-1)/n for
/// all-gather, reduce-scatter and all-to-all, 1 for a transfer (the convention of the nccl-tests).
pub fn time_from_bus_bandwidth(op: Collective, ranks: u32, bytes: Bytes, bus: ByteRate) -> Seconds {
    let n = f64::from(ranks.max(1));
    let factor = match op {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => (n - 1.0) / n,
        Collective::PointToPoint => 1.0,
    };
    Bytes(bytes.0 * factor) / bus
}

impl Row {
    fn into_entry(self) -> CatalogueEntry {
        let sheet = |value: f64| Sourced::with_source(value, Provenance::Datasheet, self.source.clone());
        let compute = |tflops: f64| {
            let s = sheet(tflops * 1e12);
            Sourced {
                value: FlopRate(s.value),
                from: s.from,
                source: s.source,
            }
        };
        let mut datasheet_peak = BTreeMap::new();
        for (precision, value) in [
            (Precision::Bf16, self.bf16_tflops),
            (Precision::Fp16, self.fp16_tflops),
            (Precision::Fp8, self.fp8_tflops),
            (Precision::Fp32, self.fp32_tflops.or(self.tf32_tflops)),
        ] {
            if let Some(tflops) = value {
                datasheet_peak.insert(precision, compute(tflops));
            }
        }
        let measured_peak = self.measured_matmul_tflops.map(|tflops| {
            Sourced::with_source(FlopRate(tflops * 1e12), Provenance::Measured, self.source.clone())
        });
        let mut efficiency =
            defaults::efficiency(&self.architecture, measured_peak.is_some(), self.flash_attention);
        if let Some(gemm) = self.measured_gemm_efficiency {
            let source = "median of large bf16 products in public kernel tables, over the peak in use";
            defaults::set_gemm(
                &mut efficiency,
                Sourced::with_source(gemm, Provenance::Measured, source),
            );
        } else if let Some(gemm) = self.assumed_gemm_efficiency {
            let source = self.gemm_source.clone();
            defaults::set_gemm(
                &mut efficiency,
                Sourced {
                    value: gemm,
                    from: Provenance::Assumed,
                    source,
                },
            );
        }
        let memory_bandwidth = match (self.memory_bandwidth_gbps, self.measured_memory_bandwidth_gbps) {
            (Some(gbps), _) => {
                Sourced::with_source(ByteRate(gbps * 1e9), Provenance::Datasheet, self.source.clone())
            }
            (None, Some(gbps)) => {
                defaults::set_memory(
                    &mut efficiency,
                    Sourced::with_source(1.0, Provenance::Measured, "the bandwidth itself is measured"),
                );
                Sourced::with_source(ByteRate(gbps * 1e9), Provenance::Measured, self.source.clone())
            }
            (None, None) => Sourced::with_source(ByteRate::ZERO, Provenance::Assumed, "not published"),
        };
        let listed = |gib: f64, from| Sourced {
            value: Bytes::from_gib(gib),
            from,
            source: self.memory_source.clone(),
        };
        let memory = match (self.measured_memory_gib, self.assumed_memory_gib, self.memory_gb) {
            (Some(gib), _, _) => listed(gib, Provenance::Measured),
            (None, Some(gib), _) => listed(gib, Provenance::Assumed),
            (None, None, Some(gb)) => defaults::memory_from_sold(gb),
            (None, None, None) => Sourced::with_source(Bytes::ZERO, Provenance::Assumed, "not published"),
        };
        let intra = self.intra();
        CatalogueEntry {
            device: DeviceType {
                name: self.name,
                vendor: self.vendor,
                architecture: self.architecture,
                collective_library: self.collective_library,
                memory,
                memory_bandwidth,
                datasheet_peak,
                measured_peak,
                efficiency,
                curve: None,
                flash_attention: self.flash_attention,
                intra,
                confidence: self.confidence,
                source: self.source,
                price_per_hour: None,
            },
            aliases: self.aliases,
            preferred: self.preferred,
            launch_year: self.launch_year,
            memory_sold_gb: self.memory_gb.unwrap_or(0.0),
            memory_gb_aliases: self.memory_gb_aliases,
            link: self.link,
            peer_to_peer: self.peer_to_peer,
            devices_per_node: self.devices_per_node,
            typical_network: self.typical_network,
            assumed_network: self.assumed_network,
            link_table: Sourced::with_source(
                (),
                if self.link_table_assumed {
                    Provenance::Assumed
                } else {
                    Provenance::Measured
                },
                self.link_table_source,
            ),
            notes: self.notes,
        }
    }

    /// The link inside a node. On a bus the bandwidth is the host link and a bridge stands in `pair_bandwidth`.
    fn intra(&self) -> Link {
        let rate = |gbps: f64| {
            Sourced::with_source(ByteRate(gbps * 1e9), Provenance::Datasheet, self.source.clone())
        };
        let (bandwidth, fabric) = match self.host_gbps.or(self.link_gbps) {
            Some(gbps) => (rate(gbps), self.fabric),
            None => (
                Sourced::with_source(
                    ByteRate(defaults::HOST_LINK_GBPS * 1e9),
                    Provenance::Assumed,
                    "link not published; a PCIe 4 x16 host link is assumed",
                ),
                Fabric::Bus,
            ),
        };
        let pair_bandwidth = match self.pair_gbps {
            Some(gbps) => rate(gbps),
            None if fabric == Fabric::Mesh => Sourced::with_source(
                ByteRate(bandwidth.value.0 / 7.0),
                Provenance::Assumed,
                "pair bandwidth not published; a full mesh of eight is assumed",
            ),
            None => bandwidth.clone(),
        };
        let mut link = Link {
            fabric,
            bandwidth,
            pair_bandwidth,
            latency: defaults::intra_latency(&self.architecture, fabric, self.peer_to_peer),
            efficiency: defaults::intra_efficiency(fabric, self.peer_to_peer),
            table: self
                .link_table
                .iter()
                .map(|row| LinkPoint {
                    op: row.op,
                    ranks: row.ranks,
                    bytes: LARGE_MESSAGE,
                    time_s: time_from_bus_bandwidth(
                        row.op,
                        row.ranks,
                        LARGE_MESSAGE,
                        ByteRate(row.bus_gbps * 1e9),
                    ),
                })
                .collect(),
        };
        link.sort_table();
        link
    }
}

impl DeviceType {
    /// Figures that planning needs and that are absent, by their key in a cluster file; empty = usable.
    pub fn missing_figures(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if self.memory.value.0 <= 0.0 {
            missing.push("memory");
        }
        if self.memory_bandwidth.value.0 <= 0.0 {
            missing.push("memory_bandwidth");
        }
        let matrix_peak = [Precision::Bf16, Precision::Fp16, Precision::Fp32];
        if self.measured_peak.is_none() && !matrix_peak.iter().any(|p| self.datasheet_peak.contains_key(p)) {
            missing.push("measured_peak");
        }
        missing
    }

    /// Whether matrix products of this precision run on the device (measured-only devices count as bf16).
    pub fn supports(&self, precision: Precision) -> bool {
        self.datasheet_peak.contains_key(&precision)
            || (self.datasheet_peak.is_empty()
                && precision == Precision::Bf16
                && self.measured_peak.is_some())
    }

    /// The rate that matrix work of `precision` is balanced by: the best measured bf16/fp16 matmul where published, else the
    /// datasheet value; `None` where the device has no such rate.
    pub fn peak(&self, precision: Precision) -> Option<&Sourced<FlopRate>> {
        match precision {
            Precision::Bf16 | Precision::Fp16 if self.supports(precision) => self
                .measured_peak
                .as_ref()
                .or_else(|| self.datasheet_peak.get(&precision)),
            _ => self.datasheet_peak.get(&precision),
        }
    }
}
