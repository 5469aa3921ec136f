//! Lower bounds of a pipeline built stage by stage from its end, for searches that have not chosen the front yet.
//!
//! With `t = f + b`, `c` both links to the next stage, `W` the depth (at most the micro-batches M):
//!
//! ```text
//! first_s = max(W f, f + c + first_{s+1}) + b          start of F(s, 0) to end of B(s, 0)
//! last_s  = f + max((W-1) b, c + last_{s+1}) + b       start of F(s, M-1) to end of B(s, M-1)
//! loop_s  = t + max((W-1) t, c + loop_{s+1})           the same for a micro-batch between them
//! busy_s  = first + (M - 1 - W) t + last                               if W < M
//! cyc_s   = first + (n - 1) loop + (M - 1 - n W) t + last,  n = floor((M-1) / W)    if W < M
//! busy_s  = max(first + (M-1) b, (M-1) f + last)                       if W = M
//! E_s     = max(busy_s, cyc_s, t + c + E_{s+1})        first forward to last backward of s
//! G_s     = max(E_s + tail_s, f + link_forward + G_{s+1})              the same with what follows the pipeline
//! ```
//!
//! Each line follows a path of the event graph. `first`: stage `s` runs W forwards before its first backward.
//! `last`: it runs W - 1 backwards between the last forward and the last backward. `loop`: between F(s, i) and
//! B(s, i) it runs W - 1 backwards of earlier and W - 1 forwards of later micro-batches, where both exist; in
//! `cyc`, F(s, i + W) follows B(s, i), micro-batches W, 2W, .. (n-1)W loop, and `(n-1) W + W - 1 < M` leaves enough
//! later ones on every stage below, whose depths are not greater.

use super::StageTime;

/// How the depth of a stage is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The stage runs with exactly this depth. The bound is infinite if the stage below runs deeper (deadlock).
    Exactly(u32),
    /// Any depth up to this one may be chosen later, here and below. The bound holds for the best choice and never
    /// rises with the limit.
    UpTo(u32),
}

/// What the search needs to know about the stages from one to the last, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suffix {
    /// E: lower bound from the first forward to the last backward of the first stage of the suffix.
    pub span: f64,
    /// G: lower bound from that first forward to the end of the step, tails included.
    pub step: f64,
    /// One micro-batch through the suffix and back, unobstructed.
    pub round_trip: f64,
    /// The same for the first micro-batch.
    pub first_trip: f64,
    /// The same for the last micro-batch.
    pub last_trip: f64,
    /// The same in the steady regime.
    pub steady_trip: f64,
    /// Least depth the stage before must have.
    pub depth: u32,
}

impl Suffix {
    /// No stage.
    pub const EMPTY: Self = Self {
        span: 0.0,
        step: 0.0,
        round_trip: 0.0,
        first_trip: 0.0,
        last_trip: 0.0,
        steady_trip: 0.0,
        depth: 1,
    };

    /// Puts a stage before the suffix. `tail` is what follows the stage's last backward (gradient synchronisation,
    /// optimizer). Links of a stage before [`Suffix::EMPTY`] must be 0.
    #[must_use]
    pub fn prepend(&self, stage: &StageTime, depth: Depth, micro_batches: u32, tail: f64) -> Self {
        let m = f64::from(micro_batches);
        let (f, b, t) = (stage.forward, stage.backward, stage.compute());
        let trip = stage.links() + self.round_trip;
        let (first, last, steady, depth, exact) = match depth {
            Depth::Exactly(w) => (
                self.first_trip,
                self.last_trip,
                self.steady_trip,
                w.max(1).min(micro_batches),
                true,
            ),
            Depth::UpTo(w) => (
                self.round_trip,
                self.round_trip,
                self.round_trip,
                w.max(1).min(micro_batches),
                false,
            ),
        };
        let w = f64::from(depth);
        let first = (w * f).max(f + stage.links() + first) + b;
        let last = f + ((w - 1.0) * b).max(stage.links() + last) + b;
        let steady = t + ((w - 1.0) * t).max(stage.links() + steady);
        let own = if micro_batches == 0 {
            0.0
        } else if depth < micro_batches {
            let turns = (micro_batches - 1) / depth;
            let left = f64::from(micro_batches - 1 - turns * depth);
            let busy = first + (m - 1.0 - w) * t + last;
            let cycle = if exact {
                first + f64::from(turns - 1) * steady + left * t + last
            } else {
                f64::from(turns + 1) * (t + trip)
            };
            busy.max(cycle)
        } else {
            (first + (m - 1.0) * b).max((m - 1.0) * f + last)
        };
        let span = own.max(t + stage.links() + self.span);
        let span = if exact && depth < self.depth.min(micro_batches) {
            f64::INFINITY
        } else {
            span
        };
        let round_trip = t + trip;
        let step = (span + tail).max(f + stage.link_forward + self.step);
        if exact {
            Self {
                span,
                step,
                round_trip,
                first_trip: first,
                last_trip: last,
                steady_trip: steady,
                depth,
            }
        } else {
            Self {
                span,
                step,
                round_trip,
                first_trip: round_trip,
                last_trip: round_trip,
                steady_trip: round_trip,
                depth: 1,
            }
        }
    }
}

/// The least depth, from that of the suffix to `deepest`, with the least [`Suffix::span`], and the suffix it gives.
/// None if the stage cannot hold as many micro-batches as the suffix needs.
pub fn best_depth(
    stage: &StageTime,
    suffix: &Suffix,
    micro_batches: u32,
    deepest: u32,
    tail: f64,
) -> Option<(u32, Suffix)> {
    let deepest = deepest.min(micro_batches.max(1));
    let shallowest = suffix.depth.min(micro_batches.max(1));
    // No depth does better than this.
    let floor =
        (f64::from(micro_batches) * stage.compute()).max(stage.compute() + stage.links() + suffix.span);
    let mut best: Option<(u32, Suffix)> = None;
    for depth in shallowest..=deepest {
        let longer = suffix.prepend(stage, Depth::Exactly(depth), micro_batches, tail);
        // A gain below rounding is none.
        if best.is_none_or(|(_, kept)| longer.span < kept.span * (1.0 - 1e-12)) {
            best = Some((depth, longer));
        }
        if longer.span <= floor * (1.0 + 1e-12) {
            break;
        }
    }
    best
}
