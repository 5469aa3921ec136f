//! `autohaap check`: proves a plan legal, or lists every violation.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::error::{Problem, usage as codes};
use autohaap::plan::{Grade, Plan, Prediction, advise, check, conservation};
use autohaap::report;
use serde_json::Value;

use crate::args::{CheckArgs, Cli};
use crate::{ExitStatus, Failure, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &CheckArgs) -> Result<ExitStatus, Failure> {
    if let Some(engine) = &args.engine {
        return Err(Problem::new(
            &codes::NOT_AVAILABLE,
            "--engine",
            format!("`{engine}` is not available"),
        )
        .hint("this version checks no engine limits; leave the flag out")
        .into());
    }
    let mut plan = input::plan(&args.plan)?;
    if cli.anonymize {
        plan = plan.anonymized();
    }
    let mut violations = check(&plan);
    violations.extend(predicted(&plan, violations.is_empty()));
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/check@1",
            "ok": violations.is_empty(),
            "violations": violations,
            "advice": advise(&plan),
            "conservation": conservation(&plan),
        }))?;
    } else {
        output::print(&report::check_screen(&plan, &violations, &advise(&plan)))?;
    }
    Ok(if violations.is_empty() {
        ExitStatus::Answer
    } else {
        ExitStatus::Negative
    })
}

/// Relative difference between a stored and a fresh figure that rounding may leave.
const TOLERANCE: f64 = 1e-6;

/// Violations that only a fresh prediction shows: memory over the limit, figures that the plan's own records do not give,
/// plans that cannot be priced.
fn predicted(plan: &Plan, legal: bool) -> Vec<Problem> {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    match price(&setting, &plan.pipelines, &mut Cache::default()) {
        Ok((prediction, _)) if legal && differs(plan, &prediction).is_some() => {
            differs(plan, &prediction).into_iter().collect()
        }
        Ok((prediction, _)) => prediction
            .devices
            .iter()
            .filter(|d| d.grade == Grade::Over)
            .map(|d| {
                let m = &d.memory_bytes;
                Problem::new(
                    &autohaap::error::cost::OVER_MEMORY,
                    format!("devices `{}`", d.device),
                    format!(
                        "{} ({}) needs {:.1} GiB of {:.1} GiB",
                        d.device,
                        d.device_type,
                        m.total.gib(),
                        m.limit.gib()
                    ),
                )
                .hint("fewer layers, a smaller in-flight limit, more recompute or a higher ZeRO level on its stage")
            })
            .collect(),
        // What makes a plan unpriceable is already listed, in more detail, where other rules are broken.
        Err(problems) if legal => problems.0,
        Err(_) => Vec::new(),
    }
}

/// The first figure of the plan's prediction that a fresh one contradicts, with the number of all of them.
fn differs(plan: &Plan, fresh: &Prediction) -> Option<Problem> {
    let stored = plan.prediction.as_ref()?;
    let (Ok(stored), Ok(fresh)) = (serde_json::to_value(stored), serde_json::to_value(fresh)) else {
        return None;
    };
    let mut found = Vec::new();
    compare(&stored, &fresh, "prediction", &mut found);
    let (path, was, is) = found.first()?;
    let others = match found.len() - 1 {
        0 => String::new(),
        n => format!("; {n} further figures differ"),
    };
    Some(
        Problem::new(
            &autohaap::error::plan::PREDICTION_FIGURES,
            path.clone(),
            format!("`{was}` in the plan, its own records give {is}{others}"),
        )
        .hint("run `autohaap estimate PLAN` for a fresh prediction"),
    )
}

/// Numbers that differ by more than rounding, by path; what only one side has (a bound) is not compared.
fn compare(stored: &Value, fresh: &Value, path: &str, found: &mut Vec<(String, f64, f64)>) {
    match (stored, fresh) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    compare(value, other, &format!("{path}.{key}"), found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for (i, (value, other)) in a.iter().zip(b).enumerate() {
                compare(value, other, &format!("{path}[{i}]"), found);
            }
        }
        _ => {
            if let (Some(a), Some(b)) = (stored.as_f64(), fresh.as_f64())
                && (a - b).abs() > TOLERANCE * a.abs().max(b.abs())
            {
                found.push((path.to_owned(), a, b));
            }
        }
    }
}
