//! `autohaap compare`: plans, restricted spaces, or a run and its prediction, side by side.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::error::{Problem, Problems, nearest, usage as codes};
use autohaap::launch::Measured;
use autohaap::plan::{Plan, check};
use autohaap::report::{self, Compared, Figures};
use autohaap::search::{NamedSpace, Outcome, SPACES, StopReason, search};
use autohaap::simulate::{Options, simulate};

use super::plan;
use crate::args::{Cli, CompareArgs, MethodArg, PlanArgs};
use crate::budget::Watch;
use crate::{ExitStatus, Failure, gather, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &CompareArgs) -> Result<ExitStatus, Failure> {
    match &args.measured {
        Some(file) => measured(cli, args, file),
        None if args.spaces.is_empty() => plans(cli, args),
        None => spaces(cli, args),
    }
}

/// A run beside the prediction of its plan.
fn measured(cli: &Cli, args: &CompareArgs, file: &str) -> Result<ExitStatus, Failure> {
    let [plan] = &args.plans[..] else {
        return Err(Problem::new(
            &codes::BAD_USAGE,
            "PLAN",
            format!("`--measured` with {} plans", args.plans.len()),
        )
        .hint("give the one plan that was run")
        .into());
    };
    let mut problems = Problems::new();
    let plan = gather(&mut problems, input::plan(plan))?;
    let text = gather(&mut problems, input::read(file))?;
    let (Some(plan), Some(text)) = (plan, text) else {
        return Err(problems.into());
    };
    let measured = Measured::read(&text, file, &plan)?;
    if cli.json() {
        let mut answer = serde_json::to_value(&measured).unwrap_or_default();
        answer["schema"] = "autohaap/compare-measured@1".into();
        output::print_json(&answer)?;
    } else {
        output::print(&report::measured_screen(&measured))?;
    }
    Ok(ExitStatus::Answer)
}

/// Plan files by their figures; a plan that breaks rules is shown with their number.
fn plans(cli: &Cli, args: &CompareArgs) -> Result<ExitStatus, Failure> {
    let mut problems = Problems::new();
    let mut read = Vec::new();
    for file in &args.plans {
        read.extend(gather(&mut problems, input::plan(file))?);
    }
    problems.or(())?;
    let mut notes = differences(&args.plans, &read);
    let rows: Vec<Compared> = args
        .plans
        .iter()
        .zip(&read)
        .map(|(name, plan)| compared(name, plan))
        .collect();
    if rows
        .iter()
        .any(|r| r.figures.as_ref().is_some_and(|f| f.violations > 0))
    {
        notes.push("`autohaap check PLAN` lists the violations".into());
    }
    answer(cli, &rows, 0, &notes)
}

/// What makes the figures of two plans answers to different questions.
fn differences(names: &[String], plans: &[Plan]) -> Vec<String> {
    let Some((first, rest)) = plans.split_first() else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    for (plan, name) in rest.iter().zip(&names[1..]) {
        let tokens = |p: &Plan| p.training.seq_len * p.training.global_batch;
        let found = [
            (plan.model.model != first.model.model, "model"),
            (plan.cluster.cluster != first.cluster.cluster, "cluster"),
            (tokens(plan) != tokens(first), "batch"),
            (plan.training.precision != first.training.precision, "precision"),
        ];
        let words: Vec<&str> = found.iter().filter(|f| f.0).map(|f| f.1).collect();
        if !words.is_empty() {
            notes.push(format!("{name}: another {} than {}", words.join(", "), names[0]));
        }
    }
    notes
}

/// A plan priced and simulated as it stands.
fn compared(name: &str, plan: &Plan) -> Compared {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    match price(&setting, &plan.pipelines, &mut Cache::default()) {
        Ok((mut prediction, _)) => {
            prediction.step_time_simulated_s = simulate(plan, &Options::default())
                .ok()
                .map(|s| s.timeline.step_time);
            let violations = check(plan)
                .iter()
                .filter(|p| !p.path.starts_with("prediction"))
                .count();
            Compared {
                name: name.to_owned(),
                figures: Some(Figures::new(plan, &prediction, violations)),
                reason: String::new(),
            }
        }
        Err(problems) => Compared {
            name: name.to_owned(),
            figures: None,
            reason: problems.0.first().map_or_else(String::new, |p| p.message.clone()),
        },
    }
}

/// The spaces asked for, each once; `full` always comes first.
fn named(args: &CompareArgs) -> Result<Vec<&'static NamedSpace>, Problems> {
    let mut problems = Problems::new();
    let mut wanted: Vec<&'static NamedSpace> = Vec::new();
    for name in &args.spaces {
        let name = name.trim();
        let found: Vec<&'static NamedSpace> = match name {
            "full" => Vec::new(),
            "all" => SPACES.iter().collect(),
            _ => match NamedSpace::by_name(name) {
                Some(space) => vec![space],
                None => {
                    let names = || ["full", "all"].into_iter().chain(SPACES.iter().map(|s| s.name));
                    let close = nearest(name, names());
                    let all: Vec<&str> = names().collect();
                    problems.push(
                        Problem::new(&codes::NOT_AVAILABLE, "--spaces", format!("`{name}` is no space"))
                            .hint(match close {
                                Some(close) => format!("did you mean {close}? legal: {}", all.join(", ")),
                                None => format!("legal: {}", all.join(", ")),
                            }),
                    );
                    Vec::new()
                }
            },
        };
        for space in found {
            if !wanted.iter().any(|w| w.name == space.name) {
                wanted.push(space);
            }
        }
    }
    problems.or(wanted)
}

/// The question of `plan` for one space.
fn question(args: &CompareArgs, space: &str) -> PlanArgs {
    PlanArgs {
        model: args.model.clone().unwrap_or_default(),
        cluster: args.cluster.clone().unwrap_or_default(),
        seq: args.seq,
        global_batch: args.global_batch,
        precision: args.precision,
        zero: args.zero,
        optimizer: None,
        p2p: None,
        engine: None,
        space: space.to_owned(),
        profile: None,
        cost_model: "autohaap".into(),
        method: MethodArg::Auto,
        gap: None,
        time_limit: args.time_limit.clone(),
        top: 0,
        jobs: args.jobs,
        seed: 0,
        max_micro_batch: None,
        exclude: Vec::new(),
        explain: false,
        report: None,
        output: None,
    }
}

/// The best plan of each space for one problem, and what the restriction costs.
fn spaces(cli: &Cli, args: &CompareArgs) -> Result<ExitStatus, Failure> {
    let mut problems = Problems::new();
    let wanted = gather(&mut problems, named(args))?;
    let mut assumed = Vec::new();
    let asked = gather(
        &mut problems,
        plan::question(cli, &question(args, "full"), &mut assumed),
    )?;
    let (Some(wanted), Some(asked)) = (wanted, asked) else {
        return Err(problems.into());
    };
    plan::threads(args.jobs.or(asked.settings.jobs));
    let watch = Watch::start(asked.limit, !cli.no_progress && !cli.quiet);
    let names: Vec<&str> = ["full"]
        .into_iter()
        .chain(wanted.iter().map(|s| s.name))
        .collect();
    let mut found: Vec<Result<Box<Plan>, String>> = Vec::new();
    for name in &names {
        let options = plan::options(&question(args, name), &asked);
        let outcome = search(
            &asked.read.model,
            &asked.cluster,
            &asked.training,
            &options,
            &watch,
        )?;
        found.push(match outcome {
            Outcome::Found(plan) => Ok(plan),
            Outcome::Infeasible(none) => match none.stop {
                Some(StopReason::Interrupted) if found.is_empty() => return Err(Failure::Interrupted),
                Some(_) => Err("not worked out within the time".into()),
                None if none.proven => Err(none.reasons.join("; ")),
                None => Err("no plan found (not a proof)".into()),
            },
        });
    }
    watch.finish();
    let rows: Vec<Compared> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            // A plan found in one space may lie in another as well.
            let members = found
                .iter()
                .flatten()
                .filter(|plan| match wanted.get(i.wrapping_sub(1)) {
                    None => true,
                    Some(space) => space
                        .violations(
                            &plan.model.model,
                            &plan.cluster.cluster,
                            plan.training.zero,
                            &plan.pipelines,
                        )
                        .is_empty(),
                });
            let step = |plan: &Plan| {
                plan.prediction
                    .as_ref()
                    .map_or(f64::INFINITY, |p| p.step_time_s.0)
            };
            let best = members.min_by(|a, b| step(a).total_cmp(&step(b)));
            let own = found[i].as_ref().ok().and_then(|p| p.prediction.as_ref());
            let figures = best.and_then(|plan| {
                let prediction = plan.prediction.as_ref()?;
                let mut figures = Figures::new(plan, prediction, 0);
                // The bound is that of this space's own search.
                figures.bound_s = own.and_then(|p| p.bound_s);
                figures.gap = figures.bound_s.map(|b| 1.0 - b.0 / figures.step_time_s.0);
                Some(figures)
            });
            Compared {
                name: (*name).to_owned(),
                reason: match (&figures, &found[i]) {
                    (None, Err(reason)) => reason.clone(),
                    _ => String::new(),
                },
                figures,
            }
        })
        .collect();
    let mut notes: Vec<String> = wanted
        .iter()
        .map(|s| format!("{}: {}", s.name, s.summary))
        .collect();
    notes.push(
        "All are priced by this program's cost model; `slower` is the price of the restriction.".into(),
    );
    if !assumed.is_empty() {
        notes.push(format!("by default: {}", assumed.join(", ")));
    }
    answer(cli, &rows, 0, &notes)
}

fn answer(cli: &Cli, rows: &[Compared], base: usize, notes: &[String]) -> Result<ExitStatus, Failure> {
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/compare@1",
            "rows": rows,
            "notes": notes,
        }))?;
    } else {
        output::print(&report::compare_screen(rows, base, notes))?;
    }
    let usable = rows
        .iter()
        .any(|r| r.figures.as_ref().is_some_and(Figures::usable));
    Ok(if usable {
        ExitStatus::Answer
    } else {
        ExitStatus::Negative
    })
}
