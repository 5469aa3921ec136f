//! The largest time that the duality bound refutes.

use super::bound::{Prover, Relaxation};
use super::table::Table;

/// Ratio of neighbouring times at which the duality bound is asked.
const GRID: f64 = 1.01;

/// Times asked at most.
const TIMES: u32 = 6;

/// Label steps of one refutation: about half a second; twice as many on small clusters.
const REFUTE_WORK: u64 = 25_000_000;

/// Label steps in all.
const WORK: u64 = 100_000_000;

/// Raises the lower bound by refuting times between it and the step.
pub(super) fn tighten(
    tables: &[Table<'_>],
    counts: &[u32],
    duals: &[Option<Vec<f64>>],
    [floor, step]: [f64; 2],
    gap: Option<f64>,
    stop: &(dyn Fn() -> bool + Sync),
) -> f64 {
    // Times asked about lie on one grid for all problems, so that a bound does not depend on the plan found.
    let at = |k: i32| GRID.powi(k);
    // The capacity bound is zero where its LP fails.
    let mut low = (floor.max(step * 1e-3).ln() / GRID.ln()).floor() as i32;
    let mut high = (step.ln() / GRID.ln()).ceil() as i32;
    let mut bound = floor;
    // Any prices are valid. In proportion to the speed of each class on this model they ignore fill and memory; those of
    // the LPs that the search could not bring to the batch know about them.
    let mut provers: Vec<Prover<'_, '_>> = tables
        .iter()
        .enumerate()
        .map(|(i, table)| {
            let dual = duals.get(i).and_then(Option::as_ref);
            Prover::new(Relaxation::FULL, table, counts, dual)
        })
        .collect();
    let mut left = WORK;
    for _ in 0..TIMES {
        if high - low <= 1 || left == 0 || stop() || gap.is_some_and(|g| 1.0 - bound / step <= g) {
            break;
        }
        let middle = i32::midpoint(low, high);
        let refuted = provers.iter_mut().all(|prover| {
            let small = prover.tells_whole_pipelines();
            let allowed = (REFUTE_WORK * if small { 2 } else { 1 }).min(left);
            let mut unused = allowed;
            let refuted = prover.refutes(at(middle), &mut unused, stop);
            left -= allowed - unused;
            refuted
        });
        if refuted {
            low = middle;
            bound = bound.max(at(middle));
        } else {
            high = middle;
        }
    }
    bound
}
