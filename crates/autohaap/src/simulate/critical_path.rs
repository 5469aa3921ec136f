//! The chain of work and waits that sets the step time: from its end back to its start, every segment with its cause.

use std::collections::BTreeMap;

use super::Simulation;
use super::action::Work;
use super::engine::Interval;
use super::program::Transfer;
use crate::plan::PointToPointMode;
use crate::units::Seconds;

/// Why the step is not shorter at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A stage computes.
    Compute(Work),
    /// A transfer to another stage is on its way.
    Transfer,
    /// That transfer shares network cards, uplinks or a bus with others: the time beyond that on idle links.
    Contention,
    /// Gradients are reduced.
    Reduction,
    /// The optimizer runs.
    Optimizer,
    /// Nothing of the plan explains it (rounding).
    Other,
}

impl Cause {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Compute(Work::Forward) => "forward",
            Self::Compute(Work::Backward) => "backward",
            Self::Compute(Work::InputGrad) => "input gradient",
            Self::Compute(Work::WeightGrad) => "weight gradient",
            Self::Transfer => "transfer",
            Self::Contention => "contention",
            Self::Reduction => "gradient reduction",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

/// A piece of the critical path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Why.
    pub cause: Cause,
    /// Pipeline.
    pub pipeline: usize,
    /// Stage; the sending one of a transfer.
    pub stage: usize,
    /// First and last micro-batch of the segment.
    pub micro_batches: (u32, u32),
    /// Actions, transfers or reductions joined in the segment.
    pub count: u32,
    /// Start.
    pub start: Seconds,
    /// End.
    pub end: Seconds,
}

/// Seconds of the critical path by cause and (pipeline, stage), largest first.
pub fn totals(path: &[Segment]) -> Vec<(Cause, usize, usize, Seconds)> {
    let mut sums: BTreeMap<(usize, usize, Cause), f64> = BTreeMap::new();
    for s in path {
        *sums.entry((s.pipeline, s.stage, s.cause)).or_default() += (s.end - s.start).0;
    }
    let mut rows: Vec<_> = sums
        .into_iter()
        .map(|((p, s, cause), seconds)| (cause, p, s, Seconds(seconds)))
        .collect();
    rows.sort_by(|a, b| b.3.0.total_cmp(&a.3.0));
    rows
}

/// One transfer as the walk back sees it.
struct Arrival<'s> {
    time: Interval,
    /// Lane at the other end.
    other: usize,
    transfer: &'s Transfer,
    stage: usize,
    micro_batch: u32,
}

struct Walk<'s> {
    simulation: &'s Simulation,
    /// (chain, rank) of each lane, and the first lane of each chain.
    lanes: Vec<(usize, usize)>,
    base: Vec<usize>,
    /// Transfers that a lane waited for, by their end.
    arrivals: Vec<Vec<Arrival<'s>>>,
    path: Vec<Segment>,
}

/// The critical path in time order, neighbours of one cause and stage joined.
pub fn critical_path(simulation: &Simulation) -> Vec<Segment> {
    let program = &simulation.program;
    let mut lanes = Vec::new();
    let mut base = Vec::new();
    for (c, chain) in program.chains.iter().enumerate() {
        base.push(lanes.len());
        lanes.extend((0..chain.order.ranks.len()).map(|rank| (c, rank)));
    }
    let mut walk = Walk {
        simulation,
        arrivals: (0..lanes.len()).map(|_| Vec::new()).collect(),
        lanes,
        base,
        path: Vec::new(),
    };
    walk.collect();
    walk.back();
    walk.path.reverse();
    joined(walk.path)
}

impl Walk<'_> {
    fn collect(&mut self) {
        let Simulation {
            program, execution, ..
        } = self.simulation;
        let blocking = program.p2p == PointToPointMode::Rendezvous;
        for (c, chain) in program.chains.iter().enumerate() {
            let m = chain.order.micro_batches as usize;
            for s in 0..chain.order.num_stages().saturating_sub(1) {
                let (upper, lower) = (chain.order.rank_of[s], chain.order.rank_of[s + 1]);
                if upper == lower {
                    continue;
                }
                let (upper, lower) = (self.base[c] + upper, self.base[c] + lower);
                for (times, transfer, from, to, stage) in [
                    (&execution.forward[c], &chain.forward[s], upper, lower, s),
                    (&execution.backward[c], &chain.backward[s], lower, upper, s + 1),
                ] {
                    for i in 0..m {
                        let arrival = |other| Arrival {
                            time: times[s * m + i],
                            other,
                            transfer,
                            stage,
                            micro_batch: i as u32,
                        };
                        self.arrivals[to].push(arrival(from));
                        if blocking {
                            self.arrivals[from].push(arrival(to));
                        }
                    }
                }
            }
        }
        for list in &mut self.arrivals {
            list.sort_by(|a, b| a.time.end.total_cmp(&b.time.end));
        }
    }

    fn push(
        &mut self,
        cause: Cause,
        (pipeline, stage): (usize, usize),
        micro_batch: u32,
        start: f64,
        end: f64,
    ) {
        if end > start {
            self.path.push(Segment {
                cause,
                pipeline,
                stage,
                micro_batches: (micro_batch, micro_batch),
                count: 1,
                start: Seconds(start),
                end: Seconds(end),
            });
        }
    }

    /// From the end of the step back to its start.
    fn back(&mut self) {
        let execution = &self.simulation.execution;
        let chains = &self.simulation.program.chains;
        let end_of = |&(c, rank): &(usize, usize)| execution.reduce_end[c][rank] + chains[c].optimizer[rank];
        let last = (0..self.lanes.len()).max_by(|&a, &b| {
            end_of(&self.lanes[a])
                .total_cmp(&end_of(&self.lanes[b]))
                .then(b.cmp(&a))
        });
        let Some(mut lane) = last else { return };
        let (c, rank) = self.lanes[lane];
        let mut time = execution.reduce_end[c][rank];
        let stage = chains[c]
            .order
            .rank_of
            .iter()
            .position(|&r| r == rank)
            .unwrap_or(0);
        self.push(
            Cause::Optimizer,
            (c, stage),
            0,
            time,
            time + chains[c].optimizer[rank],
        );
        if time > execution.compute_end[c][rank] {
            (lane, time) = self.reductions(lane, time);
        }
        // Every step moves to an earlier time, or at the same time to the producer's lane.
        let mut left = 2 * self.arrivals.iter().map(Vec::len).sum::<usize>()
            + chains.iter().map(|c| c.order.num_actions()).sum::<usize>()
            + self.lanes.len();
        while time > 0.0 && left > 0 {
            left -= 1;
            match self.action(lane, time).or_else(|| self.transfer(lane, time)) {
                Some(before) => (lane, time) = before,
                None => {
                    self.push(Cause::Other, (self.lanes[lane].0, 0), 0, 0.0, time);
                    return;
                }
            }
        }
    }

    /// Reductions that end at `time` on a lane, one after the other, back to what made the first one ready.
    fn reductions(&mut self, mut lane: usize, mut time: f64) -> (usize, f64) {
        let Simulation {
            program, execution, ..
        } = self.simulation;
        let mut at = program.reductions.len();
        while let Some(r) = (0..at).rev().find(|&r| {
            execution.reductions[r].end == time
                && program.reductions[r]
                    .holders
                    .iter()
                    .any(|h| self.lane_of(h.chain, h.stage) == lane)
        }) {
            let (reduction, interval) = (&program.reductions[r], execution.reductions[r]);
            let holder = reduction
                .holders
                .iter()
                .find(|h| self.lane_of(h.chain, h.stage) == lane);
            let place = holder.map_or((0, 0), |h| (h.chain, h.stage));
            let alone = reduction.transfer.seconds.min(interval.end - interval.start);
            self.push(Cause::Contention, place, 0, interval.start + alone, interval.end);
            self.push(Cause::Reduction, place, 0, interval.start, interval.start + alone);
            time = interval.start;
            at = r;
            // The one before it on any holder, else the holder whose backward made it ready.
            let holders = reduction.holders.iter().map(|h| self.lane_of(h.chain, h.stage));
            let busy = holders.clone().find(|&other| {
                (0..r).any(|q| {
                    execution.reductions[q].end == time
                        && program.reductions[q]
                            .holders
                            .iter()
                            .any(|h| self.lane_of(h.chain, h.stage) == other)
                })
            });
            let running = holders.clone().find(|&other| {
                let (c, rank) = self.lanes[other];
                let actions = &execution.actions[c][rank];
                actions.iter().rev().any(|i| i.start < time && time <= i.end)
                    && execution.compute_end[c][rank] >= time
                    && reduction.holders.iter().any(|h| {
                        self.lane_of(h.chain, h.stage) == other
                            && (self.ready(h.chain, h.stage, h.remaining) - time).abs() <= 1e-12 * time
                    })
            });
            match (busy, running) {
                (Some(other), _) => lane = other,
                (None, Some(other)) => {
                    lane = other;
                    break;
                }
                (None, None) => break,
            }
        }
        // In the middle of a backward: its part so far is on the path.
        let (c, rank) = self.lanes[lane];
        let actions = &execution.actions[c][rank];
        let inside = actions.iter().rposition(|i| i.start < time && time < i.end);
        if let Some(at) = inside {
            let action = program.chains[c].order.ranks[rank][at];
            let place = (c, usize::from(action.stage));
            self.push(
                Cause::Compute(action.work),
                place,
                action.micro_batch,
                actions[at].start,
                time,
            );
            time = actions[at].start;
        }
        (lane, time)
    }

    fn lane_of(&self, chain: usize, stage: usize) -> usize {
        self.base[chain] + self.simulation.program.chains[chain].order.rank_of[stage]
    }

    /// When the gradients of a holder are ready.
    fn ready(&self, chain: usize, stage: usize, remaining: f64) -> f64 {
        let one = &self.simulation.program.chains[chain];
        let rank = one.order.rank_of[stage];
        let list = &one.order.ranks[rank];
        let last = list
            .iter()
            .rposition(|a| usize::from(a.stage) == stage && a.work.ends_backward());
        last.map_or(0.0, |at| {
            let end = self.simulation.execution.actions[chain][rank][at].end;
            end - remaining * one.stages[stage].seconds(list[at].work)
        })
    }

    /// The action of a lane that ends at `time`.
    fn action(&mut self, lane: usize, time: f64) -> Option<(usize, f64)> {
        let (c, rank) = self.lanes[lane];
        let actions = &self.simulation.execution.actions[c][rank];
        let after = actions.partition_point(|i| i.end <= time);
        let at = (0..after)
            .rev()
            .take_while(|&at| actions[at].end == time)
            .find(|&at| actions[at].start < time)?;
        let action = self.simulation.program.chains[c].order.ranks[rank][at];
        let start = actions[at].start;
        let place = (c, usize::from(action.stage));
        self.push(
            Cause::Compute(action.work),
            place,
            action.micro_batch,
            start,
            time,
        );
        Some((lane, start))
    }

    /// The transfer that a lane waited for until `time`.
    fn transfer(&mut self, lane: usize, time: f64) -> Option<(usize, f64)> {
        let list = &self.arrivals[lane];
        let after = list.partition_point(|a| a.time.end <= time);
        let ended = list[..after].iter().rev().take_while(|a| a.time.end == time);
        // The one that left last was the last cause.
        let arrival = ended.min_by(|a, b| a.time.start.total_cmp(&b.time.start))?;
        let (start, other) = (arrival.time.start, arrival.other);
        let alone = arrival.transfer.seconds.min(time - start);
        let (stage, i) = (arrival.stage, arrival.micro_batch);
        let place = (self.lanes[lane].0, stage);
        self.push(Cause::Contention, place, i, start + alone, time);
        self.push(Cause::Transfer, place, i, start, start + alone);
        // With blocking exchanges either end may have come last.
        let (c, rank) = self.lanes[other];
        let there = self.simulation.execution.actions[c][rank].iter();
        let stands = there.rev().any(|i| i.end == start)
            || self.arrivals[other]
                .iter()
                .any(|a| a.time.end == start && a.time.start < start);
        Some((if stands { other } else { lane }, start))
    }
}

/// Neighbours of one cause, pipeline and stage become one segment.
fn joined(path: Vec<Segment>) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::new();
    for segment in path {
        match out.last_mut() {
            Some(last)
                if last.cause == segment.cause
                    && last.pipeline == segment.pipeline
                    && last.stage == segment.stage =>
            {
                last.micro_batches.0 = last.micro_batches.0.min(segment.micro_batches.0);
                last.micro_batches.1 = last.micro_batches.1.max(segment.micro_batches.1);
                last.count += 1;
                last.end = segment.end;
            }
            _ => out.push(segment),
        }
    }
    out
}
