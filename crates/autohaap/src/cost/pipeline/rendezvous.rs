//! 1F1B with blocking fused exchanges, as engines without overlapped point-to-point transfers run it.
//!
//! Warm-up: receive F, run F, send F. Steady: one receive; then F, exchange {send F, receive B} with the next
//! stage, B, exchange {send B, receive the next F} with the stage before (the last round only sends). Cool-down:
//! receive B, run B, send B. A transfer starts when both stages have reached the group that holds it; a stage
//! leaves a group when all transfers in it have ended.

use super::StageTime;
use super::event::{Run, StageRun};

/// One side of a transfer.
#[derive(Debug, Clone, Copy)]
struct Side {
    /// Index of this side in `arrivals`; the other side is the index with the lowest bit flipped.
    slot: usize,
    duration: f64,
}

/// Compute, then a group of at most two transfers.
#[derive(Debug, Clone, Copy)]
struct Step {
    compute: f64,
    transfers: [Option<Side>; 2],
}

struct Program<'a> {
    stages: &'a [StageTime],
    micro_batches: usize,
}

impl Program<'_> {
    /// The transfer of micro-batch `i` over the link from `upper` to the stage after it.
    fn side(&self, upper: usize, gradient: bool, i: usize, receives: bool) -> Side {
        let stage = &self.stages[upper];
        let lane = 2 * upper + usize::from(gradient);
        Side {
            slot: 2 * (lane * self.micro_batches + i) + usize::from(receives),
            duration: if gradient {
                stage.link_backward
            } else {
                stage.link_forward
            },
        }
    }

    fn steps(&self, s: usize, warm_up: usize) -> Vec<Step> {
        let (m, last) = (self.micro_batches, s + 1 == self.stages.len());
        let (f, b) = (self.stages[s].forward, self.stages[s].backward);
        let receive_forward = |i| (s > 0).then(|| self.side(s - 1, false, i, true));
        let send_backward = |i| (s > 0).then(|| self.side(s - 1, true, i, false));
        let send_forward = |i| (!last).then(|| self.side(s, false, i, false));
        let receive_backward = |i| (!last).then(|| self.side(s, true, i, true));
        let mut steps = Vec::with_capacity(3 * m + 1);
        let mut push = |compute, first, second| {
            steps.push(Step {
                compute,
                transfers: [first, second],
            });
        };
        for i in 0..warm_up {
            push(0.0, receive_forward(i), None);
            push(f, send_forward(i), None);
        }
        if warm_up < m {
            push(0.0, receive_forward(warm_up), None);
        }
        for k in 0..m - warm_up {
            push(f, send_forward(warm_up + k), receive_backward(k));
            let next = warm_up + k + 1;
            push(
                b,
                send_backward(k),
                if next < m { receive_forward(next) } else { None },
            );
        }
        for k in m - warm_up..m {
            push(0.0, receive_backward(k), None);
            push(b, send_backward(k), None);
        }
        steps
    }
}

/// Makespan with blocking exchanges; infinite if they deadlock, as depths falling by more than two from one stage
/// to the next may.
pub fn rendezvous_makespan(stages: &[StageTime], in_flight: &[u32], micro_batches: u32) -> f64 {
    rendezvous(stages, in_flight, micro_batches).makespan
}

/// Most passes (stages x micro-batches) that are run one by one.
const EXACT_PASSES: usize = 1 << 19;

/// Times of each stage with blocking exchanges.
///
/// Exact up to [`EXACT_PASSES`]. Beyond, the order repeats with the period of its critical cycle, so each end is continued along
/// its mean rise over the second half of the rounds that are run; that mean is off by at most one period in that half.
pub fn rendezvous(stages: &[StageTime], in_flight: &[u32], micro_batches: u32) -> Run {
    let deepest = in_flight.iter().copied().max().unwrap_or(1).min(micro_batches);
    let rounds = (EXACT_PASSES / stages.len().max(1)).min(micro_batches as usize) as u32;
    let rounds = rounds.max(deepest.saturating_mul(4)).max(64).min(micro_batches);
    let mut run = exact(stages, in_flight, rounds);
    if rounds == micro_batches || !run.makespan.is_finite() {
        return run;
    }
    let half = exact(stages, in_flight, rounds / 2);
    let (measured, more) = (f64::from(rounds - rounds / 2), f64::from(micro_batches - rounds));
    let continued = |end: f64, before: f64| end + (end - before) / measured * more;
    run.makespan = continued(run.makespan, half.makespan);
    for (s, (row, before)) in run.stages.iter_mut().zip(&half.stages).enumerate() {
        row.last_backward_end = continued(row.last_backward_end, before.last_backward_end);
        row.busy = f64::from(micro_batches) * stages[s].compute();
    }
    run
}

fn exact(stages: &[StageTime], in_flight: &[u32], micro_batches: u32) -> Run {
    assert_eq!(stages.len(), in_flight.len(), "one depth a stage");
    let (p, m) = (stages.len(), micro_batches as usize);
    if m == 0 || p == 0 {
        return Run {
            makespan: 0.0,
            stages: vec![StageRun::default(); p],
        };
    }
    let program = Program {
        stages,
        micro_batches: m,
    };
    let warm_up = |s: usize| (in_flight[s].max(1) as usize - 1).min(m);
    let steps: Vec<Vec<Step>> = (0..p).map(|s| program.steps(s, warm_up(s))).collect();
    let mut arrivals = vec![f64::NAN; 4 * m * p];
    let mut next = vec![0; p];
    // Whether the stage has computed and stands at the group of its next step.
    let mut waiting = vec![false; p];
    let mut clock = vec![0.0; p];
    let mut rows = vec![StageRun::default(); p];
    loop {
        let mut moved = false;
        for s in 0..p {
            while let Some(step) = steps[s].get(next[s]) {
                let sides = step.transfers.iter().flatten();
                if !waiting[s] {
                    if next[s] + 1 == steps[s].len() {
                        rows[s].last_backward_end = clock[s] + step.compute;
                    }
                    clock[s] += step.compute;
                    for side in sides.clone() {
                        arrivals[side.slot] = clock[s];
                    }
                    waiting[s] = true;
                    moved = true;
                }
                let here = clock[s];
                let end = sides.clone().try_fold(here, |end, side| {
                    let there = arrivals[side.slot ^ 1];
                    (!there.is_nan()).then(|| end.max(here.max(there) + side.duration))
                });
                let Some(end) = end else { break };
                if next[s] == 0 {
                    rows[s].first_forward_start = end;
                }
                clock[s] = end;
                next[s] += 1;
                waiting[s] = false;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if (0..p).any(|s| next[s] < steps[s].len()) {
        return Run::deadlocked(p);
    }
    for (s, row) in rows.iter_mut().enumerate() {
        row.busy = f64::from(micro_batches) * stages[s].compute();
        row.peak_in_flight = in_flight[s].max(1).min(micro_batches);
    }
    let makespan = rows.iter().map(|row| row.last_backward_end).fold(0.0, f64::max);
    Run {
        makespan,
        stages: rows,
    }
}
