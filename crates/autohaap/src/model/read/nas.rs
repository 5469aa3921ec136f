//! `block_configs`: a searched architecture where every layer differs.

use serde_json::Value;

use super::attention::Heads;
use super::build::Layer;
use super::fields::{Fields, brief, limit};
use super::layers::FeedKind;
use crate::error::model as codes;
use crate::model::Mixer;

/// Layers of a `block_configs` list; `None` if there is none or it is wrong.
pub(super) fn blocks(f: &mut Fields<'_>, heads: &Heads, hidden: u64, layers: u64) -> Option<Vec<Layer>> {
    f.value("block_configs")?;
    f.consume("attention_bias");
    let configs = f.layer_list("block_configs", layers)?;
    let mut out = Vec::with_capacity(configs.len());
    for (i, config) in configs.iter().enumerate() {
        let path = format!("block_configs[{i}]");
        let mixer = mixer(
            f,
            &format!("{path}.attention"),
            config.get("attention"),
            heads,
            hidden,
        );
        let (feed, width) = feed(f, &format!("{path}.ffn"), config.get("ffn"), hidden)?;
        out.push(Layer {
            mixer: mixer?,
            mixer_norms: 0,
            feed,
            width,
        });
    }
    f.note("block_configs: every layer has its own key/value heads and MLP width");
    Some(out)
}

fn truth(config: Option<&Value>, key: &str) -> bool {
    config
        .and_then(|c| c.get(key))
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

#[allow(
    clippy::option_option,
    reason = "outer: problem met; inner: layer without attention"
)]
fn mixer(
    f: &mut Fields<'_>,
    path: &str,
    config: Option<&Value>,
    heads: &Heads,
    hidden: u64,
) -> Option<Option<Mixer>> {
    if truth(config, "no_op") {
        return Some(None);
    }
    if truth(config, "replace_with_linear") {
        return Some(Some(Mixer::Scan {
            name: "linear".to_owned(),
            heads: hidden,
            in_width: hidden,
            out_width: 0,
            scan_flops_per_token: 0,
            saved_per_token: 0,
            other_parameters: 0,
        }));
    }
    let group = match config.and_then(|c| c.get("n_heads_in_group")) {
        Some(v) if !v.is_null() => f.number(&format!("{path}.n_heads_in_group"), v, 1, limit::HEADS)?,
        _ => {
            f.problem(
                &codes::E203,
                &format!("{path}.n_heads_in_group"),
                "required key is missing or null".to_owned(),
                "give the query heads per key/value head, or set `no_op` to true".to_owned(),
            );
            return None;
        }
    };
    if !heads.heads.is_multiple_of(group) {
        f.problem(
            &codes::E207,
            &format!("{path}.n_heads_in_group"),
            format!(
                "{} query heads are not a multiple of groups of {group}",
                heads.heads
            ),
            format!("give a divisor of {}", heads.heads),
        );
        return None;
    }
    let window = match config.and_then(|c| c.get("window_length")) {
        Some(v) if !v.is_null() => f.number(&format!("{path}.window_length"), v, 1, limit::LENGTH),
        _ => None,
    };
    Some(Some(Mixer::Attention {
        heads: heads.heads,
        kv_heads: heads.heads / group,
        head_dim: heads.head_dim,
        v_head_dim: heads.v_head_dim,
        window,
        qkv_bias: 0,
        out_bias: 0,
        gated: false,
        shared_kv: false,
        other_parameters: 0,
    }))
}

fn feed(
    f: &mut Fields<'_>,
    path: &str,
    config: Option<&Value>,
    hidden: u64,
) -> Option<(FeedKind, Option<u64>)> {
    if truth(config, "no_op") {
        return Some((FeedKind::None, None));
    }
    if truth(config, "replace_with_linear") {
        // A gated MLP of a third of the width has the parameters and FLOPs of one square matrix.
        return Some((FeedKind::Dense, Some(hidden / 3)));
    }
    let value = config.and_then(|c| c.get("ffn_mult")).unwrap_or(&Value::Null);
    match value.as_f64() {
        Some(m) if m > 0.0 && m <= 64.0 => {
            // Two thirds for the gate, rounded up to a multiple of 256.
            let width = (2.0 * m * hidden as f64 / 3.0) as u64;
            Some((FeedKind::Dense, Some(width.div_ceil(256) * 256)))
        }
        _ => {
            f.problem(
                &codes::E205,
                &format!("{path}.ffn_mult"),
                format!("value `{}` is not a factor between 0 and 64", brief(value)),
                "give a positive factor, or set `no_op` to true".to_owned(),
            );
            None
        }
    }
}
