//! The device catalogue, forgiving names, the shorthand and device classes.

use autohaap::cluster::{
    Cluster, Fabric, Precision, Provenance, catalogue, find_device, looks_like_shorthand, parse_cluster,
};
use autohaap::model::OperatorClass;

fn cluster(text: &str) -> Cluster {
    parse_cluster(text, "--cluster").unwrap_or_else(|p| panic!("{text}: {p}"))
}

fn codes(text: &str) -> Vec<&'static str> {
    parse_cluster(text, "--cluster")
        .err()
        .map_or_else(Vec::new, |p| p.0.iter().map(|x| x.code.id).collect())
}

#[test]
fn gaming_cards_beyond_the_published_rows() {
    for (name, tflops, memory) in [
        ("RTX 2080", 40.3, 8.0),
        ("RTX 3060", 25.6, 12.0),
        ("RTX 3070", 40.6, 8.0),
        ("RTX 3080", 59.5, 10.0),
        ("RTX 4080", 97.5, 16.0),
        ("RTX 5070 Ti", 87.9, 16.0),
        ("RTX 5080", 112.6, 16.0),
    ] {
        let found = find_device(name).unwrap();
        assert_eq!(
            found.device_type.datasheet_peak[&Precision::Fp16].value.0,
            tflops * 1e12,
            "{name}"
        );
        assert_eq!(
            (found.entry.memory_sold_gb, found.entry.peer_to_peer),
            (memory, false),
            "{name}"
        );
    }
    assert_eq!(catalogue().len(), 89);
}

#[test]
fn entries_are_plausible_and_sourced() {
    let mut unusable = Vec::new();
    for entry in catalogue() {
        let d = &entry.device;
        assert!(
            !d.source.is_empty() && "ABCD".contains(&d.confidence),
            "{}",
            d.name
        );
        assert!(
            d.memory.source.is_some() || d.memory.from == Provenance::Datasheet,
            "{}",
            d.name
        );
        assert_eq!(d.efficiency.len(), 4, "{}", d.name);
        assert!(
            d.efficiency.values().all(|e| e.value > 0.0 && e.value <= 1.0),
            "{}",
            d.name
        );
        if ["Pascal", "Volta", "Turing"].contains(&d.architecture.as_str()) {
            assert!(!d.flash_attention && !d.supports(Precision::Bf16), "{}", d.name);
        }
        assert!(
            d.intra.pair_bandwidth.value.0 > 0.0 && d.intra.latency.value.0 > 0.0,
            "{}",
            d.name
        );
        if !d.missing_figures().is_empty() {
            unusable.push(d.name.as_str());
        }
    }
    assert_eq!(unusable, ["MLU290-M5", "MTT S5000"]);
}

#[test]
fn balance_follows_the_measured_peak() {
    let peak = |name: &str| {
        find_device(name)
            .unwrap()
            .device_type
            .peak(Precision::Bf16)
            .unwrap()
            .value
            .0
    };
    let ratio = peak("MI300X") / peak("H100-SXM-80GB");
    assert!((ratio - 0.84).abs() < 0.005, "{ratio}");
}

#[test]
fn names_are_forgiving() {
    let rows = [
        ("A100-80G", "A100-SXM-80GB"),
        ("a100-sxm-80gb", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100_80", "A100-SXM-80GB"),
        ("A100 80 GB", "A100-SXM-80GB"),
        ("A100", "A100-SXM-80GB"),
        ("A100-80GB-SXM", "A100-SXM-80GB"),
        ("A100-40G", "A100-SXM-40GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("A100-PCIe", "A100-PCIe-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("A800", "A800-SXM-80GB"),
        ("H800", "H800-SXM-80GB"),
        ("H100", "H100-SXM-80GB"),
        ("H100-80G", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("H100-96GB HBM2e 500W", "H100-SXM-96GB-500W (HBM2e)"),
        ("H20", "H20-SXM-96GB"),
        ("H20-141GB", "H20-SXM-141GB"),
        ("H200", "H200-SXM-141GB"),
        ("GH-96", "GH200-96GB"),
        ("GH200", "GH200-96GB"),
        ("B200", "B200-SXM"),
        ("GB200", "GB200"),
        ("RTX4090", "RTX 4090"),
        ("rtx 4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("4090-24G", "RTX 4090"),
        ("3080Ti-12G", "RTX 3080 Ti"),
        ("RTX-2080", "RTX 2080"),
        ("RTX2080Ti", "RTX 2080 Ti"),
        ("3080", "RTX 3080"),
        ("Titan-RTX", "TITAN RTX"),
        ("A6000", "RTX A6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("5070Ti", "RTX 5070 Ti"),
        ("L40S", "L40S"),
        ("NVIDIA L40S", "L40S"),
        ("L40", "L40"),
        ("L4", "L4"),
        ("T4", "T4"),
        ("Tesla T4", "T4"),
        ("V100-32G", "V100-SXM2-32GB"),
        ("V100-16GB", "V100-SXM2-16GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("V100-PCIE-32GB", "V100-PCIe-32GB"),
        ("MI300X", "MI300X"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("mi250x", "MI250X"),
        ("Intel Gaudi 3", "Gaudi3"),
        ("Ascend 910B", "Ascend 910B2"),
        ("ascend-910b3", "Ascend 910B3"),
        ("Ascend910B3", "Ascend 910B3"),
        ("GeForceRTX3090", "RTX 3090"),
        ("910C", "Ascend 910C"),
        ("MetaX C500-64GB", "MXC500 (PCIe)"),
        ("BI-V150", "BI-V150"),
        ("P800", "Kunlun P800"),
        ("TPU-v4", "TPU v4"),
        ("trn2", "Trainium2"),
    ];
    for (written, canonical) in rows {
        match find_device(written) {
            Ok(found) => assert_eq!(found.device_type.name, canonical, "{written}"),
            Err(p) => panic!("{written}: {}", p.message),
        }
    }
    for entry in catalogue() {
        let found = find_device(&entry.device.name.to_lowercase().replace(' ', "")).unwrap();
        assert_eq!(found.device_type.name, entry.device.name);
    }
}

#[test]
fn choices_are_reported_and_unknown_names_refused() {
    assert!(
        find_device("A100-80G")
            .unwrap()
            .assumed
            .unwrap()
            .contains("A100-PCIe-80GB")
    );
    assert!(find_device("A100-SXM-80GB").unwrap().assumed.is_none());
    assert!(find_device("MI300X").unwrap().assumed.is_none());
    let p = find_device("A100-41").unwrap_err();
    assert_eq!(p.code.id, "E302");
    assert!(
        p.hint.contains("A100-SXM-40GB") && p.hint.contains("A100-SXM-80GB"),
        "{}",
        p.hint
    );
    for nonsense in ["", "  ", "-", "80GB", "nvidia", "é", "🦀", &"x".repeat(100_000)] {
        assert_eq!(find_device(nonsense).unwrap_err().code.id, "E302");
    }
}

#[test]
fn capabilities_follow_the_hardware() {
    let device = |name: &str| find_device(name).unwrap().device_type;
    assert!(device("A100").flash_attention && !device("V100-32G").flash_attention);
    assert!(device("H100").supports(Precision::Fp8) && !device("A100").supports(Precision::Fp8));
    assert_eq!(device("H100").collective_library, "nccl");
    assert_eq!(device("MI300X").collective_library, "rccl");
    assert_eq!(device("910B2").collective_library, "hccl");
    assert_eq!(device("H100").intra.fabric, Fabric::Switched);
    assert_eq!(device("V100-32G").intra.fabric, Fabric::Mesh);
    assert_eq!(device("RTX4090").intra.fabric, Fabric::Bus);
    assert!((device("A100-80G").memory.value.gib() - 79.2).abs() < 1e-9);
    assert!((device("A100-40G").memory.value.gib() - 39.18).abs() < 1e-9);
    let attention = |name: &str| device(name).efficiency[&OperatorClass::Attention].value;
    assert!(attention("A100") > 3.0 * attention("V100-32G"));
}

#[test]
fn the_shorthand_of_the_guide() {
    let c = cluster("2x8 A100-80G + 4x8 V100-32G @ ib:100Gb");
    assert_eq!((c.nodes.len(), c.total_devices()), (6, 48));
    assert_eq!(c.nodes[0].name, "n0");
    assert_eq!(c.nodes[5].groups[0].device_type, "V100-SXM2-32GB");
    assert_eq!(c.nodes[3].nic_count.value, 1);
    assert_eq!(c.nodes[3].nic.bandwidth.value.0, 12.5e9);
    assert_eq!(c.domains.len(), 1);
    assert!(c.notes.iter().any(|n| n.contains("A100-SXM-80GB")));

    let c = cluster("4x8 H100 @ ib:8x400Gb");
    assert_eq!(
        (c.nodes[0].nic_count.value, c.nodes[0].nic.bandwidth.value.0),
        (8, 50e9)
    );

    let c = cluster("1x(2 RTX4090 + 2 RTX3080)");
    assert_eq!(c.total_devices(), 4);
    assert_eq!(c.device_type_at(0, 1), Some("RTX 4090"));
    assert_eq!(c.device_type_at(0, 2), Some("RTX 3080"));
    assert!(c.nodes[0].cross.is_some());
    assert_eq!(c.notes.len(), 1);
    assert!(
        c.notes[0].contains("12.4 GB/s") && c.notes[0].contains("staged"),
        "{}",
        c.notes[0]
    );

    let c = cluster("2x8 MI300X + 2x8 H100 @ roce:8x400Gb");
    let names: Vec<&str> = c.domains.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["nccl", "rccl"]);

    // Without a network the one typical for the devices is assumed and said so.
    let c = cluster("2x8 H100-80G");
    assert_eq!(
        (c.nodes[0].nic_count.value, c.nodes[0].nic.bandwidth.from),
        (8, Provenance::Assumed)
    );
    assert!(c.notes.iter().any(|n| n.contains("ib:8x400Gb")), "{:?}", c.notes);
}

#[test]
fn shorthand_errors_have_a_code_and_a_column() {
    let rows = [
        ("2x8 A100-41", "E302"),
        ("2x A100", "E309"),
        ("2 A100", "E309"),
        ("2x8 A100 +", "E309"),
        ("2x8 A100 @ fast:100Gb", "E309"),
        ("2x8 A100 @ ib", "E309"),
        ("2x8 A100 @ ib:fast", "E309"),
        ("2x8 A100 @ ib:100Gb @ ib:100Gb", "E309"),
        ("2x8 A100 @ ib:100Gb + 1x8 H100", "E309"),
        ("2x8 A100 @ ib:1Mb", "E306"),
        ("2x8 A100 @ ib:0x100Gb", "E307"),
        ("0x8 A100", "E307"),
        ("2x0 A100", "E307"),
        ("99999x99999 A100-80G", "E307"),
        ("99999999999999999999999x8 A100-80G", "E307"),
        ("1x(2 RTX4090 + 2 RTX3080", "E309"),
        ("1x()", "E309"),
        ("1x8 MTT S5000", "E304"),
        ("1x8", "E309"),
        ("A100", "E309"),
    ];
    for (text, code) in rows {
        assert_eq!(codes(text), [code], "{text}");
    }
    assert_eq!(codes("2x8 B101 + 0x8 A100 @ xx:1"), ["E309", "E302", "E307"]);
    let p = parse_cluster("2x8 A100-80G + 4x8 V101-32G", "--cluster").unwrap_err();
    assert_eq!((p.0[0].line, p.0[0].column), (Some(1), Some(20)));
    assert!(p.0[0].hint.contains("V100"), "{}", p.0[0].hint);
}

#[test]
fn shorthands_are_told_from_paths() {
    for yes in [
        "2x8 A100-80G",
        " 1x(2 RTX4090)",
        "2 x 8 A100",
        "16x8 H100 @ ib:8x400Gb",
    ] {
        assert!(looks_like_shorthand(yes), "{yes}");
    }
    for no in [
        "cluster.toml",
        "",
        "name = \"x\"",
        "[[nodes]]",
        "2nodes.toml",
        "A100",
    ] {
        assert!(!looks_like_shorthand(no), "{no}");
    }
}

#[test]
fn equal_nodes_are_one_class() {
    let c = cluster("2x8 A100-80G + 4x8 V100-32G @ ib:100Gb");
    let classes = c.classes();
    assert_eq!(classes.len(), 2);
    assert_eq!((classes[0].devices, classes[0].devices_per_node), (16, 8));
    assert_eq!(classes[1].nodes, [(2, 0, 8), (3, 0, 8), (4, 0, 8), (5, 0, 8)]);
    assert_eq!(classes[1].node_shape, "8x V100-SXM2-32GB");

    let c = cluster("2x(2 RTX4090 + 2 RTX3080)");
    let classes = c.classes();
    assert_eq!(classes.len(), 2);
    assert_eq!(classes[1].nodes, [(0, 2, 2), (1, 2, 2)]);
    assert_eq!((classes[1].id, classes[1].devices), (1, 4));
}

#[test]
fn addresses_round_trip() {
    let c = cluster("2x8 A100-80G");
    assert_eq!(c.device_name(1, 3), "n1:3");
    assert_eq!(c.parse_device("n1:3").unwrap(), (1, 3));
    for wrong in [
        "n1:8",
        "n2:0",
        "n1",
        "n1:-1",
        "n1:+1",
        "n1:",
        ":",
        "",
        "n1:99999999999",
    ] {
        assert_eq!(c.parse_device(wrong).unwrap_err().code.id, "E318", "{wrong}");
    }
}

#[test]
fn the_digest_names_the_hardware() {
    let a = cluster("2x8 A100-80G @ ib:100Gb");
    let mut b = a.clone();
    b.name = "another name".into();
    assert_eq!(a.digest().len(), 16);
    assert_eq!(a.digest(), b.digest());
    assert_ne!(a.digest(), cluster("2x8 A100-80G @ ib:200Gb").digest());
    let json = serde_json::to_string(&a).unwrap();
    let back: Cluster = serde_json::from_str(&json).unwrap();
    assert_eq!(back, a);
}

#[test]
fn reports_can_hide_host_names() {
    let text = autohaap::cluster::init_text("mixed");
    let c = parse_cluster(&text, "cluster.toml").unwrap();
    let bare = c.anonymized();
    assert!(bare.validate().is_empty());
    let names: Vec<&str> = bare.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);
    assert_eq!(
        (bare.tiers[1].name.as_str(), bare.nodes[2].tier.as_str()),
        ("tier1", "tier1")
    );
    assert_eq!(bare.classes().len(), c.classes().len());
}

#[test]
fn every_figure_of_a_device_has_its_origin() {
    use autohaap::cluster::{device_detail, device_table};
    assert_eq!(device_table().len(), 89);
    assert_eq!(device_table().iter().filter(|r| !r.usable).count(), 2);
    let (entry, figures, assumed) = device_detail("H100").unwrap();
    assert_eq!(entry.device.name, "H100-SXM-80GB");
    assert!(assumed.is_some());
    assert!(figures.iter().all(|f| !f.source.is_empty() && !f.text.is_empty()));
    let measured = figures.iter().find(|f| f.key == "measured_peak").unwrap();
    assert_eq!(
        (measured.value, measured.from),
        (Some(794.5e12), Provenance::Measured)
    );
    assert_eq!(device_detail("H101").unwrap_err().code.id, "E302");
}
