//! The screens of `estimate` and `check`, and the negative answer of `plan`.

use std::collections::{BTreeMap, BTreeSet};

use super::plan_screen::{bottleneck, conservation_lines, critical, training_line, trust};
use super::stages::{Types, stage_table};
use super::{screen, table, table_lines, words};
use crate::error::{Code, Problem};
use crate::plan::{DevicePrediction, MemoryItems, Plan, Prediction, Training};
use crate::search::Infeasible;

/// Violations that are spelt out.
const VIOLATIONS: usize = 12;

/// Devices of different memory that are itemised.
const DEVICES: usize = 4;

/// Lines of the stage table of `estimate`.
const STAGES: usize = 24;

/// Name of a memory item and its value in GiB.
type MemoryRow = (&'static str, fn(&MemoryItems) -> f64);

/// One row per item of memory for some devices.
pub(super) fn memory_table(devices: &[&DevicePrediction]) -> Vec<String> {
    let room = 70 / devices.len().max(1);
    let names: Vec<String> = devices.iter().map(|d| words::elide(&d.device, room)).collect();
    let mut header = vec!["memory, GiB"];
    header.extend(names.iter().map(String::as_str));
    let right: Vec<usize> = (1..header.len()).collect();
    let mut rows = table(&header, &right);
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
    let mut row = vec!["device".to_owned()];
    row.extend(devices.iter().map(|d| words::elide(&d.device_type, room)));
    rows.add_row(row);
    for (name, value) in items {
        let mut row = vec![name.to_owned()];
        row.extend(devices.iter().map(|d| format!("{:.2}", value(&d.memory_bytes))));
        rows.add_row(row);
    }
    table_lines(&rows, "")
}

/// The answer of `estimate`: stage times and the memory of each distinct device.
pub fn estimate_screen(plan: &Plan, prediction: &Prediction, violations: usize) -> String {
    let types = Types::new(plan);
    let mut lines = vec![
        format!(
            "{}{}/step (range {} to {}), {} tokens/s, MFU {}",
            if prediction.fits {
                "fits, "
            } else {
                "DOES NOT FIT, "
            },
            prediction.step_time_s,
            prediction.range_s[0],
            prediction.range_s[1],
            words::count(prediction.tokens_per_s),
            words::percent(prediction.mfu)
        ),
        format!(
            "{} on {}",
            words::elide(&plan.model.model.name, 36),
            words::elide(&plan.cluster.cluster.name, 58)
        ),
        training_line(&plan.training),
    ];
    lines.extend(words::wrap(&prediction.mfu_formula, "  ", 3));
    lines.push(String::new());
    let critical = critical(prediction).map(|s| (s.pipeline, s.stage));
    lines.extend(stage_table(plan, prediction, &types, STAGES, critical));
    lines.extend(bottleneck(plan, prediction, &types));
    lines.push(String::new());
    // The fullest devices first: they decide.
    let mut devices: Vec<&DevicePrediction> = prediction.devices.iter().collect();
    devices.sort_by(|a, b| {
        let share = |d: &DevicePrediction| d.memory_bytes.total / d.memory_bytes.limit;
        share(b)
            .total_cmp(&share(a))
            .then_with(|| a.device.cmp(&b.device))
    });
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut distinct: Vec<&DevicePrediction> = devices
        .into_iter()
        .filter(|d| seen.insert(format!("{}{:?}", d.device_type, d.memory_bytes)))
        .collect();
    // One of each type before a second of any.
    let mut types_seen: BTreeSet<&str> = BTreeSet::new();
    distinct.sort_by_key(|d| !types_seen.insert(d.device_type.as_str()));
    lines.extend(memory_table(&distinct[..distinct.len().min(DEVICES)]));
    match distinct.len().saturating_sub(DEVICES) {
        0 => {}
        more => lines.push(format!("  ... and {more} more loads of devices (--format json)")),
    }
    lines.push(String::new());
    lines.push(trust(prediction));
    if violations > 0 {
        lines.push(format!(
            "{} broken: run `autohaap check` on the plan",
            if violations == 1 {
                "1 rule is".to_owned()
            } else {
                format!("{violations} rules are")
            }
        ));
    }
    screen(&lines)
}

/// The answer of `check`.
pub fn check_screen(plan: &Plan, violations: &[Problem], advice: &[Problem]) -> String {
    let mut lines = Vec::new();
    if violations.is_empty() {
        lines.push(format!(
            "legal: {} keeps every rule",
            words::elide(&plan.name, 70)
        ));
    } else {
        let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
        for v in violations {
            *by_code.entry(v.code.id).or_default() += 1;
        }
        let codes: Vec<String> = by_code.iter().map(|(c, n)| format!("{n}x {c}")).collect();
        lines.extend(words::list(
            &format!("NOT LEGAL: {}", words::plural(violations.len(), "violation")),
            &codes,
            3,
        ));
        for v in violations.iter().take(VIOLATIONS) {
            lines.push(String::new());
            lines.extend(words::wrap(&format!("[{}] {}", v.code.id, v.message), "  ", 4));
            lines.extend(words::wrap(&format!("  at {}", v.path), "    ", 2));
            if !v.hint.is_empty() {
                lines.extend(words::wrap(&format!("  hint: {}", v.hint), "    ", 4));
            }
        }
        if violations.len() > VIOLATIONS {
            lines.push(format!(
                "\n... and {} (--format json)",
                words::plural(violations.len() - VIOLATIONS, "more violation")
            ));
        }
        lines.push(String::new());
    }
    for a in advice.iter().take(VIOLATIONS) {
        lines.extend(words::wrap(
            &format!("advice [{}]: {} ({})", a.code.id, a.message, a.path),
            "  ",
            3,
        ));
    }
    if advice.len() > VIOLATIONS {
        lines.push(format!(
            "  ... and {} more (--format json)",
            advice.len() - VIOLATIONS
        ));
    }
    lines.extend(conservation_lines(plan));
    screen(&lines)
}

/// The negative answer of `plan`.
pub fn infeasible_screen(answer: &Infeasible, training: &Training, assumed: &[String]) -> String {
    let mut lines = vec![match (answer.proven, answer.stop) {
        (true, _) => "no plan fits: proven for every plan of the space `full`".to_owned(),
        (false, Some(_)) => {
            "no plan was found before the search was stopped; that none exists is not proven".to_owned()
        }
        (false, None) => "no plan was found; that none exists is not proven".to_owned(),
    }];
    // Where the level is left to the search, all were tried.
    let level = if assumed.iter().any(|a| a.starts_with("--zero")) {
        training_line(training).replace(&format!(", ZeRO-{}", training.zero), ", any ZeRO level")
    } else {
        training_line(training)
    };
    lines.push(level);
    if !assumed.is_empty() {
        lines.extend(words::wrap(
            &format!("  by default: {}", assumed.join(", ")),
            "    ",
            3,
        ));
    }
    for reason in answer.reasons.iter().take(8) {
        lines.extend(words::wrap(&format!("because: {reason}"), "  ", 4));
    }
    if answer.relaxations.is_empty() {
        lines.push(if answer.stop.is_some() {
            "which change would make a plan possible was not worked out: the search was stopped".into()
        } else {
            "no single change that was tried makes a plan possible".into()
        });
    } else {
        lines.push("a plan exists with any one of:".into());
        for change in answer.relaxations.iter().take(12) {
            lines.extend(words::wrap(&format!("  - {change}"), "    ", 2));
        }
        if answer.relaxations.len() > 12 {
            lines.push(format!(
                "  ... and {} more (--format json)",
                answer.relaxations.len() - 12
            ));
        }
    }
    screen(&lines)
}

/// The page of a code, as `explain` prints it.
pub fn page_screen(code: &Code) -> String {
    let mut lines = words::wrap(&format!("{}: {}", code.id, code.title), "  ", 3);
    lines.push(String::new());
    for paragraph in code.page.lines() {
        lines.extend(words::wrap(paragraph, "", usize::MAX));
    }
    screen(&lines)
}
