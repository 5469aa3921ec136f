//! Commented templates of a cluster file.

/// What `autohaap init` prints: a commented `cluster.toml` that parses.
///
/// `kind` is `mixed` (two vendors, tiers, caps, measured points), `one-node` (gaming cards in one box), and anything else a
/// small two-generation cluster.
pub fn init_text(kind: &str) -> String {
    match kind {
        "mixed" => MIXED,
        "one-node" | "node" => ONE_NODE,
        _ => BASIC,
    }
    .to_owned()
}

/// Kinds of templates.
pub const INIT_KINDS: &[&str] = &["basic", "one-node", "mixed"];

const BASIC: &str = r#"# A cluster for autohaap. `autohaap devices` lists the device names.
# Quantities carry their unit: "80 GiB" or "80 GB" (memory), "400 Gb" (bits) or "50 GB/s" (bytes), "5 us", "312 TFLOPS".
schema = "autohaap/cluster@1"
name = "two generations"

# Memory kept free on every device for context, communicators and libraries (default 1.25 GiB).
# reserved_memory = "1.25 GiB"

# Devices that must not be used, as NODE:INDEX.
# exclude = ["a100-0:3"]

# The most memory to use, by device type (the `max_memory` map of other tools).
# max_memory = { "A100-80G" = "70 GiB" }

# Two equal nodes, named a100-0 and a100-1.
[[nodes]]
name = "a100"
count = 2
devices = [{ type = "A100-80G", count = 8 }]
nic = "ib:8x200Gb"       # FABRIC:CARDSxRATE, per card and direction; fabrics: ib, roce, eth
# speed_factor = 0.9     # 1 = nominal; a slow node has less

[[nodes]]
name = "v100"
count = 4
devices = [{ type = "V100-32G", count = 8 }]
nic = "ib:100Gb"
"#;

const ONE_NODE: &str = r#"# One box with two kinds of cards. `autohaap devices` lists the device names.
schema = "autohaap/cluster@1"
name = "one box"

[[nodes]]
name = "box"
# Device indices run over the groups in order: 0 and 1 are the first type, 2 and 3 the second.
devices = [{ type = "RTX 4090", count = 2 }, { type = "RTX 3080", count = 2 }]
# Cap per device type, for a card that drives a display as well.
max_memory = { "RTX 3080" = "9 GiB" }
# Link between unlike cards: staged through host memory unless measured otherwise.
# cross = { bandwidth = "24 GB/s", efficiency = 0.8, latency = "10 us" }
"#;

const MIXED: &str = r#"# Two vendors, a slow node and a switch tier: every key of a cluster file.
schema = "autohaap/cluster@1"
name = "mixed"
reserved_memory = "1.25 GiB"
exclude = ["nvidia-0:7"]
max_memory = { "MI300X" = "180 GiB" }

# Defaults for all nodes; a node's own keys win.
[network]
fabric = "roce"            # ib, roce or eth: sets latency and efficiency
nic = "8x400Gb"
# latency = "8 us"
# efficiency = 0.8

[[nodes]]
name = "amd"
count = 2
devices = [{ type = "MI300X", count = 8 }]
tier = "rack0"

[[nodes]]
name = "nvidia"
count = 2
devices = [{ type = "H100-80G", count = 8 }]
tier = "rack1"
nic = { count = 8, rate = "400 Gb/s", latency = "6 us", efficiency = 0.85 }
# Measured points of the whole group win over the formula: time of one call, or nccl-tests bus bandwidth.
link_table = [
  { op = "all-reduce", ranks = 16, bytes = "1 MiB", time = "90 us" },
  { op = "all-reduce", ranks = 16, bytes = "512 MiB", bus_bandwidth = "340 GB/s" },
]

[[nodes]]
name = "lab"
devices = "2 My Card"      # the same as [{ type = "My Card", count = 2 }]
nic = "eth:25Gb"
speed_factor = 0.8

# A device of your own: a base and what differs, or all of memory, memory_bandwidth and measured_peak.
[devices."My Card"]
base = "L40S"
memory = "40 GiB"
measured_peak = "210 TFLOPS"                      # best matmul rate you measured
efficiency = { gemm = 0.9, attention = 0.5 }      # relative to the peak in use
intra = { fabric = "bus", bandwidth = "31 GB/s", latency = "10 us", efficiency = 0.7 }

# A figure of a catalogue device, replaced by your measurement.
[devices."H100-80G"]
measured_peak = "760 TFLOPS"
link_table = [
  { op = "all-reduce", ranks = 8, bytes = "1 MiB", time = "35 us" },
  { op = "all-reduce", ranks = 8, bytes = "512 MiB", bus_bandwidth = "440 GB/s" },
]

# Switch tiers; the nodes of a tier share its uplink.
[[tiers]]
name = "rack0"
uplink = "3200 Gb/s"
latency = "1 us"

[[tiers]]
name = "rack1"
uplink = "3200 Gb/s"

# Device types that share a collective library; without any, they are grouped by the library of the device.
[[domains]]
name = "rccl"
device_types = ["MI300X"]

[[domains]]
name = "nccl"
device_types = ["H100-80G", "My Card"]

# Point-to-point traffic between two domains, staged through host memory.
[[bridges]]
between = ["rccl", "nccl"]
bandwidth = "20 GB/s"
latency = "30 us"
"#;
