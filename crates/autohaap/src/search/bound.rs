//! Proven lower bounds on the step time of any plan of the space.
//!
//! **Capacity bound.** Let p(c, a) be the least device-seconds per sequence of atom a on class c over all options. A plan
//! with step T gives class c at most `count_c * T` device-seconds and must run all atoms for the whole batch, so
//!
//! ```text
//! T >= min T  s.t.  sum_c x(c, a) = batch for every atom a,   sum_a p(c, a) x(c, a) <= count_c T
//! ```
//!
//! Identical atoms share one row. The bound ignores memory, links, fill and gradient reduction: it only relaxes.
//!
//! **Duality bound.** For prices pi >= 0 and a time T let rho be an upper bound of `b M / (pi . d)` over all templates
//! that finish M micro-batches of b sequences within T. Every plan finishes at most `rho * (pi . counts)` sequences in T;
//! if that is below the batch, T is a lower bound. For an interval [lo, hi] of M the least cost of a template that
//! finishes lo micro-batches gives `rho <= b hi / cost`. The least cost comes from a dynamic program over suffixes with
//! optimistic stage times (least recompute, deepest in-flight limit, best link, most holders); where a position has too
//! many labels, close ones are merged into their component-wise minimum, which only relaxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use microlp::{ComparisonOp, OptimizationDirection, Problem};
use rayon::prelude::*;

use crate::cost::pipeline::{Depth, StageTime, Suffix};

use super::space::Space;
use super::table::{Holders, Row, Table};

/// The capacity bound, seconds; 0 if the LP fails.
pub(super) fn capacity(table: &Table<'_>, counts: &[u32]) -> f64 {
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

/// What the bound relaxes; tests show that less is not enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relaxation {
    /// In-flight limits as deep as memory allows, not 1.
    pub(super) depth: bool,
    /// All labels that no other beats, or their component-wise minimum; not just the cheapest.
    pub(super) labels: bool,
    /// The most holders a plan can have, not the stage's own replicas.
    pub(super) holders: bool,
}

impl Relaxation {
    /// Everything that a valid bound needs.
    pub(super) const FULL: Self = Self {
        depth: true,
        labels: true,
        holders: true,
    };
}

/// Whether no plan of the space reaches `time`, by duality at these prices; gives up (false) after `work` label steps.
pub(super) fn refutes(
    table: &Table<'_>,
    counts: &[u32],
    prices: &[f64],
    time: f64,
    work: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> bool {
    refutes_under(Relaxation::FULL, table, counts, prices, time, work, stop)
}

/// [`refutes`] under a relaxation: valid only under [`Relaxation::FULL`].
pub(super) fn refutes_under(
    relaxation: Relaxation,
    table: &Table<'_>,
    counts: &[u32],
    prices: &[f64],
    time: f64,
    work: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> bool {
    let batch = table.space.setting.training.global_batch;
    let worth: f64 = prices.iter().zip(counts).map(|(p, n)| p * f64::from(*n)).sum();
    if worth <= 0.0 {
        return false;
    }
    // A template is harmless if b M / cost < batch / worth, strictly: one that takes all devices for the whole batch is
    // a plan. It must cost `cutoff` for its hi, a little more than that.
    let ratio = batch as f64 / worth * (1.0 - 1e-9);
    let mut tasks = Vec::new();
    for &b in &table.space.micro_batches {
        let most = (batch / u64::from(b)).min(1 << 20) as u32;
        let mut low = 1u32;
        while low <= most {
            let high = ((f64::from(low) * 1.03) as u32).clamp(low, most);
            tasks.push((b, low, high));
            low = high + 1;
        }
    }
    let left = AtomicU64::new(work);
    let failed = AtomicBool::new(false);
    tasks.par_iter().for_each(|&(b, low, high)| {
        if failed.load(Ordering::Relaxed) || stop() {
            failed.store(true, Ordering::Relaxed);
            return;
        }
        let cutoff = f64::from(b) * f64::from(high) / ratio;
        if !costs_more(relaxation, table, counts, prices, time, b, low, cutoff, &left) {
            failed.store(true, Ordering::Relaxed);
        }
    });
    !failed.load(Ordering::Relaxed)
}

#[derive(Clone, Copy)]
struct Label {
    cost: f64,
    suffix: Suffix,
    row: Option<usize>,
}

/// Labels kept per position and front row before merging.
const KEEP: usize = 6;

/// Whether every template that finishes `micro_batches` within `time` costs at least `cutoff`.
#[expect(
    clippy::too_many_arguments,
    reason = "one call site; a struct would only rename the arguments"
)]
fn costs_more(
    relaxation: Relaxation,
    table: &Table<'_>,
    counts: &[u32],
    prices: &[f64],
    time: f64,
    micro_batch: u32,
    micro_batches: u32,
    cutoff: f64,
    work: &AtomicU64,
) -> bool {
    let space = table.space;
    let num_atoms = space.setting.model.atoms.len();
    let m = f64::from(micro_batches);
    let rows: Vec<&Arc<Row>> = table
        .of_size(micro_batch)
        .iter()
        .filter(|r| r.option.devices() <= counts[r.option.class])
        .collect();
    if rows.is_empty() {
        return true;
    }
    let total: u32 = counts.iter().sum();
    // Cheapest way to run the atoms before a position: fractional devices, no fill.
    let mut before = vec![0.0; num_atoms + 1];
    let mut least_price = f64::INFINITY;
    for r in &rows {
        least_price = least_price.min(prices[r.option.class] * f64::from(r.option.devices()));
    }
    for i in 0..num_atoms {
        let cheapest = rows
            .iter()
            .map(|r| {
                prices[r.option.class] * f64::from(r.option.devices()) * r.least_compute(i, i + 1) * m / time
            })
            .fold(f64::INFINITY, f64::min);
        before[i + 1] = before[i] + cheapest;
    }
    if before[num_atoms].max(least_price) >= cutoff {
        return true;
    }
    let links: Vec<Vec<Option<f64>>> = rows
        .iter()
        .map(|from| rows.iter().map(|to| table.link(from, to, true)).collect())
        .collect();
    let mut at: Vec<Vec<Label>> = vec![Vec::new(); num_atoms + 1];
    at[num_atoms].push(Label {
        cost: 0.0,
        suffix: Suffix::EMPTY,
        row: None,
    });
    for end in (1..=num_atoms).rev() {
        let mut labels = merge(std::mem::take(&mut at[end]));
        if !relaxation.labels {
            labels.dedup_by_key(|l| l.row);
        }
        if labels.is_empty() {
            continue;
        }
        for (row_index, row) in rows.iter().enumerate() {
            let class = row.option.class;
            let price = prices[class] * f64::from(row.option.devices());
            let holders = if relaxation.holders {
                Holders::most(total)
            } else {
                row.holders(row.option.replicas)
            };
            let mut next = end;
            while next > 0 {
                let start = next - 1;
                next = start;
                if m * row.least_compute(start, end) > time {
                    break;
                }
                if !row.allows((start, end)) {
                    continue;
                }
                let segments = segments(relaxation, space, row, (start, end), micro_batches, holders);
                // A longer range takes more memory, but for one with the first atom: it spares the receive buffers and
                // shares its vocabulary with a tied head.
                if segments.is_empty() {
                    next = start.min(1);
                    continue;
                }
                let tail = row.optimizer(space, start, end, holders);
                let steps = (labels.len() * segments.len()) as u64;
                if work.fetch_sub(steps.min(work.load(Ordering::Relaxed)), Ordering::Relaxed) <= steps {
                    return false;
                }
                for label in &labels {
                    let cost = label.cost + price;
                    if cost + before[start] >= cutoff || (start > 0 && cost + least_price >= cutoff) {
                        continue;
                    }
                    let link = match label.row {
                        None => 0.0,
                        Some(below) => match links[row_index][below] {
                            Some(seconds) => seconds,
                            None => continue,
                        },
                    };
                    for segment in &segments {
                        let stage = StageTime {
                            forward: segment.forward,
                            backward: segment.backward,
                            link_forward: link,
                            link_backward: link,
                        };
                        let suffix =
                            label
                                .suffix
                                .prepend(&stage, Depth::UpTo(segment.deepest), micro_batches, tail);
                        if suffix.step > time {
                            continue;
                        }
                        if start == 0 {
                            return false;
                        }
                        at[start].push(Label {
                            cost,
                            suffix,
                            row: Some(row_index),
                        });
                    }
                }
            }
        }
    }
    true
}

/// In-flight limits up to `deepest` that need at least this stage time.
struct Segment {
    deepest: u32,
    forward: f64,
    backward: f64,
}

/// The curve of depth against time of an atom range in steps: every depth lies in a segment whose time, the least for the
/// segment's shallowest depth, it cannot beat. The first segment is what fits without recompute. Empty if nothing fits.
fn segments(
    relaxation: Relaxation,
    space: &Space<'_>,
    row: &Row,
    range: (usize, usize),
    micro_batches: u32,
    holders: Holders,
) -> Vec<Segment> {
    let most = micro_batches.min(64);
    let depths = row.depths(space, range, most, holders);
    let (deepest, shallow) = (depths.any, depths.plain);
    if deepest == 0 {
        return Vec::new();
    }
    // Beyond 64 no limit is looked up: any depth is allowed.
    let reach = |w: u32| if w >= 64 { micro_batches } else { w };
    let mut segments = Vec::new();
    let mut from = 1;
    while from <= deepest {
        let Some(fit) = row.least_fit(space, range, from, holders) else {
            break;
        };
        let to = if from <= shallow {
            shallow
        } else {
            (2 * from).min(deepest)
        };
        segments.push(Segment {
            deepest: if relaxation.depth { reach(to) } else { 1 },
            forward: fit.forward,
            backward: fit.backward,
        });
        from = to + 1;
    }
    segments
}

/// Drops dominated labels; where more than [`KEEP`] of one front row remain, merges neighbours in cost into their
/// component-wise minimum, which stands for a template at least as good as either.
fn merge(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|a, b| {
        a.row
            .cmp(&b.row)
            .then(a.cost.total_cmp(&b.cost))
            .then(a.suffix.step.total_cmp(&b.suffix.step))
    });
    let mut result: Vec<Label> = Vec::new();
    let mut i = 0;
    while i < labels.len() {
        let row = labels[i].row;
        let mut front: Vec<Label> = Vec::new();
        while i < labels.len() && labels[i].row == row {
            let a = labels[i];
            i += 1;
            let beaten = front.iter().any(|b| {
                b.suffix.span <= a.suffix.span
                    && b.suffix.step <= a.suffix.step
                    && b.suffix.round_trip <= a.suffix.round_trip
            });
            if !beaten {
                front.push(a);
            }
        }
        while front.len() > KEEP {
            // The pair whose merging gives away least cost, relative.
            let at = (0..front.len() - 1)
                .min_by(|&x, &y| {
                    let loss = |k: usize| {
                        let (a, b) = (&front[k], &front[k + 1]);
                        (b.cost - a.cost) / b.cost.max(1e-12)
                            + (a.suffix.step - b.suffix.step) / a.suffix.step.max(1e-12)
                    };
                    loss(x).total_cmp(&loss(y))
                })
                .unwrap_or(0);
            let second = front.remove(at + 1);
            let first = &mut front[at];
            first.suffix = first.suffix.least(&second.suffix);
        }
        result.extend(front);
    }
    result
}

/// Prices worth trying: per class in proportion to the sequences a device finishes of the whole model, alone.
pub(super) fn price_guesses(table: &Table<'_>, counts: &[u32]) -> Vec<Vec<f64>> {
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
