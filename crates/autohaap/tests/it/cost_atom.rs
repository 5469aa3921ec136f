//! Time and memory of one atom, against numbers worked by hand.

use autohaap::cluster::{Cluster, Precision};
use autohaap::cost::atom::{AtomCost, ReplicaShape, Setting, atom_cost};
use autohaap::model::Model;
use autohaap::plan::{AttentionKernel, Optimizer, Training};
use autohaap::units::{ByteRate, FlopRate};

use crate::cost_support::{Source, close, dense, experts, inside, model, round, shape, training};

const NODE: &str = "1x8 A100-SXM-80GB";

/// The residual stream of one sequence: 1,024 tokens of 1,024 elements at two bytes.
const STREAM: f64 = 2_097_152.0;

/// Parameters of a dense block: divided by TP (q, o, k, v; gate, up, down) and not (two norms).
const DIVIDED: f64 = 2.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 256.0 + 3.0 * 1024.0 * 4096.0;
const WHOLE: f64 = 2048.0;

fn block(model: &Model, cluster: &Cluster, training: &Training, shape: &ReplicaShape) -> AtomCost {
    atom_cost(&Setting::new(model, cluster, training), 1, shape)
}

fn tensor_parallel(cluster: &Cluster, tp: u32) -> ReplicaShape {
    let mut shape = shape(cluster);
    shape.tp = tp;
    shape.tp_group = inside(cluster, tp);
    shape
}

#[test]
fn compute_of_a_block() {
    let cluster = round(NODE, 1);
    let cost = block(&dense(4, true), &cluster, &training(), &shape(&cluster));
    let launch = 4e-6;
    // k and v, q and o, gate and up, down: 2mnk over 100 TFLOP/s and the share x/(x+64) of each dimension.
    let product = |n: f64, k: f64| {
        let share = |x: f64| x / (x + 64.0);
        2.0 * 1024.0 * n * k / 100e12 / (share(1024.0) * share(n) * share(k)) + launch
    };
    let products = 2.0 * product(1024.0, 1024.0)
        + product(512.0, 1024.0)
        + product(8192.0, 1024.0)
        + product(1024.0, 4096.0);
    // Scores and values over half of the keys, eight heads of 128.
    let core = 2.0 * 1024.0 * 512.0 * 8.0 * 256.0 / 100e12;
    // Norms 4h, rotary 2 (8 + 2) 128, activation 3f, residual 6h: elements of two bytes over 1 TB/s.
    let elements = 4.0 * 1024.0 + 2560.0 + 3.0 * 4096.0 + 6.0 * 1024.0;
    let streamed = elements * 1024.0 * 2.0 / 1e12 + 4.0 * launch;
    close(cost.forward.compute.0, products + core + launch + streamed, 1e-12);
    close(
        cost.input_grad.compute.0,
        products + 2.5 * core + launch + 1.5 * streamed,
        1e-12,
    );
    close(cost.weight_grad.compute.0, products / 0.85, 1e-12);
    close(cost.recompute_full.total().0, cost.forward.total().0, 1e-15);
    // Flash attention leaves nothing to selective recompute.
    assert_eq!(cost.recompute_selective.total().0, 0.0);
    assert_eq!(cost.saved_selective, cost.saved_none);
    assert_eq!(cost.forward.communication().0, 0.0);
}

#[test]
fn tensor_parallel_collectives() {
    let cluster = round(NODE, 1);
    let model = dense(4, true);
    let mut training = training();
    // All-gather and reduce-scatter of the stream over two ranks at 100 GB/s, for attention and MLP.
    let pair = 2.0 * 0.5 * STREAM / 100e9;
    let cost = block(&model, &cluster, &training, &tensor_parallel(&cluster, 2));
    close(cost.forward.tp.0, 2.0 * pair, 1e-12);
    close(cost.input_grad.tp.0, 2.0 * pair, 1e-12);
    assert_eq!(cost.weight_grad.tp.0, 0.0);
    close(cost.recompute_full.tp.0, 2.0 * pair, 1e-12);
    // An all-reduce without sequence parallelism moves the same; three quarters instead of a half on four ranks.
    training.sequence_parallel = false;
    let cost = block(&model, &cluster, &training, &tensor_parallel(&cluster, 4));
    close(cost.forward.tp.0, 2.0 * 1.5 * STREAM / 100e9, 1e-12);
    // Overlap hides what fits under the compute of the pass.
    training.engine_semantics.overlap.tp = true;
    let cost = block(&model, &cluster, &training, &tensor_parallel(&cluster, 4));
    let hidden = (2.0 * 1.5 * STREAM / 100e9 - cost.forward.compute.0).max(0.0);
    close(cost.forward.tp.0, hidden, 1e-12);
}

#[test]
fn context_parallel_exchange() {
    let cluster = round(NODE, 1);
    let mut shape = shape(&cluster);
    shape.cp = 2;
    shape.cp_group = inside(&cluster, 2);
    let cost = block(&dense(4, true), &cluster, &training(), &shape);
    // K and V of the whole sequence: 1,024 tokens x 2 x 2 heads x 128 x 2 bytes, half of it from the other rank.
    let exchange = 0.5 * 1_048_576.0 / 100e9;
    close(cost.forward.cp.0, exchange, 1e-12);
    close(cost.input_grad.cp.0, 2.0 * exchange, 1e-12);
    // Each rank keeps half of the tokens.
    let whole = block(&dense(4, true), &cluster, &training(), &self::shape(&cluster));
    close(cost.saved_none.0, whole.saved_none.0 / 2.0, 1e-12);
    assert_eq!(cost.weights, whole.weights);
}

#[test]
fn expert_parallel_exchange_and_shards() {
    let cluster = round(NODE, 1);
    let model = experts(4);
    let one = block(&model, &cluster, &training(), &shape(&cluster));
    let mut divided = shape(&cluster);
    divided.ep = 4;
    divided.ep_group = inside(&cluster, 4);
    let four = block(&model, &cluster, &training(), &divided);
    // Two copies of every token out and back: dispatch and combine, each three quarters of the tensor.
    let exchange = 2.0 * 0.75 * 2.0 * STREAM / 100e9;
    assert_eq!(one.forward.ep.0, 0.0);
    close(four.forward.ep.0, exchange, 1e-12);
    close(four.input_grad.ep.0, exchange, 1e-12);
    // Eight experts of three 1,024 x 2,048 matrices; four ranks hold two each.
    let routed = 8.0 * 3.0 * 1024.0 * 2048.0;
    close(one.optimizer_expert.0, 12.0 * routed, 1e-12);
    close(four.optimizer_expert.0, 3.0 * routed, 1e-12);
    assert_eq!(one.optimizer_dense, four.optimizer_dense);
    close((one.weights - four.weights).0, 2.0 * 0.75 * routed, 1e-12);
    // An expert's inner width over two ranks.
    divided.etp = 2;
    close(
        block(&model, &cluster, &training(), &divided).optimizer_expert.0,
        1.5 * routed,
        1e-12,
    );
}

#[test]
fn static_bytes_and_vocabulary_padding() {
    let cluster = round(NODE, 1);
    let mut training = training();
    let cost = block(
        &dense(4, true),
        &cluster,
        &training,
        &tensor_parallel(&cluster, 2),
    );
    let local = DIVIDED / 2.0 + WHOLE;
    close(cost.weights.0, 2.0 * local, 1e-12);
    close(cost.gradients.0, 4.0 * local, 1e-12);
    close(cost.optimizer_dense.0, 12.0 * local, 1e-12);
    close(cost.sync_dense.0, 4.0 * local, 1e-12);
    // Reduce-scatter of 4 bytes and all-gather of 2 cost what an all-reduce of 3 costs.
    training.zero = 1;
    let cost = block(
        &dense(4, true),
        &cluster,
        &training,
        &tensor_parallel(&cluster, 2),
    );
    close(cost.sync_dense.0, 3.0 * local, 1e-12);
    close(cost.optimizer_dense.0, 12.0 * local, 1e-12);
    training.precision = Precision::Fp32;
    let cost = block(
        &dense(4, true),
        &cluster,
        &training,
        &tensor_parallel(&cluster, 2),
    );
    close(
        (cost.weights + cost.gradients + cost.optimizer_dense).0,
        16.0 * local,
        1e-12,
    );

    // 50,257 words become 50,432 under TP 2 (a multiple of 256) and 50,304 under TP 1.
    let gpt2 = model(
        r#"{"num_layers":2,"hidden_size":1024,"num_attention_heads":8,"kv_channels":128,"num_query_groups":8,
        "ffn_hidden_size":4096,"swiglu":false,"normalization":"RMSNorm","padded_vocab_size":50257,
        "untie_embeddings_and_output_weights":true,"add_bias_linear":false}"#,
    );
    let training = self::training();
    let setting = Setting::new(&gpt2, &cluster, &training);
    let weights = |tp| atom_cost(&setting, 0, &tensor_parallel(&cluster, tp)).weights.0;
    close(weights(1), 2.0 * 50_304.0 * 1024.0, 1e-12);
    close(weights(2), 50_432.0 * 1024.0, 1e-12);
}

#[test]
fn saved_activations() {
    let cluster = round(NODE, 1);
    let model = dense(4, true);
    let mut training = training();
    // 8h + 2(a + 2k)d + 2ad + 4a + 6f bytes per token.
    let stream = 8.0 * 1024.0;
    let inner = 2.0 * 12.0 * 128.0 + 2.0 * 1024.0 + 32.0 + 6.0 * 4096.0;
    let cost = block(&model, &cluster, &training, &shape(&cluster));
    close(cost.saved_none.0, 1024.0 * (stream + inner), 1e-12);
    close(cost.saved_full.0, STREAM, 1e-12);
    let two = block(&model, &cluster, &training, &tensor_parallel(&cluster, 2));
    close(two.saved_none.0, cost.saved_none.0 / 2.0, 1e-12);
    close(two.saved_full.0, STREAM / 2.0, 1e-12);
    // Without sequence parallelism every rank holds the stream whole.
    training.sequence_parallel = false;
    let two = block(&model, &cluster, &training, &tensor_parallel(&cluster, 2));
    close(two.saved_none.0, 1024.0 * (stream + inner / 2.0), 1e-12);
    close(two.saved_full.0, STREAM, 1e-12);
    // Without flash attention the softmax output of eight heads stays, unless the core is recomputed.
    let device = shape(&cluster).device_type;
    training.attention.insert(device, AttentionKernel::Unfused);
    let slow = block(&model, &cluster, &training, &shape(&cluster));
    close(
        (slow.saved_none - cost.saved_none).0,
        8.0 * 1024.0 * 1024.0 * 2.0,
        1e-12,
    );
    close(slow.saved_selective.0, cost.saved_none.0 - 32.0 * 1024.0, 1e-12);
    assert!(slow.recompute_selective.total().0 > 0.0);
    assert!(slow.forward.total() > cost.forward.total());
}

#[test]
fn zero_shards_inside_the_stage() {
    let cluster = round(NODE, 1);
    let model = dense(4, true);
    let mut training = training();
    let mut four = shape(&cluster);
    four.stage_replicas = 4;
    four.stage_group = inside(&cluster, 4);
    let parameters = DIVIDED + WHOLE;
    let ring = |bytes: f64| 0.75 * bytes * parameters / 100e9;

    training.zero = 3;
    let cost = block(&model, &cluster, &training, &four);
    close(cost.weights.0, 2.0 * parameters / 4.0, 1e-12);
    close(cost.gradients.0, parameters, 1e-12);
    close(cost.gathered.0, 2.0 * parameters, 1e-12);
    // Weights are gathered in both passes, gradients scattered in the second.
    close(cost.forward.zero.0, ring(2.0), 1e-12);
    close(cost.input_grad.zero.0, ring(2.0) + ring(4.0), 1e-12);

    training.zero = 2;
    let cost = block(&model, &cluster, &training, &four);
    close(cost.weights.0, 2.0 * parameters, 1e-12);
    close(cost.gradients.0, parameters, 1e-12);
    assert_eq!(cost.gathered.0, 0.0);
    assert_eq!(cost.forward.zero.0, 0.0);
    close(cost.input_grad.zero.0, ring(4.0), 1e-12);

    // A lone replica shards nothing.
    let cost = block(&model, &cluster, &training, &shape(&cluster));
    close(cost.gradients.0, 4.0 * parameters, 1e-12);
    assert_eq!(cost.input_grad.zero.0, 0.0);

    // fp32 without state: the traffic is that of all parameters, although gradients are held in shards.
    training.precision = Precision::Fp32;
    training.optimizer = Optimizer::Sgd;
    let cost = block(&model, &cluster, &training, &four);
    assert_eq!(cost.optimizer_dense.0, 0.0);
    close(cost.input_grad.zero.0, ring(4.0), 1e-12);
}

/// Forward, backward and both recomputes. The weight gradient hides communication of the input gradient, so that only the
/// two together are a time of their own.
fn times(cost: &AtomCost) -> [f64; 4] {
    [
        cost.forward.total(),
        cost.input_grad.total() + cost.weight_grad.total(),
        cost.recompute_selective.total(),
        cost.recompute_full.total(),
    ]
    .map(|time| time.0)
}

#[test]
fn compute_hides_communication_once() {
    let mut cluster = round(NODE, 1);
    for device in cluster.device_types.values_mut() {
        device.intra.bandwidth.value = ByteRate(1e9);
    }
    let model = dense(4, true);
    let mut training = training();
    training.zero = 3;
    let mut shape = tensor_parallel(&cluster, 2);
    (shape.cp, shape.stage_replicas) = (2, 2);
    shape.cp_group = inside(&cluster, 2);
    shape.stage_group = inside(&cluster, 2);
    let shown = block(&model, &cluster, &training, &shape);
    training.engine_semantics.overlap.tp = true;
    training.engine_semantics.overlap.dp = true;
    let hidden = block(&model, &cluster, &training, &shape);
    // Every link is far slower than the compute: all of it is used, once.
    close(hidden.forward.total().0, shown.forward.communication().0, 1e-12);
    close(
        (hidden.input_grad.total() + hidden.weight_grad.total()).0,
        shown.input_grad.communication().0,
        1e-12,
    );
}

#[test]
fn faster_parts_are_never_slower_and_more_rows_never_faster() {
    let models = [dense(4, false), experts(4)];
    let mut source = Source::new(17);
    for case in 0..400 {
        let model = &models[source.count(0, 1) as usize];
        let mut training = training();
        training.zero = source.count(0, 3) as u8;
        training.sequence_parallel = source.count(0, 1) == 1;
        training.engine_semantics.overlap.tp = source.count(0, 1) == 1;
        training.engine_semantics.overlap.dp = source.count(0, 1) == 1;
        let cluster = round(NODE, 1);
        let mut base = shape(&cluster);
        base.tp = 1 << source.count(0, 2);
        base.cp = source.count(1, 2);
        base.rows = source.count(1, 6);
        base.ep = 1 << source.count(0, 2);
        base.stage_replicas = source.count(1, 4);
        base.speed_factor = 0.8;
        base.tp_group = inside(&cluster, base.tp);
        base.cp_group = inside(&cluster, base.cp);
        base.ep_group = inside(&cluster, base.ep);
        base.stage_group = inside(&cluster, base.stage_replicas);
        if source.count(0, 1) == 1 {
            training
                .attention
                .insert(base.device_type.clone(), AttentionKernel::Unfused);
        }
        let atom = source.count(0, model.atoms.len() as u32 - 1) as usize;
        let of = |cluster: &Cluster, shape: &ReplicaShape| {
            atom_cost(&Setting::new(model, cluster, &training), atom, shape)
        };
        let slow = of(&cluster, &base);
        // Exposed communication may grow when compute shrinks under it; the phase as a whole may not.
        let no_slower = |what: &str, fast: &AtomCost| {
            for (f, s) in times(fast).into_iter().zip(times(&slow)) {
                assert!(f <= s * (1.0 + 1e-12), "case {case}, {what}: {f} above {s}");
            }
        };
        let mut quick = base.clone();
        quick.speed_factor = 1.0;
        no_slower("speed", &of(&cluster, &quick));
        let mut wide = cluster.clone();
        for device in wide.device_types.values_mut() {
            device.intra.bandwidth.value = ByteRate(150e9);
            device.intra.pair_bandwidth.value = ByteRate(150e9);
        }
        no_slower("link", &of(&wide, &base));
        let mut strong = cluster.clone();
        for device in strong.device_types.values_mut() {
            device.measured_peak.as_mut().expect("a peak").value = FlopRate(150e12);
            device.memory_bandwidth.value = ByteRate(2e12);
        }
        no_slower("rates", &of(&strong, &base));

        let mut more = base.clone();
        more.rows += 1;
        let loaded = of(&cluster, &more);
        for (m, f) in times(&loaded).into_iter().zip(times(&slow)) {
            assert!(m >= f * (1.0 - 1e-12), "case {case}, rows: {m} below {f}");
        }
        assert!(loaded.saved_none >= slow.saved_none && loaded.working_set >= slow.working_set);
        assert_eq!(loaded.weights, slow.weights);
    }
}
