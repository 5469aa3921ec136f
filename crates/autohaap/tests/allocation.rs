//! No input makes the library allocate without bound: the hostile inputs of the other tests under a counting allocator.
//!
//! A file of its own, since the allocator is the whole process's.

use autohaap::cluster::{init_text, parse_cluster};
use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::model::{parse, preset, preset_ids};
use autohaap::plan::{Plan, advise, check, conservation};
use autohaap::report::{check_screen, estimate_screen, model_screen};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

#[path = "it/mutations.rs"]
mod mutations;
#[allow(dead_code, unreachable_pub)]
#[path = "it/plan.rs"]
mod plan;

use mutations::{SHORTHAND, change, edit_text, edit_tree, odd_char, odd_values};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that one input may take on top of what was there.
const LIMIT: usize = 200_000_000;

/// Runs `read` and returns the most bytes it held at a time. Tests that run beside it in the same process only add.
fn most(read: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    read();
    ALLOCATOR.peak_usage().saturating_sub(before)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn models(at in any::<Index>(), picks in prop::collection::vec(any::<u32>(), 1..24), cut in any::<Index>()) {
        let ids: Vec<&str> = preset_ids().collect();
        let text = preset(ids[at.index(ids.len())]).unwrap().replace("Infinity", "1");
        if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
            let mut picks = picks.into_iter();
            for _ in 0..6 {
                edit_tree(&mut value, &mut picks);
            }
            let changed = value.to_string();
            let used = most(|| {
                if let Ok(input) = parse(&changed, "changed.json") {
                    let _ = (input.summary(), model_screen(&input));
                }
            });
            prop_assert!(used < LIMIT, "{used} bytes for {changed}");
        }
        let mut end = cut.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let used = most(|| drop(parse(&text[..end], "cut.json")));
        prop_assert!(used < LIMIT, "{used} bytes for the first {end} of {}", ids[at.index(ids.len())]);
    }

    #[test]
    fn clusters(
        edits in prop::collection::vec((0_usize..4000, any::<u8>(), odd_char()), 0..8), short in any::<bool>()
    ) {
        let text = if short {
            edit_text(SHORTHAND, &edits)
        } else {
            edit_text(&init_text("mixed"), &edits)
        };
        let used = most(|| {
            if let Ok(cluster) = parse_cluster(&text, "t") {
                let _ = (cluster.classes(), cluster.digest());
            }
        });
        prop_assert!(used < LIMIT, "{used} bytes for {text}");
    }

    #[test]
    fn plans(changes in prop::collection::vec((any::<Index>(), 0_u8..6, odd_values()), 1..4)) {
        let own = plan::predicted(plan::asymmetric()).to_json();
        let mut tree: Value = serde_json::from_str(&own).expect("own output");
        for (at, how, value) in changes {
            change(&mut tree, at, how, value);
        }
        let text = tree.to_string();
        let used = most(|| {
            let Ok(plan) = Plan::from_json(&text, "plan.json") else { return };
            let violations = check(&plan);
            let _ = (advise(&plan), conservation(&plan), check_screen(&plan, &violations, &[]));
            let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
            if let Ok((prediction, _)) = price(&setting, &plan.pipelines, &mut Cache::default()) {
                let _ = estimate_screen(&plan, &prediction, violations.len());
            }
        });
        prop_assert!(used < LIMIT, "{used} bytes for {text}");
    }
}

#[test]
fn counts_that_ask_for_everything() {
    let model = r#"{"model_type": "llama", "num_hidden_layers": 1000000000000, "hidden_size": 4096,
        "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 128256}"#;
    let layers = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 9 --num-experts 4 \
        --moe-router-topk 1 --moe-layer-freq [1]*999999999";
    let nodes = "[[nodes]]\nname = \"a\"\ncount = 100000\ndevices = [{ type = \"A100\", count = 100000 }]\n";
    let nested = "[".repeat(200_000);
    for (name, used) in [
        ("layers", most(|| drop(parse(model, "config.json")))),
        ("pattern", most(|| drop(parse(layers, "train.sh")))),
        ("nesting", most(|| drop(parse(&nested, "config.json")))),
        ("nodes", most(|| drop(parse_cluster(nodes, "cluster.toml")))),
        (
            "the largest shorthand",
            most(|| drop(parse_cluster("12500x8 A100 @ ib:8x200Gb", "t"))),
        ),
        (
            "a nested plan",
            most(|| drop(Plan::from_json(&nested, "plan.json"))),
        ),
    ] {
        assert!(used < LIMIT, "{name}: {used} bytes");
    }
}

#[test]
fn the_allocator_counts() {
    let used = most(|| drop(vec![1_u8; 64 << 20]));
    assert!(used >= 64 << 20, "{used} bytes");
}
