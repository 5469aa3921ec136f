//! Transfers, reductions and whole steps of placed plans, against numbers worked by hand.

use autohaap::cluster::Cluster;
use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price_lines, price_step};
use autohaap::plan::{Pipeline, Prediction, Recompute, RecomputeRange, Replica};
use autohaap::units::ByteRate;

use crate::cost_support::{
    Source, close, dense, experts, pipeline, predict, replica, round, stage, training,
};

/// The residual stream of one sequence.
const STREAM: f64 = 2_097_152.0;
/// One network card.
const CARD: f64 = 10e9;

const TWO_NODES: &str = "2x4 A100-SXM-80GB @ ib:80Gb";

/// Forward transfer between two stages of a four-block chain whose replicas are given by their devices.
fn transfer(cluster: &Cluster, micro_batch: u32, from: &[&str], to: &[&str]) -> f64 {
    let side = |devices: &[&str]| -> Vec<Replica> {
        let rows = micro_batch / devices.len() as u32;
        devices.iter().map(|d| replica(d, rows)).collect()
    };
    let plan = pipeline(
        micro_batch,
        2,
        vec![stage([0, 3], 2, side(from)), stage([3, 6], 1, side(to))],
    );
    let prediction = predict(&dense(4, true), cluster, &training(), &[plan]);
    assert_eq!(
        prediction.stages[0].send_forward_s,
        prediction.stages[0].send_backward_s
    );
    prediction.stages[0].send_forward_s.0
}

#[test]
fn one_replica_sends_its_rows() {
    let cluster = round(TWO_NODES, 1);
    close(transfer(&cluster, 1, &["n0:0"], &["n1:0"]), STREAM / CARD, 1e-12);
    close(
        transfer(&cluster, 3, &["n0:0"], &["n1:0"]),
        3.0 * STREAM / CARD,
        1e-12,
    );
    // Inside a node at 100 GB/s.
    close(transfer(&cluster, 1, &["n0:0"], &["n0:1"]), STREAM / 100e9, 1e-12);
    // Two ranks send half each: the card is the limit, a second card halves the time.
    close(
        transfer(&cluster, 1, &["n0:0 n0:1"], &["n1:0 n1:1"]),
        STREAM / CARD,
        1e-12,
    );
    let cluster = round(TWO_NODES, 2);
    close(
        transfer(&cluster, 1, &["n0:0 n0:1"], &["n1:0 n1:1"]),
        STREAM / CARD / 2.0,
        1e-12,
    );
}

#[test]
fn two_replicas_share_the_cards_of_their_node() {
    let pair = ["n0:0", "n0:1"];
    let other = ["n1:0", "n1:1"];
    close(
        transfer(&round(TWO_NODES, 1), 2, &pair, &other),
        2.0 * STREAM / CARD,
        1e-12,
    );
    close(
        transfer(&round(TWO_NODES, 2), 2, &pair, &other),
        STREAM / CARD,
        1e-12,
    );
    // A device has one card to itself, however many the node has.
    close(
        transfer(&round(TWO_NODES, 4), 2, &pair, &other),
        STREAM / CARD,
        1e-12,
    );
    // Replicas on nodes of their own do not meet.
    let cluster = round("4x4 A100-SXM-80GB @ ib:80Gb", 1);
    close(
        transfer(&cluster, 2, &["n0:0", "n1:0"], &["n2:0", "n3:0"]),
        STREAM / CARD,
        1e-12,
    );
}

#[test]
fn four_replicas_feed_two_and_two_feed_four() {
    let four = ["n0:0", "n0:1", "n0:2", "n0:3"];
    let two = ["n1:0", "n1:1"];
    // All four rows pass the one card of each node.
    close(
        transfer(&round(TWO_NODES, 1), 4, &four, &two),
        4.0 * STREAM / CARD,
        1e-12,
    );
    close(
        transfer(&round(TWO_NODES, 1), 4, &two, &four),
        4.0 * STREAM / CARD,
        1e-12,
    );
    // With a card per device each of the two takes two rows in turn.
    close(
        transfer(&round(TWO_NODES, 4), 4, &four, &two),
        2.0 * STREAM / CARD,
        1e-12,
    );
    close(
        transfer(&round(TWO_NODES, 4), 4, &two, &four),
        2.0 * STREAM / CARD,
        1e-12,
    );
    // Three rows over two replicas, then three: the card carries three.
    let cluster = round(TWO_NODES, 1);
    let plan = pipeline(
        3,
        2,
        vec![
            stage([0, 3], 2, vec![replica("n0:0", 2), replica("n0:1", 1)]),
            stage(
                [3, 6],
                1,
                vec![replica("n1:0", 1), replica("n1:1", 1), replica("n1:2", 1)],
            ),
        ],
    );
    let prediction = predict(&dense(4, true), &cluster, &training(), &[plan]);
    close(prediction.stages[0].send_forward_s.0, 3.0 * STREAM / CARD, 1e-12);
}

/// Two pipelines of one stage, a node each.
fn twins() -> [Pipeline; 2] {
    ["n0:0", "n1:0"].map(|d| pipeline(1, 4, vec![stage([0, 6], 1, vec![replica(d, 1)])]))
}

#[test]
fn two_pipelines_reduce_their_gradients() {
    let (model, cluster, mut training) = (dense(4, true), round(TWO_NODES, 1), training());
    let parameters = model.parameters_total() as f64;
    let sync = |p: &Prediction| [p.stages[0].grad_sync_s.0, p.stages[1].grad_sync_s.0];
    // An all-reduce over two nodes moves the tensor once: 4 bytes a parameter.
    let prediction = predict(&model, &cluster, &training, &twins());
    for found in sync(&prediction) {
        close(found, 4.0 * parameters / CARD, 1e-9);
    }
    // ZeRO-1 scatters gradients of 4 bytes and gathers weights of 2; the step updates half of the state.
    training.zero = 1;
    let sharded = predict(&model, &cluster, &training, &twins());
    for found in sync(&sharded) {
        close(found, 3.0 * parameters / CARD, 1e-9);
    }
    close(
        sharded.stages[0].optimizer_s.0,
        prediction.stages[0].optimizer_s.0 / 2.0,
        1e-12,
    );
    close(
        sharded.devices[0].memory_bytes.optimizer.0,
        prediction.devices[0].memory_bytes.optimizer.0 / 2.0,
        1e-12,
    );
    // With overlap only what remains after the backward pass shows, and never less than the last bucket.
    training.engine_semantics.overlap.dp = true;
    let hidden = predict(&model, &cluster, &training, &twins());
    assert!(hidden.step_time_s < sharded.step_time_s);
    let embedding = 3.0 * 32_768.0 * 1024.0 / CARD;
    for found in sync(&hidden) {
        assert!(found >= embedding * (1.0 - 1e-9) && found <= 3.0 * parameters / CARD);
    }
}

#[test]
fn a_tied_vocabulary_adds_one_reduction() {
    let (cluster, training) = (round(TWO_NODES, 1), training());
    let plan = [pipeline(
        1,
        4,
        vec![
            stage([0, 3], 2, vec![replica("n0:0", 1)]),
            stage([3, 6], 1, vec![replica("n1:0", 1)]),
        ],
    )];
    let untied = predict(&dense(4, true), &cluster, &training, &plan);
    let tied = predict(&dense(4, false), &cluster, &training, &plan);
    assert_eq!(untied.stages[0].grad_sync_s.0, 0.0);
    assert_eq!(untied.stages[1].grad_sync_s.0, 0.0);
    // Both ends wait for the first stage, which ends last.
    let reduction = 4.0 * 32_768.0 * 1024.0 / CARD;
    close(tied.stages[0].grad_sync_s.0, reduction, 1e-9);
    assert!(tied.stages[1].grad_sync_s.0 >= reduction);
    // On one stage there is nothing to add.
    let one = [pipeline(1, 4, vec![stage([0, 6], 1, vec![replica("n0:0", 1)])])];
    let alone = predict(&dense(4, false), &cluster, &training, &one);
    assert_eq!(alone.stages[0].grad_sync_s.0, 0.0);
}

#[test]
fn both_encodings_of_lockstep_data_parallelism_agree() {
    // Replicas on nodes of their own: pipelines do not see each other's network traffic.
    let cluster = round("4x4 A100-SXM-80GB @ ib:80Gb", 1);
    let mut source = Source::new(23);
    for _ in 0..60 {
        let mut training = training();
        training.zero = source.count(0, 1) as u8;
        training.engine_semantics.overlap.dp = source.count(0, 1) == 1;
        let model = [dense(4, true), dense(4, false), experts(4)][source.count(0, 2) as usize].clone();
        let (cut, rows, m) = (
            source.count(1, 5) as usize,
            source.count(1, 3),
            source.count(2, 9),
        );
        let depth = source.count(1, 3);
        let two = source.count(0, 1) == 1;
        let at = |node: u32| {
            if two {
                format!("n{node}:0 n{node}:1")
            } else {
                format!("n{node}:0")
            }
        };
        let mode = [Recompute::None, Recompute::Full][source.count(0, 1) as usize];
        let part = |atoms: [usize; 2], depth: u32, nodes: &[u32]| {
            let replicas = nodes.iter().map(|n| replica(&at(*n), rows)).collect();
            let mut stage = stage(atoms, depth, replicas);
            stage.recompute = vec![RecomputeRange { atoms, mode }];
            stage
        };
        let together = [pipeline(
            2 * rows,
            m,
            vec![part([0, cut], depth, &[0, 1]), part([cut, 6], 1, &[2, 3])],
        )];
        let apart = [(0, 2), (1, 3)].map(|(a, b)| {
            pipeline(
                rows,
                m,
                vec![part([0, cut], depth, &[a]), part([cut, 6], 1, &[b])],
            )
        });
        let one = predict(&model, &cluster, &training, &together);
        let other = predict(&model, &cluster, &training, &apart);
        close(one.step_time_s.0, other.step_time_s.0, 1e-9);
        for device in &one.devices {
            let twin = other
                .devices
                .iter()
                .find(|d| d.device == device.device)
                .expect("the same devices");
            close(device.memory_bytes.total.0, twin.memory_bytes.total.0, 1e-9);
        }
    }
}

#[test]
fn a_step_is_stages_reductions_and_optimizer() {
    let (model, cluster, training) = (dense(4, true), round(TWO_NODES, 1), training());
    let p = predict(&model, &cluster, &training, &twins());
    let s = &p.stages[0];
    // One stage: micro-batches one after the other, then the reduction, then the optimizer.
    close(
        p.step_time_s.0,
        4.0 * (s.forward_s + s.backward_s).0 + s.grad_sync_s.0 + s.optimizer_s.0,
        1e-12,
    );
    close(
        s.optimizer_s.0,
        30.0 * model.parameters_total() as f64 / 0.85e12,
        1e-9,
    );
    // The three ways to ask agree.
    let setting = Setting::new(&model, &cluster, &training);
    let mut cache = Cache::default();
    let (step, fits) = price_step(&setting, &twins(), &mut cache).expect("a price");
    let (line, line_fits, memory) = price_lines(&setting, &twins(), &mut cache).expect("a price");
    assert_eq!((step, fits), (p.step_time_s, p.fits));
    assert_eq!((line, line_fits), (p.step_time_s, p.fits));
    let devices: Vec<f64> = p.devices.iter().map(|d| d.memory_bytes.total.0).collect();
    assert_eq!(memory, devices);
}

#[test]
fn faster_links_and_devices_never_slow_a_step() {
    let model = dense(4, false);
    let mut source = Source::new(31);
    for case in 0..150 {
        let mut training = training();
        training.zero = source.count(0, 1) as u8;
        training.engine_semantics.overlap.dp = source.count(0, 1) == 1;
        let cluster = round("4x4 A100-SXM-80GB @ ib:80Gb", source.count(1, 3));
        let (cut, rows, m) = (
            source.count(1, 5) as usize,
            source.count(1, 3),
            source.count(1, 9),
        );
        let make = |rows: u32| {
            [pipeline(
                2 * rows,
                m,
                vec![
                    stage(
                        [0, cut],
                        2,
                        vec![replica("n0:0 n0:1", rows), replica("n0:2 n0:3", rows)],
                    ),
                    stage([cut, 6], 1, vec![replica("n1:0", 2 * rows)]),
                ],
            )]
        };
        let step =
            |cluster: &Cluster, rows: u32| predict(&model, cluster, &training, &make(rows)).step_time_s.0;
        let base = step(&cluster, rows);
        let mut quick = cluster.clone();
        match source.count(0, 2) {
            0 => {
                for node in &mut quick.nodes {
                    node.nic.bandwidth.value = ByteRate(25e9);
                }
            }
            1 => quick.nodes[source.count(0, 1) as usize].speed_factor.value = 1.4,
            _ => {
                for device in quick.device_types.values_mut() {
                    device.intra.bandwidth.value = ByteRate(300e9);
                    device.memory_bandwidth.value = ByteRate(2e12);
                }
            }
        }
        let fast = step(&quick, rows);
        assert!(fast <= base * (1.0 + 1e-12), "case {case}: {fast} above {base}");
        assert!(
            step(&cluster, rows + 1) >= base * (1.0 - 1e-12),
            "case {case}: rows"
        );
    }
}
