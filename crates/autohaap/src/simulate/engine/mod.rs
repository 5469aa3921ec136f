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

mod blocking;
mod boundaries;
mod pools;
mod ranks;
mod reductions;
mod state;
mod waits;

use std::collections::BinaryHeap;

use self::state::{ChainState, Direction, Engine, Event, FREE, Kind, Lane, ReductionState};
use super::deadlock;
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
}

fn intervals(direction: Direction) -> Vec<Interval> {
    let starts = direction.sent.into_iter();
    starts
        .zip(direction.arrived)
        .map(|(start, end)| Interval { start, end })
        .collect()
}
