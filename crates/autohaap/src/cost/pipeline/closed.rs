//! Closed forms of the 1F1B family.
//!
//! A critical cycle of the event graph climbs the forwards from stage `s` to stage `e`, turns, comes back down
//! the backwards and turns again; it costs `segment(s, e)` and advances by `W_s - W_e + 1` micro-batches:
//!
//! ```text
//! segment(s, e) = sum_{j=s..e} (f_j + b_j) + sum_{j=s..e-1} (link_forward_j + link_backward_j)
//! P             = max_{s <= e} segment(s, e) / (W_s - W_e + 1)
//! ```

use super::StageTime;

/// The cycle that sets the steady period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Critical {
    /// Seconds per micro-batch in the steady regime.
    pub period: f64,
    /// First stage of the cycle.
    pub first: usize,
    /// Last stage of the cycle.
    pub last: usize,
    /// Micro-batches one turn of the cycle advances by; 0 if the depths deadlock.
    pub advance: u32,
}

/// Finds the slowest cycle. Starts at the slowest stage and moves to the most violated cycle until none is left
/// (Dinkelbach's iteration); each round is O(p) and one or two usually suffice.
pub fn critical_cycle(stages: &[StageTime], in_flight: &[u32]) -> Critical {
    critical_cycle_within(stages, in_flight, u32::MAX)
}

/// [`critical_cycle`] with depths of at least 1 and at most `cap`.
fn critical_cycle_within(stages: &[StageTime], in_flight: &[u32], cap: u32) -> Critical {
    debug_assert_eq!(stages.len(), in_flight.len());
    let held = |depth: u32| depth.clamp(1, cap);
    let mut best = Critical {
        period: 0.0,
        first: 0,
        last: 0,
        advance: 1,
    };
    let mut above = u32::MAX;
    for (s, (stage, &depth)) in stages.iter().zip(in_flight).enumerate() {
        if stage.compute() > best.period {
            best = Critical {
                period: stage.compute(),
                first: s,
                last: s,
                advance: 1,
            };
        }
        let depth = held(depth);
        if depth > above {
            return Critical {
                period: f64::INFINITY,
                first: s - 1,
                last: s,
                advance: 0,
            };
        }
        above = depth;
    }
    loop {
        let period = best.period;
        // `position` is segment(0, s) up to, not including, stage s.
        let mut position = 0.0;
        let (mut low, mut low_at, mut low_position) = (f64::INFINITY, 0, 0.0);
        let (mut excess, mut worst) = (0.0, None);
        for (s, (stage, &depth)) in stages.iter().zip(in_flight).enumerate() {
            let level = position + period * f64::from(held(depth));
            let end = position + stage.compute();
            let over = level + stage.compute() - period - low;
            if over > excess {
                excess = over;
                worst = Some((low_at, s, end - low_position));
            }
            if level < low {
                (low, low_at, low_position) = (level, s, position);
            }
            position = end + stage.links();
        }
        // Rounding of the prefix sums, not a slower cycle.
        let Some((first, last, segment)) = worst.filter(|_| excess > 4e-15 * position) else {
            return best;
        };
        let advance = held(in_flight[first]) - held(in_flight[last]) + 1;
        let period = segment / f64::from(advance);
        if period <= best.period {
            return best;
        }
        best = Critical {
            period,
            first,
            last,
            advance,
        };
    }
}

/// Seconds per micro-batch in the steady regime with asynchronous sends, exact.
pub fn steady_period(stages: &[StageTime], in_flight: &[u32]) -> f64 {
    critical_cycle(stages, in_flight).period
}

/// Steady period with blocking fused exchanges: every stage also spends the exchanges with both neighbours.
/// Exact for the textbook depths.
pub fn rendezvous_period(stages: &[StageTime]) -> f64 {
    let mut before = 0.0;
    let mut period: f64 = 0.0;
    for stage in stages {
        let after = stage.link_forward.max(stage.link_backward);
        period = period.max(stage.compute() + before + after);
        before = after;
    }
    period
}

/// The least depths that sustain one micro-batch per `target_period` (or per slowest stage, if that is slower).
///
/// From the last stage back, `W_s` is the larger of `W_{s+1}` and what the cycles starting at `s` demand; the
/// maximum over their ends obeys `H_s = max((W_s - 1) T + t_s, t_s + links_s + H_{s+1})`.
pub fn minimal_depths(stages: &[StageTime], target_period: f64) -> Vec<u32> {
    let mut depths = vec![1; stages.len()];
    let period = stages
        .iter()
        .fold(target_period, |period, stage| period.max(stage.compute()));
    if period <= 0.0 {
        return depths;
    }
    let (mut reach, mut depth) = (f64::NEG_INFINITY, 1_u32);
    for (stage, out) in stages.iter().zip(&mut depths).rev() {
        let through = stage.compute() + stage.links() + reach;
        // A quotient a rounding error above an integer is that integer.
        let demand = (through / period * (1.0 - 1e-12) - 1e-12).ceil();
        depth = depth.max(demand.max(1.0) as u32);
        *out = depth;
        reach = through.max(f64::from(depth - 1) * period + stage.compute());
    }
    depths
}

/// Estimate of the makespan: one micro-batch through all stages and back, then one period for each of the others.
/// Mostly 0-5 % above the exact value; rarely below it, so not a bound.
pub fn closed_form_step(stages: &[StageTime], in_flight: &[u32], micro_batches: u32) -> f64 {
    let through: f64 = stages.iter().map(|stage| stage.compute() + stage.links()).sum();
    match micro_batches {
        0 => 0.0,
        1 => through,
        m => {
            let mut period = steady_period(stages, in_flight);
            if period.is_infinite() {
                // No deadlock where depths rise above the number of micro-batches only.
                period = critical_cycle_within(stages, in_flight, m).period;
            }
            through + f64::from(m - 1) * period
        }
    }
}

/// Lower bound of the makespan for any depths: one micro-batch through all stages, and each stage's own work after
/// the first micro-batch has come to it and before the last has gone back.
pub fn lower_bound(stages: &[StageTime], micro_batches: u32) -> f64 {
    if micro_batches == 0 {
        return 0.0;
    }
    let (mut before, mut bound) = (0.0, 0.0_f64);
    for stage in stages {
        bound = bound.max(before + f64::from(micro_batches) * stage.compute());
        before += stage.compute() + stage.links();
    }
    bound.max(before)
}

/// Exact makespan of GPipe (all forwards, then all backwards in reverse) with asynchronous sends: two flow shops
/// with constant times, one after the other.
pub fn gpipe_makespan(stages: &[StageTime], micro_batches: u32) -> f64 {
    if micro_batches == 0 {
        return 0.0;
    }
    let (mut through, mut forward, mut backward) = (0.0, 0.0_f64, 0.0_f64);
    for stage in stages {
        through += stage.compute() + stage.links();
        forward = forward.max(stage.forward);
        backward = backward.max(stage.backward);
    }
    through + f64::from(micro_batches - 1) * (forward + backward)
}
