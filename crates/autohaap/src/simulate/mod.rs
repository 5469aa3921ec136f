//! WHEN: every action of every rank of a plan, over links and network cards that others use too.
//!
//! A schedule is data ([`action::Order`]): the list of forwards, backwards and weight gradients of each rank, from a
//! generator of [`schedule`] or a file of torch's format. [`simulate()`] takes the times, bytes and devices of a plan from
//! `cost`, executes the orders on the event [`engine`] and gives a [`Timeline`], from which [`critical_path`],
//! [`trace`](trace::chrome) and the pictures of the report are made.
//!
//! | question | answer |
//! |---|---|
//! | step time of a finalist of the search | [`step`]; [`record`] writes it into a plan |
//! | everything about one step | [`simulate()`] |
//! | an order of any kind, without a plan | [`engine::execute`] on a [`program::Program`] |
//!
//! Devices of a stage move in lockstep at the pace of the slowest; collectives inside a stage are part of its times.

pub mod action;
mod build;
pub mod conservation;
pub mod critical_path;
mod deadlock;
pub mod engine;
mod options;
pub mod program;
pub mod schedule;
mod timeline;
pub mod trace;
mod view;
pub mod what_if;

use crate::cluster::Cluster;
use crate::cost::atom::Setting;
use crate::cost::price::{Cache, Detail, detail};
use crate::error::{Problem, Problems, simulate as codes};
use crate::model::Model;
use crate::plan::{Pipeline, Plan, Training};
use crate::units::Seconds;

pub use build::expanded;
pub use options::{Choice, Name, Options, SlowLink};
pub use timeline::{Device, Lane, Link, PoolUse, Span, SpanKind, Timeline, WEIGHT_GRAD_KEEPS};

/// A simulated step with what it was made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// What happened when.
    pub timeline: Timeline,
    /// The orders, times and pools that were executed.
    pub program: program::Program,
    /// Raw times, aligned with the program.
    pub execution: engine::Execution,
    /// Times, bytes and devices from the cost model.
    pub detail: Detail,
}

/// Simulates one step of a plan.
///
/// # Errors
/// Plans that cannot be priced, schedules that do not fit or deadlock, what-ifs that name nothing of the plan.
pub fn simulate(plan: &Plan, options: &Options) -> Result<Simulation, Problems> {
    simulate_parts(
        &plan.model.model,
        &plan.cluster.cluster,
        &plan.training,
        &plan.pipelines,
        options,
    )
}

/// [`simulate()`] of a plan in parts.
///
/// # Errors
/// As [`simulate()`].
pub fn simulate_parts(
    model: &Model,
    cluster: &Cluster,
    training: &Training,
    pipelines: &[Pipeline],
    options: &Options,
) -> Result<Simulation, Problems> {
    let slowed = slowed(cluster, pipelines, options)?;
    let cluster = slowed.as_ref().unwrap_or(cluster);
    let setting = Setting::new(model, cluster, training);
    let pipelines = build::expanded(pipelines);
    let detail = detail(&setting, &pipelines, &mut Cache::default())?;
    let program = build::program(&setting, &pipelines, &detail, options)?;
    let execution = engine::execute(&program, true)?;
    let timeline = view::timeline(&pipelines, &detail, &program, &execution);
    Ok(Simulation {
        timeline,
        program,
        execution,
        detail,
    })
}

/// Step time of placed pipelines with contention, without a timeline: what the search asks of its finalists.
///
/// # Errors
/// As [`simulate()`].
pub fn step(setting: &Setting<'_>, pipelines: &[Pipeline], cache: &mut Cache) -> Result<Seconds, Problems> {
    let pipelines = build::expanded(pipelines);
    let detail = detail(setting, &pipelines, cache)?;
    let program = build::program(setting, &pipelines, &detail, &Options::default())?;
    Ok(Seconds(engine::execute(&program, false)?.step))
}

/// Simulates a plan as it stands and records the step time beside the estimate of its prediction, if it has one.
///
/// # Errors
/// As [`simulate()`].
pub fn record(plan: &mut Plan) -> Result<Seconds, Problems> {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let seconds = step(&setting, &plan.pipelines, &mut Cache::default())?;
    if let Some(prediction) = &mut plan.prediction {
        prediction.step_time_simulated_s = Some(seconds);
    }
    Ok(seconds)
}

/// The cluster with the what-ifs applied; None: as it is.
fn slowed(cluster: &Cluster, pipelines: &[Pipeline], options: &Options) -> Result<Option<Cluster>, Problems> {
    let mut problems = Problems::new();
    let mut changed = None;
    let nearest = || {
        let names: Vec<&str> = cluster.nodes.iter().take(8).map(|n| n.name.as_str()).collect();
        format!("the nodes are {}", names.join(", "))
    };
    let unknown = |name: &str| {
        Problem::new(
            &codes::BAD_WHAT_IF,
            "--slow",
            format!("the cluster has no node `{name}`"),
        )
        .hint(nearest())
    };
    for (name, factor) in &options.slow_nodes {
        match cluster.nodes.iter().position(|n| n.name == *name) {
            Some(at) => {
                let cluster: &mut Cluster = changed.get_or_insert_with(|| cluster.clone());
                cluster.nodes[at].speed_factor.value /= factor;
            }
            None => problems.push(unknown(name)),
        }
    }
    for (link, factor) in &options.slow_links {
        match link {
            SlowLink::Node(name) => match cluster.nodes.iter().position(|n| n.name == *name) {
                Some(at) => {
                    let cluster: &mut Cluster = changed.get_or_insert_with(|| cluster.clone());
                    let nic = &mut cluster.nodes[at].nic;
                    nic.bandwidth.value.0 /= factor;
                    nic.pair_bandwidth.value.0 /= factor;
                    for point in &mut nic.table {
                        point.time_s.0 *= factor;
                    }
                }
                None => problems.push(unknown(name)),
            },
            SlowLink::Boundary(p, s) => {
                let stages = pipelines.get(*p).map_or(0, |pipeline| pipeline.stages.len());
                if s + 1 >= stages {
                    problems.push(
                        Problem::new(
                            &codes::BAD_WHAT_IF,
                            "--slow-link",
                            format!("pipeline {p} has no boundary after stage {s}"),
                        )
                        .hint(format!(
                            "write pipeline and stage, for example `0.0=4x`; there are {} pipelines",
                            pipelines.len()
                        )),
                    );
                }
            }
        }
    }
    problems.or(changed)
}
