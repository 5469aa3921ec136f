//! The screens of `compare`: plans side by side, named spaces side by side, a run beside its prediction.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{screen, table, table_lines, words};
use crate::launch::Measured;
use crate::plan::{Plan, Prediction};
use crate::units::Seconds;

/// One line of a comparison: a plan, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// File or space.
    pub name: String,
    /// Figures of the plan.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Why there is no plan; empty where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What plans are compared by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Event-order step time.
    pub step_time_s: Seconds,
    /// Step time with links shared, where it was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_simulated_s: Option<Seconds>,
    /// Tokens of the global batch per second.
    pub tokens_per_s: f64,
    /// Share of the limit that the fullest device holds.
    pub memory_share: f64,
    /// Whether every device fits.
    pub fits: bool,
    /// Broken rules of the plan file.
    pub violations: usize,
    /// Proven bound of the space, where a search gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<Seconds>,
    /// (step - bound) / step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// Devices in use.
    pub devices: usize,
    /// Shape in a few words.
    pub shape: String,
}

impl Figures {
    /// Figures of a priced plan.
    pub fn new(plan: &Plan, prediction: &Prediction, violations: usize) -> Self {
        let fullest = prediction
            .devices
            .iter()
            .map(|d| d.memory_bytes.total.0 / d.memory_bytes.limit.0)
            .fold(0.0, f64::max);
        let all = || plan.pipelines.iter().flat_map(|p| &p.stages);
        let tps: BTreeSet<u32> = all().flat_map(|s| &s.replicas).map(|r| r.tp).collect();
        let tps: Vec<String> = tps.iter().map(u32::to_string).collect();
        let depths: BTreeSet<usize> = plan.pipelines.iter().map(|p| p.stages.len()).collect();
        let depths: Vec<String> = depths.iter().map(usize::to_string).collect();
        Self {
            step_time_s: prediction.step_time_s,
            step_time_simulated_s: prediction.step_time_simulated_s,
            tokens_per_s: prediction.tokens_per_s,
            memory_share: fullest,
            fits: prediction.fits,
            violations,
            bound_s: prediction.bound_s,
            gap: prediction.gap,
            devices: prediction.devices.len(),
            shape: format!(
                "{} x {} stages, tp {}, ZeRO-{}",
                plan.pipelines.len(),
                depths.join("/"),
                tps.join("/"),
                plan.training.zero
            ),
        }
    }

    /// Whether the plan is legal and fits.
    pub fn usable(&self) -> bool {
        self.fits && self.violations == 0
    }
}

/// Plans side by side; times are compared per token, so that batches may differ. `base` names the line of ratio 1.
pub fn compare_screen(rows: &[Compared], base: usize, notes: &[String]) -> String {
    let reference = rows
        .get(base)
        .and_then(|r| r.figures.as_ref())
        .map_or(f64::NAN, |f| f.tokens_per_s);
    // Sharing links changes the step of few plans: the column is there where it says something.
    let shared = rows.iter().filter_map(|r| r.figures.as_ref()).any(|f| {
        f.step_time_simulated_s
            .is_some_and(|s| (s.0 / f.step_time_s.0 - 1.0).abs() > 0.005)
    });
    let header = [
        "",
        "step",
        "simulated",
        "tokens/s",
        "slower",
        "memory",
        "verdict",
        "pipelines x stages",
    ];
    let columns: Vec<usize> = (0..header.len()).filter(|&c| shared || c != 2).collect();
    let names: Vec<&str> = columns.iter().map(|&c| header[c]).collect();
    let right: Vec<usize> = (1..if shared { 6 } else { 5 }).collect();
    let mut lines_table = table(&names, &right);
    let mut add = |cells: [String; 8]| {
        let kept: Vec<String> = columns.iter().map(|&c| cells[c].clone()).collect();
        lines_table.add_row(kept);
    };
    for row in rows {
        let name = words::elide(&row.name, 22);
        let Some(f) = &row.figures else {
            let dash = || "-".to_owned();
            add([
                name,
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                "none".into(),
                words::elide(&row.reason, 40),
            ]);
            continue;
        };
        let slower = reference / f.tokens_per_s;
        let verdict = match (f.fits, f.violations) {
            (_, n) if n > 0 => words::plural(n, "violation"),
            (false, _) => "does not fit".into(),
            _ => "fits".into(),
        };
        add([
            name,
            f.step_time_s.to_string(),
            f.step_time_simulated_s.map_or("-".to_owned(), |s| s.to_string()),
            words::count(f.tokens_per_s),
            if slower.is_finite() {
                format!("{slower:.2}x")
            } else {
                "-".into()
            },
            words::percent(f.memory_share),
            verdict,
            words::elide(&f.shape, 34),
        ]);
    }
    let mut lines = table_lines(&lines_table, "");
    lines.extend(notes.iter().flat_map(|n| words::wrap(n, "  ", 3)));
    screen(&lines)
}

/// A run beside the simulation of its plan.
pub fn measured_screen(measured: &Measured) -> String {
    let off = |found: f64, wanted: f64| {
        if wanted > 0.0 {
            format!("{:+.1} %", 100.0 * (found / wanted - 1.0))
        } else {
            "-".into()
        }
    };
    let (step, planned) = (measured.step_time_s, measured.predicted_step_time_s);
    let mut lines = vec![
        format!(
            "step {step} measured, {planned} predicted for the planned devices, {}",
            off(step.0, planned.0)
        ),
        format!("measured on: {}", measured.hardware.join(", ")),
    ];
    let mut stages = table(
        &[
            "pipeline.stage.replica",
            "forward",
            "predicted",
            "",
            "backward",
            "predicted",
            "",
        ],
        &[1, 2, 3, 4, 5, 6],
    );
    for s in &measured.stages {
        stages.add_row(vec![
            format!("{}.{}.{}", s.pipeline, s.stage, s.replica),
            s.forward_s.to_string(),
            s.predicted_forward_s.to_string(),
            off(s.forward_s.0, s.predicted_forward_s.0),
            s.backward_s.to_string(),
            s.predicted_backward_s.to_string(),
            off(s.backward_s.0, s.predicted_backward_s.0),
        ]);
    }
    lines.extend(table_lines(&stages, ""));
    screen(&lines)
}
