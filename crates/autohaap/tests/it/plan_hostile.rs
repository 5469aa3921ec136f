//! Changed plan files: nothing panics, and no change of structure goes unnoticed.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::plan::{Plan, advise, check, conservation};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use crate::mutations::{change, odd_values, pointers};
use crate::plan::{asymmetric, predicted};

/// Counts at the ends of what the readers' number types hold.
const EXTREMES: [u64; 8] = [0, 7, 65_535, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 53, u64::MAX];

fn tree() -> Value {
    serde_json::from_str(&predicted(asymmetric()).to_json()).expect("own output")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_files_never_panic(
        changes in prop::collection::vec((any::<Index>(), 0_u8..6, odd_values()), 1..4)
    ) {
        let mut tree = tree();
        for (at, how, value) in changes {
            change(&mut tree, at, how, value);
        }
        match Plan::from_json(&tree.to_string(), "plan.json") {
            Ok(plan) => {
                let _ = (check(&plan), advise(&plan), conservation(&plan), plan.new_id());
                let text = plan.to_json();
                if let Ok(again) = Plan::from_json(&text, "plan.json") {
                    prop_assert_eq!(again.to_json(), text);
                }
            }
            Err(problems) => prop_assert!(!problems.is_empty()),
        }
    }

    #[test]
    fn cut_texts_never_panic(end in any::<Index>()) {
        let text = predicted(asymmetric()).to_json();
        let mut end = end.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(Plan::from_json(&text[..end.min(text.len() - 2)], "plan.json").is_err());
    }

    #[test]
    fn changed_coverage_is_flagged(
        pipeline in 0_usize..2, stage in any::<Index>(), end in 0_usize..2, by in -3_i64..4, drop in any::<bool>()
    ) {
        let mut plan = asymmetric();
        let stages = &mut plan.pipelines[pipeline].stages;
        let stage = stage.index(stages.len());
        if drop {
            stages.remove(stage);
        } else {
            let atom = &mut stages[stage].atoms[end];
            let moved = usize::try_from(i64::try_from(*atom).expect("small") + by);
            prop_assume!(by != 0 && moved.is_ok());
            *atom = moved.expect("assumed");
        }
        let found = check(&plan);
        prop_assert!(found.iter().any(|v| v.code.id == "E411"), "{:?}", found);
        prop_assert!(!conservation(&plan).holds);
    }

    #[test]
    fn changed_shares_are_flagged(pipeline in 0_usize..2, which in 0_u8..4, by in 1_u32..5) {
        let mut plan = asymmetric();
        let target = &mut plan.pipelines[pipeline];
        match which {
            0 => target.micro_batch += by,
            1 => target.micro_batches += by,
            2 => target.stages[0].replicas[0].rows += by,
            _ => plan.training.global_batch += u64::from(by),
        }
        prop_assert!(!check(&plan).is_empty());
        prop_assert!(!conservation(&plan).holds);
    }
}

/// No arithmetic overflows: every number of a plan at the ends of its type, alone and in pairs of neighbours.
#[test]
fn extreme_numbers_never_panic() {
    let whole = tree();
    let mut all = Vec::new();
    pointers(&whole, "", &mut all);
    let numbers: Vec<&String> = all
        .iter()
        .filter(|at| at.starts_with("/pipelines") || at.starts_with("/training") || at.starts_with("/model"))
        .filter(|at| whole.pointer(at).is_some_and(Value::is_u64))
        .collect();
    assert!(numbers.len() > 100, "{}", numbers.len());
    let mut read = 0;
    for (i, at) in numbers.iter().enumerate() {
        for value in EXTREMES {
            for neighbour in [None, numbers.get(i + 1)] {
                let mut tree = whole.clone();
                for at in std::iter::once(at).chain(neighbour) {
                    *tree.pointer_mut(at).expect("its own pointer") = Value::from(value);
                }
                let Ok(plan) = Plan::from_json(&tree.to_string(), "plan.json") else {
                    continue;
                };
                read += 1;
                let _ = (check(&plan), advise(&plan), conservation(&plan));
                let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
                let _ = price(&setting, &plan.pipelines, &mut Cache::default());
            }
        }
    }
    assert!(read > 1000, "{read} plans were read");
}
