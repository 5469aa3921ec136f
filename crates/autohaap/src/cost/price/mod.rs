//! A placed plan to its prediction: stage times from the slowest member, boundary transfers between real devices, exact
//! event order, gradient reduction per atom segment over all holders, optimizer, memory per device.

mod boundary;
mod detail;
mod place;
mod predict;
mod sync;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cost::atom::{AtomCost, ReplicaShape, Setting, atom_cost};
use crate::cost::memory::{self, Boundary, Copies};
use crate::cost::pipeline::{self, Run, Scratch, StageTime};
use crate::error::{Problem, Problems, cost as codes};
use crate::plan::{MemoryItems, Pipeline, PointToPointMode, Recompute, ScheduleKind, Stage};
use crate::units::Seconds;

pub use detail::{
    BoundaryDetail, Communication, Detail, DeviceDetail, MemberDetail, PipelineDetail, SegmentDetail,
    StageDetail, detail,
};
pub use place::Place;
pub use predict::price;

/// Costs memoised over the plans of one setting. A cache must not be carried to another setting.
#[derive(Default)]
pub struct Cache {
    rows: FxHashMap<String, Arc<Vec<AtomCost>>>,
    nodes: place::Nodes,
    scratch: Scratch,
}

/// One stage of a plan with its times and memory.
struct PricedStage<'c> {
    forward: f64,
    backward: f64,
    recompute: f64,
    communication: f64,
    link: f64,
    /// Per replica and distinct device type: places, costs of all atoms.
    members: Vec<Member>,
    /// Device places of each replica.
    places: Vec<Vec<Place<'c>>>,
    /// Data-parallel holders.
    copies: Copies,
    optimizer: f64,
    /// Backward seconds of each atom (slowest member).
    atom_backward: Vec<f64>,
}

/// Devices of one type in one replica.
struct Member {
    replica: usize,
    devices: Vec<usize>,
    shape: ReplicaShape,
    costs: Arc<Vec<AtomCost>>,
    /// False where an earlier member of the stage has the same costs and rows.
    distinct: bool,
}

/// A pipeline with its event-order run.
struct PricedPipeline<'c> {
    stages: Vec<PricedStage<'c>>,
    times: Vec<StageTime>,
    depths: Vec<u32>,
    run: Run,
}

/// Everything that a prediction is made of.
struct Priced<'c> {
    pipelines: Vec<PricedPipeline<'c>>,
    /// End of each stage's gradient reduction, exposed part, seconds.
    sync: Vec<Vec<(f64, f64)>>,
    step: f64,
}

/// Step time of placed pipelines and whether every device's memory fits: the fast path of searches and batch estimates.
///
/// # Errors
/// Unknown devices, schedules that have no evaluator yet, groups across domains, missing bridges.
pub fn price_step(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
) -> Result<(Seconds, bool), Problems> {
    let priced = whole(setting, pipelines, cache)?;
    let fits = priced.pipelines.iter().zip(pipelines).all(|(p, pipeline)| {
        p.stages
            .iter()
            .enumerate()
            .all(|(s, stage)| stage_fits(setting, pipeline, s, stage))
    });
    Ok((Seconds(priced.step), fits))
}

/// Outcome of a price that only matters below a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Below {
    /// The step time, below the limit.
    Step(Seconds),
    /// At or above the limit.
    Slow,
    /// Some device does not fit.
    Over,
}

/// Step time of placed pipelines if they fit and stay below `limit` seconds, else the reason as soon as it is known.
///
/// # Errors
/// As [`price_step`].
pub fn price_below(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
    limit: f64,
) -> Result<Below, Problems> {
    Ok(match evaluate(setting, pipelines, cache, Some(limit))? {
        Err(reason) => reason,
        Ok(priced) if priced.step < limit => Below::Step(Seconds(priced.step)),
        Ok(_) => Below::Slow,
    })
}

/// An evaluation without a limit, which always has a result.
fn whole<'s>(
    setting: &'s Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
) -> Result<Priced<'s>, Problems> {
    let priced = evaluate(setting, pipelines, cache, None)?.map_err(|_| Problems::new())?;
    if priced.step > 0.0 && priced.step.is_finite() {
        return Ok(priced);
    }
    Err(Problem::new(
        &codes::NOT_FINITE,
        "cluster",
        format!("the step time comes to `{}` s", priced.step),
    )
    .hint("`autohaap check PLAN` names the rate, latency or table entry that is out of range")
    .into())
}

fn stage_fits(setting: &Setting<'_>, pipeline: &Pipeline, s: usize, stage: &PricedStage<'_>) -> bool {
    stage.members.iter().filter(|m| m.distinct).all(|m| {
        let items = member_memory(setting, pipeline, s, stage, m);
        items.total <= items.limit
    })
}

/// Step time, whether every device fits, and the peak of every device in plan order (bytes): one line of a batch.
///
/// # Errors
/// As [`price_step`].
pub fn price_lines(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
) -> Result<(Seconds, bool, Vec<f64>), Problems> {
    let priced = whole(setting, pipelines, cache)?;
    let mut fits = true;
    let mut memory = Vec::new();
    for (p, pipeline) in priced.pipelines.iter().zip(pipelines) {
        for (s, stage) in p.stages.iter().enumerate() {
            for (r, replica) in pipeline.stages[s].replicas.iter().enumerate() {
                let at = memory.len();
                memory.resize(at + replica.devices.len(), 0.0);
                for member in stage.members.iter().filter(|m| m.replica == r) {
                    let items = member_memory(setting, pipeline, s, stage, member);
                    fits &= items.total <= items.limit;
                    for &d in &member.devices {
                        memory[at + d] = items.total.0;
                    }
                }
            }
        }
    }
    Ok((Seconds(priced.step), fits, memory))
}

fn member_memory(
    setting: &Setting<'_>,
    pipeline: &Pipeline,
    s: usize,
    priced: &PricedStage<'_>,
    member: &Member,
) -> MemoryItems {
    let stage = &pipeline.stages[s];
    let [a, b] = stage.atoms;
    let modes = modes(stage);
    let boundary = Boundary {
        first: a == 0,
        last: b == setting.model.atoms.len(),
        tp: member.shape.tp,
        cp: member.shape.cp,
        rows: member.shape.rows,
    };
    let limit = member
        .devices
        .iter()
        .map(|&d| {
            let place = &priced.places[member.replica][d];
            setting.cluster.memory_limit(place.node, place.device_type)
        })
        .reduce(crate::units::Bytes::min)
        .unwrap_or_default();
    let in_flight = if pipeline.schedule.kind == ScheduleKind::Gpipe {
        pipeline.micro_batches
    } else {
        stage.in_flight.min(pipeline.micro_batches)
    };
    memory::stage_memory(
        setting,
        &member.costs[a..b],
        &modes,
        in_flight,
        priced.copies,
        boundary,
        limit,
    )
}

/// Recompute mode of each atom of a stage.
fn modes(stage: &Stage) -> Vec<Recompute> {
    let [a, b] = stage.atoms;
    let mut modes = vec![Recompute::None; b.saturating_sub(a)];
    for range in &stage.recompute {
        for atom in range.atoms[0].max(a)..range.atoms[1].min(b) {
            modes[atom - a] = range.mode;
        }
    }
    modes
}

fn evaluate<'s>(
    setting: &'s Setting<'_>,
    pipelines: &[Pipeline],
    cache: &mut Cache,
    limit: Option<f64>,
) -> Result<Result<Priced<'s>, Below>, Problems> {
    structure(setting, pipelines)?;
    let holders = sync::holders(setting, pipelines);
    let mut priced = Vec::with_capacity(pipelines.len());
    for (p, pipeline) in pipelines.iter().enumerate() {
        match one_pipeline(setting, p, pipeline, &holders, cache, limit)? {
            Ok(one) => priced.push(one),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    let sync = sync::reduce(setting, pipelines, &priced)?;
    let step = priced
        .iter()
        .zip(&sync)
        .flat_map(|(p, ends)| p.stages.iter().zip(ends).map(|(s, (end, _))| end + s.optimizer))
        .fold(0.0, f64::max)
        + setting.training.engine_semantics.kernels.step_s.0;
    Ok(Ok(Priced {
        pipelines: priced,
        sync,
        step,
    }))
}

/// What every later index relies on; `check` reports these and all other rules in detail.
fn structure(setting: &Setting<'_>, pipelines: &[Pipeline]) -> Result<(), Problems> {
    let num_atoms = setting.model.atoms.len();
    let mut problems = Problems::new();
    for (p, pipeline) in pipelines.iter().enumerate() {
        let path = format!("pipelines[{p}]");
        if !matches!(pipeline.schedule.kind, ScheduleKind::OneF1b | ScheduleKind::Gpipe) {
            problems.push(
                Problem::new(
                    &codes::SCHEDULE_WITHOUT_EVALUATOR,
                    format!("{path}.schedule.kind"),
                    "this schedule has no exact evaluator yet",
                )
                .hint("use `1f1b` or `gpipe`, or run `autohaap simulate`"),
            );
        }
        let mut at = 0;
        let mut whole = !pipeline.stages.is_empty() && pipeline.micro_batches > 0;
        for stage in &pipeline.stages {
            let [a, b] = stage.atoms;
            whole &= a == at && b > a && b <= num_atoms && !stage.replicas.is_empty() && stage.in_flight > 0;
            whole &= stage.ep > 0 && stage.etp > 0;
            whole &= stage.replicas.iter().all(|r| {
                r.rows > 0
                    && r.tp > 0
                    && r.cp > 0
                    && u64::from(r.tp) * u64::from(r.cp) == r.devices.len() as u64
            });
            at = b;
        }
        if !whole || at != num_atoms {
            problems.push(
                Problem::new(
                    &codes::NOT_PRICEABLE,
                    path,
                    format!("the stages do not cover the {num_atoms} atoms in order with devices, rows and micro-batches"),
                )
                .hint("run `autohaap check` for every violation"),
            );
        }
    }
    if pipelines.is_empty() {
        problems.push(
            Problem::new(&codes::NOT_PRICEABLE, "pipelines", "the plan has no pipeline")
                .hint("run `autohaap check` for every violation"),
        );
    }
    problems.or(())
}

/// A pipeline with its times; with a limit, the reason why they do not matter.
fn one_pipeline<'s>(
    setting: &'s Setting<'_>,
    index: usize,
    pipeline: &Pipeline,
    holders: &sync::Holders,
    cache: &mut Cache,
    limit: Option<f64>,
) -> Result<Result<PricedPipeline<'s>, Below>, Problems> {
    let mut stages = Vec::with_capacity(pipeline.stages.len());
    for (s, stage) in pipeline.stages.iter().enumerate() {
        stages.push(one_stage(setting, (index, s), stage, holders, cache)?);
    }
    if let Some(limit) = limit {
        let m = f64::from(pipeline.micro_batches);
        let late = stages.iter().any(|s| m * (s.forward + s.backward) >= limit);
        if late {
            return Ok(Err(Below::Slow));
        }
        if !stages
            .iter()
            .enumerate()
            .all(|(s, stage)| stage_fits(setting, pipeline, s, stage))
        {
            return Ok(Err(Below::Over));
        }
    }
    for s in 0..stages.len().saturating_sub(1) {
        stages[s].link = link(setting, (index, s), pipeline, &stages)?;
    }
    let times: Vec<StageTime> = stages
        .iter()
        .map(|s| StageTime {
            forward: s.forward,
            backward: s.backward,
            link_forward: s.link,
            link_backward: s.link,
        })
        .collect();
    let depths: Vec<u32> = pipeline.stages.iter().map(|s| s.in_flight).collect();
    let m = pipeline.micro_batches;
    let run = match (pipeline.schedule.kind, setting.training.engine_semantics.p2p) {
        (ScheduleKind::Gpipe, _) => pipeline::gpipe(&times, m),
        (_, PointToPointMode::Rendezvous) => pipeline::rendezvous(&times, &depths, m),
        (_, PointToPointMode::Async) => pipeline::run(&times, &depths, m, &mut cache.scratch),
    };
    if !run.makespan.is_finite() {
        return Err(Problem::new(
            &codes::DEADLOCK,
            format!("pipelines[{index}].stages"),
            format!(
                "the in-flight limits {depths:?} deadlock: a stage may not run deeper than the one before it"
            ),
        )
        .hint("use limits that do not rise downstream, for example the number of stages from this one on")
        .into());
    }
    Ok(Ok(PricedPipeline {
        stages,
        times,
        depths,
        run,
    }))
}

/// Seconds of a transfer from stage `s` to the next.
fn link(
    setting: &Setting<'_>,
    (index, s): (usize, usize),
    pipeline: &Pipeline,
    stages: &[PricedStage<'_>],
) -> Result<f64, Problems> {
    boundary::transfer(setting, pipeline, s, &stages[s].places, &stages[s + 1].places).ok_or_else(|| {
        Problem::new(
            &codes::NO_PATH,
            format!("pipelines[{index}].stages[{s}]"),
            "no link connects this stage to the next: their domains have no bridge",
        )
        .hint("declare a bridge between the domains in the cluster file")
        .into()
    })
}

fn one_stage<'s>(
    setting: &'s Setting<'_>,
    (p, s): (usize, usize),
    stage: &Stage,
    holders: &sync::Holders,
    cache: &mut Cache,
) -> Result<PricedStage<'s>, Problems> {
    let [a, b] = stage.atoms;
    let places = place::locate(
        setting.cluster,
        stage,
        &format!("pipelines[{p}].stages[{s}]"),
        &mut cache.nodes,
    )?;
    let shapes = place::shapes(setting.cluster, stage, &places, &cache.nodes);
    let mut seen: Vec<(String, crate::units::Bytes)> = Vec::new();
    let modes = modes(stage);
    let copies = holders.copies(stage);
    let mut priced = PricedStage {
        forward: 0.0,
        backward: 0.0,
        recompute: 0.0,
        communication: 0.0,
        link: 0.0,
        members: Vec::with_capacity(shapes.len()),
        places,
        copies,
        optimizer: 0.0,
        atom_backward: vec![0.0; b - a],
    };
    for (replica, devices, shape) in shapes {
        let key = key(&shape);
        let place = &priced.places[replica][devices[0]];
        let own = (
            key.clone(),
            setting.cluster.memory_limit(place.node, place.device_type),
        );
        let distinct = !seen.contains(&own);
        let costs = match cache.rows.get(&key) {
            Some(costs) => costs.clone(),
            None => {
                let costs = Arc::new(all_atoms(setting, &shape));
                cache.rows.insert(key, costs.clone());
                costs
            }
        };
        if !distinct {
            priced.members.push(Member {
                replica,
                devices,
                shape,
                costs,
                distinct,
            });
            continue;
        }
        seen.push(own);
        let (mut forward, mut backward, mut recompute, mut communication) = (0.0, 0.0, 0.0, 0.0);
        let mut optimizer = (crate::units::Bytes::ZERO, crate::units::Bytes::ZERO);
        for (i, cost) in costs[a..b].iter().enumerate() {
            let again = match modes[i] {
                Recompute::None => 0.0,
                Recompute::Selective => cost.recompute_selective.total().0,
                Recompute::Full => cost.recompute_full.total().0,
            };
            let back = cost.input_grad.total().0 + cost.weight_grad.total().0 + again;
            forward += cost.forward.total().0;
            backward += back;
            recompute += again;
            communication += cost.forward.communication().0
                + cost.input_grad.communication().0
                + cost.weight_grad.communication().0;
            optimizer.0 += cost.optimizer_dense;
            optimizer.1 += cost.optimizer_expert;
            priced.atom_backward[i] = priced.atom_backward[i].max(back);
        }
        if !forward.is_finite() || !backward.is_finite() {
            return Err(Problem::new(
                &codes::GROUP_ACROSS_DOMAINS,
                format!("pipelines[{p}].stages[{s}].replicas[{replica}]"),
                "a collective group of the replica spans domains that share no collective library",
            )
            .hint("keep tensor, context and expert parallel groups inside one domain")
            .into());
        }
        if forward + backward > priced.forward + priced.backward {
            priced.recompute = recompute;
            priced.communication = communication;
        }
        priced.forward = priced.forward.max(forward);
        priced.backward = priced.backward.max(backward);
        let bandwidth = setting
            .cluster
            .device_types
            .get(&shape.device_type)
            .map_or(1.0, |d| d.memory_bandwidth.value.0);
        let seconds = memory::optimizer_seconds(setting, optimizer.0, optimizer.1, copies, bandwidth).0;
        priced.optimizer = priced.optimizer.max(seconds);
        priced.members.push(Member {
            replica,
            devices,
            shape,
            costs,
            distinct,
        });
    }
    Ok(priced)
}

/// What the costs of a replica depend on, as text.
fn key(shape: &ReplicaShape) -> String {
    use std::fmt::Write as _;
    let mut key = String::with_capacity(96);
    // Writing to a string cannot fail.
    let _ = write!(
        key,
        "{}|{:x}|{},{},{},{},{},{}",
        shape.device_type,
        shape.speed_factor.to_bits(),
        shape.tp,
        shape.cp,
        shape.rows,
        shape.ep,
        shape.etp,
        shape.stage_replicas
    );
    for group in [
        &shape.tp_group,
        &shape.cp_group,
        &shape.ep_group,
        &shape.stage_group,
    ] {
        let _ = write!(key, "|{}", group.concurrent);
        for (node, device_type, ranks) in &group.members {
            let _ = write!(key, ";{node},{device_type},{ranks}");
        }
    }
    key
}

/// Costs of all atoms on a replica; identical neighbours are computed once.
fn all_atoms(setting: &Setting<'_>, shape: &ReplicaShape) -> Vec<AtomCost> {
    let atoms = &setting.model.atoms;
    let mut costs: Vec<AtomCost> = Vec::with_capacity(atoms.len());
    for i in 0..atoms.len() {
        let twin = (i.saturating_sub(8)..i).rev().find(|&j| atoms[j] == atoms[i]);
        costs.push(match twin {
            Some(j) => costs[j],
            None => atom_cost(setting, i, shape),
        });
    }
    costs
}
