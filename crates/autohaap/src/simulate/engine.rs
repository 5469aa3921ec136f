//! The event engine: every rank runs its list in order; transfers and reductions share pools.
//!
//! ```text
//! an action starts at max(end of the one before it on its rank, arrival of its input)
//! a transfer leaves at the end of its producer (async) or when both ends stand at it (rendezvous)
//! a reduction starts when its last holder is ready and every holder's communication stream is free
//! ```
//!
//! A transfer that asks for the share `u` of a pool runs at full speed while the shares in the pool add up to at most
//! 1, else at 1 over their sum; the most crowded of its pools sets its rate. Transfers without pools never wait.
//!
//! Ranks run ahead of the event queue as far as their inputs are known, so that only transfers over pools cost events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::action::{Action, Work};
use super::deadlock::{self, Wait};
use super::program::Program;
use crate::error::Problem;
use crate::plan::PointToPointMode;

/// Start and end in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interval {
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
}

/// What happened, in seconds from the start of the step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Execution {
    /// Per chain and rank: the interval of every action of its list. Empty if not recorded.
    pub actions: Vec<Vec<Vec<Interval>>>,
    /// Per chain: transfer of micro-batch i to stage s + 1 at `s * m + i`; NaN inside a rank. Empty if not recorded.
    pub forward: Vec<Vec<Interval>>,
    /// Per chain: transfer of micro-batch i's gradient to stage s at `s * m + i`. Empty if not recorded.
    pub backward: Vec<Vec<Interval>>,
    /// Reductions of the program.
    pub reductions: Vec<Interval>,
    /// Per chain and rank: end of compute.
    pub compute_end: Vec<Vec<f64>>,
    /// Per chain and rank: end of the last reduction, at least the end of compute.
    pub reduce_end: Vec<Vec<f64>>,
    /// End of the last backward over all ranks.
    pub makespan: f64,
    /// End of the step, optimizer included.
    pub step: f64,
    /// Events processed.
    pub events: u64,
}

/// Executes a program.
///
/// # Errors
/// A deadlock, with its circle of waits. `record` keeps the interval of every action and transfer.
pub fn execute(program: &Program, record: bool) -> Result<Execution, Problem> {
    let mut engine = Engine::new(program, record);
    engine.run();
    engine.finish()
}

const NEVER: f64 = f64::NAN;
/// A lane that waits for nothing.
const FREE: u64 = u64::MAX;

struct Lane {
    chain: usize,
    rank: usize,
    next: usize,
    /// End of the latest action or exchange.
    clock: f64,
    /// End of the latest action.
    computed: f64,
    /// Input it waits for.
    blocked: u64,
    /// Blocking exchanges: transfers of the current group that have not ended.
    pending: u32,
    /// The next action's input has been received in a group already.
    received: bool,
    /// Next entry of `queue`, and when the communication stream is free.
    reduced: usize,
    reduce_clock: f64,
    /// Reductions of this lane in order.
    queue: Vec<u32>,
}

/// One direction of a chain's boundaries: slots `boundary * m + i`.
struct Direction {
    /// End of the transfer; NaN until known.
    arrived: Vec<f64>,
    /// Start, where recorded or blocking: when the sender stood at it.
    sent: Vec<f64>,
    /// Blocking: when the receiver stood at it.
    posted: Vec<f64>,
}

impl Direction {
    fn new(slots: usize, starts: bool, blocking: bool) -> Self {
        let filled = |wanted: bool| vec![NEVER; if wanted { slots } else { 0 }];
        Self {
            arrived: filled(true),
            sent: filled(starts || blocking),
            posted: filled(blocking),
        }
    }
}

struct ChainState {
    m: usize,
    last: usize,
    /// Nothing passes from this stage to the next.
    cut: usize,
    base: usize,
    /// Forward and backward.
    directions: [Direction; 2],
    /// Backwards (weight gradients) left per stage.
    left: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Chain, direction, slot.
    Transfer(u32, u8, u32),
    Reduction(u32),
}

struct Flow {
    load: Load,
    remaining: f64,
    rate: f64,
    since: f64,
    version: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Start(Load),
    End(u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct Event {
    time: f64,
    number: u64,
    kind: Kind,
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

struct ReductionState {
    missing: u32,
    ready: f64,
    started: bool,
}

struct Engine<'p> {
    program: &'p Program,
    record: bool,
    blocking: bool,
    lanes: Vec<Lane>,
    chains: Vec<ChainState>,
    actions: Vec<Vec<Interval>>,
    heap: BinaryHeap<Event>,
    number: u64,
    flows: Vec<Flow>,
    free_flows: Vec<u32>,
    /// Flows of each pool, and the sum of their shares.
    pools: Vec<(Vec<u32>, f64)>,
    ready: Vec<u32>,
    /// Per chain and stage: reductions that wait for it, with the share of the last backward that remains.
    waiting: Vec<Vec<Vec<(u32, f64)>>>,
    reductions: Vec<ReductionState>,
    times: Vec<Interval>,
}

impl<'p> Engine<'p> {
    fn new(program: &'p Program, record: bool) -> Self {
        let blocking = program.p2p == PointToPointMode::Rendezvous;
        let mut lanes = Vec::new();
        let mut chains = Vec::new();
        let mut actions = Vec::new();
        for (c, chain) in program.chains.iter().enumerate() {
            let base = lanes.len();
            let m = chain.order.micro_batches as usize;
            let stages = chain.order.num_stages();
            for (rank, list) in chain.order.ranks.iter().enumerate() {
                lanes.push(Lane {
                    chain: c,
                    rank,
                    next: 0,
                    clock: 0.0,
                    computed: 0.0,
                    blocked: FREE,
                    pending: 0,
                    received: false,
                    reduced: 0,
                    reduce_clock: 0.0,
                    queue: Vec::new(),
                });
                actions.push(Vec::with_capacity(if record { list.len() } else { 0 }));
            }
            let slots = stages.saturating_sub(1) * m;
            let direction = || Direction::new(slots, record, blocking);
            chains.push(ChainState {
                m,
                last: stages.saturating_sub(1),
                cut: chain.order.cut.unwrap_or(usize::MAX - 1),
                base,
                directions: [direction(), direction()],
                left: vec![m as u32; stages],
            });
        }
        let mut waiting: Vec<Vec<Vec<(u32, f64)>>> = program
            .chains
            .iter()
            .map(|c| vec![Vec::new(); c.order.num_stages()])
            .collect();
        for (r, reduction) in program.reductions.iter().enumerate() {
            for holder in &reduction.holders {
                waiting[holder.chain][holder.stage].push((r as u32, holder.remaining));
                let rank = program.chains[holder.chain].order.rank_of[holder.stage];
                let lane: &mut Lane = &mut lanes[chains[holder.chain].base + rank];
                if lane.queue.last() != Some(&(r as u32)) {
                    lane.queue.push(r as u32);
                }
            }
        }
        let reductions = program
            .reductions
            .iter()
            .map(|r| ReductionState {
                missing: r.holders.len() as u32,
                ready: 0.0,
                started: false,
            })
            .collect();
        Self {
            record,
            blocking,
            ready: (0..lanes.len() as u32).rev().collect(),
            lanes,
            chains,
            actions,
            heap: BinaryHeap::new(),
            number: 0,
            flows: Vec::new(),
            free_flows: Vec::new(),
            pools: vec![(Vec::new(), 0.0); program.pools.len()],
            waiting,
            reductions,
            times: vec![Interval::default(); program.reductions.len()],
            program,
        }
    }

    fn run(&mut self) {
        loop {
            while let Some(lane) = self.ready.pop() {
                if self.blocking {
                    self.advance_blocking(lane as usize);
                } else {
                    self.advance(lane as usize);
                }
            }
            let Some(event) = self.heap.pop() else { return };
            match event.kind {
                Kind::Start(load) => self.start(load, event.time),
                Kind::End(flow, version) => self.end(flow, version, event.time),
            }
        }
    }

    fn push(&mut self, time: f64, kind: Kind) {
        self.heap.push(Event {
            time,
            number: self.number,
            kind,
        });
        self.number += 1;
    }

    /// Whether the input of an action comes over a boundary: (direction, slot).
    fn input(chain: &ChainState, action: Action) -> Option<(u8, usize)> {
        let (stage, i) = (usize::from(action.stage), action.micro_batch as usize);
        match action.work {
            Work::Forward if stage > 0 && stage != chain.cut + 1 => Some((0, (stage - 1) * chain.m + i)),
            Work::Backward | Work::InputGrad if stage < chain.last && stage != chain.cut => {
                Some((1, stage * chain.m + i))
            }
            _ => None,
        }
    }

    /// The boundary that the result of an action crosses: (direction, slot).
    fn output(chain: &ChainState, action: Action) -> Option<(u8, usize)> {
        let (stage, i) = (usize::from(action.stage), action.micro_batch as usize);
        match action.work {
            Work::Forward if stage < chain.last && stage != chain.cut => Some((0, stage * chain.m + i)),
            Work::Backward | Work::InputGrad if stage > 0 && stage != chain.cut + 1 => {
                Some((1, (stage - 1) * chain.m + i))
            }
            _ => None,
        }
    }

    /// (sending, receiving) stage of a slot.
    fn ends(&self, chain: usize, direction: u8, slot: usize) -> (usize, usize) {
        let upper = slot / self.chains[chain].m;
        if direction == 0 {
            (upper, upper + 1)
        } else {
            (upper + 1, upper)
        }
    }

    fn lane_of(&self, chain: usize, stage: usize) -> usize {
        self.chains[chain].base + self.program.chains[chain].order.rank_of[stage]
    }

    fn advance(&mut self, lane: usize) {
        let program = self.program;
        let (c, rank) = (self.lanes[lane].chain, self.lanes[lane].rank);
        let list = &program.chains[c].order.ranks[rank];
        loop {
            let next = self.lanes[lane].next;
            let Some(&action) = list.get(next) else { return };
            let chain = &self.chains[c];
            let mut start = self.lanes[lane].clock;
            let partner = if action.with_next {
                list.get(next + 1)
            } else {
                None
            };
            for action in [Some(action), partner.copied()].into_iter().flatten() {
                if let Some((direction, slot)) = Self::input(chain, action) {
                    let arrived = chain.directions[usize::from(direction)].arrived[slot];
                    if arrived.is_nan() {
                        self.lanes[lane].blocked = u64::from(direction) << 63 | slot as u64;
                        return;
                    }
                    if arrived > start {
                        start = arrived;
                    }
                }
            }
            let end = self.compute(lane, action, partner.copied(), start);
            for action in [Some(action), partner.copied()].into_iter().flatten() {
                if let Some((direction, slot)) = Self::output(&self.chains[c], action) {
                    self.send(c, direction, slot, end);
                }
            }
        }
    }

    /// Runs an action or an overlapped pair; gives its end.
    fn compute(&mut self, lane: usize, action: Action, partner: Option<Action>, start: f64) -> f64 {
        let c = self.lanes[lane].chain;
        let mut seconds = self.program.seconds(c, action);
        if let Some(partner) = partner {
            seconds = (seconds + self.program.seconds(c, partner)) * self.program.pair_factor;
        }
        let end = start + seconds;
        if self.record {
            self.actions[lane].push(Interval { start, end });
            if partner.is_some() {
                self.actions[lane].push(Interval { start, end });
            }
        }
        let state = &mut self.lanes[lane];
        state.clock = end;
        state.computed = end;
        state.next += 1 + usize::from(partner.is_some());
        for action in [Some(action), partner].into_iter().flatten() {
            if action.work.ends_backward() {
                let stage = usize::from(action.stage);
                let left = &mut self.chains[c].left[stage];
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.stage_done(c, stage, action.work, end);
                }
            }
        }
        end
    }

    /// Starts the transfer of a slot at `time`, when nothing has to be waited for.
    fn send(&mut self, c: usize, direction: u8, slot: usize, time: f64) {
        let program = self.program;
        let (from, to) = self.ends(c, direction, slot);
        let order = &program.chains[c].order;
        if !self.chains[c].directions[usize::from(direction)].sent.is_empty() {
            self.chains[c].directions[usize::from(direction)].sent[slot] = time;
        }
        if order.rank_of[from] == order.rank_of[to] {
            self.arrive(c, direction, slot, time);
            return;
        }
        let transfer = self.transfer(c, direction, slot);
        if transfer.uses.is_empty() {
            self.arrive(c, direction, slot, time + transfer.seconds);
        } else {
            self.push(
                time,
                Kind::Start(Load::Transfer(c as u32, direction, slot as u32)),
            );
        }
    }

    fn transfer(&self, c: usize, direction: u8, slot: usize) -> &'p super::program::Transfer {
        let upper = slot / self.chains[c].m;
        let chain = &self.program.chains[c];
        if direction == 0 {
            &chain.forward[upper]
        } else {
            &chain.backward[upper]
        }
    }

    /// A transfer has ended (or will at a known time).
    fn arrive(&mut self, c: usize, direction: u8, slot: usize, time: f64) {
        self.chains[c].directions[usize::from(direction)].arrived[slot] = time;
        let (from, to) = self.ends(c, direction, slot);
        let receiver = self.lane_of(c, to);
        if self.blocking {
            let sender = self.lane_of(c, from);
            if sender == receiver {
                return;
            }
            for lane in [sender, receiver] {
                let state = &mut self.lanes[lane];
                state.pending -= 1;
                state.clock = state.clock.max(time);
                if state.pending == 0 {
                    self.ready.push(lane as u32);
                }
            }
            return;
        }
        if self.lanes[receiver].blocked == (u64::from(direction) << 63 | slot as u64) {
            self.lanes[receiver].blocked = FREE;
            self.ready.push(receiver as u32);
        }
    }

    /// Blocking exchanges: input alone or fused with the send before it when the direction turns.
    fn advance_blocking(&mut self, lane: usize) {
        let program = self.program;
        let (c, rank) = (self.lanes[lane].chain, self.lanes[lane].rank);
        let list = &program.chains[c].order.ranks[rank];
        while self.lanes[lane].pending == 0 {
            let next = self.lanes[lane].next;
            let Some(&action) = list.get(next) else { return };
            let partner = if action.with_next {
                list.get(next + 1)
            } else {
                None
            }
            .copied();
            if !self.lanes[lane].received {
                self.lanes[lane].received = true;
                let mut posts = [None; 2];
                for (post, action) in posts.iter_mut().zip([Some(action), partner]) {
                    *post = action.and_then(|action| self.remote_input(c, action));
                }
                let at = self.lanes[lane].clock;
                self.stand(lane, c, &posts.map(|p| p.map(|slot| (slot, true))), at);
                continue;
            }
            // Results of the rank's own other chunks are there, or never will be.
            let own = [Some(action), partner].into_iter().flatten().any(|action| {
                Self::input(&self.chains[c], action).is_some_and(|(direction, slot)| {
                    self.chains[c].directions[usize::from(direction)].arrived[slot].is_nan()
                })
            });
            if own {
                return;
            }
            let start = self.lanes[lane].clock;
            let end = self.compute(lane, action, partner, start);
            self.lanes[lane].received = false;
            let mut group: [Option<((u8, usize), bool)>; 4] = [None; 4];
            let mut sends = false;
            for (entry, action) in group.iter_mut().zip([Some(action), partner]) {
                let Some(output) = action.and_then(|action| Self::output(&self.chains[c], action)) else {
                    continue;
                };
                let (from, to) = self.ends(c, output.0, output.1);
                if program.chains[c].order.rank_of[from] == program.chains[c].order.rank_of[to] {
                    self.send(c, output.0, output.1, end);
                } else {
                    *entry = Some((output, false));
                    sends = true;
                }
            }
            let following = self.lanes[lane].next;
            if let Some(&after) = list.get(following)
                && sends
                && partner.is_none()
                && !after.with_next
                && after.work != Work::WeightGrad
                && (after.work == Work::Forward) != (action.work == Work::Forward)
            {
                group[2] = self.remote_input(c, after).map(|slot| (slot, true));
                self.lanes[lane].received = true;
            }
            self.stand(lane, c, &group, end);
        }
    }

    fn remote_input(&self, c: usize, action: Action) -> Option<(u8, usize)> {
        let (direction, slot) = Self::input(&self.chains[c], action)?;
        let (from, to) = self.ends(c, direction, slot);
        let order = &self.program.chains[c].order;
        (order.rank_of[from] != order.rank_of[to]).then_some((direction, slot))
    }

    /// The lane stands at a group of transfers; those whose other end stands there too start.
    fn stand(&mut self, lane: usize, c: usize, group: &[Option<((u8, usize), bool)>], time: f64) {
        self.lanes[lane].pending += group.iter().flatten().count() as u32;
        for &((direction, slot), receives) in group.iter().flatten() {
            let state = &mut self.chains[c].directions[usize::from(direction)];
            let other = if receives {
                state.posted[slot] = time;
                state.sent[slot]
            } else {
                state.sent[slot] = time;
                state.posted[slot]
            };
            if other.is_nan() {
                continue;
            }
            let begin = time.max(other);
            self.chains[c].directions[usize::from(direction)].sent[slot] = begin;
            let transfer = self.transfer(c, direction, slot);
            if transfer.uses.is_empty() {
                self.arrive(c, direction, slot, begin + transfer.seconds);
            } else {
                self.push(
                    begin,
                    Kind::Start(Load::Transfer(c as u32, direction, slot as u32)),
                );
            }
        }
    }

    fn load(&self, load: Load) -> &'p super::program::Transfer {
        match load {
            Load::Transfer(c, direction, slot) => self.transfer(c as usize, direction, slot as usize),
            Load::Reduction(r) => &self.program.reductions[r as usize].transfer,
        }
    }

    fn start(&mut self, load: Load, time: f64) {
        if let Load::Reduction(r) = load {
            self.times[r as usize].start = time;
        }
        let transfer = self.load(load);
        let flow = Flow {
            load,
            remaining: transfer.seconds,
            rate: 1.0,
            since: time,
            version: 0,
        };
        let id = if let Some(id) = self.free_flows.pop() {
            let version = self.flows[id as usize].version + 1;
            self.flows[id as usize] = Flow { version, ..flow };
            id
        } else {
            self.flows.push(flow);
            self.flows.len() as u32 - 1
        };
        let mut crowded = false;
        for &(pool, share) in &transfer.uses {
            let (flows, sum) = &mut self.pools[pool as usize];
            flows.push(id);
            *sum += share;
            crowded |= *sum > FULL;
        }
        if crowded {
            self.settle(transfer, time);
        }
        if self.flows[id as usize].rate == 1.0 {
            let version = self.flows[id as usize].version;
            self.push(time + transfer.seconds, Kind::End(id, version));
        }
    }

    /// Adjusts the rate of every flow in the pools of a transfer that came or went.
    fn settle(&mut self, changed: &super::program::Transfer, time: f64) {
        for &(pool, _) in &changed.uses {
            for at in 0..self.pools[pool as usize].0.len() {
                let id = self.pools[pool as usize].0[at];
                let load = self.flows[id as usize].load;
                let crowd = self
                    .load(load)
                    .uses
                    .iter()
                    .map(|&(pool, _)| self.pools[pool as usize].1)
                    .fold(1.0, f64::max);
                let rate = if crowd > FULL { 1.0 / crowd } else { 1.0 };
                let flow = &mut self.flows[id as usize];
                if rate == flow.rate {
                    continue;
                }
                flow.remaining = (flow.remaining - (time - flow.since) * flow.rate).max(0.0);
                flow.since = time;
                flow.rate = rate;
                flow.version += 1;
                let (end, version) = (time + flow.remaining / rate, flow.version);
                self.push(end, Kind::End(id, version));
            }
        }
    }

    fn end(&mut self, id: u32, version: u32, time: f64) {
        if self.flows[id as usize].version != version {
            return;
        }
        let load = self.flows[id as usize].load;
        let transfer = self.load(load);
        // A late event of the past must not match the next flow under this number.
        self.flows[id as usize].version += 1;
        self.free_flows.push(id);
        let mut crowded = false;
        for &(pool, _) in &transfer.uses {
            let (flows, sum) = &mut self.pools[pool as usize];
            crowded |= *sum > FULL;
            if let Some(at) = flows.iter().position(|&other| other == id) {
                flows.swap_remove(at);
            }
        }
        for &(pool, _) in &transfer.uses {
            // Summed anew: no rounding is carried along.
            let sum = self.pools[pool as usize]
                .0
                .iter()
                .map(|&other| {
                    let uses = &self.load(self.flows[other as usize].load).uses;
                    uses.iter().find(|u| u.0 == pool).map_or(0.0, |u| u.1)
                })
                .sum();
            self.pools[pool as usize].1 = sum;
        }
        if crowded {
            self.settle(transfer, time);
        }
        match load {
            Load::Transfer(c, direction, slot) => self.arrive(c as usize, direction, slot as usize, time),
            Load::Reduction(r) => self.reduced(r, time),
        }
    }

    /// The last backward of a stage ends at `end`.
    fn stage_done(&mut self, c: usize, stage: usize, work: Work, end: f64) {
        let times = &self.program.chains[c].stages[stage];
        let seconds = times.seconds(work);
        for at in 0..self.waiting[c][stage].len() {
            let (r, remaining) = self.waiting[c][stage][at];
            let state = &mut self.reductions[r as usize];
            state.ready = state.ready.max(end - remaining * seconds);
            state.missing -= 1;
            if state.missing == 0 {
                self.try_reduce(r);
            }
        }
    }

    /// Starts a reduction when its holders are ready and it is next on all of them.
    fn try_reduce(&mut self, r: u32) {
        let program = self.program;
        let state = &self.reductions[r as usize];
        if state.missing > 0 || state.started {
            return;
        }
        let mut time = state.ready;
        for holder in &program.reductions[r as usize].holders {
            let lane = &self.lanes[self.lane_of(holder.chain, holder.stage)];
            if lane.queue.get(lane.reduced) != Some(&r) {
                return;
            }
            time = time.max(lane.reduce_clock);
        }
        self.reductions[r as usize].started = true;
        self.push(time, Kind::Start(Load::Reduction(r)));
    }

    fn reduced(&mut self, r: u32, time: f64) {
        let program = self.program;
        self.times[r as usize].end = time;
        let holders = &program.reductions[r as usize].holders;
        for holder in holders {
            let lane = self.lane_of(holder.chain, holder.stage);
            let lane = &mut self.lanes[lane];
            if lane.queue.get(lane.reduced) == Some(&r) {
                lane.reduced += 1;
                lane.reduce_clock = time;
            }
        }
        for holder in holders {
            let lane = &self.lanes[self.lane_of(holder.chain, holder.stage)];
            if let Some(&next) = lane.queue.get(lane.reduced) {
                self.try_reduce(next);
            }
        }
    }

    fn finish(self) -> Result<Execution, Problem> {
        if let Some(stuck) = self
            .lanes
            .iter()
            .position(|l| l.next < self.program.chains[l.chain].order.ranks[l.rank].len())
        {
            let waits = (0..self.lanes.len())
                .map(|lane| self.wait(lane))
                .collect::<Vec<_>>();
            return Err(deadlock::problem(&waits, stuck));
        }
        let mut execution = Execution {
            reductions: self.times,
            events: self.number,
            ..Execution::default()
        };
        let mut actions = self.actions.into_iter();
        let mut lanes = self.lanes.iter();
        for (chain, state) in self.program.chains.iter().zip(self.chains) {
            let ranks = chain.order.ranks.len();
            let own: Vec<&Lane> = lanes.by_ref().take(ranks).collect();
            // Blocking sends end after compute; what counts is the last action.
            let compute: Vec<f64> = own.iter().map(|lane| lane.computed).collect();
            let reduce: Vec<f64> = own
                .iter()
                .map(|lane| lane.computed.max(lane.reduce_clock))
                .collect();
            for (end, optimizer) in reduce.iter().zip(&chain.optimizer) {
                execution.step = execution.step.max(end + optimizer);
            }
            execution.makespan = compute.iter().copied().fold(execution.makespan, f64::max);
            execution.compute_end.push(compute);
            execution.reduce_end.push(reduce);
            execution.actions.push(actions.by_ref().take(ranks).collect());
            let [forward, backward] = state.directions;
            if self.record {
                execution.forward.push(intervals(forward));
                execution.backward.push(intervals(backward));
            }
        }
        Ok(execution)
    }

    /// What a lane waits for.
    fn wait(&self, lane: usize) -> Option<Wait> {
        let state = &self.lanes[lane];
        let c = state.chain;
        let list = &self.program.chains[c].order.ranks[state.rank];
        let &action = list.get(state.next)?;
        let partner = if action.with_next {
            list.get(state.next + 1).copied()
        } else {
            None
        };
        let chain = &self.chains[c];
        let candidates = [Some(action), partner].into_iter().flatten();
        for action in candidates {
            if let Some((direction, slot)) = Self::input(chain, action)
                && chain.directions[usize::from(direction)].arrived[slot].is_nan()
            {
                let (from, _) = self.ends(c, direction, slot);
                return Some(Wait {
                    pipeline: c,
                    rank: state.rank,
                    action,
                    on: self.lane_of(c, from),
                    on_rank: self.program.chains[c].order.rank_of[from],
                    needs: (from, direction == 0, action.micro_batch),
                });
            }
        }
        // Blocking: its own send finds nobody.
        let sent = state.next.checked_sub(1).and_then(|at| list.get(at))?;
        let (direction, slot) = Self::output(chain, *sent)?;
        let (_, to) = self.ends(c, direction, slot);
        Some(Wait {
            pipeline: c,
            rank: state.rank,
            action: *sent,
            on: self.lane_of(c, to),
            on_rank: self.program.chains[c].order.rank_of[to],
            needs: (to, direction == 0, sent.micro_batch),
        })
    }
}

/// Shares above this crowd a pool.
const FULL: f64 = 1.0 + 1e-9;

fn intervals(direction: Direction) -> Vec<Interval> {
    let starts = direction.sent.into_iter();
    starts
        .zip(direction.arrived)
        .map(|(start, end)| Interval { start, end })
        .collect()
}
