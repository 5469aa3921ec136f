//! A plan to a program: orders from schedules, times from the cost model, pools from the cluster.

use super::action::{Order, Work};
use super::conservation::conserves;
use super::options::{Choice, Name, Options, SlowLink};
use super::program::{Chain, Holder, Jitter, Pool, Program, Reduction, StageWork, Transfer};
use super::schedule::{self, Backwards, csv::MAX_ACTIONS};
use crate::cluster::{Cluster, Fabric};
use crate::cost::atom::Setting;
use crate::cost::pipeline::{StageTime, minimal_depths, standard_depths};
use crate::cost::price::{Detail, DeviceDetail, PipelineDetail, SegmentDetail, StageDetail};
use crate::error::{Problem, Problems, simulate as codes};
use crate::plan::{Pipeline, ScheduleKind};

/// Pipelines whose virtual stages carry the replicas of the stage that owns their devices.
pub fn expanded(pipelines: &[Pipeline]) -> Vec<Pipeline> {
    let mut all = pipelines.to_vec();
    for pipeline in &mut all {
        for s in 0..pipeline.stages.len() {
            if let Some(owner) = pipeline.stages[s].on_stage.filter(|&owner| owner < s) {
                let (before, after) = pipeline.stages.split_at_mut(s);
                let (owner, stage) = (&before[owner], &mut after[0]);
                stage.replicas.clone_from(&owner.replicas);
                (stage.ep, stage.etp) = (owner.ep, owner.etp);
            }
        }
    }
    all
}

/// Rank of each stage: owning stages count up, virtual ones follow their owner.
fn rank_of(pipeline: &Pipeline) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(pipeline.stages.len());
    let mut next = 0;
    for stage in &pipeline.stages {
        match stage.on_stage.and_then(|owner| ranks.get(owner).copied()) {
            Some(rank) => ranks.push(rank),
            None => {
                ranks.push(next);
                next += 1;
            }
        }
    }
    ranks
}

fn work(stage: &StageDetail) -> StageWork {
    StageWork {
        forward: stage.forward.0,
        backward: stage.backward.0,
        input_grad: (stage.backward - stage.weight_grad).0.max(0.0),
        weight_grad: stage.weight_grad.0,
    }
}

/// Stage times as the closed forms take them.
pub(super) fn stage_times(pipeline: &PipelineDetail) -> Vec<StageTime> {
    let links = pipeline.boundaries.iter().map(|b| b.seconds.0).chain([0.0]);
    let stages = pipeline.stages.iter().zip(links);
    stages
        .map(|(stage, link)| StageTime {
            forward: stage.forward.0,
            backward: stage.backward.0,
            link_forward: link,
            link_backward: link,
        })
        .collect()
}

/// The order of one pipeline.
///
/// # Errors
/// Schedules that do not fit the stages or micro-batches, orders that do not conserve, too many actions.
pub(super) fn order(
    index: usize,
    pipeline: &Pipeline,
    detail: &PipelineDetail,
    options: &Options,
) -> Result<Order, Problems> {
    let path = format!("pipelines[{index}].schedule");
    let m = pipeline.micro_batches;
    let actions = pipeline.stages.len() as u64 * u64::from(m) * 3;
    if actions > MAX_ACTIONS as u64 {
        return Err(Problem::new(
            &codes::TOO_MANY_ACTIONS,
            &*path,
            format!(
                "{} stages and {m} micro-batches are up to {actions} actions",
                pipeline.stages.len()
            ),
        )
        .hint("use fewer, larger micro-batches")
        .into());
    }
    let own = rank_of(pipeline);
    let name = match &options.schedule {
        Choice::Orders(orders) => {
            let order = orders.get(index).or_else(|| orders.first());
            return given(order, &own, m, &path);
        }
        Choice::Named(name) => *name,
        Choice::Plan => match pipeline.schedule.kind {
            ScheduleKind::OneF1b => Name::OneF1b,
            ScheduleKind::Gpipe => Name::Gpipe,
            ScheduleKind::Interleaved => Name::Interleaved,
            ScheduleKind::ZbH1 => Name::ZbH1,
            ScheduleKind::ZbH2 => Name::ZbH2,
            ScheduleKind::ZbV => Name::ZbV,
            ScheduleKind::DualpipeV => Name::DualPipeV,
            ScheduleKind::Csv => {
                return Err(Problem::new(
                    &codes::UNFIT_SCHEDULE,
                    &*path,
                    "the plan's schedule is a file, which was not given",
                )
                .hint("pass it with `--schedule FILE.csv`")
                .into());
            }
        },
    };
    let unfit = |what: String, hint: &str| -> Problems {
        Problem::new(&codes::UNFIT_SCHEDULE, &*path, what)
            .hint(hint)
            .into()
    };
    let order = named(name, pipeline, detail, &own, options).map_err(|(what, hint)| unfit(what, hint))?;
    if order.rank_of != own {
        return Err(unfit(
            format!(
                "`{}` places its stages on ranks {:?}, the plan on {own:?}",
                name.text(),
                order.rank_of
            ),
            "give the plan virtual stages (`on_stage`) in the order of the schedule, or choose another schedule",
        ));
    }
    Ok(order)
}

fn named(
    name: Name,
    pipeline: &Pipeline,
    detail: &PipelineDetail,
    own: &[usize],
    options: &Options,
) -> Result<Order, (String, &'static str)> {
    let m = pipeline.micro_batches;
    let stages = pipeline.stages.len();
    let ranks = own.iter().copied().max().map_or(0, |r| r + 1);
    let chunks = stages.checked_div(ranks).unwrap_or(0);
    let one_each = || {
        if stages == ranks {
            Ok(())
        } else {
            Err((
                format!(
                    "`{}` runs one stage per group of devices, the plan has virtual stages",
                    name.text()
                ),
                "use `interleaved`, `zb-v` or `dualpipe-v`",
            ))
        }
    };
    let deeper = |mut depths: Vec<u32>| {
        for depth in &mut depths {
            *depth = depth.saturating_add(options.more_in_flight);
        }
        schedule::one_f_one_b(&depths, m)
    };
    let needs_chunks = || {
        if stages > ranks && stages == ranks * chunks {
            Ok(())
        } else {
            Err((
                format!(
                    "`{}` needs the same number of virtual stages on every group of devices",
                    name.text()
                ),
                "give the plan virtual stages (`on_stage`), or choose `1f1b`, `zb-h1` or `zb-h2`",
            ))
        }
    };
    let group = || {
        let p = ranks as u32;
        if schedule::legal_group(ranks, m, p) {
            Ok(p)
        } else {
            schedule::torch_group(ranks, m).ok_or((
                format!("{m} micro-batches do not divide into groups of at least {ranks}"),
                "use a multiple of the number of device groups as micro-batch count",
            ))
        }
    };
    let free_depths = matches!(name, Name::OneF1b | Name::Standard | Name::Eager | Name::Minimal);
    if options.more_in_flight > 0 && !free_depths {
        return Err((
            format!("`{}` has no free in-flight limits to raise", name.text()),
            "leave out `--depth`, or choose `1f1b`",
        ));
    }
    Ok(match name {
        Name::Gpipe => {
            one_each()?;
            schedule::gpipe(stages, m, Backwards::Reversed)
        }
        Name::OneF1b => {
            one_each()?;
            deeper(pipeline.stages.iter().map(|s| s.in_flight).collect())
        }
        Name::Standard => {
            one_each()?;
            deeper(standard_depths(stages))
        }
        Name::Eager => {
            one_each()?;
            deeper(schedule::eager_depths(stages))
        }
        Name::Minimal => {
            one_each()?;
            deeper(minimal_depths(&stage_times(detail), 0.0))
        }
        Name::ZbH1 => {
            one_each()?;
            schedule::zb_h1(stages, m)
        }
        Name::ZbH2 | Name::ZbFit => {
            one_each()?;
            let works: Vec<StageWork> = detail.stages.iter().map(work).collect();
            let links = detail.boundaries.iter().map(|b| (b.seconds.0, b.seconds.0));
            let links: Vec<(f64, f64)> = links.collect();
            let most = 2 * stages as u32;
            let limits: Vec<u32> = detail
                .stages
                .iter()
                .map(|stage| {
                    if name == Name::ZbH2 {
                        most
                    } else {
                        most.min(room(stage))
                    }
                })
                .collect();
            schedule::zero_bubble(&works, &links, &limits, m)
        }
        Name::Interleaved => {
            needs_chunks()?;
            schedule::interleaved(ranks, chunks, m, group()?)
        }
        Name::InterleavedZeroBubble => {
            needs_chunks()?;
            schedule::interleaved_zero_bubble(ranks, chunks, m, group()?)
        }
        Name::LoopedBfs => {
            needs_chunks()?;
            schedule::looped_bfs(ranks, chunks, m)
        }
        Name::ZbV => {
            needs_chunks()?;
            schedule::zb_v(ranks, m)
        }
        Name::DualPipeV => {
            needs_chunks()?;
            schedule::dual_pipe_v(ranks, m).ok_or((
                format!(
                    "`dualpipe-v` needs at least {} micro-batches, the pipeline has {m}",
                    2 * ranks
                ),
                "use more micro-batches",
            ))?
        }
    })
}

/// Micro-batches in flight that every device of a stage has memory for, at least 1.
fn room(stage: &StageDetail) -> u32 {
    let one = |device: &DeviceDetail| {
        let free = device.memory.limit - (device.memory.total - device.memory.activations);
        if device.saved.0 > 0.0 {
            (free.0 / device.saved.0 * (1.0 + 1e-12)).max(1.0) as u32
        } else {
            u32::MAX
        }
    };
    stage.devices.iter().map(one).min().unwrap_or(1)
}

/// An order from outside: checked, and its ranks numbered as the plan's.
fn given(order: Option<&Order>, own: &[usize], m: u32, path: &str) -> Result<Order, Problems> {
    let Some(order) = order else {
        return Err(Problem::new(
            &codes::UNFIT_SCHEDULE,
            path,
            "no order is given for this pipeline",
        )
        .into());
    };
    let unfit = |what: String| -> Problems {
        Problem::new(&codes::UNFIT_SCHEDULE, path, what)
            .hint("a schedule file has the stages and micro-batches of its pipeline")
            .into()
    };
    if order.num_stages() != own.len() || order.micro_batches != m {
        return Err(unfit(format!(
            "the order is of {} stages and {} micro-batches, the pipeline of {} and {m}",
            order.num_stages(),
            order.micro_batches,
            own.len()
        )));
    }
    conserves(order, path)?;
    let ranks = own.iter().copied().max().map_or(0, |r| r + 1);
    let mut place: Vec<Option<usize>> = vec![None; order.ranks.len()];
    for (stage, (&theirs, &ours)) in order.rank_of.iter().zip(own).enumerate() {
        if *place[theirs].get_or_insert(ours) != ours {
            return Err(unfit(format!(
                "stage {stage} shares a rank with stages that are on other devices of the plan"
            )));
        }
    }
    let mut lists = vec![Vec::new(); ranks];
    for (list, place) in order.ranks.iter().zip(place) {
        match place {
            Some(rank) if lists[rank].is_empty() => lists[rank].clone_from(list),
            Some(_) => {
                return Err(unfit(
                    "stages on the same devices of the plan are on two ranks of the order".into(),
                ));
            }
            None => {}
        }
    }
    Ok(Order {
        micro_batches: m,
        rank_of: own.to_vec(),
        cut: None,
        ranks: lists,
    })
}

/// The program of a plan.
///
/// # Errors
/// As [`order`].
pub(super) fn program(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    detail: &Detail,
    options: &Options,
) -> Result<Program, Problems> {
    let mut pools = Pools::new(setting.cluster, options.contention);
    let mut problems = Problems::new();
    let mut chains = Vec::with_capacity(pipelines.len());
    for (p, (pipeline, detail)) in pipelines.iter().zip(&detail.pipelines).enumerate() {
        let order = match order(p, pipeline, detail, options) {
            Ok(order) => order,
            Err(found) => {
                problems.0.extend(found.0);
                continue;
            }
        };
        let mut forward = Vec::new();
        let mut backward = Vec::new();
        for (s, boundary) in detail.boundaries.iter().enumerate() {
            let mut seconds = boundary.seconds.0;
            for (link, factor) in &options.slow_links {
                if *link == SlowLink::Boundary(p, s) {
                    seconds *= factor;
                }
            }
            let there = boundary.traffic.iter().map(|&(a, b, bytes)| (a, b, bytes.0));
            let back = boundary.traffic.iter().map(|&(a, b, bytes)| (b, a, bytes.0));
            forward.push(pools.transfer(seconds, there));
            backward.push(pools.transfer(seconds, back));
        }
        let mut optimizer = vec![0.0; order.ranks.len()];
        for (stage, &rank) in detail.stages.iter().zip(&order.rank_of) {
            optimizer[rank] += stage.optimizer.0;
        }
        chains.push(Chain {
            stages: detail.stages.iter().map(work).collect(),
            order,
            forward,
            backward,
            optimizer,
        });
    }
    problems.or(())?;
    let overlap = setting.training.engine_semantics.overlap.dp;
    let mut reductions: Vec<Reduction> = detail
        .segments
        .iter()
        .map(|segment| reduction(segment, pipelines, detail, overlap, &mut pools))
        .collect();
    if let Some(tied) = &detail.tied {
        // Both ends on the same devices have nothing to exchange beyond the segments.
        let apart = tied.holders.iter().any(|&(p, s)| {
            let rank_of = &chains[p].order.rank_of;
            s > 0 && rank_of[s] != rank_of[0]
        });
        if apart {
            reductions.push(reduction(tied, pipelines, detail, false, &mut pools));
        }
    }
    Ok(Program {
        chains,
        pools: pools.list,
        reductions,
        p2p: setting.training.engine_semantics.p2p,
        pair_factor: options.pair_factor,
        jitter: options.jitter.map(|(sigma, seed)| Jitter { sigma, seed }),
    })
}

fn reduction(
    segment: &SegmentDetail,
    pipelines: &[Pipeline],
    detail: &Detail,
    overlap: bool,
    pools: &mut Pools<'_>,
) -> Reduction {
    let holders = segment.holders.iter().map(|&(p, s)| {
        let first = pipelines[p].stages[s].atoms[0];
        let stage = &detail.pipelines[p].stages[s];
        let before = segment.atoms[0].saturating_sub(first);
        let remaining = if overlap && stage.backward.0 > 0.0 {
            stage.atom_backward[..before].iter().map(|t| t.0).sum::<f64>() / stage.backward.0
        } else {
            0.0
        };
        Holder {
            chain: p,
            stage: s,
            remaining,
        }
    });
    Reduction {
        atoms: segment.atoms,
        holders: holders.collect(),
        transfer: pools.collective(segment),
    }
}

/// Pools made as they are used.
struct Pools<'c> {
    cluster: &'c Cluster,
    contention: bool,
    list: Vec<Pool>,
    /// (kind, index) of each pool.
    keys: Vec<(Kind, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Out,
    In,
    Up,
    Down,
    Bus,
}

impl<'c> Pools<'c> {
    fn new(cluster: &'c Cluster, contention: bool) -> Self {
        Self {
            cluster,
            contention,
            list: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn id(&mut self, kind: Kind, index: usize) -> u32 {
        if let Some(at) = self.keys.iter().position(|&key| key == (kind, index)) {
            return at as u32;
        }
        let (name, node) = match kind {
            Kind::Up | Kind::Down => (self.cluster.tiers[index].name.as_str(), None),
            Kind::Out | Kind::In | Kind::Bus => (self.cluster.nodes[index].name.as_str(), Some(index)),
        };
        let way = match kind {
            Kind::Out => "out",
            Kind::In => "in",
            Kind::Up => "up",
            Kind::Down => "down",
            Kind::Bus => "bus",
        };
        self.keys.push((kind, index));
        self.list.push(Pool {
            name: format!("{name} {way}"),
            node,
        });
        self.list.len() as u32 - 1
    }

    /// Bytes per second of a pool.
    fn capacity(&self, kind: Kind, index: usize) -> f64 {
        match kind {
            Kind::Out | Kind::In => self.cluster.nodes[index].network_rate().0,
            Kind::Up | Kind::Down => self.cluster.tiers[index].uplink.value.0,
            Kind::Bus => {
                let node = &self.cluster.nodes[index];
                let types = node
                    .groups
                    .iter()
                    .filter_map(|g| self.cluster.device_types.get(&g.device_type));
                types
                    .map(|t| t.intra.bandwidth.value.0 * t.intra.efficiency.value)
                    .fold(f64::INFINITY, f64::min)
                    * Cluster::BUS_FLOWS
            }
        }
    }

    /// Whether the devices of a node share a host bus.
    fn has_bus(&self, node: usize) -> bool {
        let groups = &self.cluster.nodes[node].groups;
        groups.len() > 1
            || groups
                .iter()
                .filter_map(|g| self.cluster.device_types.get(&g.device_type))
                .any(|t| t.intra.fabric == Fabric::Bus)
    }

    fn finish(&mut self, seconds: f64, total: f64, loads: Vec<(Kind, usize, f64)>) -> Transfer {
        let mut uses = Vec::with_capacity(loads.len());
        if self.contention && seconds > 0.0 {
            for (kind, index, bytes) in loads {
                let share = bytes / (self.capacity(kind, index) * seconds);
                if share > 0.0 {
                    uses.push((self.id(kind, index), share.min(1.0)));
                }
            }
        }
        Transfer {
            seconds,
            bytes: total,
            uses,
        }
    }

    fn transfer(&mut self, seconds: f64, traffic: impl Iterator<Item = (usize, usize, f64)>) -> Transfer {
        let mut loads: Vec<(Kind, usize, f64)> = Vec::new();
        let mut total = 0.0;
        let mut add = |kind: Kind, index: usize, bytes: f64| match loads
            .iter_mut()
            .find(|l| l.0 == kind && l.1 == index)
        {
            Some(load) => load.2 += bytes,
            None => loads.push((kind, index, bytes)),
        };
        for (from, to, bytes) in traffic {
            total += bytes;
            if from == to {
                if self.has_bus(from) {
                    add(Kind::Bus, from, bytes);
                }
                continue;
            }
            add(Kind::Out, from, bytes);
            add(Kind::In, to, bytes);
            let (up, down) = self.cluster.crossed_tiers(from, to);
            for tier in up {
                add(Kind::Up, tier, bytes);
            }
            for tier in down {
                add(Kind::Down, tier, bytes);
            }
        }
        self.finish(seconds, total, loads)
    }

    fn collective(&mut self, segment: &SegmentDetail) -> Transfer {
        let bytes = segment.node_bytes.0;
        let mut loads: Vec<(Kind, usize, f64)> = Vec::new();
        if segment.nodes.len() > 1 {
            for &node in &segment.nodes {
                loads.push((Kind::Out, node, bytes));
                loads.push((Kind::In, node, bytes));
            }
            for tier in 0..self.cluster.tiers.len() {
                let behind = segment.nodes.iter().filter(|&&node| {
                    let others = segment.nodes.iter().filter(|&&other| other != node);
                    let mut crossed = others.map(|&other| self.cluster.crossed_tiers(node, other).0);
                    crossed.any(|up| up.contains(&tier))
                });
                let behind = behind.count();
                if behind > 0 && behind < segment.nodes.len() {
                    // A ring enters and leaves the tier once, whatever the number of nodes behind it.
                    loads.push((Kind::Up, tier, bytes));
                    loads.push((Kind::Down, tier, bytes));
                }
            }
        }
        self.finish(segment.seconds.0, bytes, loads)
    }
}

/// Whether an action's result leaves its rank.
pub(super) fn crosses(order: &Order, stage: usize, work: Work) -> bool {
    let other = match work {
        Work::Forward => stage.checked_add(1).filter(|&s| s < order.num_stages()),
        Work::Backward | Work::InputGrad => stage.checked_sub(1),
        Work::WeightGrad => None,
    };
    other.is_some_and(|other| order.rank_of[other] != order.rank_of[stage])
}
