//! Lower bounds of a pipeline built stage by stage from its end, for searches that have not chosen the front yet.
//!
//! With `t = f + b`, `c` both links to the next stage, M micro-batches and depths W of at most M, where a stage
//! without index is `s`; a max over `e` takes the ends kept (see below), and a max of f, b or t the stages `s..=e`:
//!
//! ```text
//! segment_e = t_s + c_s + t_{s+1} + .. + t_e
//! first_s   = max(W f + b, t + c + first_{s+1}, segment_e + (W_e - 1) max f)     start of F(s, 0) to end of B(s, 0)
//! last_s    = max(f + W b, t + c + last_{s+1}, segment_e + (W_e - 1) max b)  start of F(s, M-1) to end of B(s, M-1)
//! trip_s    = max(W t, t + c + trip_{s+1})                        the same for a micro-batch well between the two
//! steady_s  = max over cycles of  k cycle + r max t,  M - 1 - W = k advance + r     start of F(s, W) to F(s, M-1)
//!             cycles: segment_e with advance W - W_e + 1, and trip_s with advance W
//! own_s     = first + steady + last                             if W < M
//!           = max(first + (M - 1) b, (M - 1) f + last)          if W = M
//! E_s       = max(own_s, t + c + E_{s+1})                       first forward to last backward of s
//! G_s       = max(E_s + tail, f + link_forward + G_{s+1})       the same with what follows the pipeline
//! ```
//!
//! Each line is the length of a path in the event graph, so the bound holds whatever the depths:
//!
//! * `first`: a stage runs W forwards before its first backward, `last`: W backwards after its last forward. Its
//!   forwards come no closer together than those of a slower stage before it, nor do the backwards it hands on.
//! * `trip`: between F(s, i) and B(s, i) a stage runs W - 1 backwards of earlier and W - 1 forwards of later
//!   micro-batches, where these exist. Here i runs from W in steps of W while `i + W <= M - 1`, and no stage below is
//!   deeper, so they do.
//! * A segment climbs the forwards from F(s, i) to F(e, i), turns to B(e, i - W_e + 1), comes down and turns to
//!   F(s, i + advance); i >= W makes these backwards exist. On the way the remaining r micro-batches pass the slowest
//!   stage climbed, one round each.
//!
//! The ends kept are those that can still set the period: a segment that ends deeper in the pipeline has the smaller
//! W_e, so once it loses against a nearer end at the period known so far it loses at every longer one.

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

/// Ends kept; more would cost time and tighten nothing in practice.
const ENDS: usize = 3;

/// A segment from the first stage of the suffix, as far as cycles through it matter.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    segment: f64,
    depth: u32,
    /// Slowest forward, backward and both of the stages on the segment.
    forward: f64,
    backward: f64,
    compute: f64,
}

impl End {
    const NONE: Self = Self {
        segment: 0.0,
        depth: 1,
        forward: 0.0,
        backward: 0.0,
        compute: 0.0,
    };
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
    /// Lower bound of the steady period.
    pub period: f64,
    /// Least depth the stage before must have.
    pub depth: u32,
    ends: [End; ENDS],
    num_ends: u8,
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
        period: 0.0,
        depth: 1,
        ends: [End::NONE; ENDS],
        num_ends: 0,
    };

    /// Puts a stage before the suffix. `tail` is what follows the stage's last backward (gradient synchronisation,
    /// optimizer). Links of a stage before [`Suffix::EMPTY`] must be 0; all stages take the same `micro_batches`.
    #[must_use]
    pub fn prepend(&self, stage: &StageTime, depth: Depth, micro_batches: u32, tail: f64) -> Self {
        match depth {
            Depth::Exactly(w) => {
                self.prepend_exactly(stage, w.max(1).min(micro_batches), micro_batches, tail)
            }
            Depth::UpTo(w) => self.prepend_up_to(stage, w.max(1).min(micro_batches), micro_batches, tail),
        }
    }

    fn prepend_exactly(&self, stage: &StageTime, depth: u32, micro_batches: u32, tail: f64) -> Self {
        let (f, b, t) = (stage.forward, stage.backward, stage.compute());
        let (m, w) = (f64::from(micro_batches), f64::from(depth));
        let hop = t + stage.links();
        let mut next = Self {
            round_trip: hop + self.round_trip,
            first_trip: (w * f + b).max(hop + self.first_trip),
            last_trip: (f + w * b).max(hop + self.last_trip),
            steady_trip: (w * t).max(hop + self.steady_trip),
            period: self.period.max(t),
            depth,
            ..*self
        };
        if depth < self.depth.min(micro_batches) {
            next.span = f64::INFINITY;
            next.step = f64::INFINITY;
            next.num_ends = 0;
            return next;
        }
        // Rounds between the micro-batches that `first_trip` and `last_trip` account for.
        let between = micro_batches.saturating_sub(depth + 1);
        let (turns, left) = (between / depth.max(1), between % depth.max(1));
        let mut steady =
            (f64::from(between) * t).max(f64::from(turns) * next.steady_trip + f64::from(left) * t);
        for end in &mut next.ends[..usize::from(self.num_ends)] {
            end.segment += hop;
            end.forward = end.forward.max(f);
            end.backward = end.backward.max(b);
            end.compute = end.compute.max(t);
            let held = f64::from(end.depth - 1);
            next.first_trip = next.first_trip.max(end.segment + held * end.forward);
            next.last_trip = next.last_trip.max(end.segment + held * end.backward);
            let advance = depth - end.depth + 1;
            next.period = next.period.max(end.segment / f64::from(advance));
            if between >= advance {
                let (turns, left) = (between / advance, between % advance);
                steady = steady.max(f64::from(turns) * end.segment + f64::from(left) * end.compute);
            }
        }
        let own = if micro_batches == 0 {
            0.0
        } else if depth < micro_batches {
            next.first_trip + steady + next.last_trip
        } else {
            (next.first_trip + (m - 1.0) * b).max((m - 1.0) * f + next.last_trip)
        };
        next.span = own.max(hop + self.span);
        next.step = (next.span + tail).max(f + stage.link_forward + self.step);
        next.keep(End {
            segment: t,
            depth,
            forward: f,
            backward: b,
            compute: t,
        });
        next
    }

    /// A suffix at least as good as either in every time: stands for both in a bound under [`Depth::UpTo`].
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            span: self.span.min(other.span),
            step: self.step.min(other.step),
            round_trip: self.round_trip.min(other.round_trip),
            first_trip: self.first_trip.min(other.first_trip),
            last_trip: self.last_trip.min(other.last_trip),
            steady_trip: self.steady_trip.min(other.steady_trip),
            period: self.period.min(other.period),
            depth: self.depth.min(other.depth),
            ..Self::EMPTY
        }
    }

    /// Adds an end at the new first stage and drops the ends it beats.
    fn keep(&mut self, new: End) {
        let value = |end: &End, period: f64| end.segment + period * f64::from(end.depth);
        let level = value(&new, self.period);
        let mut kept = 0;
        for at in 0..usize::from(self.num_ends) {
            let end = self.ends[at];
            if value(&end, self.period) > level {
                self.ends[kept] = end;
                kept += 1;
            }
        }
        if kept == ENDS {
            let least = |at: &usize, other: &usize| {
                value(&self.ends[*at], self.period).total_cmp(&value(&self.ends[*other], self.period))
            };
            let weakest = (0..ENDS).min_by(least).unwrap_or(0);
            self.ends[weakest] = self.ends[ENDS - 1];
            kept -= 1;
        }
        self.ends[kept] = new;
        self.num_ends = kept as u8 + 1;
    }

    fn prepend_up_to(&self, stage: &StageTime, depth: u32, micro_batches: u32, tail: f64) -> Self {
        let free = FreeSuffix {
            span: self.span,
            step: self.step,
            round_trip: self.round_trip,
        };
        let next = free.prepend(stage, depth, micro_batches, tail);
        let trip = next.round_trip;
        Self {
            span: next.span,
            step: next.step,
            round_trip: trip,
            first_trip: trip,
            last_trip: trip,
            steady_trip: trip,
            period: self
                .period
                .max(stage.compute())
                .max(trip / f64::from(depth.max(1))),
            depth: 1,
            ..Self::EMPTY
        }
    }
}

/// [`Suffix`] where every depth up to a limit may be chosen ([`Depth::UpTo`]): the few times that such a bound reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FreeSuffix {
    /// E: lower bound from the first forward to the last backward of the first stage of the suffix.
    pub span: f64,
    /// G: lower bound from that first forward to the end of the step, tails included.
    pub step: f64,
    /// One micro-batch through the suffix and back, unobstructed.
    pub round_trip: f64,
}

impl FreeSuffix {
    /// No stage.
    pub const EMPTY: Self = Self {
        span: 0.0,
        step: 0.0,
        round_trip: 0.0,
    };

    /// Puts a stage with any depth up to `deepest` before the suffix; see [`Suffix::prepend`].
    ///
    /// Uses the paths that exist for every depth up to the limit: the trips are unobstructed, and the two gaps that the first
    /// and the last micro-batch leave on the stage shrink with the depth.
    #[must_use]
    pub fn prepend(&self, stage: &StageTime, deepest: u32, micro_batches: u32, tail: f64) -> Self {
        let depth = deepest.max(1).min(micro_batches);
        let (f, b, t) = (stage.forward, stage.backward, stage.compute());
        let (m, w) = (f64::from(micro_batches), f64::from(depth));
        let hop = t + stage.links();
        let trip = hop + self.round_trip;
        let (first, last) = ((w * f + b).max(trip), (f + w * b).max(trip));
        let own = if micro_batches == 0 {
            0.0
        } else if depth < micro_batches {
            let turns = (micro_batches - 1) / depth + 1;
            (first + (m - 1.0 - w) * t + last).max(f64::from(turns) * trip)
        } else {
            (first + (m - 1.0) * b).max((m - 1.0) * f + last)
        };
        let span = own.max(hop + self.span);
        Self {
            span,
            step: (span + tail).max(f + stage.link_forward + self.step),
            round_trip: trip,
        }
    }

    /// A suffix at least as good as either in every time: stands for both.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            span: self.span.min(other.span),
            step: self.step.min(other.step),
            round_trip: self.round_trip.min(other.round_trip),
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
