//! The timeline of one step: what every group of devices, link and shared pool does when, and the memory of every device.

use super::action::Work;
use crate::units::{Bytes, Seconds};

/// Share of a micro-batch's activations that the weight gradient still needs once the input gradient has run: inputs and
/// output gradients of the linear layers.
pub const WEIGHT_GRAD_KEEPS: f64 = 2.0 / 3.0;

/// What a span shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    /// Compute of a micro-batch.
    Work(Work),
    /// Activations to the next stage.
    SendForward,
    /// Gradients to the stage before.
    SendBackward,
    /// Gradient reduction of some atoms.
    Reduce,
    /// Reduction of a tied embedding.
    ReduceTied,
    /// Optimizer.
    Optimizer,
}

impl SpanKind {
    /// Category of traces: fwd, bwd, wgrad, p2p, dp or opt.
    pub const fn category(self) -> &'static str {
        match self {
            Self::Work(Work::Forward) => "fwd",
            Self::Work(Work::Backward | Work::InputGrad) => "bwd",
            Self::Work(Work::WeightGrad) => "wgrad",
            Self::SendForward | Self::SendBackward => "p2p",
            Self::Reduce | Self::ReduceTied => "dp",
            Self::Optimizer => "opt",
        }
    }
}

/// Something that happens from one time to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// What.
    pub kind: SpanKind,
    /// Stage in chain order (the sending one of a transfer).
    pub stage: u32,
    /// Micro-batch; 0 where none is meant.
    pub micro_batch: u32,
    /// Start, from the start of the step.
    pub start: Seconds,
    /// End.
    pub end: Seconds,
    /// Bytes moved; 0 for compute.
    pub bytes: Bytes,
}

impl Span {
    /// Length.
    pub fn seconds(&self) -> Seconds {
        self.end - self.start
    }
}

/// A device of a lane with what its memory holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// `"<node>:<index>"`.
    pub name: String,
    /// Node index in the cluster.
    pub node: usize,
    /// Index in the node.
    pub index: u32,
    /// Device type.
    pub device_type: String,
    /// Weights, gradients, optimizer state, buffers, context and reserve: held all the time.
    pub fixed: Bytes,
    /// Per stage of the lane: activations of one micro-batch in flight.
    pub saved: Vec<Bytes>,
    /// Per stage of the lane: transient while an action of it runs.
    pub transient: Vec<Bytes>,
    /// What the device may hold.
    pub limit: Bytes,
    /// Highest memory of the step.
    pub peak: Bytes,
}

/// A group of devices that runs one list of actions in lockstep: a stage with its virtual stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Pipeline.
    pub pipeline: usize,
    /// Rank in the pipeline's order.
    pub rank: usize,
    /// Stages in chain order that the lane holds, and their half-open atom ranges.
    pub stages: Vec<(usize, [usize; 2])>,
    /// Its devices in plan order.
    pub devices: Vec<Device>,
    /// Compute in time order; overlapped pairs are two spans at the same time.
    pub compute: Vec<Span>,
    /// Gradient reductions, in time order.
    pub reductions: Vec<Span>,
    /// Optimizer.
    pub optimizer: Span,
    /// Time with compute.
    pub busy: Seconds,
    /// Exposed communication (TP, CP, EP, ZeRO) inside the compute.
    pub communication: Seconds,
}

/// One direction of a stage boundary.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Pipeline.
    pub pipeline: usize,
    /// Sending stage.
    pub from: usize,
    /// Receiving stage.
    pub to: usize,
    /// Seconds of one transfer on idle links.
    pub alone: Seconds,
    /// Transfers by micro-batch; they may overlap.
    pub spans: Vec<Span>,
    /// Time with at least one transfer.
    pub busy: Seconds,
}

/// Use of something shared: a node's network cards in one direction, a tier's uplink, a host bus.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolUse {
    /// `node-a out`, `rack-1 up`, ...
    pub name: String,
    /// Node, if it is one's.
    pub node: Option<usize>,
    /// Bytes through it in the step.
    pub bytes: Bytes,
    /// Share of its capacity used over the step.
    pub utilisation: f64,
    /// Most of its capacity asked for at one time; above 1 transfers slow each other down.
    pub peak_demand: f64,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// End of the step.
    pub step_time: Seconds,
    /// End of the last backward.
    pub compute_end: Seconds,
    /// Lanes by pipeline and rank.
    pub lanes: Vec<Lane>,
    /// Boundaries that cross devices, forward and backward direction.
    pub links: Vec<Link>,
    /// Shared pools in use.
    pub pools: Vec<PoolUse>,
}

impl Timeline {
    /// Share of the lanes' time in the step without compute, weighted by devices.
    pub fn bubble(&self) -> f64 {
        let (mut busy, mut all) = (0.0, 0.0);
        for lane in &self.lanes {
            let devices = lane.devices.len().max(1) as f64;
            busy += devices * lane.busy.0;
            all += devices * self.step_time.0;
        }
        if all > 0.0 { 1.0 - busy / all } else { 0.0 }
    }
}

impl Lane {
    /// Memory of a device over time: (from this time on, bytes), ascending in time.
    pub fn memory(&self, device: &Device) -> Vec<(Seconds, Bytes)> {
        // (time, order at equal times, change): releases before claims.
        let mut changes: Vec<(f64, u8, f64)> = Vec::with_capacity(3 * self.compute.len());
        for span in &self.compute {
            let SpanKind::Work(work) = span.kind else { continue };
            let Some(slot) = self.stages.iter().position(|s| s.0 == span.stage as usize) else {
                continue;
            };
            let saved = device.saved[slot].0;
            let transient = device.transient[slot].0;
            let (start, end) = (span.start.0, span.end.0);
            let (claim, release) = match work {
                Work::Forward => (saved, 0.0),
                Work::Backward => (0.0, saved),
                Work::InputGrad => (0.0, saved * (1.0 - WEIGHT_GRAD_KEEPS)),
                Work::WeightGrad => (0.0, saved * WEIGHT_GRAD_KEEPS),
            };
            changes.push((start, 1, claim + transient));
            changes.push((end, 0, -(release + transient)));
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut now = device.fixed.0;
        let mut steps = vec![(Seconds::ZERO, Bytes(now))];
        for (time, _, change) in changes {
            now += change;
            match steps.last_mut() {
                Some(last) if last.0.0 == time => last.1 = Bytes(now),
                _ => steps.push((Seconds(time), Bytes(now))),
            }
        }
        steps
    }

    /// Highest memory of a device: what [`Lane::memory`] reaches.
    pub(super) fn peak(&self, device: &Device) -> Bytes {
        self.memory(device)
            .into_iter()
            .map(|step| step.1)
            .fold(device.fixed, Bytes::max)
    }
}
