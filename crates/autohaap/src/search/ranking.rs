//! Candidates of all searches in one order, and the simulation of the first few.

use super::assemble::Candidate;
use crate::cost::atom::Setting;
use crate::cost::price::Cache;
use crate::plan::Pipeline;
use crate::simulate;
use crate::units::Seconds;

/// Plans simulated at most.
const FINALISTS: usize = 4;

/// Plans whose estimates differ by less are told apart by simulation.
const TIE: f64 = 0.02;

/// The best plan known, independent of the table it was found with.
#[derive(Clone)]
pub(super) struct Best {
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) step: f64,
    pub(super) zero: u8,
    pub(super) origin: String,
}

pub(super) fn found(candidate: &Candidate, zero: u8) -> Best {
    Best {
        pipelines: candidate.pipelines.clone(),
        step: candidate.step,
        zero,
        origin: candidate.draft.origin.to_owned(),
    }
}

pub(super) fn sort(ranked: &mut [Best]) {
    ranked.sort_by(|a, b| {
        a.step
            .total_cmp(&b.step)
            .then(a.zero.cmp(&b.zero))
            .then_with(|| key(&a.pipelines).cmp(&key(&b.pipelines)))
    });
}

/// Canonical key of placed pipelines, for ties.
fn key(pipelines: &[Pipeline]) -> Vec<(u32, u32, Vec<(usize, u32, Vec<String>)>)> {
    pipelines
        .iter()
        .map(|p| {
            let stages = p
                .stages
                .iter()
                .map(|s| {
                    (
                        s.atoms[1],
                        s.in_flight,
                        s.replicas.iter().flat_map(|r| r.devices.clone()).collect(),
                    )
                })
                .collect();
            (p.micro_batch, p.micro_batches, stages)
        })
        .collect()
}

/// What the simulation of finalists gave.
pub(super) struct Simulated {
    /// Step time of the best plan; `None` if it was not simulated.
    pub(super) step_time: Option<Seconds>,
    /// Plans simulated.
    pub(super) count: u64,
}

/// Simulates the plans within [`TIE`] of the best estimate, links and cards contended for, and makes the fastest of
/// them the best.
pub(super) fn simulated_first(
    settings: &[Setting<'_>],
    levels: &[u8],
    ranked: &[&Best],
    best: &mut Best,
    stop: &dyn Fn() -> bool,
) -> Simulated {
    let step = |plan: &Best| {
        let index = levels.iter().position(|&z| z == plan.zero)?;
        simulate::step(settings.get(index)?, &plan.pipelines, &mut Cache::default()).ok()
    };
    if stop() {
        return Simulated {
            step_time: None,
            count: 0,
        };
    }
    let mut least = step(best);
    let mut count = 1;
    let near = ranked
        .iter()
        .copied()
        .filter(|r| r.step <= best.step * (1.0 + TIE) && r.pipelines != best.pipelines)
        .take(FINALISTS - 1);
    let mut fastest: Option<&Best> = None;
    for other in near {
        if stop() {
            break;
        }
        count += 1;
        if let (Some(seconds), Some(so_far)) = (step(other), least)
            && seconds.0 < so_far.0 * (1.0 - 1e-9)
        {
            least = Some(seconds);
            fastest = Some(other);
        }
    }
    if let Some(fastest) = fastest.cloned() {
        *best = fastest;
    }
    Simulated {
        step_time: least,
        count,
    }
}
