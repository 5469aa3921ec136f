//! Megatron-LM argument lists, as text (`--num-layers 32 ...`) or as a JSON object of the same names.

use serde_json::{Map, Value};

use super::attention::head_norm;
use super::build;
use super::family::{Family, Ffn, GPT, LLAMA, Norm, Switch};
use super::fields::{Fields, limit};
use super::text::Locator;
use crate::error::model as codes;
use crate::model::Model;

/// Longest `moe-layer-freq` nesting.
const MAX_DEPTH: usize = 16;

/// Whether a text is an argument list.
pub(super) fn looks_like(text: &str) -> bool {
    text.contains("--num-layers") || text.contains("--hidden-size")
}

/// Whether an object holds Megatron argument names.
pub(super) fn is_json(map: &Map<String, Value>) -> bool {
    !map.contains_key("model_type")
        && !map.contains_key("num_hidden_layers")
        && ["num_layers", "hidden_size", "num_attention_heads"]
            .iter()
            .all(|k| map.contains_key(*k))
        && [
            "ffn_hidden_size",
            "padded_vocab_size",
            "swiglu",
            "num_query_groups",
            "untie_embeddings_and_output_weights",
        ]
        .iter()
        .any(|k| map.contains_key(*k))
}

/// Splits an argument list into keys with underscores and values; line continuations, quotes, `key=value` and shell
/// assignments around the list are accepted.
pub(super) fn arguments<'a>(text: &'a str, source: &'a str) -> Fields<'a> {
    let mut map: Map<String, Value> = Map::new();
    let mut key: Option<(String, Vec<&str>)> = None;
    let mut put = |key: Option<(String, Vec<&str>)>| {
        if let Some((name, words)) = key {
            map.insert(name, argument(&words));
        }
    };
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or(line);
        if line.trim_start().starts_with('#') {
            continue;
        }
        for raw in line.split_whitespace() {
            let at = raw
                .find("--")
                .filter(|at| raw[..*at].chars().all(|c| !c.is_ascii_digit()));
            let word = match at {
                Some(at) if raw[..at].ends_with(['"', '\'', '(', '=']) => &raw[at..],
                _ => raw,
            };
            if let Some(flag) = word.strip_prefix("--") {
                let flag = flag.trim_end_matches(['"', '\'', ')', '\\']);
                put(key.take());
                let (name, value) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v)));
                key = Some((name.replace('-', "_"), value.into_iter().collect()));
            } else if word != "\\"
                && !word.is_empty()
                && let Some((_, words)) = &mut key
            {
                words.push(word);
            }
        }
    }
    put(key);
    Fields::new(map, "", source, Locator::arguments(text))
}

fn argument(words: &[&str]) -> Value {
    let joined = words.join(" ");
    let value = joined.trim_end_matches('\\').trim();
    // Brackets belong to expressions; quotes and a closing parenthesis of a shell array do not.
    let value = value.trim_matches(['"', '\'']);
    let value = if value.matches('(').count() < value.matches(')').count() {
        value.trim_end_matches([')', '"', '\''])
    } else {
        value
    };
    let value = value.trim_matches(['"', '\'']).trim();
    if value.is_empty() {
        return Value::Bool(true);
    }
    if let Ok(n) = value.parse::<i64>() {
        return Value::from(n);
    }
    match value.to_ascii_lowercase().as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "none" | "null" => Value::Null,
        _ => Value::from(value),
    }
}

/// Builds the chain of an argument list. Defaults are those of `megatron/training/arguments.py`.
pub(super) fn build(f: &mut Fields<'_>, name: &str) -> Option<Model> {
    let gated = f.flag(&["swiglu"]).unwrap_or(false);
    let rms = match f.word(&["normalization"]).as_deref() {
        None | Some("LayerNorm") => false,
        Some("RMSNorm") => true,
        Some(other) => {
            let message = format!(
                "normalization `{}` is unknown",
                other.chars().take(40).collect::<String>()
            );
            f.problem(
                &codes::E210,
                "normalization",
                message,
                "legal values: LayerNorm, RMSNorm".to_owned(),
            );
            false
        }
    };
    let no_bias = f.flag(&["disable_bias_linear"]).unwrap_or(false);
    let bias = f.flag(&["add_bias_linear"]).unwrap_or(!no_bias);
    let qkv = f.flag(&["add_qkv_bias"]).unwrap_or(false);
    let untied = f.flag(&["untie_embeddings_and_output_weights"]).unwrap_or(false);
    let latent = f.flag(&["multi_latent_attention"]).unwrap_or(false);
    let head_norms = f.flag(&["qk_layernorm"]).unwrap_or(false) && !latent;
    let embedding = f.word(&["position_embedding_type"]);
    let rotary = f.flag(&["use_rotary_position_embeddings"]).unwrap_or(false)
        || embedding.as_deref().is_some_and(|e| e != "learned_absolute");
    let router_bias = f.flag(&["moe_router_enable_expert_bias"]).unwrap_or(false);
    query_groups(f);
    moe_layers(f);
    ffn(f, gated);
    if latent {
        latent_defaults(f);
    } else {
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
        ("num_layers", "num_hidden_layers"),
        ("kv_channels", "head_dim"),
        ("ffn_hidden_size", "intermediate_size"),
        ("moe_ffn_hidden_size", "moe_intermediate_size"),
        (
            "moe_shared_expert_intermediate_size",
            "shared_expert_intermediate_size",
        ),
        ("moe_router_topk", "num_experts_per_tok"),
        ("qk_head_dim", "qk_nope_head_dim"),
        ("qk_pos_emb_head_dim", "qk_rope_head_dim"),
        ("mtp_num_layers", "num_nextn_predict_layers"),
        ("window_size", "sliding_window"),
    ]);
    f.set("tie_word_embeddings", Value::Bool(!untied));
    let on = |yes: bool| if yes { Switch::On } else { Switch::Off };
    let family = Family {
        norm: if rms { Norm::Weight } else { Norm::WeightAndBias },
        gated,
        qkv_bias: on(bias || qkv),
        out_bias: on(bias),
        mlp_bias: on(bias),
        head_bias: Switch::Off,
        router_bias: on(router_bias),
        qk_norm: head_norm(head_norms),
        learned_positions: !rotary,
        ffn: Ffn::KeyOrFourTimes,
        ..if gated { LLAMA } else { GPT }
    };
    build::build(f, &family, "megatron", name)
}

/// Key/value heads count only under `group-query-attention`; an object without that flag means what it says.
fn query_groups(f: &mut Fields<'_>) {
    if !f.has("num_query_groups") {
        return;
    }
    match f.flag(&["group_query_attention"]) {
        Some(true) => f.rename(&[("num_query_groups", "num_key_value_heads")]),
        None if !f.is_arguments() => f.rename(&[("num_query_groups", "num_key_value_heads")]),
        _ => {
            f.take("num_query_groups");
            f.note("`--num-query-groups` is not used without `--group-query-attention`");
        }
    }
}

/// Without a width: four times the hidden width, or two thirds of it in multiples of 64 under SwiGLU.
fn ffn(f: &mut Fields<'_>, gated: bool) {
    f.rename(&[("inner_hidden_size", "ffn_hidden_size")]);
    if f.value("ffn_hidden_size").is_some() {
        return;
    }
    if let Some(hidden) = f
        .value("hidden_size")
        .and_then(|v| v.as_u64())
        .filter(|h| *h <= limit::HIDDEN)
    {
        let width = if gated {
            (4 * hidden * 2 / 3 / 64 * 64).max(1)
        } else {
            4 * hidden
        };
        f.set("ffn_hidden_size", Value::from(width));
        f.assume("ffn_hidden_size", width);
    }
}

fn latent_defaults(f: &mut Fields<'_>) {
    for (key, default) in [
        ("kv_lora_rank", 32),
        ("qk_head_dim", 128),
        ("qk_pos_emb_head_dim", 64),
        ("v_head_dim", 128),
    ] {
        if f.value(key).is_none() {
            f.set(key, Value::from(default));
            f.assume(key, default);
        }
    }
}

/// `moe-layer-freq`: every N-th layer counted from 0, a list, or an expression such as `([0]*3+[1]*58)`.
fn moe_layers(f: &mut Fields<'_>) {
    if f.value("num_experts").is_none() {
        return;
    }
    let Some(Value::String(text)) = f.value("moe_layer_freq") else {
        return;
    };
    if let Some(list) = expression(&text) {
        f.set("moe_layer_freq", Value::from(list));
    } else {
        f.take("moe_layer_freq");
        f.problem(
            &codes::E214,
            "moe_layer_freq",
            format!(
                "expression `{}` is not understood",
                text.chars().take(60).collect::<String>()
            ),
            "write a number or a list expression such as ([0]*3+[1]*58)".to_owned(),
        );
    }
}

/// Evaluates sums and repetitions of lists of 0 and 1.
fn expression(text: &str) -> Option<Vec<u64>> {
    if text.len() > 64 << 10 {
        return None;
    }
    let clean: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let mut parser = Expression { bytes: &clean, at: 0 };
    let list = parser.sum(0)?;
    (parser.at == clean.len()).then_some(list)
}

struct Expression<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Expression<'_> {
    fn eat(&mut self, byte: u8) -> bool {
        let hit = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(hit);
        hit
    }

    fn sum(&mut self, depth: usize) -> Option<Vec<u64>> {
        let mut list = self.product(depth)?;
        while self.eat(b'+') {
            list.extend(self.product(depth)?);
            if list.len() as u64 > limit::LAYERS {
                return None;
            }
        }
        Some(list)
    }

    fn product(&mut self, depth: usize) -> Option<Vec<u64>> {
        let mut list = self.factor(depth)?;
        while self.eat(b'*') {
            let times = self.number()?;
            if (list.len() as u64).checked_mul(times)? > limit::LAYERS {
                return None;
            }
            list = list.repeat(times as usize);
        }
        Some(list)
    }

    fn factor(&mut self, depth: usize) -> Option<Vec<u64>> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.eat(b'(') {
            let list = self.sum(depth + 1)?;
            return self.eat(b')').then_some(list);
        }
        if !self.eat(b'[') {
            return None;
        }
        let mut list = Vec::new();
        while !self.eat(b']') {
            list.push(self.number()?);
            if list.len() as u64 > limit::LAYERS
                || !(self.eat(b',') || self.bytes.get(self.at) == Some(&b']'))
            {
                return None;
            }
        }
        Some(list)
    }

    fn number(&mut self) -> Option<u64> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[start..self.at])
            .ok()?
            .parse()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::expression;

    #[test]
    fn layer_expressions_evaluate() {
        assert_eq!(expression("([0]*3+[1]*2)"), Some(vec![0, 0, 0, 1, 1]));
        assert_eq!(expression("[0,1]*2"), Some(vec![0, 1, 0, 1]));
        assert_eq!(expression("[1]*999999999999"), None);
        assert_eq!(expression("__import__('os')"), None);
    }
}
