//! Times of collectives and transfers, against numbers worked by hand.

use autohaap::cluster::{
    Cluster, Collective, Fabric, Group, LinkPoint, Provenance, Sourced, Tier, parse_cluster,
};
use autohaap::units::{ByteRate, Bytes, Seconds};
use proptest::prelude::*;

const OPS: [Collective; 4] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
];

/// A cluster with round figures: 100 GB/s inside, 10 GB/s a card, full efficiency, no latency, no measured points.
fn plain(text: &str, cards: u32) -> Cluster {
    let mut c = parse_cluster(text, "test").unwrap();
    for device in c.device_types.values_mut() {
        let link = &mut device.intra;
        link.bandwidth.value = ByteRate(100e9);
        link.pair_bandwidth.value = ByteRate(if link.fabric == Fabric::Mesh { 20e9 } else { 100e9 });
        link.latency.value = Seconds(0.0);
        link.efficiency.value = 1.0;
        link.table.clear();
    }
    for node in &mut c.nodes {
        node.nic_count.value = cards;
        node.nic.bandwidth.value = ByteRate(10e9);
        node.nic.efficiency.value = 1.0;
        node.nic.latency.value = Seconds(0.0);
    }
    c
}

fn group(members: &[(usize, &str, u32)], concurrent: u32) -> Group {
    Group {
        members: members.iter().map(|m| (m.0, m.1.to_owned(), m.2)).collect(),
        concurrent,
    }
}

fn time(c: &Cluster, op: Collective, g: &Group, bytes: f64) -> f64 {
    c.collective_time(op, g, Bytes(bytes)).unwrap().0
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-12), "{a} is not {b}");
}

const A: &str = "A100-SXM-80GB";

#[test]
fn rings_inside_a_node() {
    let mut c = plain("1x8 A100-SXM-80GB", 1);
    let g = group(&[(0, A, 8)], 1);
    // 2 * 7/8 * 8 GB / 100 GB/s
    close(time(&c, Collective::AllReduce, &g, 8e9), 0.14);
    close(time(&c, Collective::AllGather, &g, 8e9), 0.07);
    close(time(&c, Collective::AllToAll, &g, 8e9), 0.07);
    // Small messages take the tree: 2 * 3 hops of 1 us (and 1 kB / 100 GB/s twice) against 14 hops of the ring.
    c.device_types.get_mut(A).unwrap().intra.latency.value = Seconds(1e-6);
    close(time(&c, Collective::AllReduce, &g, 1e3), 6e-6 + 2e-8);
    close(time(&c, Collective::AllGather, &g, 1e3), 7e-6 + 0.875e-8);
    assert_eq!(time(&c, Collective::AllReduce, &group(&[(0, A, 1)], 1), 1e9), 0.0);
    assert_eq!(time(&c, Collective::AllReduce, &Group::default(), 1e9), 0.0);
}

#[test]
fn meshes_add_up_with_group_size() {
    let c = plain("1x8 MI300X", 1);
    // One link of 20 GB/s for a pair, three for four, seven (capped at 100) for eight.
    close(
        time(&c, Collective::AllGather, &group(&[(0, "MI300X", 2)], 1), 2e9),
        0.5 * 2e9 / 20e9,
    );
    close(
        time(&c, Collective::AllGather, &group(&[(0, "MI300X", 4)], 1), 2e9),
        0.75 * 2e9 / 60e9,
    );
    close(
        time(&c, Collective::AllGather, &group(&[(0, "MI300X", 8)], 1), 2e9),
        0.875 * 2e9 / 100e9,
    );
    close(
        c.transfer_time((0, "MI300X"), (0, "MI300X"), Bytes(2e9), 1)
            .unwrap()
            .0,
        0.1,
    );
}

#[test]
fn the_bus_is_shared() {
    let c = plain("1x8 L40S", 1);
    close(
        time(&c, Collective::AllGather, &group(&[(0, "L40S", 4)], 1), 4e9),
        0.75 * 4e9 / 100e9,
    );
    // Eight senders share four full links.
    close(
        time(&c, Collective::AllGather, &group(&[(0, "L40S", 8)], 1), 8e9),
        0.875 * 8e9 / 50e9,
    );
    close(
        time(&c, Collective::AllGather, &group(&[(0, "L40S", 2)], 4), 8e9),
        0.5 * 8e9 / 50e9,
    );
}

#[test]
fn bridges_join_pairs() {
    let mut c = plain("1x8 RTXA6000", 1);
    c.device_types
        .get_mut("RTX A6000")
        .unwrap()
        .intra
        .pair_bandwidth
        .value = ByteRate(200e9);
    let name = "RTX A6000";
    close(
        time(&c, Collective::AllReduce, &group(&[(0, name, 2)], 1), 2e9),
        2e9 / 200e9,
    );
    close(
        time(&c, Collective::AllReduce, &group(&[(0, name, 4)], 1), 2e9),
        1.5 * 2e9 / 100e9,
    );
    close(
        c.transfer_time((0, name), (0, name), Bytes(1e9), 1).unwrap().0,
        0.01,
    );
}

#[test]
fn levels_over_nodes() {
    let c = plain("4x8 A100-SXM-80GB @ ib:80Gb", 8);
    let g = group(&[(0, A, 8), (1, A, 8), (2, A, 8), (3, A, 8)], 1);
    // Inside: 7/8 * 8e9 / 100e9 twice; between: 2 * 3/4 * 8e9 / (8 * 10e9).
    close(time(&c, Collective::AllReduce, &g, 8e9), 2.0 * 0.07 + 0.15);
    close(time(&c, Collective::AllGather, &g, 8e9), 0.07 + 0.75 * 8e9 / 80e9);
    // Eight groups of one rank a node share eight cards: one card each.
    let one = group(&[(0, A, 1), (1, A, 1), (2, A, 1), (3, A, 1)], 8);
    close(time(&c, Collective::AllReduce, &one, 8e9), 1.5 * 8e9 / 10e9);
    // Alone, a rank still has one card only.
    let alone = Group {
        concurrent: 1,
        ..one.clone()
    };
    close(time(&c, Collective::AllReduce, &alone, 8e9), 1.5 * 8e9 / 10e9);
    // All-to-all: 8 of 16 peers are outside; each rank sends half of 1.6 GB over its card.
    let two = group(&[(0, A, 8), (1, A, 8)], 1);
    close(time(&c, Collective::AllToAll, &two, 1.6e9), 0.8e9 / 10e9);
}

#[test]
fn one_card_serves_all_groups_of_a_node() {
    let c = plain("2x8 A100-SXM-80GB @ ib:80Gb", 1);
    let g = group(&[(0, A, 1), (1, A, 1)], 8);
    close(time(&c, Collective::AllReduce, &g, 1e9), 1e9 / (10e9 / 8.0));
    close(c.transfer_time((0, A), (1, A), Bytes(1e9), 8).unwrap().0, 0.8);
    close(c.transfer_time((0, A), (1, A), Bytes(1e9), 1).unwrap().0, 0.1);
    close(c.transfer_time((0, A), (0, A), Bytes(1e9), 1).unwrap().0, 0.01);
}

#[test]
fn the_slowest_member_sets_the_pace() {
    let mut c = plain("1x8 A100-SXM-80GB + 1x8 H100-SXM-80GB @ ib:80Gb", 8);
    c.nodes[1].nic.bandwidth.value = ByteRate(5e9);
    let g = group(&[(0, A, 1), (1, "H100-SXM-80GB", 1)], 1);
    close(time(&c, Collective::AllReduce, &g, 1e9), 1e9 / 5e9);
    close(
        c.transfer_time((0, A), (1, "H100-SXM-80GB"), Bytes(1e9), 1)
            .unwrap()
            .0,
        0.2,
    );
}

#[test]
fn unlike_cards_of_a_node_meet_on_the_bus() {
    let c = parse_cluster("1x(2 RTX4090 + 2 RTX3080)", "test").unwrap();
    let cross = c.nodes[0].cross.as_ref().unwrap();
    // PCIe 4 x16, staged through host memory: 31 * 0.4.
    assert_eq!((cross.bandwidth.value.0, cross.efficiency.value), (31e9, 0.4));
    let g = group(&[(0, "RTX 4090", 1), (0, "RTX 3080", 1)], 1);
    let t = time(&c, Collective::AllReduce, &g, 1e9);
    close(t, 2.0 * 15e-6 + 1e9 / 12.4e9);
}

#[test]
fn uplinks_are_shared_by_the_nodes_behind_them() {
    let mut c = plain("4x8 A100-SXM-80GB @ ib:80Gb", 8);
    for (i, node) in c.nodes.iter_mut().enumerate() {
        node.tier = format!("rack{}", i / 2);
    }
    c.tiers = (0..2)
        .map(|i| Tier {
            name: format!("rack{i}"),
            parent: String::new(),
            uplink: Sourced::new(ByteRate(40e9), Provenance::User),
            latency: Sourced::new(Seconds(1e-6), Provenance::User),
        })
        .collect();
    // Inside a rack the uplink is not crossed.
    let inside = group(&[(0, A, 8), (1, A, 8)], 1);
    close(
        time(&c, Collective::AllGather, &inside, 8e9),
        0.07 + 0.5 * 8e9 / 80e9,
    );
    // Two nodes behind each uplink: 20 GB/s a node, and 2 us more for each of the three hops.
    let all = group(&[(0, A, 8), (1, A, 8), (2, A, 8), (3, A, 8)], 1);
    close(
        time(&c, Collective::AllGather, &all, 8e9),
        0.07 + 6e-6 + 0.75 * 8e9 / 20e9,
    );
    close(
        c.transfer_time((0, A), (2, A), Bytes(1e9), 1).unwrap().0,
        2e-6 + 0.1,
    );
    close(
        c.transfer_time((0, A), (2, A), Bytes(1e9), 8).unwrap().0,
        2e-6 + 1e9 / 5e9,
    );
}

#[test]
fn domains_share_no_collective() {
    let text = "[[nodes]]\nname = \"a\"\ndevices = \"8 MI300X\"\nnic = \"8x400Gb\"\n[[nodes]]\nname = \"n\"\ndevices = \"8 H100\"\nnic = \"8x400Gb\"\n";
    let c = parse_cluster(text, "t").unwrap();
    let g = group(&[(0, "MI300X", 1), (1, "H100-SXM-80GB", 1)], 1);
    assert_eq!(c.collective_time(Collective::AllReduce, &g, Bytes(1e6)), None);
    assert_eq!(
        c.transfer_time((0, "MI300X"), (1, "H100-SXM-80GB"), Bytes(1e6), 1),
        None
    );
    let bridged = format!(
        "{text}[[bridges]]\nbetween = [\"rccl\", \"nccl\"]\nbandwidth = \"20 GB/s\"\nlatency = \"30 us\"\n"
    );
    let c = parse_cluster(&bridged, "t").unwrap();
    assert_eq!(c.collective_time(Collective::AllReduce, &g, Bytes(1e6)), None);
    let t = c
        .transfer_time((0, "MI300X"), (1, "H100-SXM-80GB"), Bytes(2e9), 1)
        .unwrap()
        .0;
    close(t, 6e-6 + 30e-6 + 0.1);
    let t = c
        .transfer_time((0, "MI300X"), (1, "H100-SXM-80GB"), Bytes(2e9), 4)
        .unwrap()
        .0;
    close(t, 6e-6 + 30e-6 + 0.4);
}

#[test]
fn measured_points_come_first() {
    let mut c = plain("1x8 A100-SXM-80GB", 1);
    let point = |ranks, bytes, time| LinkPoint {
        op: Collective::AllReduce,
        ranks,
        bytes: Bytes(bytes),
        time_s: Seconds(time),
    };
    let link = &mut c.device_types.get_mut(A).unwrap().intra;
    link.table = vec![point(8, 1e6, 1e-4), point(8, 1e8, 1e-3), point(2, 1e6, 5e-5)];
    link.sort_table();
    let g = group(&[(0, A, 8)], 1);
    close(time(&c, Collective::AllReduce, &g, 1e6), 1e-4);
    // Log-log: halfway in the exponent of the size is halfway in the exponent of the time.
    close(time(&c, Collective::AllReduce, &g, 1e7), 10f64.powf(-3.5));
    close(time(&c, Collective::AllReduce, &g, 2e8), 2e-3);
    close(
        time(&c, Collective::AllReduce, &group(&[(0, A, 2)], 1), 1e6),
        5e-5,
    );
    let four = time(&c, Collective::AllReduce, &group(&[(0, A, 4)], 1), 1e6);
    close(four, (5e-5_f64 * 1e-4).sqrt());
    // Other operations fall back on the formula.
    close(time(&c, Collective::AllGather, &g, 8e9), 0.07);
}

#[test]
fn published_bus_bandwidths_are_reproduced() {
    let c = parse_cluster("1x8 A100-SXM-80GB", "t").unwrap();
    let t = time(&c, Collective::AllReduce, &group(&[(0, A, 8)], 1), 536_870_912.0);
    let bus = 536_870_912.0 / t * 2.0 * 7.0 / 8.0;
    assert!((bus / 222e9 - 1.0).abs() < 1e-9, "{bus}");
    // Small messages: about 23 us on eight cards.
    let t = time(&c, Collective::AllReduce, &group(&[(0, A, 8)], 1), 8192.0);
    assert!((t - 23e-6).abs() < 1e-6, "{t}");
}

#[test]
fn calls_take_microseconds() {
    let c = parse_cluster("64x8 H800 + 32x8 A800 @ ib:8x400Gb", "t").unwrap();
    let g = group(
        &[
            (0, "H800-SXM-80GB", 1),
            (1, "H800-SXM-80GB", 1),
            (70, "A800-SXM-80GB", 1),
        ],
        8,
    );
    let start = std::time::Instant::now();
    let mut sum = 0.0;
    for i in 0..100_000 {
        sum += time(&c, Collective::AllReduce, &g, 1e6 + f64::from(i));
    }
    assert!(sum > 0.0);
    assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
}

proptest! {
    #[test]
    fn more_bandwidth_is_never_slower_and_more_bytes_never_faster(
        text in prop::sample::select(vec![
            "4x8 A100-80G @ ib:8x200Gb", "4x8 MI300X @ roce:8x400Gb", "4x8 L40S @ eth:100Gb", "4x8 910B2 @ roce:8x200Gb",
            "2x(4 RTX4090 + 4 RTX3080) + 2x8 RTX3090 @ eth:25Gb", "4x8 A800 @ ib:4x200Gb",
        ]),
        ranks in prop::collection::vec(0_u32..=8, 4),
        concurrent in 1_u32..=8,
        op in prop::sample::select(OPS.to_vec()),
        size in 2.0_f64..10.5,
        more in 1.0_f64..4.0,
        inside in any::<bool>(),
    ) {
        let c = parse_cluster(text, "t").unwrap();
        let members: Vec<(usize, String, u32)> = ranks.iter().enumerate()
            .map(|(i, r)| (i, c.nodes[i].groups[i % c.nodes[i].groups.len()].device_type.clone(), *r)).collect();
        let g = Group { members, concurrent };
        let bytes = 10f64.powf(size);
        let base = time(&c, op, &g, bytes);
        prop_assert!(base.is_finite() && base >= 0.0);
        prop_assert!(time(&c, op, &g, bytes * more) >= base * (1.0 - 1e-12));
        let mut faster = c.clone();
        if inside {
            for d in faster.device_types.values_mut() {
                d.intra.bandwidth.value = d.intra.bandwidth.value * more;
                d.intra.pair_bandwidth.value = d.intra.pair_bandwidth.value * more;
            }
        } else {
            for n in &mut faster.nodes {
                n.nic.bandwidth.value = n.nic.bandwidth.value * more;
            }
        }
        prop_assert!(time(&faster, op, &g, bytes) <= base * (1.0 + 1e-12));
        let t = |c: &Cluster, b: f64| c.transfer_time((0, &g.members[0].1), (1, &g.members[1].1), Bytes(b), concurrent).unwrap().0;
        prop_assert!(t(&faster, bytes) <= t(&c, bytes) * (1.0 + 1e-12));
        prop_assert!(t(&c, bytes * more) >= t(&c, bytes));
    }
}
