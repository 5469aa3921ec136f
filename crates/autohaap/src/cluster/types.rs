//! The cluster as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::OperatorClass;
use crate::units::{ByteRate, Bytes, FlopRate, Seconds};

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// Measured on the device or link itself.
    Measured,
    /// Read from a vendor sheet.
    Datasheet,
    /// Read from a file the user brought.
    Imported,
    /// Typed by the user.
    User,
    /// A labelled default.
    Assumed,
}

/// A number with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sourced<T> {
    /// The value in base units.
    pub value: T,
    /// Its provenance.
    pub from: Provenance,
    /// Document, file or reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl<T> Sourced<T> {
    /// A value with a provenance and the document or reason behind it.
    pub fn with_source(value: T, from: Provenance, source: impl Into<String>) -> Self {
        Self {
            value,
            from,
            source: Some(source.into()),
        }
    }
    /// A value with a provenance and no further source.
    pub fn new(value: T, from: Provenance) -> Self {
        Self {
            value,
            from,
            source: None,
        }
    }
}

/// Number format of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bfloat16 mixed precision.
    Bf16,
    /// float16 mixed precision with loss scaling.
    Fp16,
    /// 8-bit matrix products, bf16 storage.
    Fp8,
    /// float32 throughout.
    Fp32,
}

/// How devices of one node are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// A switch: each device reaches its full bandwidth with any group size.
    Switched,
    /// A full mesh of point-to-point links: bandwidth grows with group size.
    Mesh,
    /// A host bus shared by the devices of the node.
    Bus,
}

/// A link by latency and bandwidth (the fallback), refined by measured points per operation and group size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// How the parties are connected.
    pub fabric: Fabric,
    /// Bandwidth per device (inside a node) or per NIC (between nodes) and direction.
    ///
    /// On a [`Fabric::Bus`] it is the host link; a larger `pair_bandwidth` there means bridged pairs.
    pub bandwidth: Sourced<ByteRate>,
    /// Bandwidth of one pair of devices, per direction (differs from `bandwidth` on meshes).
    pub pair_bandwidth: Sourced<ByteRate>,
    /// One-way latency.
    pub latency: Sourced<Seconds>,
    /// Share of `bandwidth` that large messages reach.
    pub efficiency: Sourced<f64>,
    /// Measured points; empty = fallback only. Sorted by operation, ranks and bytes ([`Link::sort_table`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<LinkPoint>,
}

/// One measured point of a collective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkPoint {
    /// Operation.
    pub op: Collective,
    /// Ranks of the group.
    pub ranks: u32,
    /// Message size in bytes (the full tensor for all-reduce, the gathered tensor for all-gather).
    pub bytes: Bytes,
    /// Time of one call.
    pub time_s: Seconds,
}

/// Communication operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// All-reduce.
    AllReduce,
    /// All-gather.
    AllGather,
    /// Reduce-scatter.
    ReduceScatter,
    /// All-to-all.
    AllToAll,
    /// One sender, one receiver.
    PointToPoint,
}

/// How far the operators of a device depart from its nominal efficiencies, and how their rates depend on the shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Curve {
    /// Rate of dense products sustained in training over that of published kernel tables.
    pub gemm: f64,
    /// Factor on the efficiency of expert products.
    pub expert: f64,
    /// Factor on the efficiency of flash attention.
    pub attention: f64,
    /// Factor on the efficiency of memory-bound work.
    pub memory: f64,
    /// Efficiency of 8-bit products relative to that of 16-bit ones, each against its own peak.
    pub fp8: f64,
    /// Size of a matrix dimension at which a product reaches half of its plateau along that dimension.
    pub half: f64,
    /// Rate of weight-gradient products over that of forward products.
    pub weight_grad: f64,
    /// Launch and tail of one kernel.
    pub launch_s: Seconds,
}

impl Default for Curve {
    /// No departure; half the plateau at 64, weight gradients at 0.85 (10-20 % over several published shapes), 4 us a kernel
    /// (the low end of the measured 2-17 us, as kernels of a layer queue behind each other).
    fn default() -> Self {
        Self {
            gemm: 1.0,
            expert: 1.0,
            attention: 1.0,
            memory: 1.0,
            fp8: 1.0,
            half: 64.0,
            weight_grad: 0.85,
            launch_s: Seconds(4e-6),
        }
    }
}

/// A kind of accelerator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceType {
    /// Canonical name, for example `A100-SXM-80GB`.
    pub name: String,
    /// Vendor.
    pub vendor: String,
    /// Architecture, for example `Ampere`.
    pub architecture: String,
    /// Collective library, which is the default domain: `nccl`, `rccl`, `hccl`, ...
    pub collective_library: String,
    /// Capacity as the device reports it.
    pub memory: Sourced<Bytes>,
    /// Memory bandwidth.
    pub memory_bandwidth: Sourced<ByteRate>,
    /// Datasheet dense peaks per precision; absent = not supported.
    pub datasheet_peak: BTreeMap<Precision, Sourced<FlopRate>>,
    /// Best measured matmul rate (bf16, else fp16), if published.
    pub measured_peak: Option<Sourced<FlopRate>>,
    /// Efficiency per operator class relative to the peak in use (memory class: to the memory bandwidth).
    pub efficiency: BTreeMap<OperatorClass, Sourced<f64>>,
    /// Shape dependence of the compute rates, where known better than by the calibration tables (a user's own fit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// Whether a flash-attention kernel exists for training.
    pub flash_attention: bool,
    /// Link inside a node.
    pub intra: Link,
    /// Confidence of the row: A, B, C, D.
    pub confidence: String,
    /// Sources and notes.
    pub source: String,
    /// Price per device and hour, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
}

/// Some equal devices of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceGroup {
    /// Key into [`Cluster::device_types`].
    #[serde(rename = "type")]
    pub device_type: String,
    /// Devices.
    pub count: u32,
}

/// One machine. Its device indices run over the groups in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// Device groups.
    pub groups: Vec<DeviceGroup>,
    /// Relative speed, 1 = nominal, 0.5 = half as fast.
    pub speed_factor: Sourced<f64>,
    /// Network cards: `count` cards, each with this link.
    pub nic_count: Sourced<u32>,
    /// Link of one network card.
    pub nic: Link,
    /// Name of the switch tier the node hangs on; nodes of one tier share its uplink. Empty = the root.
    #[serde(default)]
    pub tier: String,
    /// Link between device groups of different type inside the node (usually the host bus).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<Link>,
    /// User cap on memory per device type of this node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory_cap: BTreeMap<String, Sourced<Bytes>>,
    /// Indices of devices that must not be used, ascending; they keep their index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<u32>,
}

/// A switch tier whose uplink is shared by its nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tier {
    /// Unique name.
    pub name: String,
    /// Parent tier; empty = the root.
    #[serde(default)]
    pub parent: String,
    /// Uplink bandwidth of the whole tier and direction.
    pub uplink: Sourced<ByteRate>,
    /// Extra latency of crossing it.
    pub latency: Sourced<Seconds>,
}

/// Device types that share a collective library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Domain {
    /// Unique name, for example `nccl`.
    pub name: String,
    /// Device types in it.
    pub device_types: Vec<String>,
}

/// A declared path for point-to-point traffic between two domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bridge {
    /// The two domains, in any order.
    pub between: [String; 2],
    /// Bandwidth of one node's traffic over it and direction (host staging included).
    pub bandwidth: Sourced<ByteRate>,
    /// One-way latency.
    pub latency: Sourced<Seconds>,
}

/// A cluster of mixed accelerators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cluster {
    /// Display name.
    pub name: String,
    /// Device types in use, by canonical name.
    pub device_types: BTreeMap<String, DeviceType>,
    /// Machines.
    pub nodes: Vec<Node>,
    /// Switch tiers; empty = one non-blocking switch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// Domains; every device type is in exactly one.
    pub domains: Vec<Domain>,
    /// Bridges between domains; a missing one means: no traffic between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<Bridge>,
    /// Memory kept free on each device for context, communicators and libraries.
    pub reserved_memory: Sourced<Bytes>,
    /// What was assumed while the description was read, one sentence each, for printing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Measured layer times, see `--profile`; empty = none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<super::LayerProfile>,
}
