//! Exact checks: formulas and tool values in a file with the columns of `data/published/oracles.csv`.

use serde::Serialize;
use serde_json::Value;

use crate::cost::pipeline::{Scratch, run};
use crate::cost::pipeline::{
    StageTime, gpipe_makespan, lower_bound, minimal_depths, rendezvous_makespan, steady_period,
};
use crate::cost::reference::{LayerFormula, PlainLayer, layer_activations};
use crate::error::{Problem, Problems, validate as codes};

/// The checks that the project carries.
pub const PUBLISHED: &str = include_str!("../../../../data/published/oracles.csv");

/// One check.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// Identifier.
    pub id: String,
    /// Area.
    pub area: String,
    /// Expected value or list.
    pub expected: Value,
    /// Value found.
    pub found: Value,
    /// Largest relative error.
    pub error: Option<f64>,
    /// `holds`, `broken`, `not-covered`.
    pub status: &'static str,
    /// Why it is not covered.
    pub reason: String,
}

/// Checks every row of a file.
///
/// # Errors
/// No CSV or a missing column.
pub fn check(text: &str, name: &str) -> Result<Vec<Check>, Problems> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let failed = |e: &dyn std::fmt::Display| Problem::new(&codes::CASE_FILE, name, format!("no CSV: {e}"));
    let header = reader.headers().map_err(|e| failed(&e))?.clone();
    let at = |column: &str| {
        header
            .iter()
            .position(|h| h == column)
            .ok_or_else(|| failed(&format!("the header lacks `{column}`")))
    };
    let columns = [
        at("id")?,
        at("area")?,
        at("inputs_json")?,
        at("quantity")?,
        at("expected")?,
        at("tolerance")?,
    ];
    let mut checks = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| failed(&e))?;
        let cell = |i: usize| record.get(columns[i]).unwrap_or("");
        let inputs: Value = serde_json::from_str(cell(2)).unwrap_or(Value::Null);
        let expected: Value = serde_json::from_str(cell(4)).unwrap_or(Value::Null);
        let found = find(cell(1), &inputs, cell(3));
        let tolerance = tolerance(cell(5));
        let (found, error, status, reason) = match found {
            Err(reason) => (Value::Null, None, "not-covered", reason),
            Ok(values) => {
                let wanted: Vec<f64> = match &expected {
                    Value::Array(list) => list.iter().filter_map(Value::as_f64).collect(),
                    other => other.as_f64().into_iter().collect(),
                };
                let error = if wanted.len() == values.len() {
                    wanted
                        .iter()
                        .zip(&values)
                        .map(|(w, f)| (f - w).abs() / w.abs().max(f64::MIN_POSITIVE))
                        .fold(0.0, f64::max)
                } else {
                    f64::INFINITY
                };
                let holds = error <= tolerance;
                let value = if expected.is_array() {
                    serde_json::json!(values)
                } else {
                    serde_json::json!(values.first())
                };
                (
                    value,
                    Some(error),
                    if holds { "holds" } else { "broken" },
                    String::new(),
                )
            }
        };
        checks.push(Check {
            id: cell(0).to_owned(),
            area: cell(1).to_owned(),
            expected,
            found,
            error,
            status,
            reason,
        });
    }
    Ok(checks)
}

/// `exact`, `1e-9 rel` or `10%` as a relative tolerance; exact allows the last digits of a double.
fn tolerance(text: &str) -> f64 {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        return percent.trim().parse::<f64>().map_or(1e-9, |p| p / 100.0);
    }
    text.split_whitespace()
        .next()
        .and_then(|t| t.parse().ok())
        .unwrap_or(1e-9)
}

fn number(inputs: &Value, key: &str) -> Result<u64, String> {
    inputs[key]
        .as_u64()
        .or_else(|| inputs[key].as_f64().map(|f| f as u64))
        .ok_or_else(|| format!("no number `{key}`"))
}

fn list(inputs: &Value, key: &str) -> Vec<f64> {
    inputs[key]
        .as_array()
        .map(|a| a.iter().filter_map(Value::as_f64).collect())
        .unwrap_or_default()
}

fn find(area: &str, inputs: &Value, quantity: &str) -> Result<Vec<f64>, String> {
    match area {
        "act_mem_layer" => {
            let recomputed = inputs["recompute"] == "attention core";
            let formula = match inputs["variant"].as_str() {
                Some("tp") => LayerFormula::TensorParallel,
                Some("tpsp") => LayerFormula::SequenceParallel,
                Some("tpsp_sel") => LayerFormula::SequenceParallelSelective,
                None if recomputed => LayerFormula::LlmAnalysisSelective,
                None => LayerFormula::LlmAnalysis,
                Some(other) => return Err(format!("unknown variant `{other}`")),
            };
            let layer = PlainLayer {
                seq_len: number(inputs, "s")?,
                micro_batch: number(inputs, "b")?,
                hidden: number(inputs, "h")?,
                heads: number(inputs, "a")?,
                tp: number(inputs, "t")?,
            };
            Ok(vec![layer_activations(formula, layer).0])
        }
        "hetero_1f1b" => pipeline(inputs, quantity),
        "schedule" => schedule(inputs, quantity),
        _ => Err("checked by the test suite of the project (`cargo nextest run oracle`)".into()),
    }
}

fn pipeline(inputs: &Value, quantity: &str) -> Result<Vec<f64>, String> {
    let (f, b) = (list(inputs, "f"), list(inputs, "b"));
    let (ahead, back) = (list(inputs, "link_fwd"), list(inputs, "link_bwd"));
    if f.is_empty() || f.len() != b.len() {
        return Err("stage times are missing".into());
    }
    let stages: Vec<StageTime> = (0..f.len())
        .map(|s| StageTime {
            forward: f[s],
            backward: b[s],
            link_forward: ahead.get(s).copied().unwrap_or(0.0),
            link_backward: back.get(s).copied().unwrap_or(0.0),
        })
        .collect();
    let depths: Vec<u32> = if inputs["warmup"].is_array() {
        list(inputs, "warmup").iter().map(|w| *w as u32 + 1).collect()
    } else {
        crate::cost::pipeline::standard_depths(f.len())
    };
    let m = number(inputs, "m").unwrap_or(1) as u32;
    if quantity.starts_with("makespan") {
        return Ok(vec![if inputs["p2p"] == "rendezvous" {
            rendezvous_makespan(&stages, &depths, m)
        } else {
            run(&stages, &depths, m, &mut Scratch::default()).makespan
        }]);
    }
    if quantity.starts_with("steady period") {
        return Ok(vec![steady_period(&stages, &depths)]);
    }
    if quantity.contains("minimal warm-up") {
        let rate = stages.iter().map(StageTime::compute).fold(0.0, f64::max);
        return Ok(minimal_depths(&stages, rate)
            .iter()
            .map(|d| f64::from(*d) - 1.0)
            .collect());
    }
    if quantity.contains("lower bound") {
        return Ok(vec![lower_bound(&stages, m)]);
    }
    if quantity.contains("in-flight") {
        let run = run(&stages, &depths, m, &mut Scratch::default());
        return Ok(run.stages.iter().map(|s| f64::from(s.peak_in_flight)).collect());
    }
    Err(format!("the quantity `{quantity}` has no evaluator here"))
}

fn schedule(inputs: &Value, quantity: &str) -> Result<Vec<f64>, String> {
    let p = number(inputs, "p")? as usize;
    let m = number(inputs, "m")? as u32;
    let time = |key: &str| inputs[key].as_f64().unwrap_or(0.0);
    let stage = StageTime {
        forward: time("f"),
        backward: time("b_input") + time("b_weight"),
        ..StageTime::default()
    };
    let stages = vec![stage; p];
    let depths = crate::cost::pipeline::standard_depths(p);
    match (inputs["schedule"].as_str().unwrap_or(""), quantity) {
        ("gpipe", "makespan") => Ok(vec![gpipe_makespan(&stages, m)]),
        ("1f1b", "makespan") => Ok(vec![run(&stages, &depths, m, &mut Scratch::default()).makespan]),
        ("1f1b", q) if q.starts_with("peak") => Ok(run(&stages, &depths, m, &mut Scratch::default())
            .stages
            .iter()
            .map(|s| f64::from(s.peak_in_flight))
            .collect()),
        (name, _) => Err(format!("`{name}` is checked with the simulator's orders")),
    }
}
