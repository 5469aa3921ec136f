//! Which mixer and which MLP each layer has.

use serde_json::Value;

use super::family::Family;
use super::fields::{Fields, brief, limit};
use crate::error::{model as codes, nearest};

/// Mixer of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MixerKind {
    /// Attention over the whole sequence.
    Full,
    /// Attention over a sliding window.
    Sliding,
    /// Attention inside chunks.
    Chunked,
    /// Gated-delta linear attention.
    Delta,
    /// Kimi delta attention.
    Kda,
    /// Mamba.
    Mamba,
    /// Mamba 2.
    Mamba2,
    /// Gated short convolution.
    Conv,
    /// None: an MLP-only layer.
    None,
}

/// MLP of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedKind {
    Dense,
    Moe,
    None,
}

/// One letter of a hybrid pattern a layer (`M` mamba2, `-` MLP, `*` attention, `E` experts).
pub(super) fn pattern(f: &mut Fields<'_>) -> Option<Vec<(MixerKind, FeedKind)>> {
    let text = f.word(&["hybrid_override_pattern"])?;
    let mut layers = Vec::new();
    for (i, letter) in text.chars().take(limit::LAYERS as usize + 1).enumerate() {
        layers.push(match letter {
            'M' => (MixerKind::Mamba2, FeedKind::None),
            '-' => (MixerKind::None, FeedKind::Dense),
            '*' => (MixerKind::Full, FeedKind::None),
            'E' => (MixerKind::None, FeedKind::Moe),
            other => {
                f.problem(
                    &codes::E210,
                    "hybrid_override_pattern",
                    format!("letter `{other}` at position {i} is unknown"),
                    "legal letters: M (mamba2), - (MLP), * (attention), E (experts)".to_owned(),
                );
                return None;
            }
        });
    }
    if layers.is_empty() || layers.len() as u64 > limit::LAYERS {
        f.problem(
            &codes::E205,
            "hybrid_override_pattern",
            format!("pattern has {} letters", text.chars().count()),
            format!("give 1 to {} letters, one a layer", limit::LAYERS),
        );
        return None;
    }
    Some(layers)
}

/// Layers with routed experts.
pub(super) fn moe_layers(f: &mut Fields<'_>, layers: u64) -> Vec<bool> {
    let n = layers as usize;
    if matches!(f.value("moe_layer_freq"), Some(Value::Array(_))) {
        f.consume("first_k_dense_replace");
        return f
            .layer_flags("moe_layer_freq", layers)
            .unwrap_or_else(|| vec![true; n]);
    }
    let mut mask = vec![true; n];
    if let Some(items) = f.list("moe_layers") {
        mask = vec![false; n];
        for (i, item) in items.iter().enumerate().take(n.max(1)) {
            if let Some(layer) = f.number(&format!("moe_layers[{i}]"), item, 0, layers - 1) {
                mask[layer as usize] = true;
            }
        }
        return mask;
    }
    let dense_first = f
        .whole(&["first_k_dense_replace", "num_dense_layers"], 0, limit::LAYERS)
        .unwrap_or(0);
    let freq = f.count(&["moe_layer_freq"], limit::LAYERS).unwrap_or(1);
    let start = f.whole(&["moe_layer_start_index"], 0, limit::LAYERS).unwrap_or(0);
    let end = last_layer(f, layers);
    let step = f
        .count(
            &[
                "moe_layer_interval",
                "decoder_sparse_step",
                "interleave_moe_layer_step",
            ],
            limit::LAYERS,
        )
        .unwrap_or(1);
    let period = f.count(&["expert_layer_period"], limit::LAYERS).unwrap_or(1);
    let offset = f
        .whole(&["expert_layer_offset"], 0, limit::LAYERS)
        .unwrap_or(u64::from(period > 1));
    for (i, moe) in mask.iter_mut().enumerate() {
        let i = i as u64;
        *moe = i >= dense_first
            && i.is_multiple_of(freq)
            && (start..=end).contains(&i)
            && (i + 1).is_multiple_of(step)
            && i % period == offset % period;
    }
    if let Some(items) = f.list("mlp_only_layers") {
        for (i, item) in items.iter().enumerate().take(limit::LAYERS as usize) {
            if let Some(layer) = f.number(&format!("mlp_only_layers[{i}]"), item, 0, layers - 1) {
                mask[layer as usize] = false;
            }
        }
    }
    mask
}

/// `moe_layer_end_index`, where -1 is the last layer.
fn last_layer(f: &mut Fields<'_>, layers: u64) -> u64 {
    match f.value("moe_layer_end_index") {
        Some(v) if v.as_i64() == Some(-1) => layers,
        Some(v) => f
            .number("moe_layer_end_index", &v, 0, limit::LAYERS)
            .unwrap_or(layers),
        None => layers,
    }
}

/// Mixer of every layer.
pub(super) fn mixers(f: &mut Fields<'_>, family: &Family, layers: u64) -> Vec<MixerKind> {
    let n = layers as usize;
    let mamba = if f.has("mamba_n_heads") || f.has("mamba_num_heads") {
        MixerKind::Mamba2
    } else {
        MixerKind::Mamba
    };
    for key in ["layer_types", "layers_block_type"] {
        if f.value(key).is_some() {
            f.consume("full_attention_interval");
            f.consume("sliding_window_pattern");
            f.consume("_sliding_window_pattern");
            return words(f, key, layers, mamba).unwrap_or_else(|| vec![MixerKind::Full; n]);
        }
    }
    if f.value("linear_attn_config").is_some() {
        return kimi(f, layers);
    }
    if f.value("hybrid_layer_pattern").is_some() {
        let flags = f
            .layer_flags("hybrid_layer_pattern", layers)
            .unwrap_or_else(|| vec![false; n]);
        return flags
            .into_iter()
            .map(|local| {
                if local {
                    MixerKind::Sliding
                } else {
                    MixerKind::Full
                }
            })
            .collect();
    }
    if let Some(interval) = f.count(&["full_attention_interval"], limit::LAYERS) {
        return every(n, interval, MixerKind::Delta);
    }
    if let Some(period) = f.count(&["attn_layer_period"], limit::LAYERS) {
        let offset = f
            .whole(&["attn_layer_offset"], 0, limit::LAYERS)
            .unwrap_or(period / 2);
        return (0..layers)
            .map(|i| {
                if i % period == offset % period {
                    MixerKind::Full
                } else {
                    mamba
                }
            })
            .collect();
    }
    if f.value("attention_chunk_size").is_some() && !f.has("swa_head_dim") {
        // Every fourth layer has no rotary positions and attends to everything.
        let interval = f.count(&["no_rope_layer_interval"], limit::LAYERS).unwrap_or(4);
        return every(n, interval, MixerKind::Chunked);
    }
    sliding(f, family, layers)
}

/// The last of every `period` layers is global.
fn every(layers: usize, period: u64, local: MixerKind) -> Vec<MixerKind> {
    (1..=layers as u64)
        .map(|i| if i % period == 0 { MixerKind::Full } else { local })
        .collect()
}

fn sliding(f: &mut Fields<'_>, family: &Family, layers: u64) -> Vec<MixerKind> {
    let n = layers as usize;
    let listed = f.count(
        &["sliding_window_pattern", "_sliding_window_pattern"],
        limit::LAYERS,
    );
    let switch = f.flag(&["use_sliding_window"]);
    let from = f.whole(&["max_window_layers"], 0, limit::LENGTH);
    let has_window = f.value("sliding_window").is_some() || family.sliding_period.is_some();
    if !has_window || switch == Some(false) {
        return vec![MixerKind::Full; n];
    }
    if let Some(period) = listed.or(family.sliding_period) {
        return every(n, period, MixerKind::Sliding);
    }
    if switch == Some(true) {
        let from = from.unwrap_or(0);
        return (0..layers)
            .map(|i| {
                if i >= from {
                    MixerKind::Sliding
                } else {
                    MixerKind::Full
                }
            })
            .collect();
    }
    vec![
        if family.always_sliding {
            MixerKind::Sliding
        } else {
            MixerKind::Full
        };
        n
    ]
}

fn words(f: &mut Fields<'_>, key: &str, layers: u64, mamba: MixerKind) -> Option<Vec<MixerKind>> {
    const LEGAL: &[&str] = &[
        "full_attention",
        "sliding_attention",
        "chunked_attention",
        "linear_attention",
        "attention",
        "mamba",
        "conv",
    ];
    let items = f.layer_list(key, layers)?;
    let mut kinds = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        kinds.push(match item.as_str() {
            Some("full_attention" | "attention" | "global_attention") => MixerKind::Full,
            Some("sliding_attention" | "local_attention") => MixerKind::Sliding,
            Some("chunked_attention") => MixerKind::Chunked,
            Some("linear_attention") => MixerKind::Delta,
            Some("mamba") => mamba,
            Some("mamba2") => MixerKind::Mamba2,
            Some("conv") => MixerKind::Conv,
            Some(word) => {
                let near = nearest(word, LEGAL.iter().copied()).unwrap_or("full_attention");
                f.problem(
                    &codes::E210,
                    &format!("{key}[{i}]"),
                    format!("layer kind {} is unknown", brief(item)),
                    format!("nearest legal value: \"{near}\""),
                );
                return None;
            }
            None => {
                f.wrong_type(&format!("{key}[{i}]"), item, "a text");
                return None;
            }
        });
    }
    Some(kinds)
}

/// Lists of layers counted from 1: full attention and Kimi delta attention.
fn kimi(f: &mut Fields<'_>, layers: u64) -> Vec<MixerKind> {
    let mut kinds: Vec<Option<MixerKind>> = vec![None; layers as usize];
    let lists = [
        ("linear_attn_config.full_attn_layers", MixerKind::Full),
        ("linear_attn_config.kda_layers", MixerKind::Kda),
    ];
    for (path, kind) in lists {
        for (i, item) in f.list(path).unwrap_or_default().iter().enumerate() {
            if i as u64 >= layers {
                f.problem(
                    &codes::E206,
                    path,
                    format!("list has more entries than the {layers} layers"),
                    "each layer stands in one of the two lists, counted from 1".to_owned(),
                );
                break;
            }
            let Some(layer) = f.number(&format!("{path}[{i}]"), item, 1, layers) else {
                break;
            };
            kinds[layer as usize - 1] = Some(kind);
        }
    }
    if let Some(missing) = kinds.iter().position(Option::is_none) {
        f.problem(
            &codes::E206,
            "linear_attn_config",
            format!("layer {} (counted from 1) is in neither list", missing + 1),
            "add it to `full_attn_layers` or `kda_layers`".to_owned(),
        );
    }
    kinds.into_iter().map(|k| k.unwrap_or(MixerKind::Full)).collect()
}
