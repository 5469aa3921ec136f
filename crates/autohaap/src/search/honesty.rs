//! The bounds of the search never lie above the optimum of brute force, and each relaxation they make is needed.

use super::bound::{self, Prover, Relaxation};
use super::brute;
use super::space::Space;
use super::table::Table;
use crate::cost::atom::Setting;
use crate::plan::Training;

#[path = "../../tests/it/search_generator.rs"]
#[allow(dead_code, unreachable_pub)]
mod search_generator;

use search_generator::{Instance, instance};

/// Plans that brute force may price; larger instances are left out.
const PLANS: u64 = 5_000;

/// Calls `visit` with the table, the counts and the optimum (infinite if no plan fits) of random instances.
fn each(seeds: std::ops::Range<u64>, mut visit: impl FnMut(&Instance, &Table<'_>, &[u32], f64)) -> u32 {
    let mut visited = 0;
    for seed in seeds {
        let problem = instance(seed);
        let training = Training {
            zero: problem.options.zero[0],
            ..problem.training.clone()
        };
        let setting = Setting::new(&problem.model, &problem.cluster, &training);
        let space = Space::new(&setting, problem.options.max_micro_batch);
        let table = Table::new(&space);
        let counts = space.counts();
        let all = brute::enumerate(&table, &counts, PLANS, &|| false);
        if all.complete {
            visited += 1;
            visit(
                &problem,
                &table,
                &counts,
                all.best.map_or(f64::INFINITY, |b| b.step),
            );
        }
    }
    visited
}

/// Prices of several slopes.
fn prices(table: &Table<'_>, counts: &[u32]) -> Vec<Vec<f64>> {
    let mut all = bound::price_guesses(table, counts);
    all.push(vec![1.0; counts.len()]);
    for dear in 0..counts.len() {
        all.push(
            (0..counts.len())
                .map(|c| if c == dear { 1.0 } else { 0.2 })
                .collect(),
        );
    }
    all
}

/// Instances whose optimum, or a longer time, a bound refutes.
fn refuted(relaxation: Relaxation) -> (u32, u32, Vec<String>) {
    let (mut feasible, mut tight) = (0, 0);
    let mut wrong = Vec::new();
    each(1..400, |problem, table, counts, optimum| {
        if optimum.is_infinite() {
            return;
        }
        feasible += 1;
        let prices = prices(table, counts);
        let mut prover = Prover::new(relaxation, table, counts, None);
        let mut refutes = |time: f64| {
            prices.iter().any(|p| prover.holds(p, time, 1 << 24, &|| false))
                || prover.refutes(time, &mut (1 << 18), &|| false)
        };
        tight += u32::from(refutes(optimum * 0.9));
        for above in [1.5, 1.1, 1.01, 1.0 + 1e-9] {
            if refutes(optimum * above) {
                wrong.push(format!(
                    "{} refuted at {above} of the optimum",
                    problem.describe()
                ));
                break;
            }
        }
    });
    (feasible, tight, wrong)
}

#[test]
fn duality_bound_never_exceeds_the_optimum() {
    let (feasible, tight, wrong) = refuted(Relaxation::FULL);
    assert!(
        wrong.is_empty(),
        "{} of {feasible}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        feasible >= 200 && tight >= feasible / 20,
        "{feasible} feasible, 0.9 of the optimum refuted in {tight}"
    );
}

#[test]
fn capacity_bound_never_exceeds_the_optimum() {
    let visited = each(1..600, |problem, table, counts, optimum| {
        let floor = bound::capacity(table, counts);
        assert!(
            floor > 0.0 && floor <= optimum,
            "{}: capacity {floor}, optimum {optimum}",
            problem.describe()
        );
    });
    assert!(visited >= 400, "{visited} instances");
}

/// Controls: what looks like a bound and is none.
#[test]
fn bounds_without_a_relaxation_fail() {
    let full = Relaxation::FULL;
    for (name, less) in [
        ("depth 1", Relaxation { depth: false, ..full }),
        (
            "one label a state",
            Relaxation {
                labels: false,
                ..full
            },
        ),
        (
            "own holders",
            Relaxation {
                holders: false,
                ..full
            },
        ),
    ] {
        let (feasible, _, wrong) = refuted(less);
        assert!(!wrong.is_empty(), "{name}: right in all of {feasible}");
    }
}
