//! From typed fields and a family to the atom chain.

use serde_json::Value;

use super::attention::{self, Heads};
use super::experts::{self, Experts};
use super::family::{Family, Ffn, Norm, QkNorm, Switch};
use super::fields::{Fields, limit};
use super::layers::{self, FeedKind, MixerKind};
use super::{nas, scan};
use crate::error::model as codes;
use crate::model::{Atom, AtomKind, Block, Mixer, Mlp, Model, Shape};

const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const HIDDEN: &[&str] = &["hidden_size", "n_embd", "n_embed", "d_model"];
const FFN: &[&str] = &[
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "inner_hidden_size",
];
const VOCAB: &[&str] = &["vocab_size", "padded_vocab_size"];
const LENGTH: &[&str] = &[
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "seq_length",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
];
const MTP: &[&str] = &[
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
];

/// One layer as it will be built.
pub(super) struct Layer {
    pub(super) mixer: Option<Mixer>,
    /// Parameters of the mixer's own norms.
    pub(super) mixer_norms: u64,
    pub(super) feed: FeedKind,
    /// Dense width where it differs by layer.
    pub(super) width: Option<u64>,
}

/// Builds the chain; `None` means that problems were recorded.
pub(super) fn build(f: &mut Fields<'_>, family: &Family, model_type: &str, name: &str) -> Option<Model> {
    f.set_class_defaults(family.defaults);
    let pattern = if f.value("hybrid_override_pattern").is_some() {
        layers::pattern(f)
    } else {
        None
    };
    let layers = match &pattern {
        Some(p) => {
            let n = p.len() as u64;
            if let Some(said) = f.count(LAYERS, limit::LAYERS)
                && said != n
            {
                f.problem(
                    &codes::E206,
                    "hybrid_override_pattern",
                    format!("pattern has {n} letters for {said} layers"),
                    format!("give {said} letters or set the number of layers to {n}"),
                );
            }
            Some(n)
        }
        None => f.required(LAYERS, limit::LAYERS, "32"),
    };
    let hidden = f.required(HIDDEN, limit::HIDDEN, "4096");
    let vocab = f.required(VOCAB, limit::VOCAB, "32000");
    let heads = attention::heads(f, family, hidden);
    let max_seq_len = f.count(LENGTH, limit::LENGTH);
    let tied = f.flag(&["tie_word_embeddings"]).unwrap_or_else(|| {
        f.assume("tie_word_embeddings", family.tied);
        family.tied
    });
    let mtp = mtp_layers(f);
    let family = &adjusted(f, family);
    let (layers, hidden, vocab, heads) = (layers?, hidden?, vocab?, heads?);

    let experts = experts::experts(f, family, hidden);
    let plan = match pattern {
        Some(p) => p,
        None => plan(f, family, layers, experts.is_some()),
    };
    let width = dense_width(f, family, hidden, &plan, experts.as_ref());
    let layer_list = nas::blocks(f, &heads, hidden, layers)
        .or_else(|| mixers(f, family, model_type, hidden, &heads, &plan));
    let switches = Biases::read(f, family);
    notes(f);
    if !f.problems.is_empty() {
        return None;
    }

    let make = Maker {
        family,
        hidden,
        width: width?,
        experts,
        biases: switches,
    };
    let blocks: Vec<Block> = layer_list?.into_iter().map(|layer| make.block(layer)).collect();
    let mut atoms = Vec::with_capacity(blocks.len() + 2 + mtp as usize);
    let positions = if family.learned_positions {
        max_seq_len.map_or(0, |n| n.saturating_add(family.extra_positions))
    } else {
        0
    };
    atoms.push(Atom {
        kind: AtomKind::Embedding,
        shape: Shape::Embedding {
            vocab,
            hidden,
            positions,
            norm_parameters: if family.embedding_norm {
                family.norm.parameters(hidden)
            } else {
                0
            },
        },
    });
    let last = blocks.last().cloned();
    atoms.extend(blocks.into_iter().map(|b| Atom {
        kind: b.kind(),
        shape: Shape::Block(b),
    }));
    if let Some(block) = last {
        for _ in 0..mtp {
            atoms.push(Atom {
                kind: AtomKind::Mtp,
                shape: Shape::Mtp {
                    block: block.clone(),
                    vocab,
                    norm_parameters: family.norm.parameters(hidden).saturating_mul(3),
                },
            });
        }
    }
    atoms.push(Atom {
        kind: AtomKind::Head,
        shape: Shape::Head {
            vocab,
            hidden,
            norm_parameters: family.norm.parameters(hidden),
            bias: make.biases.head,
            tied,
        },
    });
    Some(Model {
        name: name.to_owned(),
        family: model_type.to_owned(),
        atoms,
        tied,
        hidden,
        vocab,
        max_seq_len,
        expert_load: 1.0,
    })
}

/// Keys that change what the family fixes.
fn adjusted(f: &mut Fields<'_>, family: &Family) -> Family {
    let mut family = *family;
    let (new_decoder, parallel) = (f.flag(&["new_decoder_architecture"]), f.flag(&["parallel_attn"]));
    if new_decoder == Some(true) || parallel == Some(false) {
        family.norms = 2;
    }
    f.consume("alibi");
    if f.flag(&["no_bias"]) == Some(false) && family.norm == Norm::Weight && !family.gated {
        family.norm = Norm::WeightAndBias;
    }
    if f.has("learned_pos_emb") || f.has("attn_config") {
        let alibi = f.flag(&["attn_config.alibi"]).unwrap_or(true);
        let rope = f.flag(&["attn_config.rope"]).unwrap_or(false);
        let learned = f.flag(&["learned_pos_emb"]).unwrap_or(true);
        family.learned_positions = learned && !alibi && !rope;
    }
    f.consume("use_parallel_residual");
    if f.flag(&["enable_moe_block"]) == Some(true) {
        // Gemma 4: three more norms around the experts of a layer.
        family.norms = 7;
    }
    family
}

/// Mixer and MLP kinds of the layers.
fn plan(f: &mut Fields<'_>, family: &Family, layers: u64, has_experts: bool) -> Vec<(MixerKind, FeedKind)> {
    let mixers = layers::mixers(f, family, layers);
    let moe = if has_experts {
        layers::moe_layers(f, layers)
    } else {
        vec![false; layers as usize]
    };
    if !has_experts {
        for key in [
            "moe_layer_freq",
            "first_k_dense_replace",
            "decoder_sparse_step",
            "mlp_only_layers",
        ] {
            f.consume(key);
        }
    }
    mixers
        .into_iter()
        .zip(moe)
        .map(|(mixer, moe)| (mixer, if moe { FeedKind::Moe } else { FeedKind::Dense }))
        .collect()
}

/// Inner width of the dense MLP; 0 where no layer has one.
fn dense_width(
    f: &mut Fields<'_>,
    family: &Family,
    hidden: u64,
    plan: &[(MixerKind, FeedKind)],
    experts: Option<&Experts>,
) -> Option<u64> {
    let needed = plan.iter().any(|(_, feed)| *feed == FeedKind::Dense) || family.dense_and_moe;
    let separate = f.count(&["intermediate_size_mlp", "dense_intermediate_size"], limit::FFN);
    if let Some(width) = separate {
        f.consume("intermediate_size");
        return Some(width);
    }
    if f.has("block_configs") {
        f.consume("intermediate_size");
        return Some(0);
    }
    if let Some(ratio) = f.count(&["expansion_ratio"], 1024) {
        return Some(ratio.saturating_mul(hidden));
    }
    let before = f.problems.0.len();
    let width = f.count(FFN, limit::FFN);
    if f.problems.0.len() > before {
        return None;
    }
    match (width, family.ffn) {
        (Some(width), Ffn::Halved) => {
            f.note("`intermediate_size` of this family is twice the real width; half of it is used");
            Some(width / 2)
        }
        (Some(width), _) => {
            if !needed && experts.is_some_and(|e| e.own_width) {
                f.note("`intermediate_size` is not used: every layer has experts of their own width");
            }
            Some(width)
        }
        (None, _) if !needed => Some(0),
        (None, Ffn::KeyOrFourTimes) => {
            let width = hidden.saturating_mul(4);
            f.assume(FFN[0], width);
            Some(width)
        }
        (None, _) => f.required(FFN, limit::FFN, "11008"),
    }
}

fn mixers(
    f: &mut Fields<'_>,
    family: &Family,
    model_type: &str,
    hidden: u64,
    heads: &Heads,
    plan: &[(MixerKind, FeedKind)],
) -> Option<Vec<Layer>> {
    let sparse = if model_type == "deepseek_v4" {
        attention::compressed(f, hidden, heads, plan.len())
    } else {
        None
    };
    let attention = attention::Attention::read(f, family, heads, hidden, plan);
    let has = |kind| plan.iter().any(|(k, _)| *k == kind);
    let delta = if has(MixerKind::Delta) {
        scan::gated_delta(f)
    } else {
        None
    };
    let kda = if has(MixerKind::Kda) {
        scan::kimi_delta(f)
    } else {
        None
    };
    let mamba = has(MixerKind::Mamba).then(|| scan::mamba(f, hidden));
    let mamba2 = if has(MixerKind::Mamba2) {
        scan::mamba2(f, hidden)
    } else {
        None
    };
    let conv = has(MixerKind::Conv).then(|| scan::short_conv(f, hidden));
    if !f.problems.is_empty() {
        return None;
    }
    plan.iter()
        .enumerate()
        .map(|(i, (kind, feed))| {
            let scan = match kind {
                MixerKind::Delta => delta.as_ref(),
                MixerKind::Kda => kda.as_ref(),
                MixerKind::Mamba => mamba.as_ref(),
                MixerKind::Mamba2 => mamba2.as_ref(),
                MixerKind::Conv => conv.as_ref(),
                _ => None,
            };
            let (mixer, mixer_norms) = match (kind, scan, &sparse) {
                (MixerKind::None, ..) => (None, 0),
                (_, Some(scan), _) => (Some(scan.mixer.clone()), scan.norm_parameters),
                (_, None, Some(sparse)) => {
                    let scan = sparse.get(i)?;
                    (Some(scan.mixer.clone()), scan.norm_parameters)
                }
                (kind, None, None) => {
                    let (mixer, norms) = attention.mixer(*kind);
                    (Some(mixer), norms)
                }
            };
            Some(Layer {
                mixer,
                mixer_norms,
                feed: *feed,
                width: None,
            })
        })
        .collect()
}

/// Bias switches resolved.
struct Biases {
    mlp: bool,
    head: bool,
}

impl Biases {
    fn read(f: &mut Fields<'_>, family: &Family) -> Self {
        Self {
            mlp: switch(f, family.mlp_bias),
            head: switch(f, family.head_bias),
        }
    }
}

/// Resolves a switch against the file.
pub(super) fn switch(f: &mut Fields<'_>, switch: Switch) -> bool {
    match switch {
        Switch::Off => false,
        Switch::On => true,
        Switch::Keys(keys, default) => keys.iter().find_map(|k| f.flag(&[k])).unwrap_or(default),
        Switch::Not(key, default) => f.flag(&[key]).map_or(default, |no| !no),
    }
}

struct Maker<'m> {
    family: &'m Family,
    hidden: u64,
    width: u64,
    experts: Option<Experts>,
    biases: Biases,
}

impl Maker<'_> {
    fn block(&self, layer: Layer) -> Block {
        let family = self.family;
        let has_feed = layer.feed != FeedKind::None;
        let sublayers = u32::from(layer.mixer.is_some()) + u32::from(has_feed);
        // A layer with one sublayer has that sublayer's norms only.
        let norms = if sublayers == 2 {
            family.norms
        } else {
            sublayers * family.norms.div_ceil(2).max(1)
        };
        let moe = match (&self.experts, layer.feed) {
            (Some(experts), FeedKind::Moe) => Some(experts.moe.clone()),
            _ => None,
        };
        let dense = layer.feed == FeedKind::Dense || (family.dense_and_moe && has_feed);
        let width = layer.width.unwrap_or(self.width);
        let mlp = dense.then(|| {
            let columns = if family.gated {
                width.saturating_mul(2)
            } else {
                width
            };
            Mlp {
                width,
                gated: family.gated,
                bias: if self.biases.mlp {
                    columns.saturating_add(self.hidden)
                } else {
                    0
                },
            }
        });
        Block {
            hidden: self.hidden,
            mixer: layer.mixer,
            mlp,
            moe,
            norms,
            norm_parameters: family
                .norm
                .parameters(self.hidden)
                .saturating_mul(u64::from(norms))
                .saturating_add(layer.mixer_norms),
        }
    }
}

/// Number of multi-token-prediction blocks.
fn mtp_layers(f: &mut Fields<'_>) -> u64 {
    let n = f.whole(MTP, 0, limit::MTP).unwrap_or(0);
    f.consume("mtp_transformer_layers");
    if f.flag(&["use_mtp"]) == Some(false) { 0 } else { n }
}

/// Parameters of the q and k norms.
pub(super) fn qk_norm_parameters(f: &mut Fields<'_>, kind: QkNorm, q: (u64, u64), k: (u64, u64)) -> u64 {
    let full = q.0.saturating_mul(q.1).saturating_add(k.0.saturating_mul(k.1));
    let head = q.1.saturating_add(k.1);
    match kind {
        QkNorm::None => 0,
        QkNorm::Head => head,
        QkNorm::Full => full,
        QkNorm::HeadByKey => {
            if f.flag(&["use_qk_norm"]) == Some(true) {
                head
            } else {
                0
            }
        }
        QkNorm::FullByKey => {
            if f.flag(&["use_qk_norm"]) == Some(true) {
                full
            } else {
                0
            }
        }
        QkNorm::ByType => {
            let per_head = f.word(&["qk_norm_type"]).is_some_and(|w| w == "per_head");
            match f.flag(&["use_qk_norm"]) {
                Some(false) => 0,
                _ if per_head => head,
                _ => full,
            }
        }
    }
}

/// What is in the file, has no place in the chain and should not surprise.
fn notes(f: &mut Fields<'_>) {
    if let Some(Value::Object(q)) = f.value("quantization_config") {
        let method = q
            .get("quant_method")
            .and_then(Value::as_str)
            .unwrap_or("unnamed")
            .to_owned();
        f.note(format!(
            "quantization_config ({method}) is ignored: training precision is an option of the plan"
        ));
    }
    if f.has("index_topk") || f.has("sparse_attention_config") {
        if !f.has("compress_ratios") {
            f.note("the sparse-attention indexer is not counted and attention is priced as dense");
        }
        for key in [
            "index_topk",
            "index_n_heads",
            "index_head_dim",
            "sparse_attention_config",
        ] {
            f.consume(key);
        }
    }
}
