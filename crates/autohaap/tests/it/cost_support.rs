//! Small settings, plans and shapes for the tests of the cost model.

use std::collections::BTreeMap;

use autohaap::cluster::{Cluster, Group, Precision, Provenance, Sourced, parse_cluster};
use autohaap::cost::atom::{ReplicaShape, Setting};
use autohaap::cost::price::{Cache, price};
use autohaap::model::{Model, parse};
use autohaap::plan::{
    EngineSemantics, Optimizer, Overlap, Pipeline, PointToPointMode, Prediction, Replica, Schedule,
    ScheduleKind, Stage, Training,
};
use autohaap::units::{ByteRate, FlopRate, Seconds};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

const ORACLES: &str = include_str!("../../../../data/published/oracles.csv");

/// A row of the published checks.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) inputs: Value,
    pub(crate) quantity: String,
    pub(crate) expected: Value,
}

impl Row {
    /// A number of the inputs.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.inputs[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{}: no number `{key}`", self.id))
    }

    /// The expected number.
    pub(crate) fn value(&self) -> f64 {
        self.expected.as_f64().expect("a number")
    }
}

/// The rows of an area.
pub(crate) fn rows(area: &str) -> Vec<Row> {
    csv::Reader::from_reader(ORACLES.as_bytes())
        .records()
        .map(|record| record.expect("a CSV record"))
        .filter(|record| &record[1] == area)
        .map(|record| Row {
            id: record[0].to_owned(),
            inputs: serde_json::from_str(&record[4]).expect("inputs are JSON"),
            quantity: record[5].to_owned(),
            expected: serde_json::from_str(&record[7]).expect("a number or a list"),
        })
        .collect()
}

/// Relative closeness.
#[track_caller]
pub(crate) fn close(found: f64, wanted: f64, tolerance: f64) {
    assert!(
        (found - wanted).abs() <= tolerance * wanted.abs().max(f64::MIN_POSITIVE),
        "{found} against {wanted}"
    );
}

pub(crate) fn model(json: &str) -> Model {
    parse(json, "test.json")
        .unwrap_or_else(|problems| panic!("{problems}"))
        .model
}

pub(crate) fn cluster(text: &str) -> Cluster {
    parse_cluster(text, "--cluster").unwrap_or_else(|problems| panic!("{problems}"))
}

/// Layers of 1,024 with 8 heads, 2 key/value heads and a gated MLP of 4,096; vocabulary 32,768.
pub(crate) fn dense(layers: u32, untied: bool) -> Model {
    model(&format!(
        r#"{{"num_layers":{layers},"hidden_size":1024,"num_attention_heads":8,"kv_channels":128,
        "num_query_groups":2,"ffn_hidden_size":4096,"swiglu":true,"normalization":"RMSNorm",
        "padded_vocab_size":32768,"untie_embeddings_and_output_weights":{untied},"add_bias_linear":false}}"#
    ))
}

/// The same with 8 experts of 2,048, two per token.
pub(crate) fn experts(layers: u32) -> Model {
    model(&format!(
        r#"{{"num_layers":{layers},"hidden_size":1024,"num_attention_heads":8,"kv_channels":128,
        "num_query_groups":2,"ffn_hidden_size":4096,"swiglu":true,"normalization":"RMSNorm",
        "padded_vocab_size":32768,"untie_embeddings_and_output_weights":true,"add_bias_linear":false,
        "num_experts":8,"moe_router_topk":2,"moe_ffn_hidden_size":2048,"moe_layer_freq":1}}"#
    ))
}

/// Sequences of 1,024, bf16, Adam, no ZeRO, sequence parallelism, nothing overlapped.
pub(crate) fn training() -> Training {
    Training {
        seq_len: 1024,
        global_batch: 8,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adam,
        zero: 0,
        sequence_parallel: true,
        attention: BTreeMap::new(),
        engine_semantics: EngineSemantics {
            p2p: PointToPointMode::Async,
            overlap: Overlap {
                tp: false,
                dp: false,
                p2p: true,
            },
            kernels: autohaap::plan::Kernels::default(),
        },
    }
}

/// One device of the cluster's first node, one row.
pub(crate) fn shape(cluster: &Cluster) -> ReplicaShape {
    let device_type = cluster.nodes[0].groups[0].device_type.clone();
    let group = Group {
        members: vec![(0, device_type.clone(), 1)],
        concurrent: 1,
    };
    ReplicaShape {
        device_type,
        speed_factor: 1.0,
        tp: 1,
        cp: 1,
        rows: 1,
        ep: 1,
        etp: 1,
        stage_replicas: 1,
        tp_group: group.clone(),
        cp_group: group.clone(),
        ep_group: group.clone(),
        stage_group: group,
    }
}

/// `ranks` devices of the cluster's first node.
pub(crate) fn inside(cluster: &Cluster, ranks: u32) -> Group {
    Group {
        members: vec![(0, cluster.nodes[0].groups[0].device_type.clone(), ranks)],
        concurrent: 1,
    }
}

/// A replica on devices such as `n0:0 n0:1`; all of them are its TP group.
pub(crate) fn replica(devices: &str, rows: u32) -> Replica {
    let devices: Vec<String> = devices.split_whitespace().map(str::to_owned).collect();
    Replica {
        tp: devices.len() as u32,
        devices,
        cp: 1,
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

pub(crate) fn predict(
    model: &Model,
    cluster: &Cluster,
    training: &Training,
    pipelines: &[Pipeline],
) -> Prediction {
    let setting = Setting::new(model, cluster, training);
    price(&setting, pipelines, &mut Cache::default())
        .unwrap_or_else(|problems| panic!("{problems}"))
        .0
}

/// Seeded random numbers.
pub(crate) struct Source(ChaCha8Rng);

impl Source {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From `low` to `high`, both included.
    pub(crate) fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.next_u64() % u64::from(high - low + 1)) as u32
    }
}

/// A cluster of round figures: 100 TFLOP/s and 1 TB/s reached in full, 100 GB/s inside a node, `cards` of 10 GB/s between
/// nodes, no latency.
pub(crate) fn round(text: &str, cards: u32) -> Cluster {
    let mut cluster = cluster(text);
    for device in cluster.device_types.values_mut() {
        device.measured_peak = Some(Sourced::new(FlopRate(100e12), Provenance::User));
        device.memory_bandwidth.value = ByteRate(1e12);
        for share in device.efficiency.values_mut() {
            share.value = 1.0;
        }
        device.curve = Some(autohaap::cluster::Curve::default());
        let link = &mut device.intra;
        link.bandwidth.value = ByteRate(100e9);
        link.pair_bandwidth.value = ByteRate(100e9);
        link.latency.value = Seconds(0.0);
        link.efficiency.value = 1.0;
        link.table.clear();
    }
    for node in &mut cluster.nodes {
        node.nic_count.value = cards;
        node.nic.bandwidth.value = ByteRate(10e9);
        node.nic.efficiency.value = 1.0;
        node.nic.latency.value = Seconds(0.0);
    }
    cluster
}
