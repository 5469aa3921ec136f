//! Derived figures of atoms and models: parameters, FLOPs and bytes per token, and the digest.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Atom, AtomKind, Mixer, Model, Operator, Parts, Shape, Sharding};
use crate::units::{Bytes, Flops};

/// How the attention core is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Causal {
    /// Only the keys that a token may see: half of the square (the product's own convention).
    #[default]
    Halved,
    /// The full square, as PaLM-style MFU and some estimators count it.
    Full,
}

/// FLOPs per token by operator class.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClassFlops {
    /// Dense matrix products.
    pub gemm: Flops,
    /// Routed-expert matrix products.
    pub expert_gemm: Flops,
    /// Attention core and scans.
    pub attention: Flops,
}

impl ClassFlops {
    /// All classes together.
    pub fn total(&self) -> Flops {
        self.gemm + self.expert_gemm + self.attention
    }
    /// Linear layers only.
    pub fn linear(&self) -> Flops {
        self.gemm + self.expert_gemm
    }
    /// FLOPs of the weight gradients: once the forward of the linear layers; the attention core has no weights.
    #[must_use]
    pub fn weight_grad(&self) -> Self {
        Self {
            attention: Flops::ZERO,
            ..*self
        }
    }
    /// FLOPs of the input gradients: once the forward of the linear layers and twice the attention core.
    #[must_use]
    pub fn input_grad(&self) -> Self {
        Self {
            attention: self.attention * 2.0,
            ..*self
        }
    }
}

/// All derived figures of one atom at a sequence length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtomNumbers {
    /// Parameters (a tied head's copy counts none).
    pub parameters: u64,
    /// Parameters touched per token.
    pub parameters_active: u64,
    /// Forward FLOPs per token by class, causal core halved.
    pub forward: ClassFlops,
    /// Weight-gradient FLOPs per token by class.
    pub weight_grad: ClassFlops,
    /// Input-gradient FLOPs per token by class.
    pub input_grad: ClassFlops,
    /// Bytes per token handed to the next atom at two bytes an element; 0 after the head.
    pub boundary_bytes_per_token: Bytes,
    /// Bytes per token kept for backward at two bytes an element, unsharded, no recompute.
    pub activation_bytes_per_token: Bytes,
}

/// Keys that an average token sees: `s/2` causal; with a window `w < s`, `w - w²/(2s)`, which meets `s/2` at `w = s`.
fn mean_keys(seq_len: u64, window: Option<u64>, causal: Causal) -> f64 {
    let s = seq_len as f64;
    let w = window.map_or(s, |w| (w as f64).min(s));
    match causal {
        Causal::Full => w,
        Causal::Halved if s > 0.0 => w - w * w / (2.0 * s),
        Causal::Halved => 0.0,
    }
}

impl Operator {
    /// Forward FLOPs per token (one multiply-add counts two); memory-bound work counts none.
    pub fn flops_per_token(&self, seq_len: u64, causal: Causal) -> Flops {
        Flops(match self {
            Self::Gemm { k, n, .. } => 2.0 * *k as f64 * *n as f64,
            Self::ExpertGemm { k, n, active, .. } => 2.0 * *k as f64 * *n as f64 * *active as f64,
            Self::Attention {
                heads,
                qk_dim,
                v_dim,
                window,
            } => 2.0 * mean_keys(seq_len, *window, causal) * *heads as f64 * (*qk_dim as f64 + *v_dim as f64),
            Self::Scan { flops_per_token } => *flops_per_token as f64,
            Self::Memory { .. } => 0.0,
        })
    }
}

impl Parts {
    /// Forward FLOPs per token by operator class.
    pub fn flops_by_class(&self, seq_len: u64, causal: Causal) -> ClassFlops {
        let mut sum = ClassFlops::default();
        for op in &self.operators {
            let flops = op.flops_per_token(seq_len, causal);
            match op {
                Operator::Gemm { .. } => sum.gemm += flops,
                Operator::ExpertGemm { .. } => sum.expert_gemm += flops,
                Operator::Attention { .. } | Operator::Scan { .. } => sum.attention += flops,
                Operator::Memory { .. } => {}
            }
        }
        sum
    }

    /// Parameters; tied copies count none.
    pub fn parameters(&self) -> u64 {
        self.weights
            .iter()
            .filter(|w| !w.tied_copy)
            .fold(0, |sum, w| sum.saturating_add(w.parameters))
    }

    /// Bytes per token kept for backward, unsharded, with `element_bytes` for elements of the training precision.
    pub fn activation_bytes_per_token(&self, element_bytes: f64) -> Bytes {
        self.saved
            .iter()
            .map(|s| {
                let size = if s.element_bytes > 0.0 {
                    s.element_bytes
                } else {
                    element_bytes
                };
                Bytes(s.elements_per_token * size)
            })
            .sum()
    }
}

impl Atom {
    /// Parameters of the atom; a tied head counts only its norm.
    pub fn parameters(&self) -> u64 {
        self.parts().parameters()
    }

    /// Parameters touched per token: routed experts count `active` of `experts`.
    pub fn parameters_active(&self) -> u64 {
        let routed = |w: &super::Weight| match self.moe() {
            Some(moe) if w.sharding == Sharding::Expert && moe.experts > 0 => {
                (w.parameters / moe.experts).saturating_mul(moe.active)
            }
            _ => w.parameters,
        };
        let parts = self.parts();
        parts
            .weights
            .iter()
            .filter(|w| !w.tied_copy)
            .fold(0, |sum, w| sum.saturating_add(routed(w)))
    }

    /// Forward FLOPs per token at a sequence length, causal core halved.
    pub fn flops_forward_per_token(&self, seq_len: u64) -> Flops {
        self.flops_by_class(seq_len, Causal::Halved).total()
    }

    /// Forward FLOPs per token by operator class.
    pub fn flops_by_class(&self, seq_len: u64, causal: Causal) -> ClassFlops {
        self.parts().flops_by_class(seq_len, causal)
    }

    /// Weight-gradient FLOPs per token: the linear layers' forward once more.
    pub fn flops_weight_grad_per_token(&self, seq_len: u64) -> Flops {
        self.flops_by_class(seq_len, Causal::Halved).weight_grad().total()
    }

    /// Input-gradient FLOPs per token: the linear layers' forward once more and twice the attention core.
    pub fn flops_input_grad_per_token(&self, seq_len: u64) -> Flops {
        self.flops_by_class(seq_len, Causal::Halved).input_grad().total()
    }

    /// Bytes per token handed to the next atom (the residual stream at two bytes an element); 0 after the head.
    pub fn boundary_bytes_per_token(&self) -> Bytes {
        Bytes(match &self.shape {
            Shape::Embedding { hidden, .. } => 2.0 * *hidden as f64,
            Shape::Block(block) | Shape::Mtp { block, .. } => 2.0 * block.hidden as f64,
            Shape::Head { .. } => 0.0,
        })
    }

    /// Every derived figure at once.
    pub fn numbers(&self, seq_len: u64) -> AtomNumbers {
        let parts = self.parts();
        let forward = parts.flops_by_class(seq_len, Causal::Halved);
        AtomNumbers {
            parameters: parts.parameters(),
            parameters_active: self.parameters_active(),
            forward,
            weight_grad: forward.weight_grad(),
            input_grad: forward.input_grad(),
            boundary_bytes_per_token: self.boundary_bytes_per_token(),
            activation_bytes_per_token: parts.activation_bytes_per_token(2.0),
        }
    }

    fn moe(&self) -> Option<&super::Moe> {
        match &self.shape {
            Shape::Block(block) | Shape::Mtp { block, .. } => block.moe.as_ref(),
            _ => None,
        }
    }
}

impl super::Block {
    /// Kind of the atom that this block is.
    pub fn kind(&self) -> AtomKind {
        match (&self.mixer, &self.moe) {
            (Some(Mixer::Scan { .. }), _) => AtomKind::Scan,
            (_, Some(_)) => AtomKind::Moe,
            _ => AtomKind::Dense,
        }
    }
}

impl Model {
    /// All parameters as publishers count them: a tied head once, MTP blocks not at all.
    pub fn parameters_total(&self) -> u64 {
        self.sum(|a| a.kind != AtomKind::Mtp, Atom::parameters)
    }

    /// Parameters touched per token, embeddings included, MTP blocks not.
    pub fn parameters_active(&self) -> u64 {
        self.sum(|a| a.kind != AtomKind::Mtp, Atom::parameters_active)
    }

    /// All parameters without the input embedding (an untied head stays).
    pub fn parameters_without_embeddings(&self) -> u64 {
        self.sum(
            |a| !matches!(a.kind, AtomKind::Mtp | AtomKind::Embedding),
            Atom::parameters,
        )
    }

    /// Parameters touched per token without the input embedding.
    pub fn parameters_active_without_embeddings(&self) -> u64 {
        self.sum(
            |a| !matches!(a.kind, AtomKind::Mtp | AtomKind::Embedding),
            Atom::parameters_active,
        )
    }

    /// Parameters of the multi-token-prediction blocks, apart from the total.
    pub fn parameters_mtp(&self) -> u64 {
        self.sum(|a| a.kind == AtomKind::Mtp, Atom::parameters)
    }

    /// Forward FLOPs per token of the whole chain under a counting convention.
    pub fn flops_forward_per_token(&self, seq_len: u64, causal: Causal) -> Flops {
        self.atoms
            .iter()
            .map(|a| a.flops_by_class(seq_len, causal).total())
            .sum()
    }

    /// First 16 hexadecimal digits of the SHA-256 of the model's JSON with sorted keys.
    pub fn digest(&self) -> String {
        let mut text = String::new();
        if let Ok(value) = serde_json::to_value(self) {
            canonical(&value, &mut text);
        }
        let hash = Sha256::digest(text.as_bytes());
        hash.iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .concat()
    }

    fn sum(&self, keep: impl Fn(&Atom) -> bool, count: impl Fn(&Atom) -> u64) -> u64 {
        self.atoms
            .iter()
            .filter(|a| keep(a))
            .fold(0, |sum, a| sum.saturating_add(count(a)))
    }
}

/// JSON without spaces and with sorted keys, whatever map the JSON library uses.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}
