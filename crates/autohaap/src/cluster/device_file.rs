//! Devices defined or overridden in a cluster file.

use std::collections::BTreeMap;

use crate::cluster::link_file::{read_link, read_table, share_hint};
use crate::cluster::plausible::{flops_hint, memory_hint, rate_hint};
use crate::cluster::reader::{Reader, Section};
use crate::cluster::{
    DeviceType, Fabric, Link, Precision, Provenance, Sourced, defaults, find_device, parse_bytes,
    parse_flops, parse_rate, parse_share,
};
use crate::model::OperatorClass;
use crate::units::{ByteRate, Bytes};

const KEYS: &[&str] = &[
    "base",
    "vendor",
    "architecture",
    "collective_library",
    "memory",
    "memory_bandwidth",
    "peak",
    "measured_peak",
    "efficiency",
    "flash_attention",
    "peer_to_peer",
    "intra",
    "link_table",
    "price_per_hour",
    "confidence",
    "source",
];

/// Reads `[devices."NAME"]`: the canonical name and the device. A name of the catalogue is its own base.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    section: &Section<'a>,
    name: &str,
    source: &str,
    notes: &mut Vec<String>,
) -> Option<DeviceType> {
    reader.only(section, KEYS);
    let user = |reason: &str| {
        Some(if reason.is_empty() {
            source.to_owned()
        } else {
            reason.to_owned()
        })
    };
    let base_name = reader.string(section, &["base"]);
    let base = match base_name {
        Some(base) => match find_device(base) {
            Ok(found) => {
                notes.extend(found.assumed.clone());
                let mut device = found.device_type;
                name.clone_into(&mut device.name);
                Some(device)
            }
            Err(problem) => {
                let span = section.get(&["base"]).map(toml::Spanned::span);
                reader.problem(
                    problem.code,
                    span.as_ref(),
                    &section.at("base"),
                    problem.message,
                    problem.hint,
                );
                return None;
            }
        },
        None => find_device(name).ok().map(|found| {
            notes.extend(found.assumed.clone());
            found.device_type
        }),
    };
    let inherited = base.is_some();
    let mut device = base.unwrap_or_else(|| blank(name));
    for (key, field) in [
        ("vendor", &mut device.vendor),
        ("architecture", &mut device.architecture),
        ("collective_library", &mut device.collective_library),
        ("confidence", &mut device.confidence),
        ("source", &mut device.source),
    ] {
        if let Some(text) = reader.string(section, &[key]) {
            text.clone_into(field);
        }
    }
    if !inherited && section.get(&["collective_library"]).is_none() {
        let library = match device.vendor.to_ascii_lowercase().as_str() {
            "amd" => "rccl",
            "huawei" => "hccl",
            _ => "nccl",
        };
        library.clone_into(&mut device.collective_library);
        notes.push(format!(
            "`{name}` is assumed to use the collective library `{library}`"
        ));
    }
    if let Some(memory) = reader.quantity(section, &["memory"], parse_bytes, "`\"80 GiB\"`", memory_hint) {
        device.memory = Sourced {
            value: memory,
            from: Provenance::User,
            source: user(""),
        };
    }
    if let Some(rate) = reader.quantity(
        section,
        &["memory_bandwidth"],
        parse_rate,
        "`\"2000 GB/s\"`",
        memory_rate_hint,
    ) {
        device.memory_bandwidth = Sourced {
            value: rate,
            from: Provenance::User,
            source: user(""),
        };
    }
    let flash = reader.boolean(section, &["flash_attention"]);
    if let Some(flash) = flash {
        device.flash_attention = flash;
    }
    let peaks = read_peaks(reader, section, &mut device, source);
    if peaks || flash.is_some() || !inherited {
        device.efficiency = defaults::efficiency(
            &device.architecture,
            device.measured_peak.is_some(),
            device.flash_attention,
        );
    }
    read_efficiency(reader, section, &mut device, source);
    if let Some(access) = reader.boolean(section, &["peer_to_peer"]) {
        device.intra.latency = defaults::intra_latency(&device.architecture, device.intra.fabric, access);
        device.intra.efficiency = defaults::intra_efficiency(device.intra.fabric, access);
    }
    if let Some(value) = section.get(&["intra"])
        && let Some(intra) = reader.table(value, section.at("intra"))
    {
        reader.only(
            &intra,
            &["fabric", "bandwidth", "pair_bandwidth", "latency", "efficiency"],
        );
        read_link(reader, &intra, &mut device.intra, source);
    }
    let points = read_table(reader, section);
    if !points.is_empty() {
        device.intra.table = points;
        device.intra.sort_table();
    }
    if let Some(price) = reader.quantity(section, &["price_per_hour"], parse_share, "`2.5`", |v| {
        (!(0.0..=1e5).contains(&v)).then(|| "write the price of one device and hour, zero or more".to_owned())
    }) {
        device.price_per_hour = Some(price);
    }
    Some(device)
}

/// Memory bandwidth of a device: up to 100 TB/s, else as for links.
fn memory_rate_hint(rate: ByteRate) -> Option<String> {
    if (1e9..=1e14).contains(&rate.0) {
        None
    } else {
        rate_hint(rate).or_else(|| Some("a device reads its memory at 1 GB/s to 100 TB/s".into()))
    }
}

fn read_peaks<'a>(
    reader: &mut Reader<'a>,
    section: &Section<'a>,
    device: &mut DeviceType,
    source: &str,
) -> bool {
    let mut changed = false;
    if let Some(value) = section.get(&["peak"])
        && let Some(peaks) = reader.table(value, section.at("peak"))
    {
        reader.only(&peaks, &["bf16", "fp16", "fp8", "fp32"]);
        for (key, precision) in [
            ("bf16", Precision::Bf16),
            ("fp16", Precision::Fp16),
            ("fp8", Precision::Fp8),
            ("fp32", Precision::Fp32),
        ] {
            if let Some(peak) = reader.quantity(&peaks, &[key], parse_flops, "`\"312 TFLOPS\"`", flops_hint) {
                let peak = Sourced::with_source(peak, Provenance::User, source);
                device.datasheet_peak.insert(precision, peak);
                // A measurement of the base says nothing about another rate.
                if matches!(precision, Precision::Bf16 | Precision::Fp16) {
                    device.measured_peak = None;
                    changed = true;
                }
            }
        }
    }
    if let Some(peak) = reader.quantity(
        section,
        &["measured_peak"],
        parse_flops,
        "`\"270 TFLOPS\"`",
        flops_hint,
    ) {
        device.measured_peak = Some(Sourced::with_source(peak, Provenance::User, source));
        changed = true;
    }
    changed
}

fn read_efficiency<'a>(
    reader: &mut Reader<'a>,
    section: &Section<'a>,
    device: &mut DeviceType,
    source: &str,
) {
    let Some(value) = section.get(&["efficiency"]) else {
        return;
    };
    let Some(table) = reader.table(value, section.at("efficiency")) else {
        return;
    };
    reader.only(
        &table,
        &["gemm", "expert_gemm", "expert-gemm", "attention", "memory"],
    );
    for (names, class) in [
        (&["gemm"][..], OperatorClass::Gemm),
        (&["expert_gemm", "expert-gemm"][..], OperatorClass::ExpertGemm),
        (&["attention"][..], OperatorClass::Attention),
        (&["memory"][..], OperatorClass::Memory),
    ] {
        if let Some(share) = reader.quantity(&table, names, parse_share, "`0.8` or `\"80 %\"`", share_hint) {
            let share = Sourced::with_source(share, Provenance::User, source);
            if class == OperatorClass::Gemm {
                defaults::set_gemm(&mut device.efficiency, share);
            } else {
                device.efficiency.insert(class, share);
            }
        }
    }
}

/// A device without any figure.
fn blank(name: &str) -> DeviceType {
    let host = Sourced::with_source(
        ByteRate(defaults::HOST_LINK_GBPS * 1e9),
        Provenance::Assumed,
        "a PCIe 4 x16 host link is assumed",
    );
    DeviceType {
        name: name.to_owned(),
        vendor: "unknown".into(),
        architecture: "unknown".into(),
        collective_library: String::new(),
        memory: Sourced::with_source(Bytes::ZERO, Provenance::Assumed, "not given"),
        memory_bandwidth: Sourced::with_source(ByteRate::ZERO, Provenance::Assumed, "not given"),
        datasheet_peak: BTreeMap::new(),
        measured_peak: None,
        efficiency: BTreeMap::new(),
        curve: None,
        flash_attention: true,
        intra: Link {
            fabric: Fabric::Bus,
            pair_bandwidth: host.clone(),
            bandwidth: host,
            latency: defaults::intra_latency("", Fabric::Bus, true),
            efficiency: defaults::intra_efficiency(Fabric::Bus, true),
            table: Vec::new(),
        },
        confidence: "user".into(),
        source: "cluster file".into(),
        price_per_hour: None,
    }
}
