//! The capacity bound: how fast the devices could do all the work if they shared it freely.
//!
//! With `x(c, a)` the sequences of atom `a` computed by class `c` and `p(c, a)` its least device-seconds per sequence:
//!
//! ```text
//! T >= min T  s.t.  sum_c x(c, a) = batch for every atom a,   sum_a p(c, a) x(c, a) <= count_c T
//! ```
//!
//! Identical atoms share one row. The bound ignores memory, links, fill and gradient reduction: it only relaxes.

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use crate::search::table::Table;

/// The capacity bound, seconds; 0 if the LP fails.
pub(crate) fn capacity(table: &Table<'_>, counts: &[u32]) -> f64 {
    let space = table.space;
    let batch = space.setting.training.global_batch as f64;
    let num_atoms = space.setting.model.atoms.len();
    let mut multiplicity = vec![0.0; num_atoms];
    for &twin in &space.twin {
        multiplicity[twin] += 1.0;
    }
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let time = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut load: Vec<Vec<(microlp::Variable, f64)>> = vec![Vec::new(); counts.len()];
    for atom in (0..num_atoms).filter(|&a| space.twin[a] == a) {
        let mut shares = Vec::new();
        for (class, _) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let least = space
                .micro_batches
                .iter()
                .flat_map(|&b| table.of_size(b))
                .filter(|r| r.option.class == class && r.option.devices() <= counts[class])
                .map(|r| {
                    r.least_compute(atom, atom + 1) * f64::from(r.option.devices()) / f64::from(r.micro_batch)
                })
                .fold(f64::INFINITY, f64::min);
            if least.is_finite() {
                let share = problem.add_var(0.0, (0.0, f64::INFINITY));
                shares.push((share, 1.0));
                load[class].push((share, least * multiplicity[atom] * batch));
            }
        }
        problem.add_constraint(shares.as_slice(), ComparisonOp::Ge, 1.0);
    }
    for (class, terms) in load.iter_mut().enumerate() {
        if !terms.is_empty() {
            terms.push((time, -f64::from(counts[class])));
            problem.add_constraint(terms.as_slice(), ComparisonOp::Le, 0.0);
        }
    }
    // The LP answers to about 1e-8; stay on the safe side of it.
    problem
        .solve()
        .ok()
        .and_then(|s| s.into_solution().ok())
        .map_or(0.0, |s| s[time] * (1.0 - 1e-6))
}

/// Prices worth trying: per class in proportion to the sequences a device finishes of the whole model, alone.
pub(crate) fn price_guesses(table: &Table<'_>, counts: &[u32]) -> Vec<Vec<f64>> {
    let space = table.space;
    let num_atoms = space.setting.model.atoms.len();
    let speed = |class: usize| {
        space
            .micro_batches
            .iter()
            .flat_map(|&b| table.of_size(b))
            .filter(|r| r.option.class == class && r.option.devices() <= counts[class])
            .map(|r| f64::from(r.micro_batch) / (r.compute(0, num_atoms) * f64::from(r.option.devices())))
            .fold(0.0, f64::max)
    };
    vec![(0..counts.len()).map(speed).collect()]
}
