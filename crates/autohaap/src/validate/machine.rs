//! The cluster of a row: devices, nodes and networks as the source words them.

use super::case::{Case, leading};
use crate::cluster::{Cluster, parse_cluster};
use crate::units::ByteRate;

/// Devices of one NVLink domain that a plan uses as one node: 64 of 72, a power of two.
const RACK: u64 = 64;

/// Device words of sources that the catalogue does not know by themselves.
const DEVICES: &[(&str, &str)] = &[
    ("A100-40GB", "A100-SXM-40GB"),
    ("A100", "A100-SXM-80GB"),
    ("A800", "A800-SXM-80GB"),
    ("H100-96GB", "H100-SXM-96GB-500W (HBM2e)"),
    ("H100", "H100-SXM-80GB"),
    ("H800", "H800-SXM-80GB"),
    ("H200", "H200-SXM-141GB"),
    ("GB200", "GB200"),
    ("GB300", "GB300"),
    ("B200", "B200-SXM"),
    ("B300", "B300-SXM"),
    ("GH-96", "GH200-96GB"),
    ("V100-32GB", "V100-SXM2-32GB"),
    ("V100-16GB", "V100-SXM2-16GB"),
    ("T4", "T4"),
    ("Ascend 910", "Ascend 910B1"),
    ("MetaX C500", "MXC500 (PCIe)"),
    ("RTX-3090", "RTX 3090"),
    ("RTX-2080", "RTX 2080"),
    ("Titan-RTX", "TITAN RTX"),
];

/// A cluster with the names of the networks that its links belong to.
pub(super) struct Machine {
    pub(super) cluster: Cluster,
    /// Entry of the fitted networks between nodes.
    pub(super) network: &'static str,
    /// Entry of the fitted links inside a node, where the source's are not the catalogue's.
    pub(super) inside: Option<&'static str>,
}

fn device(word: &str) -> String {
    let word = word.trim();
    DEVICES
        .iter()
        .find(|(known, _)| word.starts_with(known))
        .map_or_else(|| word.to_owned(), |(_, name)| (*name).to_owned())
}

/// Network of a row: name of its fitted entry, kind word, cards per node, Gb/s of a card.
fn network(text: &str, per_node: u64) -> (&'static str, &'static str, u64, u64) {
    let has = |word: &str| text.contains(word);
    match text {
        _ if has("8x200Gb/s HDR") => ("ib-hdr", "ib", 8, 200),
        _ if has("Omni-Path") => ("omni-path", "ib", 4, 100),
        _ if has("1600 Gb/s RoCE") => ("roce-8x200", "roce", 8, 200),
        _ if has("800 Gb/s per node") => ("ib-4x200", "ib", 4, 200),
        _ if has("10 Gb/s V100 nodes") => ("cloud-10", "eth", 1, 10),
        _ if text == "50 Gb/s" => ("cloud-50", "eth", 1, 50),
        _ if has("Slingshot") => ("slingshot", "ib", 4, 200),
        _ if has("university") => ("campus", "eth", 1, 10),
        _ if has("RoCE RDMA") => ("roce", "roce", 4, 200),
        _ if has("RoCE, rate not stated") => ("roce", "roce", 8, 200),
        _ => ("ib-ndr", "ib", per_node.max(1), 400),
    }
}

/// The cluster of a row.
///
/// # Errors
/// A sentence on what cannot be expressed.
pub(super) fn machine(case: &Case, assumed: &mut Vec<String>) -> Result<Machine, String> {
    let gpus = case
        .count("gpus")
        .filter(|g| (1..=100_000).contains(g))
        .ok_or("no device count")?;
    let stages = case.text("stage_devices");
    if stages.contains("xTP") {
        return replicas(stages);
    }
    let text = case.text("device");
    let racks = case.text("gpus_per_node").contains("NVL72");
    let per_node = if racks {
        RACK.min(gpus)
    } else {
        case.count("gpus_per_node").unwrap_or(8).min(gpus)
    };
    let (name, kind, cards, rate) = network(case.text("inter_link"), per_node);
    if case.text("inter_link").contains("not stated") && gpus > per_node {
        assumed.push(format!("network {kind}:{cards}x{rate}Gb"));
    }
    let mixed = text.contains("V100") && text.contains("T4");
    let groups = if mixed {
        "3x4 V100-SXM2-16GB + 1x4 T4".to_owned()
    } else {
        if !gpus.is_multiple_of(per_node) {
            return Err(format!("{gpus} devices are not whole nodes of {per_node}"));
        }
        format!("{}x{per_node} {}", gpus / per_node, device(text))
    };
    let shorthand = format!("{groups} @ {kind}:{cards}x{rate}Gb");
    let mut cluster = parse_cluster(&shorthand, &case.id)
        .map_err(|p| p.0.first().map_or_else(String::new, |p| p.message.clone()))?;
    let mut inside = case
        .text("intra_link")
        .contains("links per GPU pair")
        .then_some("nvlink-pairs");
    if mixed || case.text("intra_link").starts_with("PCIe 50 Gb/s") {
        inside = Some("cloud-pcie");
        for node in &mut cluster.nodes {
            if node.groups[0].device_type == "T4" {
                node.nic.bandwidth.value = ByteRate(50e9 / 8.0);
            }
        }
    }
    Ok(Machine {
        cluster,
        network: name,
        inside,
    })
}

/// One node per replica: `RTX-3090xTP8+RTX-2080xTP8 | Titan-RTXxTP8`.
fn replicas(stages: &str) -> Result<Machine, String> {
    let mut groups = Vec::new();
    for replica in stages.split(['|', '+']) {
        let (name, tp) = replica
            .trim()
            .split_once("xTP")
            .ok_or("a replica without TP degree")?;
        let tp = leading(tp).ok_or("a replica without TP degree")?;
        groups.push(format!("1x{tp} {}", device(name)));
    }
    let shorthand = format!("{} @ eth:10Gb", groups.join(" + "));
    let cluster = parse_cluster(&shorthand, "row")
        .map_err(|p| p.0.first().map_or_else(String::new, |p| p.message.clone()))?;
    Ok(Machine {
        cluster,
        network: "campus",
        inside: Some("campus-pcie"),
    })
}
