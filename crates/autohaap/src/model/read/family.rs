//! What no key of a configuration tells: norms, biases and defaults by `model_type`.
//!
//! Sources: the public reference model classes (parameter names and shapes of one layer each) and their configuration
//! defaults.

use super::fields::ClassDefault;

/// Parameters of one norm in units of its width: none, a weight, or a weight and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    /// No parameters.
    Bare,
    /// RMSNorm, or a LayerNorm without bias.
    Weight,
    /// LayerNorm.
    WeightAndBias,
}

impl Norm {
    pub(super) fn parameters(self, width: u64) -> u64 {
        match self {
            Self::Bare => 0,
            Self::Weight => width,
            Self::WeightAndBias => width.saturating_mul(2),
        }
    }
}

/// Whether something exists.
#[derive(Debug, Clone, Copy)]
pub(super) enum Switch {
    /// Never.
    Off,
    /// Always.
    On,
    /// As one of these keys says, else the default.
    Keys(&'static [&'static str], bool),
    /// Opposite of what the key says, else the default.
    Not(&'static str, bool),
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    /// One weight of `head_dim` for q and one for k.
    Head,
    /// Weights of the full q and k widths.
    Full,
    /// A weight and no bias for each head, where `use_qk_norm` is set.
    FullByKey,
    /// `Head`, where `use_qk_norm` is set.
    HeadByKey,
    /// `use_qk_norm` with `qk_norm_type`: per head or per layer (full width).
    ByType,
}

/// Width of the dense MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ffn {
    /// As the key says; required unless no dense MLP exists.
    Key,
    /// As the key says, else four times the hidden width.
    KeyOrFourTimes,
    /// The key holds twice the real width.
    Halved,
}

/// Everything a family fixes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) norm: Norm,
    pub(super) norms: u32,
    pub(super) gated: bool,
    pub(super) tied: bool,
    pub(super) qkv_bias: Switch,
    pub(super) out_bias: Switch,
    pub(super) mlp_bias: Switch,
    pub(super) head_bias: Switch,
    pub(super) router_bias: Switch,
    /// Biases of `2w + h` per routed expert.
    pub(super) expert_bias: bool,
    pub(super) shared_gate: bool,
    /// One shared expert of the routed width without a key.
    pub(super) implicit_shared: bool,
    pub(super) qk_norm: QkNorm,
    /// One sink per head.
    pub(super) sinks: bool,
    pub(super) learned_positions: bool,
    /// Output gate as wide as q.
    pub(super) output_gate: bool,
    /// Rows of the position table beyond the maximum length.
    pub(super) extra_positions: u64,
    pub(super) embedding_norm: bool,
    pub(super) ffn: Ffn,
    /// Whether `sliding_window` alone makes every layer local.
    pub(super) always_sliding: bool,
    /// Layers between two global ones, the global one included, where no list says so.
    pub(super) sliding_period: Option<u64>,
    /// One key/value head unless `multi_query` is false.
    pub(super) multi_query: bool,
    /// Dense MLP and experts side by side in each layer.
    pub(super) dense_and_moe: bool,
    pub(super) defaults: &'static [ClassDefault],
    /// Whether the family is known.
    pub(super) known: bool,
}

const QKV_KEYS: &[&str] = &[
    "qkv_bias",
    "use_qkv_bias",
    "add_qkv_bias",
    "attention_bias",
    "use_bias",
    "bias",
];
const OUT_KEYS: &[&str] = &["attention_bias", "use_bias", "bias"];
const MLP_KEYS: &[&str] = &["mlp_bias", "use_bias"];
const ALL_KEYS: &[&str] = &["use_bias", "bias", "add_bias_linear"];

/// The common case: two RMSNorms, a gated MLP, no biases unless keys say so.
pub(super) const LLAMA: Family = Family {
    norm: Norm::Weight,
    norms: 2,
    gated: true,
    tied: false,
    qkv_bias: Switch::Keys(QKV_KEYS, false),
    out_bias: Switch::Keys(OUT_KEYS, false),
    mlp_bias: Switch::Keys(MLP_KEYS, false),
    head_bias: Switch::Keys(&["lm_head_bias"], false),
    router_bias: Switch::Off,
    expert_bias: false,
    shared_gate: false,
    implicit_shared: false,
    qk_norm: QkNorm::None,
    sinks: false,
    learned_positions: false,
    output_gate: false,
    extra_positions: 0,
    embedding_norm: false,
    ffn: Ffn::Key,
    always_sliding: false,
    sliding_period: None,
    multi_query: false,
    dense_and_moe: false,
    defaults: &[],
    known: true,
};

/// Two LayerNorms, a plain MLP and biases everywhere.
pub(super) const GPT: Family = Family {
    norm: Norm::WeightAndBias,
    gated: false,
    qkv_bias: Switch::On,
    out_bias: Switch::On,
    mlp_bias: Switch::On,
    head_bias: Switch::Off,
    ffn: Ffn::KeyOrFourTimes,
    ..LLAMA
};

const GEMMA3_TEXT: &[ClassDefault] = &[
    ("vocab_size", 262_208),
    ("hidden_size", 2304),
    ("intermediate_size", 9216),
    ("num_hidden_layers", 26),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
    ("sliding_window", 4096),
];

const LLAMA4_TEXT: &[ClassDefault] = &[
    ("vocab_size", 202_048),
    ("hidden_size", 5120),
    ("intermediate_size", 8192),
    ("intermediate_size_mlp", 16_384),
    ("num_hidden_layers", 48),
    ("num_attention_heads", 40),
    ("num_key_value_heads", 8),
    ("head_dim", 128),
    ("num_local_experts", 16),
    ("num_experts_per_tok", 1),
    ("interleave_moe_layer_step", 1),
];

const GPT2: &[ClassDefault] = &[("n_positions", 1024)];

const DELTA: &[ClassDefault] = &[
    ("linear_num_key_heads", 16),
    ("linear_num_value_heads", 32),
    ("linear_key_head_dim", 128),
    ("linear_value_head_dim", 128),
    ("linear_conv_kernel_dim", 4),
    ("head_dim", 256),
];

const MAMBA2: &[ClassDefault] = &[
    ("n_groups", 8),
    ("conv_kernel", 4),
    ("chunk_size", 128),
    ("mamba_head_dim", 64),
];

const GRANITE_HYBRID: &[ClassDefault] = &[
    ("mamba_n_heads", 128),
    ("mamba_d_state", 256),
    ("mamba_d_conv", 4),
    ("mamba_expand", 2),
    ("mamba_n_groups", 1),
    ("mamba_chunk_size", 256),
];

const JAMBA: &[ClassDefault] = &[
    ("num_experts", 16),
    ("num_experts_per_tok", 2),
    ("expert_layer_period", 2),
    ("attn_layer_period", 8),
    ("mamba_d_state", 16),
    ("mamba_d_conv", 4),
    ("mamba_expand", 2),
];

const ERNIE_MOE: &[ClassDefault] = &[
    ("moe_num_experts", 64),
    ("moe_k", 6),
    ("moe_num_shared_experts", 2),
    ("moe_intermediate_size", 1536),
    ("moe_layer_start_index", 1),
    ("moe_layer_interval", 1),
];

/// The family of a `model_type`, spelled with underscores.
pub(super) fn family(model_type: &str) -> Family {
    let moe_bias = Family {
        router_bias: Switch::On,
        ..LLAMA
    };
    match model_type {
        "llama" | "mistral" | "mixtral" | "ministral" | "ministral3" | "internlm2" | "internlm"
        | "baichuan" | "phi3" | "deepseek" | "deepseek_v2" | "granite" | "nemotron_nas" | "yi"
        | "minicpm" | "seed_oss" | "exaone" => Family {
            always_sliding: matches!(
                model_type,
                "mistral" | "mixtral" | "phi3" | "ministral" | "ministral3"
            ),
            ..LLAMA
        },
        "gpt2" | "gpt_sw3" => Family {
            defaults: GPT2,
            tied: true,
            learned_positions: true,
            ..GPT
        },
        "gpt_bigcode" => Family {
            defaults: GPT2,
            tied: true,
            learned_positions: true,
            multi_query: true,
            ..GPT
        },
        "gpt_neo" => Family {
            tied: true,
            learned_positions: true,
            qkv_bias: Switch::Off,
            ..GPT
        },
        "opt" => Family {
            tied: true,
            learned_positions: true,
            extra_positions: 2,
            ..GPT
        },
        "gptj" | "codegen" => Family {
            norms: 1,
            qkv_bias: Switch::Off,
            out_bias: Switch::Off,
            head_bias: Switch::On,
            ..GPT
        },
        "phi" | "phi_msft" | "mixformer_sequential" => Family {
            norms: 1,
            head_bias: Switch::On,
            ..GPT
        },
        "gpt_neox" => Family {
            qkv_bias: Switch::Keys(&["attention_bias"], true),
            out_bias: Switch::Keys(&["attention_bias"], true),
            ..GPT
        },
        "bloom" => Family {
            tied: true,
            embedding_norm: true,
            ..GPT
        },
        "mpt" => Family {
            norm: Norm::Weight,
            tied: true,
            qkv_bias: Switch::Not("no_bias", false),
            out_bias: Switch::Not("no_bias", false),
            mlp_bias: Switch::Not("no_bias", false),
            ..GPT
        },
        "falcon" | "refinedweb" | "refinedwebmodel" => Family {
            norms: 1,
            tied: true,
            multi_query: true,
            qkv_bias: Switch::Keys(ALL_KEYS, false),
            out_bias: Switch::Keys(ALL_KEYS, false),
            mlp_bias: Switch::Keys(ALL_KEYS, false),
            ..GPT
        },
        "starcoder2" => Family {
            tied: true,
            qkv_bias: Switch::Keys(ALL_KEYS, true),
            out_bias: Switch::Keys(ALL_KEYS, true),
            mlp_bias: Switch::Keys(ALL_KEYS, true),
            always_sliding: true,
            ..GPT
        },
        "palm" => Family {
            norms: 1,
            tied: true,
            multi_query: true,
            ..LLAMA
        },
        "orion" => Family {
            norm: Norm::WeightAndBias,
            ..LLAMA
        },
        "stablelm" => Family {
            norm: Norm::WeightAndBias,
            out_bias: Switch::Off,
            ..LLAMA
        },
        "phimoe" => Family {
            norm: Norm::WeightAndBias,
            always_sliding: true,
            ..LLAMA
        },
        "qwen" => Family {
            qkv_bias: Switch::On,
            out_bias: Switch::Off,
            ffn: Ffn::Halved,
            ..LLAMA
        },
        "qwen2" | "qwen2_vl_text" | "qwen2_5_vl_text" => Family {
            qkv_bias: Switch::On,
            out_bias: Switch::Off,
            ..LLAMA
        },
        "qwen2_moe" => Family {
            qkv_bias: Switch::Keys(&["qkv_bias"], true),
            out_bias: Switch::Off,
            shared_gate: true,
            ..LLAMA
        },
        "qwen3" | "qwen3_moe" | "qwen3_vl_text" | "qwen3_vl_moe_text" => Family {
            qk_norm: QkNorm::Head,
            defaults: &[("head_dim", 128)],
            ..LLAMA
        },
        "qwen3_next" | "qwen3_5_moe" | "qwen3_5_moe_text" | "qwen3_5" | "qwen3_5_text" => Family {
            qk_norm: QkNorm::Head,
            shared_gate: true,
            output_gate: true,
            defaults: DELTA,
            ..LLAMA
        },
        "gemma" => Family {
            tied: true,
            defaults: &[("head_dim", 256)],
            ..LLAMA
        },
        "gemma2" => Family {
            tied: true,
            norms: 4,
            sliding_period: Some(2),
            defaults: &[("head_dim", 256), ("sliding_window", 4096)],
            ..LLAMA
        },
        "gemma3" | "gemma3_text" => Family {
            tied: true,
            norms: 4,
            qk_norm: QkNorm::Head,
            sliding_period: Some(6),
            defaults: GEMMA3_TEXT,
            ..LLAMA
        },
        "gemma4" | "gemma4_text" => Family {
            tied: true,
            norms: 4,
            qk_norm: QkNorm::Head,
            dense_and_moe: true,
            router_bias: Switch::On,
            sliding_period: Some(6),
            ..LLAMA
        },
        "gemma3n" | "gemma3n_text" | "smollm3" | "lfm2" | "lfm2_moe" | "minicpm3" | "zamba" | "zamba2"
        | "mamba" | "ernie4_5" => Family { tied: true, ..LLAMA },
        "ernie4_5_moe" => Family {
            tied: true,
            router_bias: Switch::On,
            defaults: ERNIE_MOE,
            ..LLAMA
        },
        "chatglm" => Family {
            qkv_bias: Switch::Keys(&["add_qkv_bias", "add_bias_linear"], true),
            out_bias: Switch::Keys(&["add_bias_linear"], false),
            mlp_bias: Switch::Keys(&["add_bias_linear"], false),
            ..LLAMA
        },
        "glm" => Family {
            qkv_bias: Switch::Keys(&["attention_bias"], true),
            out_bias: Switch::Off,
            defaults: &[("head_dim", 128)],
            ..LLAMA
        },
        "glm4" => Family {
            norms: 4,
            qkv_bias: Switch::Keys(&["attention_bias"], false),
            out_bias: Switch::Off,
            ..LLAMA
        },
        "glm4_moe" => Family {
            out_bias: Switch::Off,
            qk_norm: QkNorm::HeadByKey,
            ..moe_bias
        },
        "cohere" => Family {
            norm: Norm::Weight,
            norms: 1,
            tied: true,
            qk_norm: QkNorm::FullByKey,
            ..LLAMA
        },
        "cohere2" => Family {
            norm: Norm::Weight,
            norms: 1,
            tied: true,
            sliding_period: Some(4),
            ..LLAMA
        },
        "olmo" => Family {
            norm: Norm::Bare,
            ..LLAMA
        },
        "olmo2" | "olmoe" => Family {
            qk_norm: QkNorm::Full,
            ..LLAMA
        },
        "olmo3" => Family {
            qk_norm: QkNorm::Full,
            sliding_period: Some(4),
            ..LLAMA
        },
        "gpt_oss" => Family {
            qkv_bias: Switch::Keys(&["attention_bias"], true),
            out_bias: Switch::Keys(&["attention_bias"], true),
            router_bias: Switch::On,
            expert_bias: true,
            sinks: true,
            sliding_period: Some(2),
            ..LLAMA
        },
        "deepseek_v3" | "deepseek_v32" | "kimi_k2" | "kimi_k25" | "glm_moe_dsa" | "deepseek_v4"
        | "bailing_moe" | "bailing_moe_v2" | "kimi_linear" | "kimi_k3" | "glm4_moe_lite" | "dots1" => {
            Family {
                qk_norm: if model_type == "dots1" {
                    QkNorm::Head
                } else {
                    QkNorm::None
                },
                ..moe_bias
            }
        }
        "pangu_ultra_moe" => Family {
            norms: 4,
            router_bias: Switch::On,
            ..LLAMA
        },
        "minimax_m2" | "minimax_m3" => Family {
            qk_norm: QkNorm::ByType,
            router_bias: Switch::Keys(&["use_routing_bias"], true),
            ..LLAMA
        },
        "mimo_v2_flash" => LLAMA,
        "step3p7" => Family {
            router_bias: Switch::Keys(&["use_moe_router_bias"], false),
            qk_norm: QkNorm::HeadByKey,
            ..LLAMA
        },
        "llama4" | "llama4_text" => Family {
            implicit_shared: true,
            defaults: LLAMA4_TEXT,
            ..LLAMA
        },
        "granitemoehybrid" => Family {
            tied: false,
            defaults: GRANITE_HYBRID,
            ..LLAMA
        },
        "nemotron_h" => Family {
            gated: false,
            norms: 1,
            router_bias: Switch::On,
            defaults: MAMBA2,
            ..LLAMA
        },
        "jamba" => Family {
            defaults: JAMBA,
            ..LLAMA
        },
        _ => Family {
            known: false,
            ..LLAMA
        },
    }
}
