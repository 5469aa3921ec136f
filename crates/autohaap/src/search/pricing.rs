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
    /// Whether the prices come from an LP, so that only templates worth more than their price matter.
    pub(super) cut: bool,
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

/// Ratio of neighbouring micro-batch counts tried.
const GRID_STEP: f64 = 1.6;

/// Micro-batch counts tried, up to `most`: a geometric grid.
fn grid(most: u32) -> Vec<u32> {
    let mut values = Vec::new();
    let mut m = 1.0_f64;
    while (m as u32) < most {
        values.push(m as u32);
        m = (m * GRID_STEP).max(m + 1.0);
    }
    values.push(most);
    values
}

/// Templates found, the best of each (micro-batch size, micro-batch count) in canonical order; fewer if stopped.
pub(super) fn price(table: &Table<'_>, round: Round<'_>, stop: &(dyn Fn() -> bool + Sync)) -> Vec<Template> {
    let batch = table.space.setting.training.global_batch;
    let mut tasks = Vec::new();
    for &b in &table.space.micro_batches {
        for m in grid((batch / u64::from(b)).min(4096) as u32) {
            tasks.push((b, m));
        }
    }
    let mut found: Vec<Template> = tasks
        .par_iter()
        .flat_map_iter(|&(b, m)| extend(table, round, b, m, stop))
        .collect();
    found.sort_by_key(Template::key);
    found.dedup_by_key(|t| t.key());
    found
}

/// Templates for `copies` equal pipelines that share the batch and the devices: each with its number of copies.
///
/// LP prices say little where a plan consists of one to a few large pipelines; here the time, the share of the devices
/// and the micro-batches are given, and any template that meets them will do.
pub(super) fn equal_shares(
    table: &Table<'_>,
    round: Round<'_>,
    copies: &[u32],
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<(u32, Template)> {
    let batch = table.space.setting.training.global_batch;
    let mut tasks = Vec::new();
    for &k in copies {
        for &b in &table.space.micro_batches {
            let each = u64::from(b) * u64::from(k);
            if each <= batch {
                tasks.push((k, b, batch.div_ceil(each) as u32));
            }
        }
    }
    let mut found: Vec<(u32, Template)> = tasks
        .par_iter()
        .flat_map_iter(|&(k, b, m)| {
            let counts: Vec<u32> = round.counts.iter().map(|n| n / k).collect();
            let share = Round {
                counts: &counts,
                ..round
            };
            extend(table, share, b, m, stop)
                .into_iter()
                .map(move |t| (k, t))
                .collect::<Vec<_>>()
        })
        .collect();
    found.sort_by_key(|(k, t)| (*k, t.key()));
    found.dedup_by_key(|(k, t)| (*k, t.key()));
    found
}

/// The cheapest templates of one micro-batch size and count; none if stopped.
fn extend(
    table: &Table<'_>,
    round: Round<'_>,
    micro_batch: u32,
    micro_batches: u32,
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<Template> {
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
    // Cheapest way to run the atoms before a position, fill ignored.
    let mut before = vec![0.0; num_atoms + 1];
    for i in 0..num_atoms {
        let cheapest = rows
            .iter()
            .map(|r| {
                round.prices[r.option.class] * f64::from(r.option.devices()) * r.compute(i, i + 1) * m
                    / round.time
            })
            .fold(f64::INFINITY, f64::min);
        before[i + 1] = before[i] + cheapest;
    }
    // A template enters the LP only if it finishes more than its devices' prices; it may do up to a grid step more
    // micro-batches than it is priced for.
    let cutoff = if round.cut {
        f64::from(micro_batch) * m * GRID_STEP
    } else {
        f64::INFINITY
    };
    if before[num_atoms] >= cutoff {
        return Vec::new();
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
        if labels.is_empty() {
            continue;
        }
        for (row_index, row) in rows.iter().enumerate() {
            if stop() {
                return Vec::new();
            }
            let class = row.option.class;
            let devices = row.option.devices();
            let price = round.prices[class] * f64::from(devices);
            let holders = row.holders(round.others + row.option.replicas);
            // The largest range that meets the time, then smaller ones, until three have made a stage.
            let mut a = (0..end)
                .rev()
                .find(|&a| m * row.compute(a, end) > round.time)
                .map_or(0, |a| a + 1);
            let mut tried = 0;
            while a < end && tried < 3 {
                let mut made = false;
                let mut range: Option<Range> = None;
                for &label_index in &labels {
                    let label = &arena[label_index];
                    let cost = label.cost + price;
                    if u32::from(label.used[class]) + devices > round.counts[class]
                        || cost + before[a] >= cutoff
                    {
                        continue;
                    }
                    let link = match label.row {
                        None => 0.0,
                        Some(next) => match links[row_index][next] {
                            Some(seconds) => seconds,
                            None => continue,
                        },
                    };
                    let stage = row.times(a, end);
                    if too_slow(stage, link, &label.suffix, micro_batches, round.time) {
                        continue;
                    }
                    let range =
                        range.get_or_insert_with(|| Range::new(table, row, (a, end), holders, micro_batches));
                    if let Some((depth, suffix)) = range.stage(table, row, link, &label.suffix, round.time) {
                        made = true;
                        let mut used = label.used;
                        used[class] += devices as u16;
                        let next = Label {
                            cost,
                            suffix,
                            row: Some(row_index),
                            end,
                            depth,
                            parent: label_index,
                            used,
                        };
                        arena.push(next);
                        at[a].push(arena.len() - 1);
                    }
                }
                tried += u32::from(made);
                // Where memory or time refuses, skip ahead; else step by one.
                a += if made { 1 } else { ((end - a) / 6).max(1) };
            }
        }
    }
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

/// An atom range on a row: what does not depend on the stages after it, computed once.
struct Range {
    atoms: (usize, usize),
    holders: Holders,
    micro_batches: u32,
    /// Deepest limit with any recompute, up to [`DEEPEST`].
    deepest: u32,
    /// Deepest limit without recompute.
    shallow: u32,
    tail: f64,
    /// Forward and backward seconds by depth.
    fits: Vec<(u32, Option<(f64, f64)>)>,
}

/// Deepest in-flight limit that pricing considers.
const DEEPEST: u32 = 48;

impl Range {
    fn new(
        table: &Table<'_>,
        row: &Row,
        atoms: (usize, usize),
        holders: Holders,
        micro_batches: u32,
    ) -> Self {
        let most = micro_batches.min(DEEPEST);
        let depths = row.depths(table.space, atoms, most, holders);
        let tail = row.optimizer(table.space, atoms.0, atoms.1, holders);
        Self {
            atoms,
            holders,
            micro_batches,
            deepest: depths.any,
            shallow: depths.plain,
            tail,
            fits: Vec::new(),
        }
    }

    fn fit(&mut self, table: &Table<'_>, row: &Row, depth: u32) -> Option<(f64, f64)> {
        // Without recompute all depths up to the limit cost the same.
        if depth <= self.shallow {
            return Some(row.times(self.atoms.0, self.atoms.1));
        }
        if let Some(known) = self.fits.iter().find(|f| f.0 == depth) {
            return known.1;
        }
        let made = row
            .fit(table.space, self.atoms, depth, self.holders)
            .map(|f| (f.forward, f.backward));
        self.fits.push((depth, made));
        made
    }

    /// The stage before a suffix: its depth and the longer suffix, if it fits memory and time.
    fn stage(
        &mut self,
        table: &Table<'_>,
        row: &Row,
        link: f64,
        suffix: &Suffix,
        time: f64,
    ) -> Option<(u32, Suffix)> {
        let floor = suffix.depth.min(self.micro_batches).max(1);
        let limit = self.deepest.min(suffix.depth + super::lattice::DEPTH_STEP);
        if limit < floor {
            return None;
        }
        let mut best: Option<(u32, Suffix)> = None;
        let mut tried = [0u32; 4];
        // As deep as memory allows without recompute, the least depth, one more, and as deep as it goes.
        for (i, w) in [self.shallow.min(limit), floor, floor + 1, limit]
            .into_iter()
            .enumerate()
        {
            if w < floor || w > limit || tried[..i].contains(&w) {
                continue;
            }
            tried[i] = w;
            let Some((forward, backward)) = self.fit(table, row, w) else {
                continue;
            };
            let stage = StageTime {
                forward,
                backward,
                link_forward: link,
                link_backward: link,
            };
            if let Some((depth, longer)) = best_depth(&stage, suffix, self.micro_batches, w, self.tail)
                && longer.step <= time
                && best.is_none_or(|kept| longer.span < kept.1.span)
            {
                best = Some((depth, longer));
            }
        }
        best
    }
}

/// Whether a stage before the suffix cannot meet the time at any depth that pricing considers, even without recompute:
/// the first and the last micro-batch travel to the end and back, and between them the stage runs the others.
fn too_slow(
    (forward, backward): (f64, f64),
    link: f64,
    suffix: &Suffix,
    micro_batches: u32,
    time: f64,
) -> bool {
    let compute = forward + backward;
    let hop = compute + 2.0 * link;
    let deepest = suffix.depth + super::lattice::DEPTH_STEP;
    let own = if micro_batches > deepest {
        2.0 * hop + suffix.first_trip + suffix.last_trip + f64::from(micro_batches - deepest - 1) * compute
    } else {
        0.0
    };
    own.max(hop + suffix.span).max(forward + link + suffix.step) > time
}

/// Keeps labels that no other beats in cost, span, step, first trip and depth: the cheapest half of `beam`, and the rest
/// spread over the front up to the fastest.
fn prune(labels: &mut [usize], arena: &[Label], beam: usize) -> Vec<usize> {
    labels.sort_by(|&x, &y| {
        let (a, b) = (&arena[x], &arena[y]);
        a.cost
            .total_cmp(&b.cost)
            .then(a.suffix.step.total_cmp(&b.suffix.step))
            .then(x.cmp(&y))
    });
    let mut front: Vec<usize> = Vec::new();
    for &x in labels.iter() {
        let a = &arena[x];
        let beaten = front.iter().any(|&y| {
            let b = &arena[y];
            b.suffix.span <= a.suffix.span
                && b.suffix.step <= a.suffix.step
                && b.suffix.first_trip <= a.suffix.first_trip
                && b.suffix.depth <= a.suffix.depth
        });
        if !beaten {
            front.push(x);
            if front.len() >= 4 * beam {
                break;
            }
        }
    }
    if front.len() <= beam {
        return front;
    }
    let cheap = beam.div_ceil(2);
    let spread = beam - cheap;
    let mut kept: Vec<usize> = front[..cheap].to_vec();
    for i in 1..=spread {
        kept.push(front[cheap - 1 + i * (front.len() - cheap) / spread]);
    }
    kept
}
