//! Hand-built plans that the other plan tests start from, and the promise that these are legal.

use std::collections::BTreeMap;

use autohaap::cluster::{Cluster, Precision, parse_cluster};
use autohaap::model::{Model, parse};
use autohaap::plan::{
    DevicePrediction, EngineSemantics, Grade, Idle, MemoryItems, Optimizer, Pipeline, Plan, Prediction,
    Replica, Schedule, ScheduleKind, Stage, StagePrediction, Training, advise, check, conservation,
};
use autohaap::units::{Bytes, Seconds};

/// A llama-like model: `layers` blocks of 40 heads, 8 key/value heads.
pub(crate) fn dense(layers: usize) -> Model {
    let config = format!(
        r#"{{"model_type": "llama", "num_hidden_layers": {layers}, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "intermediate_size": 13824, "vocab_size": 32000,
        "max_position_embeddings": 4096, "tie_word_embeddings": false}}"#
    );
    parse(&config, "toy.json").expect("a legal config").model
}

/// The same with a shared embedding.
pub(crate) fn tied(layers: usize) -> Model {
    let config = format!(
        r#"{{"model_type": "llama", "num_hidden_layers": {layers}, "hidden_size": 1024, "num_attention_heads": 16,
        "num_key_value_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
        "max_position_embeddings": 4096, "tie_word_embeddings": true}}"#
    );
    parse(&config, "tied.json").expect("a legal config").model
}

/// A mixture of 60 experts.
pub(crate) fn experts(layers: usize) -> Model {
    let config = format!(
        r#"{{"model_type": "qwen2_moe", "num_hidden_layers": {layers}, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
        "decoder_sparse_step": 1, "vocab_size": 151936, "max_position_embeddings": 8192,
        "tie_word_embeddings": false}}"#
    );
    parse(&config, "moe.json").expect("a legal config").model
}

pub(crate) fn cluster(shorthand: &str) -> Cluster {
    parse_cluster(shorthand, "test").expect("a legal shorthand")
}

pub(crate) fn training(global_batch: u64) -> Training {
    Training {
        seq_len: 4096,
        global_batch,
        precision: Precision::Fp16,
        optimizer: Optimizer::Adam,
        zero: 1,
        sequence_parallel: true,
        attention: BTreeMap::new(),
        engine_semantics: EngineSemantics::default(),
    }
}

/// Addresses of all devices in order.
pub(crate) fn addresses(cluster: &Cluster) -> Vec<String> {
    let of_node = |n: &autohaap::cluster::Node| {
        let count: u32 = n.groups.iter().map(|g| g.count).sum();
        (0..count).map(|i| format!("{}:{i}", n.name)).collect::<Vec<_>>()
    };
    cluster.nodes.iter().flat_map(of_node).collect()
}

pub(crate) fn replica(devices: &[String], tp: u32, cp: u32, rows: u32) -> Replica {
    Replica {
        devices: devices.to_vec(),
        tp,
        cp,
        rows,
    }
}

pub(crate) fn stage(atoms: [usize; 2], in_flight: u32, replicas: Vec<Replica>) -> Stage {
    Stage {
        atoms,
        in_flight,
        recompute: Vec::new(),
        ep: 1,
        etp: 1,
        replicas,
        on_stage: None,
    }
}

pub(crate) fn pipeline(micro_batch: u32, micro_batches: u32, stages: Vec<Stage>) -> Pipeline {
    Pipeline {
        micro_batch,
        micro_batches,
        schedule: Schedule {
            kind: ScheduleKind::OneF1b,
            file: None,
        },
        stages,
    }
}

/// A uniform cut: `pp` stages over the devices in order, one replica of `tp x cp` devices each, per pipeline.
pub(crate) fn uniform(model: &Model, cluster: &Cluster, tp: u32, cp: u32, cuts: &[usize], dp: usize) -> Plan {
    let all = addresses(cluster);
    let width = (tp * cp) as usize;
    let pp = cuts.len() - 1;
    let mut pipelines = Vec::new();
    for p in 0..dp {
        let stages = (0..pp).map(|s| {
            let first = (p * pp + s) * width;
            let devices: Vec<String> = (first..first + width)
                .map(|d| all[d % all.len()].clone())
                .collect();
            stage(
                [cuts[s], cuts[s + 1]],
                (pp - s) as u32,
                vec![replica(&devices, tp, cp, 1)],
            )
        });
        pipelines.push(pipeline(1, 8, stages.collect()));
    }
    Plan::build(model, cluster, training(8 * dp as u64), pipelines, Vec::new())
}

/// Two pipelines of different shape on two device types: 3 A100 nodes' worth in one, V100s in the other, one card idle.
pub(crate) fn asymmetric() -> Plan {
    let cluster = cluster("1x8 A100-80G + 1x8 V100-32G @ ib:100Gb");
    let all = addresses(&cluster);
    let (fast, slow) = all.split_at(8);
    let first = pipeline(
        4,
        6,
        vec![
            stage(
                [0, 20],
                2,
                vec![replica(&fast[0..4], 4, 1, 3), replica(&slow[0..2], 2, 1, 1)],
            ),
            stage([20, 32], 1, vec![replica(&fast[4..6], 2, 1, 4)]),
        ],
    );
    let second = pipeline(
        1,
        8,
        vec![
            stage([0, 10], 3, vec![replica(&slow[2..4], 1, 2, 1)]),
            stage([10, 30], 2, vec![replica(&fast[6..8], 2, 1, 1)]),
            stage([30, 32], 1, vec![replica(&slow[4..6], 2, 1, 1)]),
        ],
    );
    let idle = Idle {
        devices: slow[6..8].to_vec(),
        reason: "would not shorten the step".into(),
    };
    Plan::build(
        &dense(30),
        &cluster,
        training(32),
        vec![first, second],
        vec![idle],
    )
}

/// Adds a prediction that is consistent with the plan.
pub(crate) fn predicted(mut plan: Plan) -> Plan {
    let cluster = &plan.cluster.cluster;
    let mut devices = Vec::new();
    let mut stages = Vec::new();
    for (p, pipeline) in plan.pipelines.iter().enumerate() {
        for (s, stage) in pipeline.stages.iter().enumerate() {
            stages.push(StagePrediction {
                pipeline: p,
                stage: s,
                forward_s: Seconds(0.1),
                backward_s: Seconds(0.2),
                recompute_s: Seconds::ZERO,
                comm_s: Seconds(0.01),
                send_forward_s: Seconds::ZERO,
                send_backward_s: Seconds::ZERO,
                grad_sync_s: Seconds(0.05),
                optimizer_s: Seconds(0.01),
                busy_fraction: 0.8,
            });
            for address in stage.replicas.iter().flat_map(|r| &r.devices) {
                let (node, index) = cluster.parse_device(address).expect("a device");
                let device_type = cluster.device_type_at(node, index).expect("a type").to_owned();
                let limit = cluster.memory_limit(node, &device_type);
                let memory_bytes = MemoryItems {
                    weights: Bytes(6e9),
                    optimizer: Bytes(4e9),
                    total: Bytes(1e10),
                    limit,
                    ..MemoryItems::default()
                };
                let device = address.clone();
                devices.push(DevicePrediction {
                    device,
                    device_type,
                    memory_bytes,
                    grade: Grade::Safe,
                });
            }
        }
    }
    let tokens = (plan.training.global_batch * plan.training.seq_len) as f64;
    plan.prediction = Some(Prediction {
        step_time_s: Seconds(4.0),
        step_time_closed_form_s: Seconds(3.9),
        step_time_simulated_s: None,
        tokens_per_s: tokens / 4.0,
        mfu: 0.4,
        mfu_formula: "6 N T / step / sum of peaks".into(),
        bound_s: Some(Seconds(3.8)),
        bound_space: Some("full".into()),
        gap: Some((4.0 - 3.8) / 4.0),
        stages,
        devices,
        utilisation: BTreeMap::new(),
        range_s: [Seconds(3.5), Seconds(4.5)],
        provenance_share: BTreeMap::new(),
        fits: true,
    });
    plan
}

/// Codes that a plan breaks, in order, each once.
pub(crate) fn broken(plan: &Plan) -> Vec<&'static str> {
    let mut codes: Vec<&str> = check(plan).iter().map(|v| v.code.id).collect();
    codes.dedup();
    codes
}

#[test]
fn hand_built_plans_are_legal() {
    let eight = cluster("1x8 A100-80G");
    let uniform_plan = uniform(&dense(30), &eight, 2, 1, &[0, 16, 32], 2);
    for plan in [asymmetric(), predicted(asymmetric()), uniform_plan] {
        let violations = check(&plan);
        assert!(violations.is_empty(), "{violations:#?}");
        assert!(conservation(&plan).holds);
    }
    assert!(advise(&predicted(asymmetric())).is_empty());
}

#[test]
fn conservation_adds_up() {
    let proof = conservation(&asymmetric());
    assert!(proof.holds);
    assert_eq!(proof.gradient_weight_sum, 1.0);
    assert_eq!(proof.step_counts, [6, 8]);
    assert!(!proof.equal_step_counts);
    assert_eq!(proof.pipelines[0].gradient_weight, 0.75);
    assert_eq!(
        proof.pipelines[0].stages[0].gradient_weights,
        [18.0 / 32.0, 6.0 / 32.0]
    );
    assert_eq!(
        (proof.devices.used, proof.devices.idle, proof.devices.unaccounted),
        (14, 2, 0)
    );
    assert!(proof.tied_partners.is_empty());

    let eight = cluster("1x8 A100-80G");
    let shared = conservation(&uniform(&tied(6), &eight, 2, 1, &[0, 4, 8], 2));
    let places: Vec<_> = shared
        .tied_partners
        .iter()
        .map(|t| (t.pipeline, t.stage, t.atom))
        .collect();
    assert_eq!(places, [(0, 0, 0), (0, 1, 7), (1, 0, 0), (1, 1, 7)]);
    assert_eq!(shared.tied_partners[1].devices.len(), 2);
}

#[test]
fn advice_is_no_violation() {
    let two = cluster("2x2 A100-80G @ ib:100Gb");
    let wide = uniform(&dense(30), &two, 4, 1, &[0, 32], 1);
    assert!(check(&wide).is_empty());
    let advice = advise(&wide);
    assert_eq!(advice[0].code.id, "E441", "{advice:#?}");
    let mixed = cluster("1x(1 A100-80G + 1 V100-32G)");
    let mut slow = uniform(&dense(30), &mixed, 2, 1, &[0, 32], 1);
    slow.training.seq_len = 8192;
    let advice: Vec<_> = advise(&slow).iter().map(|a| a.code.id).collect();
    assert_eq!(advice, ["E443", "E442"]);
}

#[test]
fn large_plans_are_checked_quickly() {
    let large = cluster("1250x8 A100-80G @ ib:100Gb");
    let plan = predicted(uniform(&dense(30), &large, 8, 1, &[0, 16, 32], 625));
    let start = std::time::Instant::now();
    let violations = check(&plan);
    let elapsed = start.elapsed();
    assert!(violations.is_empty(), "{:?}", violations.first());
    assert!(elapsed.as_millis() < 1_000, "{elapsed:?}");
}
