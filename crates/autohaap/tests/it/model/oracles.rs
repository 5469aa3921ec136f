//! Parameter and FLOP counts that public tools print for the same inputs.

use autohaap::model::{Atom, AtomKind, Causal, Model, parse};

fn model(json: &str) -> Model {
    parse(json, "oracle.json")
        .unwrap_or_else(|problems| panic!("{problems}"))
        .model
}

/// Megatron-LM `theoretical_memory_usage.py`: an object of its argument names.
fn llama2(layers: u64, hidden: u64, heads: u64, groups: u64, ffn: u64) -> Model {
    model(&format!(
        r#"{{"num_layers":{layers},"hidden_size":{hidden},"num_attention_heads":{heads},"kv_channels":128,
        "num_query_groups":{groups},"ffn_hidden_size":{ffn},"swiglu":true,"normalization":"RMSNorm",
        "padded_vocab_size":32000,"untie_embeddings_and_output_weights":true,"add_bias_linear":false,
        "mtp_num_layers":null,"multi_latent_attention":false}}"#
    ))
}

fn gpt22b() -> Model {
    model(
        r#"{"num_layers":48,"hidden_size":6144,"num_attention_heads":64,"kv_channels":96,"num_query_groups":64,
        "ffn_hidden_size":24576,"swiglu":false,"normalization":"LayerNorm","padded_vocab_size":51200,
        "untie_embeddings_and_output_weights":false,"add_bias_linear":false}"#,
    )
}

const DEEPSEEK_V3: &str = "--num-layers 61 --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 \\
    --swiglu --normalization RMSNorm --vocab-size 129280 --untie-embeddings-and-output-weights \\
    --disable-bias-linear --num-experts 256 --multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536 \\
    --moe-ffn-hidden-size 2048 --moe-layer-freq ([0]*3+[1]*58) --moe-router-topk 8 \\
    --moe-shared-expert-intermediate-size 2048 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \\
    --position-embedding-type rope";

fn close(found: f64, wanted: f64, tolerance: f64) {
    assert!(
        (found / wanted - 1.0).abs() <= tolerance,
        "{found} against {wanted}"
    );
}

#[test]
fn megatron_parameters() {
    // O013, O016, O022, O025
    assert_eq!(llama2(32, 4096, 32, 32, 11008).parameters_total(), 6_738_415_616);
    assert_eq!(llama2(80, 8192, 64, 8, 28672).parameters_total(), 68_976_648_192);
    assert_eq!(gpt22b().parameters_total(), 22_059_036_672);
    // O034, O035
    let deepseek = parse(DEEPSEEK_V3, "deepseek.args").unwrap().model;
    assert_eq!(deepseek.parameters_total(), 671_026_404_352);
    assert_eq!(deepseek.parameters_active(), 37_552_282_624);
}

#[test]
fn llm_analysis_parameters_and_full_square_flops() {
    let text = |layers: u64, hidden: u64, heads: u64, kv: u64, ffn: u64, gated: bool, vocab: u64| {
        model(&format!(
            r#"{{"num_layers":{layers},"hidden_size":{hidden},"num_attention_heads":{heads},"num_query_groups":{kv},
            "ffn_hidden_size":{ffn},"swiglu":{gated},"normalization":"RMSNorm","padded_vocab_size":{vocab},
            "untie_embeddings_and_output_weights":false,"add_bias_linear":false}}"#
        ))
    };
    let s = 2048;
    let gpt = text(48, 6144, 64, 64, 24576, false, 51200);
    let forward = |m: &Model, s: u64| m.flops_forward_per_token(s, Causal::Full).get() * s as f64;
    // O083, O084, O085
    close(forward(&gpt, s), 95_296_734_363_648.0, 1e-9);
    close(
        gpt.atoms[1].flops_by_class(s, Causal::Full).total().get() * s as f64,
        1_958_505_086_976.0,
        1e-9,
    );
    assert_eq!(gpt.parameters_total(), 22_058_440_704);
    // O088: O086 and O087 are FLOPs of the same model
    let llama = text(80, 8192, 64, 8, 28672, true, 32000);
    assert_eq!(llama.parameters_total(), 68_714_504_192);
    let layer = 2.0 * (2.0 * 8192.0 * 8192.0 + 2.0 * 8192.0 * 1024.0 + 3.0 * 8192.0 * 28672.0);
    let total = 4096.0 * (80.0 * (layer + 4.0 * 4096.0 * 8192.0) + 2.0 * 8192.0 * 32000.0);
    close(forward(&llama, 4096), total, 1e-9);
}

#[test]
fn megatron_training_flops() {
    let trained = |m: &Model, s: u64| {
        let atom = |a: &Atom| {
            a.flops_forward_per_token(s) + a.flops_weight_grad_per_token(s) + a.flops_input_grad_per_token(s)
        };
        m.atoms.iter().map(|a| atom(a).get()).sum::<f64>() * s as f64
    };
    // O093, O094
    close(
        trained(&llama2(32, 4096, 32, 32, 11008), 4096),
        175_569_673_125_888.0,
        1e-9,
    );
    close(
        trained(&llama2(80, 8192, 64, 8, 28672), 4096),
        1_754_665_939_107_840.0,
        1e-9,
    );
    // O096: the tool leaves out the router and counts the latent norms as products.
    let deepseek = parse(DEEPSEEK_V3, "deepseek.args").unwrap().model;
    let routers = deepseek.atoms.iter().filter(|a| a.kind == AtomKind::Moe).count() as f64;
    let router = 3.0 * 2.0 * 7168.0 * 256.0 * 4096.0 * routers;
    close(trained(&deepseek, 4096) - router, 1_023_230_173_249_536.0, 1e-5);
}

#[test]
fn windows_meet_the_causal_half() {
    let text = |window: &str| {
        format!(
            r#"{{"model_type":"mistral","num_hidden_layers":2,"hidden_size":1024,"num_attention_heads":8,
            "intermediate_size":4096,"vocab_size":1000,"sliding_window":{window}}}"#
        )
    };
    let core = |window: &str, s: u64| {
        model(&text(window)).atoms[1]
            .flops_by_class(s, Causal::Halved)
            .attention
            .get()
    };
    assert_eq!(core("null", 1024), 4.0 * 512.0 * 1024.0);
    assert_eq!(core("1024", 1024), core("null", 1024));
    assert_eq!(core("4096", 1024), core("null", 1024));
    // Mean keys of a window of 256 in 1024: 256 - 256²/2048 = 224.
    assert_eq!(core("256", 1024), 4.0 * 224.0 * 1024.0);
}
