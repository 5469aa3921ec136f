//! Typed access to a configuration that keeps account: which keys were used, which values were assumed and every
//! problem met.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::text::Locator;
use crate::error::{Code, Problem, Problems, model as codes};

/// The largest counts that a model description may hold.
pub(super) mod limit {
    pub(crate) const LAYERS: u64 = 4096;
    pub(crate) const HIDDEN: u64 = 1 << 20;
    pub(crate) const HEADS: u64 = 1 << 16;
    pub(crate) const HEAD_DIM: u64 = 1 << 16;
    pub(crate) const FFN: u64 = 1 << 24;
    pub(crate) const VOCAB: u64 = 1 << 26;
    pub(crate) const EXPERTS: u64 = 1 << 16;
    pub(crate) const LENGTH: u64 = 1 << 40;
    pub(crate) const MTP: u64 = 64;
}

/// Keys that never change what is placed: silently skipped instead of being listed as ignored.
const NEUTRAL: &[&str] = &[
    "_name_or_path",
    "activation_function",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "ep_size",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_act",
    "hidden_activation",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "name",
    "no_repeat_ngram_size",
    "norm_eps",
    "norm_epsilon",
    "num_beam_groups",
    "num_beams",
    "num_logits_to_keep",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "original_max_position_embeddings",
    "output_scores",
    "partial_rotary_factor",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "rms_norm_eps",
    "rope_interleave",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_dim",
    "rotary_emb_base",
    "rotary_pct",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
];

/// Problems recorded of one file; more would only hide the first ones.
const MAX_PROBLEMS: usize = 100;
/// Ignored keys listed of one file.
const MAX_IGNORED: usize = 1000;

/// A value of a class that its files may leave out.
pub(super) type ClassDefault = (&'static str, u64);

/// The reader of one flat configuration.
pub(super) struct Fields<'a> {
    map: Map<String, Value>,
    prefix: String,
    source: &'a str,
    locator: Locator<'a>,
    /// Canonical key and the file's own name for it, where a foreign format was translated.
    renamed: Vec<(String, String)>,
    class: Vec<ClassDefault>,
    used: BTreeSet<String>,
    pub(super) problems: Problems,
    pub(super) defaults: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: Map<String, Value>, prefix: &str, source: &'a str, locator: Locator<'a>) -> Self {
        Self {
            map,
            prefix: prefix.to_owned(),
            source,
            locator,
            renamed: Vec::new(),
            class: Vec::new(),
            used: BTreeSet::new(),
            problems: Problems::new(),
            defaults: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Values that the class supplies where the file is silent.
    pub(super) fn set_class_defaults(&mut self, class: &[ClassDefault]) {
        self.class = class.to_vec();
    }

    /// Translates keys of a foreign format to canonical ones; the problems keep naming the file's own keys.
    pub(super) fn rename(&mut self, pairs: &[(&str, &str)]) {
        for (foreign, canonical) in pairs {
            if self.map.contains_key(*canonical) {
                continue;
            }
            if let Some(value) = self.map.remove(*foreign) {
                self.map.insert((*canonical).to_owned(), value);
                self.renamed
                    .push(((*canonical).to_owned(), (*foreign).to_owned()));
            }
        }
    }

    /// Whether the source is a list of `--key value` arguments.
    pub(super) fn is_arguments(&self) -> bool {
        self.locator.is_arguments()
    }

    /// Puts a translated value in place.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.map.insert(key.to_owned(), value);
    }

    /// Takes a key away, as if it had been read.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    pub(super) fn assume(&mut self, key: &str, value: impl std::fmt::Display) {
        let key = self.shown(key);
        if !self.defaults.iter().any(|(k, _)| *k == key) {
            self.defaults.push((key, value.to_string()));
        }
    }

    /// The non-null value at a dotted path; marks its top key as used.
    pub(super) fn value(&mut self, path: &str) -> Option<Value> {
        let mut parts = path.split('.');
        let top = parts.next()?;
        let mut value = self.map.get(top)?;
        self.used.insert(top.to_owned());
        for part in parts {
            value = value.as_object()?.get(part)?;
        }
        (!value.is_null()).then(|| value.clone())
    }

    /// Whether the key is present, null included.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Marks a key as understood.
    pub(super) fn consume(&mut self, key: &str) {
        if self.map.contains_key(key) {
            self.used.insert(key.to_owned());
        }
    }

    /// First non-null value of several names, with the name; further names with other values leave a note.
    fn first(&mut self, names: &[&str]) -> Option<(String, Value)> {
        let mut found: Option<(String, Value)> = None;
        for name in names {
            let Some(value) = self.value(name) else { continue };
            match &found {
                None => found = Some(((*name).to_owned(), value)),
                Some((chosen, first)) if *first != value => {
                    let text = format!(
                        "`{}` says {} and `{}` says {}; the first is used",
                        self.shown(chosen),
                        brief(first),
                        self.shown(name),
                        brief(&value)
                    );
                    self.note(text);
                }
                Some(_) => {}
            }
        }
        found
    }

    /// A whole number from 1 to `max`, if given by the file or the class.
    pub(super) fn count(&mut self, names: &[&str], max: u64) -> Option<u64> {
        self.whole(names, 1, max)
    }

    /// A whole number from 0 to `max`, if given by the file or the class.
    pub(super) fn whole(&mut self, names: &[&str], min: u64, max: u64) -> Option<u64> {
        if let Some((name, value)) = self.first(names) {
            return self.number(&name, &value, min, max);
        }
        let class = self.class.iter().find(|(key, _)| names.contains(key)).copied();
        class.map(|(key, value)| {
            self.assume(key, value);
            value
        })
    }

    /// Checks one number; a problem gives `None`.
    pub(super) fn number(&mut self, path: &str, value: &Value, min: u64, max: u64) -> Option<u64> {
        let negative = value.as_i64().is_some_and(|i| i < 0);
        match value.as_u64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            Some(n) => {
                let near = n.clamp(min, max);
                self.problem(
                    &codes::E205,
                    path,
                    format!("value `{n}` is outside {min} to {max}"),
                    format!("nearest legal value: {near}"),
                );
                None
            }
            None if negative => {
                self.problem(
                    &codes::E205,
                    path,
                    format!("value `{}` is outside {min} to {max}", brief(value)),
                    format!("nearest legal value: {min}"),
                );
                None
            }
            None => {
                self.wrong_type(path, value, "a whole number");
                None
            }
        }
    }

    /// A count that must be there.
    pub(super) fn required(&mut self, names: &[&str], max: u64, example: &str) -> Option<u64> {
        let before = self.problems.0.len();
        let value = self.count(names, max);
        if value.is_none() && self.problems.0.len() == before {
            let spellings = names
                .iter()
                .take(4)
                .map(|n| format!("`{n}`"))
                .collect::<Vec<_>>()
                .join(", ");
            self.problem(
                &codes::E203,
                names[0],
                "required key is missing or null".to_owned(),
                format!(
                    "add `\"{}\": {example}`; accepted spellings: {spellings}",
                    names[0]
                ),
            );
        }
        value
    }

    /// A count with a default that is recorded when used.
    pub(super) fn count_or(&mut self, names: &[&str], max: u64, default: u64) -> u64 {
        let before = self.problems.0.len();
        if let Some(value) = self.count(names, max) {
            value
        } else {
            if self.problems.0.len() == before {
                self.assume(names[0], default);
            }
            default
        }
    }

    /// A truth value, if given.
    pub(super) fn flag(&mut self, names: &[&str]) -> Option<bool> {
        let (name, value) = self.first(names)?;
        match value {
            Value::Bool(b) => Some(b),
            other => {
                self.wrong_type(&name, &other, "true or false");
                None
            }
        }
    }

    /// A text, if given.
    pub(super) fn word(&mut self, names: &[&str]) -> Option<String> {
        let (name, value) = self.first(names)?;
        match value {
            Value::String(s) => Some(s),
            other => {
                self.wrong_type(&name, &other, "a text");
                None
            }
        }
    }

    /// A list, if given; other types are a problem.
    pub(super) fn list(&mut self, path: &str) -> Option<Vec<Value>> {
        match self.value(path)? {
            Value::Array(items) => Some(items),
            other => {
                self.wrong_type(path, &other, "a list");
                None
            }
        }
    }

    /// A list with one entry a layer.
    pub(super) fn layer_list(&mut self, path: &str, layers: u64) -> Option<Vec<Value>> {
        let items = self.list(path)?;
        if items.len() as u64 == layers {
            return Some(items);
        }
        self.problem(
            &codes::E206,
            path,
            format!("list has {} entries for {layers} layers", items.len()),
            format!(
                "give {layers} entries or set the number of layers to {}",
                items.len()
            ),
        );
        None
    }

    /// A per-layer list of 0/1 or false/true.
    pub(super) fn layer_flags(&mut self, path: &str, layers: u64) -> Option<Vec<bool>> {
        let items = self.layer_list(path, layers)?;
        let mut flags = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let flag = match item {
                Value::Bool(b) => *b,
                other => self.number(&format!("{path}[{i}]"), other, 0, 1)? == 1,
            };
            flags.push(flag);
        }
        Some(flags)
    }

    pub(super) fn wrong_type(&mut self, path: &str, value: &Value, wanted: &str) {
        self.problem(
            &codes::E204,
            path,
            format!("value `{}` is {}, not {wanted}", brief(value), type_name(value)),
            format!("write {wanted}; numbers and truth values stand without quotes"),
        );
    }

    /// Records a problem at a key of this configuration.
    pub(super) fn problem(
        &mut self,
        code: &'static Code,
        path: &str,
        message: impl std::fmt::Display,
        hint: impl Into<String>,
    ) {
        if self.problems.0.len() >= MAX_PROBLEMS {
            return;
        }
        let path = self.shown(path);
        let mut problem = Problem::new(
            code,
            format!("{}: {path}", self.source),
            format!("`{path}`: {message}"),
        )
        .hint(hint);
        if let Some(place) = self.locator.find(&path) {
            problem = problem.at(place.line, place.column);
            problem.source_line = Some(place.source_line);
        }
        self.problems.push(problem);
    }

    /// The key as the file spells it.
    fn shown(&self, path: &str) -> String {
        let top = path.split(['.', '[']).next().unwrap_or(path);
        match self.renamed.iter().find(|(canonical, _)| canonical == top) {
            Some((_, own)) => format!("{}{own}{}", self.prefix, &path[top.len()..]),
            None => format!("{}{path}", self.prefix),
        }
    }

    /// Keys that nobody asked for, neutral ones left out.
    pub(super) fn ignored(&self) -> Vec<String> {
        self.map
            .keys()
            .filter(|k| !self.used.contains(*k) && !NEUTRAL.contains(&k.as_str()))
            .take(MAX_IGNORED)
            .map(|k| self.shown(&k.chars().take(120).collect::<String>()))
            .collect()
    }
}

/// A value short enough for a message.
pub(super) fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(s) if s == super::text::NON_FINITE => "NaN or Infinity".to_owned(),
        Value::String(s) => format!("\"{s}\""),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() > 60 {
        let head: String = text.chars().take(57).collect();
        format!("{head}...")
    } else {
        text
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a fraction or too large a number",
        Value::String(s) if s == super::text::NON_FINITE => "not a finite number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
