//! DOES IT COME TRUE: published measurements turned into model, cluster and plan, predicted, and compared.
//!
//! ```text
//! row -> express -> (fitted figures applied) -> price -> the row's own quantity -> error
//! rows of a group -> mean, worst, bias, rank correlation, regret; beside them two trivial baselines
//! ```
//!
//! Rows that calibrate never count in a reported error. `use` is decided by [`case::rule`], which sees no value.

pub mod baseline;
pub mod case;
pub mod express;
pub mod fit;
pub mod goals;
mod machine;
pub mod oracle;
pub mod own;
pub mod predict;
pub mod published;
pub mod quantity;
pub mod screen;
mod shape;
pub mod statistics;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::error::Problems;
use crate::profile::calibration::Calibration;
use case::{Case, Use, read_cases};
use express::{Expressed, express};
use quantity::Quantity;

/// A row compared.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Identifier.
    pub id: String,
    /// Its prefix.
    pub group: String,
    /// `time`, `memory`, `bubble`, `fit`.
    pub kind: &'static str,
    /// Model.
    pub model: String,
    /// Unit of the value.
    pub unit: String,
    /// Measured value; for `fit` 1 where the run did not fit.
    pub expected: Option<f64>,
    /// Predicted value.
    pub predicted: Option<f64>,
    /// predicted / expected - 1 (for `fit` and `bubble`: predicted - expected).
    pub error: Option<f64>,
    /// `test`, `calibration`, `excluded`, `not-expressed`, `weak` (a failure without a recorded cause).
    pub status: &'static str,
    /// Why a row is not expressed, or what it does not state and was assumed.
    pub reason: String,
    /// Relative error of the step time with the sign of a time: positive = predicted too slow.
    #[serde(skip)]
    time_error: Option<f64>,
    /// Whether the plan is predicted to fit.
    pub fits: Option<bool>,
    #[serde(skip)]
    family: String,
    #[serde(skip)]
    schedule: String,
    /// The source states recompute and the division of states.
    #[serde(skip)]
    settled: bool,
    #[serde(skip)]
    terms: Option<baseline::Terms>,
    #[serde(skip)]
    measured_s: Option<f64>,
}

/// A group of rows of one source and kind.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// Prefix of the rows.
    pub group: String,
    /// Kind.
    pub kind: &'static str,
    /// Rows that count.
    pub n: usize,
    /// Rows that were fitted on.
    pub n_calibration: usize,
    /// Rows that cannot be expressed.
    pub n_not_expressed: usize,
    /// Mean absolute relative error.
    pub mape: f64,
    /// Largest.
    pub max: f64,
    /// Mean signed error; positive = predicted too slow or too large.
    pub bias: f64,
    /// Rank correlation of step times, mean over families of plans of one model, batch and cluster.
    pub spearman: Option<f64>,
    /// Mean cost of the plan predicted best over the best plan measured, over the same families.
    pub regret: Option<f64>,
    /// Error of the one-parameter baseline.
    pub m0_mape: Option<f64>,
    /// Error of the two-parameter baseline.
    pub m1_mape: Option<f64>,
    /// Mean absolute relative error without any fit: datasheets, catalogue and default curves alone.
    pub sheet_mape: Option<f64>,
    /// Mean signed error without any fit.
    pub sheet_bias: Option<f64>,
    /// What is aimed at.
    pub goal: Option<f64>,
    /// Whether `mape` is within the goal.
    pub goal_met: Option<bool>,
    /// Recorded tolerance of the mean error.
    pub tolerance: Option<f64>,
    /// Whether the recorded tolerance holds.
    pub ok: bool,
}

/// Everything `validate` answers.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Groups in the order of their names.
    pub groups: Vec<Group>,
    /// Rows in the order of the files.
    pub rows: Vec<Row>,
    /// Exact checks.
    pub oracles: Vec<oracle::Check>,
}

impl Report {
    /// Runs that took place and runs of them that are predicted not to fit, among test rows whose layout is stated (time
    /// and memory rows; sources that say neither how states are divided nor what is recomputed are left out).
    pub fn rejected(&self) -> (usize, usize) {
        let ran = self.rows.iter().filter(|r| {
            r.status == "test" && matches!(r.kind, "time" | "memory") && r.fits.is_some() && r.settled
        });
        ran.fold((0, 0), |(all, out), r| {
            (all + 1, out + usize::from(r.fits == Some(false)))
        })
    }

    /// Whether every recorded tolerance and every exact check holds.
    pub fn holds(&self) -> bool {
        self.groups.iter().all(|g| g.ok) && self.oracles.iter().all(|c| c.status != "broken")
    }
}

/// The published cases that the project carries.
///
/// # Errors
/// None for the files as they are; a damaged file.
pub fn published_cases() -> Result<Vec<Case>, Problems> {
    let mut all = Vec::new();
    for (name, text) in published::SOURCES {
        all.extend(read_cases(text, name)?);
    }
    Ok(all)
}

/// Compares cases with predictions under a calibration. `known` are the calibration rows of the baselines (the published
/// ones when foreign cases are compared).
pub fn compare(cases: &[Case], known: &[Case], calibration: &Calibration) -> (Vec<Group>, Vec<Row>) {
    let rows: Vec<Row> = cases.par_iter().map(|c| compare_row(c, calibration)).collect();
    let mut fitted: BTreeMap<String, Vec<(baseline::Terms, f64)>> = BTreeMap::new();
    let other: Vec<Row> = if std::ptr::eq(cases, known) {
        Vec::new()
    } else {
        known
            .par_iter()
            .filter(|c| c.used_for == Use::Calibration)
            .map(|c| compare_row(c, calibration))
            .collect()
    };
    for row in rows.iter().chain(&other) {
        if let (Some(terms), Some(seconds), "calibration") = (row.terms, row.measured_s, row.status) {
            fitted
                .entry(row.group.clone())
                .or_default()
                .push((terms, seconds));
        }
    }
    let mut keys: Vec<(String, &'static str)> = rows.iter().map(|r| (r.group.clone(), r.kind)).collect();
    keys.sort();
    keys.dedup();
    let mut groups = Vec::new();
    for (name, kind) in keys {
        let own: Vec<&Row> = rows
            .iter()
            .filter(|r| r.group == name && r.kind == kind)
            .collect();
        groups.push(group(&name, kind, &own, fitted.get(&name)));
        if kind == "time" && own.iter().any(|r| r.schedule == "1F1B") {
            groups.push(ratios(&name, &own));
        }
    }
    (groups, rows)
}

/// Adds the errors of the same rows under datasheets and default curves alone. The catalogue's figures of links stay.
pub fn without_calibration(groups: &mut [Group], cases: &[Case]) {
    let (bare, _) = compare(cases, cases, &Calibration::default());
    for group in groups {
        if let Some(same) = bare
            .iter()
            .find(|b| b.group == group.group && b.kind == group.kind)
            && group.kind == "time"
            && same.n > 0
        {
            group.sheet_mape = Some(same.mape);
            group.sheet_bias = Some(same.bias);
        }
    }
}

/// Whether a source states what its memory depends on.
fn settled(case: &Case) -> bool {
    ["recompute", "shard", "mbs"].iter().all(|column| {
        let text = case.text(column);
        !text.is_empty() && !text.starts_with("not ")
    })
}

fn compare_row(case: &Case, calibration: &Calibration) -> Row {
    let quantity = quantity::of(case);
    let mut row = Row {
        id: case.id.clone(),
        group: case.group.clone(),
        kind: quantity.as_ref().map_or("time", |q| q.kind()),
        model: case.text("model").to_owned(),
        unit: case.text("unit").to_owned(),
        expected: case.number("value").filter(|v| v.is_finite()),
        predicted: None,
        error: None,
        status: case.used_for.name(),
        reason: String::new(),
        time_error: None,
        fits: None,
        settled: settled(case),
        family: ["model", "device", "gpus", "gbs", "seq", "precision"]
            .map(|c| case.text(c))
            .join("|"),
        schedule: case.text("schedule").to_owned(),
        terms: None,
        measured_s: None,
    };
    let outcome = quantity.and_then(|quantity| {
        let expressed = express(case)?;
        let fitted = predict::calibrated(&expressed, calibration);
        let predicted = predict::predict(&fitted)?;
        row.fits = Some(predicted.fits);
        Ok((quantity, predict::in_unit(case, &fitted, &predicted)?, fitted))
    });
    match outcome {
        Err(reason) => {
            row.status = "not-expressed";
            row.reason = reason;
        }
        Ok((quantity, value, fitted)) => finish(&mut row, case, quantity, value, &fitted),
    }
    row
}

fn finish(row: &mut Row, case: &Case, quantity: Quantity, value: f64, fitted: &Expressed) {
    row.predicted = Some(value);
    row.reason = fitted.assumed.join("; ");
    if quantity == Quantity::DoesNotFit {
        row.expected = Some(1.0);
        row.error = Some(value - 1.0);
        if case.text("metric") == "FAILED/OOM" {
            row.status = "weak";
        }
        return;
    }
    let Some(expected) = row.expected.filter(|e| *e > 0.0) else {
        row.status = "not-expressed";
        row.reason = "no positive measured value".into();
        return;
    };
    // Idle shares are compared by their difference: near zero a relative error says nothing.
    row.error = Some(if quantity == Quantity::Bubble {
        value - expected
    } else {
        value / expected - 1.0
    });
    if row.kind == "time" {
        row.time_error = Some(if quantity.is_rate() {
            expected / value - 1.0
        } else {
            value / expected - 1.0
        });
        if !matches!(quantity, Quantity::LayerForward | Quantity::LayerBackward) {
            row.terms = Some(baseline::terms(fitted));
            row.measured_s = step_seconds(quantity, expected, value, fitted);
        }
    }
}

/// The measured step time behind a value.
fn step_seconds(quantity: Quantity, expected: f64, value: f64, row: &Expressed) -> Option<f64> {
    let sequences = row.training.global_batch as f64;
    let devices = f64::from(row.devices);
    Some(match quantity {
        Quantity::StepSeconds(unit) => expected * unit,
        Quantity::TokensPerDevice => sequences * row.training.seq_len as f64 / expected / devices,
        Quantity::SamplesPerDevice => sequences / expected / devices,
        Quantity::FlopsPerDevice(_) | Quantity::Utilisation(..) => {
            let step = predict::predict(row).ok()?.step_s;
            step * value / expected
        }
        _ => return None,
    })
}

fn group(
    name: &str,
    kind: &'static str,
    rows: &[&Row],
    calibration: Option<&Vec<(baseline::Terms, f64)>>,
) -> Group {
    let counted: Vec<&&Row> = rows
        .iter()
        .filter(|r| r.status == "test" && r.error.is_some())
        .collect();
    let errors: Vec<f64> = counted.iter().filter_map(|r| r.error).collect();
    let signed: Vec<f64> = counted.iter().filter_map(|r| r.time_error.or(r.error)).collect();
    let mut families: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for row in &counted {
        if let (Some(measured), Some(error)) = (row.measured_s, row.time_error) {
            let family = families.entry(&row.family).or_default();
            family.0.push(measured);
            family.1.push(measured * (1.0 + error));
        }
    }
    families.retain(|_, f| f.0.len() >= 3);
    let mean =
        |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let baseline = |fit: fn(&[(baseline::Terms, f64)]) -> Option<baseline::Baseline>| {
        let own: Vec<(baseline::Terms, f64)> = counted
            .iter()
            .filter_map(|r| Some((r.terms?, r.measured_s?)))
            .collect();
        // A group without a calibration row: fitted on the rows themselves, in the baseline's favour.
        let fitted = fit(calibration.map_or(own.as_slice(), Vec::as_slice))?;
        mean(
            own.iter()
                .map(|(t, s)| (fitted.predict(t) / s - 1.0).abs())
                .collect(),
        )
    };
    let mape = statistics::mean_absolute(&errors);
    let max = errors.iter().map(|e| e.abs()).fold(0.0, f64::max);
    let goal = goals::find(name, kind);
    Group {
        group: name.to_owned(),
        kind,
        n: errors.len(),
        n_calibration: rows.iter().filter(|r| r.status == "calibration").count(),
        n_not_expressed: rows.iter().filter(|r| r.status == "not-expressed").count(),
        mape,
        max,
        bias: mean(signed).unwrap_or(0.0),
        spearman: mean(
            families
                .values()
                .filter_map(|(m, p)| statistics::spearman(m, p))
                .collect(),
        ),
        regret: mean(
            families
                .values()
                .filter_map(|(m, p)| statistics::regret(m, p))
                .collect(),
        ),
        m0_mape: (kind == "time")
            .then(|| baseline(baseline::Baseline::m0))
            .flatten(),
        m1_mape: (kind == "time")
            .then(|| baseline(baseline::Baseline::m1))
            .flatten(),
        sheet_mape: None,
        sheet_bias: None,
        goal: goal.and_then(|g| g.mape),
        goal_met: goal
            .and_then(|g| g.mape)
            .filter(|_| !errors.is_empty())
            .map(|g| mape <= g),
        tolerance: goal.and_then(|g| g.tolerance),
        ok: goal.and_then(|g| g.tolerance).is_none_or(|t| mape <= t) || errors.is_empty(),
    }
}

/// Throughput relative to 1F1B of the same run: what a schedule is worth, free of the absolute speed.
fn ratios(name: &str, rows: &[&Row]) -> Group {
    let base: BTreeMap<&str, (f64, f64)> = rows
        .iter()
        .filter(|r| r.schedule == "1F1B")
        .filter_map(|r| Some((r.family.as_str(), (r.expected?, r.predicted?))))
        .collect();
    let errors: Vec<f64> = rows
        .iter()
        .filter(|r| r.schedule != "1F1B")
        .filter_map(|r| {
            let (measured, predicted) = base.get(r.family.as_str())?;
            Some((r.predicted? / predicted) / (r.expected? / measured) - 1.0)
        })
        .collect();
    let mape = statistics::mean_absolute(&errors);
    let goal = goals::find(name, "ratio");
    Group {
        group: name.to_owned(),
        kind: "ratio",
        n: errors.len(),
        n_calibration: 0,
        n_not_expressed: 0,
        mape,
        max: errors.iter().map(|e| e.abs()).fold(0.0, f64::max),
        bias: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
        spearman: None,
        regret: None,
        m0_mape: None,
        m1_mape: None,
        sheet_mape: None,
        sheet_bias: None,
        goal: goal.and_then(|g| g.mape),
        goal_met: goal
            .and_then(|g| g.mape)
            .filter(|_| !errors.is_empty())
            .map(|g| mape <= g),
        tolerance: goal.and_then(|g| g.tolerance),
        ok: goal.and_then(|g| g.tolerance).is_none_or(|t| mape <= t) || errors.is_empty(),
    }
}
