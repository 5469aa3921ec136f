//! Exact event order of 1F1B with asynchronous sends, and of GPipe.
//!
//! ```text
//! F(s, i) starts at max(end of the op before it on s, end F(s-1, i) + link_forward_{s-1})
//! B(s, i) starts at max(end of the op before it on s, end B(s+1, i) + link_backward_s)
//! ```
//!
//! In *round* `k` stage `s` runs F(s, k + W_s - 1) and then B(s, k). With depths that do not rise downstream every
//! dependency of a round lies in it or in an earlier one, so sweeping rounds needs neither queue nor heap and
//! cannot hang. Round `k` is one row of forward ends; they determine its backward ends, hence the rows that later
//! rounds still read are the whole state. Once these repeat, shifted by a constant, the system (linear over max
//! and plus) repeats for ever, and the rounds up to the drain cost one multiplication.

use super::closed::critical_cycle;
use super::{StageTime, larger};

/// What one stage does in a step; seconds from the start of the step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageRun {
    /// Start of the first forward.
    pub first_forward_start: f64,
    /// End of the last backward.
    pub last_backward_end: f64,
    /// Time spent in forwards and backwards.
    pub busy: f64,
    /// Most micro-batches whose forward has run and whose backward has not ended.
    pub peak_in_flight: u32,
}

/// Times of a step, by stage.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// First start to last end over all stages; infinite if the depths deadlock.
    pub makespan: f64,
    /// One entry a stage; ends are infinite if the depths deadlock.
    pub stages: Vec<StageRun>,
}

impl Run {
    pub(super) fn deadlocked(num_stages: usize) -> Self {
        let stage = StageRun {
            last_backward_end: f64::INFINITY,
            ..StageRun::default()
        };
        Self {
            makespan: f64::INFINITY,
            stages: vec![stage; num_stages],
        }
    }
}

/// Forward ends that are held at a time (32 MiB), unless the depths need more.
const MAX_CELLS: usize = 1 << 22;

/// Buffers reused from one evaluation to the next.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    lanes: Vec<Lane>,
    /// Forward ends, one row of `p` a round; the first `W_0 - 1` rows are the warm-up.
    ends: Vec<f64>,
    /// End of the latest backward of each stage.
    backward: Vec<f64>,
    depths: Vec<u32>,
}

/// One stage as the sweep reads it.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    forward: f64,
    backward: f64,
    /// Link from the stage before.
    arrive: f64,
    /// Link from the stage after.
    back: f64,
    /// Distance in `ends` from a forward to the same micro-batch's forward on the stage before.
    lag: usize,
    /// Forwards before round 0.
    warm_up: usize,
}

/// Makespan of a step with `in_flight[s]` = W_s (0 counts as 1, more than `micro_batches` as that many); infinite if
/// the depths deadlock.
pub fn makespan(stages: &[StageTime], in_flight: &[u32], micro_batches: u32, scratch: &mut Scratch) -> f64 {
    sweep(stages, in_flight, micro_batches, scratch, true).map_or(f64::INFINITY, |shift| {
        shift + scratch.backward.first().copied().unwrap_or(0.0)
    })
}

/// [`makespan`] without the jump over repeating rounds: the reference it is tested against.
pub fn makespan_unabridged(
    stages: &[StageTime],
    in_flight: &[u32],
    micro_batches: u32,
    scratch: &mut Scratch,
) -> f64 {
    sweep(stages, in_flight, micro_batches, scratch, false).map_or(f64::INFINITY, |shift| {
        shift + scratch.backward.first().copied().unwrap_or(0.0)
    })
}

/// [`makespan`] with the times of each stage.
pub fn run(stages: &[StageTime], in_flight: &[u32], micro_batches: u32, scratch: &mut Scratch) -> Run {
    let Some(shift) = sweep(stages, in_flight, micro_batches, scratch, true) else {
        return Run::deadlocked(stages.len());
    };
    let mut start = 0.0;
    let mut rows = Vec::with_capacity(stages.len());
    for (s, stage) in stages.iter().enumerate() {
        rows.push(StageRun {
            first_forward_start: start,
            last_backward_end: if micro_batches == 0 {
                0.0
            } else {
                shift + scratch.backward[s]
            },
            busy: f64::from(micro_batches) * stage.compute(),
            peak_in_flight: in_flight[s].max(1).min(micro_batches),
        });
        start += stage.forward + stage.link_forward;
    }
    Run {
        makespan: rows.first().map_or(0.0, |first| first.last_backward_end),
        stages: rows,
    }
}

/// Leaves the end of every stage's last backward in `scratch.backward`, less the returned shift. None: deadlock.
fn sweep(
    stages: &[StageTime],
    in_flight: &[u32],
    micro_batches: u32,
    scratch: &mut Scratch,
    jump: bool,
) -> Option<f64> {
    assert_eq!(stages.len(), in_flight.len(), "one depth a stage");
    let p = stages.len();
    let m = micro_batches as usize;
    scratch.backward.clear();
    scratch.backward.resize(p, 0.0);
    if p == 0 || m == 0 {
        return Some(0.0);
    }
    let head = prepare(stages, in_flight, m, scratch)?;
    let Scratch {
        lanes,
        ends,
        backward,
        depths,
    } = scratch;
    let (lanes, backward) = (&lanes[..p], &mut backward[..p]);
    let mut watch = (jump && m - 1 - head >= 8).then(|| Watch::new(stages, depths));
    // Rows that later rounds still read; once the buffer is full they move to its front.
    let keep = head + watch.as_ref().map_or(0, |w| w.advance) + 2;
    let rows = (m + head).min((4 * keep).max(MAX_CELLS / p));
    if ends.len() < rows * p {
        ends.resize(rows * p, 0.0);
    }

    // Warm-up and round 0, stage by stage.
    for s in 0..p {
        let lane = lanes[s];
        let mut free = 0.0;
        for row in head - lane.warm_up..=head {
            let at = row * p + s;
            let arrival = if s == 0 {
                0.0
            } else {
                ends[at - lane.lag] + lane.arrive
            };
            free = larger(free, arrival) + lane.forward;
            ends[at] = free;
        }
        backward[s] = free;
    }
    return_gradients(lanes, backward);

    // Rounds in which every stage has a forward.
    let ramp = lanes[1..].iter().all(|lane| lane.lag > 1);
    let mut last = m - 1;
    let mut shift = 0.0;
    let mut row = head;
    while row < last {
        row += 1;
        if row == rows {
            last -= make_room(ends, &mut row, keep, p);
        }
        if ramp {
            ramp_round(lanes, ends, backward, row * p);
        } else {
            forwards(lanes, ends, backward, row * p, 0);
            return_gradients(lanes, backward);
        }
        if let Some(seen) = &mut watch
            && seen.repeats(ends, row, head)
        {
            let turns = (last - row) / seen.advance;
            shift = turns as f64 * seen.turn;
            last -= turns * seen.advance;
            watch = None;
        }
    }

    // Drain: the stages run out of forwards one after the other, the deepest first.
    let mut begin = 0;
    for step in 1..=head {
        row += 1;
        if row == rows {
            make_room(ends, &mut row, keep, p);
        }
        while begin < p && head - lanes[begin].warm_up < step {
            begin += 1;
        }
        forwards(lanes, ends, backward, row * p, begin);
        return_gradients(lanes, backward);
    }
    Some(shift)
}

/// Moves the last `keep` rows of width `p` before `row` to the front; gives how far, which `row` has followed.
fn make_room(ends: &mut [f64], row: &mut usize, keep: usize, p: usize) -> usize {
    let moved = *row - keep;
    ends.copy_within(moved * p..*row * p, 0);
    *row = keep;
    moved
}

/// Fills the lanes; gives the warm-up of the first stage. None: deadlock.
fn prepare(stages: &[StageTime], in_flight: &[u32], m: usize, scratch: &mut Scratch) -> Option<usize> {
    let p = stages.len();
    scratch.lanes.clear();
    scratch.depths.clear();
    let mut before = StageTime::default();
    let mut above = m;
    for (s, (stage, &depth)) in stages.iter().zip(in_flight).enumerate() {
        let depth = (depth.max(1) as usize).min(m);
        if depth > above {
            return None;
        }
        scratch.lanes.push(Lane {
            forward: stage.forward,
            backward: stage.backward,
            arrive: before.link_forward,
            // Keeps a link time given on the last stage from counting.
            back: if s + 1 == p {
                f64::NEG_INFINITY
            } else {
                stage.link_backward
            },
            lag: if s == 0 { 0 } else { (above - depth) * p + 1 },
            warm_up: depth - 1,
        });
        scratch.depths.push(depth as u32);
        (before, above) = (*stage, depth);
    }
    Some(scratch.lanes[0].warm_up)
}

/// The forwards of a round whose row starts at `base`, for the stages from `begin` on.
fn forwards(lanes: &[Lane], ends: &mut [f64], free: &mut [f64], base: usize, begin: usize) {
    for s in begin..lanes.len() {
        let (lane, at) = (lanes[s], base + s);
        let ready = if s == 0 {
            free[0]
        } else {
            larger(free[s], ends[at - lane.lag] + lane.arrive)
        };
        free[s] = ready + lane.forward;
        ends[at] = free[s];
    }
}

/// The backwards of a round, last stage first.
fn return_gradients(lanes: &[Lane], free: &mut [f64]) {
    let mut returned = 0.0;
    for (lane, free) in lanes.iter().zip(free).rev() {
        returned = larger(*free, returned + lane.back) + lane.backward;
        *free = returned;
    }
}

/// A whole round in one pass, where every forward reads an earlier row only (depths falling strictly downstream).
fn ramp_round(lanes: &[Lane], ends: &mut [f64], free: &mut [f64], base: usize) {
    let (past, row) = ends.split_at_mut(base);
    let row = &mut row[..lanes.len()];
    let free = &mut free[..lanes.len()];
    let mut returned = 0.0;
    for s in (1..lanes.len()).rev() {
        let lane = &lanes[s];
        let forward = larger(free[s], past[base + s - lane.lag] + lane.arrive) + lane.forward;
        row[s] = forward;
        returned = larger(forward, returned + lane.back) + lane.backward;
        free[s] = returned;
    }
    let lane = &lanes[0];
    row[0] = free[0] + lane.forward;
    free[0] = larger(row[0], returned + lane.back) + lane.backward;
}

/// Waits until the rows still read equal those `advance` rounds earlier plus `turn`.
struct Watch {
    advance: usize,
    turn: f64,
    tolerance: f64,
    /// Rows that must match in succession.
    window: usize,
    matched: usize,
    width: usize,
}

impl Watch {
    fn new(stages: &[StageTime], depths: &[u32]) -> Self {
        let critical = critical_cycle(stages, depths);
        let turn = f64::from(critical.advance) * critical.period;
        let window = depths.windows(2).map(|pair| pair[0] - pair[1]).max().unwrap_or(0);
        Self {
            advance: critical.advance as usize,
            turn,
            // The map from state to state moves no two states further apart, so this is also the relative error of
            // the result, whatever the number of turns.
            tolerance: 3e-13 * turn,
            window: (window as usize).max(1),
            matched: 0,
            width: stages.len(),
        }
    }

    fn repeats(&mut self, ends: &[f64], row: usize, head: usize) -> bool {
        if row < head + self.advance {
            return false;
        }
        let (now, then) = (row * self.width, (row - self.advance) * self.width);
        let (now, then) = (&ends[now..now + self.width], &ends[then..then + self.width]);
        let same = |(now, then): (&f64, &f64)| (now - then - self.turn).abs() <= self.tolerance;
        if now.iter().zip(then).all(same) {
            self.matched += 1;
        } else {
            self.matched = 0;
        }
        self.matched >= self.window
    }
}

/// GPipe: all forwards, then all backwards in reverse order, asynchronous sends.
pub fn gpipe(stages: &[StageTime], micro_batches: u32) -> Run {
    if micro_batches == 0 {
        return Run {
            makespan: 0.0,
            stages: vec![StageRun::default(); stages.len()],
        };
    }
    let more = f64::from(micro_batches - 1);
    let mut rows = vec![StageRun::default(); stages.len()];
    let (mut start, mut slowest) = (0.0, 0.0_f64);
    for (stage, row) in stages.iter().zip(&mut rows) {
        slowest = slowest.max(stage.forward);
        *row = StageRun {
            first_forward_start: start,
            // End of the last forward for now.
            last_backward_end: start + stage.forward + more * slowest,
            busy: f64::from(micro_batches) * stage.compute(),
            peak_in_flight: micro_batches,
        };
        start += stage.forward + stage.link_forward;
    }
    let (mut first_end, mut slowest) = (0.0, 0.0_f64);
    for (s, (stage, row)) in stages.iter().zip(&mut rows).enumerate().rev() {
        let returned = if s + 1 == stages.len() {
            0.0
        } else {
            first_end + stage.link_backward
        };
        first_end = row.last_backward_end.max(returned) + stage.backward;
        slowest = slowest.max(stage.backward);
        row.last_backward_end = first_end + more * slowest;
    }
    Run {
        makespan: rows.first().map_or(0.0, |row| row.last_backward_end),
        stages: rows,
    }
}
