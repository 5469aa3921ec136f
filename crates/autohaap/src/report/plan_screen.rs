//! The first screen of `plan`, and the screens of `estimate`, `check` and of a negative answer.

use std::collections::{BTreeMap, BTreeSet};

use super::stages::stage_table;
use super::{comparison, table, words};
use crate::error::Problem;
use crate::plan::{
    DevicePrediction, Grade, MemoryItems, Plan, Prediction, StagePrediction, Training, conservation,
};
use crate::search::Infeasible;

/// What the screen says beside the plan.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Settings that were chosen by default.
    pub assumed: Vec<String>,
    /// Remarks on the inputs.
    pub notes: Vec<String>,
    /// File that the plan was written to.
    pub saved: Option<String>,
    /// Whether to itemise the critical stage and the fullest device.
    pub explain: bool,
}

/// The answer of `plan` on one screen.
pub fn plan_screen(plan: &Plan, context: &Context) -> String {
    let Some(p) = &plan.prediction else {
        return "the plan has no prediction: run `autohaap estimate`".into();
    };
    let mut lines = vec![verdict(plan, p), settings(plan, &context.assumed)];
    lines.push(stage_table(plan, p, 16));
    lines.push(bottleneck(plan, p));
    lines.push(fullest(p));
    if let Some(idle) = idle(plan) {
        lines.push(idle);
    }
    if let Some(a) = &plan.alternatives {
        lines.extend(comparison::lines(a, p.step_time_s.0));
    }
    lines.push(conservation_line(plan));
    lines.push(trust(p));
    lines.push(proof(plan, p));
    if context.explain {
        lines.push(itemised(p));
    }
    lines.extend(context.notes.iter().map(|n| format!("note: {n}")));
    lines.push(match &context.saved {
        Some(file) => format!("next: autohaap check {file}; autohaap estimate {file}"),
        None => "next: add `-o plan.json` to keep the plan, then `autohaap check plan.json`".into(),
    });
    lines.join("\n")
}

fn verdict(plan: &Plan, p: &Prediction) -> String {
    let step = p.step_time_s.0;
    let mut text = format!(
        "{}{}/step",
        if p.fits { "fits, " } else { "DOES NOT FIT, " },
        p.step_time_s
    );
    if let Some(a) = &plan.alternatives {
        if let Some(uniform) = a.uniform.step_time_s {
            text += &format!(", {:.2}x over the best uniform plan", uniform.0 / step);
        } else {
            text += ", no uniform plan fits";
        }
        if let (Some(fastest), false) = (a.fastest_class.step_time_s, a.without.is_empty()) {
            text += &format!(", {:.2}x over {}", fastest.0 / step, a.fastest_class.label);
        }
    }
    if let Some(gap) = p.gap {
        text += &if gap < 1e-9 {
            ", proven optimal in its space".to_owned()
        } else {
            format!("; within {} of the proven bound", words::percent(gap))
        };
    }
    text
}

fn settings(plan: &Plan, assumed: &[String]) -> String {
    let t = &plan.training;
    let p = plan.prediction.as_ref();
    let mut text = format!(
        "{} on {}: seq {}, global batch {}, {}, ZeRO-{}",
        plan.model.model.name,
        plan.cluster.cluster.name,
        t.seq_len,
        t.global_batch,
        format!("{:?}", t.precision).to_lowercase(),
        t.zero,
    );
    if let Some(p) = p {
        text += &format!(
            "; {} tokens/s, MFU {}",
            words::count(p.tokens_per_s),
            words::percent(p.mfu)
        );
    }
    if !assumed.is_empty() {
        text += &format!("\n  by default: {}", assumed.join(", "));
    }
    text
}

fn critical(p: &Prediction) -> Option<&StagePrediction> {
    p.stages
        .iter()
        .max_by(|a, b| a.busy_fraction.total_cmp(&b.busy_fraction))
}

fn bottleneck(plan: &Plan, p: &Prediction) -> String {
    let Some(s) = critical(p) else {
        return String::new();
    };
    let step = p.step_time_s.0;
    let m = f64::from(plan.pipelines[s.pipeline].micro_batches);
    let per_batch = (s.forward_s + s.backward_s).0.max(1e-12);
    let communication = m * s.comm_s.0 / step;
    let recompute = m * s.recompute_s.0 / step;
    let compute = m * per_batch / step - communication - recompute;
    let tail = (s.grad_sync_s + s.optimizer_s).0 / step;
    let waiting = (1.0 - compute - communication - recompute - tail).max(0.0);
    format!(
        "bottleneck: pipeline {} stage {}: compute {}, communication {}, recompute {}, gradient sync + optimizer {}, \
         waiting {}",
        s.pipeline,
        s.stage,
        words::percent(compute),
        words::percent(communication),
        words::percent(recompute),
        words::percent(tail),
        words::percent(waiting),
    )
}

fn fullest_device(p: &Prediction) -> Option<&DevicePrediction> {
    p.devices.iter().max_by(|a, b| {
        (a.memory_bytes.total / a.memory_bytes.limit)
            .total_cmp(&(b.memory_bytes.total / b.memory_bytes.limit))
            .then_with(|| b.device.cmp(&a.device))
    })
}

fn fullest(p: &Prediction) -> String {
    let Some(d) = fullest_device(p) else {
        return String::new();
    };
    let m = &d.memory_bytes;
    format!(
        "memory: fullest is {} ({}), {:.1} of {:.1} GiB, {}",
        d.device,
        d.device_type,
        m.total.gib(),
        m.limit.gib(),
        match d.grade {
            Grade::Safe => "safe",
            Grade::Tight => "tight (less than 8 % free)",
            Grade::Over => "OVER the limit",
        }
    )
}

fn idle(plan: &Plan) -> Option<String> {
    if plan.idle.is_empty() {
        return None;
    }
    let words: Vec<String> = plan
        .idle
        .iter()
        .map(|i| format!("{} ({})", words::devices(i.devices.iter()), i.reason))
        .collect();
    Some(format!("idle: {}", words.join("; ")))
}

fn conservation_line(plan: &Plan) -> String {
    let c = conservation(plan);
    let yes = |b: bool| if b { "yes" } else { "NO" };
    let atoms = c.pipelines.iter().all(|p| p.atoms_covered_once);
    let rows = c.pipelines.iter().all(|p| p.rows_add_up);
    let tied = if c.tied_partners.is_empty() {
        String::new()
    } else {
        format!(
            ", tied embedding held by {} stages and reduced together",
            c.tied_partners.len()
        )
    };
    let unequal = if c.equal_step_counts {
        ""
    } else {
        " (unequal step counts join at the gradient reduction)"
    };
    format!(
        "conserved: {} atoms each once per pipeline: {}; each device once: {}; rows add up: {}; {} of {} sequences; \
         gradient weights sum to {:.6}{tied}{unequal}",
        c.atoms,
        yes(atoms),
        yes(c.devices.used_once),
        yes(rows),
        c.sequences,
        c.global_batch,
        c.gradient_weight_sum,
    )
}

fn trust(p: &Prediction) -> String {
    let shares: Vec<String> = p
        .provenance_share
        .iter()
        .map(|(name, share)| format!("{name} {}", words::percent(*share)))
        .collect();
    format!(
        "range: {} to {}; time by provenance: {}",
        p.range_s[0],
        p.range_s[1],
        shares.join(", ")
    )
}

fn proof(plan: &Plan, p: &Prediction) -> String {
    let Some(s) = &plan.search else {
        return String::new();
    };
    let bound = match (&p.bound_s, &p.bound_space) {
        (Some(b), Some(space)) => format!("bound: {b} for {space}"),
        _ => "bound: none".into(),
    };
    let repeat = if s.reproducible {
        ""
    } else {
        ", time-bounded: not reproducible"
    };
    format!(
        "{bound}\nsearch: {}, {} in {}, {} plans and templates priced{repeat}",
        s.method,
        s.stop_reason,
        s.wall_s,
        words::whole(s.plans_scored)
    )
}

fn itemised(p: &Prediction) -> String {
    let mut text = String::new();
    if let Some(s) = critical(p) {
        text += &format!(
            "critical stage {}/{} per micro-batch: forward {}, backward {} (recompute {}), communication inside {}, \
             send {} each way; per step: gradient sync {}, optimizer {}\n",
            s.pipeline,
            s.stage,
            s.forward_s,
            s.backward_s,
            s.recompute_s,
            s.comm_s,
            s.send_forward_s,
            s.grad_sync_s,
            s.optimizer_s,
        );
    }
    if let Some(d) = fullest_device(p) {
        text += &memory_table(&[(d.device.clone(), d)]);
    }
    text
}

/// Name of a memory item and its value in GiB.
type MemoryRow = (&'static str, fn(&MemoryItems) -> f64);

/// One row per item of memory for some devices.
fn memory_table(devices: &[(String, &DevicePrediction)]) -> String {
    let mut header = vec!["GiB"];
    header.extend(devices.iter().map(|d| d.0.as_str()));
    let mut rows = table(&header);
    let items: [MemoryRow; 11] = [
        ("weights", |m| m.weights.gib()),
        ("gradients", |m| m.gradients.gib()),
        ("optimizer", |m| m.optimizer.gib()),
        ("activations in flight", |m| m.activations.gib()),
        ("working set", |m| m.working_set.gib()),
        ("logits and loss", |m| m.logits.gib()),
        ("buffers", |m| m.buffers.gib()),
        ("context", |m| m.context.gib()),
        ("allocator reserve", |m| m.reserve.gib()),
        ("total", |m| m.total.gib()),
        ("limit", |m| m.limit.gib()),
    ];
    for (name, value) in items {
        let mut row = vec![name.to_owned()];
        row.extend(devices.iter().map(|d| format!("{:.2}", value(&d.1.memory_bytes))));
        rows.add_row(row);
    }
    rows.to_string()
}

/// The answer of `estimate`: stage times and the memory of each distinct device.
pub fn estimate_screen(plan: &Plan, prediction: &Prediction, violations: usize) -> String {
    let mut lines = vec![
        format!(
            "{}{}/step, {} tokens/s, MFU {}",
            if prediction.fits {
                "fits, "
            } else {
                "DOES NOT FIT, "
            },
            prediction.step_time_s,
            words::count(prediction.tokens_per_s),
            words::percent(prediction.mfu)
        ),
        format!("  {}", prediction.mfu_formula),
        stage_table(plan, prediction, 16),
        bottleneck(plan, prediction),
    ];
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let distinct: Vec<(String, &DevicePrediction)> = prediction
        .devices
        .iter()
        .filter(|d| seen.insert(format!("{}{:?}", d.device_type, d.memory_bytes)))
        .map(|d| (format!("{} {}", d.device, d.device_type), d))
        .take(4)
        .collect();
    lines.push(memory_table(&distinct));
    lines.push(trust(prediction));
    if violations > 0 {
        lines.push(format!(
            "{violations} rules are broken: run `autohaap check` on the plan"
        ));
    }
    lines.join("\n")
}

/// The answer of `check`.
pub fn check_screen(plan: &Plan, violations: &[Problem], advice: &[Problem]) -> String {
    let mut lines = Vec::new();
    if violations.is_empty() {
        lines.push(format!("legal: {} keeps every rule", plan.name));
    } else {
        let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
        for v in violations {
            *by_code.entry(v.code.id).or_default() += 1;
        }
        let codes: Vec<String> = by_code.iter().map(|(c, n)| format!("{n}x {c}")).collect();
        lines.push(format!(
            "NOT LEGAL: {} violations ({})",
            violations.len(),
            codes.join(", ")
        ));
        for v in violations {
            lines.push(format!("\n[{}] {}\n  at {}", v.code.id, v.message, v.path));
            if !v.hint.is_empty() {
                lines.push(format!("  hint: {}", v.hint));
            }
        }
        lines.push(String::new());
    }
    for a in advice {
        lines.push(format!("advice [{}]: {} ({})", a.code.id, a.message, a.path));
    }
    lines.push(conservation_line(plan));
    lines.join("\n")
}

/// The negative answer of `plan`.
pub fn infeasible_screen(answer: &Infeasible, training: &Training, assumed: &[String]) -> String {
    let mut lines = vec![
        if answer.proven {
            "no plan fits: proven for every plan of the space `full`".to_owned()
        } else {
            "no plan was found; that none exists is not proven".to_owned()
        },
        format!(
            "seq {}, global batch {}, {:?}, ZeRO up to 3 tried unless fixed",
            training.seq_len, training.global_batch, training.precision
        ),
    ];
    if !assumed.is_empty() {
        lines.push(format!("  by default: {}", assumed.join(", ")));
    }
    lines.extend(answer.reasons.iter().map(|r| format!("because: {r}")));
    if answer.relaxations.is_empty() {
        lines.push("no single change that was tried makes a plan possible".into());
    } else {
        lines.push("a plan exists with any one of:".into());
        lines.extend(answer.relaxations.iter().map(|r| format!("  - {r}")));
    }
    lines.join("\n")
}
