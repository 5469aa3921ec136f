//! Program and execution to a [`Timeline`].

use super::action::Work;
use super::build::crosses;
use super::engine::{Execution, Interval};
use super::program::{Program, Transfer};
use super::timeline::{Device, Lane, Link, PoolUse, Span, SpanKind, Timeline};
use crate::cost::price::{Detail, PipelineDetail};
use crate::plan::Pipeline;
use crate::units::{Bytes, Seconds};

pub(super) fn timeline(
    pipelines: &[Pipeline],
    detail: &Detail,
    program: &Program,
    execution: &Execution,
) -> Timeline {
    let mut lanes = Vec::new();
    let mut links = Vec::new();
    for (p, chain) in program.chains.iter().enumerate() {
        for rank in 0..chain.order.ranks.len() {
            lanes.push(lane(
                p,
                rank,
                &pipelines[p],
                &detail.pipelines[p],
                program,
                execution,
            ));
        }
        for s in 0..chain.order.num_stages().saturating_sub(1) {
            if !crosses(&chain.order, s, Work::Forward) {
                continue;
            }
            let m = chain.order.micro_batches as usize;
            let slots = s * m..(s + 1) * m;
            let mut push =
                |from: usize, to: usize, kind: SpanKind, transfer: &Transfer, times: &[Interval]| {
                    links.push(link(p, from, to, kind, transfer, times));
                };
            let (there, back) = (
                &execution.forward[p][slots.clone()],
                &execution.backward[p][slots],
            );
            push(s, s + 1, SpanKind::SendForward, &chain.forward[s], there);
            push(s + 1, s, SpanKind::SendBackward, &chain.backward[s], back);
        }
    }
    for (reduction, interval) in program.reductions.iter().zip(&execution.reductions) {
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for holder in &reduction.holders {
            let rank = program.chains[holder.chain].order.rank_of[holder.stage];
            if seen.contains(&(holder.chain, rank)) {
                continue;
            }
            seen.push((holder.chain, rank));
            let at = lanes
                .iter()
                .position(|l| l.pipeline == holder.chain && l.rank == rank);
            if let Some(at) = at {
                lanes[at].reductions.push(Span {
                    kind: if reduction.atoms[0] == reduction.atoms[1] {
                        SpanKind::ReduceTied
                    } else {
                        SpanKind::Reduce
                    },
                    stage: holder.stage as u32,
                    micro_batch: 0,
                    start: Seconds(interval.start),
                    end: Seconds(interval.end),
                    bytes: Bytes(reduction.transfer.bytes),
                });
            }
        }
    }
    for lane in &mut lanes {
        lane.reductions.sort_by(|a, b| a.start.0.total_cmp(&b.start.0));
    }
    Timeline {
        step_time: Seconds(execution.step),
        compute_end: Seconds(execution.makespan),
        lanes,
        links,
        pools: pools(program, execution),
    }
}

fn lane(
    p: usize,
    rank: usize,
    pipeline: &Pipeline,
    detail: &PipelineDetail,
    program: &Program,
    execution: &Execution,
) -> Lane {
    let chain = &program.chains[p];
    let held: Vec<usize> = (0..chain.order.num_stages())
        .filter(|&s| chain.order.rank_of[s] == rank)
        .collect();
    let mut compute = Vec::with_capacity(chain.order.ranks[rank].len());
    let (mut busy, mut communication) = (0.0, 0.0);
    let mut paired = false;
    for (action, interval) in chain.order.ranks[rank].iter().zip(&execution.actions[p][rank]) {
        compute.push(Span {
            kind: SpanKind::Work(action.work),
            stage: u32::from(action.stage),
            micro_batch: action.micro_batch,
            start: Seconds(interval.start),
            end: Seconds(interval.end),
            bytes: Bytes::ZERO,
        });
        if !paired {
            busy += interval.end - interval.start;
        }
        paired = action.with_next;
        let stage = &detail.stages[usize::from(action.stage)];
        communication += match action.work {
            Work::Forward => stage.forward_communication.total().0,
            Work::Backward | Work::InputGrad => stage.backward_communication.total().0,
            Work::WeightGrad => 0.0,
        };
    }
    let end = execution.reduce_end[p][rank];
    let optimizer = Span {
        kind: SpanKind::Optimizer,
        stage: held.first().copied().unwrap_or(0) as u32,
        micro_batch: 0,
        start: Seconds(end),
        end: Seconds(end + chain.optimizer[rank]),
        bytes: Bytes::ZERO,
    };
    let mut lane = Lane {
        pipeline: p,
        rank,
        stages: held.iter().map(|&s| (s, pipeline.stages[s].atoms)).collect(),
        devices: devices(&held, detail),
        compute,
        reductions: Vec::new(),
        optimizer,
        busy: Seconds(busy),
        communication: Seconds(communication),
    };
    // Devices of one kind have one peak.
    let mut known: Vec<(Device, Bytes)> = Vec::new();
    for d in 0..lane.devices.len() {
        let device = &lane.devices[d];
        let alike = |other: &Device| {
            other.fixed == device.fixed && other.saved == device.saved && other.transient == device.transient
        };
        let peak = match known.iter().find(|(other, _)| alike(other)) {
            Some((_, peak)) => *peak,
            None => {
                let peak = lane.peak(device);
                known.push((device.clone(), peak));
                peak
            }
        };
        lane.devices[d].peak = peak;
    }
    lane
}

/// The devices of the stages on one rank: chunks add up, context and reserve count once.
fn devices(held: &[usize], detail: &PipelineDetail) -> Vec<Device> {
    let Some(&first) = held.first() else {
        return Vec::new();
    };
    let mut devices: Vec<Device> = detail.stages[first]
        .devices
        .iter()
        .map(|d| Device {
            name: d.name.clone(),
            node: d.node,
            index: d.index,
            device_type: d.device_type.clone(),
            fixed: d.memory.context + d.memory.reserve,
            saved: Vec::new(),
            transient: Vec::new(),
            limit: d.memory.limit,
            peak: Bytes::ZERO,
        })
        .collect();
    for &s in held {
        for (device, own) in devices.iter_mut().zip(&detail.stages[s].devices) {
            let m = &own.memory;
            device.fixed += m.weights + m.gradients + m.optimizer + m.buffers;
            device.saved.push(own.saved);
            device.transient.push(m.working_set + m.logits);
        }
    }
    devices
}

fn link(p: usize, from: usize, to: usize, kind: SpanKind, transfer: &Transfer, times: &[Interval]) -> Link {
    let spans: Vec<Span> = times
        .iter()
        .enumerate()
        .map(|(i, time)| Span {
            kind,
            stage: from as u32,
            micro_batch: i as u32,
            start: Seconds(time.start),
            end: Seconds(time.end),
            bytes: Bytes(transfer.bytes),
        })
        .collect();
    let mut sorted: Vec<(f64, f64)> = times.iter().map(|t| (t.start, t.end)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut busy, mut reached) = (0.0, f64::NEG_INFINITY);
    for (start, end) in sorted {
        busy += (end - start.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    Link {
        pipeline: p,
        from,
        to,
        alone: Seconds(transfer.seconds),
        spans,
        busy: Seconds(busy),
    }
}

/// Demand over time of every pool: shares of the transfers that run.
fn pools(program: &Program, execution: &Execution) -> Vec<PoolUse> {
    let count = program.pools.len();
    let mut changes: Vec<Vec<(f64, f64)>> = vec![Vec::new(); count];
    // Capacity-seconds used.
    let mut used = vec![0.0; count];
    let mut bytes = vec![0.0; count];
    let mut add = |transfer: &Transfer, time: &Interval| {
        for &(pool, share) in &transfer.uses {
            let pool = pool as usize;
            changes[pool].push((time.start, share));
            changes[pool].push((time.end, -share));
            used[pool] += share * transfer.seconds;
            bytes[pool] += transfer.bytes;
        }
    };
    for (p, chain) in program.chains.iter().enumerate() {
        let m = chain.order.micro_batches as usize;
        for (s, (there, back)) in chain.forward.iter().zip(&chain.backward).enumerate() {
            for i in s * m..(s + 1) * m {
                add(there, &execution.forward[p][i]);
                add(back, &execution.backward[p][i]);
            }
        }
    }
    for (reduction, time) in program.reductions.iter().zip(&execution.reductions) {
        add(&reduction.transfer, time);
    }
    let mut rows = Vec::new();
    for (at, pool) in program.pools.iter().enumerate() {
        let list = &mut changes[at];
        // At equal times what ends leaves before what starts comes.
        list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let (mut now, mut peak) = (0.0, 0.0_f64);
        for (_, change) in list.iter() {
            now += change;
            peak = peak.max(now);
        }
        rows.push(PoolUse {
            name: pool.name.clone(),
            node: pool.node,
            bytes: Bytes(bytes[at]),
            utilisation: if execution.step > 0.0 {
                used[at] / execution.step
            } else {
                0.0
            },
            peak_demand: peak,
        });
    }
    rows
}
