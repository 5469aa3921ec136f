//! The plan's own prediction: complete, consistent with itself, inside memory and above its bound.

use super::{Facts, Found};
use crate::error::{Problem, plan as codes};
use crate::plan::{Grade, MemoryItems, Prediction};
use crate::units::Bytes;

/// Relative difference that rounding may leave.
const TOLERANCE: f64 = 1e-6;

fn equal(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

/// Predicted memory fits the limit of each device.
pub(super) fn memory(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::MEMORY;
    let Some(prediction) = &facts.plan.prediction else {
        return;
    };
    for (i, device) in prediction.devices.iter().enumerate() {
        let MemoryItems { total, limit, .. } = device.memory_bytes;
        if total <= limit {
            continue;
        }
        found.push(code, || {
            let items = items(&device.memory_bytes);
            let largest = items
                .iter()
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .map_or("", |i| i.0);
            let message = format!(
                "device `{}` needs `{total}`, its limit is {limit}: {} too much",
                device.device,
                total - limit
            );
            let hint = format!(
                "largest item: {largest}; recompute, a lower in-flight depth, ZeRO or fewer atoms help"
            );
            Problem::new(code, format!("prediction.devices[{i}].memory_bytes"), message).hint(hint)
        });
    }
}

fn items(memory: &MemoryItems) -> [(&'static str, f64); 9] {
    [
        ("weights", memory.weights.get()),
        ("gradients", memory.gradients.get()),
        ("optimizer", memory.optimizer.get()),
        ("activations", memory.activations.get()),
        ("working set", memory.working_set.get()),
        ("logits", memory.logits.get()),
        ("buffers", memory.buffers.get()),
        ("context", memory.context.get()),
        ("reserve", memory.reserve.get()),
    ]
}

/// Every used device and every stage is predicted exactly once.
pub(super) fn prediction_coverage(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::PREDICTION_COVERAGE;
    let Some(prediction) = &facts.plan.prediction else {
        return;
    };
    let hint = "run `autohaap estimate PLAN` for a fresh prediction";
    let mut seen = vec![0_u32; facts.map.len()];
    for (i, device) in prediction.devices.iter().enumerate() {
        let path = || format!("prediction.devices[{i}]");
        let address: String = device.device.chars().take(80).collect();
        let fault = match facts.map.find(&device.device) {
            None => format!("predicted device `{address}` does not exist"),
            Some(id) => {
                seen[id] += 1;
                if facts.uses[id] == 0 {
                    format!("predicted device `{address}` is not used")
                } else if seen[id] > 1 {
                    format!("device `{address}` is predicted twice")
                } else if facts.map.type_of(id) != device.device_type {
                    format!("device `{address}` is a `{}` here", facts.map.type_of(id))
                } else {
                    continue;
                }
            }
        };
        found.push(code, || Problem::new(code, path(), fault).hint(hint));
    }
    for id in (0..facts.map.len()).filter(|d| facts.uses[*d] > 0 && seen[*d] == 0) {
        found.push(code, || {
            let message = format!("used device `{}` has no prediction", facts.map.address(id));
            Problem::new(code, "prediction.devices", message).hint(hint)
        });
    }
    let mut stages: Vec<(usize, usize)> = prediction.stages.iter().map(|s| (s.pipeline, s.stage)).collect();
    stages.sort_unstable();
    let wanted: Vec<(usize, usize)> = facts.stages.iter().map(|s| (s.pipeline, s.stage)).collect();
    if stages != wanted {
        found.push(code, || {
            let message = format!(
                "`{}` stage predictions for {} stages, or other stages",
                stages.len(),
                wanted.len()
            );
            Problem::new(code, "prediction.stages", message).hint(hint)
        });
    }
}

/// Totals, limits, grades, range and rate follow from each other.
pub(super) fn prediction_figures(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::PREDICTION_FIGURES;
    let Some(prediction) = &facts.plan.prediction else {
        return;
    };
    let mut wrong = |path: String, message: String| {
        found.push(code, || {
            Problem::new(code, path, message).hint("run `autohaap estimate PLAN` for a fresh prediction")
        });
    };
    for (i, device) in prediction.devices.iter().enumerate() {
        let memory = &device.memory_bytes;
        let path = || format!("prediction.devices[{i}].memory_bytes");
        let sum: f64 = items(memory).iter().map(|item| item.1).sum();
        if !equal(sum, memory.total.get()) {
            wrong(
                path(),
                format!("items add up to {}, `total` is `{}`", Bytes(sum), memory.total),
            );
        }
        if let Some((name, value)) = items(memory).into_iter().find(|item| item.1 < 0.0) {
            wrong(path(), format!("{name} are negative: `{value}` bytes"));
        }
        if let Some(id) = facts.map.find(&device.device) {
            let limit = facts
                .plan
                .cluster
                .cluster
                .memory_limit(facts.map.node_of(id), facts.map.type_of(id));
            if memory.limit.get() > limit.get() * (1.0 + TOLERANCE) {
                wrong(
                    path(),
                    format!(
                        "limit `{}` is above what the device may hold, {limit}",
                        memory.limit
                    ),
                );
            }
        }
        let over = memory.total > memory.limit;
        if over != (device.grade == Grade::Over) {
            let message = format!("grade `{:?}` contradicts total and limit", device.grade);
            wrong(format!("prediction.devices[{i}].grade"), message.to_lowercase());
        }
    }
    let fits = prediction
        .devices
        .iter()
        .all(|d| d.memory_bytes.total <= d.memory_bytes.limit);
    if fits != prediction.fits {
        let message = format!("`fits` is `{}`, the devices say `{fits}`", prediction.fits);
        wrong("prediction.fits".into(), message);
    }
    step_figures(facts, prediction, &mut wrong);
}

fn step_figures(facts: &Facts<'_>, prediction: &Prediction, wrong: &mut impl FnMut(String, String)) {
    let step = prediction.step_time_s.get();
    if !(step > 0.0 && step.is_finite()) {
        wrong(
            "prediction.step_time_s".into(),
            format!("step time is `{step}` s"),
        );
        return;
    }
    let training = &facts.plan.training;
    let tokens = training.global_batch as f64 * training.seq_len as f64 / step;
    if !equal(tokens, prediction.tokens_per_s) {
        let message = format!(
            "`{}` tokens/s, step time and batch give {tokens}",
            prediction.tokens_per_s
        );
        wrong("prediction.tokens_per_s".into(), message);
    }
    let [low, high] = prediction.range_s.map(crate::units::Seconds::get);
    if low > step * (1.0 + TOLERANCE) || high < step * (1.0 - TOLERANCE) {
        let message = format!("range `{low}` to `{high}` s does not hold the step time {step} s");
        wrong("prediction.range_s".into(), message);
    }
    let closed = prediction.step_time_closed_form_s.get();
    if !(closed > 0.0 && closed.is_finite()) {
        let message = format!("closed form is `{closed}` s, a time above 0 is needed");
        wrong("prediction.step_time_closed_form_s".into(), message);
    }
    shares(prediction, wrong);
    stage_times(prediction, step, wrong);
    for (i, stage) in prediction.stages.iter().enumerate() {
        if !(0.0..=1.0 + TOLERANCE).contains(&stage.busy_fraction) {
            let message = format!("busy fraction is `{}`", stage.busy_fraction);
            wrong(format!("prediction.stages[{i}].busy_fraction"), message);
        }
    }
}

/// Fractions lie between 0 and 1; the shares of time by provenance cover all of it.
fn shares(prediction: &Prediction, wrong: &mut impl FnMut(String, String)) {
    let fraction = |value: f64| (0.0..=1.0 + TOLERANCE).contains(&value);
    // A peak may be the measured one, which work of another kind can pass: utilisation has no limit of exactly 1.
    let ratio = |value: f64| (0.0..=2.0).contains(&value);
    if !ratio(prediction.mfu) {
        let message = format!("MFU is `{}`, a share of the peak is needed", prediction.mfu);
        wrong("prediction.mfu".into(), message);
    }
    for (name, value) in &prediction.utilisation {
        if !ratio(*value) {
            let message = format!("utilisation is `{value}`, a share of the peak is needed");
            wrong(format!("prediction.utilisation.{name}"), message);
        }
    }
    for (name, value) in &prediction.provenance_share {
        if !fraction(*value) {
            let message = format!("share of time is `{value}`, 0 to 1 is needed");
            wrong(format!("prediction.provenance_share.{name}"), message);
        }
    }
    let sum: f64 = prediction.provenance_share.values().sum();
    if !prediction.provenance_share.is_empty() && (sum - 1.0).abs() > TOLERANCE {
        let message = format!("shares of time add up to `{sum}`, 1 is needed");
        wrong("prediction.provenance_share".into(), message);
    }
}

/// Times of a stage are finite, not negative, and pass within the step.
fn stage_times(prediction: &Prediction, step: f64, wrong: &mut impl FnMut(String, String)) {
    for (i, stage) in prediction.stages.iter().enumerate() {
        let times = [
            ("forward_s", stage.forward_s),
            ("backward_s", stage.backward_s),
            ("recompute_s", stage.recompute_s),
            ("comm_s", stage.comm_s),
            ("send_forward_s", stage.send_forward_s),
            ("send_backward_s", stage.send_backward_s),
            ("grad_sync_s", stage.grad_sync_s),
            ("optimizer_s", stage.optimizer_s),
        ];
        for (name, time) in times {
            let time = time.get();
            if !(0.0..=step * (1.0 + TOLERANCE)).contains(&time) {
                let message = format!("`{time}` s, 0 s to the step time {step} s is needed");
                wrong(format!("prediction.stages[{i}].{name}"), message);
            }
        }
    }
}

/// The step is not below its bound; the gap follows from both.
pub(super) fn bound(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::BOUND;
    let Some(prediction) = &facts.plan.prediction else {
        return;
    };
    let step = prediction.step_time_s.get();
    let Some(bound) = prediction.bound_s.map(crate::units::Seconds::get) else {
        if let Some(gap) = prediction.gap {
            found.push(code, || {
                let message = format!("gap `{gap}` without a bound");
                Problem::new(code, "prediction.gap", message).hint("delete `gap`, or plan again")
            });
        }
        return;
    };
    if bound > step * (1.0 + TOLERANCE) {
        found.push(code, || {
            let message = format!("bound `{bound}` s is above the step time {step} s");
            Problem::new(code, "prediction.bound_s", message)
                .hint("run `autohaap plan` again; if the file was not edited, report it")
        });
    }
    if let Some(gap) = prediction.gap {
        let wanted = (step - bound) / step;
        if (gap - wanted).abs() > TOLERANCE {
            found.push(code, || {
                let message = format!("gap `{gap}`, bound and step time give {wanted}");
                Problem::new(code, "prediction.gap", message).hint("gap = (step - bound) / step")
            });
        }
    }
}
