//! Pricing: for a step time T and prices per class, templates that finish many micro-batches per priced device.
//!
//! Built from the last stage to the first. A label is a suffix of stages with its cost and time ([`Suffix`]); a beam of
//! labels per position is kept. Only the finding of templates is bounded by the beam; bounds use
//! [`super::bound`], which keeps every label.

use std::sync::Arc;

use rayon::prelude::*;

use crate::cost::pipeline::{StageTime, Suffix, best_depth};

use super::table::{Holders, Row, Table};
use super::template::{Template, TemplateStage};

/// Parameters of one pricing round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round<'p> {
    /// Step time to meet, seconds.
    pub(super) time: f64,
    /// Price per device of each class.
    pub(super) prices: &'p [f64],
    /// Devices available per class.
    pub(super) counts: &'p [u32],
    /// Replicas that other pipelines add to each atom's holders.
    pub(super) others: u32,
    /// Labels kept per position.
    pub(super) beam: usize,
}

#[derive(Clone)]
struct Label {
    cost: f64,
    suffix: Suffix,
    row: Option<usize>,
    end: usize,
    depth: u32,
    parent: usize,
    used: [u16; MAX_CLASSES],
}

/// Classes whose devices a label counts exactly; clusters with more are merged before the search.
pub(super) const MAX_CLASSES: usize = 8;

/// Micro-batch counts tried, up to `most`: a geometric grid.
fn grid(most: u32) -> Vec<u32> {
    let mut values = Vec::new();
    let mut m = 1.0_f64;
    while (m as u32) < most {
        values.push(m as u32);
        m = (m * 1.45).max(m + 1.0);
    }
    values.push(most);
    values
}

/// Templates found, the best of each (micro-batch size, micro-batch count) in canonical order.
pub(super) fn price(table: &Table<'_>, round: Round<'_>) -> Vec<Template> {
    let batch = table.space.setting.training.global_batch;
    let mut tasks = Vec::new();
    for &b in &table.space.micro_batches {
        for m in grid((batch / u64::from(b)).min(4096) as u32) {
            tasks.push((b, m));
        }
    }
    let mut found: Vec<Template> = tasks
        .par_iter()
        .flat_map_iter(|&(b, m)| extend(table, round, b, m))
        .collect();
    found.sort_by_key(Template::key);
    found.dedup_by_key(|t| t.key());
    found
}

/// The cheapest templates of one micro-batch size and count.
fn extend(table: &Table<'_>, round: Round<'_>, micro_batch: u32, micro_batches: u32) -> Vec<Template> {
    let space = table.space;
    let num_atoms = space.setting.model.atoms.len();
    let rows: Vec<&Arc<Row>> = table
        .of_size(micro_batch)
        .iter()
        .filter(|r| r.option.devices() <= round.counts[r.option.class])
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let m = f64::from(micro_batches);
    // Cheapest way to run the atoms before a position, fill ignored: guides the beam.
    let mut floor = vec![0.0; num_atoms + 1];
    for i in 0..num_atoms {
        let cheapest = rows
            .iter()
            .map(|r| {
                round.prices[r.option.class] * f64::from(r.option.devices()) * r.compute(i, i + 1) * m
                    / round.time
            })
            .fold(f64::INFINITY, f64::min);
        floor[i + 1] = floor[i] + cheapest;
    }
    let links: Vec<Vec<Option<f64>>> = rows
        .iter()
        .map(|from| rows.iter().map(|to| table.link(from, to, false)).collect())
        .collect();
    let mut arena: Vec<Label> = vec![Label {
        cost: 0.0,
        suffix: Suffix::EMPTY,
        row: None,
        end: num_atoms,
        depth: 1,
        parent: usize::MAX,
        used: [0; MAX_CLASSES],
    }];
    let mut at: Vec<Vec<usize>> = vec![Vec::new(); num_atoms + 1];
    at[num_atoms].push(0);
    for end in (1..=num_atoms).rev() {
        let labels = prune(&mut at[end], &arena, round.beam);
        for label_index in labels {
            let label = arena[label_index].clone();
            for (row_index, row) in rows.iter().enumerate() {
                let class = row.option.class;
                let devices = row.option.devices();
                if u32::from(label.used[class]) + devices > round.counts[class] {
                    continue;
                }
                let link = match label.row {
                    None => 0.0,
                    Some(next) => match links[row_index][next] {
                        Some(seconds) => seconds,
                        None => continue,
                    },
                };
                let cost = label.cost + round.prices[class] * f64::from(devices);
                let holders = row.holders(round.others + row.option.replicas);
                let least = (0..end)
                    .rev()
                    .find(|&a| m * row.compute(a, end) > round.time)
                    .map_or(0, |a| a + 1);
                let mut tried = 0;
                let mut a = least;
                // The largest range that fits first, then a few smaller ones.
                while a < end && tried < 3 {
                    let made = stage(
                        table,
                        row,
                        (a, end),
                        link,
                        &label.suffix,
                        micro_batches,
                        holders,
                        round.time,
                    );
                    if let Some((depth, suffix)) = made {
                        tried += 1;
                        let mut used = label.used;
                        used[class] += devices as u16;
                        arena.push(Label {
                            cost,
                            suffix,
                            row: Some(row_index),
                            end,
                            depth,
                            parent: label_index,
                            used,
                        });
                        at[a].push(arena.len() - 1);
                    }
                    // Where memory or time refuses, halve the distance; else step by one.
                    a += if made.is_none() { ((end - a) / 6).max(1) } else { 1 };
                }
            }
        }
    }
    let _ = &floor;
    let best = prune(&mut at[0], &arena, 3);
    best.into_iter()
        .map(|index| {
            let mut stages = Vec::new();
            let mut current = index;
            let mut start = 0;
            while let Some(row) = arena[current].row {
                let label = &arena[current];
                stages.push(TemplateStage {
                    row: rows[row].clone(),
                    atoms: (start, label.end),
                    depth: label.depth,
                });
                start = label.end;
                current = label.parent;
            }
            Template { micro_batch, stages }
        })
        .collect()
}

/// A stage before a suffix: its depth and the longer suffix, if it fits memory and time.
#[expect(
    clippy::too_many_arguments,
    reason = "one call site; a struct would only rename the arguments"
)]
pub(super) fn stage(
    table: &Table<'_>,
    row: &Row,
    range: (usize, usize),
    link: f64,
    suffix: &Suffix,
    micro_batches: u32,
    holders: Holders,
    time: f64,
) -> Option<(u32, Suffix)> {
    let tail = row.optimizer(table.space, range.0, range.1, holders);
    let deepest_needed = micro_batches.min(suffix.depth + 8);
    let deepest = row.deepest(table.space, range, deepest_needed, holders, true);
    if deepest < suffix.depth.min(micro_batches) {
        return None;
    }
    let attempt = |w: u32| -> Option<(u32, Suffix)> {
        let fit = row.fit(table.space, range, w, holders)?;
        let stage = StageTime {
            forward: fit.forward,
            backward: fit.backward,
            link_forward: link,
            link_backward: link,
        };
        let (depth, longer) = best_depth(&stage, suffix, micro_batches, w, tail)?;
        (longer.step <= time).then_some((depth, longer))
    };
    // Without recompute as deep as memory allows, and as deep as helps at all.
    let shallow = row
        .deepest(table.space, range, deepest_needed, holders, false)
        .min(deepest);
    let mut best: Option<(u32, Suffix)> = None;
    let mut depths = vec![shallow, suffix.depth, suffix.depth + 1, deepest];
    depths.retain(|&w| w >= suffix.depth.min(micro_batches) && w >= 1 && w <= deepest);
    depths.dedup();
    for w in depths {
        if let Some(made) = attempt(w)
            && best.is_none_or(|kept| made.1.span < kept.1.span)
        {
            best = Some(made);
        }
    }
    best
}

/// Keeps the labels that no other beats in cost, span, step, round trip and depth, the cheapest first, at most `beam`.
fn prune(labels: &mut Vec<usize>, arena: &[Label], beam: usize) -> Vec<usize> {
    labels.sort_by(|&x, &y| {
        let (a, b) = (&arena[x], &arena[y]);
        a.cost
            .total_cmp(&b.cost)
            .then(a.suffix.step.total_cmp(&b.suffix.step))
            .then(x.cmp(&y))
    });
    let mut kept: Vec<usize> = Vec::new();
    for &x in labels.iter() {
        let a = &arena[x];
        let beaten = kept.iter().any(|&y| {
            let b = &arena[y];
            b.cost <= a.cost
                && b.suffix.span <= a.suffix.span
                && b.suffix.step <= a.suffix.step
                && b.suffix.first_trip <= a.suffix.first_trip
                && b.suffix.depth <= a.suffix.depth
        });
        if !beaten {
            kept.push(x);
            if kept.len() >= beam {
                break;
            }
        }
    }
    kept
}
