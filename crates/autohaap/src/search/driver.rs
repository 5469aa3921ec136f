//! The whole answer: the search at each ZeRO level, its bound, and what it is compared with.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::{Budget, Infeasible, Method, Outcome, Progress, SearchOptions, StopReason};
use super::assemble::Candidate;
use super::baselines::{self, Baseline, Split};
use super::solve::{Effort, Solver};
use super::space::Space;
use super::table::Table;
use super::template::Template;
use super::{bound, brute, lattice};
use crate::cluster::Cluster;
use crate::cost::atom::Setting;
use crate::cost::price::{Cache, price};
use crate::error::{Problem, Problems, search as codes};
use crate::model::Model;
use crate::plan::{
    Alternative, Alternatives, Idle, Phase, Pipeline, Plan, Prediction, ProfileRecord, SearchRecord, Training,
};
use crate::units::Seconds;

/// Devices up to which the exhaustive search is tried.
const LATTICE_DEVICES: u32 = 16;

/// Ratio of neighbouring times at which the duality bound is asked.
const GRID: f64 = 1.01;

/// Times asked at most.
const TIMES: u32 = 6;

/// Steps of the exhaustive search: about two seconds at most.
const LATTICE_WORK: u64 = 400_000;

/// Label steps of one refutation.
const REFUTE_WORK: u64 = 6_000_000;

/// The best plan known, independent of the table it was found with.
#[derive(Clone)]
struct Best {
    pipelines: Vec<Pipeline>,
    step: f64,
    zero: u8,
    origin: String,
}

/// Wall time and counts per phase.
struct Clock<'b> {
    budget: &'b dyn Budget,
    last: Duration,
    phases: Vec<Phase>,
    scored: u64,
    first_plan: Option<Duration>,
}

impl Clock<'_> {
    fn phase(&mut self, name: &str, scored: u64) {
        let now = self.budget.elapsed();
        self.phases.push(Phase {
            name: name.into(),
            wall_s: Seconds(now.checked_sub(self.last).unwrap().as_secs_f64()),
            count: scored,
        });
        self.last = now;
        self.scored += scored;
    }
}

/// Finds the fastest plan.
///
/// # Errors
/// Problems of the inputs taken together (for example a global batch of zero).
pub fn search(
    model: &Model,
    cluster: &Cluster,
    training: &Training,
    options: &SearchOptions,
    budget: &dyn Budget,
) -> Result<Outcome, Problems> {
    let cluster = &able(cluster, training);
    validate(model, cluster, training)?;
    let mut clock = Clock {
        budget,
        last: budget.elapsed(),
        phases: Vec::new(),
        scored: 0,
        first_plan: None,
    };
    let levels: Vec<u8> = if options.zero.is_empty() {
        vec![training.zero]
    } else {
        options.zero.clone()
    };
    let trainings: Vec<Training> = levels
        .iter()
        .map(|&zero| Training {
            zero,
            ..training.clone()
        })
        .collect();
    let settings: Vec<Setting<'_>> = trainings
        .iter()
        .map(|t| Setting::new(model, cluster, t))
        .collect();
    let spaces: Vec<Space<'_>> = settings
        .iter()
        .map(|s| Space::new(s, options.max_micro_batch))
        .collect();
    let tables: Vec<Table<'_>> = spaces.iter().map(Table::new).collect();
    clock.phase("stage table", 0);
    if spaces[0].classes.len() > super::pricing::MAX_CLASSES {
        return Err(Problem::new(
            &codes::TOO_MANY_CLASSES,
            "cluster",
            format!(
                "{} device classes, the search takes at most {}",
                spaces[0].classes.len(),
                super::pricing::MAX_CLASSES
            ),
        )
        .hint("give nodes of one type the same speed factor, cards and caps, so that they form one class")
        .into());
    }
    if options.method == Method::Brute {
        return Ok(brute_force(&tables, &levels, &mut clock, budget));
    }
    let stop = || budget.stop().is_some();

    let mut priced = 0;
    // Baselines first: they are candidates too, so that the answer is never slower than any of them.
    let mut baselines: BTreeMap<&'static str, (Option<(Baseline, u8)>, String)> = BTreeMap::new();
    for (name, split) in [
        ("uniform", Split::Equal),
        ("flops", Split::Flops),
        ("memory", Split::Memory),
    ] {
        let mut kept: Option<(Baseline, u8)> = None;
        let mut why = String::new();
        for (space, &zero) in spaces.iter().zip(&levels) {
            // Level 2 lies between 1 and 3 in memory and costs as much traffic as 3 does for gradients.
            if zero == 2 && levels.len() > 1 {
                continue;
            }
            let limit = kept.as_ref().map_or(f64::INFINITY, |k| k.0.step);
            let (found, reason, scored) = baselines::best(space, split, limit, &stop);
            priced += scored;
            if found.is_some() {
                clock.first_plan.get_or_insert(budget.elapsed());
            }
            if kept.is_none() {
                why = reason;
            }
            if let Some(found) = found
                && kept.as_ref().is_none_or(|k| found.step < k.0.step)
            {
                kept = Some((found, zero));
            }
        }
        baselines.insert(name, (kept, why));
    }
    clock.phase("baselines", priced);

    let counts = spaces[0].counts();
    let effort = effort(&spaces[0]);
    let floors: Vec<f64> = tables.iter().map(|t| bound::capacity(t, &counts)).collect();
    let mut floor = floors.iter().copied().fold(f64::INFINITY, f64::min);
    if !floor.is_finite() {
        floor = 0.0;
    }
    let mut ranked: Vec<Best> = baselines
        .values()
        .filter_map(|(b, _)| b.as_ref())
        .map(|(b, zero)| Best {
            pipelines: b.pipelines.clone(),
            step: b.step,
            zero: *zero,
            origin: format!("uniform degrees: {}", b.label),
        })
        .collect();
    let mut pools: Vec<Vec<Template>> = Vec::new();
    let mut duals: Vec<Option<Vec<f64>>> = Vec::new();
    for (i, (table, &zero)) in tables.iter().zip(&levels).enumerate() {
        // Higher levels differ from the first only where a stage has several replicas; level 2 lies between 1 and 3.
        let rounds = match (i, zero) {
            (0, _) => effort.rounds,
            (_, 2) => effort.rounds.div_ceil(8),
            _ => effort.rounds.div_ceil(2),
        };
        let effort = Effort { rounds, ..effort };
        let mut solver = Solver::new(table, counts.clone(), effort, budget);
        if let Some(best) = ranked.iter().map(|r| r.step).min_by(f64::total_cmp) {
            solver.aim(best);
        }
        solver.run(floor);
        ranked.extend(solver.ranked().into_iter().take(8).map(|c| found(c, zero)));
        if let Some(at) = solver.first_plan {
            clock.first_plan.get_or_insert(at);
        }
        pools.push(solver.templates().cloned().collect());
        duals.push(solver.prices.clone().filter(|_| counts.len() > 1));
        let scored = solver.scored;
        clock.phase("columns", scored);
        if stop() {
            break;
        }
    }
    sort(&mut ranked);

    // Small clusters: close the gap by enumeration, as far as the work limit goes.
    let mut complete = false;
    if counts.iter().sum::<u32>() <= LATTICE_DEVICES && !stop() {
        complete = true;
        for (table, &zero) in tables.iter().zip(&levels) {
            let incumbent = ranked.first().map_or(f64::INFINITY, |b| b.step);
            let closed = lattice::close(table, &counts, incumbent, LATTICE_WORK, &stop);
            complete &= closed.complete;
            if let Some(better) = closed.better {
                ranked.push(found(&better, zero));
                sort(&mut ranked);
            }
            clock.phase("exhaustive", closed.scored);
        }
    }
    let Some(mut best) = ranked.first().cloned() else {
        return Ok(Outcome::Infeasible(explain(
            &tables, &counts, training, complete, budget,
        )));
    };
    budget.progress(&Progress {
        phase: "bound",
        best: Some(Seconds(best.step)),
        bound: Some(Seconds(floor)),
        scored: clock.scored,
    });

    let mut stop_reason = StopReason::Finished;
    let mut bound_s = floor;
    let mut bound_kind = "capacity of every class by operator, no fill, no memory";
    if complete {
        bound_s = best.step;
        bound_kind = "exhaustive: every plan with a lower bound below it was priced";
    } else if !stop() {
        let refuted = tighten(&tables, &counts, &duals, [floor, best.step], options.gap, &stop);
        if refuted > bound_s {
            bound_s = refuted;
            bound_kind = "LP duality over pipeline templates with fill, depth and memory";
        }
        clock.phase("bound", 0);
    }
    // A search on fewer classes may find what the search on all missed.
    let (fastest, without) = loop {
        let index = levels.iter().position(|&z| z == best.zero).unwrap_or(0);
        let pool = pools.get(index).map_or(&[][..], Vec::as_slice);
        let (fastest, without, better) = groups(&tables[index], pool, &counts, &best, budget);
        let Some(better) = better else {
            break (fastest, without);
        };
        ranked.push(better.clone());
        sort(&mut ranked);
        best = better;
    };
    clock.phase("device groups", 0);
    if let Some(reason) = budget.stop() {
        stop_reason = reason;
    } else if options.gap.is_some_and(|gap| 1.0 - bound_s / best.step <= gap) && !complete {
        stop_reason = StopReason::Gap;
    }

    let index = levels.iter().position(|&z| z == best.zero).unwrap_or(0);

    let setting = &settings[index];
    let mut cache = Cache::default();
    let (mut prediction, entries) = price(setting, &best.pipelines, &mut cache)?;
    let bound_s = bound_s.min(prediction.step_time_s.0);
    prediction.bound_s = Some(Seconds(bound_s));
    prediction.gap = Some(1.0 - bound_s / prediction.step_time_s.0);
    prediction.bound_space = Some(format!(
        "full, in-order 1F1B with free depths, whole layers, one class per stage, equal rows, up to {} rows per replica; {bound_kind}",
        options.max_micro_batch,
    ));
    let alternatives = Alternatives {
        uniform: baseline_row(&baselines["uniform"], best.step),
        flops_split: baseline_row(&baselines["flops"], best.step),
        memory_split: baseline_row(&baselines["memory"], best.step),
        fastest_class: fastest,
        without,
        losers: losers(setting, &ranked, &best, &prediction, options.top, &mut cache),
    };
    let reproducible = matches!(stop_reason, StopReason::Finished | StopReason::Gap);
    let record = SearchRecord {
        space: "full".into(),
        method: if complete {
            "columns, exhaustive"
        } else {
            "columns"
        }
        .into(),
        stop_reason: match stop_reason {
            StopReason::Finished if complete => "optimal",
            StopReason::Finished => "finished",
            StopReason::Gap => "gap",
            StopReason::TimeLimit => "time-limit",
            StopReason::Interrupted => "interrupted",
        }
        .into(),
        wall_s: Seconds(budget.elapsed().as_secs_f64()),
        first_plan_s: clock.first_plan.map(|d| Seconds(d.as_secs_f64())),
        plans_scored: clock.scored,
        seed: options.seed,
        reproducible,
        phases: clock.phases,
    };
    let idle = idle(cluster, &best.pipelines);
    let mut plan = Plan::build(model, cluster, trainings[index].clone(), best.pipelines, idle);
    plan.profile = ProfileRecord::from_entries(entries);
    plan.prediction = Some(prediction);
    plan.search = Some(record);
    plan.alternatives = Some(alternatives);
    Ok(Outcome::Found(Box::new(plan)))
}

fn validate(model: &Model, cluster: &Cluster, training: &Training) -> Result<(), Problems> {
    let mut problems = Problems::new();
    if training.global_batch == 0 || training.global_batch > 1 << 24 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "global_batch",
                format!("a global batch of `{}` sequences", training.global_batch),
            )
            .hint("give 1 to 16,777,216 sequences, for example `--global-batch 256`"),
        );
    }
    if training.seq_len == 0 || training.seq_len > 1 << 27 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "seq_len",
                format!("a sequence length of `{}` tokens", training.seq_len),
            )
            .hint("give 1 to 134,217,728 tokens, for example `--seq 4096`"),
        );
    }
    if model.atoms.len() < 3 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "model",
                "a model needs an embedding, at least one block and a head",
            )
            .hint("check `autohaap model` on the file"),
        );
    }
    if cluster.total_devices() == 0 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "cluster",
                "the cluster has no usable device of this precision",
            )
            .hint("check `exclude`, the node list and `--precision`"),
        );
    }
    problems.or(())
}

/// The cluster without devices that lack the precision: they are excluded and a note says so.
fn able(cluster: &Cluster, training: &Training) -> Cluster {
    let mut able = cluster.clone();
    for (name, device) in &cluster.device_types {
        if device.supports(training.precision) {
            continue;
        }
        let mut left_out = 0;
        for node in &mut able.nodes {
            let mut first = 0;
            for group in &node.groups {
                if group.device_type == *name {
                    left_out += group.count;
                    node.excluded.extend(first..first + group.count);
                }
                first += group.count;
            }
            node.excluded.sort_unstable();
            node.excluded.dedup();
        }
        if left_out > 0 {
            able.notes.push(format!(
                "{left_out}x {name} left out: no {:?} products; a precision that every device has would use them",
                training.precision
            ));
        }
    }
    able
}

/// Work by the size of the problem, in counts.
fn effort(space: &Space<'_>) -> Effort {
    let devices: u32 = space.classes.iter().map(|c| c.devices).sum();
    match devices {
        0..=16 => Effort {
            rounds: 40,
            beam: 6,
            pack_nodes: 20_000,
            polish: 400,
            finalists: 4,
        },
        17..=128 => Effort {
            rounds: 24,
            beam: 5,
            pack_nodes: 20_000,
            polish: 150,
            finalists: 3,
        },
        _ => Effort {
            rounds: 10,
            beam: 3,
            pack_nodes: 20_000,
            polish: 60,
            finalists: 2,
        },
    }
}

fn found(candidate: &Candidate, zero: u8) -> Best {
    Best {
        pipelines: candidate.pipelines.clone(),
        step: candidate.step,
        zero,
        origin: candidate.draft.origin.to_owned(),
    }
}

fn sort(ranked: &mut [Best]) {
    ranked.sort_by(|a, b| {
        a.step
            .total_cmp(&b.step)
            .then(a.zero.cmp(&b.zero))
            .then_with(|| key(&a.pipelines).cmp(&key(&b.pipelines)))
    });
}

/// Canonical key of placed pipelines, for ties.
fn key(pipelines: &[Pipeline]) -> Vec<(u32, u32, Vec<(usize, u32, Vec<String>)>)> {
    pipelines
        .iter()
        .map(|p| {
            let stages = p
                .stages
                .iter()
                .map(|s| {
                    (
                        s.atoms[1],
                        s.in_flight,
                        s.replicas.iter().flat_map(|r| r.devices.clone()).collect(),
                    )
                })
                .collect();
            (p.micro_batch, p.micro_batches, stages)
        })
        .collect()
}

/// Raises the lower bound by refuting times between it and the step.
fn tighten(
    tables: &[Table<'_>],
    counts: &[u32],
    duals: &[Option<Vec<f64>>],
    [floor, step]: [f64; 2],
    gap: Option<f64>,
    stop: &(dyn Fn() -> bool + Sync),
) -> f64 {
    // Times asked about lie on one grid for all problems, so that a bound does not depend on the plan found.
    let at = |k: i32| GRID.powi(k);
    // The capacity bound is zero where its LP fails.
    let mut low = (floor.max(step * 1e-3).ln() / GRID.ln()).floor() as i32;
    let mut high = (step.ln() / GRID.ln()).ceil() as i32;
    let mut bound = floor;
    // Any prices are valid. In proportion to the speed of each class on this model they ignore fill and memory; those of
    // the LPs that the search could not bring to the batch know about them.
    for _ in 0..TIMES {
        if high - low <= 1 || stop() || gap.is_some_and(|g| 1.0 - bound / step <= g) {
            break;
        }
        let middle = i32::midpoint(low, high);
        let refuted = tables.iter().enumerate().all(|(i, t)| {
            let dual = duals.get(i).and_then(Option::as_ref);
            bound::price_guesses(t, counts)
                .iter()
                .chain(dual)
                .any(|prices| bound::refutes(t, counts, prices, at(middle), REFUTE_WORK, stop))
        });
        if refuted {
            low = middle;
            bound = bound.max(at(middle));
        } else {
            high = middle;
        }
    }
    bound
}

/// The best plan on the fastest class alone, and the step time without each device group; also the best plan found on
/// the way if it is faster than `best`.
fn groups(
    table: &Table<'_>,
    pool: &[Template],
    counts: &[u32],
    best: &Best,
    budget: &dyn Budget,
) -> (Alternative, BTreeMap<String, Alternative>, Option<Best>) {
    let space = table.space;
    let quick = Effort {
        rounds: 3,
        beam: 3,
        pack_nodes: 5_000,
        polish: 20,
        finalists: 1,
    };
    let mut better: Option<Best> = None;
    let mut solve = |subset: &[u32]| -> Option<f64> {
        if budget.stop().is_some() {
            return None;
        }
        let floor = bound::capacity(table, subset);
        let mut solver = Solver::new(table, subset.to_vec(), quick, budget);
        solver.seed(pool.iter());
        solver.run(floor.max(best.step));
        let first = solver.ranked().first().copied()?;
        if first.step < better.as_ref().map_or(best.step * (1.0 - 1e-9), |b| b.step) {
            better = Some(found(first, best.zero));
        }
        Some(first.step)
    };
    let name = |class: usize| {
        let c = &space.classes[class];
        let twins = space
            .classes
            .iter()
            .filter(|o| o.device_type == c.device_type)
            .count();
        if twins > 1 {
            format!("{} ({})", c.device_type, c.node_shape)
        } else {
            c.device_type.clone()
        }
    };
    let alternative = |label: String, step: Option<f64>, of: &str| Alternative {
        label,
        feasible: step.is_some(),
        step_time_s: step.map(Seconds),
        reason: match step {
            Some(s) if s <= best.step * (1.0 + 1e-9) => format!("{of}: as fast as the answer"),
            Some(s) => format!("{of}: {:.1} % slower", (s / best.step - 1.0) * 100.0),
            None if budget.stop().is_some() => format!("{of}: not worked out: the search was stopped"),
            None => format!("{of}: the model's training states do not fit"),
        },
    };
    let fastest = (0..counts.len())
        .max_by(|&a, &b| {
            baselines::peak(space, a)
                .total_cmp(&baselines::peak(space, b))
                .then(b.cmp(&a))
        })
        .unwrap_or(0);
    if counts.len() == 1 {
        let only = Alternative {
            label: format!("{} only", name(0)),
            feasible: true,
            step_time_s: Some(Seconds(best.step)),
            reason: "the cluster has one device class: the answer itself".into(),
        };
        return (only, BTreeMap::new(), None);
    }
    let used = used_per_class(space, &best.pipelines);
    let mut alone = vec![0; counts.len()];
    alone[fastest] = counts[fastest];
    let only_fastest = used.iter().enumerate().all(|(c, n)| c == fastest || *n == 0);
    let step = if only_fastest {
        Some(best.step)
    } else {
        solve(&alone)
    };
    let fastest_row = alternative(format!("{} only", name(fastest)), step, "fastest class alone");
    let mut without = BTreeMap::new();
    for class in 0..counts.len() {
        let mut rest = counts.to_vec();
        rest[class] = 0;
        let step = if used[class] == 0 {
            Some(best.step)
        } else if counts.len() == 2 && 1 - class == fastest {
            step
        } else {
            solve(&rest)
        };
        let row = alternative(format!("without {}", name(class)), step, "the others alone");
        without.insert(name(class), row);
    }
    (fastest_row, without, better)
}

fn used_per_class(space: &Space<'_>, pipelines: &[Pipeline]) -> Vec<u32> {
    let mut class_of: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    for class in &space.classes {
        for &(node, first, count) in &class.nodes {
            for index in first..first + count {
                class_of.insert((node, index), class.id);
            }
        }
    }
    let mut used = vec![0; space.classes.len()];
    let devices = pipelines
        .iter()
        .flat_map(|p| &p.stages)
        .flat_map(|s| &s.replicas)
        .flat_map(|r| &r.devices);
    for device in devices {
        if let Ok(at) = space.setting.cluster.parse_device(device)
            && let Some(&class) = class_of.get(&at)
        {
            used[class] += 1;
        }
    }
    used
}

fn idle(cluster: &Cluster, pipelines: &[Pipeline]) -> Vec<Idle> {
    let used: std::collections::BTreeSet<&str> = pipelines
        .iter()
        .flat_map(|p| &p.stages)
        .flat_map(|s| &s.replicas)
        .flat_map(|r| r.devices.iter().map(String::as_str))
        .collect();
    let mut rows = Vec::new();
    for class in cluster.classes() {
        let devices: Vec<String> = class
            .nodes
            .iter()
            .flat_map(|&(node, first, count)| (first..first + count).map(move |i| (node, i)))
            .map(|(node, i)| cluster.device_name(node, i))
            .filter(|d| !used.contains(d.as_str()))
            .collect();
        if devices.is_empty() {
            continue;
        }
        let reason = if devices.len() as u32 == class.devices {
            "no plan with this device class was faster"
        } else {
            "left over: no split of the batch and the layers gains from these"
        };
        rows.push(Idle {
            devices,
            reason: reason.into(),
        });
    }
    rows
}

fn baseline_row((found, why): &(Option<(Baseline, u8)>, String), best: f64) -> Alternative {
    match found {
        Some((b, _)) => Alternative {
            label: b.label.clone(),
            feasible: true,
            step_time_s: Some(Seconds(b.step)),
            reason: if b.step <= best * (1.0 + 1e-9) {
                "as fast as the answer".into()
            } else {
                format!("{:.1} % slower", (b.step / best - 1.0) * 100.0)
            },
        },
        None => Alternative {
            label: String::new(),
            feasible: false,
            step_time_s: None,
            reason: why.clone(),
        },
    }
}

/// The best plans of other shapes, and what they lose by.
fn losers(
    setting: &Setting<'_>,
    ranked: &[Best],
    best: &Best,
    winner: &Prediction,
    top: usize,
    cache: &mut Cache,
) -> Vec<Alternative> {
    let mut rows = Vec::new();
    let mut seen = vec![shape(&best.pipelines)];
    for loser in ranked {
        if rows.len() >= top {
            break;
        }
        let label = shape(&loser.pipelines);
        if seen.contains(&label) || loser.zero != best.zero {
            continue;
        }
        seen.push(label.clone());
        let Ok((prediction, _)) = price(setting, &loser.pipelines, cache) else {
            continue;
        };
        rows.push(Alternative {
            label: format!("{label} ({})", loser.origin),
            feasible: true,
            step_time_s: Some(prediction.step_time_s),
            reason: why_slower(&prediction, winner),
        });
    }
    rows
}

/// Stage shapes in words: `2x [tp4 A | tp2 B]`.
fn shape(pipelines: &[Pipeline]) -> String {
    let mut counted: Vec<(String, u32)> = Vec::new();
    for p in pipelines {
        let stages: Vec<String> = p
            .stages
            .iter()
            .map(|s| {
                let tp = s.replicas.first().map_or(1, |r| r.tp);
                let dp = if s.replicas.len() > 1 {
                    format!(" dp{}", s.replicas.len())
                } else {
                    String::new()
                };
                let ep = if s.ep > 1 {
                    format!(" ep{}", s.ep)
                } else {
                    String::new()
                };
                format!("tp{tp}{dp}{ep}:{}", s.atoms[1] - s.atoms[0])
            })
            .collect();
        let text = format!("[{}]", stages.join(" | "));
        match counted.iter_mut().find(|c| c.0 == text) {
            Some(c) => c.1 += 1,
            None => counted.push((text, 1)),
        }
    }
    let words: Vec<String> = counted
        .into_iter()
        .map(|(t, n)| if n > 1 { format!("{n}x {t}") } else { t })
        .collect();
    words.join(" + ")
}

/// The largest difference between two predictions, in words.
fn why_slower(loser: &Prediction, winner: &Prediction) -> String {
    let slower = (loser.step_time_s.0 / winner.step_time_s.0 - 1.0) * 100.0;
    let shares = |p: &Prediction| {
        let step = p.step_time_s.0;
        let n = p.stages.len().max(1) as f64;
        let busy = p.stages.iter().map(|s| s.busy_fraction).sum::<f64>() / n;
        let communication = p
            .stages
            .iter()
            .map(|s| s.busy_fraction * s.comm_s.0 / (s.forward_s.0 + s.backward_s.0).max(1e-12))
            .sum::<f64>()
            / n;
        let recompute = p
            .stages
            .iter()
            .map(|s| s.busy_fraction * s.recompute_s.0 / (s.forward_s.0 + s.backward_s.0).max(1e-12))
            .sum::<f64>()
            / n;
        let sync = p.stages.iter().map(|s| s.grad_sync_s.0).fold(0.0, f64::max) / step;
        [1.0 - busy, communication, recompute, sync]
    };
    let (a, b) = (shares(loser), shares(winner));
    let names = [
        "devices wait more (fill and imbalance)",
        "more communication inside stages",
        "more recompute",
        "longer gradient reduction",
    ];
    let at = (0..4)
        .max_by(|&x, &y| (a[x] - b[x]).total_cmp(&(a[y] - b[y])))
        .unwrap_or(0);
    let cause = if a[at] - b[at] > 0.005 {
        format!(
            "{}: {:.0} % of the step against {:.0} %",
            names[at],
            a[at] * 100.0,
            b[at] * 100.0
        )
    } else {
        "the same costs, divided less evenly".into()
    };
    if slower > 1e-7 {
        format!("{slower:.1} % slower; {cause}")
    } else {
        "equally fast".into()
    }
}

/// Why nothing fits and the smallest changes that would help.
fn explain(
    tables: &[Table<'_>],
    counts: &[u32],
    training: &Training,
    complete: bool,
    budget: &dyn Budget,
) -> Infeasible {
    super::infeasible::explain(tables, counts, training, complete, budget)
}

fn brute_force(tables: &[Table<'_>], levels: &[u8], clock: &mut Clock<'_>, budget: &dyn Budget) -> Outcome {
    let counts = tables[0].space.counts();
    let stop = || budget.stop().is_some();
    let mut best: Option<Best> = None;
    let mut complete = true;
    for (table, &zero) in tables.iter().zip(levels) {
        let result = brute::enumerate(table, &counts, 5_000_000, &stop);
        complete &= result.complete;
        clock.phase("brute force", result.plans);
        if let Some(candidate) = result.best
            && best.as_ref().is_none_or(|b| candidate.step < b.step)
        {
            best = Some(found(&candidate, zero));
        }
    }
    let Some(best) = best else {
        return Outcome::Infeasible(Infeasible {
            proven: complete,
            reasons: vec!["no plan of the space fits the memory of the devices (all were priced)".into()],
            relaxations: Vec::new(),
            stop: budget.stop(),
        });
    };
    let index = levels.iter().position(|&z| z == best.zero).unwrap_or(0);
    let setting = tables[index].space.setting;
    let mut cache = Cache::default();
    let Ok((mut prediction, entries)) = price(setting, &best.pipelines, &mut cache) else {
        return Outcome::Infeasible(Infeasible {
            proven: false,
            reasons: vec!["the best plan could not be priced".into()],
            relaxations: Vec::new(),
            stop: budget.stop(),
        });
    };
    if complete {
        prediction.bound_s = Some(prediction.step_time_s);
        prediction.gap = Some(0.0);
        prediction.bound_space = Some("full; every plan was priced".into());
    }
    let idle = idle(setting.cluster, &best.pipelines);
    let mut plan = Plan::build(
        setting.model,
        setting.cluster,
        setting.training.clone(),
        best.pipelines,
        idle,
    );
    plan.profile = ProfileRecord::from_entries(entries);
    plan.prediction = Some(prediction);
    plan.search = Some(SearchRecord {
        space: "full".into(),
        method: "brute".into(),
        stop_reason: if complete { "optimal" } else { "work-limit" }.into(),
        wall_s: Seconds(budget.elapsed().as_secs_f64()),
        first_plan_s: clock.first_plan.map(|d| Seconds(d.as_secs_f64())),
        plans_scored: clock.scored,
        seed: 0,
        reproducible: true,
        phases: std::mem::take(&mut clock.phases),
    });
    Outcome::Found(Box::new(plan))
}
