//! What the answer is compared with: the value of each device group, the plans that lost and why.

use std::collections::BTreeMap;

use super::api::Budget;
use super::baselines::{self, Baseline};
use super::bound;
use super::ranking::{Best, found};
use super::solve::{Effort, Solver};
use super::space::Space;
use super::table::Table;
use super::template::Template;
use crate::cost::atom::Setting;
use crate::cost::price::{Cache, price};
use crate::plan::{Alternative, Pipeline, Prediction};
use crate::units::Seconds;
/// The best plan on the fastest class alone, and the step time without each device group; also the best plan found on
/// the way if it is faster than `best`.
pub(super) fn groups(
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
        falls: 3,
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

pub(super) fn baseline_row((found, why): &(Option<(Baseline, u8)>, String), best: f64) -> Alternative {
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
pub(super) fn losers(
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
