//! `autohaap estimate`: time and memory of a plan, or of a stream of plans.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price, price_lines};
use autohaap::error::Problems;
use autohaap::model::Parts;
use autohaap::plan::{Idle, Pipeline, Plan, check, check_layout};
use autohaap::profile::folder::Folder;
use autohaap::report;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::args::{Cli, EstimateArgs};
use crate::{ExitStatus, Failure, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &EstimateArgs) -> Result<ExitStatus, Failure> {
    if args.lines {
        return lines(cli, args);
    }
    let mut plan = input::plan(&args.plan)?;
    adjust(&mut plan, args);
    if cli.anonymize {
        plan = plan.anonymized();
    }
    let violations = check(&plan);
    let profile = profile(args)?;
    attach(&mut plan, profile.as_ref())?;
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let (prediction, _) = price(&setting, &plan.pipelines, &mut Cache::default())?;
    if cli.json() {
        let mut answer = serde_json::to_value(&prediction).unwrap_or_default();
        if let Some(map) = answer.as_object_mut() {
            map.insert("schema".into(), "autohaap/estimate@1".into());
            map.insert(
                "violations".into(),
                serde_json::to_value(&violations).unwrap_or_default(),
            );
        }
        output::print_json(&answer)?;
    } else {
        output::print(&report::estimate_screen(&plan, &prediction, violations.len()))?;
    }
    Ok(ExitStatus::Answer)
}

/// A profile with its name.
type Named = (Folder, String);

fn profile(args: &EstimateArgs) -> Result<Option<Named>, Failure> {
    args.profile
        .as_deref()
        .map(|path| Ok((input::profile(path)?, path.display().to_string())))
        .transpose()
}

/// The profile in place of the plan's own measurements.
fn attach(plan: &mut Plan, profile: Option<&Named>) -> Result<(), Problems> {
    let Some((folder, name)) = profile else {
        return Ok(());
    };
    autohaap::profile::attach(
        &mut plan.cluster.cluster,
        folder,
        &plan.model.model,
        plan.training.precision,
        name,
    )
}

/// The training settings that flags replace.
fn adjust(plan: &mut Plan, args: &EstimateArgs) {
    if let Some(optimizer) = args.optimizer {
        plan.training.optimizer = input::optimizer(optimizer);
    }
    if let Some(p2p) = args.p2p {
        plan.training.engine_semantics.p2p = input::p2p(p2p);
    }
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
    #[serde(default)]
    idle: Vec<Idle>,
}

/// Model, cluster and training of the last line, kept while their text stays the same.
struct Base {
    texts: [String; 3],
    plan: Plan,
    parts: Vec<Parts>,
    cache: Cache,
    /// Neutral name of each node, if host names are hidden.
    names: Option<BTreeMap<String, String>>,
}

impl Base {
    /// Replaces the host names in the addresses of the current line.
    fn hide(&mut self) {
        let Some(names) = &self.names else { return };
        let rename = |address: &mut String| {
            let (node, index) = address.rsplit_once(':').unwrap_or((address, "0"));
            let node = names.get(node).map_or("unknown", String::as_str);
            *address = format!("{node}:{index}");
        };
        let stages = self.plan.pipelines.iter_mut().flat_map(|p| &mut p.stages);
        for replica in stages.flat_map(|s| &mut s.replicas) {
            replica.devices.iter_mut().for_each(rename);
        }
        for idle in &mut self.plan.idle {
            idle.devices.iter_mut().for_each(rename);
        }
    }
}

/// Takes the host names of a line that could not be read out of its problems: the names that the line's cluster gives,
/// as far as it is JSON at all, and any quoted source.
fn redact(problems: &mut Problems, line: &str) {
    let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let named = |list: &str| {
        value["cluster"][list]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["name"].as_str())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut names = [named("nodes"), named("tiers")].concat();
    // The longest first: one name may be part of another.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for problem in &mut problems.0 {
        problem.source_line = None;
        for name in &names {
            for text in [&mut problem.message, &mut problem.hint, &mut problem.path] {
                *text = text.replace(name.as_str(), "node");
            }
        }
    }
}

fn lines(cli: &Cli, args: &EstimateArgs) -> Result<ExitStatus, Failure> {
    let name = args.plan.as_str();
    let profile = profile(args)?;
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
        let answer = match one(
            &line,
            number + 1,
            &mut base,
            cli.anonymize,
            (args, profile.as_ref()),
        ) {
            Ok(answer) => answer,
            Err((id, mut problems)) => {
                status = ExitStatus::Negative;
                if cli.anonymize {
                    redact(&mut problems, &line);
                }
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
    anonymize: bool,
    (args, profile): (&EstimateArgs, Option<&Named>),
) -> Result<serde_json::Value, (serde_json::Value, Problems)> {
    let by_number = serde_json::Value::from(number);
    let Ok(parsed) = serde_json::from_str::<Line<'_>>(line) else {
        // The full reader says what is wrong, with field and position.
        return match Plan::from_json(line, &format!("line {number}")) {
            Err(problems) => Err((by_number, problems)),
            Ok(_) => Err((by_number, Problems::new())),
        };
    };
    let id = parsed.id.unwrap_or(by_number);
    let texts = [parsed.training.get(), parsed.model.get(), parsed.cluster.get()];
    if base
        .as_ref()
        .is_none_or(|b| b.texts.iter().zip(texts).any(|(a, b)| a != b))
    {
        let mut plan = Plan::from_json(line, &format!("line {number}")).map_err(|p| (id.clone(), p))?;
        plan.prediction = None;
        adjust(&mut plan, args);
        let names = anonymize.then(|| {
            let cluster = &plan.cluster.cluster;
            let old = cluster.nodes.iter().map(|n| n.name.clone());
            let new = cluster.anonymized().nodes.into_iter().map(|n| n.name);
            old.zip(new).collect()
        });
        if anonymize {
            plan = plan.anonymized();
        }
        attach(&mut plan, profile).map_err(|p| (id.clone(), p))?;
        let parts = plan
            .model
            .model
            .atoms
            .iter()
            .map(autohaap::model::Atom::parts)
            .collect();
        *base = Some(Base {
            texts: texts.map(str::to_owned),
            plan,
            parts,
            cache: Cache::default(),
            names,
        });
    }
    let Some(base) = base else {
        return Err((id, Problems::new()));
    };
    base.plan.pipelines = parsed.pipelines;
    base.plan.idle = parsed.idle;
    base.hide();
    let setting = Setting {
        model: &base.plan.model.model,
        parts: std::mem::take(&mut base.parts),
        cluster: &base.plan.cluster.cluster,
        training: &base.plan.training,
    };
    let answer = priced(&id, &setting, &base.plan, &mut base.cache);
    base.parts = setting.parts;
    answer
}

/// The answer of one line; a plan that breaks a rule is answered with its violations and, where possible, its price.
fn priced(
    id: &serde_json::Value,
    setting: &Setting<'_>,
    plan: &Plan,
    cache: &mut Cache,
) -> Result<serde_json::Value, (serde_json::Value, Problems)> {
    let violations: Vec<_> = check_layout(plan)
        .iter()
        .map(|v| serde_json::json!({ "code": v.code.id, "message": v.message }))
        .collect();
    match price_lines(setting, &plan.pipelines, cache) {
        Ok((step, fits, memory)) => Ok(serde_json::json!({
            "id": id,
            "step_time_s": step,
            "fits": fits,
            "memory_bytes": memory,
            "violations": violations,
        })),
        Err(problems) if violations.is_empty() => Err((id.clone(), problems)),
        Err(_) => Ok(serde_json::json!({
            "id": id,
            "step_time_s": null,
            "fits": false,
            "memory_bytes": [],
            "violations": violations,
        })),
    }
}
