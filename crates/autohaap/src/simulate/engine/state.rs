//! What the engine keeps: ranks, boundaries, flows over pools, events, reductions.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Interval;
use crate::simulate::program::Program;

pub(super) const NEVER: f64 = f64::NAN;
/// A lane that waits for nothing.
pub(super) const FREE: u64 = u64::MAX;

pub(super) struct Lane {
    pub(super) chain: usize,
    pub(super) rank: usize,
    pub(super) next: usize,
    /// End of the latest action or exchange.
    pub(super) clock: f64,
    /// End of the latest action.
    pub(super) computed: f64,
    /// Input it waits for.
    pub(super) blocked: u64,
    /// Blocking exchanges: transfers of the current group that have not ended.
    pub(super) pending: u32,
    /// The next action's input has been received in a group already.
    pub(super) received: bool,
    /// Next entry of `queue`, and when the communication stream is free.
    pub(super) reduced: usize,
    pub(super) reduce_clock: f64,
    /// Reductions of this lane in order.
    pub(super) queue: Vec<u32>,
}

/// One direction of a chain's boundaries: slots `boundary * m + i`.
pub(super) struct Direction {
    /// End of the transfer; NaN until known.
    pub(super) arrived: Vec<f64>,
    /// Start, where recorded or blocking: when the sender stood at it.
    pub(super) sent: Vec<f64>,
    /// Blocking: when the receiver stood at it.
    pub(super) posted: Vec<f64>,
}

impl Direction {
    pub(super) fn new(slots: usize, starts: bool, blocking: bool) -> Self {
        let filled = |wanted: bool| vec![NEVER; if wanted { slots } else { 0 }];
        Self {
            arrived: filled(true),
            sent: filled(starts || blocking),
            posted: filled(blocking),
        }
    }
}

pub(super) struct ChainState {
    pub(super) m: usize,
    pub(super) last: usize,
    /// Nothing passes from this stage to the next.
    pub(super) cut: usize,
    pub(super) base: usize,
    /// Forward and backward.
    pub(super) directions: [Direction; 2],
    /// Backwards (weight gradients) left per stage.
    pub(super) left: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Chain, direction, slot.
    Transfer(u32, u8, u32),
    Reduction(u32),
}

pub(super) struct Flow {
    pub(super) load: Load,
    pub(super) remaining: f64,
    pub(super) rate: f64,
    pub(super) since: f64,
    pub(super) version: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Start(Load),
    End(u32, u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time: f64,
    pub(super) number: u64,
    pub(super) kind: Kind,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    // The heap gives the greatest: the earliest, and of these the first made.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .time
            .total_cmp(&self.time)
            .then_with(|| other.number.cmp(&self.number))
    }
}

pub(super) struct ReductionState {
    pub(super) missing: u32,
    pub(super) ready: f64,
    pub(super) started: bool,
}

pub(super) struct Engine<'p> {
    pub(super) program: &'p Program,
    pub(super) record: bool,
    pub(super) blocking: bool,
    pub(super) lanes: Vec<Lane>,
    pub(super) chains: Vec<ChainState>,
    pub(super) actions: Vec<Vec<Interval>>,
    pub(super) heap: BinaryHeap<Event>,
    pub(super) number: u64,
    pub(super) flows: Vec<Flow>,
    pub(super) free_flows: Vec<u32>,
    /// Flows of each pool, and the sum of their shares.
    pub(super) pools: Vec<(Vec<u32>, f64)>,
    pub(super) ready: Vec<u32>,
    /// Per chain and stage: reductions that wait for it, with the share of the last backward that remains.
    pub(super) waiting: Vec<Vec<Vec<(u32, f64)>>>,
    pub(super) reductions: Vec<ReductionState>,
    pub(super) times: Vec<Interval>,
}
