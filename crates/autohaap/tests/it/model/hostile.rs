//! Wrong, cut-off and hostile model files: problems with code, key and remedy; never a panic.

use autohaap::error::Problems;
use autohaap::model::{parse, preset, preset_ids};
use proptest::prelude::*;
use serde_json::Value;

use crate::mutations::edit_tree;

fn problems(text: &str) -> Problems {
    match parse(text, "config.json") {
        Ok(input) => panic!("accepted: {:?}", input.model.atoms.len()),
        Err(problems) => problems,
    }
}

fn codes(text: &str) -> Vec<&'static str> {
    problems(text).0.iter().map(|p| p.code.id).collect()
}

const LLAMA: &str = r#"{
  "model_type": "llama",
  "num_hidden_layers": 32,
  "hidden_size": 4096,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "intermediate_size": 14336,
  "vocab_size": 128256
}"#;

#[test]
fn every_problem_is_named_at_once() {
    let text = LLAMA
        .replace("\"num_hidden_layers\": 32", "\"num_hidden_layers\": -3")
        .replace("4096", "\"4096\"")
        .replace("14336", "0")
        .replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 6");
    let found = problems(&text);
    let ids: Vec<_> = found.0.iter().map(|p| (p.code.id, p.line)).collect();
    assert!(ids.contains(&("E205", Some(3))), "{ids:?}");
    assert!(ids.contains(&("E204", Some(4))), "{ids:?}");
    assert!(
        found.0.iter().all(|p| p.line.is_some() && !p.hint.is_empty()),
        "{found}"
    );
}

#[test]
fn heads_must_fit() {
    let found = problems(&LLAMA.replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 6"));
    assert_eq!(found.0[0].code.id, "E207");
    assert!(found.0[0].message.contains("num_key_value_heads"), "{found}");
    assert!(found.0[0].hint.contains("nearest legal value: 4") || found.0[0].hint.contains("value: 8"));
    assert_eq!(found.0[0].line, Some(6));
    let text = LLAMA
        .replace("4096", "4100")
        .replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 4");
    assert_eq!(codes(&text), ["E208"]);
}

#[test]
fn missing_keys_are_listed_together() {
    assert_eq!(codes(r#"{"model_type": "llama"}"#), ["E203"; 4]);
    assert_eq!(
        codes(
            r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 9,
        "num_attention_heads": 4}"#
        ),
        ["E203"]
    );
}

#[test]
fn cut_off_files_say_where() {
    let found = problems(&LLAMA[..60]);
    assert_eq!(found.0[0].code.id, "E201");
    assert!(found.0[0].line.is_some() && found.0[0].column.is_some());
    assert_eq!(codes(""), ["E201"]);
    assert_eq!(codes("[1, 2]"), ["E202"]);
    assert_eq!(codes("{}"), ["E202"]);
    assert_eq!(codes(r#"{"add_bos_token": true}"#), ["E202"]);
    assert_eq!(codes("not a model"), ["E201"]);
}

#[test]
fn hostile_sizes_are_refused() {
    assert_eq!(codes(&"[".repeat(200_000)), ["E211"]);
    assert_eq!(codes(&format!("[{}1]", "1,".repeat(1_100_000))), ["E211"]);
    assert_eq!(codes(&" ".repeat(33 << 20)), ["E211"]);
    let text = LLAMA.replace(
        "\"num_hidden_layers\": 32",
        "\"num_hidden_layers\": 1000000000000",
    );
    assert_eq!(codes(&text), ["E205"]);
    let text = LLAMA.replace(
        "\"num_hidden_layers\": 32",
        "\"num_hidden_layers\": 99999999999999999999999",
    );
    assert_eq!(codes(&text), ["E204"]);
    assert_eq!(
        codes(
            "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 9 --num-experts 4 \
        --moe-router-topk 1 --moe-layer-freq [1]*999999999"
        ),
        ["E214"]
    );
}

#[test]
fn lists_must_match_the_layers() {
    let moe = preset("minimax-m3")
        .unwrap()
        .replace("\"num_hidden_layers\": 60", "\"num_hidden_layers\": 59");
    assert!(codes(&moe).contains(&"E206"));
    let hybrid = preset("granite-4.0-h-small")
        .unwrap()
        .replacen("mamba", "mambo", 1);
    let found = problems(&hybrid);
    assert_eq!(found.0[0].code.id, "E210");
    assert!(found.0[0].hint.contains("mamba"));
    let kimi =
        preset("kimi-k3")
            .unwrap()
            .replacen("\"full_attn_layers\": [4,", "\"full_attn_layers\": [0,", 1);
    assert!(codes(&kimi).contains(&"E205"));
}

#[test]
fn non_finite_numbers_pass_only_in_unused_keys() {
    assert!(preset("nemotron-h-56b").unwrap().contains("Infinity"));
    let text = LLAMA.replace("128256", "NaN");
    let found = problems(&text);
    assert_eq!(found.0[0].code.id, "E204");
    assert!(found.0[0].message.contains("NaN"), "{found}");
    let odd = LLAMA.replace(
        "\"llama\",",
        "\"llama\", \"limits\": [-Infinity, Infinity, NaN], \"Infinity\": \"NaN\",",
    );
    assert_eq!(parse(&odd, "x").unwrap().ignored_keys, ["Infinity", "limits"]);
}

#[test]
fn unknown_families_are_read_with_remarks() {
    let text = LLAMA.replace("\"llama\"", "\"brand-new\", \"flux_capacity\": 7");
    let input = parse(&text, "config.json").unwrap();
    assert_eq!(input.ignored_keys, ["flux_capacity"]);
    assert!(
        input.notes.iter().any(|n| n.contains("brand_new")),
        "{:?}",
        input.notes
    );
    assert_eq!(
        codes(r#"{"model_type": "t5", "is_encoder_decoder": true, "d_model": 512}"#),
        ["E213"]
    );
}

#[test]
fn every_format_reads() {
    let meta = r#"{"dim": 4096, "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "n_heads": 32, "n_kv_heads": 8,
        "n_layers": 32, "norm_eps": 1e-05, "vocab_size": 128256}"#;
    assert_eq!(
        parse(meta, "params.json").unwrap().model.parameters_total(),
        8_030_261_248
    );
    let args = "#!/bin/bash\nGPT_ARGS=\"--num-layers 32 --hidden-size=4096 \\\n --num-attention-heads 32 --swiglu \\\n \
        --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8 --vocab-size 128256 \
        --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \
        --untie-embeddings-and-output-weights --max-position-embeddings 8192\"\n";
    assert_eq!(
        parse(args, "train.sh").unwrap().model.parameters_total(),
        8_030_261_248
    );
    let wrong = args.replace("--num-query-groups 8", "--num-query-groups 6");
    let found = problems(&wrong);
    assert_eq!((found.0[0].code.id, found.0[0].line), ("E207", Some(4)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_configurations_never_panic(at in 0_usize..1000, picks in prop::collection::vec(any::<u32>(), 1..24)) {
        let ids: Vec<&str> = preset_ids().collect();
        let text = preset(ids[at % ids.len()]).unwrap().replace("Infinity", "1");
        if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
            let mut picks = picks.into_iter();
            for _ in 0..6 {
                edit_tree(&mut value, &mut picks);
            }
            if let Ok(input) = parse(&value.to_string(), "mutated.json") {
                let _ = input.summary();
            }
        }
    }

    #[test]
    fn damaged_texts_never_panic(at in 0_usize..1000, cut in 0_usize..4000, insert in "\\PC{0,8}") {
        let ids: Vec<&str> = preset_ids().collect();
        let text = preset(ids[at % ids.len()]).unwrap();
        let mut cut = cut % text.len();
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let _ = parse(&text[..cut], "cut.json");
        let _ = parse(&format!("{}{insert}{}", &text[..cut], &text[cut..]), "inserted.json");
    }

    #[test]
    fn argument_lists_never_panic(words in prop::collection::vec("(--)?[a-z=\\-]{0,12}|[0-9]{1,20}|\\PC{0,4}", 0..40)) {
        let base = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 ";
        let _ = parse(&format!("{base}{}", words.join(" ")), "train.sh");
        let _ = parse(&format!("{base}--num-experts 4 --moe-router-topk 2 --moe-layer-freq {}", words.concat()), "x");
    }
}
