//! `autohaap estimate`: time and memory of a plan, or of a stream of plans.

use std::io::{BufRead, Write};
use std::sync::Arc;

use autohaap::cluster::Cluster;
use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, device_memory, price, price_step};
use autohaap::error::Problems;
use autohaap::model::Model;
use autohaap::plan::{Pipeline, Plan, Training, check};
use autohaap::report;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::args::{Cli, EstimateArgs};
use crate::{ExitStatus, Failure, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &EstimateArgs) -> Result<ExitStatus, Failure> {
    if args.lines {
        return lines(&args.plan);
    }
    let mut plan = input::plan(&args.plan)?;
    if cli.anonymize {
        plan.cluster.cluster = plan.cluster.cluster.anonymized();
    }
    let violations = check(&plan);
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let (prediction, _) = price(&setting, &plan.pipelines, &mut Cache::default())?;
    if cli.json() {
        let mut answer = serde_json::to_value(&prediction).unwrap_or_default();
        if let Some(map) = answer.as_object_mut() {
            map.insert("schema".into(), "autohaap/estimate@1".into());
            map.insert("violations".into(), serde_json::to_value(&violations).unwrap_or_default());
        }
        output::print_json(&answer)?;
    } else {
        output::print(&report::estimate_screen(&plan, &prediction, violations.len()))?;
    }
    Ok(ExitStatus::Answer)
}

/// The parts of a line that change from plan to plan; the rest is recognised by its text.
#[derive(Deserialize)]
struct Line<'l> {
    #[serde(default)]
    id: Option<serde_json::Value>,
    #[serde(borrow)]
    training: &'l RawValue,
    #[serde(borrow)]
    model: &'l RawValue,
    #[serde(borrow)]
    cluster: &'l RawValue,
    pipelines: Vec<Pipeline>,
}

/// Model, cluster and training of the last lines, kept while their text stays the same.
struct Base {
    texts: [String; 3],
    model: Arc<Model>,
    cluster: Arc<Cluster>,
    training: Training,
    cache: Cache,
}

fn lines(name: &str) -> Result<ExitStatus, Failure> {
    let source: Box<dyn BufRead> = if name == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::io::Cursor::new(input::read(name)?))
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut base: Option<Base> = None;
    let mut status = ExitStatus::Answer;
    for (number, line) in source.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match one(&line, number + 1, &mut base) {
            Ok(answer) => answer,
            Err((id, problems)) => {
                status = ExitStatus::Negative;
                serde_json::json!({ "id": id, "errors": problems.0 })
            }
        };
        serde_json::to_writer(&mut out, &answer).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(status)
}

fn one(
    line: &str,
    number: usize,
    base: &mut Option<Base>,
) -> Result<serde_json::Value, (serde_json::Value, Problems)> {
    let by_number = serde_json::Value::from(number);
    let Ok(parsed) = serde_json::from_str::<Line<'_>>(line) else {
        // The full reader says what is wrong, with field and position.
        return match Plan::from_json(line, &format!("line {number}")) {
            Err(problems) => Err((by_number, problems)),
            Ok(plan) => answer(plan.id.clone().into(), &plan, &mut Cache::default()),
        };
    };
    let id = parsed.id.unwrap_or(by_number);
    let texts = [parsed.training.get(), parsed.model.get(), parsed.cluster.get()];
    if base.as_ref().is_none_or(|b| b.texts.iter().zip(texts).any(|(a, b)| a != b)) {
        let plan = Plan::from_json(line, &format!("line {number}")).map_err(|p| (id.clone(), p))?;
        *base = Some(Base {
            texts: texts.map(str::to_owned),
            model: Arc::new(plan.model.model.clone()),
            cluster: Arc::new(plan.cluster.cluster.clone()),
            training: plan.training.clone(),
            cache: Cache::default(),
        });
    }
    let Some(base) = base else { return Err((id, Problems::new())) };
    let setting = Setting::new(&base.model, &base.cluster, &base.training);
    base.plan.pipelines = parsed.pipelines;
    base.plan.idle = parsed.idle;
    let setting = Setting { model: &base.plan.model.model, parts: std::mem::take(&mut base.parts), cluster: &base.plan.cluster.cluster, training: &base.plan.training };
    match price_step(&setting, &parsed.pipelines, &mut base.cache) {
        Ok((step, fits)) => {
            let memory = device_memory(&setting, &parsed.pipelines, &mut base.cache).map_err(|p| (id.clone(), p))?;
            Ok(serde_json::json!({
                "id": id,
                "step_time_s": step,
                "fits": fits,
                "memory_bytes": memory.iter().map(|m| m.1.total.0).collect::<Vec<_>>(),
                "violations": violations,
            }))
        }
        Err(problems) => Err((id, problems)),
    }
}

fn answer(
    id: serde_json::Value,
    plan: &Plan,
    cache: &mut Cache,
) -> Result<serde_json::Value, (serde_json::Value, Problems)> {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let (step, fits) = price_step(&setting, &plan.pipelines, cache).map_err(|p| (id.clone(), p))?;
    let memory = device_memory(&setting, &plan.pipelines, cache).map_err(|p| (id.clone(), p))?;
    let violations: Vec<_> =
        check(plan).iter().map(|v| serde_json::json!({ "code": v.code.id, "message": v.message })).collect();
    Ok(serde_json::json!({
        "id": id,
        "step_time_s": step,
        "fits": fits,
        "memory_bytes": memory.iter().map(|m| m.1.total.0).collect::<Vec<_>>(),
        "violations": violations,
    }))
}
