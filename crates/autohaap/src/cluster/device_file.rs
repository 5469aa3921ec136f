//! Devices defined or overridden in a cluster file.

use std::collections::BTreeMap;

use crate::cluster::plausible::{flops_hint, memory_hint, rate_hint};
use crate::cluster::reader::{Reader, Section};
use crate::cluster::{
    Collective, DeviceType, Fabric, Link, LinkPoint, Precision, Provenance, Sourced, defaults, find_device,
    parse_bytes, parse_flops, parse_rate, parse_seconds, parse_share, time_from_bus_bandwidth,
};
use crate::error::{cluster as codes, nearest};
use crate::model::OperatorClass;
use crate::units::{ByteRate, Bytes, Seconds};

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
    if let Some(value) = section.get(&["intra"]) {
        if let Some(intra) = reader.table(value, section.at("intra")) {
            reader.only(
                &intra,
                &["fabric", "bandwidth", "pair_bandwidth", "latency", "efficiency"],
            );
            read_link(reader, &intra, &mut device.intra, source);
        }
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
    if let Some(value) = section.get(&["peak"]) {
        if let Some(peaks) = reader.table(value, section.at("peak")) {
            reader.only(&peaks, &["bf16", "fp16", "fp8", "fp32"]);
            for (key, precision) in [
                ("bf16", Precision::Bf16),
                ("fp16", Precision::Fp16),
                ("fp8", Precision::Fp8),
                ("fp32", Precision::Fp32),
            ] {
                if let Some(peak) =
                    reader.quantity(&peaks, &[key], parse_flops, "`\"312 TFLOPS\"`", flops_hint)
                {
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

/// Efficiencies lie in (0, 1].
pub(super) fn share_hint(value: f64) -> Option<String> {
    if value > 0.0 && value <= 1.0 {
        return None;
    }
    Some(if value > 1.0 && value <= 100.0 {
        format!("an efficiency is at most 1; for percent write `\"{value} %\"`")
    } else {
        "an efficiency is above 0 and at most 1".into()
    })
}

/// Latencies lie in [0, 1 s).
pub(super) fn latency_hint(value: Seconds) -> Option<String> {
    if (0.0..1.0).contains(&value.0) {
        return None;
    }
    Some(if value.0 < 0.0 {
        "a latency is not negative".into()
    } else {
        format!("the likely unit is us: write `\"{} us\"`", value.0)
    })
}

/// Reads the keys of a link into `link`; a changed bandwidth makes measured points of the base invalid.
pub(super) fn read_link<'a>(reader: &mut Reader<'a>, section: &Section<'a>, link: &mut Link, source: &str) {
    if let Some(word) = reader.string(section, &["fabric"]) {
        match word {
            "switched" => link.fabric = Fabric::Switched,
            "mesh" => link.fabric = Fabric::Mesh,
            "bus" => link.fabric = Fabric::Bus,
            other => {
                let near = nearest(other, ["switched", "mesh", "bus"]).unwrap_or("switched");
                let span = section.get(&["fabric"]).map(toml::Spanned::span);
                reader.problem(
                    &codes::BAD_VALUE,
                    span.as_ref(),
                    &section.at("fabric"),
                    format!("unknown fabric `{other}`"),
                    format!("write `switched`, `mesh` or `bus`; the nearest is `{near}`"),
                );
            }
        }
        link.table.clear();
    }
    let pair = reader.quantity(
        section,
        &["pair_bandwidth"],
        parse_rate,
        "`\"64 GB/s\"`",
        rate_hint,
    );
    if let Some(rate) = reader.quantity(
        section,
        &["bandwidth", "rate"],
        parse_rate,
        "`\"300 GB/s\"`",
        rate_hint,
    ) {
        link.bandwidth = Sourced::with_source(rate, Provenance::User, source);
        if pair.is_none() {
            let share = if link.fabric == Fabric::Mesh {
                1.0 / 7.0
            } else {
                1.0
            };
            link.pair_bandwidth = Sourced::with_source(
                rate * share,
                Provenance::Assumed,
                "derived from the bandwidth of the device",
            );
        }
        link.table.clear();
    }
    if let Some(rate) = pair {
        link.pair_bandwidth = Sourced::with_source(rate, Provenance::User, source);
        link.table.clear();
    }
    if let Some(latency) = reader.quantity(section, &["latency"], parse_seconds, "`\"5 us\"`", latency_hint) {
        link.latency = Sourced::with_source(latency, Provenance::User, source);
    }
    if let Some(share) = reader.quantity(
        section,
        &["efficiency"],
        parse_share,
        "`0.8` or `\"80 %\"`",
        share_hint,
    ) {
        link.efficiency = Sourced::with_source(share, Provenance::User, source);
        link.table.clear();
    }
}

/// Reads `link_table = [{op, ranks, bytes, time | bus_bandwidth}, ...]` and checks that sizes and times rise together.
pub(super) fn read_table<'a>(reader: &mut Reader<'a>, section: &Section<'a>) -> Vec<LinkPoint> {
    let mut points: Vec<(LinkPoint, std::ops::Range<usize>)> = Vec::new();
    for row in reader.tables(section, &["link_table"]) {
        reader.only(&row, &["op", "ranks", "bytes", "time", "bus_bandwidth"]);
        let op = match reader.string(&row, &["op"]) {
            Some("all-reduce" | "all_reduce") => Some(Collective::AllReduce),
            Some("all-gather" | "all_gather") => Some(Collective::AllGather),
            Some("reduce-scatter" | "reduce_scatter") => Some(Collective::ReduceScatter),
            Some("all-to-all" | "alltoall" | "all_to_all") => Some(Collective::AllToAll),
            Some("point-to-point" | "sendrecv" | "p2p") => Some(Collective::PointToPoint),
            Some(other) => {
                let words = [
                    "all-reduce",
                    "all-gather",
                    "reduce-scatter",
                    "all-to-all",
                    "point-to-point",
                ];
                let near = nearest(other, words).unwrap_or("all-reduce");
                let hint = format!("one of {}; the nearest is `{near}`", words.join(", "));
                reader.problem(
                    &codes::BAD_VALUE,
                    Some(&row.span),
                    &row.at("op"),
                    format!("unknown operation `{other}`"),
                    hint,
                );
                None
            }
            None => {
                reader.missing(&row, "op", "`op = \"all-reduce\"`");
                None
            }
        };
        let ranks = match row.get(&["ranks"]) {
            Some(_) => reader
                .count(&row, &["ranks"], crate::cluster::assemble::LIMIT)
                .map(|r| r.max(2)),
            None => Some(2).filter(|_| op == Some(Collective::PointToPoint)),
        };
        if ranks.is_none() && row.get(&["ranks"]).is_none() {
            reader.missing(&row, "ranks", "`ranks = 8`");
        }
        let bytes = reader.quantity(&row, &["bytes"], parse_bytes, "`\"512 MiB\"`", |b| positive(b.0));
        let time = reader.quantity(&row, &["time"], parse_seconds, "`\"60 us\"`", |t| positive(t.0));
        let bus = reader.quantity(&row, &["bus_bandwidth"], parse_rate, "`\"220 GB/s\"`", rate_hint);
        if row.get(&["bytes"]).is_none() {
            reader.missing(&row, "bytes", "`bytes = \"512 MiB\"`");
        }
        if row.get(&["time"]).is_none() && row.get(&["bus_bandwidth"]).is_none() {
            reader.missing(
                &row,
                "time",
                "`time = \"60 us\"` or `bus_bandwidth = \"220 GB/s\"`",
            );
        }
        if let (Some(op), Some(ranks), Some(bytes)) = (op, ranks, bytes) {
            let time = time.or_else(|| bus.map(|b| time_from_bus_bandwidth(op, ranks, bytes, b)));
            if let Some(time_s) = time {
                points.push((
                    LinkPoint {
                        op,
                        ranks,
                        bytes,
                        time_s,
                    },
                    row.span.clone(),
                ));
            }
        }
    }
    points.sort_by(|a, b| {
        (a.0.op, a.0.ranks)
            .cmp(&(b.0.op, b.0.ranks))
            .then(a.0.bytes.0.total_cmp(&b.0.bytes.0))
    });
    for pair in points.windows(2) {
        let (a, b) = (&pair[0].0, &pair[1].0);
        if (a.op, a.ranks) == (b.op, b.ranks) && (a.bytes.0 >= b.bytes.0 || a.time_s.0 > b.time_s.0) {
            let message = format!(
                "{:.0} bytes take {} and {:.0} bytes take {}",
                a.bytes.0, a.time_s, b.bytes.0, b.time_s
            );
            reader.problem(
                &codes::BAD_TABLE,
                Some(&pair[1].1),
                &section.at("link_table"),
                message,
                "keep one point a size; times must not fall as sizes rise",
            );
        }
    }
    points.into_iter().map(|p| p.0).collect()
}

fn positive(v: f64) -> Option<String> {
    (v <= 0.0 || v > 1e18).then(|| "write a positive value".to_owned())
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
