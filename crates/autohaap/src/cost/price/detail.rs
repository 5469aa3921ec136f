//! What a plan's simulation is made of: seconds, bytes and devices of every stage, boundary and gradient segment,
//! without any order of work.

use std::sync::Arc;

use super::{
    Cache, Member, PricedPipeline, boundary, link, member_memory, modes, one_stage, structure, sync,
};
use crate::cost::atom::{AtomCost, PhaseTime, ReplicaShape, Setting};
use crate::cost::pipeline::{Run, StageTime};
use crate::error::Problems;
use crate::plan::{MemoryItems, Pipeline, Recompute, ScheduleKind};
use crate::units::{Bytes, Seconds};

/// Everything about a plan but its order of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// Pipelines in plan order.
    pub pipelines: Vec<PipelineDetail>,
    /// Gradient reductions in the order in which all ranks run them.
    pub segments: Vec<SegmentDetail>,
    /// The extra reduction of a tied embedding between first and last stages, if any.
    pub tied: Option<SegmentDetail>,
}

/// One pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineDetail {
    /// Stages in chain order; a virtual stage has entries of its own.
    pub stages: Vec<StageDetail>,
    /// Boundaries after each stage but the last.
    pub boundaries: Vec<BoundaryDetail>,
}

/// Exposed communication inside a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Communication {
    /// Tensor parallelism.
    pub tp: Seconds,
    /// Context parallelism.
    pub cp: Seconds,
    /// Expert parallelism.
    pub ep: Seconds,
    /// Gathering and scattering of ZeRO 2 and 3.
    pub zero: Seconds,
}

impl Communication {
    fn add(&mut self, phase: &PhaseTime) {
        self.tp += phase.tp;
        self.cp += phase.cp;
        self.ep += phase.ep;
        self.zero += phase.zero;
    }

    /// Sum of the items.
    pub fn total(&self) -> Seconds {
        self.tp + self.cp + self.ep + self.zero
    }
}

/// One stage: times of a micro-batch on its slowest member.
#[derive(Debug, Clone, PartialEq)]
pub struct StageDetail {
    /// Forward.
    pub forward: Seconds,
    /// Whole backward: input gradient, recompute, weight gradient.
    pub backward: Seconds,
    /// Weight-gradient part of the backward.
    pub weight_grad: Seconds,
    /// Recompute part of the backward.
    pub recompute: Seconds,
    /// Communication inside the forward.
    pub forward_communication: Communication,
    /// Communication inside the backward.
    pub backward_communication: Communication,
    /// Backward of each atom.
    pub atom_backward: Vec<Seconds>,
    /// Optimizer.
    pub optimizer: Seconds,
    /// Devices in plan order.
    pub devices: Vec<DeviceDetail>,
    /// The replicas, each once per device type in it.
    pub members: Vec<MemberDetail>,
}

/// Devices of one type in one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberDetail {
    /// Replica of the stage.
    pub replica: usize,
    /// The replica as its costs depend on it.
    pub shape: ReplicaShape,
    /// Costs of all atoms of the model on it, those outside of the stage included.
    pub costs: Arc<Vec<AtomCost>>,
}

/// One device of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceDetail {
    /// `"<node>:<index>"`.
    pub name: String,
    /// Node index in the cluster.
    pub node: usize,
    /// Index in the node.
    pub index: u32,
    /// Device type.
    pub device_type: String,
    /// Replica of the stage.
    pub replica: usize,
    /// Itemised peak at the stage's in-flight limit.
    pub memory: MemoryItems,
    /// Activations kept per micro-batch in flight.
    pub saved: Bytes,
}

/// Transfers between a stage and the next; the gradients go the opposite way in the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundaryDetail {
    /// Seconds of one micro-batch's transfer on idle links.
    pub seconds: Seconds,
    /// Forward traffic: sending node, receiving node, bytes.
    pub traffic: Vec<(usize, usize, Bytes)>,
}

/// The reduction of a range of atoms over all its holders.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentDetail {
    /// Half-open range of atoms; empty for the tied embedding.
    pub atoms: [usize; 2],
    /// (pipeline, stage) of every holder.
    pub holders: Vec<(usize, usize)>,
    /// Seconds on idle links.
    pub seconds: Seconds,
    /// Nodes that take part.
    pub nodes: Vec<usize>,
    /// Bytes that leave (and enter) each of these nodes if there are several.
    pub node_bytes: Bytes,
}

/// Computes the detail of placed pipelines. Virtual stages must carry the replicas of the stage that owns the devices;
/// schedules do not matter.
///
/// # Errors
/// As [`super::price_step`], schedules excepted.
pub fn detail(setting: &Setting<'_>, pipelines: &[Pipeline], cache: &mut Cache) -> Result<Detail, Problems> {
    let mut plain = pipelines.to_vec();
    for pipeline in &mut plain {
        pipeline.schedule.kind = ScheduleKind::OneF1b;
    }
    structure(setting, &plain)?;
    let holders = sync::holders(setting, &plain);
    let mut priced = Vec::with_capacity(plain.len());
    let mut details = Vec::with_capacity(plain.len());
    for (p, pipeline) in plain.iter().enumerate() {
        let mut stages = Vec::with_capacity(pipeline.stages.len());
        for (s, stage) in pipeline.stages.iter().enumerate() {
            stages.push(one_stage(setting, (p, s), stage, &holders, cache)?);
        }
        let mut boundaries = Vec::new();
        for s in 0..stages.len().saturating_sub(1) {
            let (from, to) = (&stages[s].places, &stages[s + 1].places);
            let own = pipeline.stages[s].replicas == pipeline.stages[s + 1].replicas;
            let (seconds, traffic) = if own {
                // Two chunks on the same devices: nothing moves.
                (0.0, Vec::new())
            } else {
                let seconds = link(setting, (p, s), pipeline, &stages)?;
                let flows = boundary::flows(setting, pipeline, s, from, to);
                let traffic = flows
                    .into_iter()
                    .map(|(a, b, bytes)| (a.node, b.node, Bytes(bytes)));
                (seconds, traffic.collect())
            };
            boundaries.push(BoundaryDetail {
                seconds: Seconds(seconds),
                traffic,
            });
        }
        let pricing = PricedPipeline {
            times: vec![StageTime::default(); stages.len()],
            depths: Vec::new(),
            run: Run::default(),
            stages,
        };
        details.push(PipelineDetail {
            stages: (0..pricing.stages.len())
                .map(|s| stage(setting, pipeline, s, &pricing))
                .collect(),
            boundaries,
        });
        priced.push(pricing);
    }
    let mut across = false;
    let mut segments: Vec<Option<SegmentDetail>> = Vec::new();
    sync::each_segment(setting, &plain, &priced, |segment| {
        across |= segment.seconds.is_none();
        let seconds = segment.seconds.unwrap_or(0.0);
        segments.push((seconds > 0.0).then(|| {
            let holders: Vec<(usize, usize)> = segment.stages.iter().copied().enumerate().collect();
            reduction(&plain, &priced, segment.atoms, holders, seconds, segment.bytes)
        }));
    });
    let segments = sync::reduction_order(setting, &plain, &priced)
        .into_iter()
        .filter_map(|i| segments[i].take())
        .collect();
    let mut tied = None;
    if setting.model.tied {
        match sync::tied(setting, &plain, &priced) {
            None => across = true,
            Some(seconds) if seconds > 0.0 => {
                let ends = |(p, q): (usize, &Pipeline)| [(p, 0), (p, q.stages.len() - 1)];
                let holders = plain.iter().enumerate().flat_map(ends).collect();
                tied = Some(reduction(&plain, &priced, [0, 0], holders, seconds, (0.0, 0.0)));
            }
            Some(_) => {}
        }
    }
    if across {
        return Err(sync::across_domains());
    }
    Ok(Detail {
        pipelines: details,
        segments,
        tied,
    })
}

fn stage(setting: &Setting<'_>, pipeline: &Pipeline, s: usize, pricing: &PricedPipeline<'_>) -> StageDetail {
    let priced = &pricing.stages[s];
    let entry = &pipeline.stages[s];
    let [a, b] = entry.atoms;
    let modes = modes(entry);
    let mut slowest = (-1.0, 0.0, Communication::default(), Communication::default());
    for member in priced.members.iter().filter(|m| m.distinct) {
        let (mut whole, mut weight) = (0.0, 0.0);
        let (mut forward, mut backward) = (Communication::default(), Communication::default());
        for (cost, mode) in member.costs[a..b].iter().zip(&modes) {
            forward.add(&cost.forward);
            backward.add(&cost.input_grad);
            backward.add(&cost.weight_grad);
            let again = match mode {
                Recompute::None => PhaseTime::default(),
                Recompute::Selective => cost.recompute_selective,
                Recompute::Full => cost.recompute_full,
            };
            backward.add(&again);
            weight += cost.weight_grad.total().0;
            whole += cost.forward.total().0
                + cost.input_grad.total().0
                + cost.weight_grad.total().0
                + again.total().0;
        }
        if whole > slowest.0 {
            slowest = (whole, weight, forward, backward);
        }
    }
    let in_flight = entry.in_flight.min(pipeline.micro_batches).max(1);
    let device = |member: &Member, memory: MemoryItems, d: usize| {
        let place = &priced.places[member.replica][d];
        DeviceDetail {
            name: entry.replicas[member.replica].devices[d].clone(),
            node: place.node,
            index: place.index,
            device_type: place.device_type.to_owned(),
            replica: member.replica,
            memory,
            saved: memory.activations / f64::from(in_flight),
        }
    };
    let mut devices: Vec<(usize, usize, DeviceDetail)> = Vec::new();
    for member in &priced.members {
        let memory = member_memory(setting, pipeline, s, priced, member);
        devices.extend(
            member
                .devices
                .iter()
                .map(|&d| (member.replica, d, device(member, memory, d))),
        );
    }
    devices.sort_by_key(|(replica, d, _)| (*replica, *d));
    StageDetail {
        forward: Seconds(priced.forward),
        backward: Seconds(priced.backward),
        weight_grad: Seconds(slowest.1.min(priced.backward)),
        recompute: Seconds(priced.recompute),
        forward_communication: slowest.2,
        backward_communication: slowest.3,
        atom_backward: priced.atom_backward.iter().map(|&t| Seconds(t)).collect(),
        optimizer: Seconds(priced.optimizer),
        devices: devices.into_iter().map(|(_, _, device)| device).collect(),
        members: priced
            .members
            .iter()
            .map(|m| MemberDetail {
                replica: m.replica,
                shape: m.shape.clone(),
                costs: m.costs.clone(),
            })
            .collect(),
    }
}

fn reduction(
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
    atoms: [usize; 2],
    holders: Vec<(usize, usize)>,
    seconds: f64,
    (dense, expert): (f64, f64),
) -> SegmentDetail {
    let mut nodes = Vec::new();
    let (mut groups, mut blocks) = (1, 1);
    for &(p, s) in &holders {
        let stage = &pipelines[p].stages[s];
        nodes.extend(
            priced[p].stages[s]
                .places
                .iter()
                .flatten()
                .map(|place| place.node),
        );
        groups = stage
            .replicas
            .iter()
            .map(|r| r.tp * r.cp)
            .max()
            .unwrap_or(1)
            .max(groups);
        blocks = (stage.ep * stage.etp).max(blocks);
    }
    nodes.sort_unstable();
    nodes.dedup();
    // A ring over n nodes passes 2 (n - 1) / n of the bytes through each, once per parallel group.
    let share = 2.0 * (1.0 - 1.0 / nodes.len().max(1) as f64);
    let bytes = share * (dense * f64::from(groups) + expert * f64::from(blocks));
    SegmentDetail {
        atoms,
        holders,
        seconds: Seconds(seconds),
        nodes,
        node_bytes: Bytes(bytes),
    }
}
