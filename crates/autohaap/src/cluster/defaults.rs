//! Labelled defaults for figures that no sheet gives: efficiencies, latencies, usable memory. Every one is overridable.

use std::collections::BTreeMap;

use crate::cluster::{Fabric, Provenance, Sourced};
use crate::model::OperatorClass;
use crate::units::{ByteRate, Bytes, Seconds};

/// Share of the sold size (GB read as GiB) that the driver reports: 79.2 GiB of an "80 GB" card, 31.7 of a "32 GB" one.
pub(super) const REPORTED_SHARE: f64 = 0.99;

/// Bandwidth of a PCIe 4 x16 host link, in GB/s and direction.
pub(super) const HOST_LINK_GBPS: f64 = 31.0;

/// Share of a host link that peer-to-peer traffic reaches.
pub(super) const BUS_EFFICIENCY: f64 = 0.8;

/// Share of a host link left when every byte is staged through host memory (consumer cards, mixed vendors): half.
pub(super) const STAGED_EFFICIENCY: f64 = 0.4;

/// Host links that the buses of one node carry at full rate at the same time (two sockets, two root ports each).
pub(super) const BUS_FLOWS: f64 = 4.0;

/// Memory kept free on each device by default: context (about 0.65 GiB), four communicators, library workspaces.
pub(super) const RESERVED_MEMORY: Bytes = Bytes::from_gib(1.25);

/// Capacity from the size as sold.
pub(super) fn memory_from_sold(gb: f64) -> Sourced<Bytes> {
    Sourced::with_source(
        Bytes::from_gib(gb * REPORTED_SHARE),
        Provenance::Assumed,
        format!("{gb} GB as sold; drivers report about 99 % of it in GiB"),
    )
}

fn assumed<T>(value: T, source: &str) -> Sourced<T> {
    Sourced::with_source(value, Provenance::Assumed, source)
}

/// Default efficiency per operator class, relative to the peak in use.
///
/// With a measured matmul peak, dense products reach 0.9 of it (median of large shapes over five data-centre GPUs: 0.83 to
/// 0.98) and flash attention 0.6 (0.45 on AMD). Without one, the share of the datasheet peak depends on the architecture.
/// Expert products reach 0.8 of dense ones; memory-bound work 0.85 of the memory bandwidth.
pub(super) fn efficiency(
    architecture: &str,
    measured: bool,
    flash: bool,
) -> BTreeMap<OperatorClass, Sourced<f64>> {
    let amd = architecture.starts_with("CDNA") || architecture.starts_with("DCU");
    let of_sheet = match architecture {
        "Ampere" => 0.77,
        "Ada" => 0.72,
        "Hopper" | "Pascal" => 0.75,
        "Volta" | "Turing" | "CDNA2" => 0.7,
        "Blackwell" | "Blackwell Ultra" => 0.68,
        "CDNA1" => 0.6,
        "CDNA3" | "CDNA4" => 0.52,
        "TPU" => 0.85,
        a if a.starts_with("Da Vinci") => 0.78,
        a if a.starts_with("NeuronCore") => 0.75,
        _ => 0.65,
    };
    let gemm = if measured { 0.9 } else { of_sheet };
    let attention = match (measured, flash, amd) {
        (true, true, false) => 0.6,
        (true, true, true) => 0.45,
        (false, true, false) => match architecture {
            "Ampere" => 0.55,
            "Hopper" | "Ada" | "Blackwell" | "Blackwell Ultra" => 0.5,
            _ => 0.4,
        },
        (false, true, true) => 0.3,
        (_, false, _) => 0.15,
    };
    let gemm_source = if measured {
        "plateau of large products over the measured peak"
    } else {
        "share of the datasheet peak typical for the architecture"
    };
    let attention_source = if flash {
        "flash attention, forward and backward together"
    } else {
        "no flash attention kernel: attention is bound by memory traffic"
    };
    BTreeMap::from([
        (OperatorClass::Gemm, assumed(gemm, gemm_source)),
        (
            OperatorClass::ExpertGemm,
            assumed(gemm * 0.8, "0.8 of dense products"),
        ),
        (OperatorClass::Attention, assumed(attention, attention_source)),
        (
            OperatorClass::Memory,
            assumed(0.85, "share of the memory bandwidth that streaming kernels reach"),
        ),
    ])
}

/// Replaces the dense efficiency and, with it, the one of expert products.
pub(super) fn set_gemm(efficiency: &mut BTreeMap<OperatorClass, Sourced<f64>>, gemm: Sourced<f64>) {
    efficiency.insert(
        OperatorClass::ExpertGemm,
        assumed(gemm.value * 0.8, "0.8 of dense products"),
    );
    efficiency.insert(OperatorClass::Gemm, gemm);
}

/// Replaces the efficiency of memory-bound work.
pub(super) fn set_memory(efficiency: &mut BTreeMap<OperatorClass, Sourced<f64>>, memory: Sourced<f64>) {
    efficiency.insert(OperatorClass::Memory, memory);
}

/// Latency of one hop inside a node. Switched NVLink values make a tree all-reduce of 8 ranks (6 hops) take the measured 23,
/// 16 and 25 us of A100, H100 and B200.
pub(super) fn intra_latency(architecture: &str, fabric: Fabric, peer_to_peer: bool) -> Sourced<Seconds> {
    let micro = match (fabric, architecture) {
        (Fabric::Switched, "Ampere") => 3.8,
        (Fabric::Switched, "Hopper") => 2.7,
        (Fabric::Switched, _) => 4.2,
        (Fabric::Mesh, a) if a.starts_with("Da Vinci") => 8.0,
        (Fabric::Mesh, _) => 5.0,
        (Fabric::Bus, _) if peer_to_peer => 8.0,
        (Fabric::Bus, _) => 15.0,
    };
    assumed(Seconds(micro / 1e6), "small-message latency typical for the link")
}

/// Share of the link bandwidth that large messages reach inside a node.
pub(super) fn intra_efficiency(fabric: Fabric, peer_to_peer: bool) -> Sourced<f64> {
    match (fabric, peer_to_peer) {
        (Fabric::Switched, _) => assumed(
            0.75,
            "bus bandwidth of large messages over the link rate on NVSwitch boards",
        ),
        (Fabric::Mesh, _) => assumed(
            0.7,
            "bus bandwidth of large messages over the sum of the links in use",
        ),
        (Fabric::Bus, true) => assumed(
            BUS_EFFICIENCY,
            "share of the host link that peer-to-peer traffic reaches",
        ),
        (Fabric::Bus, false) => assumed(
            STAGED_EFFICIENCY,
            "no peer-to-peer access: staged through host memory at half the rate",
        ),
    }
}

/// Kind of network between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// InfiniBand or a comparable fabric with remote memory access.
    InfiniBand,
    /// Remote memory access over Ethernet.
    Roce,
    /// TCP over Ethernet.
    Ethernet,
}

impl Network {
    /// Words that name a network.
    pub const WORDS: &'static [&'static str] = &[
        "ib",
        "infiniband",
        "slingshot",
        "efa",
        "roce",
        "rdma",
        "eth",
        "ethernet",
        "tcp",
    ];

    /// From a word of [`Network::WORDS`], in any letter case.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.trim().to_ascii_lowercase().as_str() {
            "ib" | "infiniband" | "slingshot" => Self::InfiniBand,
            "roce" | "rdma" | "efa" => Self::Roce,
            "eth" | "ethernet" | "tcp" => Self::Ethernet,
            _ => return None,
        })
    }

    /// Name in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "ib",
            Self::Roce => "roce",
            Self::Ethernet => "eth",
        }
    }

    /// Default latency of one hop between nodes.
    pub fn latency(self) -> Sourced<Seconds> {
        let (micro, source) = match self {
            Self::InfiniBand => (6.0, "InfiniBand with direct device access"),
            Self::Roce => (8.0, "RoCE with direct device access"),
            Self::Ethernet => (40.0, "TCP through host memory"),
        };
        assumed(Seconds(micro / 1e6), source)
    }

    /// Default share of the nominal rate that large messages reach.
    pub fn efficiency(self) -> Sourced<f64> {
        match self {
            Self::InfiniBand => assumed(0.85, "large messages on InfiniBand"),
            Self::Roce => assumed(0.8, "large messages on RoCE"),
            Self::Ethernet => assumed(0.7, "large messages over TCP"),
        }
    }
}

/// The host bus between devices of different types in one node: host-staged when a member lacks peer-to-peer access.
pub(super) fn cross_link(host: ByteRate, peer_to_peer: bool) -> crate::cluster::Link {
    let bandwidth = assumed(host, "slowest host link of the node's devices");
    crate::cluster::Link {
        fabric: Fabric::Bus,
        pair_bandwidth: bandwidth.clone(),
        bandwidth,
        latency: intra_latency("", Fabric::Bus, peer_to_peer),
        efficiency: intra_efficiency(Fabric::Bus, peer_to_peer),
        table: Vec::new(),
    }
}
