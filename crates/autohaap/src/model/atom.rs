//! The model as data: the atom chain and the architecture numbers of each atom.

use serde::{Deserialize, Serialize};

/// A language model as a chain of atoms: embedding, blocks, MTP blocks, head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Preset name or file stem.
    pub name: String,
    /// `model_type` as read, or the format's name.
    pub family: String,
    /// Atoms in chain order: `0` the embedding, `1..=L` the blocks, then MTP blocks, the head last.
    pub atoms: Vec<Atom>,
    /// Whether the embedding and the head share one weight (held by the first **and** the last stage).
    pub tied: bool,
    /// Hidden width of the residual stream, elements per token at every boundary.
    pub hidden: u64,
    /// Vocabulary without padding.
    pub vocab: u64,
    /// Longest sequence the model was made for, tokens; not the training length.
    pub max_seq_len: Option<u64>,
    /// Routed-expert load factor (1 = perfectly balanced): time and memory of expert parts are multiplied by it.
    pub expert_load: f64,
}

/// One placeable piece of the chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Atom {
    /// What kind of piece, for tables and pictures.
    pub kind: AtomKind,
    /// Everything needed to derive parameters, FLOPs and bytes.
    pub shape: Shape,
}

/// Kind of an atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AtomKind {
    /// Token (and learned position) embedding.
    Embedding,
    /// Attention and a dense MLP.
    Dense,
    /// Attention and routed experts.
    Moe,
    /// A block whose mixer is a state-space or linear-attention scan.
    Scan,
    /// A multi-token-prediction block.
    Mtp,
    /// Final norm, LM head and loss.
    Head,
}

/// Architecture numbers of an atom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum Shape {
    /// Token embedding `vocab x hidden`, plus learned positions and an optional norm.
    Embedding {
        /// Rows without padding.
        vocab: u64,
        /// Columns.
        hidden: u64,
        /// Learned position rows (0 = none).
        positions: u64,
        /// Parameters of a norm right after the embedding (bloom), else 0.
        norm_parameters: u64,
    },
    /// A decoder block.
    Block(Block),
    /// A multi-token-prediction block: norms and a `2h -> h` projection around a decoder block; it computes one more
    /// set of logits with the shared head.
    Mtp {
        /// The inner decoder block.
        block: Block,
        /// Vocabulary of the extra logits.
        vocab: u64,
        /// Parameters of its extra norms.
        norm_parameters: u64,
    },
    /// Final norm, LM head and loss.
    Head {
        /// Columns of the output without padding.
        vocab: u64,
        /// Rows.
        hidden: u64,
        /// Parameters of the final norm.
        norm_parameters: u64,
        /// Output bias (vocab parameters).
        bias: bool,
        /// Whether the weight is the embedding's: then it counts no parameters of its own but still occupies memory.
        tied: bool,
    },
}

/// A decoder block: a mixer and/or an MLP and/or experts around the residual stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Block {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention or scan; `None` for MLP-only layers.
    pub mixer: Option<Mixer>,
    /// Dense MLP; both this and `moe` may be present.
    pub mlp: Option<Mlp>,
    /// Routed experts.
    pub moe: Option<Moe>,
    /// Number of hidden-wide norms (for activation memory and memory-bound time).
    pub norms: u32,
    /// Parameters of all norms of the block, inner ones included (replicated under TP).
    pub norm_parameters: u64,
}

/// Sequence mixer of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum Mixer {
    /// Multi-head, grouped-query or multi-query attention.
    Attention {
        /// Query heads.
        heads: u64,
        /// Key/value heads.
        kv_heads: u64,
        /// Width of one q/k head.
        head_dim: u64,
        /// Width of one value head (usually `head_dim`).
        v_head_dim: u64,
        /// Keys seen by a token: `None` = all before it; `Some(w)` = the last `w`.
        window: Option<u64>,
        /// Bias parameters of the q/k/v projections together.
        qkv_bias: u64,
        /// Bias parameters of the output projection.
        out_bias: u64,
        /// Whether an output gate of the width of q exists (one more `h x heads*head_dim` projection).
        gated: bool,
        /// Whether k and v share one projection.
        shared_kv: bool,
        /// Further small parameters (sinks and the like).
        other_parameters: u64,
    },
    /// Multi-head latent attention (DeepSeek).
    Mla {
        /// Query heads.
        heads: u64,
        /// Query latent rank; `None` = plain projection.
        q_rank: Option<u64>,
        /// Key/value latent rank.
        kv_rank: u64,
        /// Non-rotary width of a q/k head.
        nope_dim: u64,
        /// Rotary width of a q/k head.
        rope_dim: u64,
        /// Width of a value head.
        v_dim: u64,
    },
    /// A state-space or linear-attention layer, reduced to what placement needs.
    Scan {
        /// Name of the mechanism, for example `mamba2`, `gated-delta`, `mamba`.
        name: String,
        /// Heads over which tensor parallelism divides the layer.
        heads: u64,
        /// Outputs of all input projections together (columns of one `h x n` GEMM).
        in_width: u64,
        /// Inputs of the output projection (rows).
        out_width: u64,
        /// FLOPs of the scan itself, forward, per token.
        scan_flops_per_token: u64,
        /// Elements saved for backward per token besides the projections' inputs and outputs.
        saved_per_token: u64,
        /// Convolution and other small parameters.
        other_parameters: u64,
    },
}

/// Dense MLP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mlp {
    /// Inner width.
    pub width: u64,
    /// Three matrices (gate, up, down) instead of two.
    pub gated: bool,
    /// Bias parameters of all its linears together.
    pub bias: u64,
}

/// Routed and shared experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moe {
    /// Routed experts.
    pub experts: u64,
    /// Routed experts per token.
    pub active: u64,
    /// Inner width of one routed expert.
    pub width: u64,
    /// Whether experts have three matrices.
    pub gated: bool,
    /// Bias parameters of one routed expert.
    pub expert_bias: u64,
    /// Inner width of the shared expert(s) together; 0 = none.
    pub shared_width: u64,
    /// Parameters of the router besides `hidden x experts` (bias, correction, shared-expert gate).
    pub router_other: u64,
}
