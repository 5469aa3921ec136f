//! The full prediction: everything that a person or a script wants to know about a plan's time and memory.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cache, Priced, member_memory, whole};
use crate::cluster::Precision;
use crate::cost::atom::{AtomCost, Setting};
use crate::cost::memory::grade;
use crate::cost::pipeline::closed_form_step;
use crate::error::Problems;
use crate::plan::{DevicePrediction, Grade, Pipeline, Prediction, ProfileEntry, StagePrediction};
use crate::profile::{Rates, Step};
use crate::units::Seconds;

/// Predicts step time and memory of placed pipelines, itemised, with the profile entries it rests on.
///
/// # Errors
/// As [`super::price_step`].
pub fn price(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
) -> Result<(Prediction, Vec<ProfileEntry>), Problems> {
    let priced = whole(setting, pipelines, cache)?;
    let training = setting.training;
    let step = priced.step;
    let tokens = training.global_batch as f64 * training.seq_len as f64;
    let model_flops = 3.0
        * setting
            .model
            .atoms
            .iter()
            .map(|a| a.flops_forward_per_token(training.seq_len).0)
            .sum::<f64>()
        * tokens;
    let (devices, fits) = devices(setting, pipelines, &priced);
    let (utilisation, peak) = utilisation(setting, pipelines, &priced);
    let (provenance_share, sigma) = provenance(setting, pipelines, &priced);
    let closed = priced
        .pipelines
        .iter()
        .zip(pipelines)
        .zip(&priced.sync)
        .map(|((p, pipeline), sync)| {
            let tail = p
                .stages
                .iter()
                .zip(sync)
                .map(|(s, (_, exposed))| exposed + s.optimizer)
                .fold(0.0, f64::max);
            closed_form_step(&p.times, &p.depths, pipeline.micro_batches) + tail
        })
        .fold(0.0, f64::max);
    let prediction = Prediction {
        step_time_s: Seconds(step),
        step_time_closed_form_s: Seconds(closed),
        step_time_simulated_s: None,
        tokens_per_s: tokens / step,
        mfu: model_flops / step / peak.max(1.0),
        mfu_formula: format!(
            "3 x forward FLOPs of the model (head included, causal attention halved, recompute excluded) / step time / \
             {:.0} TFLOP/s, the sum of the {} datasheet peaks of the devices in use",
            peak / 1e12,
            precision_name(training.precision),
        ),
        bound_s: None,
        bound_space: None,
        gap: None,
        stages: stages(&priced, step),
        devices,
        utilisation,
        range_s: [Seconds(step * (1.0 - sigma)), Seconds(step * (1.0 + sigma))],
        provenance_share,
        fits,
    };
    Ok((prediction, entries(setting, pipelines, &priced)))
}

fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
        Precision::Fp8 => "fp8",
        Precision::Fp32 => "fp32",
    }
}

fn stages(priced: &Priced<'_>, step: f64) -> Vec<StagePrediction> {
    let mut rows = Vec::new();
    for (p, pipeline) in priced.pipelines.iter().enumerate() {
        for (s, stage) in pipeline.stages.iter().enumerate() {
            rows.push(StagePrediction {
                pipeline: p,
                stage: s,
                forward_s: Seconds(stage.forward),
                backward_s: Seconds(stage.backward),
                recompute_s: Seconds(stage.recompute),
                comm_s: Seconds(stage.communication),
                send_forward_s: Seconds(stage.link),
                send_backward_s: Seconds(stage.link),
                grad_sync_s: Seconds(priced.sync[p][s].1),
                optimizer_s: Seconds(stage.optimizer),
                busy_fraction: pipeline.run.stages[s].busy / step,
            });
        }
    }
    rows
}

fn devices(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &Priced<'_>,
) -> (Vec<DevicePrediction>, bool) {
    let mut rows = Vec::new();
    let mut fits = true;
    for (pipeline, pricing) in pipelines.iter().zip(&priced.pipelines) {
        for (s, stage) in pricing.stages.iter().enumerate() {
            for (r, replica) in pipeline.stages[s].replicas.iter().enumerate() {
                for (d, device) in replica.devices.iter().enumerate() {
                    let Some(member) = stage
                        .members
                        .iter()
                        .find(|m| m.replica == r && m.devices.contains(&d))
                    else {
                        continue;
                    };
                    let items = member_memory(setting, pipeline, s, stage, member);
                    let grade = grade(&items);
                    fits &= grade != Grade::Over;
                    rows.push(DevicePrediction {
                        device: device.clone(),
                        device_type: stage.places[r][d].device_type.to_owned(),
                        memory_bytes: items,
                        grade,
                    });
                }
            }
        }
    }
    (rows, fits)
}

/// Achieved share of the peak per device type, and the sum of datasheet peaks of the devices in use.
fn utilisation(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &Priced<'_>,
) -> (BTreeMap<String, f64>, f64) {
    let training = setting.training;
    let mut done: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (pipeline, pricing) in pipelines.iter().zip(&priced.pipelines) {
        for (s, stage) in pricing.stages.iter().enumerate() {
            let [a, b] = pipeline.stages[s].atoms;
            let flops_per_token: f64 = setting.model.atoms[a..b]
                .iter()
                .map(|atom| 3.0 * atom.flops_forward_per_token(training.seq_len).0)
                .sum();
            for (r, replica) in pipeline.stages[s].replicas.iter().enumerate() {
                let tokens =
                    f64::from(replica.rows) * f64::from(pipeline.micro_batches) * training.seq_len as f64;
                let share = flops_per_token * tokens / replica.devices.len() as f64;
                for place in &stage.places[r] {
                    let peak = setting
                        .cluster
                        .device_types
                        .get(place.device_type)
                        .and_then(|d| {
                            d.datasheet_peak
                                .get(&training.precision)
                                .or(d.measured_peak.as_ref())
                        })
                        .map_or(0.0, |p| p.value.0);
                    let sum = done.entry(place.device_type.to_owned()).or_default();
                    sum.0 += share;
                    sum.1 += peak;
                }
            }
        }
    }
    let peak = done.values().map(|d| d.1).sum();
    let shares = done
        .into_iter()
        .map(|(name, (flops, peak))| (name, flops / priced.step / peak.max(1.0)))
        .collect();
    (shares, peak)
}

/// Share of the busy time by provenance, and the relative error of the step that follows: errors of one step of the ladder
/// go together, those of different steps are independent. Communication comes from the links, compute of an atom from the
/// profile or from the device's figures.
fn provenance(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &Priced<'_>,
) -> (BTreeMap<String, f64>, f64) {
    // Seconds, and seconds times sigma.
    let mut sums: BTreeMap<Step, (f64, f64)> = BTreeMap::new();
    let mut add = |step: Step, sigma: f64, time: f64| {
        let sum = sums.entry(step).or_default();
        *sum = (sum.0 + time, sum.1 + time * sigma);
    };
    for (p, (pipeline, pricing)) in pipelines.iter().zip(&priced.pipelines).enumerate() {
        let m = f64::from(pipeline.micro_batches);
        for (s, stage) in pricing.stages.iter().enumerate() {
            let Some(member) = stage.members.first() else {
                continue;
            };
            let Some(device) = setting.cluster.device_types.get(&member.shape.device_type) else {
                continue;
            };
            let step = Rates::of(device, setting.training.precision, 1.0).step;
            let compute = m * (stage.forward + stage.backward - stage.communication) + stage.optimizer;
            let communication = m * (stage.communication + 2.0 * stage.link) + priced.sync[p][s].1;
            let [a, b] = pipeline.stages[s].atoms;
            // The atoms' own times split the stage's compute; what is no atom's (optimizer) follows them.
            let of = |c: &AtomCost| (c.forward.compute + c.input_grad.compute + c.weight_grad.compute).0;
            let costs = member.costs.get(a..b).unwrap_or_default();
            if costs.iter().all(|c| c.origin.is_none()) {
                add(step, step.sigma(), compute);
            } else {
                let whole: f64 = costs.iter().map(of).sum();
                for cost in costs {
                    let (step, sigma) = cost.origin.map_or((step, step.sigma()), |o| (o.step, o.sigma));
                    add(step, sigma, compute * of(cost) / whole.max(f64::MIN_POSITIVE));
                }
            }
            add(Step::AlphaBeta, Step::AlphaBeta.sigma(), communication);
        }
    }
    let total = sums.values().map(|s| s.0).sum::<f64>().max(f64::MIN_POSITIVE);
    let sigma = sums.values().map(|s| (s.1 / total).powi(2)).sum::<f64>().sqrt();
    let shares = sums
        .into_iter()
        .map(|(step, (time, _))| (step.name().to_owned(), time / total))
        .collect();
    (shares, sigma)
}

/// One entry per device type, distinct atom, degrees and phase.
fn entries(setting: &Setting<'_>, pipelines: &[Pipeline], priced: &Priced<'_>) -> Vec<ProfileEntry> {
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for (pipeline, pricing) in pipelines.iter().zip(&priced.pipelines) {
        for (s, stage) in pricing.stages.iter().enumerate() {
            for member in &stage.members {
                let shape = &member.shape;
                let Some(device) = setting.cluster.device_types.get(&shape.device_type) else {
                    continue;
                };
                let step = Rates::of(device, setting.training.precision, 1.0).step;
                let [a, b] = pipeline.stages[s].atoms;
                for i in a..b {
                    let first = (i.saturating_sub(8)..i)
                        .find(|&j| setting.model.atoms[j] == setting.model.atoms[i])
                        .is_none();
                    let key = (
                        shape.device_type.clone(),
                        i,
                        shape.tp,
                        shape.cp,
                        shape.ep,
                        shape.rows,
                    );
                    if (!first && i != a) || !seen.insert(key) {
                        continue;
                    }
                    let cost = &member.costs[i];
                    let (step, sigma) = cost.origin.map_or((step, step.sigma()), |o| (o.step, o.sigma));
                    for (phase, time) in [
                        ("F", cost.forward),
                        ("I", cost.input_grad),
                        ("W", cost.weight_grad),
                    ] {
                        rows.push(ProfileEntry {
                            device_type: shape.device_type.clone(),
                            atom: i,
                            tp: shape.tp,
                            cp: shape.cp,
                            ep: shape.ep,
                            micro_batch: shape.rows,
                            phase: phase.into(),
                            time_s: time.compute,
                            provenance: step.name().into(),
                            sigma,
                        });
                    }
                }
            }
        }
    }
    rows
}
