//! Every preset reads, and its counts equal the reference.

mod hostile;
mod oracles;

use autohaap::model::{AtomKind, ModelInput, parse, preset, preset_ids, unknown_preset};

fn read(id: &str) -> ModelInput {
    let text = preset(id).unwrap_or_else(|| panic!("{}", unknown_preset(id).message));
    parse(text, id).unwrap_or_else(|problems| panic!("{id}: {problems}"))
}

#[test]
fn every_preset_reads() {
    assert!(preset_ids().len() >= 80);
    for id in preset_ids() {
        let input = read(id);
        assert_eq!(input.model.name, id);
        assert!(input.model.parameters_total() > 100_000_000, "{id}");
        let summary = input.summary();
        assert_eq!(
            summary.atoms.iter().map(|r| r.count).sum::<usize>(),
            input.model.atoms.len()
        );
        assert_eq!(input.model.digest().len(), 16);
    }
}

#[test]
fn counts_equal_the_reference() {
    let mut failures = Vec::new();
    let mut rows = 0;
    for line in include_str!("../../../../data/models/expected.csv")
        .lines()
        .skip(1)
    {
        let cells: Vec<&str> = line.split(',').collect();
        let model = read(cells[0]).model;
        rows += 1;
        let tolerance = if cells[3] == "approx" { 0.005 } else { 0.0 };
        let pairs = [
            ("total", cells[1], model.parameters_total()),
            ("active", cells[2], model.parameters_active()),
        ];
        for (what, wanted, found) in pairs {
            if wanted.is_empty() {
                continue;
            }
            let wanted: u64 = wanted.parse().unwrap();
            let off = (found as f64 - wanted as f64).abs() / wanted as f64;
            if off > tolerance {
                let delta = i128::from(found) - i128::from(wanted);
                failures.push(format!(
                    "{}: {what} {found}, reference {wanted}, difference {delta}",
                    cells[0]
                ));
            }
        }
    }
    assert!(rows >= 75);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn uncounted_presets_meet_their_published_size() {
    // Billions of parameters as published, total and active.
    let published = [
        ("qwen3.5-397b-a17b", 397.0, 17.0),
        ("nemotron-h-56b", 56.0, 56.0),
        ("nemotron-3-nano-30b-a3b", 31.6, 3.5),
        ("llama-3.3-nemotron-super-49b", 49.9, 49.9),
        ("granite-4.0-h-small", 32.2, 9.0),
        ("gemma-4-26b-a4b", 25.8, 3.8),
        ("deepseek-v4-flash", 284.0, 13.0),
        ("kimi-k2", 1026.0, 32.0),
        ("glm-5", 744.0, 40.0),
        ("gpt-oss-20b", 20.9, 3.6),
    ];
    for (id, total, active) in published {
        let model = read(id).model;
        let (t, a) = (
            model.parameters_total() as f64 / 1e9,
            model.parameters_active() as f64 / 1e9,
        );
        assert!((t / total - 1.0).abs() < 0.03, "{id}: {t} against {total}");
        assert!(
            (a / active - 1.0).abs() < 0.20,
            "{id}: {a} active against {active}"
        );
    }
}

#[test]
fn well_known_counts() {
    assert_eq!(read("llama-3.1-8b").model.parameters_total(), 8_030_261_248);
    assert_eq!(read("gpt2-xl").model.parameters_total(), 1_557_611_200);
    assert_eq!(read("llama-2-13b").model.parameters_total(), 13_015_864_320);
    assert_eq!(read("qwen2.5-7b").model.parameters_total(), 7_615_616_512);
    assert_eq!(read("qwen2.5-1.5b").model.parameters_total(), 1_543_714_304);
}

#[test]
fn activations_of_a_gated_layer_and_the_head() {
    let model = read("llama-3.1-8b").model;
    let layer = model.atoms[1].parts().activation_bytes_per_token(2.0).get() * 4096.0;
    assert_eq!(layer / (1 << 20) as f64, 544.5);
    let head = model
        .atoms
        .last()
        .unwrap()
        .parts()
        .activation_bytes_per_token(2.0)
        .get();
    assert_eq!(head, 4.0 * 128_256.0 + 4.0 * 4096.0);
    assert_eq!(model.atoms[1].boundary_bytes_per_token().get(), 8192.0);
}

#[test]
fn activations_of_an_expert_layer() {
    let model = read("mixtral-8x7b").model;
    let (h, a, k, d, f, e, active) = (4096.0, 32.0, 8.0, 128.0, 14336.0, 8.0, 2.0);
    let attention = 8.0 * h + 2.0 * (a + 2.0 * k) * d + 2.0 * a * d + 4.0 * a;
    let experts = active * (2.0 * h + 4.0 * f + 2.0 * f + 2.0 * h) + 4.0 * e;
    assert_eq!(
        model.atoms[1].parts().activation_bytes_per_token(2.0).get(),
        attention + experts
    );
}

#[test]
fn layers_of_hybrids_differ() {
    let kinds = |id: &str| {
        let model = read(id).model;
        let count = |k| model.atoms.iter().filter(|a| a.kind == k).count();
        [AtomKind::Dense, AtomKind::Moe, AtomKind::Scan, AtomKind::Mtp].map(count)
    };
    assert_eq!(kinds("deepseek-v3"), [3, 58, 0, 1]);
    assert_eq!(kinds("llama-4-maverick"), [24, 24, 0, 0]);
    assert_eq!(kinds("granite-4.0-h-small"), [0, 4, 36, 0]);
    assert_eq!(kinds("nemotron-h-56b"), [64, 0, 54, 0]);
    assert_eq!(kinds("qwen3.5-397b-a17b"), [0, 15, 45, 1]);
    assert_eq!(kinds("minimax-m3"), [3, 57, 0, 1]);
    assert_eq!(kinds("kimi-k3"), [0, 24, 69, 0]);
}

#[test]
fn tensor_parallel_limits() {
    let parts = read("falcon-7b").model.atoms[1].parts();
    assert!(parts.tp_divides.contains(&("heads", 71)));
    assert_eq!(parts.kv_heads, 1);
    let parts = read("deepseek-v3").model.atoms[10].parts();
    assert_eq!(
        (parts.experts, parts.expert_width, parts.kv_heads),
        (256, 2048, 0)
    );
    assert_eq!(parts.dispatch_elements_per_token, 8 * 7168);
}

#[test]
fn what_the_file_does_not_say_is_reported() {
    let input = read("minimax-m3");
    assert!(
        input.notes.iter().any(|n| n.contains("num_mtp_modules")),
        "{:?}",
        input.notes
    );
    let input = read("qwen3.5-397b-a17b");
    assert!(input.notes.iter().any(|n| n.contains("vision_config")));
    let input = read("gemma-2b");
    assert!(input.model.tied);
    assert!(
        input
            .defaults
            .iter()
            .any(|(k, v)| k == "tie_word_embeddings" && v == "true")
    );
}
/// Mamba mixers, attention every eighth layer, experts every second.
#[test]
fn jamba_meets_its_published_size() {
    let text = r#"{"model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 65536, "attn_layer_offset": 4,
        "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2, "num_experts": 16,
        "num_experts_per_tok": 2, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2,
        "mamba_conv_bias": true, "mamba_proj_bias": false, "tie_word_embeddings": false}"#;
    let model = parse(text, "jamba.json").unwrap().model;
    assert_eq!(model.parameters_total(), 51_570_323_328);
    assert_eq!(
        model.atoms.iter().filter(|a| a.kind == AtomKind::Scan).count(),
        28
    );
}

/// A file that leaves most of its text part to the class.
#[test]
fn sparse_text_parts_take_class_defaults() {
    let text = r#"{"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152}}"#;
    let input = parse(text, "gemma-3-4b/config.json").unwrap();
    assert_eq!(
        (input.model.name.as_str(), input.model.atoms.len()),
        ("gemma-3-4b", 36)
    );
    assert_eq!(input.model.parameters_total(), 3_880_263_168);
    let key = |k: &str| input.defaults.iter().any(|(name, _)| name == k);
    assert!(
        key("text_config.vocab_size") && key("text_config.num_key_value_heads"),
        "{:?}",
        input.defaults
    );
}

/// Keys of families without a preset, against the sizes of their published checkpoints.
#[test]
fn odd_keys_of_further_families() {
    let total = |text: &str| {
        parse(text, "config.json")
            .unwrap_or_else(|p| panic!("{p}"))
            .model
            .parameters_total()
    };
    let chatglm = r#"{"model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "num_attention_heads": 32,
        "ffn_hidden_size": 13696, "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2,
        "padded_vocab_size": 65024, "add_qkv_bias": true, "add_bias_linear": false, "rmsnorm": true}"#;
    assert_eq!(total(chatglm), 6_243_584_000);
    let qwen_moe = r#"{"model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632, "vocab_size": 151936,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
        "num_experts_per_tok": 4, "decoder_sparse_step": 1, "tie_word_embeddings": false}"#;
    assert_eq!(total(qwen_moe), 14_315_784_192);
    let v2_lite = r#"{"model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944, "vocab_size": 102400,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": null, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}"#;
    assert_eq!(total(v2_lite), 15_706_484_224);
    let opt = r#"{"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 32,
        "ffn_dim": 8192, "vocab_size": 50272, "max_position_embeddings": 2048}"#;
    assert_eq!(total(opt), 1_315_758_080);
    let starcoder = r#"{"model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "n_inner": 24576,
        "n_positions": 8192, "vocab_size": 49152, "multi_query": true}"#;
    assert_eq!(total(starcoder), 15_517_456_384);
}
