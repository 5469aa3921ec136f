//! The prediction of a row in the row's own quantity and unit.

use super::case::Case;
use super::express::{Expressed, Order};
use super::quantity::{self, Quantity};
use crate::cluster::{Fabric, Precision};
use crate::cost::atom::Setting;
use crate::cost::memory::RESERVE_SHARE;
use crate::cost::pipeline::{StageTime, run};
use crate::cost::price::{Cache, price};
use crate::plan::{MemoryItems, Prediction, ProfileEntry};
use crate::profile::calibration::Calibration;
use crate::units::GIB;

/// What is predicted for a run: step time and the memory of the fullest device.
#[derive(Debug, Clone)]
pub struct Predicted {
    /// Step time, schedule of the row included, seconds.
    pub step_s: f64,
    /// Largest allocated peak over devices, bytes.
    pub allocated: f64,
    /// Largest peak as the device reports it: reserved by the allocator plus context.
    pub in_use: f64,
    /// Reserved by the allocator.
    pub reserved: f64,
    /// Whether every device holds it.
    pub fits: bool,
    /// What the fullest device may hold.
    pub limit: f64,
    /// Items of the fullest device.
    pub items: MemoryItems,
    /// Activations of the first stage.
    pub first_activations: f64,
    /// Weights, gradients and optimizer of the fullest device.
    pub statics: f64,
    /// Forward and backward seconds of the first stage.
    pub first_stage: (f64, f64),
    /// Idle share of the pipeline.
    pub bubble: f64,
    /// Share of the step time in exposed communication of the slowest stage.
    pub communication: f64,
}

/// The cluster and engine of a row with fitted figures applied.
pub fn calibrated(row: &Expressed, calibration: &Calibration) -> Expressed {
    let mut row = row.clone();
    for device in row.cluster.device_types.values_mut() {
        device.curve = Some(calibration.curve(device).clone());
        let own = device.intra.fabric == Fabric::Bus || row.inside == Some("nvlink-pairs");
        if let Some(link) = row
            .inside
            .filter(|_| own)
            .and_then(|name| calibration.networks.get(name))
        {
            device.intra.efficiency.value = link.efficiency;
            device.intra.latency.value = link.latency_s;
            device.intra.table.clear();
            // Without bridges between pairs.
            if device.intra.fabric == Fabric::Bus {
                device.intra.pair_bandwidth = device.intra.bandwidth.clone();
            }
        }
    }
    if let Some(link) = calibration.networks.get(row.network) {
        for node in &mut row.cluster.nodes {
            node.nic.efficiency.value = link.efficiency;
            node.nic.latency.value = link.latency_s;
        }
    }
    let gradient_bytes = row.training.engine_semantics.kernels.gradient_bytes;
    row.training.engine_semantics.kernels = row.engine.fitted(calibration);
    row.training.engine_semantics.kernels.elementwise *= row.elementwise;
    row.training.engine_semantics.kernels.gradient_bytes = gradient_bytes;
    row
}

/// Predicts a run.
///
/// # Errors
/// The first problem of pricing, as a sentence.
pub fn predict(row: &Expressed) -> Result<Predicted, String> {
    let setting = Setting::new(&row.model, &row.cluster, &row.training);
    let pipelines = std::slice::from_ref(&row.pipeline);
    let (prediction, entries) = price(&setting, pipelines, &mut Cache::default())
        .map_err(|p| p.0.first().map_or_else(String::new, |p| p.message.clone()))?;
    let (step_s, bubble) = scheduled(row, &prediction, &entries);
    let mut peak = Predicted {
        step_s,
        allocated: 0.0,
        in_use: 0.0,
        reserved: 0.0,
        fits: true,
        limit: 0.0,
        items: MemoryItems::default(),
        first_activations: 0.0,
        statics: 0.0,
        first_stage: (
            prediction.stages[0].forward_s.0,
            prediction.stages[0].backward_s.0,
        ),
        bubble,
        communication: prediction
            .stages
            .iter()
            .map(|s| f64::from(row.pipeline.micro_batches) * s.comm_s.0 / step_s)
            .fold(0.0, f64::max),
    };
    let mut at = 0;
    for (s, stage) in row.pipeline.stages.iter().enumerate() {
        let live = live(row, s) / f64::from(stage.in_flight.max(1));
        for _ in 0..stage.replicas.iter().map(|r| r.devices.len()).sum::<usize>() {
            let Some(device) = prediction.devices.get(at) else {
                break;
            };
            at += 1;
            let m = device.memory_bytes;
            let activations = m.activations.0 * live;
            let statics = m.weights.0 + m.gradients.0 + m.optimizer.0;
            let allocated = statics + activations + m.working_set.0 + m.logits.0 + m.buffers.0;
            let reserved = allocated * (1.0 + row.engine.fragmentation);
            let in_use = reserved + row.engine.context_gib * GIB;
            // The allocator cannot hand out the last part of the memory.
            peak.fits &= in_use <= m.limit.0 * (1.0 - RESERVE_SHARE);
            if s == 0 {
                peak.first_activations = peak.first_activations.max(activations);
            }
            peak.statics = peak.statics.max(statics);
            if allocated > peak.allocated {
                peak.allocated = allocated;
                peak.reserved = reserved;
                peak.in_use = in_use;
                peak.limit = m.limit.0;
                peak.items = m;
            }
        }
    }
    Ok(peak)
}

/// Micro-batches whose activations a stage holds, in units of its whole layer set.
fn live(row: &Expressed, s: usize) -> f64 {
    let m = f64::from(row.pipeline.micro_batches);
    let p = f64::from(row.stages());
    match row.order {
        Order::Interleaved(v) => {
            let v = f64::from(v);
            ((2.0 * (p - 1.0 - s as f64) + (v - 1.0) * p + 1.0) / v).min(m)
        }
        Order::VShaped => f64::from(row.pipeline.stages[s].in_flight).min((p / 2.0).ceil()),
        Order::ZeroBubble1p => p.min(m),
        Order::ZeroBubble2p | Order::ZeroBubbleH2 => (2.0 * p).min(m),
        Order::Plain => f64::from(row.pipeline.stages[s].in_flight),
    }
}

/// Step time under the row's order and the idle share of its pipeline. The priced plan is 1F1B; other orders change the
/// idle time around the busiest stage: divided by the chunks when interleaved, by `(F + I - W) / (F + I + W)` for the zero
/// bubble order within the memory of 1F1B, none with twice that memory and a staggered optimizer. Without overlap,
/// interleaving repeats every boundary transfer in each chunk.
fn scheduled(row: &Expressed, prediction: &Prediction, entries: &[ProfileEntry]) -> (f64, f64) {
    let step = prediction.step_time_s.0;
    let m = row.pipeline.micro_batches;
    let times: Vec<StageTime> = prediction
        .stages
        .iter()
        .map(|s| StageTime {
            forward: s.forward_s.0,
            backward: s.backward_s.0,
            link_forward: s.send_forward_s.0,
            link_backward: s.send_backward_s.0,
        })
        .collect();
    let busy = times
        .iter()
        .map(|t| f64::from(m) * t.compute())
        .fold(0.0, f64::max);
    let depths: Vec<u32> = crate::cost::pipeline::standard_depths(times.len())
        .into_iter()
        .map(|d| d.min(m))
        .collect();
    let plain = run(&times, &depths, m, &mut crate::cost::pipeline::Scratch::default()).makespan;
    let idle = (plain - busy).max(0.0);
    let (left, extra) = match row.order {
        Order::Plain | Order::VShaped => (1.0, 0.0),
        Order::Interleaved(v) => {
            let links: f64 = if row.training.engine_semantics.overlap.p2p {
                0.0
            } else {
                let slowest = times.iter().map(StageTime::links).fold(0.0, f64::max);
                f64::from(m) * f64::from(v) * slowest
            };
            (1.0 / f64::from(v), links)
        }
        Order::ZeroBubble1p | Order::ZeroBubbleH2 => {
            let phase = |name: &str| {
                entries
                    .iter()
                    .filter(|e| e.phase == name && e.atom == 1)
                    .map(|e| e.time_s.0)
                    .next()
                    .unwrap_or(1.0)
            };
            let (f, i, w) = (phase("F"), phase("I"), phase("W"));
            let late = if row.order == Order::ZeroBubble1p {
                w
            } else {
                2.0 * w
            };
            ((f + i - late).max(0.0) / (f + i + w), 0.0)
        }
        Order::ZeroBubble2p => (0.0, 0.0),
    };
    let pipeline = match row.order {
        Order::Plain => return (step, idle / (busy + idle).max(f64::MIN_POSITIVE)),
        _ => busy + idle * left + extra,
    };
    // What is left of the step after the last backward stays as it is; the price used blocking exchanges or none.
    let priced = if row.training.engine_semantics.p2p == crate::plan::PointToPointMode::Rendezvous {
        crate::cost::pipeline::rendezvous(&times, &depths, m).makespan
    } else {
        plain
    };
    (
        (step - priced).max(0.0) + pipeline,
        (pipeline - busy) / pipeline.max(f64::MIN_POSITIVE),
    )
}

/// The predicted value in the row's unit.
///
/// # Errors
/// A sentence on why the metric cannot be predicted.
pub fn in_unit(case: &Case, row: &Expressed, predicted: &Predicted) -> Result<f64, String> {
    let quantity = quantity::of(case)?;
    let step = predicted.step_s;
    let sequences = row.training.global_batch as f64;
    let tokens = sequences * row.training.seq_len as f64;
    let devices = f64::from(row.devices);
    let bytes = |b: f64| quantity::bytes_in_unit(b, case.text("unit"));
    Ok(match quantity {
        Quantity::StepSeconds(unit) => step / unit,
        Quantity::TokensPerDevice => tokens / step / devices,
        Quantity::SamplesPerDevice => sequences / step / devices,
        Quantity::FlopsPerDevice(convention) => convention.flops(row) / step / devices / 1e12,
        Quantity::Utilisation(convention, peak) => {
            let peak = peak.unwrap_or_else(|| {
                row.cluster
                    .device_types
                    .values()
                    .filter_map(|d| {
                        d.datasheet_peak
                            .get(&Precision::Bf16)
                            .or(d.datasheet_peak.get(&Precision::Fp16))
                    })
                    .map(|p| p.value.0)
                    .fold(0.0, f64::max)
            });
            100.0 * convention.flops(row) / step / devices / peak.max(1.0)
        }
        Quantity::LayerForward => layer(row)?.0 * 1e3,
        Quantity::LayerBackward => layer(row)?.1 * 1e3,
        Quantity::Allocated => bytes(predicted.allocated),
        Quantity::Reserved => bytes(predicted.reserved),
        Quantity::InUse => bytes(predicted.in_use),
        Quantity::FirstActivations => bytes(predicted.first_activations),
        Quantity::Statics => bytes(predicted.statics),
        Quantity::ActivationShare => {
            let mut base = row.clone();
            for stage in &mut base.pipeline.stages {
                stage.recompute.clear();
            }
            base.training.sequence_parallel = false;
            100.0 * predicted.first_activations / predict(&base)?.first_activations
        }
        Quantity::Bubble => predicted.bubble,
        Quantity::DoesNotFit => f64::from(u8::from(!predicted.fits)),
    })
}

/// Forward and backward seconds of one layer: two layers less one.
fn layer(row: &Expressed) -> Result<(f64, f64), String> {
    let mut two = row.clone();
    let block = two.model.atoms[1].clone();
    two.model.atoms.insert(1, block);
    let end = two.model.atoms.len();
    two.pipeline.stages[0].atoms[1] = end;
    for range in &mut two.pipeline.stages[0].recompute {
        range.atoms[1] = end - 1;
    }
    let (one, two) = (predict(row)?.first_stage, predict(&two)?.first_stage);
    Ok((two.0 - one.0, two.1 - one.1))
}
