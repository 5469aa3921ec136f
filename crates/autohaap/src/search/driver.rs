//! The whole answer: the search at each ZeRO level, its bound, and what it is compared with.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::{Budget, Infeasible, Method, Outcome, Progress, SearchOptions, StopReason};
use super::baselines::{self, Baseline, Split};
use super::compare::{baseline_row, groups, losers};
use super::inputs::{able, idle, validate};
use super::ranking::{Best, found, simulated_first, sort};
use super::solve::{Effort, Solver};
use super::space::Space;
use super::table::Table;
use super::template::Template;
use super::tighten::tighten;
use super::{bound, brute, lattice, warm};
use crate::cluster::Cluster;
use crate::cost::atom::Setting;
use crate::cost::price::{Cache, price};
use crate::error::{Problem, Problems, search as codes};
use crate::model::Model;
use crate::plan::{Alternative, Alternatives, Phase, Plan, ProfileRecord, SearchRecord, Training};
use crate::units::Seconds;

/// Devices up to which the exhaustive search is tried.
const LATTICE_DEVICES: u32 = 16;

/// Steps of the exhaustive search times the devices: about two seconds at most. The fewer devices, the likelier it completes.
const LATTICE_WORK: u64 = 6_400_000;

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
        .map(|s| Space::new(s, options.max_micro_batch).restricted(options.space))
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
    let effort = if options.quick { QUICK } else { effort(&spaces[0]) };
    let floors: Vec<f64> = tables.iter().map(|t| bound::capacity(t, &counts)).collect();
    let mut floor = floors.iter().copied().fold(f64::INFINITY, f64::min);
    if !floor.is_finite() {
        floor = 0.0;
    }
    let mut ranked: Vec<Best> = baselines
        .values()
        .filter_map(|(b, _)| b.as_ref())
        .filter(|(b, zero)| {
            let index = levels.iter().position(|z| z == zero).unwrap_or(0);
            spaces[index].admits(&b.pipelines)
        })
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
        let falls = if i == 0 {
            effort.falls
        } else {
            effort.falls.div_ceil(3)
        };
        let effort = Effort {
            rounds,
            falls,
            ..effort
        };
        let mut solver = Solver::new(table, counts.clone(), effort, budget);
        if let Some(best) = ranked.iter().map(|r| r.step).min_by(f64::total_cmp) {
            solver.aim(best);
        }
        solver.start(&warm::templates(table, &options.start));
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
    if counts.iter().sum::<u32>() <= LATTICE_DEVICES && options.space.is_none() && !options.quick && !stop() {
        complete = true;
        let work = LATTICE_WORK / u64::from(counts.iter().sum::<u32>().max(1));
        for (table, &zero) in tables.iter().zip(&levels) {
            let incumbent = ranked.first().map_or(f64::INFINITY, |b| b.step);
            let closed = lattice::close(table, &counts, incumbent, work, &stop);
            complete &= closed.complete;
            if let Some(better) = closed.better {
                ranked.push(found(&better, zero));
                sort(&mut ranked);
            }
            clock.phase("exhaustive", closed.scored);
        }
    }
    let Some(mut best) = ranked.first().cloned() else {
        if let Some(space) = options.space {
            return Ok(Outcome::Infeasible(nothing_in(space, budget)));
        }
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
    } else if !options.quick && !stop() {
        let refuted = tighten(&tables, &counts, &duals, [floor, best.step], options.gap, &stop);
        if refuted > bound_s {
            bound_s = refuted;
            bound_kind = "LP duality over pipeline templates with fill, depth and memory";
        }
        clock.phase("bound", 0);
    }
    // An optimum stays; of plans that the estimate cannot tell apart the simulation decides, but never for one that is
    // slower than a baseline.
    let ceiling = baselines
        .values()
        .filter_map(|(b, _)| b.as_ref())
        .map(|(b, _)| b.step)
        .fold(f64::INFINITY, f64::min);
    let near: Vec<&Best> = if complete {
        Vec::new()
    } else {
        ranked.iter().filter(|r| r.step <= ceiling).collect()
    };
    let mut simulated = simulated_first(&settings, &levels, &near, &mut best, &stop);
    clock.phase("simulation", simulated.count);
    // A search on fewer classes may find what the search on all missed.
    let (fastest, without) = loop {
        if options.quick {
            break not_asked();
        }
        let index = levels.iter().position(|&z| z == best.zero).unwrap_or(0);
        let pool = pools.get(index).map_or(&[][..], Vec::as_slice);
        let (fastest, without, better) = groups(&tables[index], pool, &counts, &best, budget);
        let Some(better) = better else {
            break (fastest, without);
        };
        ranked.push(better.clone());
        sort(&mut ranked);
        best = better;
        simulated = simulated_first(&settings, &levels, &[], &mut best, &stop);
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
    prediction.step_time_simulated_s = simulated.step_time;
    let bound_s = bound_s.min(prediction.step_time_s.0);
    prediction.bound_s = Some(Seconds(bound_s));
    prediction.gap = Some(1.0 - bound_s / prediction.step_time_s.0);
    prediction.bound_space = Some(format!(
        "{}, in-order 1F1B with free depths, whole layers, one class per stage, equal rows, up to {} rows per replica; {bound_kind}",
        options.space.map_or("full", |s| s.name),
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
        space: options.space.map_or("full", |s| s.name).into(),
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
            falls: 16,
        },
        17..=128 => Effort {
            rounds: 14,
            beam: 4,
            pack_nodes: 20_000,
            polish: 100,
            finalists: 3,
            falls: 3,
        },
        _ => Effort {
            rounds: 6,
            beam: 3,
            pack_nodes: 20_000,
            polish: 40,
            finalists: 2,
            falls: 1,
        },
    }
}

/// Effort of a search that answers soon.
const QUICK: Effort = Effort {
    rounds: 1,
    beam: 2,
    pack_nodes: 5_000,
    polish: 30,
    finalists: 1,
    falls: 4,
};

/// Device groups of a search that answers soon.
fn not_asked() -> (Alternative, BTreeMap<String, Alternative>) {
    let none = Alternative {
        label: "fastest class only".into(),
        feasible: false,
        step_time_s: None,
        reason: "not worked out: a quick search was asked for".into(),
    };
    (none, BTreeMap::new())
}

/// No plan of a named space was found: not a proof, since the search works on the full space and keeps its members.
fn nothing_in(space: &super::NamedSpace, budget: &dyn Budget) -> Infeasible {
    Infeasible {
        proven: false,
        reasons: vec![format!(
            "no plan of the space `{}` was found: {}",
            space.name, space.summary
        )],
        relaxations: vec!["--space full".into()],
        stop: budget.stop(),
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
