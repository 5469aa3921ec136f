//! From a model file to the atom chain: Hugging Face `config.json`, Megatron argument lists, Meta `params.json`,
//! SimuMax and calculon model files.
//!
//! All formats end in one builder over typed fields that keeps account of used keys, assumed values and every problem.
//! Nothing in a file is ever executed, and every count is bounded before anything loops over it.

mod attention;
mod build;
mod experts;
mod family;
mod fields;
mod hf;
mod layers;
mod megatron;
mod nas;
mod scan;
mod text;
mod tools;

use serde_json::{Map, Value};

use super::Model;
use crate::error::{Problem, Problems, model as codes};
use fields::Fields;
use text::Locator;

pub use text::MAX_INPUT_BYTES;

/// Largest model that is planned: a thousand times the largest known.
const MAX_PARAMETERS: u64 = 4_000_000_000_000_000;

/// A model as read, with everything the reader remarked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInput {
    /// The model.
    pub model: Model,
    /// Keys of the file that were not used.
    pub ignored_keys: Vec<String>,
    /// Values filled in because the file does not say: key and value.
    pub defaults: Vec<(String, String)>,
    /// Remarks: what was left out or chosen between.
    pub notes: Vec<String>,
}

/// Reads a model description of any accepted format. `source_name` (a path or a preset's id) appears in problems and,
/// without folder and extension, as the model's name.
pub fn parse(text: &str, source_name: &str) -> Result<ModelInput, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tame = text::tame(text, source_name)?;
    let start = text.trim_start();
    if start.is_empty() {
        return Err(Problem::new(&codes::E201, source_name, "file is empty")
            .hint("give a config.json, a preset name or a Megatron argument list")
            .at(1, 1)
            .into());
    }
    if !start.starts_with(['{', '[', '"']) && megatron::looks_like(text) {
        return finish(megatron::arguments(text, source_name), source_name, |f, name| {
            megatron::build(f, name)
        });
    }
    let map = json(&tame, text, source_name)?;
    let locator = Locator::json(text);
    if megatron::is_json(&map) {
        let fields = Fields::new(map, "", source_name, locator);
        return finish(fields, source_name, |f, name| megatron::build(f, name));
    }
    if tools::is_meta(&map) {
        return finish(
            Fields::new(map, "", source_name, locator),
            source_name,
            tools::meta,
        );
    }
    if tools::is_simumax(&map) {
        return finish(
            Fields::new(map, "", source_name, locator),
            source_name,
            tools::simumax,
        );
    }
    if tools::is_calculon(&map) {
        return finish(
            Fields::new(map, "", source_name, locator),
            source_name,
            tools::calculon,
        );
    }
    if !hf::looks_like(&map) {
        let keys: Vec<String> = map
            .keys()
            .take(8)
            .map(|k| format!("`{}`", k.chars().take(40).collect::<String>()))
            .collect();
        return Err(Problem::new(
            &codes::E202,
            source_name,
            format!("no known model format has only the keys {}", keys.join(", ")),
        )
        .hint("a Hugging Face config.json has `num_hidden_layers`, `hidden_size` and `num_attention_heads`")
        .into());
    }
    let config = hf::resolve(map, source_name)?;
    let model_type = config.model_type;
    let mut fields = Fields::new(config.map, config.prefix, source_name, locator);
    fields.notes = config.notes;
    finish(fields, source_name, |f, name| hf::build(f, &model_type, name))
}

/// Runs a builder and gathers what the fields know.
fn finish<'a>(
    mut fields: Fields<'a>,
    source_name: &str,
    build: impl FnOnce(&mut Fields<'a>, &str) -> Option<Model>,
) -> Result<ModelInput, Problems> {
    let model = build(&mut fields, &stem(source_name));
    if let Some(total) = model
        .as_ref()
        .map(Model::parameters_total)
        .filter(|n| *n > MAX_PARAMETERS)
    {
        let message =
            format!("the sizes together give {total} parameters; at most {MAX_PARAMETERS} are planned");
        fields.problems.push(
            Problem::new(&codes::E205, source_name, message)
                .hint("check widths, layers and experts for extra digits"),
        );
    }
    match model {
        Some(model) if fields.problems.is_empty() => Ok(ModelInput {
            model,
            ignored_keys: fields.ignored(),
            defaults: fields.defaults,
            notes: fields.notes,
        }),
        _ if fields.problems.is_empty() => {
            Err(Problem::new(&codes::E202, source_name, "the file does not describe a model").into())
        }
        _ => Err(fields.problems),
    }
}

fn json(tame: &str, text: &str, source: &str) -> Result<Map<String, Value>, Problems> {
    match serde_json::from_str::<Value>(tame) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(Problem::new(
            &codes::E202,
            source,
            format!("file holds {}, not an object", fields::brief(&other)),
        )
        .hint("a model file starts with `{`")
        .into()),
        Err(error) => {
            let message = error.to_string();
            let message = message
                .split(" at line ")
                .next()
                .unwrap_or("malformed")
                .to_owned();
            let mut problem = Problem::new(&codes::E201, source, format!("malformed JSON: {message}"))
                .hint("complete or correct the file at this place")
                .at(error.line(), error.column());
            problem.source_line = text.lines().nth(error.line().saturating_sub(1)).map(text::clip);
            Err(problem.into())
        }
    }
}

/// File name without folder, extension and a trailing `_config`.
fn stem(source: &str) -> String {
    let name = source.rsplit(['/', '\\']).next().unwrap_or(source);
    let stem = [".json", ".txt", ".args", ".sh"]
        .into_iter()
        .find_map(|e| name.strip_suffix(e))
        .unwrap_or(name);
    let stem = stem.strip_suffix("_config").unwrap_or(stem);
    if stem == "config" || stem == "params" {
        // A bare config.json is named by its folder.
        let folder = source
            .rsplit(['/', '\\'])
            .nth(1)
            .filter(|f| !f.is_empty() && *f != ".");
        return folder.unwrap_or(stem).to_owned();
    }
    stem.to_owned()
}
