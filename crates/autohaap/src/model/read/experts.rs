//! Routed and shared experts.

use super::build::switch;
use super::family::Family;
use super::fields::{Fields, limit};
use crate::error::model as codes;
use crate::model::Moe;

const COUNT: &[&str] = &[
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_routed_experts",
];
const ACTIVE: &[&str] = &[
    "num_experts_per_tok",
    "experts_per_token",
    "moe_k",
    "moe_topk",
    "top_k_experts",
    "num_experts_per_token",
];

/// The experts of a model.
pub(super) struct Experts {
    pub(super) moe: Moe,
    /// Whether their width has a key of its own.
    pub(super) own_width: bool,
}

/// Reads the experts; `None` for a dense model.
pub(super) fn experts(f: &mut Fields<'_>, family: &Family, hidden: u64) -> Option<Experts> {
    let experts = f.whole(COUNT, 0, limit::EXPERTS).filter(|n| *n > 0);
    let Some(experts) = experts else {
        for key in ACTIVE
            .iter()
            .chain(&["moe_intermediate_size", "n_shared_experts"])
        {
            f.consume(key);
        }
        return None;
    };
    let active = f.required(ACTIVE, limit::EXPERTS, "2")?;
    if active > experts {
        f.problem(
            &codes::E209,
            ACTIVE.iter().find(|k| f.has(k)).copied().unwrap_or(ACTIVE[0]),
            format!("{active} experts per token of only {experts} experts"),
            format!("nearest legal value: {experts}"),
        );
    }
    let own = f.count(&["moe_intermediate_size", "moe_ffn_hidden_size"], limit::FFN);
    let mut width = if let Some(width) = own {
        width
    } else {
        let width = f.required(
            &["intermediate_size", "ffn_hidden_size", "ffn_dim"],
            limit::FFN,
            "1024",
        )?;
        f.assume("moe_intermediate_size", format!("{width} (intermediate_size)"));
        width
    };
    let mut router_other = if switch(f, family.router_bias) { experts } else { 0 };
    if family.dense_and_moe {
        // Gemma 4: a scale per hidden channel besides the one per expert.
        router_other = router_other.saturating_add(hidden);
    }
    let shared_width = shared(f, family, width);
    if shared_width > 0 && family.shared_gate {
        router_other = router_other.saturating_add(hidden);
    }
    if let Some(latent) = f.count(&["routed_expert_hidden_size", "moe_latent_size"], limit::HIDDEN) {
        // Experts on a narrower stream: the same parameters and FLOPs as narrower experts on the full one.
        width = (u128::from(width) * u128::from(latent) / u128::from(hidden.max(1))) as u64;
        router_other = router_other.saturating_add(hidden.saturating_mul(latent).saturating_mul(2));
        f.note("experts work on a narrower latent stream; they are counted as experts of proportionally smaller width");
        f.consume("latent_moe_use_norm");
    }
    for key in [
        "norm_topk_prob",
        "scoring_func",
        "n_group",
        "topk_group",
        "topk_method",
        "routed_scaling_factor",
    ] {
        f.consume(key);
    }
    let columns = if family.gated {
        width.saturating_mul(2)
    } else {
        width
    };
    Some(Experts {
        moe: Moe {
            experts,
            active,
            width,
            gated: family.gated,
            expert_bias: if family.expert_bias {
                columns.saturating_add(hidden)
            } else {
                0
            },
            shared_width,
            router_other,
        },
        own_width: own.is_some(),
    })
}

/// Width of all shared experts together.
fn shared(f: &mut Fields<'_>, family: &Family, width: u64) -> u64 {
    let total = f.whole(
        &[
            "shared_expert_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "shared_intermediate_size",
            "share_expert_dim",
        ],
        0,
        limit::FFN,
    );
    let number = f.whole(
        &["n_shared_experts", "num_shared_experts", "moe_num_shared_experts"],
        0,
        limit::EXPERTS,
    );
    match (total, number) {
        (Some(total), _) => total,
        (None, Some(n)) => n.saturating_mul(width),
        (None, None) if family.implicit_shared => {
            f.assume(
                "shared_expert_intermediate_size",
                format!("{width} (one expert's width)"),
            );
            width
        }
        (None, None) => 0,
    }
}
