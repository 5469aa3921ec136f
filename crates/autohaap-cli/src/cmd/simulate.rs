//! `autohaap simulate`: one step of a plan, event by event.

use std::path::Path;

use autohaap::plan::{Plan, ScheduleKind};
use autohaap::report;
use autohaap::simulate::critical_path::{Segment, critical_path};
use autohaap::simulate::schedule::csv;
use autohaap::simulate::what_if::{self, Spread};
use autohaap::simulate::{Options, Simulation, simulate, trace};
use serde_json::{Value, json};

use crate::args::{Cli, SimulateArgs};
use crate::{ExitStatus, Failure, input, output};

/// Draws of the jitter.
const DRAWS: usize = 64;
/// Actions up to which the jitter is drawn that often; larger steps draw it less often.
const DRAWN_ACTIONS: usize = 200_000;

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &SimulateArgs) -> Result<ExitStatus, Failure> {
    let mut plan = input::plan(&args.plan)?;
    let mut args = args.clone();
    if cli.anonymize {
        let named = node_names(&plan);
        plan = plan.anonymized();
        let names: Vec<(String, String)> = named.into_iter().zip(node_names(&plan)).collect();
        for text in args.slow.iter_mut().chain(&mut args.slow_link) {
            *text = renamed(text, &names);
        }
    }
    let args = &args;
    let (base, options) = options(args, &plan)?;
    let simulation = simulate(&plan, &options)?;
    let mut notes = Vec::new();
    let mut changed = None;
    if options != base {
        let before = simulate(&plan, &base)?.timeline.step_time;
        let after = simulation.timeline.step_time;
        notes.push(format!(
            "what if ({}): {before} -> {after}, {:+.1} %",
            asked(args),
            100.0 * (after.0 / before.0 - 1.0)
        ));
        changed = Some(before);
    }
    let actions: usize = simulation
        .program
        .chains
        .iter()
        .map(|c| c.order.num_actions())
        .sum();
    let draws = (DRAWS * DRAWN_ACTIONS / actions.max(DRAWN_ACTIONS)).max(4);
    let spread = what_if::spread(&simulation.program, draws)?;
    if let Some(spread) = &spread {
        notes.push(format!(
            "{} draws of the jitter: mean {}, 95 % below {}, most {}",
            spread.draws, spread.mean, spread.p95, spread.most
        ));
    }
    let lanes = simulation.timeline.lanes.iter();
    let over = lanes
        .flat_map(|l| &l.devices)
        .filter(|d| d.peak > d.limit)
        .count();
    if over > 0 {
        notes.push(format!("DOES NOT FIT: {over} devices exceed their memory limit"));
    }
    let path = critical_path(&simulation);
    if let Some(file) = &args.trace {
        output::write_file(file, &trace::chrome(&simulation, &plan.cluster.cluster))?;
        notes.push(format!(
            "wrote {}: open it in ui.perfetto.dev or chrome://tracing",
            file.display()
        ));
    }
    if let Some(folder) = &args.write_schedule {
        for (p, chain) in simulation.program.chains.iter().enumerate() {
            output::write_file(
                &folder.join(format!("schedule-{p}.csv")),
                &csv::write(&chain.order),
            )?;
        }
        notes.push(format!("wrote {}/schedule-<pipeline>.csv", folder.display()));
    }
    if cli.json() {
        output::print_json(&answer(&plan, &simulation, &path, changed, spread))?;
    } else {
        output::print(&report::simulate_screen(&plan, &simulation, &path, &notes))?;
    }
    Ok(ExitStatus::Answer)
}

fn node_names(plan: &Plan) -> Vec<String> {
    plan.cluster
        .cluster
        .nodes
        .iter()
        .map(|n| n.name.clone())
        .collect()
}

/// `NAME=FACTOR` with the anonymous name.
fn renamed(text: &str, names: &[(String, String)]) -> String {
    let Some((name, factor)) = text.rsplit_once('=') else {
        return text.to_owned();
    };
    let new = names
        .iter()
        .find(|(old, _)| old == name.trim())
        .map_or(name, |(_, new)| new);
    format!("{new}={factor}")
}

/// The schedule alone, and with the what-ifs.
fn options(args: &SimulateArgs, plan: &Plan) -> Result<(Options, Options), Failure> {
    let mut base = Options {
        contention: !args.no_contention,
        ..Options::default()
    };
    let is_file = |name: &String| {
        Path::new(name)
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("csv"))
    };
    let mut files: Vec<String> = args.schedule.clone();
    if files.is_empty() {
        files = beside(&args.plan, plan);
    }
    if !files.is_empty() && files.iter().all(is_file) {
        let mut texts = Vec::with_capacity(files.len());
        for file in files {
            let text = input::read(&file)?;
            texts.push((file, text));
        }
        what_if::schedule_text(&mut base, &texts)?;
    } else if let Some(name) = files.iter().find(|name| !is_file(name)) {
        what_if::schedule_name(&mut base, name)?;
    }
    let mut options = base.clone();
    for text in &args.slow {
        what_if::slow_node(&mut options, text)?;
    }
    for text in &args.slow_link {
        what_if::slow_link(&mut options, text)?;
    }
    if let Some(text) = &args.jitter {
        what_if::jitter(&mut options, text, args.seed)?;
    }
    if let Some(text) = &args.depth {
        what_if::depth(&mut options, text)?;
    }
    Ok((base, options))
}

/// The schedule files that a plan names, in the folder of the plan; empty unless every pipeline names one.
fn beside(path: &str, plan: &Plan) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let file = |p: &autohaap::plan::Pipeline| match (&p.schedule.kind, &p.schedule.file) {
        // A plain name: nothing outside the folder is read.
        (ScheduleKind::Csv, Some(file))
            if Path::new(file).file_name().is_some_and(|n| n == file.as_str()) =>
        {
            Some(folder.join(file).display().to_string())
        }
        _ => None,
    };
    plan.pipelines
        .iter()
        .map(file)
        .collect::<Option<Vec<_>>>()
        .unwrap_or_default()
}

/// The what-ifs as they were typed.
fn asked(args: &SimulateArgs) -> String {
    let mut words: Vec<String> = args.slow.clone();
    words.extend(args.slow_link.iter().map(|l| format!("link {l}")));
    words.extend(args.jitter.iter().map(|j| format!("jitter {j}")));
    words.extend(args.depth.iter().map(|d| format!("depth {d}")));
    words.join(", ")
}

fn answer(
    plan: &Plan,
    simulation: &Simulation,
    path: &[Segment],
    without: Option<autohaap::units::Seconds>,
    spread: Option<Spread>,
) -> Value {
    let t = &simulation.timeline;
    let step = t.step_time.0.max(f64::MIN_POSITIVE);
    let lanes: Vec<Value> =
        t.lanes
            .iter()
            .map(|lane| {
                let stages: Vec<usize> = lane.stages.iter().map(|s| s.0).collect();
                let fullest = lane.devices.iter().max_by(|a, b| {
                    (a.peak.0 / a.limit.0.max(1.0)).total_cmp(&(b.peak.0 / b.limit.0.max(1.0)))
                });
                let memory: Vec<(f64, f64)> = fullest
                    .map(|d| {
                        lane.memory(d)
                            .into_iter()
                            .map(|(time, bytes)| (time.0, bytes.0))
                            .collect()
                    })
                    .unwrap_or_default();
                let devices: Vec<Value> = lane
                    .devices
                    .iter()
                    .map(|d| {
                        json!({"device": d.name, "type": d.device_type, "peak_memory_bytes": d.peak,
                    "limit_bytes": d.limit})
                    })
                    .collect();
                json!({
                    "pipeline": lane.pipeline,
                    "stages": stages,
                    "busy_fraction": lane.busy.0 / step,
                    "communication_s": lane.communication,
                    "reduction_s": lane.reductions.iter().map(|s| s.seconds().0).fold(0.0, |a, b| a + b),
                    "optimizer_s": lane.optimizer.seconds(),
                    "end_s": lane.optimizer.end,
                    "devices": devices,
                    "memory_of": fullest.map(|d| d.name.clone()),
                    "memory_timeline": memory,
                })
            })
            .collect();
    let links: Vec<Value> = t
        .links
        .iter()
        .map(|l| {
            json!({"pipeline": l.pipeline, "from_stage": l.from, "to_stage": l.to, "transfer_s": l.alone,
            "busy_fraction": l.busy.0 / step})
        })
        .collect();
    let pools: Vec<Value> = t
        .pools
        .iter()
        .map(|p| {
            json!({"name": p.name, "bytes": p.bytes, "utilisation": p.utilisation, "peak_demand": p.peak_demand})
        })
        .collect();
    let segments: Vec<Value> = path
        .iter()
        .map(|s| {
            json!({"cause": s.cause.text(), "pipeline": s.pipeline, "stage": s.stage,
            "micro_batches": [s.micro_batches.0, s.micro_batches.1], "count": s.count,
            "start_s": s.start, "end_s": s.end})
        })
        .collect();
    json!({
        "schema": "autohaap/simulate@1",
        "step_time_s": t.step_time,
        "compute_end_s": t.compute_end,
        "bubble": t.bubble(),
        "estimated_step_time_s": plan.prediction.as_ref().map(|p| p.step_time_s),
        "without_what_if_step_time_s": without,
        "jitter": spread.map(|s| json!({"draws": s.draws, "mean_s": s.mean, "least_s": s.least, "p95_s": s.p95,
            "most_s": s.most})),
        "actions": simulation.program.chains.iter().map(|c| c.order.num_actions()).sum::<usize>(),
        "lanes": lanes,
        "links": links,
        "shared_links": pools,
        "critical_path": segments,
    })
}
