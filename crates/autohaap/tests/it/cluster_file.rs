//! The cluster file.

use autohaap::cluster::{Cluster, Fabric, Precision, Provenance, parse_cluster};
use autohaap::error::Problems;
use autohaap::units::Bytes;

fn read(text: &str) -> Result<Cluster, Problems> {
    parse_cluster(text, "cluster.toml")
}

fn cluster(text: &str) -> Cluster {
    read(text).unwrap_or_else(|p| panic!("{text}\n{p}"))
}

fn codes(text: &str) -> Vec<&'static str> {
    read(text)
        .err()
        .map_or_else(Vec::new, |p| p.0.iter().map(|x| x.code.id).collect())
}

const NODE: &str = "[[nodes]]\nname = \"a\"\ndevices = [{ type = \"A100-SXM-80GB\", count = 8 }]\n";

#[test]
fn three_machines_with_their_own_networks() {
    let c = cluster(
        r#"
name = "three machines"
[network]
fabric = "ethernet"
[[nodes]]
name = "a800"
devices = [{ type = "A800-SXM-80GB", count = 3 }]
nic = "25Gb"
[[nodes]]
name = "ada"
count = 2
devices = "3 RTX 4090"
nic = { count = 2, rate = "10Gb", latency = "50 us" }
[[nodes]]
name = "old{}"
count = 2
devices = ["1 RTX 3090", "1 RTX 3080"]
nics = 2
nic_rate = "1.25 GB/s"
"#,
    );
    let names: Vec<&str> = c.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["a800", "ada-0", "ada-1", "old0", "old1"]);
    assert_eq!(c.nodes[0].nic.bandwidth.value.0, 25e9 / 8.0);
    assert_eq!(c.nodes[0].nic.latency.value.0, 40e-6);
    assert_eq!(
        (c.nodes[1].nic_count.value, c.nodes[1].nic.latency.value.0),
        (2, 50e-6)
    );
    assert_eq!(
        (c.nodes[3].nic_count.value, c.nodes[3].nic.bandwidth.value.0),
        (2, 1.25e9)
    );
    assert!(c.nodes[3].cross.is_some());
}

#[test]
fn domains_and_bridges() {
    let text = r#"
[[nodes]]
name = "amd"
count = 4
devices = [{ type = "MI300X", count = 8 }]
nic = "8x400Gb"
[[nodes]]
name = "nvidia"
count = 4
devices = [{ type = "H100-SXM-80GB", count = 8 }]
nic = "8x400Gb"
[[domains]]
name = "rccl"
device_types = ["MI300X"]
[[domains]]
name = "nccl"
device_types = ["H100"]
[[bridges]]
between = ["rccl", "nccl"]
bandwidth = "20 GB/s"
latency = "30 us"
"#;
    let c = cluster(text);
    assert_eq!(c.domains.len(), 2);
    assert_eq!(c.bridges[0].bandwidth.value.0, 20e9);
    assert_eq!(codes(&text.replace("\"H100\"", "\"A100\"")), ["E311"]);
    assert_eq!(
        codes(&text.replace("\"rccl\", \"nccl\"", "\"rccl\", \"rccl\"")),
        ["E316"]
    );
    assert_eq!(
        codes(&text.replace("\"rccl\", \"nccl\"", "\"rccl\", \"hccl\"")),
        ["E312"]
    );
}

#[test]
fn devices_are_overridden_field_by_field() {
    let c = cluster(
        r#"
[devices."A100-80G"]
measured_peak = "250 TFLOPS"
[devices.slow]
base = "A100-SXM-80GB"
memory = "40 GiB"
peak = { bf16 = "200 TFLOPS" }
efficiency = { gemm = 0.7, attention = "40 %" }
intra = { fabric = "bus", bandwidth = "20 GB/s" }
[devices.own]
vendor = "AMD"
memory = "48 GiB"
memory_bandwidth = "900 GB/s"
measured_peak = "100 TFLOPS"
[[nodes]]
name = "a"
devices = [{ type = "A100", count = 4 }, { type = "slow", count = 2 }, { type = "own", count = 2 }]
"#,
    );
    let a = &c.device_types["A100-SXM-80GB"];
    assert_eq!(a.peak(Precision::Bf16).unwrap().value.0, 250e12);
    assert_eq!(a.measured_peak.as_ref().unwrap().from, Provenance::User);
    let slow = &c.device_types["slow"];
    assert_eq!(slow.memory.value, Bytes::from_gib(40.0));
    assert_eq!(slow.peak(Precision::Bf16).unwrap().value.0, 200e12);
    assert_eq!(slow.intra.fabric, Fabric::Bus);
    assert!(slow.intra.table.is_empty());
    assert_eq!(c.device_types["own"].collective_library, "rccl");
    assert_eq!(c.domains.len(), 2);
}

#[test]
fn devices_without_figures_need_an_override() {
    let node = "[[nodes]]\nname = \"a\"\ndevices = [{ type = \"MTT S5000\", count = 8 }]\n";
    assert_eq!(codes(node), ["E304"]);
    let text = format!(
        "{node}[devices.\"MTT S5000\"]\nmemory = \"80 GiB\"\nmemory_bandwidth = \"1600 GB/s\"\nmeasured_peak = \"200 TFLOPS\"\n"
    );
    assert_eq!(cluster(&text).total_devices(), 8);
    let own =
        "[devices.mine]\nmemory = \"8 GiB\"\n[[nodes]]\nname = \"a\"\ndevices = [{ type = \"mine\" }]\n";
    assert_eq!(codes(own), ["E304"]);
}

#[test]
fn caps_reserve_and_exclusion() {
    let c = cluster(
        r#"
reserved_memory = "1 GiB"
exclude = ["a:3", "b-1:0"]
max_memory = { "RTX 3080" = "9 GiB" }
[[nodes]]
name = "a"
devices = [{ type = "A100-SXM-80GB", count = 8 }]
max_memory = "70 GiB"
[[nodes]]
name = "b"
count = 2
speed_factor = 0.5
devices = [{ type = "RTX 3080", count = 2 }]
"#,
    );
    assert_eq!(c.total_devices(), 10);
    assert_eq!(c.memory_limit(0, "A100-SXM-80GB"), Bytes::from_gib(70.0));
    assert_eq!(c.memory_limit(1, "RTX 3080"), Bytes::from_gib(9.0));
    let classes = c.classes();
    assert_eq!(classes[0].nodes, [(0, 0, 3), (0, 4, 4)]);
    assert_eq!((classes[0].devices, classes[0].speed_factor), (7, 1.0));
    assert_eq!(classes[1].nodes, [(1, 0, 2)]);
    assert_eq!(classes[2].nodes, [(2, 1, 1)]);
    assert_eq!(c.device_name(0, 4), "a:4");
    assert_eq!(codes(&format!("reserved_memory = \"90 GiB\"\n{NODE}")), ["E317"]);
    assert_eq!(codes(&format!("exclude = [\"a:8\"]\n{NODE}")), ["E312"]);
    let all: Vec<String> = (0..8).map(|i| format!("\"a:{i}\"")).collect();
    assert_eq!(codes(&format!("exclude = [{}]\n{NODE}", all.join(","))), ["E310"]);
}

#[test]
fn every_problem_has_its_code() {
    let rows = [
        (String::new(), "E310"),
        ("name = \"x\"\n".to_owned(), "E310"),
        ("name = \n".to_owned(), "E301"),
        (format!("nam = \"x\"\n{NODE}"), "E303"),
        (format!("schema = \"autohaap/cluster@9\"\n{NODE}"), "E305"),
        (NODE.replace("count = 8", "count = 0"), "E307"),
        (NODE.replace("count = 8", "count = -8"), "E307"),
        (NODE.replace("count = 8", "count = 8.5"), "E305"),
        (NODE.replace("count = 8", "count = 100001"), "E307"),
        (format!("{NODE}count = 100000\n"), "E307"),
        (NODE.replace("A100-SXM-80GB", "A100-41"), "E302"),
        (NODE.replace("\"a\"", "\"a b; reboot\""), "E314"),
        (NODE.replace("name = \"a\"\n", ""), "E315"),
        ("[[nodes]]\nname = \"a\"\n".to_owned(), "E315"),
        ("[[nodes]]\nname = \"a\"\ndevices = []\n".to_owned(), "E310"),
        (format!("{NODE}{NODE}"), "E308"),
        (format!("{NODE}nic = \"fast\"\n"), "E305"),
        (format!("{NODE}nic = \"400\"\n"), "E306"),
        (format!("{NODE}nic = \"0x400Gb\"\n"), "E307"),
        (format!("{NODE}nic = \"token:400Gb\"\n"), "E305"),
        (format!("{NODE}speed_factor = -1\n"), "E306"),
        (format!("{NODE}speed_factor = nan\n"), "E305"),
        (format!("{NODE}max_memory = 80\n"), "E306"),
        (
            format!("{NODE}max_memory = {{ \"H100\" = \"70 GiB\" }}\n"),
            "E312",
        ),
        (format!("{NODE}tier = \"r\"\n"), "E312"),
        (format!("{NODE}[[tiers]]\nname = \"t\"\n"), "E315"),
        (
            format!("{NODE}[[tiers]]\nname = \"t\"\nuplink = \"100Gb\"\nparent = \"t\"\n"),
            "E313",
        ),
        (format!("{NODE}[devices.x]\nbase = \"nothing\"\n"), "E302"),
        (format!("{NODE}[devices.x]\nmemory = 81920\n"), "E306"),
        (
            format!(
                "{NODE}nic = \"100Gb\"\nlink_table = [{{ op = \"all-reduce\", ranks = 16, bytes = 1000, time = \"60 us\" }}, {{ op = \"all-reduce\", ranks = 16, bytes = 2000, time = \"40 us\" }}]\n"
            ),
            "E319",
        ),
    ];
    for (text, code) in rows {
        assert_eq!(codes(&text), [code], "{text}");
    }
}

#[test]
fn problems_come_together_with_places_and_hints() {
    let text = "nam = \"x\"\n[[nodes]]\nname = \"n0\"\nspeed_facter = 0.5\ndevices = [{ type = \"A100-41\", count = 8 }]\nmax_memory = 81920\n";
    let p = read(text).unwrap_err();
    let seen: Vec<_> = p.0.iter().map(|x| (x.code.id, x.line, x.column)).collect();
    assert_eq!(
        seen,
        [
            ("E303", Some(1), Some(1)),
            ("E303", Some(4), Some(1)),
            ("E302", Some(5), Some(21)),
            ("E306", Some(6), Some(14)),
        ]
    );
    assert!(p.0[1].hint.contains("speed_factor"));
    assert!(p.0[2].source_line.as_deref().unwrap().starts_with("devices"));
    assert!(p.0[3].hint.contains("81920 MiB"), "{}", p.0[3].hint);
}

#[test]
fn templates_parse() {
    for kind in ["", "mixed", "one-node"] {
        let text = autohaap::cluster::init_text(kind);
        assert!(cluster(&text).total_devices() > 0, "{kind}");
        assert!(text.lines().filter(|l| l.contains('#')).count() > 3);
    }
}

#[test]
fn rules_of_the_whole_cluster_have_places() {
    let text = format!("{NODE}[[domains]]\nname = \"nccl\"\ndevice_types = []\n");
    let p = read(&text).unwrap_err();
    assert_eq!((p.0[0].code.id, p.0[0].line), ("E311", Some(4)));
    let text = format!("{NODE}{}tier = \"r\"\n", NODE.replace("\"a\"", "\"b\""));
    let p = read(&text).unwrap_err();
    assert_eq!((p.0[0].code.id, p.0[0].line), ("E312", Some(4)));
    assert!(
        p.0[0].path.starts_with("cluster.toml: nodes[1]"),
        "{}",
        p.0[0].path
    );
}

#[test]
fn a_foreign_cluster_is_checked_as_well() {
    let mut c = cluster(NODE);
    assert!(c.validate().is_empty());
    c.nodes[0].nic.bandwidth.value.0 = 0.0;
    c.nodes[0].speed_factor.value = f64::NAN;
    c.domains.clear();
    c.device_types
        .get_mut("A100-SXM-80GB")
        .unwrap()
        .intra
        .table
        .reverse();
    let seen: Vec<&str> = c.validate().0.iter().map(|p| p.code.id).collect();
    assert_eq!(seen, ["E306", "E319", "E306", "E311"]);
    c.nodes[0].groups[0].count = u32::MAX;
    let group = c.nodes[0].groups[0].clone();
    c.nodes[0].groups.push(group);
    assert_eq!(c.validate().0[0].code.id, "E307");
}
