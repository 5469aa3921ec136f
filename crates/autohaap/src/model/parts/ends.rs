//! Both ends of the chain: embedding, head and the entry and exit of an MTP block.

use super::{Operator, Parts, Sharding, Weight};

pub(super) fn embedding(parts: &mut Parts, vocab: u64, hidden: u64, positions: u64, norm_parameters: u64) {
    let h = hidden as f64;
    parts.tp_halves += 1;
    parts.weights.push(Weight {
        name: "token embedding",
        parameters: vocab.saturating_mul(hidden),
        sharding: Sharding::Column,
        vocabulary: true,
        tied_copy: false,
    });
    parts.weight(
        "position embedding",
        positions.saturating_mul(hidden),
        Sharding::Replicated,
    );
    parts.weight("embedding norm", norm_parameters, Sharding::Replicated);
    // The gather reads and writes one row; its output is saved as the first block's norm input.
    parts.memory("embedding gather", 2.0 * h, Sharding::Replicated);
    if positions > 0 {
        parts.memory("add positions", 2.0 * h, Sharding::Replicated);
    }
    parts.save_sized("token indices", 1.0, 8.0, Sharding::Replicated);
    if norm_parameters > 0 {
        parts.memory("embedding norm", 2.0 * h, Sharding::Replicated);
        parts.save("embedding norm input", h, Sharding::Replicated);
    }
}

pub(super) fn head(parts: &mut Parts, vocab: u64, hidden: u64, norm_parameters: u64, bias: bool, tied: bool) {
    let h = hidden as f64;
    parts.weight("final norm", norm_parameters, Sharding::Replicated);
    parts.memory("final norm", 2.0 * h, Sharding::Replicated);
    parts.save("final norm input and output", 2.0 * h, Sharding::Replicated);
    parts.weights.push(Weight {
        name: "head",
        parameters: vocab.saturating_mul(hidden),
        sharding: Sharding::Column,
        vocabulary: true,
        tied_copy: tied,
    });
    if bias {
        parts.weights.push(Weight {
            name: "head bias",
            parameters: vocab,
            sharding: Sharding::Column,
            vocabulary: true,
            tied_copy: false,
        });
    }
    logits(parts, hidden, vocab);
}

/// Norms of both inputs and the `2h -> h` projection of an MTP block (arXiv:2412.19437, section 2.2).
pub(super) fn mtp_entry(parts: &mut Parts, hidden: u64, norm_parameters: u64) {
    let h = hidden as f64;
    parts.weight("mtp norms", norm_parameters, Sharding::Replicated);
    parts.memory("mtp norms", 4.0 * h, Sharding::Replicated);
    parts.save("mtp norm inputs and outputs", 4.0 * h, Sharding::Replicated);
    parts.linear(
        "mtp projection",
        hidden.saturating_mul(2),
        hidden,
        Sharding::Column,
    );
}

/// The extra logits of an MTP block; the weight is the head's own and is counted there.
pub(super) fn mtp_logits(parts: &mut Parts, hidden: u64, vocab: u64) {
    let h = hidden as f64;
    parts.memory("mtp final norm", 2.0 * h, Sharding::Replicated);
    parts.save("mtp final norm input and output", 2.0 * h, Sharding::Replicated);
    parts.weights.push(Weight {
        name: "mtp head (shared)",
        parameters: vocab.saturating_mul(hidden),
        sharding: Sharding::Column,
        vocabulary: true,
        tied_copy: true,
    });
    logits(parts, hidden, vocab);
}

/// The product with the vocabulary, cross-entropy and the fp32 probabilities it keeps.
fn logits(parts: &mut Parts, hidden: u64, vocab: u64) {
    let v = vocab as f64;
    parts.tp_halves += 1;
    parts.operators.push(Operator::Gemm {
        name: "logits",
        k: hidden,
        n: vocab,
        sharding: Sharding::Column,
    });
    // Read two-byte logits, write fp32, read fp32 for the sum, write probabilities.
    parts.memory("cross-entropy", 6.0 * v, Sharding::Column);
    parts.save_sized("probabilities", v, 4.0, Sharding::Column);
    parts.logits_vocab = vocab;
}
