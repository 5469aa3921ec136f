//! Published memory formulas of other sources, exactly as they state them, gaps included.
//!
//! The product's own model is [`super::memory`]; nothing of this module enters a prediction. It is here to compare with:
//! a formula that many people know, or the figure that another tool prints for the same configuration.
//!
//! * [`layer_activations`]: one layer by arXiv:2205.05198, Table 2, and by the llm-analysis tool.
//! * [`megatron_static`], [`megatron_activations`]: Megatron-LM's `theoretical_memory_usage.py`.

use crate::units::Bytes;

/// A transformer layer of the form that the published formulas cover: multi-head attention without flash, a plain GELU MLP
/// of width `4h`, 16-bit activations, one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainLayer {
    /// Tokens per sequence (`s`).
    pub seq_len: u64,
    /// Sequences per micro-batch (`b`).
    pub micro_batch: u64,
    /// Width of the residual stream (`h`).
    pub hidden: u64,
    /// Attention heads (`a`).
    pub heads: u64,
    /// Tensor parallelism (`t`).
    pub tp: u64,
}

/// Which published formula of a layer's activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerFormula {
    /// Tensor parallelism alone: `sbh (10 + 24/t + 5as/(ht))`. The 10 are norms, their outputs and the two dropout masks of
    /// the residual stream, which every rank holds whole.
    TensorParallel,
    /// With sequence parallelism: `(sbh/t) (34 + 5as/h)`.
    SequenceParallel,
    /// With sequence parallelism and the attention core recomputed: `34 sbh/t`.
    SequenceParallelSelective,
    /// llm-analysis with sequence parallelism: `(sbh/t) (33 + 5as/h)`. The tool counts the dropout mask of the softmax but
    /// not the one-byte mask after the MLP.
    LlmAnalysis,
    /// llm-analysis with the attention core recomputed: `33 sbh/t`.
    LlmAnalysisSelective,
}

/// Activation bytes of one layer, one micro-batch and one device.
pub fn layer_activations(formula: LayerFormula, layer: PlainLayer) -> Bytes {
    let stream = (layer.seq_len * layer.micro_batch * layer.hidden) as f64;
    let tp = layer.tp as f64;
    // Scores, softmax output (2 bytes each) and the softmax's dropout mask (1 byte), per unit of the residual stream.
    let scores = 5.0 * (layer.heads * layer.seq_len) as f64 / layer.hidden as f64;
    Bytes(match formula {
        LayerFormula::TensorParallel => stream * (10.0 + 24.0 / tp + scores / tp),
        LayerFormula::SequenceParallel => stream / tp * (34.0 + scores),
        LayerFormula::SequenceParallelSelective => 34.0 * stream / tp,
        LayerFormula::LlmAnalysis => stream / tp * (33.0 + scores),
        LayerFormula::LlmAnalysisSelective => 33.0 * stream / tp,
    })
}

/// Attention of a Megatron configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MegatronAttention {
    /// Multi-head or grouped-query.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key/value heads.
        groups: u64,
        /// Width of a head (`kv_channels`).
        head_dim: u64,
    },
    /// Multi-head latent attention.
    Latent {
        /// Heads.
        heads: u64,
        /// `q_lora_rank`.
        q_rank: u64,
        /// `kv_lora_rank`.
        kv_rank: u64,
        /// `qk_head_dim`.
        qk_dim: u64,
        /// `qk_pos_emb_head_dim`.
        rope_dim: u64,
        /// `v_head_dim`.
        v_dim: u64,
    },
}

/// Routed experts of a Megatron configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MegatronExperts {
    /// Layers that have them; the others are dense.
    pub layers: u64,
    /// Experts per layer.
    pub experts: u64,
    /// `moe_ffn_hidden_size`.
    pub ffn: u64,
    /// `moe_shared_expert_intermediate_size`: shared width in all.
    pub shared: u64,
}

/// Arguments of Megatron's memory report. Biases, learned positions and MTP blocks are not counted by the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MegatronArguments {
    /// `num_layers`.
    pub layers: u64,
    /// `hidden_size`.
    pub hidden: u64,
    /// Attention fields.
    pub attention: MegatronAttention,
    /// `ffn_hidden_size`.
    pub ffn: u64,
    /// `swiglu`.
    pub gated: bool,
    /// LayerNorm (two vectors) instead of RMSNorm (one).
    pub layer_norm: bool,
    /// `padded_vocab_size`.
    pub vocab: u64,
    /// `untie_embeddings_and_output_weights`.
    pub untied: bool,
    /// MoE fields.
    pub experts: Option<MegatronExperts>,
    /// `tensor_model_parallel_size`.
    pub tp: u64,
    /// `pipeline_model_parallel_size`.
    pub pp: u64,
    /// `virtual_pipeline_model_parallel_size`.
    pub vpp: Option<u64>,
    /// `data_parallel_size`.
    pub dp: u64,
    /// `expert_model_parallel_size`.
    pub ep: u64,
    /// `expert_tensor_parallel_size`.
    pub etp: u64,
    /// `world_size`.
    pub world_size: u64,
    /// `use_distributed_optimizer`.
    pub distributed_optimizer: bool,
    /// `seq_length`.
    pub seq_len: u64,
    /// `micro_batch_size`.
    pub micro_batch: u64,
    /// Micro-batches of a step, if given.
    pub micro_batches: Option<u64>,
}

impl MegatronArguments {
    /// Vectors of width `h` that a norm holds.
    fn norm(&self) -> u64 {
        if self.layer_norm { 2 } else { 1 }
    }

    fn attention(&self) -> u64 {
        let h = self.hidden;
        match self.attention {
            MegatronAttention::Grouped {
                heads,
                groups,
                head_dim,
            } => 2 * h * heads * head_dim + 2 * h * groups * head_dim,
            MegatronAttention::Latent {
                heads,
                q_rank,
                kv_rank,
                qk_dim,
                rope_dim,
                v_dim,
            } => {
                q_rank * (h + heads * (qk_dim + rope_dim) + self.norm())
                    + kv_rank * (h + heads * (qk_dim + v_dim) + self.norm())
                    + h * rope_dim
                    + heads * v_dim * h
            }
        }
    }
}

/// Bytes per parameter with bf16 weights, fp32 gradients and fp32 Adam, the state divided over `copies` or not.
fn megatron_bytes(distributed: bool, copies: u64) -> f64 {
    if distributed {
        6.0 + 12.0 / copies as f64
    } else {
        18.0
    }
}

/// Weights, gradients and optimizer state of the most loaded device by Megatron's report.
///
/// `((attention + dense and shared MLP)/p + V h (twice if untied and p = 1))/t` and `(norms + router)/p`, each times the
/// bytes of the data-parallel group, plus the routed experts over `p ETP EP` times the bytes of the expert group.
///
/// Gaps of the tool: layers divide evenly over the stages whatever the layout says; the latent projections and norms of
/// multi-head latent attention count as divided by TP; a head on a stage of its own is never the most loaded one.
pub fn megatron_static(a: &MegatronArguments) -> Bytes {
    let h = a.hidden;
    let matrices = if a.gated { 3 } else { 2 };
    let (moe_layers, shared, routed, router) = a.experts.map_or((0, 0, 0, 0), |e| {
        (
            e.layers,
            e.layers * matrices * h * e.shared,
            e.layers * matrices * h * e.ffn * e.experts,
            e.layers * h * e.experts,
        )
    });
    let dense = a.layers * a.attention() + (a.layers - moe_layers) * matrices * h * a.ffn + shared;
    let replicated = a.layers * 2 * a.norm() * h + router + a.norm() * h;
    let (pp, tp) = (a.pp as f64, a.tp as f64);
    let vocabularies = if a.untied && a.pp == 1 { 2.0 } else { 1.0 };
    let sharded = (dense as f64 / pp + vocabularies * (a.vocab * h) as f64) / tp;
    let bytes = megatron_bytes(a.distributed_optimizer, a.dp);
    let expert_copies = a.world_size / (a.etp * a.ep * a.pp);
    Bytes(
        (sharded + replicated as f64 / pp) * bytes
            + routed as f64 / pp / (a.etp * a.ep) as f64
                * megatron_bytes(a.distributed_optimizer, expert_copies.max(1)),
    )
}

/// Activations of the first stage by Megatron's report, with sequence parallelism and selective recompute.
///
/// `[sbh (18 + 4f/h) L + 8sb p + sbh p] x in flight + (p = 1: 4sbh (1 + V/h))`, divided by `t`. In flight: `1 + (p-1)/(pv)`
/// with `v` virtual stages, else `min(1, micro-batches / p)`.
///
/// Gaps of the tool: a gated MLP keeps `6f`, not `4f`; experts count as a dense MLP; grouped heads keep less than the
/// formula; logits are counted only when `p = 1`; the interleaving term is not capped by the micro-batches.
pub fn megatron_activations(a: &MegatronArguments) -> Bytes {
    let stream = (a.seq_len * a.micro_batch * a.hidden) as f64;
    let (h, pp) = (a.hidden as f64, a.pp as f64);
    let layers = stream * (18.0 + 4.0 * a.ffn as f64 / h) * a.layers as f64;
    // Token indices and the dropout mask of the embedding.
    let embedding = (8 * a.seq_len * a.micro_batch) as f64 * pp + stream * pp;
    let in_flight = match (a.vpp, a.micro_batches) {
        (Some(v), _) => 1.0 + (pp - 1.0) / (pp * v as f64),
        (None, Some(m)) if a.pp > 1 => (m as f64 / pp).min(1.0),
        _ => 1.0,
    };
    let ends = if a.pp == 1 {
        4.0 * stream * (1.0 + a.vocab as f64 / h)
    } else {
        0.0
    };
    Bytes(((layers + embedding) * in_flight + ends) / a.tp as f64)
}
