//! Peak memory of a stage, against numbers worked by hand and against prefix sums.

use autohaap::cluster::Cluster;
use autohaap::cost::atom::{AtomCost, Setting, atom_cost};
use autohaap::cost::memory::{
    Boundary, Copies, StagePeaks, StageSums, grade, optimizer_seconds, stage_memory, total,
};
use autohaap::model::Model;
use autohaap::plan::{Grade, MemoryItems, Recompute, Training};
use autohaap::units::Bytes;

use crate::cost_support::{Source, close, dense, experts, inside, round, shape, training};

const NODE: &str = "1x8 A100-SXM-80GB";
const STREAM: f64 = 2_097_152.0;
const VOCABULARY: f64 = 32_768.0 * 1024.0;
const LIMIT: Bytes = Bytes::from_gib(79.2);

fn boundary(first: bool, last: bool) -> Boundary {
    Boundary {
        first,
        last,
        tp: 1,
        cp: 1,
        rows: 1,
    }
}

fn copies(n: u32) -> Copies {
    Copies { dense: n, expert: n }
}

fn costs(model: &Model, cluster: &Cluster, training: &Training) -> Vec<AtomCost> {
    let setting = Setting::new(model, cluster, training);
    let shape = shape(cluster);
    (0..model.atoms.len())
        .map(|atom| atom_cost(&setting, atom, &shape))
        .collect()
}

/// Memory of blocks 1 and 2 of a chain of four, in the middle of a pipeline.
fn middle(training: &Training, recompute: &[Recompute], in_flight: u32, holders: u32) -> MemoryItems {
    let (model, cluster) = (dense(4, true), round(NODE, 1));
    let costs = costs(&model, &cluster, training);
    let setting = Setting::new(&model, &cluster, training);
    stage_memory(
        &setting,
        &costs[1..3],
        recompute,
        in_flight,
        copies(holders),
        boundary(false, false),
        LIMIT,
    )
}

#[test]
fn states_and_their_shards() {
    let mut training = training();
    let parameters = 2.0 * (2.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 256.0 + 3.0 * 1024.0 * 4096.0 + 2048.0);
    let items = middle(&training, &[], 1, 4);
    close(items.weights.0, 2.0 * parameters, 1e-12);
    close(items.gradients.0, 4.0 * parameters, 1e-12);
    close(items.optimizer.0, 12.0 * parameters, 1e-12);
    training.zero = 1;
    let items = middle(&training, &[], 1, 4);
    close(items.weights.0, 2.0 * parameters, 1e-12);
    close(items.gradients.0, 4.0 * parameters, 1e-12);
    close(items.optimizer.0, 3.0 * parameters, 1e-12);
    // A receive and a send buffer to each neighbour.
    close(items.buffers.0, 4.0 * STREAM, 1e-12);
    let sum = items.weights
        + items.gradients
        + items.optimizer
        + items.activations
        + items.working_set
        + items.logits
        + items.buffers
        + items.context
        + items.reserve;
    close(items.total.0, sum.0, 1e-15);
    close(items.reserve.0, 0.06 * (LIMIT - items.context).0, 1e-12);
}

#[test]
fn expert_states_have_holders_of_their_own() {
    let (model, cluster, mut training) = (experts(4), round(NODE, 1), training());
    training.zero = 1;
    let costs = costs(&model, &cluster, &training);
    let setting = Setting::new(&model, &cluster, &training);
    let holders = Copies { dense: 4, expert: 2 };
    let items = stage_memory(
        &setting,
        &costs[1..2],
        &[],
        1,
        holders,
        boundary(false, false),
        LIMIT,
    );
    let routed = 8.0 * 3.0 * 1024.0 * 2048.0;
    // q, o, k, v, two norms, router.
    let rest = 2.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 256.0 + 2048.0 + 8.0 * 1024.0;
    close(items.optimizer.0, 12.0 * rest / 4.0 + 12.0 * routed / 2.0, 1e-12);
    // The step moves 30 bytes per parameter at 0.85 of the memory bandwidth.
    let step = optimizer_seconds(
        &setting,
        costs[1].optimizer_dense,
        costs[1].optimizer_expert,
        holders,
        1e12,
    );
    close(step.0, 30.0 * (rest / 4.0 + routed / 2.0) / 0.85e12, 1e-12);
}

#[test]
fn full_recompute_keeps_inputs_and_one_set() {
    let training = training();
    let set = 1024.0 * (8.0 * 1024.0 + 2.0 * 12.0 * 128.0 + 2.0 * 1024.0 + 32.0 + 6.0 * 4096.0);
    let plain = middle(&training, &[], 3, 1);
    close(plain.activations.0, 3.0 * 2.0 * set, 1e-12);
    // The gradient of gate and up is the widest tensor.
    let widest = 8192.0 * 1024.0 * 2.0;
    close(plain.working_set.0, widest, 1e-12);
    let both = middle(&training, &[Recompute::Full, Recompute::Full], 3, 1);
    close(both.activations.0, 3.0 * 2.0 * STREAM, 1e-12);
    close(both.working_set.0, widest + set - STREAM, 1e-12);
    let first = middle(&training, &[Recompute::Full, Recompute::None], 3, 1);
    close(first.activations.0, 3.0 * (STREAM + set), 1e-12);
    close(first.working_set.0, both.working_set.0, 1e-12);
    // Flash attention: selective recompute changes nothing.
    assert_eq!(middle(&training, &[Recompute::Selective; 2], 3, 1), plain);
}

#[test]
fn a_tied_vocabulary_is_held_once_where_both_ends_meet() {
    let (cluster, training) = (round(NODE, 1), training());
    let memory = |model: &Model, from: usize| {
        let costs = costs(model, &cluster, &training);
        let setting = Setting::new(model, &cluster, &training);
        stage_memory(
            &setting,
            &costs[from..],
            &[],
            1,
            copies(1),
            boundary(from == 0, true),
            LIMIT,
        )
    };
    let (tied, untied) = (dense(2, false), dense(2, true));
    let whole = [memory(&untied, 0), memory(&tied, 0)];
    close((whole[0].weights - whole[1].weights).0, 2.0 * VOCABULARY, 1e-12);
    close(
        (whole[0].gradients - whole[1].gradients).0,
        4.0 * VOCABULARY,
        1e-12,
    );
    close(
        (whole[0].optimizer - whole[1].optimizer).0,
        12.0 * VOCABULARY,
        1e-12,
    );
    // On stages of their own both ends hold it.
    assert_eq!(memory(&untied, 2).weights, memory(&tied, 2).weights);
}

#[test]
fn logits_or_layer_work_whichever_is_larger() {
    let (model, cluster) = (dense(2, true), round(NODE, 1));
    let items = |training: &Training| {
        let costs = costs(&model, &cluster, training);
        let setting = Setting::new(&model, &cluster, training);
        stage_memory(
            &setting,
            &costs[2..],
            &[],
            1,
            copies(1),
            boundary(false, true),
            LIMIT,
        )
    };
    let (tokens, words) = (1024.0, 32_768.0);
    let widest = 8192.0 * tokens * 2.0;
    // A fused loss writes its gradient over the probabilities: the gradient of gate and up is the peak.
    let mut training = training();
    let fused = items(&training);
    assert_eq!(fused.logits.0, 0.0);
    close(fused.working_set.0, widest, 1e-12);
    close(fused.buffers.0, 2.0 * STREAM, 1e-12);
    // Otherwise 1,024 tokens x 32,768 words x (2 + 8) bytes.
    training.engine_semantics.kernels.fused_loss = false;
    let apart = items(&training);
    close(apart.logits.0, tokens * words * 10.0, 1e-12);
    assert_eq!(apart.working_set.0, 0.0);
    // Two-byte placeholders: q, k, v, o, gate, up and down of the layer stay, the head's comes with its backward pass.
    training.engine_semantics.kernels.fused_loss = true;
    training.engine_semantics.kernels.fused_weight_grad = false;
    let held = items(&training);
    let layer = 2.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 256.0 + 3.0 * 1024.0 * 4096.0;
    close(held.working_set.0, 2.0 * layer, 1e-12);
    close(held.logits.0, 2.0 * 1024.0 * words, 1e-12);
}

#[test]
fn grades_by_free_share() {
    let training = training();
    let items = middle(&training, &[], 1, 1);
    let graded = |limit: f64| {
        let mut items = items;
        items.limit = Bytes(items.total.0 * limit);
        grade(&items)
    };
    assert_eq!(graded(0.999), Grade::Over);
    assert_eq!(graded(1.05), Grade::Tight);
    assert_eq!(graded(1.10), Grade::Safe);
}

#[test]
fn prefix_sums_and_items_agree_and_grow_with_depth() {
    let models = [dense(6, true), dense(6, false), experts(6)];
    let mut source = Source::new(5);
    for _ in 0..500 {
        let model = &models[source.count(0, 2) as usize];
        let cluster = round(NODE, 1);
        let mut training = training();
        training.zero = source.count(0, 3) as u8;
        training.sequence_parallel = source.count(0, 1) == 1;
        let mut shape = shape(&cluster);
        shape.tp = 1 << source.count(0, 2);
        shape.rows = source.count(1, 4);
        shape.stage_replicas = source.count(1, 3);
        shape.tp_group = inside(&cluster, shape.tp);
        shape.stage_group = inside(&cluster, shape.stage_replicas);
        let setting = Setting::new(model, &cluster, &training);
        let costs: Vec<AtomCost> = (0..model.atoms.len())
            .map(|atom| atom_cost(&setting, atom, &shape))
            .collect();
        let mut prefix = vec![StageSums::default()];
        for cost in &costs {
            prefix.push(prefix[prefix.len() - 1].plus(cost));
        }
        let from = source.count(0, costs.len() as u32 - 1) as usize;
        let to = source.count(from as u32 + 1, costs.len() as u32) as usize;
        // The first `full` atoms of the stage are recomputed.
        let full = source.count(0, (to - from) as u32) as usize;
        let mut modes = vec![Recompute::Full; full];
        modes.resize(to - from, Recompute::None);
        let boundary = Boundary {
            first: from == 0,
            last: to == costs.len(),
            tp: shape.tp,
            cp: 1,
            rows: shape.rows,
        };
        let holders = Copies {
            dense: source.count(1, 4),
            expert: source.count(1, 4),
        };
        let in_flight = source.count(1, 8);
        let range = &costs[from..to];
        let items = |depth| stage_memory(&setting, range, &modes, depth, holders, boundary, LIMIT);
        let saved = prefix[from + full].since(&prefix[from]).saved_full
            + prefix[to].since(&prefix[from + full]).saved_none;
        let summed = total(
            &setting,
            &prefix[to].since(&prefix[from]),
            saved,
            &StagePeaks::of(range, |i| i < full),
            range,
            in_flight,
            holders,
            boundary,
            LIMIT,
        );
        close(summed.0, items(in_flight).total.0, 1e-12);
        let (less, more) = (items(in_flight), items(in_flight + 1));
        assert!(more.total > less.total);
        close(
            (more.total - less.total).0,
            less.activations.0 / f64::from(in_flight),
            1e-6,
        );
    }
}
