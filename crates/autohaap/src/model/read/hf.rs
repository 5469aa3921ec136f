//! Hugging Face `config.json`: nested text part, model type, family.

use serde_json::{Map, Value};

use super::build;
use super::family::family;
use super::fields::Fields;
use crate::error::{Problem, Problems, model as codes};
use crate::model::Model;

const NESTED: &[&str] = &["text_config", "language_config", "llm_config"];
const TOWERS: &[&str] = &[
    "vision_config",
    "audio_config",
    "vision_tower_config",
    "visual",
    "speech_config",
    "projector_config",
    "vq_config",
];
const SIZES: &[&str] = &[
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "hidden_size",
    "n_embd",
    "d_model",
];

/// The part of the file that describes the language model.
pub(super) struct Config {
    pub(super) map: Map<String, Value>,
    pub(super) prefix: &'static str,
    pub(super) model_type: String,
    pub(super) notes: Vec<String>,
}

/// Whether the object is a Hugging Face configuration.
pub(super) fn looks_like(map: &Map<String, Value>) -> bool {
    map.contains_key("model_type")
        || map.contains_key("architectures")
        || SIZES.iter().chain(NESTED).any(|k| map.contains_key(*k))
}

/// Resolves the nested text part; the top level supplies only the tie flag and sizes that the nested part lacks.
pub(super) fn resolve(mut map: Map<String, Value>, source: &str) -> Result<Config, Problems> {
    let mut notes = Vec::new();
    let top_type = map
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    if map.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true) {
        return Err(Problem::new(
            &codes::E213,
            format!("{source}: is_encoder_decoder"),
            format!(
                "`{}` is an encoder-decoder; only decoder chains are planned",
                normal(&top_type)
            ),
        )
        .hint("give a decoder-only language model")
        .into());
    }
    for tower in TOWERS {
        if map.remove(*tower).is_some_and(|v| !v.is_null()) {
            notes.push(format!(
                "`{tower}` is ignored: only the language model is planned"
            ));
        }
    }
    let nested_key = NESTED
        .iter()
        .copied()
        .find(|k| map.get(*k).is_some_and(Value::is_object));
    let Some(key) = nested_key else {
        let model_type = normal(&top_type);
        return Ok(Config {
            map,
            prefix: "",
            model_type,
            notes,
        });
    };
    let Some(Value::Object(mut inner)) = map.remove(key) else {
        return Ok(Config {
            map,
            prefix: "",
            model_type: normal(&top_type),
            notes,
        });
    };
    if let Some(tied) = map.remove("tie_word_embeddings") {
        inner.insert("tie_word_embeddings".to_owned(), tied);
    }
    for size in SIZES.iter().chain(&["vocab_size", "quantization_config"]) {
        if let (Some(value), false) = (map.remove(*size), inner.contains_key(*size)) {
            inner.insert((*size).to_owned(), value);
        }
    }
    let inner_type = inner
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let model_type = normal(if inner_type.is_empty() {
        &top_type
    } else {
        &inner_type
    });
    let prefix = match key {
        "text_config" => "text_config.",
        "language_config" => "language_config.",
        _ => "llm_config.",
    };
    notes.push(format!("the language model is described in `{key}`"));
    Ok(Config {
        map: inner,
        prefix,
        model_type,
        notes,
    })
}

/// Builds the chain of a resolved configuration.
pub(super) fn build(f: &mut Fields<'_>, model_type: &str, name: &str) -> Option<Model> {
    let family = family(model_type);
    if !family.known {
        let shown = if model_type.is_empty() {
            "(absent)"
        } else {
            model_type
        };
        f.note(format!(
            "model type `{shown}` is unknown: read as a llama-style decoder; keys that were not used are listed"
        ));
    }
    let label = if model_type.is_empty() {
        "unknown"
    } else {
        model_type
    };
    build::build(f, &family, label, name)
}

/// Lower case with underscores, cut to a length fit for messages.
fn normal(model_type: &str) -> String {
    let short: String = model_type.trim().chars().take(80).collect();
    short.to_ascii_lowercase().replace(['-', '.', ' '], "_")
}
