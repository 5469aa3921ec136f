//! What every answer is compared with: the best uniform plan and the hand splits people make.
//!
//! A uniform plan uses all devices with one (tp, pp, dp), layers as equal as the count allows and one recompute setting;
//! its stages are blocks of devices in the order of the classes. A hand split keeps the blocks and gives each stage
//! layers in proportion to the FLOPs or to the memory of its devices.

use rayon::prelude::*;

use crate::cost::atom::bytes_per_parameter;
use crate::cost::price::{Below, Cache, price_below};
use crate::plan::{Pipeline, Recompute, RecomputeRange, Replica, Schedule, ScheduleKind, Stage};

use super::placement::DeviceAt;
use super::space::Space;

/// How layers are divided over the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// Equal counts, the remainder on the first stages.
    Equal,
    /// Proportional to the peak FLOPs of the stage's devices.
    Flops,
    /// Proportional to the memory of the stage's devices.
    Memory,
}

/// A baseline plan with its exact price.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    /// For example `tp8 pp2 dp2, micro-batch 1`.
    pub(super) label: String,
    /// Placed pipelines.
    pub(super) pipelines: Vec<Pipeline>,
    /// Exact step time, seconds.
    pub(super) step: f64,
}

/// Degrees of a uniform plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Degrees {
    order: usize,
    tp: u32,
    pp: usize,
}

/// The best plan of one split below `limit` seconds; else the reason. Also the number of plans priced.
pub(super) fn best(
    space: &Space<'_>,
    split: Split,
    limit: f64,
    stop: &(dyn Fn() -> bool + Sync),
) -> (Option<Baseline>, String, u64) {
    let num_atoms = space.setting.model.atoms.len();
    let lines: Vec<Vec<(usize, DeviceAt)>> = orders(space)
        .iter()
        .map(|order| {
            order
                .iter()
                .flat_map(|&c| {
                    space.classes[c]
                        .nodes
                        .iter()
                        .flat_map(move |&(node, first, count)| {
                            (first..first + count).map(move |i| (c, (node, i)))
                        })
                })
                .collect()
        })
        .collect();
    let mut tasks = Vec::new();
    for (order, devices) in lines.iter().enumerate() {
        let total = devices.len();
        for &tp in &space.tps {
            if !total.is_multiple_of(tp as usize) || !groups_stay_in_nodes(devices, tp as usize) {
                continue;
            }
            let groups = total / tp as usize;
            for pp in (1..=num_atoms.min(groups)).filter(|pp| groups.is_multiple_of(*pp)) {
                tasks.push(Degrees { order, tp, pp });
            }
        }
    }
    // Two halves with a cache each; the incumbent of a half prunes the rest of it. Which half a task is in is fixed, so
    // the result does not depend on the number of threads.
    let halves: Vec<Vec<Degrees>> = (0..2)
        .map(|h| {
            tasks
                .iter()
                .copied()
                .enumerate()
                .filter(|(i, _)| i % 2 == h)
                .map(|(_, t)| t)
                .collect()
        })
        .collect();
    let results: Vec<(Option<Baseline>, u64)> = halves
        .par_iter()
        .map(|half| {
            let mut cache = Cache::default();
            let mut best: Option<Baseline> = None;
            let mut scored = 0;
            for &degrees in half {
                if stop() {
                    break;
                }
                scored += one(
                    space,
                    split,
                    &lines[degrees.order],
                    degrees,
                    limit,
                    &mut best,
                    &mut cache,
                );
            }
            (best, scored)
        })
        .collect();
    let scored = results.iter().map(|r| r.1).sum();
    let best = results
        .into_iter()
        .filter_map(|r| r.0)
        .min_by(|a, b| a.step.total_cmp(&b.step).then_with(|| a.label.cmp(&b.label)));
    let reason = if best.is_some() {
        String::new()
    } else if stop() {
        "not worked out: the search was stopped".into()
    } else if tasks.is_empty() {
        "no (tp, pp, dp) divides the devices, the heads and the batch".into()
    } else {
        format!("none of {scored} choices of (tp, pp, dp) fits in memory")
    };
    (best, reason, scored)
}

/// Prices the plans of one set of degrees: every legal EP and row count, the least recompute that fits.
fn one(
    space: &Space<'_>,
    split: Split,
    devices: &[(usize, DeviceAt)],
    degrees: Degrees,
    limit: f64,
    best: &mut Option<Baseline>,
    cache: &mut Cache,
) -> u64 {
    let Degrees { tp, pp, .. } = degrees;
    let total = devices.len();
    let dp = total / tp as usize / pp;
    let blocks: Vec<&[(usize, DeviceAt)]> = devices.chunks(total / pp).collect();
    let Some(cuts) = cuts(space, &blocks, split) else {
        return 0;
    };
    let mut scored = 0;
    for ep in expert_degrees(space, (total / pp) as u32) {
        if least_state(space, total, tp, pp, ep) > most_memory(space) {
            continue;
        }
        'rows: for &rows in space
            .micro_batches
            .iter()
            .filter(|rows| **rows <= space.max_rows())
        {
            let per_round = u64::from(rows) * dp as u64;
            if !space.setting.training.global_batch.is_multiple_of(per_round) {
                continue;
            }
            let micro_batches = (space.setting.training.global_batch / per_round) as u32;
            for mode in [Recompute::None, Recompute::Selective, Recompute::Full] {
                scored += 1;
                let below = best.as_ref().map_or(limit, |b| b.step);
                let pipelines = vec![pipeline(
                    space,
                    &blocks,
                    &cuts,
                    tp,
                    dp,
                    rows,
                    micro_batches,
                    ep,
                    mode,
                )];
                let step = match price_below(space.setting, &pipelines, cache, below) {
                    Ok(Below::Step(step)) => step,
                    // More rows only take more memory.
                    Ok(Below::Over) if mode == Recompute::Full => break 'rows,
                    Ok(Below::Over) => continue,
                    // More recompute is only slower.
                    Ok(Below::Slow) | Err(_) => break,
                };
                let expert = if ep > 1 { format!(" ep{ep}") } else { String::new() };
                let again = match mode {
                    Recompute::None => "",
                    Recompute::Selective => ", selective recompute",
                    Recompute::Full => ", full recompute",
                };
                *best = Some(Baseline {
                    label: format!("tp{tp} pp{pp} dp{dp}{expert}, micro-batch {rows}{again}"),
                    pipelines,
                    step: step.0,
                });
                break;
            }
        }
    }
    scored
}

/// Static bytes of an average stage's device: weights and gradients by their sharding, optimizer over all devices. The
/// fullest stage holds no less.
fn least_state(space: &Space<'_>, total: usize, tp: u32, pp: usize, ep: u32) -> f64 {
    let training = space.setting.training;
    let (weight, gradient, state) = bytes_per_parameter(training);
    // Levels 2 and 3 divide gradients and weights too: only the optimizer's share is certain.
    let local = match training.zero {
        0 | 1 => weight + gradient,
        2 => weight,
        _ => 0.0,
    };
    let (dense, expert) = space.parameters;
    let stages = pp as f64;
    let own =
        dense * local / (f64::from(tp) * stages) + expert * (weight + gradient) / (f64::from(ep) * stages);
    own + (dense + expert) * state / total as f64
}

fn most_memory(space: &Space<'_>) -> f64 {
    space.classes.iter().map(|c| c.memory_limit.0).fold(0.0, f64::max)
}

/// Class orders to try: as listed, by speed and by memory, fastest or largest first and last.
fn orders(space: &Space<'_>) -> Vec<Vec<usize>> {
    let listed: Vec<usize> = (0..space.classes.len()).collect();
    let mut by_speed = listed.clone();
    by_speed.sort_by(|&a, &b| peak(space, b).total_cmp(&peak(space, a)).then(a.cmp(&b)));
    let mut by_memory = listed.clone();
    by_memory.sort_by(|&a, &b| {
        space.classes[b]
            .memory_limit
            .0
            .total_cmp(&space.classes[a].memory_limit.0)
            .then(a.cmp(&b))
    });
    let reversed = by_speed.iter().rev().copied().collect();
    let mut orders = vec![listed, by_speed, by_memory, reversed];
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for order in orders.drain(..) {
        if !kept.contains(&order) {
            kept.push(order);
        }
    }
    kept
}

/// Peak of a device of the class at the training precision, FLOP/s.
pub(super) fn peak(space: &Space<'_>, class: usize) -> f64 {
    let c = &space.classes[class];
    space
        .setting
        .cluster
        .device_types
        .get(&c.device_type)
        .and_then(|d| d.peak(space.setting.training.precision))
        .map_or(0.0, |p| p.value.0)
        * c.speed_factor
}

fn groups_stay_in_nodes(devices: &[(usize, DeviceAt)], tp: usize) -> bool {
    devices
        .chunks(tp)
        .all(|g| g.iter().all(|d| d.0 == g[0].0 && d.1.0 == g[0].1.0))
}

fn expert_degrees(space: &Space<'_>, devices: u32) -> Vec<u32> {
    if space.experts.is_empty() {
        return vec![1];
    }
    (1..=devices)
        .filter(|&ep| {
            devices.is_multiple_of(ep) && space.experts.iter().all(|e| e.is_multiple_of(u64::from(ep)))
        })
        .collect()
}

/// Cut positions of the atoms over the blocks; `None` if a stage would be empty.
fn cuts(space: &Space<'_>, blocks: &[&[(usize, DeviceAt)]], split: Split) -> Option<Vec<usize>> {
    let atoms = &space.setting.model.atoms;
    let num_layers = atoms.len().checked_sub(2)?;
    let weight = |block: &[(usize, DeviceAt)]| -> f64 {
        match split {
            Split::Equal => 1.0,
            Split::Flops => block.iter().map(|d| peak(space, d.0)).sum(),
            Split::Memory => block.iter().map(|d| space.classes[d.0].memory_limit.0).sum(),
        }
    };
    let weights: Vec<f64> = blocks.iter().map(|b| weight(b)).collect();
    let sum: f64 = weights.iter().sum();
    // Largest remainders; every stage gets at least one layer.
    let exact: Vec<f64> = weights.iter().map(|w| w / sum * num_layers as f64).collect();
    let mut layers: Vec<usize> = exact.iter().map(|x| (*x as usize).max(1)).collect();
    let mut given: usize = layers.iter().sum();
    while given < num_layers {
        let at = (0..layers.len()).max_by(|&a, &b| {
            (exact[a] - layers[a] as f64)
                .total_cmp(&(exact[b] - layers[b] as f64))
                .then(b.cmp(&a))
        })?;
        layers[at] += 1;
        given += 1;
    }
    while given > num_layers {
        let at = (0..layers.len()).filter(|&i| layers[i] > 1).max_by(|&a, &b| {
            (layers[a] as f64 - exact[a])
                .total_cmp(&(layers[b] as f64 - exact[b]))
                .then(a.cmp(&b))
        })?;
        layers[at] -= 1;
        given -= 1;
    }
    // The embedding goes with the first stage, the head with the last.
    let mut cuts = vec![0];
    let mut at = 1;
    for (i, n) in layers.iter().enumerate() {
        at += n;
        cuts.push(if i + 1 == layers.len() { atoms.len() } else { at });
    }
    Some(cuts)
}

#[expect(clippy::too_many_arguments, reason = "the degrees of a uniform plan")]
fn pipeline(
    space: &Space<'_>,
    blocks: &[&[(usize, DeviceAt)]],
    cuts: &[usize],
    tp: u32,
    dp: usize,
    rows: u32,
    micro_batches: u32,
    ep: u32,
    mode: Recompute,
) -> Pipeline {
    let cluster = space.setting.cluster;
    let num_stages = blocks.len();
    let stages = blocks
        .iter()
        .enumerate()
        .map(|(s, block)| {
            let atoms = [cuts[s], cuts[s + 1]];
            let routed = space.setting.parts[atoms[0]..atoms[1]]
                .iter()
                .any(|p| p.experts > 0);
            Stage {
                atoms,
                in_flight: ((num_stages - s) as u32).min(micro_batches),
                recompute: if mode == Recompute::None {
                    Vec::new()
                } else {
                    vec![RecomputeRange { atoms, mode }]
                },
                ep: if routed { ep } else { 1 },
                etp: 1,
                replicas: block
                    .chunks(tp as usize)
                    .map(|group| Replica {
                        devices: group.iter().map(|d| cluster.device_name(d.1.0, d.1.1)).collect(),
                        tp,
                        cp: 1,
                        rows,
                    })
                    .collect(),
                on_stage: None,
            }
        })
        .collect();
    Pipeline {
        micro_batch: rows * dp as u32,
        micro_batches,
        schedule: Schedule {
            kind: ScheduleKind::OneF1b,
            file: None,
        },
        stages,
    }
}
