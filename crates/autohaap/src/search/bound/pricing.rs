//! Pricing that proves: whether any template at given prices finishes so many micro-batches for less than a cutoff.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cost::pipeline::StageTime;
use crate::search::pricing::MAX_CLASSES;
use crate::search::table::{Holders, Row, Table};

use super::labels::{Apart, Label, merge};
use super::stages::Stages;

/// What the bound relaxes; tests show that less is not enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relaxation {
    /// In-flight limits as deep as memory allows, not 1.
    pub(crate) depth: bool,
    /// All labels that no other beats, or their component-wise minimum; not just the cheapest.
    pub(crate) labels: bool,
    /// The most holders a plan can have, not the stage's own replicas.
    pub(crate) holders: bool,
}

impl Relaxation {
    /// Everything that a valid bound needs.
    pub(crate) const FULL: Self = Self {
        depth: true,
        labels: true,
        holders: true,
    };
}

/// Labels at a position before they are merged early.
const CROWD: usize = 1024;

/// Multipliers of the fill in the cost of what is still to come, relative to the mean price.
const FILL_PRICES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Pipelines of `least` to `most` devices: what is left, and so the replicas of other pipelines, is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    least: u32,
    most: u32,
}

impl Share {
    /// All numbers of devices up to `total`, the largest alone.
    pub(super) fn all(total: u32) -> Vec<Self> {
        let mut shares = Vec::new();
        let (mut most, mut width) = (total, 1);
        while most > 0 {
            let least = (most + 1).saturating_sub(width).max(1);
            // Of small shares no stage can tell how many others there are.
            let least = if 2 * least <= total { 1 } else { least };
            shares.push(Self { least, most });
            most = least - 1;
            width *= 2;
        }
        shares
    }

    /// The most holders of a stage under `row`: its own, and every device left with a replica of all.
    pub(super) fn holders(self, row: &Row, total: u32) -> Holders {
        let own = row.holders(row.option.replicas);
        let left = total - self.least;
        Holders {
            replicas: own.replicas + left,
            experts: own.experts + left,
        }
    }
}

/// Everything of one micro-batch size.
pub(super) struct Size {
    stages: Vec<Stages>,
    /// Least link seconds from a row to a group; `None` where no path exists.
    links: Vec<Vec<Option<f64>>>,
}

/// Rows, links and stages of every micro-batch size; `holders` of a row's stages bounds those of any plan.
pub(super) fn sizes(
    table: &Table<'_>,
    counts: &[u32],
    holders: impl Fn(&Row) -> Holders,
) -> FxHashMap<u32, Size> {
    let space = table.space;
    let num_atoms = space.setting.model.atoms.len();
    space
        .micro_batches
        .iter()
        .map(|&size| {
            let rows: Vec<&Arc<Row>> = table
                .of_size(size)
                .iter()
                .filter(|r| r.option.devices() <= counts[r.option.class])
                .collect();
            let mut groups: Vec<(usize, u32)> = rows
                .iter()
                .map(|r| (r.option.class, r.option.devices()))
                .collect();
            groups.sort_unstable();
            groups.dedup();
            let group_of = |r: &Row| {
                let key = (r.option.class, r.option.devices());
                groups.partition_point(|g| *g < key) as u16
            };
            let links = rows
                .iter()
                .map(|from| {
                    let mut least: Vec<Option<f64>> = vec![None; groups.len()];
                    for to in &rows {
                        let kept = &mut least[usize::from(group_of(to))];
                        if let Some(link) = table.link(from, to, true) {
                            *kept = Some(kept.map_or(link, |k: f64| k.min(link)));
                        }
                    }
                    least
                })
                .collect();
            let stages = rows
                .iter()
                .map(|&row| Stages::new(row.clone(), group_of(row), holders(row), num_atoms))
                .collect();
            (size, Size { stages, links })
        })
        .collect()
}

/// One micro-batch size and count at given prices.
pub(super) struct Pricing<'p, 'a> {
    pub(super) table: &'p Table<'a>,
    pub(super) counts: &'p [u32],
    pub(super) relaxation: Relaxation,
    pub(super) size: &'p Size,
    pub(super) prices: &'p [f64],
    pub(super) mean_price: f64,
    pub(super) time: f64,
    pub(super) micro_batches: u32,
    pub(super) cutoff: f64,
    /// Devices of every template of this share wanted, not of the first one; those that take all of one of these are not.
    pub(super) all: Option<(Share, &'p [[u16; MAX_CLASSES]])>,
}

/// Whether `less` takes no more devices of any class.
pub(super) fn within(less: &[u16; MAX_CLASSES], more: &[u16; MAX_CLASSES]) -> bool {
    less.iter().zip(more).all(|(l, m)| l <= m)
}

impl Pricing<'_, '_> {
    fn price(&self, row: &Row) -> f64 {
        self.prices[row.option.class] * f64::from(row.option.devices())
    }

    /// Devices of a template that finishes the micro-batches within the time for less than the cutoff, if there is one; or of all
    /// such templates, less those that take more devices than another.
    ///
    /// # Errors
    /// The work limit.
    pub(super) fn cheaper(&self, work: &mut u64) -> Result<Vec<[u16; MAX_CLASSES]>, ()> {
        let table = self.table;
        let space = table.space;
        let relaxation = self.relaxation;
        let num_atoms = space.setting.model.atoms.len();
        let (m, time, cutoff) = (f64::from(self.micro_batches), self.time, self.cutoff);
        if self.size.stages.is_empty() {
            return Ok(Vec::new());
        }
        let rest = self.rest(num_atoms);
        let least_price = self
            .size
            .stages
            .iter()
            .map(|s| self.price(&s.row))
            .fold(f64::INFINITY, f64::min);
        if rest[0].1[num_atoms].max(least_price) >= cutoff {
            return Ok(Vec::new());
        }
        let apart = if self.all.is_some() {
            Apart::Devices
        } else {
            Apart::Groups
        };
        let mut found: Vec<[u16; MAX_CLASSES]> = Vec::new();
        let mut at: Vec<Vec<Label>> = vec![Vec::new(); num_atoms + 1];
        at[num_atoms].push(Label::EMPTY);
        for end in (1..=num_atoms).rev() {
            let mut labels = std::mem::take(&mut at[end]);
            merge(&mut labels, apart);
            if !relaxation.labels {
                labels.dedup_by_key(|l| l.group);
            }
            let Some(cheapest) = labels.iter().map(|l| l.cost).min_by(f64::total_cmp) else {
                continue;
            };
            for (stages, links) in self.size.stages.iter().zip(&self.size.links) {
                let row = &stages.row;
                let price = self.price(row);
                let (class, devices) = (row.option.class, row.option.devices() as u16);
                let room = self.counts[class].min(u32::from(u16::MAX)) as u16;
                if cheapest + price >= cutoff {
                    continue;
                }
                let mut next = end;
                while next > 0 {
                    let start = next - 1;
                    next = start;
                    if m * row.least_compute(start, end) > time {
                        break;
                    }
                    if !row.allows((start, end)) {
                        continue;
                    }
                    let stage = stages.of(space, start, end);
                    // A longer range takes more memory, but for one with the first atom: it spares the receive buffers
                    // and shares its vocabulary with a tied head.
                    if stage.segments.is_empty() {
                        next = start.min(1);
                        continue;
                    }
                    let floor = if start > 0 { least_price } else { 0.0 };
                    if cheapest + price + rest[0].1[start].max(floor) >= cutoff {
                        continue;
                    }
                    let steps = (labels.len() * stage.segments.len()) as u64;
                    if *work <= steps {
                        *work = 0;
                        return Err(());
                    }
                    *work -= steps;
                    for label in &labels {
                        let cost = label.cost + price;
                        if cost + rest[0].1[start].max(floor) >= cutoff
                            || label.least_used[class].saturating_add(devices) > room
                        {
                            continue;
                        }
                        let link = match label.group {
                            None => 0.0,
                            Some(group) => match links[usize::from(group)] {
                                Some(seconds) => seconds,
                                None => continue,
                            },
                        };
                        for segment in &stage.segments {
                            let timed = StageTime {
                                forward: segment.forward,
                                backward: segment.backward,
                                link_forward: link,
                                link_backward: link,
                            };
                            let deepest = if relaxation.depth { segment.deepest } else { 1 };
                            let suffix =
                                label
                                    .suffix
                                    .prepend(&timed, deepest, self.micro_batches, stage.tail);
                            if suffix.step > time {
                                continue;
                            }
                            let still = rest
                                .iter()
                                .map(|(fill, h)| h[start] - fill * (time - suffix.span))
                                .fold(floor, f64::max);
                            if cost + still >= cutoff {
                                continue;
                            }
                            let (mut used, mut least_used) = (label.used, label.least_used);
                            used[class] = used[class].saturating_add(devices);
                            least_used[class] += devices;
                            if let Some((share, known)) = self.all {
                                let taken: u32 = used.iter().map(|n| u32::from(*n)).sum();
                                if taken > share.most
                                    || (start == 0 && taken < share.least)
                                    || known.iter().chain(&found).any(|k| within(k, &used))
                                {
                                    continue;
                                }
                            }
                            if start == 0 {
                                found.push(used);
                                if self.all.is_none() {
                                    return Ok(found);
                                }
                                continue;
                            }
                            at[start].push(Label {
                                cost,
                                suffix,
                                group: Some(stages.group),
                                used,
                                least_used,
                            });
                        }
                    }
                    if at[start].len() >= CROWD && relaxation.labels {
                        merge(&mut at[start], apart);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Least cost of the atoms before a position, once per price of fill.
    ///
    /// Stages still to come have `M t <= T` each and share the fill left, `sum t <= T - E`. So for any `fill >= 0` they cost at
    /// least `sum over atoms of min over rows of (price M / T + fill) t  -  fill (T - E)`.
    fn rest(&self, num_atoms: usize) -> Vec<(f64, Vec<f64>)> {
        let rate = f64::from(self.micro_batches) / self.time;
        FILL_PRICES
            .iter()
            .map(|share| {
                let fill = share * self.mean_price * rate;
                let mut before = vec![0.0; num_atoms + 1];
                for i in 0..num_atoms {
                    let cheapest = self
                        .size
                        .stages
                        .iter()
                        .map(|s| (self.price(&s.row) * rate + fill) * s.row.least_compute(i, i + 1))
                        .fold(f64::INFINITY, f64::min);
                    before[i + 1] = before[i] + cheapest;
                }
                (fill, before)
            })
            .collect()
    }
}
