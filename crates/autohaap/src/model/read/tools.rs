//! Model files of other tools: Meta `params.json`, SimuMax and calculon.

use serde_json::{Map, Value};

use super::attention::head_norm;
use super::build;
use super::family::{Family, GPT, LLAMA, Switch};
use super::fields::{Fields, limit};
use crate::model::Model;

fn has(map: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter().all(|k| map.contains_key(*k))
}

/// Meta `params.json`.
pub(super) fn is_meta(map: &Map<String, Value>) -> bool {
    has(map, &["dim", "n_layers", "n_heads"])
}

/// SimuMax model file.
pub(super) fn is_simumax(map: &Map<String, Value>) -> bool {
    has(map, &["layer_num", "head_num"])
}

/// calculon application file.
pub(super) fn is_calculon(map: &Map<String, Value>) -> bool {
    has(map, &["num_blocks", "hidden"]) && (map.contains_key("attn_heads") || map.contains_key("feedforward"))
}

/// The feed-forward width follows from `multiple_of` and `ffn_dim_multiplier` (the reference `llama/model.py`):
/// two thirds of four times the width, times the multiplier, rounded up.
pub(super) fn meta(f: &mut Fields<'_>, name: &str) -> Option<Model> {
    let dim = f.required(&["dim"], limit::HIDDEN, "4096");
    let multiple = f.count_or(&["multiple_of"], limit::FFN, 256);
    let multiplier = match f.value("ffn_dim_multiplier") {
        None => 1.0,
        Some(v) => match v.as_f64() {
            Some(m) if m > 0.0 && m <= 64.0 => m,
            _ => {
                f.wrong_type("ffn_dim_multiplier", &v, "a factor between 0 and 64");
                1.0
            }
        },
    };
    if let Some(dim) = dim {
        let base = 8 * dim / 3;
        let width = ((base as f64 * multiplier) as u64)
            .div_ceil(multiple)
            .saturating_mul(multiple);
        f.assume(
            "intermediate_size",
            format!("{width} (from multiple_of and ffn_dim_multiplier)"),
        );
        f.set("intermediate_size", Value::from(width));
        f.consume("intermediate_size");
    }
    if f.value("vocab_size").and_then(|v| v.as_i64()) == Some(-1) {
        f.take("vocab_size");
        f.set("vocab_size", Value::from(32_000));
        f.assume("vocab_size", "32000 (the file says -1)");
    }
    f.rename(&[("dim", "hidden_size"), ("n_kv_heads", "num_key_value_heads")]);
    for key in ["norm_eps", "rope_theta", "use_scaled_rope"] {
        f.consume(key);
    }
    build::build(f, &LLAMA, "meta-params", name)
}

/// SimuMax: `layer_num`, `head_num`, `expert_num`, `dense_layers` and so on.
pub(super) fn simumax(f: &mut Fields<'_>, name: &str) -> Option<Model> {
    let kind = f.word(&["attention_type"]).unwrap_or_default();
    if kind != "mla" {
        for key in [
            "kv_lora_rank",
            "q_lora_rank",
            "qk_head_dim",
            "qk_pos_emb_head_dim",
            "v_head_dim",
        ] {
            f.take(key);
        }
    }
    f.rename(&[
        ("layer_num", "num_hidden_layers"),
        ("head_num", "num_attention_heads"),
        ("kv_head_num", "num_key_value_heads"),
        ("head_size", "head_dim"),
        ("expert_num", "num_experts"),
        ("topk", "num_experts_per_tok"),
        ("dense_layers", "first_k_dense_replace"),
        ("moe_ffn_hidden_size", "moe_intermediate_size"),
        (
            "moe_shared_expert_intermediate_size",
            "shared_expert_intermediate_size",
        ),
        ("qk_head_dim", "qk_nope_head_dim"),
        ("qk_pos_emb_head_dim", "qk_rope_head_dim"),
    ]);
    // A dense model is written with one expert.
    if f.value("num_experts").and_then(|v| v.as_u64()) == Some(1) {
        f.take("num_experts");
    }
    let gated = f.flag(&["use_swiglu"]).unwrap_or(true);
    for key in [
        "model_name",
        "model_type",
        "padded_vocab_size",
        "make_vocab_size_divisible_by",
        "group_linear_mode",
    ] {
        f.consume(key);
    }
    let untied = Family { gated, ..LLAMA };
    build::build(f, &untied, "simumax", name)
}

/// calculon describes transformer blocks only; vocabulary and positions are assumed.
pub(super) fn calculon(f: &mut Fields<'_>, name: &str) -> Option<Model> {
    f.rename(&[
        ("num_blocks", "num_hidden_layers"),
        ("hidden", "hidden_size"),
        ("feedforward", "intermediate_size"),
        ("attn_heads", "num_attention_heads"),
        ("attn_size", "head_dim"),
        ("seq_size", "max_position_embeddings"),
        ("seq_len", "max_position_embeddings"),
    ]);
    if f.value("vocab_size").is_none() {
        f.set("vocab_size", Value::from(51_200));
        f.assume("vocab_size", "51200 (calculon files have none)");
    }
    let family = Family {
        tied: true,
        learned_positions: true,
        out_bias: Switch::On,
        ..GPT
    };
    build::build(
        f,
        &Family {
            qk_norm: head_norm(false),
            ..family
        },
        "calculon",
        name,
    )
}
