//! Heads and attention mixers: grouped-query, latent, local and global shapes.

use super::build::{qk_norm_parameters, switch};
use super::family::{Family, QkNorm};
use super::fields::{Fields, brief, limit};
use super::layers::{FeedKind, MixerKind};
use super::scan::Scan;
use crate::error::model as codes;
use crate::model::Mixer;

const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
const KV: &[&str] = &[
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "kv_n_heads",
    "attn_config.kv_n_heads",
];
const HEAD_DIM: &[&str] = &["head_dim", "kv_channels", "attention_head_dim"];

/// Head counts and widths of the plain layers.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names, reason = "the words of the files")]
pub(super) struct Heads {
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) head_dim: u64,
    pub(super) v_head_dim: u64,
    /// Latent attention.
    pub(super) latent: Option<Latent>,
}

/// Ranks and widths of latent attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latent {
    q_rank: Option<u64>,
    kv_rank: u64,
    nope: u64,
    rope: u64,
    v: u64,
}

/// Reads the heads and checks that they fit each other.
pub(super) fn heads(f: &mut Fields<'_>, family: &Family, hidden: Option<u64>) -> Option<Heads> {
    let heads = f.required(HEADS, limit::HEADS, "32");
    if f.value("kv_lora_rank").is_some() || f.value("attention_kv_lora_dim").is_some() {
        let latent = latent(f);
        for key in KV.iter().chain(HEAD_DIM).chain(&["qk_head_dim"]) {
            f.consume(key);
        }
        let (heads, latent) = (heads?, latent?);
        return Some(Heads {
            heads,
            kv_heads: heads,
            head_dim: latent.nope.saturating_add(latent.rope),
            v_head_dim: latent.v,
            latent: Some(latent),
        });
    }
    let kv_heads = kv_heads(f, family, heads);
    let before = f.problems.0.len();
    let head_dim = f.count(HEAD_DIM, limit::HEAD_DIM);
    let failed = f.problems.0.len() > before;
    let (heads, kv_heads) = (heads?, kv_heads?);
    if heads % kv_heads != 0 {
        let near = (1..=heads.min(limit::HEADS))
            .filter(|k| heads % k == 0)
            .min_by_key(|k| k.abs_diff(kv_heads))
            .unwrap_or(1);
        let legal: Vec<String> = (1..=heads)
            .filter(|k| heads % k == 0)
            .take(16)
            .map(|k| k.to_string())
            .collect();
        f.problem(
            &codes::E207,
            kv_key(f),
            format!("{heads} query heads are not a multiple of {kv_heads} key/value heads"),
            format!(
                "nearest legal value: {near}; divisors of {heads}: {}",
                legal.join(", ")
            ),
        );
    }
    let head_dim = match head_dim {
        Some(d) => d,
        None if failed => return None,
        None => {
            let hidden = hidden?;
            if hidden % heads != 0 {
                let near = (1..=heads.saturating_mul(2).min(hidden))
                    .filter(|a| hidden % a == 0)
                    .min_by_key(|a| a.abs_diff(heads))
                    .unwrap_or(1);
                f.problem(
                    &codes::E208,
                    HEADS[0],
                    format!(
                        "hidden width {hidden} is not a multiple of {heads} heads and no head_dim is given"
                    ),
                    format!("nearest legal value: {near} heads, or give `head_dim`"),
                );
                return None;
            }
            f.assume("head_dim", format!("{} (hidden / heads)", hidden / heads));
            hidden / heads
        }
    };
    let v_head_dim = f.count(&["v_head_dim"], limit::HEAD_DIM).unwrap_or(head_dim);
    Some(Heads {
        heads,
        kv_heads,
        head_dim,
        v_head_dim,
        latent: None,
    })
}

fn kv_key(f: &Fields<'_>) -> &'static str {
    KV.iter()
        .find(|k| f.has(k.split('.').next().unwrap_or(k)))
        .copied()
        .unwrap_or(KV[0])
}

fn kv_heads(f: &mut Fields<'_>, family: &Family, heads: Option<u64>) -> Option<u64> {
    if f.flag(&["multi_query_attention"]) == Some(true) {
        return f.required(&["multi_query_group_num"], limit::HEADS, "2");
    }
    f.consume("multi_query_group_num");
    if family.multi_query {
        let new_decoder = f.flag(&["new_decoder_architecture"]).unwrap_or(false);
        let multi_query = f.flag(&["multi_query"]);
        if !new_decoder && multi_query.unwrap_or(true) {
            if multi_query.is_none() {
                f.assume("multi_query", true);
            }
            for key in KV {
                f.consume(key);
            }
            return Some(1);
        }
        if !new_decoder {
            return heads;
        }
    }
    let before = f.problems.0.len();
    let kv = f.count(KV, limit::HEADS);
    if kv.is_none() && f.problems.0.len() == before && !f.has("block_configs") {
        if let Some(heads) = heads {
            f.assume(KV[0], format!("{heads} (as many as query heads)"));
        }
        return heads;
    }
    if f.has("block_configs") { kv.or(heads) } else { kv }
}

fn latent(f: &mut Fields<'_>) -> Option<Latent> {
    let kv_rank = f.required(&["kv_lora_rank", "attention_kv_lora_dim"], limit::HIDDEN, "512");
    let q_rank = f.count(&["q_lora_rank", "attention_q_lora_dim"], limit::HIDDEN);
    let rope = f.whole(&["qk_rope_head_dim", "attention_qk_rope_dim"], 0, limit::HEAD_DIM);
    let nope = f.required(&["qk_nope_head_dim", "attention_qk_dim"], limit::HEAD_DIM, "128");
    let v = f
        .count(&["v_head_dim", "attention_v_dim"], limit::HEAD_DIM)
        .or(nope);
    if let Some(true) = f.flag(&["mla_use_output_gate"]) {
        f.note("the output gate of latent attention is not counted");
    }
    f.consume("mla_use_nope");
    Some(Latent {
        q_rank,
        kv_rank: kv_rank?,
        nope: nope?,
        rope: rope.unwrap_or(0),
        v: v?,
    })
}

/// One attention shape with its norms.
struct Layout {
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    v_head_dim: u64,
    window: Option<u64>,
    shared_kv: bool,
    sinks: bool,
    norms: u64,
}

/// The attention shapes of a model: global layers and local ones.
pub(super) struct Attention {
    latent: Option<(Mixer, u64)>,
    global: Layout,
    local: Layout,
    chunked: Layout,
    qkv_bias: bool,
    out_bias: bool,
    hidden: u64,
    gate: Gate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    None,
    /// As wide as q.
    Full,
    /// One value per head.
    PerHead,
}

impl Attention {
    pub(super) fn read(
        f: &mut Fields<'_>,
        family: &Family,
        heads: &Heads,
        hidden: u64,
        plan: &[(MixerKind, FeedKind)],
    ) -> Self {
        let latent = heads.latent.map(|l| {
            let mixer = Mixer::Mla {
                heads: heads.heads,
                q_rank: l.q_rank,
                kv_rank: l.kv_rank,
                nope_dim: l.nope,
                rope_dim: l.rope,
                v_dim: l.v,
            };
            (mixer, l.kv_rank.saturating_add(l.q_rank.unwrap_or(0)))
        });
        let used = |kind| plan.iter().any(|(k, _)| *k == kind);
        let window = f.count(
            &["sliding_window", "sliding_window_size", "window_size"],
            limit::LENGTH,
        );
        if used(MixerKind::Sliding) && window.is_none() {
            f.required(&["sliding_window"], limit::LENGTH, "4096");
        }
        let chunk = f.count(&["attention_chunk_size"], limit::LENGTH);
        let qk = family.qk_norm;
        let norm = |f: &mut Fields<'_>, heads: u64, kv: u64, dim: u64| {
            qk_norm_parameters(f, qk, (heads, dim), (kv, dim))
        };
        let norms = norm(f, heads.heads, heads.kv_heads, heads.head_dim);
        let plain = Layout {
            heads: heads.heads,
            kv_heads: heads.kv_heads,
            head_dim: heads.head_dim,
            v_head_dim: heads.v_head_dim,
            window: None,
            shared_kv: false,
            sinks: family.sinks,
            norms,
        };
        let local_heads = f
            .count(&["swa_num_attention_heads"], limit::HEADS)
            .unwrap_or(plain.heads);
        let local_kv = f
            .count(&["swa_num_key_value_heads"], limit::HEADS)
            .unwrap_or(plain.kv_heads);
        let local_dim = f
            .count(&["swa_head_dim"], limit::HEAD_DIM)
            .unwrap_or(plain.head_dim);
        let local_v = f
            .count(&["swa_v_head_dim"], limit::HEAD_DIM)
            .unwrap_or(match local_dim {
                d if d == plain.head_dim => plain.v_head_dim,
                d => d,
            });
        let local_sinks = f.flag(&["add_swa_attention_sink_bias"]).unwrap_or(family.sinks);
        let local = Layout {
            heads: local_heads,
            kv_heads: local_kv,
            head_dim: local_dim,
            v_head_dim: local_v,
            window,
            shared_kv: false,
            sinks: local_sinks,
            norms: norm(f, local_heads, local_kv, local_dim),
        };
        let global_dim = f.count(&["global_head_dim"], limit::HEAD_DIM);
        let global_kv = f
            .count(&["num_global_key_value_heads"], limit::HEADS)
            .unwrap_or(plain.kv_heads);
        let global_sinks = f.flag(&["add_full_attention_sink_bias"]).unwrap_or(family.sinks);
        let shared_kv = f.flag(&["attention_k_eq_v"]).unwrap_or(false);
        let global = Layout {
            kv_heads: global_kv,
            head_dim: global_dim.unwrap_or(plain.head_dim),
            v_head_dim: global_dim.unwrap_or(plain.v_head_dim),
            shared_kv,
            sinks: global_sinks,
            norms: norm(f, plain.heads, global_kv, global_dim.unwrap_or(plain.head_dim)),
            ..plain
        };
        for (layout, key) in [
            (&local, "swa_num_key_value_heads"),
            (&global, "num_global_key_value_heads"),
        ] {
            if f.has(key) && layout.heads % layout.kv_heads != 0 {
                f.problem(
                    &codes::E207,
                    key,
                    format!(
                        "{} query heads are not a multiple of {} heads",
                        layout.heads, layout.kv_heads
                    ),
                    "give a divisor of the query heads".to_owned(),
                );
            }
        }
        // Exact up to one chunk; beyond it a window of one chunk counts more than the half chunk really seen.
        let chunked = Layout {
            window: chunk,
            ..plain
        };
        let gate = if f
            .flag(&["attn_output_gate", "attention_output_gate"])
            .unwrap_or(family.output_gate)
        {
            Gate::Full
        } else if f.flag(&["use_head_wise_attn_gate"]).unwrap_or(false) {
            Gate::PerHead
        } else {
            Gate::None
        };
        Self {
            latent,
            global,
            local,
            chunked,
            qkv_bias: switch(f, family.qkv_bias),
            out_bias: switch(f, family.out_bias),
            hidden,
            gate,
        }
    }

    /// The mixer of a layer and the parameters of its norms.
    pub(super) fn mixer(&self, kind: MixerKind) -> (Mixer, u64) {
        if let Some((mixer, norms)) = &self.latent {
            return (mixer.clone(), *norms);
        }
        let l = match kind {
            MixerKind::Sliding => &self.local,
            MixerKind::Chunked => &self.chunked,
            _ => &self.global,
        };
        let q = l.heads.saturating_mul(l.head_dim);
        let kv = l.kv_heads.saturating_mul(l.head_dim.saturating_add(l.v_head_dim));
        let gate = if self.gate == Gate::PerHead {
            self.hidden.saturating_mul(l.heads)
        } else {
            0
        };
        let mixer = Mixer::Attention {
            heads: l.heads,
            kv_heads: l.kv_heads,
            head_dim: l.head_dim,
            v_head_dim: l.v_head_dim,
            window: l.window,
            qkv_bias: if self.qkv_bias { q.saturating_add(kv) } else { 0 },
            out_bias: if self.out_bias { self.hidden } else { 0 },
            gated: self.gate == Gate::Full,
            shared_kv: l.shared_kv,
            other_parameters: gate.saturating_add(if l.sinks { l.heads } else { 0 }),
        };
        (mixer, l.norms)
    }
}

/// Compressed sparse attention (DeepSeek V4): every token sees a window and a bounded number of compressed entries, so
/// its FLOPs per token are fixed and it is priced like a scan.
pub(super) fn compressed(f: &mut Fields<'_>, hidden: u64, heads: &Heads, layers: usize) -> Option<Vec<Scan>> {
    let ratios = f.list("compress_ratios")?;
    let q_rank = f.required(&["q_lora_rank"], limit::HIDDEN, "1024");
    let o_rank = f.required(&["o_lora_rank"], limit::HIDDEN, "1024");
    let groups = f.required(&["o_groups"], limit::HEADS, "8");
    let window = f.count_or(&["sliding_window"], limit::LENGTH, 128);
    let index_heads = f.count_or(&["index_n_heads"], limit::HEADS, 64);
    let index_dim = f.count_or(&["index_head_dim"], limit::HEAD_DIM, 128);
    let topk = f.count_or(&["index_topk"], limit::LENGTH, 512);
    let streams = f.count(&["hc_mult"], 64);
    for key in [
        "qk_rope_head_dim",
        "compress_rope_theta",
        "hc_eps",
        "hc_sinkhorn_iters",
        "num_hash_layers",
    ] {
        f.consume(key);
    }
    if streams.is_some() {
        f.note("hyper-connections widen the residual stream; boundaries are counted at one stream");
    }
    f.note("compressed sparse attention is priced with a fixed number of keys per token");
    let n = layers as u64;
    let mtp = f.whole(&["num_nextn_predict_layers"], 0, limit::MTP).unwrap_or(0);
    let given = ratios.len() as u64;
    if given != n && given != n.saturating_add(mtp) {
        f.problem(
            &codes::E206,
            "compress_ratios",
            format!("list has {given} entries for {n} layers and {mtp} MTP blocks"),
            format!("give {n} or {} entries", n.saturating_add(mtp)),
        );
        return None;
    }
    let (q_rank, o_rank, groups) = (q_rank?, o_rank?, groups?);
    let (a, d) = (heads.heads, heads.head_dim);
    let q = a.saturating_mul(d);
    let mut scans = Vec::with_capacity(layers);
    for (i, ratio) in ratios.iter().take(layers).enumerate() {
        let Some(ratio) = ratio.as_u64() else {
            f.problem(
                &codes::E204,
                &format!("compress_ratios[{i}]"),
                format!("value `{}` is not a whole number", brief(ratio)),
                "0 (window only), 4 or 128".to_owned(),
            );
            return None;
        };
        let index_width = index_heads.saturating_mul(index_dim);
        let (columns, up, keys) = match ratio {
            0 => (0, 0, window),
            1..=16 => (
                4 * d + 4 * index_dim + index_heads,
                q_rank.saturating_mul(index_width),
                window.saturating_add(topk),
            ),
            _ => (2 * d, 0, window.saturating_add(64)),
        };
        // q up-projection, grouped output down-projection and the indexer's q.
        let inner = q_rank
            .saturating_mul(q)
            .saturating_add(q.saturating_mul(o_rank))
            .saturating_add(up);
        let core = q.saturating_mul(4).saturating_mul(keys);
        scans.push(Scan {
            mixer: Mixer::Scan {
                name: "compressed-attention".to_owned(),
                heads: a,
                in_width: q_rank.saturating_add(d).saturating_add(columns),
                out_width: groups.saturating_mul(o_rank),
                scan_flops_per_token: inner.saturating_mul(2).saturating_add(core),
                saved_per_token: q.saturating_mul(2),
                other_parameters: inner.saturating_add(a),
            },
            norm_parameters: q_rank.saturating_add(d).saturating_add(hyper(streams, hidden)),
        });
    }
    Some(scans)
}

/// Mixing weights of hyper-connections before attention and MLP.
fn hyper(streams: Option<u64>, hidden: u64) -> u64 {
    streams.map_or(0, |m| {
        let outputs = m * (m + 2);
        outputs
            .saturating_mul(m.saturating_mul(hidden))
            .saturating_add(outputs + 3)
            .saturating_mul(2)
    })
}

/// Whether any family-specific q/k norm exists, for readers of foreign formats.
pub(super) fn head_norm(on: bool) -> QkNorm {
    if on { QkNorm::Head } else { QkNorm::None }
}
