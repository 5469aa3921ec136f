//! A decoder block: norms and residuals, dense MLP, routed and shared experts.

use super::{Operator, Parts, Sharding, Weight, mixer};
use crate::model::{Block, Mlp, Moe};

pub(super) fn block(parts: &mut Parts, block: &Block) {
    let h = block.hidden as f64;
    let has_mlp = block.mlp.is_some() || block.moe.is_some();
    let sublayers = u32::from(block.mixer.is_some()) + u32::from(has_mlp);
    norms(parts, block, sublayers);
    if let Some(m) = &block.mixer {
        mixer::mixer(parts, block.hidden, m);
    }
    if let Some(mlp) = &block.mlp {
        dense(parts, block.hidden, mlp);
    }
    if let Some(moe) = &block.moe {
        experts(parts, block.hidden, moe);
    }
    // Every sublayer adds its output to the residual: two reads, one write.
    parts.memory("residual", 3.0 * h * f64::from(sublayers), Sharding::Replicated);
    // A parallel block (one norm for both sublayers) sums both outputs before the single reduction.
    parts.tp_reductions = if block.norms == 1 {
        sublayers.min(1)
    } else {
        sublayers
    };
}

/// A pre-norm keeps its input and its output (the next product's input); a further norm after a sublayer keeps only
/// its input.
fn norms(parts: &mut Parts, block: &Block, sublayers: u32) {
    if sublayers == 0 {
        parts.weight("norms", block.norm_parameters, Sharding::Replicated);
        return;
    }
    let h = block.hidden as f64;
    let entries = block.norms.clamp(1, sublayers);
    let further = block.norms.saturating_sub(sublayers);
    parts.weight("norms", block.norm_parameters, Sharding::Replicated);
    parts.memory(
        "norms",
        2.0 * h * f64::from(entries + further),
        Sharding::Replicated,
    );
    parts.save(
        "norm inputs and outputs",
        2.0 * h * f64::from(entries),
        Sharding::Replicated,
    );
    parts.save(
        "further norm inputs",
        h * f64::from(further),
        Sharding::Replicated,
    );
}

fn dense(parts: &mut Parts, hidden: u64, mlp: &Mlp) {
    let f = mlp.width as f64;
    let columns = if mlp.gated {
        mlp.width.saturating_mul(2)
    } else {
        mlp.width
    };
    parts.linear(
        if mlp.gated { "gate and up" } else { "up" },
        hidden,
        columns,
        Sharding::Column,
    );
    parts.memory(
        "activation",
        if mlp.gated { 3.0 } else { 2.0 } * f,
        Sharding::Column,
    );
    parts.linear("down", mlp.width, hidden, Sharding::Row);
    parts.weight("mlp bias", mlp.bias, Sharding::Column);
    parts.save("mlp inner inputs", columns as f64, Sharding::Column);
    parts.save("mlp product", f, Sharding::Column);
    parts.tp_divides.push(("ffn width", mlp.width));
}

fn experts(parts: &mut Parts, hidden: u64, moe: &Moe) {
    let (h, f, k) = (hidden as f64, moe.width as f64, moe.active as f64);
    let columns = if moe.gated {
        moe.width.saturating_mul(2)
    } else {
        moe.width
    };
    let matrices = if moe.gated { 3 } else { 2 };

    parts.linear("router", hidden, moe.experts, Sharding::Replicated);
    parts.weight("router bias", moe.router_other, Sharding::Replicated);
    parts.memory(
        "router softmax and top-k",
        4.0 * moe.experts as f64,
        Sharding::Replicated,
    );
    parts.save_sized("router logits", moe.experts as f64, 4.0, Sharding::Replicated);

    parts.weights.push(Weight {
        name: "routed experts",
        parameters: hidden
            .saturating_mul(moe.width)
            .saturating_mul(matrices)
            .saturating_add(moe.expert_bias)
            .saturating_mul(moe.experts),
        sharding: Sharding::Expert,
        vocabulary: false,
        tied_copy: false,
    });
    parts.memory("dispatch", 2.0 * k * h, Sharding::Expert);
    parts.operators.push(Operator::ExpertGemm {
        name: if moe.gated {
            "expert gate and up"
        } else {
            "expert up"
        },
        k: hidden,
        n: columns,
        experts: moe.experts,
        active: moe.active,
        sharding: Sharding::Column,
    });
    parts.memory(
        "expert activation",
        k * if moe.gated { 3.0 } else { 2.0 } * f,
        Sharding::Expert,
    );
    parts.operators.push(Operator::ExpertGemm {
        name: "expert down",
        k: moe.width,
        n: hidden,
        experts: moe.experts,
        active: moe.active,
        sharding: Sharding::Row,
    });
    parts.memory("combine", 2.0 * k * h, Sharding::Expert);
    parts.save("dispatched inputs", k * h, Sharding::Expert);
    parts.save("expert inner inputs", k * columns as f64, Sharding::Expert);
    parts.save("expert products", k * f, Sharding::Expert);
    parts.save("expert outputs", k * h, Sharding::Expert);
    parts.dispatch_elements_per_token = moe.active.saturating_mul(hidden);
    parts.experts = moe.experts;
    parts.expert_width = moe.width;

    if moe.shared_width > 0 {
        shared(parts, hidden, moe);
    }
}

/// The shared expert is a dense MLP that every token passes.
fn shared(parts: &mut Parts, hidden: u64, moe: &Moe) {
    let width = moe.shared_width;
    let columns = if moe.gated { width.saturating_mul(2) } else { width };
    parts.linear("shared expert gate and up", hidden, columns, Sharding::Column);
    parts.memory(
        "shared expert activation",
        if moe.gated { 3.0 } else { 2.0 } * width as f64,
        Sharding::Column,
    );
    parts.linear("shared expert down", width, hidden, Sharding::Row);
    parts.save("shared expert inner inputs", columns as f64, Sharding::Column);
    parts.save("shared expert product", width as f64, Sharding::Column);
    parts.tp_divides.push(("shared expert width", width));
}
