//! The model of a row: the stated shape, and what its family fixes (gating, norms, tying, head width).

use serde_json::{Value, json};

use super::case::{Case, leading};
use crate::model::{Model, parse};

/// Shapes that sources name without stating them: layers, hidden, ffn, heads, vocabulary.
const KNOWN: &[(&str, [u64; 5])] = &[
    // NVIDIA/NeMo recipes of the same release.
    ("GPT3-5B", [24, 4096, 16384, 32, 51200]),
    ("Nemotron-8B", [32, 4096, 16384, 32, 256_000]),
];

/// What a family of models fixes beside its sizes.
struct Family {
    gated: bool,
    tied: bool,
    bias: bool,
    rotary: bool,
    /// Width of a head where it is not hidden / heads.
    head: Option<u64>,
    /// q rank, kv rank, non-rotary, rotary and value width of latent attention.
    latent: Option<[u64; 5]>,
}

fn family(name: &str) -> Family {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
    let gated = has(&[
        "llama", "qwen", "deepseek", "mixtral", "grok", "aquila", "baichuan", "yi-", "gpt-oss",
    ]);
    Family {
        gated,
        tied: !gated && !has(&["nemotron"]),
        bias: !gated && !has(&["nemotron", "mpt"]),
        rotary: gated || has(&["nemotron", "bloom", "mpt"]),
        head: if has(&["qwen3"]) {
            Some(128)
        } else if has(&["gpt-oss"]) {
            Some(64)
        } else {
            None
        },
        latent: if has(&["deepseek"]) {
            Some([1536, 512, 128, 64, 128])
        } else {
            None
        },
    }
}

/// Experts as a row words them: `128 experts top8 +1 shared; moe_ffn 1536; first 3 dense`.
fn experts(text: &str, layers: u64, ffn: u64) -> Option<Vec<(&'static str, Value)>> {
    let experts = leading(text)?;
    let after = |word: &str| text.split(word).nth(1).and_then(leading);
    let width = after("moe_ffn ").unwrap_or(ffn);
    let dense = after("first ")
        .or_else(|| {
            text.split(';')
                .map(str::trim)
                .find(|t| t.ends_with("dense layer"))
                .and_then(leading)
        })
        .unwrap_or(0)
        .min(layers);
    let mut fields = vec![
        ("num_experts", json!(experts)),
        ("moe_router_topk", json!(after("top")?)),
        ("moe_ffn_hidden_size", json!(width)),
        (
            "moe_layer_freq",
            json!(format!("([0]*{dense}+[1]*{})", layers - dense)),
        ),
    ];
    if let Some(shared) = after("+").filter(|_| text.contains("shared")) {
        fields.push(("moe_shared_expert_intermediate_size", json!(shared * width)));
    }
    Some(fields)
}

/// The model of a row, with what was assumed.
///
/// # Errors
/// A sentence on what the row does not state.
pub(super) fn model(case: &Case, assumed: &mut Vec<String>) -> Result<Model, String> {
    let name = case.text("model");
    let known = KNOWN.iter().find(|(n, _)| *n == name).map(|(_, s)| s);
    let size = |column: &str, at: usize| case.count(column).or_else(|| known.map(|k| k[at]));
    let (Some(layers), Some(hidden), Some(heads)) = (size("layers", 0), size("hidden", 1), size("heads", 3))
    else {
        return Err("the source does not state the model's shape".into());
    };
    if known.is_some() && case.count("layers").is_none() {
        assumed.push("shape of the public recipe".into());
    }
    if layers == 0 || layers > 10_000 {
        return Err(format!("{layers} layers are no model"));
    }
    let family = family(name);
    let ffn = size("ffn", 2).unwrap_or(4 * hidden);
    let vocab = if case.text("vocab").starts_with("250k") {
        250_680
    } else {
        size("vocab", 4).unwrap_or_else(|| {
            // A stage with one layer less for embedding and head says that the head weighs about a layer.
            let size = if case.text("stage_layers").starts_with("first/last") {
                32_000
            } else {
                51_200
            };
            assumed.push(format!("vocabulary {size}"));
            size
        })
    };
    let seq = case.count("seq").unwrap_or(2048);
    let mut map = serde_json::Map::new();
    for (key, value) in [
        ("num_layers", json!(layers)),
        ("hidden_size", json!(hidden)),
        ("num_attention_heads", json!(heads)),
        ("num_query_groups", json!(case.count("kv_heads").unwrap_or(heads))),
        ("ffn_hidden_size", json!(ffn)),
        ("padded_vocab_size", json!(vocab)),
        ("swiglu", json!(family.gated)),
        (
            "normalization",
            json!(if family.gated { "RMSNorm" } else { "LayerNorm" }),
        ),
        ("untie_embeddings_and_output_weights", json!(!family.tied)),
        ("add_bias_linear", json!(family.bias)),
        ("max_position_embeddings", json!(seq)),
        (
            "position_embedding_type",
            json!(if family.rotary { "rope" } else { "learned_absolute" }),
        ),
    ] {
        map.insert(key.into(), value);
    }
    if let Some(head) = family.head {
        map.insert("kv_channels".into(), json!(head));
    }
    if let Some([q, kv, plain, rotary, value]) = family.latent {
        for (key, n) in [
            ("q_lora_rank", q),
            ("kv_lora_rank", kv),
            ("qk_head_dim", plain),
            ("qk_pos_emb_head_dim", rotary),
            ("v_head_dim", value),
        ] {
            map.insert(key.into(), json!(n));
        }
        map.insert("multi_latent_attention".into(), json!(true));
        map.remove("num_query_groups");
    }
    if !case.text("moe").is_empty() {
        let fields = experts(case.text("moe"), layers, ffn)
            .ok_or("the experts are not stated in a form that is understood")?;
        for (key, value) in fields {
            map.insert(key.into(), value);
        }
    }
    let text = Value::Object(map).to_string();
    let mut model = parse(&text, &case.id)
        .map_err(|p| p.0.first().map_or_else(String::new, |p| p.message.clone()))?
        .model;
    name.clone_into(&mut model.name);
    if case.text("notes").contains("dropless real routing") {
        // Dropless routing without forced balance: the fullest of the experts of a rank sets the time.
        model.expert_load = REAL_ROUTING;
        assumed.push(format!(
            "routed load {REAL_ROUTING} times the mean (real routing)"
        ));
    }
    Ok(model)
}

/// Load of the fullest expert rank under real dropless routing over the mean: runs with it are 8-20 % slower than forced
/// balance at equal plans, where expert parts are about half of the time.
const REAL_ROUTING: f64 = 1.3;
