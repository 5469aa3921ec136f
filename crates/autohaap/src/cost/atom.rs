//! Time and memory of one atom on one replica. Search and pricing both stand on these figures.

use crate::cluster::{Cluster, Collective, Group, Precision};
use crate::model::{Model, Operator, Parts, Sharding};
use crate::plan::{AttentionKernel, Kernels, Optimizer, Training};
use crate::profile::{Rates, Step};
use crate::units::{Bytes, Seconds};

mod measured;

/// Everything a cost is computed from.
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its atoms expanded, same order.
    pub parts: Vec<Parts>,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Training settings.
    pub training: &'a Training,
}

impl<'a> Setting<'a> {
    /// Expands the atoms once.
    pub fn new(model: &'a Model, cluster: &'a Cluster, training: &'a Training) -> Self {
        Self {
            model,
            parts: model.atoms.iter().map(crate::model::Atom::parts).collect(),
            cluster,
            training,
        }
    }
}

/// A replica as far as an atom's cost depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaShape {
    /// Device type (key of `cluster.device_types`); the slowest member where types mix.
    pub device_type: String,
    /// Slowest speed factor of the members.
    pub speed_factor: f64,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Sequences per micro-batch.
    pub rows: u32,
    /// Expert parallelism of the stage.
    pub ep: u32,
    /// Expert tensor parallelism of the stage.
    pub etp: u32,
    /// Replicas in the stage (for ZeRO 2/3).
    pub stage_replicas: u32,
    /// Where the TP group's members sit.
    pub tp_group: Group,
    /// Where the CP group's members sit.
    pub cp_group: Group,
    /// Where the EP group's members sit.
    pub ep_group: Group,
    /// Where the replicas of the stage sit (one member each), for ZeRO 2/3.
    pub stage_group: Group,
}

/// Time of one phase of one atom and micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseTime {
    /// Compute, memory-bound work included.
    pub compute: Seconds,
    /// Exposed tensor-parallel communication.
    pub tp: Seconds,
    /// Exposed context-parallel communication.
    pub cp: Seconds,
    /// Exposed expert-parallel communication.
    pub ep: Seconds,
    /// Exposed ZeRO-2/3 communication inside the stage.
    pub zero: Seconds,
}

impl PhaseTime {
    /// Sum of all items.
    pub fn total(&self) -> Seconds {
        self.compute + self.communication()
    }
    /// The smaller of each item.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            compute: self.compute.min(other.compute),
            tp: self.tp.min(other.tp),
            cp: self.cp.min(other.cp),
            ep: self.ep.min(other.ep),
            zero: self.zero.min(other.zero),
        }
    }
    /// Sum of the communication items.
    pub fn communication(&self) -> Seconds {
        self.tp + self.cp + self.ep + self.zero
    }
}

/// Where the compute time of an atom comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Origin {
    /// Step of the resolution ladder.
    pub step: Step,
    /// Relative standard error.
    pub sigma: f64,
}

/// Cost of one atom on one replica (per device of it, per micro-batch).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AtomCost {
    /// Forward.
    pub forward: PhaseTime,
    /// Input gradient (attention-core backward included).
    pub input_grad: PhaseTime,
    /// Weight gradient.
    pub weight_grad: PhaseTime,
    /// Extra backward time under selective recompute (0 with flash attention).
    pub recompute_selective: PhaseTime,
    /// Extra backward time under full recompute.
    pub recompute_full: PhaseTime,
    /// Weight bytes of a device.
    pub weights: Bytes,
    /// Gradient bytes of a device.
    pub gradients: Bytes,
    /// Optimizer bytes of a device if unsharded, dense tensors: divided by the data-parallel holders under ZeRO >= 1.
    pub optimizer_dense: Bytes,
    /// The same for expert tensors: divided by the *expert* data-parallel holders.
    pub optimizer_expert: Bytes,
    /// Bytes whose all-reduce costs what the reduction of the dense tensors costs: gradients, or under ZeRO >= 1 the mean
    /// of gradients (reduce-scatter) and weights (all-gather).
    pub sync_dense: Bytes,
    /// The same for expert tensors.
    pub sync_expert: Bytes,
    /// The head's or MTP block's copy of a shared vocabulary matrix, contained in the figures above: weights and gradients
    /// together, optimizer, reduction. It is not held twice where a stage has the original too.
    pub shared_copy: SharedCopy,
    /// Activation bytes kept per micro-batch in flight.
    pub saved_none: Bytes,
    /// The same under selective recompute.
    pub saved_selective: Bytes,
    /// The same under full recompute: the input.
    pub saved_full: Bytes,
    /// Largest transient while the atom runs: the gradient of its widest inner tensor.
    pub working_set: Bytes,
    /// Logits transient (head, MTP).
    pub logits: Bytes,
    /// Placeholders of weight gradients that stay once they are made.
    pub held: Bytes,
    /// Bytes of a flat layer gathered by ZeRO-3 (0 otherwise).
    pub gathered: Bytes,
    /// Where the times come from if a profile has them; `None`: from the device's figures.
    pub origin: Option<Origin>,
}

/// Static bytes of a copy of a vocabulary matrix.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SharedCopy {
    /// Weights.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer if unsharded.
    pub optimizer: Bytes,
    /// Reduction bytes.
    pub sync: Bytes,
}

/// Bytes of (weights, gradients, optimizer) per parameter: cost model 2.2 (bf16 + fp32 gradients + fp32 Adam = 2 + 4 + 12).
pub fn bytes_per_parameter(training: &Training) -> (f64, f64, f64) {
    match (training.precision, training.optimizer) {
        (Precision::Fp32, Optimizer::Adam) => (4.0, 4.0, 8.0),
        (Precision::Fp32, Optimizer::Sgd) => (4.0, 4.0, 0.0),
        (_, Optimizer::Adam) => (2.0, training.engine_semantics.kernels.gradient_bytes, 12.0),
        (_, Optimizer::Sgd) => (2.0, training.engine_semantics.kernels.gradient_bytes, 4.0),
    }
}

/// Bytes of one activation element.
pub fn activation_bytes(training: &Training) -> f64 {
    if training.precision == Precision::Fp32 {
        4.0
    } else {
        2.0
    }
}

/// Time and memory of atom `atom` on a replica.
pub fn atom_cost(setting: &Setting<'_>, atom: usize, shape: &ReplicaShape) -> AtomCost {
    let Some(device) = setting.cluster.device_types.get(&shape.device_type) else {
        return AtomCost::default();
    };
    let training = setting.training;
    let mut unit = Unit {
        seq: training.seq_len as f64,
        measured: [1.0; 3],
        setting,
        parts: &setting.parts[atom],
        shape,
        rates: Rates::of(device, training.precision, shape.speed_factor),
        tokens: f64::from(shape.rows) * training.seq_len as f64 / f64::from(shape.cp),
        tp: f64::from(shape.tp),
        sequence: if training.sequence_parallel {
            f64::from(shape.tp)
        } else {
            1.0
        },
        element: activation_bytes(training),
        flash: training
            .attention
            .get(&shape.device_type)
            .map_or(device.flash_attention, |k| *k == AttentionKernel::Flash),
    };
    let mut cost = AtomCost::default();
    let resolved = unit.resolve(setting.model.atoms[atom].kind);
    if let Some(resolved) = &resolved {
        unit.measured = resolved.factors;
    }
    let used = unit.times(&mut cost);
    if let Some(resolved) = &resolved {
        resolved.finish(&mut cost);
    }
    unit.statics(&mut cost);
    unit.activations(&mut cost);
    unit.zero(&mut cost, used);
    cost
}

/// One atom on one replica, with the quantities that every formula needs.
struct Unit<'u> {
    setting: &'u Setting<'u>,
    parts: &'u Parts,
    shape: &'u ReplicaShape,
    rates: Rates,
    /// Tokens of a sequence.
    seq: f64,
    /// Measured over modelled time of forward, input gradient and weight gradient.
    measured: [f64; 3],
    /// Tokens of one CP rank: rows x sequence / cp.
    tokens: f64,
    tp: f64,
    /// Divisor of sequence-parallel tensors.
    sequence: f64,
    /// Bytes of an activation element.
    element: f64,
    flash: bool,
}

/// Compute time of an operator: (forward, input gradient, weight gradient, attention core recompute).
type OperatorTime = (f64, f64, f64, f64);

impl Unit<'_> {
    fn load(&self) -> f64 {
        self.setting.model.expert_load.max(1.0)
    }

    /// Token-expert pairs of one rank per unit of top-k: its share of the stage's tokens, whatever EP is.
    fn routed_tokens(&self) -> f64 {
        self.tokens / self.tp * f64::from(self.shape.etp) * self.load()
    }

    fn kernels(&self) -> &Kernels {
        &self.setting.training.engine_semantics.kernels
    }

    /// Launch and tail of a kernel on the device.
    fn launch(&self) -> f64 {
        self.rates.launch.0
    }

    fn product(&self, m: f64, n: f64, k: f64, batch: f64, rate: f64) -> f64 {
        let flops = 2.0 * m * n * k * batch;
        let bytes = self.element * (m * k + k * n + m * n) * batch;
        self.launch() + (flops / (rate * self.rates.gemm_share(m, n, k))).max(bytes / self.rates.memory.0)
    }

    /// Times of the three products of a matrix. In 8 bits each operand is also read at two bytes and written at one, as it
    /// is and transposed.
    fn products(&self, m: f64, n: f64, k: f64, batch: f64, rate: f64, narrow: bool) -> OperatorTime {
        let time = self.product(m, n, k, batch, rate);
        let (mut forward, mut input) = (time, time);
        if narrow && self.setting.training.precision == Precision::Fp8 {
            let cast = |elements: f64| 4.0 * elements * batch / self.rates.memory.0;
            forward += cast(m * k);
            input += cast(m * n);
        }
        (forward, input, time / self.rates.weight_grad, 0.0)
    }

    fn operator(&self, operator: &Operator) -> OperatorTime {
        match *operator {
            Operator::Gemm { k, n, sharding, name } => {
                let (m, n, k) = match sharding {
                    Sharding::Column | Sharding::Expert => (self.tokens, n as f64 / self.tp, k as f64),
                    Sharding::Row => (self.tokens, n as f64, k as f64 / self.tp),
                    Sharding::Replicated => (self.tokens / self.sequence, n as f64, k as f64),
                };
                // Logits and router keep 16 bits where blocks run in 8.
                if matches!(name, "logits" | "router") {
                    self.products(m, n, k, 1.0, self.rates.gemm_wide.0 * self.rates.sustained, false)
                } else {
                    self.products(m, n, k, 1.0, self.rates.gemm.0 * self.rates.sustained, true)
                }
            }
            Operator::ExpertGemm {
                k,
                n,
                experts,
                active,
                sharding,
                ..
            } => {
                let etp = f64::from(self.shape.etp);
                let local = experts as f64 / f64::from(self.shape.ep);
                let m = self.routed_tokens() * active as f64 / local.max(1.0);
                let (n, k) = match sharding {
                    Sharding::Row => (n as f64, k as f64 / etp),
                    _ => (n as f64 / etp, k as f64),
                };
                self.products(m.max(1.0), n, k, local.max(1.0), self.rates.expert.0, true)
            }
            Operator::Attention {
                heads,
                qk_dim,
                v_dim,
                window,
            } => self.attention(heads as f64 / self.tp, (qk_dim + v_dim) as f64, window),
            Operator::Scan { flops_per_token } => {
                let time =
                    self.launch() + flops_per_token as f64 * self.tokens / self.tp / self.rates.attention.0;
                (time, 2.0 * time, 0.0, 0.0)
            }
            Operator::Memory {
                elements_per_token,
                sharding,
                ..
            } => {
                let elements = elements_per_token
                    * match sharding {
                        Sharding::Column | Sharding::Row => self.tokens / self.tp,
                        Sharding::Replicated => self.tokens / self.sequence,
                        Sharding::Expert => self.routed_tokens(),
                    };
                let factor = match sharding {
                    Sharding::Expert => self.kernels().routing,
                    _ => self.kernels().elementwise,
                };
                let bytes = elements * self.element * factor;
                let time = self.launch() + bytes / self.rates.memory.0;
                // Backward reads the saved input and the gradient and writes one gradient.
                (time, 1.5 * time, 0.0, 0.0)
            }
        }
    }

    /// Attention core: `2 T keys heads (d_qk + d_v)` FLOPs with `keys` the mean keys per token; flash recomputes the scores
    /// in backward (2.5 x). The unfused kernel is two batched products over all keys (no half of them is skipped) and about
    /// four score-sized tensors of traffic, two and a half more with dropout; twice both in backward.
    fn attention(&self, heads: f64, dims: f64, window: Option<u64>) -> OperatorTime {
        let seq = self.seq;
        let launch = self.launch();
        if self.flash {
            let keys = match window {
                Some(w) if (w as f64) < seq => w as f64 * (1.0 - w as f64 / (2.0 * seq)),
                _ => seq / 2.0,
            };
            let core =
                2.0 * self.tokens * keys * heads * dims * self.kernels().attention / self.rates.attention.0;
            return (launch + core, launch + 2.5 * core, 0.0, 0.0);
        }
        let wide = dims / 2.0;
        let rate = self.rates.gemm_wide.0 * self.rates.sustained * self.rates.gemm_share(seq, seq, wide);
        let core = 2.0 * self.tokens * seq * heads * dims / rate;
        let passes = if self.kernels().dropout { 6.5 } else { 4.0 };
        let traffic = passes * heads * self.tokens * seq * self.element / self.rates.memory.0;
        let forward = 4.0 * launch + core + traffic;
        (forward, 4.0 * launch + 2.0 * (core + traffic), 0.0, forward)
    }

    fn collective(&self, op: Collective, group: &Group, bytes: f64) -> f64 {
        self.setting
            .cluster
            .collective_time(op, group, Bytes(bytes))
            .map_or(f64::INFINITY, |s| s.0 + self.kernels().collective_s.0)
    }

    /// Times of all phases; returns the compute of the forward and backward pass that already hides communication.
    fn times(&self, cost: &mut AtomCost) -> (f64, f64) {
        let mut sum = [0.0; 4];
        for operator in &self.parts.operators {
            let (forward, input, weight, core) = self.operator(operator);
            sum = [sum[0] + forward, sum[1] + input, sum[2] + weight, sum[3] + core];
        }
        // Kernels are issued ahead of the device: a pass takes the longer of running and issuing them.
        let host = self.kernels().host_s.0;
        if host > 0.0 {
            let issued = |weighted: bool| -> f64 {
                let of = |o: &Operator| match o {
                    Operator::Gemm { .. } => 1.0,
                    // A grouped product with its permutation and, in 8 bits, its casts.
                    Operator::ExpertGemm { .. } => 4.0,
                    Operator::Attention { .. } if !self.flash && !weighted => 4.0,
                    _ if weighted => 0.0,
                    _ => 1.0,
                };
                host * self.parts.operators.iter().map(of).sum::<f64>()
            };
            sum[0] = sum[0].max(issued(false));
            sum[1] = sum[1].max(issued(false));
            sum[2] = sum[2].max(issued(true));
        }
        let [forward, input, weight] = self.measured;
        sum = [sum[0] * forward, sum[1] * input, sum[2] * weight, sum[3] * input];
        let hidden = self.setting.model.hidden as f64;
        let overlap = self.setting.training.engine_semantics.overlap.tp;

        // Tensor parallelism: one all-reduce, or all-gather and reduce-scatter, of the residual per sublayer and pass.
        let tp = if self.shape.tp > 1 {
            let bytes = self.tokens * hidden * self.element;
            let each = if self.setting.training.sequence_parallel {
                self.collective(Collective::AllGather, &self.shape.tp_group, bytes)
                    + self.collective(Collective::ReduceScatter, &self.shape.tp_group, bytes)
            } else {
                self.collective(Collective::AllReduce, &self.shape.tp_group, bytes)
            };
            // Half a pair is one of its two collectives in each pass, or the whole all-reduce in one pass of two.
            each * (f64::from(self.parts.tp_reductions) + 0.5 * f64::from(self.parts.tp_halves))
        } else {
            0.0
        };
        // The cross-entropy over a divided vocabulary sums three fp32 numbers a token: maximum, target logit, sum.
        let loss = if self.shape.tp > 1 && self.parts.logits_vocab > 0 {
            3.0 * self.collective(Collective::AllReduce, &self.shape.tp_group, 4.0 * self.tokens)
        } else {
            0.0
        };
        // Context parallelism: K and V of the other chunks pass by, once in forward, twice (with gradients) in backward.
        let cp = if self.shape.cp > 1 {
            let bytes = self.parts.kv_elements_per_token as f64 / self.tp
                * self.element
                * self.tokens
                * f64::from(self.shape.cp);
            self.collective(Collective::AllGather, &self.shape.cp_group, bytes)
        } else {
            0.0
        };
        // Expert parallelism: dispatch and combine, each way in each pass.
        let ep = if self.shape.ep > 1 && self.parts.dispatch_elements_per_token > 0 {
            let bytes = self.parts.dispatch_elements_per_token as f64 * self.element * self.routed_tokens();
            2.0 * self.collective(Collective::AllToAll, &self.shape.ep_group, bytes)
        } else {
            0.0
        };
        // Time under one pass's compute hides communication once, not once per kind.
        let phase = |compute: f64, tp: f64, share: f64| {
            let mut window = if overlap { compute } else { 0.0 };
            let hideable = 1.0 - self.kernels().overlap_loss;
            let mut exposed = |communication: f64| {
                let hidden = (communication * hideable).min(window);
                window -= hidden;
                Seconds(communication - hidden)
            };
            let time = PhaseTime {
                compute: Seconds(compute),
                tp: exposed(tp * share.min(1.0)),
                cp: exposed(cp * share),
                ep: Seconds(ep * share.min(1.0)),
                zero: Seconds::ZERO,
            };
            (time, if overlap { compute - window } else { 0.0 })
        };
        let (forward, forward_used) = phase(sum[0], tp + loss, 1.0);
        let (mut input_grad, backward_used) = phase(sum[1], tp, 2.0);
        if self.kernels().backward_tp_hidden {
            let hidden = (input_grad.tp.0 * (1.0 - self.kernels().overlap_loss)).min(sum[2]);
            input_grad.tp = Seconds(input_grad.tp.0 - hidden);
        }
        (cost.forward, cost.input_grad) = (forward, input_grad);
        cost.weight_grad.compute = Seconds(sum[2]);
        cost.recompute_selective.compute = Seconds(sum[3]);
        cost.recompute_full = cost.forward;
        (forward_used, backward_used)
    }

    fn statics(&self, cost: &mut AtomCost) {
        let training = self.setting.training;
        let (weight, gradient, state) = bytes_per_parameter(training);
        // Ranks of a context-parallel group share the states like replicas do.
        let shards = f64::from((self.shape.stage_replicas * self.shape.cp).max(1));
        let weight_shards = if training.zero >= 3 { shards } else { 1.0 };
        let gradient_shards = if training.zero >= 2 { shards } else { 1.0 };
        // The all-reduce that costs as much as reducing gradients and, under ZeRO, gathering weights.
        let reduced = if training.zero >= 1 {
            f64::midpoint(gradient, weight)
        } else {
            gradient
        };
        for w in &self.parts.weights {
            let parameters = if w.vocabulary {
                // Engines pad the vocabulary to a multiple of 128 * tp.
                let quantum = 128 * u64::from(self.shape.tp);
                let vocab = self.setting.model.vocab.max(1);
                let padded = vocab.div_ceil(quantum) * quantum;
                w.parameters as f64 * padded as f64 / vocab as f64
            } else {
                w.parameters as f64
            };
            let expert = w.sharding == Sharding::Expert;
            let local = match w.sharding {
                Sharding::Column | Sharding::Row => parameters / self.tp,
                Sharding::Replicated => parameters,
                Sharding::Expert => parameters / f64::from(self.shape.ep * self.shape.etp),
            };
            let weights = Bytes(local * weight / if expert { 1.0 } else { weight_shards });
            let gradients = Bytes(local * gradient / if expert { 1.0 } else { gradient_shards });
            cost.weights += weights;
            cost.gradients += gradients;
            if expert {
                cost.optimizer_expert += Bytes(local * state);
                cost.sync_expert += Bytes(local * reduced);
            } else {
                cost.optimizer_dense += Bytes(local * state);
                cost.sync_dense += Bytes(local * reduced);
                if training.zero >= 3 && self.shape.stage_replicas > 1 {
                    cost.gathered += Bytes(local * weight);
                }
            }
            if w.tied_copy {
                cost.shared_copy = SharedCopy {
                    weights,
                    gradients,
                    optimizer: Bytes(local * state),
                    sync: Bytes(local * reduced),
                };
            }
        }
    }

    fn activations(&self, cost: &mut AtomCost) {
        let training = self.setting.training;
        let seq = training.seq_len as f64;
        let tokens = |sharding: Sharding| match sharding {
            Sharding::Column | Sharding::Row => self.tokens / self.tp,
            Sharding::Replicated => self.tokens / self.sequence,
            Sharding::Expert => self.tokens / self.tp * self.load(),
        };
        let mut all = 0.0;
        let mut core = 0.0;
        for saved in &self.parts.saved {
            let element = if saved.element_bytes > 0.0 {
                saved.element_bytes
            } else {
                self.element
            };
            let bytes = saved.elements_per_token * element * tokens(saved.sharding);
            all += bytes;
            if saved.attention_core {
                core += bytes;
            }
        }
        if self.kernels().dropout {
            // One byte an element after each sublayer.
            let sublayers = f64::from(self.parts.tp_reductions);
            all += sublayers * self.setting.model.hidden as f64 * tokens(Sharding::Replicated);
        }
        let mut widest: f64 = 0.0;
        for operator in &self.parts.operators {
            match *operator {
                Operator::Attention { heads, .. } if !self.flash => {
                    // Without flash the softmax output stays, under dropout also its mask and the dropped-out copy.
                    let elements = heads as f64 / self.tp * self.tokens * seq;
                    let dropped = if self.kernels().dropout {
                        self.element + 1.0
                    } else {
                        0.0
                    };
                    let scores = elements * (self.element + dropped);
                    all += scores;
                    core += scores;
                    widest = widest.max(elements * self.element);
                }
                Operator::Gemm {
                    n,
                    sharding: Sharding::Column,
                    name,
                    ..
                } if name != "logits" => {
                    widest = widest.max(n as f64 * self.element * self.tokens / self.tp);
                }
                Operator::ExpertGemm {
                    n,
                    active,
                    sharding: Sharding::Column,
                    ..
                } => {
                    widest = widest.max(n as f64 * active as f64 * self.element * tokens(Sharding::Expert));
                }
                _ => {}
            }
        }
        cost.saved_none = Bytes(all);
        cost.saved_selective = Bytes(if self.flash { all } else { all - core });
        let input = self.setting.model.hidden as f64 * self.element * tokens(Sharding::Replicated);
        cost.saved_full = Bytes(input.min(all));
        cost.working_set = Bytes(widest);
        // A fused loss writes the gradient over the probabilities; otherwise it stands beside them in the activation's
        // precision, with the fp32 copy of the logits and its own fp32 gradient.
        let copies = if self.kernels().fused_loss {
            0.0
        } else {
            self.element + 8.0
        };
        let logits = self.parts.logits_vocab as f64 * copies * self.tokens / self.tp;
        let (held, head) = self.placeholders();
        cost.held = Bytes(held);
        cost.logits = Bytes(logits + head);
    }

    /// Bytes of the two-byte placeholders that stand for the gradients of an atom's matrices: a product that adds its weight
    /// gradient to the accumulator itself still hands autograd a tensor of the weight's shape, and the library keeps one per
    /// shape. The matrices of a layer differ in shape, those of its experts do not.
    /// The head's is returned apart: it lives while the head's backward pass runs.
    fn placeholders(&self) -> (f64, f64) {
        if self.kernels().fused_weight_grad {
            return (0.0, 0.0);
        }
        let (mut held, mut head) = (0.0, 0.0);
        for operator in &self.parts.operators {
            match operator {
                Operator::Gemm {
                    k, n, sharding, name, ..
                } => {
                    let divided = match sharding {
                        Sharding::Replicated => 1.0,
                        _ => self.tp,
                    };
                    let elements = (*k * *n) as f64 / divided;
                    if *name == "logits" {
                        head += elements;
                    } else {
                        held += elements;
                    }
                }
                Operator::ExpertGemm { k, n, .. } => {
                    held += (*k * *n) as f64 / f64::from(self.shape.etp);
                }
                _ => {}
            }
        }
        (held * self.element, head * self.element)
    }

    /// ZeRO-3 gathers the weights in each pass and reduce-scatters gradients per micro-batch; ZeRO-2 only the latter.
    fn zero(&self, cost: &mut AtomCost, (forward_used, backward_used): (f64, f64)) {
        let training = self.setting.training;
        if training.zero < 2 || self.shape.stage_replicas < 2 {
            return;
        }
        let (weight, gradient, _) = bytes_per_parameter(training);
        // Parameters of the dense tensors: the only figure that is neither divided by the shards nor absent without state.
        let dense = cost.sync_dense.0 / f64::midpoint(gradient, weight);
        let gather = if training.zero >= 3 {
            self.collective(Collective::AllGather, &self.shape.stage_group, dense * weight)
        } else {
            0.0
        };
        let scatter = self.collective(
            Collective::ReduceScatter,
            &self.shape.stage_group,
            dense * gradient,
        );
        let overlap = training.engine_semantics.overlap.dp;
        let exposed = |communication: f64, window: f64| {
            Seconds(if overlap {
                communication - (communication * (1.0 - self.kernels().overlap_loss)).min(window)
            } else {
                communication
            })
        };
        cost.forward.zero = exposed(gather, cost.forward.compute.0 - forward_used);
        cost.input_grad.zero = exposed(
            gather + scatter,
            (cost.input_grad.compute + cost.weight_grad.compute).0 - backward_used,
        );
    }
}
