//! Codes E3xx: cluster.

use super::Code;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal, $page:literal;)*) => {
        $($(#[$doc])* pub static $name: Code = Code { id: $id, title: $title, page: $page };)*
        /// All codes of this area.
        pub static ALL: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    /// The file is not TOML.
    CLUSTER_SYNTAX = "E301", "the cluster file is not well-formed TOML",
        "A cluster file is TOML; the text at the reported place breaks its grammar, so nothing after it can be trusted.\n\n\
         Example: `devices = [{ type = \"A100-80G\", count = 8 ]` lacks a closing brace.\n\n\
         Remedy: mend the reported line. `autohaap init` prints a template that parses. A shorthand such as \
         `2x8 A100-80G @ ib:200Gb` is read instead of a file when the text has no `=` sign and no line break.";
    /// A device name matches nothing.
    UNKNOWN_DEVICE = "E302", "unknown device",
        "Every device must be in the catalogue or be defined in the file, because speeds and memory are never guessed from a name.\n\n\
         Example: `A100-41` is no product; `A100-40G` and `A100-80G` are. Names are forgiving about case, separators, the \
         vendor's name and the form (`NVIDIA A100-SXM4-80GB`, `a100_80`), not about the memory size.\n\n\
         Remedy: use one of the nearest names, list all with `autohaap devices`, or define the device: \
         `[devices.\"My Card\"]` with `base = \"A100-SXM-80GB\"` and the fields that differ.";
    /// A key nobody reads.
    UNKNOWN_KEY = "E303", "unknown key in the cluster file",
        "A misspelt key that is silently ignored would plan for another cluster than the one described, so unknown keys are errors.\n\n\
         Example: `speed_facter = 0.5` in a node; the key is `speed_factor`.\n\n\
         Remedy: use the nearest key named in the hint or delete the line. `autohaap init` prints every key with a comment.";
    /// A device lacks figures.
    MISSING_FIGURES = "E304", "the device lacks figures that planning needs",
        "Some vendors publish neither memory nor speed of a device. The catalogue lists such devices but invents nothing, so \
         a plan on them needs your numbers.\n\n\
         Example: `MTT S5000` has no published memory, bandwidth or matrix rate.\n\n\
         Remedy: add to the cluster file `[devices.\"MTT S5000\"]` with `memory = \"80 GiB\"`, `memory_bandwidth = \"1600 GB/s\"` \
         and `measured_peak = \"200 TFLOPS\"` from your own measurement.";
    /// A value has the wrong type or cannot be read.
    BAD_VALUE = "E305", "a value cannot be read",
        "The value has the wrong type or an unknown unit. Sizes are written `80 GiB` or `80 GB`, rates `400 Gb/s` (bits) or \
         `50 GB/s` (bytes), times `5 us`, compute rates `312 TFLOPS`, shares `0.8` or `80 %`.\n\n\
         Example: `nic = \"fast\"` or `count = \"eight\"`.\n\n\
         Remedy: write a number with its unit in quotes, or a bare number in base units (bytes, bytes per second, seconds).";
    /// A value is outside what hardware can be.
    IMPLAUSIBLE = "E306", "a value is outside the plausible range",
        "Sizes and rates travel between tools in MiB, GB, bytes, Mb/s, Gb/s and GB/s, and a wrong unit gives a plausible-looking but \
         useless plan. A device has 1 GiB to 1 TiB of memory, a link 0.001 GB/s to 10 TB/s, a compute rate lies between 0.1 TFLOPS \
         and 100 PFLOPS, an efficiency in (0, 1], a speed factor in (0, 10], a latency below one second.\n\n\
         Example: `memory = 81920` is 80 KiB; the number came from nvidia-smi and is in MiB: `memory = \"81920 MiB\"`.\n\n\
         Remedy: write the unit that the hint suggests.";
    /// A count is zero, negative or too large.
    BAD_COUNT = "E307", "a count is zero, negative or too large",
        "Counts of nodes, devices and network cards are whole numbers of at least one, and a cluster may have 100,000 devices and \
         100,000 nodes at most; the limit is checked before anything is expanded.\n\n\
         Example: `count = 0`, or `99999x99999 A100-80G`.\n\n\
         Remedy: give the true count, or delete the group.";
    /// Two things share a name.
    DUPLICATE_NAME = "E308", "a name is used twice",
        "Nodes, tiers, domains and devices are referred to by name (`node:index` in plans), so each name may stand for one thing only.\n\n\
         Example: two `[[nodes]]` named `a`, or a node `a` with `count = 2` (which makes `a-0` and `a-1`) beside a node `a-1`.\n\n\
         Remedy: rename one of them.";
    /// The shorthand cannot be read.
    SHORTHAND = "E309", "the cluster shorthand cannot be read",
        "A shorthand is: groups `NODESxDEVICES TYPE` joined by `+`, then `@ FABRIC:RATE` for the network between nodes. Several \
         types inside one node stand in parentheses.\n\n\
         Examples: `2x8 A100-80G + 4x8 V100-32G @ ib:100Gb`, `4x8 H100 @ ib:8x400Gb`, `1x(2 RTX4090 + 2 RTX3080)`. FABRIC is one of \
         ib, roce, eth; RATE is per node and direction, with a number of cards in front when there are several.\n\n\
         Remedy: mend the text at the reported column.";
    /// Nothing to plan on.
    EMPTY_CLUSTER = "E310", "the cluster has no usable device",
        "A plan needs at least one device. The description holds no node, or every device is excluded.\n\n\
         Example: a file with `name = \"lab\"` only, or `exclude` listing all devices.\n\n\
         Remedy: add `[[nodes]]` with `devices = [{ type = \"A100-80G\", count = 8 }]`; `autohaap init` prints a template.";
    /// Domains do not cover the device types.
    DOMAIN_COVERAGE = "E311", "domains do not cover the device types exactly once",
        "A domain is a set of device types that share a collective library. Every device type in use belongs to exactly one domain, \
         else it would be undefined which devices may reduce gradients together.\n\n\
         Example: `[[domains]]` lists `MI300X` only while the cluster also has `H100-SXM-80GB`.\n\n\
         Remedy: list each type in one domain, or delete all `[[domains]]`: types are then grouped by their collective library.";
    /// A reference to nothing.
    UNKNOWN_REFERENCE = "E312", "a reference names nothing in this file",
        "Nodes refer to tiers, tiers to parents, bridges to domains, exclusions and memory caps to devices; each must exist.\n\n\
         Example: `tier = \"rack9\"` without `[[tiers]]` of that name, or `exclude = [\"a:8\"]` when node `a` has devices 0 to 7.\n\n\
         Remedy: use one of the names in the hint or add the missing table.";
    /// Tiers form a loop.
    TIER_CYCLE = "E313", "switch tiers form a loop",
        "Tiers are a tree: following `parent` must end at the root (no parent). A loop has no root, so no path between nodes is defined.\n\n\
         Example: tier `a` with parent `b` and tier `b` with parent `a`.\n\n\
         Remedy: delete the `parent` of the topmost tier.";
    /// A name that cannot be used in scripts.
    BAD_NAME = "E314", "a name has characters that are not allowed",
        "Node names end up in host files, launch scripts and file names. They have letters, digits, `.`, `_` and `-` only, do not \
         start with `-` or `.`, and are at most 253 characters long.\n\n\
         Example: `name = \"gpu 1; reboot\"`.\n\n\
         Remedy: use the host's DNS name. With `count`, `{}` in the name stands for the number: `gpu{}` gives gpu0, gpu1, ...";
    /// A required key is absent.
    MISSING_KEY = "E315", "a required key is missing",
        "Some keys have no sensible default: the name and devices of a node, the uplink of a tier, the bandwidth of a bridge, the memory \
         of a device that is defined without a base.\n\n\
         Example: `[[bridges]]` with `between` but without `bandwidth`.\n\n\
         Remedy: add the key; `autohaap init` shows each with an example.";
    /// A bridge that joins nothing.
    BAD_BRIDGE = "E316", "a bridge does not join two different domains",
        "A bridge declares that point-to-point traffic between two collective libraries is possible, at what speed. It names two \
         different domains, and two domains have one bridge at most.\n\n\
         Example: `between = [\"nccl\", \"nccl\"]`.\n\n\
         Remedy: name the two domains that exchange activations, for example `between = [\"nccl\", \"rccl\"]`.";
    /// Nothing remains of a device's memory.
    NO_MEMORY_LEFT = "E317", "reserved memory leaves nothing on a device",
        "`reserved_memory` is kept free on every device for the context, communicators and libraries. It must be smaller than the \
         smallest device memory and the smallest cap.\n\n\
         Example: `reserved_memory = \"12 GiB\"` with a 10 GB card.\n\n\
         Remedy: reserve less (1 to 3 GiB is usual), raise the cap, or exclude the device.";
    /// A device address that does not exist.
    BAD_ADDRESS = "E318", "no device has this address",
        "A device is written `NODE:INDEX`; indices start at 0 and run over the node's device groups in order.\n\n\
         Example: `n0:8` when node `n0` has devices 0 to 7.\n\n\
         Remedy: use a node of the cluster and an index below its number of devices.";
    /// A measured table contradicts itself.
    BAD_TABLE = "E319", "a measured link table contradicts itself",
        "A measured point gives the time of one collective call. Points of one operation and group size must have rising sizes and must \
         not get faster as they get larger, else interpolation between them is meaningless.\n\n\
         Example: 1 MiB in 60 us and 2 MiB in 40 us for the same all-reduce of 8 ranks.\n\n\
         Remedy: take the median of several runs, drop the outlier, or give `bus_bandwidth` in place of `time`.";
}
