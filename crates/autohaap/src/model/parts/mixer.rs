//! Sequence mixers: attention, multi-head latent attention and scans.

use super::{Operator, Parts, Saved, Sharding};
use crate::model::Mixer;

pub(super) fn mixer(parts: &mut Parts, hidden: u64, mixer: &Mixer) {
    match mixer {
        Mixer::Attention { .. } => attention(parts, hidden, mixer),
        Mixer::Mla { .. } => latent(parts, hidden, mixer),
        Mixer::Scan { .. } => scan(parts, hidden, mixer),
    }
}

fn attention(parts: &mut Parts, hidden: u64, mixer: &Mixer) {
    let Mixer::Attention {
        heads,
        kv_heads,
        head_dim,
        v_head_dim,
        window,
        qkv_bias,
        out_bias,
        gated,
        shared_kv,
        other_parameters,
    } = mixer
    else {
        return;
    };
    let q = heads.saturating_mul(*head_dim);
    let k = kv_heads.saturating_mul(*head_dim);
    let v = kv_heads.saturating_mul(*v_head_dim);
    let out = heads.saturating_mul(*v_head_dim);

    parts.linear("q", hidden, q, Sharding::Column);
    let kv_columns = if *shared_kv { k } else { k.saturating_add(v) };
    parts.linear("k and v", hidden, kv_columns, Sharding::Column);
    if *gated {
        parts.linear("output gate", hidden, q, Sharding::Column);
    }
    parts.weight("qkv bias", *qkv_bias, Sharding::Column);
    parts.weight("attention other", *other_parameters, Sharding::Replicated);
    parts.memory("rotary", 2.0 * (q.saturating_add(k)) as f64, Sharding::Column);
    parts.operators.push(Operator::Attention {
        heads: *heads,
        qk_dim: *head_dim,
        v_dim: *v_head_dim,
        window: *window,
    });
    parts.save(
        "q, k and v",
        q.saturating_add(k).saturating_add(v) as f64,
        Sharding::Column,
    );
    core_outputs(parts, *heads, out);
    if *gated {
        parts.memory("output gate", 3.0 * out as f64, Sharding::Column);
        parts.save(
            "output gate and product",
            q.saturating_add(out) as f64,
            Sharding::Column,
        );
    }
    parts.linear("o", out, hidden, Sharding::Row);
    parts.weight("o bias", *out_bias, Sharding::Replicated);
    parts.tp_divides.push(("heads", *heads));
    parts.kv_heads = *kv_heads;
    parts.kv_elements_per_token = if *shared_kv { k } else { k.saturating_add(v) };
}

/// Multi-head latent attention (arXiv:2405.04434, section 2.1): latent down-projections are replicated under tensor
/// parallelism, the up-projections are divided by heads.
fn latent(parts: &mut Parts, hidden: u64, mixer: &Mixer) {
    let Mixer::Mla {
        heads,
        q_rank,
        kv_rank,
        nope_dim,
        rope_dim,
        v_dim,
    } = mixer
    else {
        return;
    };
    let qk_dim = nope_dim.saturating_add(*rope_dim);
    let q = heads.saturating_mul(qk_dim);
    let v = heads.saturating_mul(*v_dim);
    let latent_kv = kv_rank.saturating_add(*rope_dim);

    if let Some(rank) = q_rank {
        parts.linear("q down", hidden, *rank, Sharding::Replicated);
        parts.linear("q up", *rank, q, Sharding::Column);
        parts.memory("q latent norm", 2.0 * *rank as f64, Sharding::Replicated);
        parts.save("q latent", *rank as f64, Sharding::Replicated);
    } else {
        parts.linear("q", hidden, q, Sharding::Column);
    }
    parts.linear("k and v down", hidden, latent_kv, Sharding::Replicated);
    parts.memory("kv latent norm", 2.0 * *kv_rank as f64, Sharding::Replicated);
    parts.linear(
        "k and v up",
        *kv_rank,
        heads.saturating_mul(nope_dim.saturating_add(*v_dim)),
        Sharding::Column,
    );
    parts.memory(
        "rotary",
        2.0 * heads.saturating_add(1).saturating_mul(*rope_dim) as f64,
        Sharding::Column,
    );
    parts.operators.push(Operator::Attention {
        heads: *heads,
        qk_dim,
        v_dim: *v_dim,
        window: None,
    });
    parts.save("kv latent", latent_kv as f64, Sharding::Replicated);
    parts.save(
        "q, k and v",
        q.saturating_mul(2).saturating_add(v) as f64,
        Sharding::Column,
    );
    core_outputs(parts, *heads, v);
    parts.linear("o", v, hidden, Sharding::Row);
    parts.tp_divides.push(("heads", *heads));
    parts.kv_elements_per_token = q.saturating_add(v);
}

/// Output and log-sum-exp of a flash-attention core.
fn core_outputs(parts: &mut Parts, heads: u64, out: u64) {
    parts.save("attention output", out as f64, Sharding::Column);
    parts.saved.push(Saved {
        name: "log-sum-exp",
        elements_per_token: heads as f64,
        element_bytes: 4.0,
        sharding: Sharding::Column,
        attention_core: true,
    });
}

fn scan(parts: &mut Parts, hidden: u64, mixer: &Mixer) {
    let Mixer::Scan {
        heads,
        in_width,
        out_width,
        scan_flops_per_token,
        saved_per_token,
        other_parameters,
        ..
    } = mixer
    else {
        return;
    };
    parts.linear("scan inputs", hidden, *in_width, Sharding::Column);
    parts.weight("convolution and decay", *other_parameters, Sharding::Column);
    parts.memory(
        "convolution and gate",
        2.0 * *in_width as f64 + 3.0 * *out_width as f64,
        Sharding::Column,
    );
    parts.operators.push(Operator::Scan {
        flops_per_token: *scan_flops_per_token,
    });
    parts.linear("scan output", *out_width, hidden, Sharding::Row);
    parts.save("scan inputs", *in_width as f64, Sharding::Column);
    parts.save("scan inner", *saved_per_token as f64, Sharding::Column);
    parts.save("scan output", *out_width as f64, Sharding::Column);
    parts.tp_divides.push(("scan heads", *heads));
}
