//! What an atom consists of, for cost and memory: weights, operators and saved tensors, each with its sharding class.
//!
//! The expansion itself lives in `ends` (embedding, head), `block` and `mixer`.

mod block;
mod ends;
mod mixer;

use super::{Atom, Shape};

/// How tensor parallelism divides a tensor or operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Output columns divided by TP (q, k, v, gate, up, embedding and head rows of the vocabulary).
    Column,
    /// Input rows divided by TP (o, down).
    Row,
    /// Held whole by every TP rank (norms, router, MLA down-projections); its activations divide by TP only under SP.
    Replicated,
    /// Routed expert: experts divided by EP, inner width by ETP.
    Expert,
}

/// A weight tensor (or several of one class together).
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Name for itemised tables.
    pub name: &'static str,
    /// Parameters in all, before any sharding and without padding.
    pub parameters: u64,
    /// Sharding class.
    pub sharding: Sharding,
    /// Vocabulary-sized: padded to a multiple of `128 * tp` in memory.
    pub vocabulary: bool,
    /// Held in memory but not counted (the head's copy of a tied embedding).
    pub tied_copy: bool,
}

/// Operator class; a device has its own speed for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OperatorClass {
    /// Dense matrix products.
    Gemm,
    /// Grouped expert matrix products.
    ExpertGemm,
    /// Attention core (QK^T, softmax, AV) or a scan.
    Attention,
    /// Element-wise work, norms, gathers, loss: bytes over memory bandwidth.
    Memory,
}

/// One operator of an atom's forward pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Operator {
    /// `[tokens, k] x [k, n]`; tokens = rows * seq / cp.
    Gemm {
        /// Name for itemised tables.
        name: &'static str,
        /// Inputs before sharding.
        k: u64,
        /// Outputs before sharding.
        n: u64,
        /// `Column` divides n by TP, `Row` divides k.
        sharding: Sharding,
    },
    /// Routed experts: every token passes `active` of `experts`; `k x n` is one expert's matrix.
    ExpertGemm {
        /// Name for itemised tables.
        name: &'static str,
        /// Inputs of one expert's matrix.
        k: u64,
        /// Outputs of one expert's matrix.
        n: u64,
        /// Routed experts in all.
        experts: u64,
        /// Experts per token.
        active: u64,
        /// ETP divides n (`Column`) or k (`Row`).
        sharding: Sharding,
    },
    /// Attention core over `heads` (divided by TP).
    Attention {
        /// Query heads.
        heads: u64,
        /// Width of a q/k head.
        qk_dim: u64,
        /// Width of a value head.
        v_dim: u64,
        /// Key window; `None` = causal over the whole sequence.
        window: Option<u64>,
    },
    /// A scan with a fixed number of FLOPs per token (divided by TP).
    Scan {
        /// FLOPs per token, forward.
        flops_per_token: u64,
    },
    /// Memory-bound work: bytes moved per token, forward, at 2 bytes an element.
    Memory {
        /// Name for itemised tables.
        name: &'static str,
        /// Elements read and written per token before sharding.
        elements_per_token: f64,
        /// `Column`/`Row`: divided by TP; `Replicated`: divided by TP only under SP; `Expert`: follows routed tokens.
        sharding: Sharding,
    },
}

/// A tensor kept from forward to backward.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Name for itemised tables.
    pub name: &'static str,
    /// Elements per token before sharding (for `Expert`: per local token, all routed copies included).
    pub elements_per_token: f64,
    /// Bytes of one element; 0 = the training precision's activation size (2 for bf16/fp16, 4 for fp32).
    pub element_bytes: f64,
    /// `Column`/`Row`: divided by TP; `Replicated`: divided by TP only under SP; `Expert`: times the load factor.
    pub sharding: Sharding,
    /// Dropped by selective recompute (attention core); without flash attention, the quadratic score tensors are
    /// added by the cost model from [`Operator::Attention`], not listed here.
    pub attention_core: bool,
}

/// An atom expanded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parts {
    /// Weights.
    pub weights: Vec<Weight>,
    /// Forward operators in order.
    pub operators: Vec<Operator>,
    /// Tensors saved for backward (flash attention, no dropout).
    pub saved: Vec<Saved>,
    /// Number of TP all-reduce pairs in forward: 2 for attention + MLP, 1 for a lone mixer or MLP, 0 else.
    pub tp_reductions: u32,
    /// Halves of such a pair where the residual stream enters the TP group (embedding: its partial rows are summed in
    /// forward) or leaves it (logits: the gradient of their input is summed in backward).
    pub tp_halves: u32,
    /// Elements per token dispatched and again combined by expert parallelism (`active * hidden`; 0 = no experts).
    pub dispatch_elements_per_token: u64,
    /// Elements of K and V per token (for context parallelism's ring exchange).
    pub kv_elements_per_token: u64,
    /// Vocabulary of logits computed here (head, MTP), 0 else.
    pub logits_vocab: u64,
    /// Numbers that TP must divide, with their names: heads, ffn, ...
    pub tp_divides: Vec<(&'static str, u64)>,
    /// Key/value heads: must divide TP or be divided by it. 0 = no constraint.
    pub kv_heads: u64,
    /// Routed experts: EP must divide it. 0 = none.
    pub experts: u64,
    /// Inner width of an expert: ETP must divide it. 0 = none.
    pub expert_width: u64,
}

impl Atom {
    /// Expands the atom into weights, forward operators, saved tensors and the numbers that parallel degrees must
    /// divide.
    ///
    /// Saved tensors follow the per-tensor inventory of a flash-attention layer without dropout: a gated
    /// grouped-query layer keeps `8h + 2(a+2k)d + 2ad + 4a + 6f` bytes per token at two bytes an element.
    pub fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        match &self.shape {
            Shape::Embedding {
                vocab,
                hidden,
                positions,
                norm_parameters,
            } => {
                ends::embedding(&mut parts, *vocab, *hidden, *positions, *norm_parameters);
            }
            Shape::Block(block) => block::block(&mut parts, block),
            Shape::Mtp {
                block,
                vocab,
                norm_parameters,
            } => {
                ends::mtp_entry(&mut parts, block.hidden, *norm_parameters);
                block::block(&mut parts, block);
                ends::mtp_logits(&mut parts, block.hidden, *vocab);
            }
            Shape::Head {
                vocab,
                hidden,
                norm_parameters,
                bias,
                tied,
            } => {
                ends::head(&mut parts, *vocab, *hidden, *norm_parameters, *bias, *tied);
            }
        }
        parts
    }
}

impl Parts {
    fn weight(&mut self, name: &'static str, parameters: u64, sharding: Sharding) {
        if parameters > 0 {
            self.weights.push(Weight {
                name,
                parameters,
                sharding,
                vocabulary: false,
                tied_copy: false,
            });
        }
    }

    /// A matrix of `k x n` together with the product that uses it.
    fn linear(&mut self, name: &'static str, k: u64, n: u64, sharding: Sharding) {
        if k == 0 || n == 0 {
            return;
        }
        self.weight(name, k.saturating_mul(n), sharding);
        self.operators.push(Operator::Gemm { name, k, n, sharding });
    }

    fn memory(&mut self, name: &'static str, elements_per_token: f64, sharding: Sharding) {
        if elements_per_token > 0.0 {
            self.operators.push(Operator::Memory {
                name,
                elements_per_token,
                sharding,
            });
        }
    }

    /// Saved elements of the training precision.
    fn save(&mut self, name: &'static str, elements_per_token: f64, sharding: Sharding) {
        self.save_sized(name, elements_per_token, 0.0, sharding);
    }

    /// Saved elements of a fixed size.
    fn save_sized(
        &mut self,
        name: &'static str,
        elements_per_token: f64,
        element_bytes: f64,
        sharding: Sharding,
    ) {
        if elements_per_token > 0.0 {
            self.saved.push(Saved {
                name,
                elements_per_token,
                element_bytes,
                sharding,
                attention_core: false,
            });
        }
    }
}
