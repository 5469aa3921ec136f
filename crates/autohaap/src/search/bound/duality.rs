//! Refuting step times by duality.
//!
//! For prices pi >= 0 and a time T let rho be an upper bound of `b M / (pi . d)` over all templates that finish M
//! micro-batches of b sequences within T. Every plan finishes at most `rho * (pi . counts)` sequences in T; if that is
//! below the batch, T is a lower bound. For an interval [lo, hi] of M the least cost of a template that finishes lo
//! micro-batches gives `rho <= b hi / cost`. The least cost comes from a dynamic program over suffixes with optimistic
//! stage times (least recompute, deepest in-flight limit, best link, most holders); where a position has too many labels,
//! close ones are merged into their component-wise minimum, which only relaxes.
//!
//! Any prices are valid, good ones are tight: templates that break a proof become constraints on the prices (a cutting
//! plane), until a proof holds or the constraints show that none exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::cost::pipeline::StageTime;
use crate::search::master::{self, Column};
use crate::search::pricing::MAX_CLASSES;
use crate::search::table::{Holders, Row, Table};

use super::capacity::price_guesses;
use super::labels::{Label, merge};
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

/// Ratio of the ends of an interval of micro-batch counts: the bound gives away as much.
const INTERVAL: f64 = 1.02;

/// Intervals looked at together; the work and the templates found do not depend on the number of threads.
const CHUNK: usize = 16;

/// Labels at a position before they are merged early.
const CROWD: usize = 1024;

/// Multipliers of the fill in the cost of what is still to come, relative to the mean price.
const FILL_PRICES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Cutting planes of one time.
const CUTS: u32 = 12;

/// Everything of one micro-batch size.
struct Size {
    stages: Vec<Stages>,
    /// Least link seconds from a row to a group; `None` where no path exists.
    links: Vec<Vec<Option<f64>>>,
}

/// What came of one proof attempt.
enum Attempt {
    /// No template beats the prices.
    Holds,
    /// These templates do.
    Broken(Vec<Column>),
    /// The work limit was reached, or the search stopped.
    Open,
}

/// Refutes step times at one ZeRO level; keeps stage times and prices from one time to the next.
pub(crate) struct Prover<'t, 'a> {
    table: &'t Table<'a>,
    counts: &'t [u32],
    relaxation: Relaxation,
    sizes: FxHashMap<u32, Size>,
    /// Prices to start from, the most recent success first.
    starts: Vec<Vec<f64>>,
    /// Intervals that broke a proof lately: looked at first.
    hot: Vec<(u32, u32)>,
}

impl<'t, 'a> Prover<'t, 'a> {
    /// A prover over at most `counts` devices per class that tries `prices` besides its own.
    pub(crate) fn new(
        relaxation: Relaxation,
        table: &'t Table<'a>,
        counts: &'t [u32],
        prices: Option<&Vec<f64>>,
    ) -> Self {
        let space = table.space;
        let num_atoms = space.setting.model.atoms.len();
        let total = counts.iter().sum();
        let sizes = space
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
                    .map(|&row| {
                        let holders = if relaxation.holders {
                            Holders::most(total)
                        } else {
                            row.holders(row.option.replicas)
                        };
                        Stages::new(row.clone(), group_of(row), holders, num_atoms)
                    })
                    .collect();
                (size, Size { stages, links })
            })
            .collect();
        let mut starts = price_guesses(table, counts);
        starts.extend(prices.cloned());
        starts.retain(|p| p.iter().zip(counts).map(|(p, n)| p * f64::from(*n)).sum::<f64>() > 0.0);
        Self {
            table,
            counts,
            relaxation,
            sizes,
            starts,
            hot: Vec::new(),
        }
    }

    /// Whether no plan of the space reaches `time`; gives up (false) after about `work` label steps, which it takes
    /// from the count.
    pub(crate) fn refutes(&mut self, time: f64, work: &mut u64, stop: &(dyn Fn() -> bool + Sync)) -> bool {
        let batch = self.table.space.setting.training.global_batch as f64;
        let mut cuts: Vec<Column> = Vec::new();
        let mut starts = self.starts.clone().into_iter();
        let mut prices: Option<Vec<f64>> = None;
        for _ in 0..CUTS {
            // The first start, then what its cuts lead to.
            let Some(tried) = prices.take().or_else(|| starts.next()) else {
                return false;
            };
            match self.attempt(&tried, time, work, stop) {
                Attempt::Holds => {
                    self.starts.retain(|p| *p != tried);
                    self.starts.insert(0, tried);
                    self.starts.truncate(4);
                    return true;
                }
                Attempt::Open => return false,
                Attempt::Broken(found) => {
                    cuts.extend(found);
                    let Some((next, value)) = master::prices(&cuts, self.counts) else {
                        return false;
                    };
                    if value >= batch {
                        // Shares of these templates meet the batch: no prices refute the time.
                        return false;
                    }
                    // Halfway: the linear program jumps between corners.
                    let sum = |p: &[f64]| -> f64 {
                        p.iter().zip(self.counts).map(|(p, n)| p * f64::from(*n)).sum()
                    };
                    let scale = value / sum(&tried).max(1e-300);
                    prices = Some(
                        next.iter()
                            .zip(&tried)
                            .map(|(n, t)| f64::midpoint(*n, t * scale))
                            .collect(),
                    );
                }
            }
        }
        false
    }

    /// Whether no template at these prices finishes more than its devices' share of the batch.
    #[cfg(test)]
    pub(crate) fn holds(
        &mut self,
        prices: &[f64],
        time: f64,
        mut work: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> bool {
        matches!(self.attempt(prices, time, &mut work, stop), Attempt::Holds)
    }

    fn attempt(
        &mut self,
        prices: &[f64],
        time: f64,
        work: &mut u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Attempt {
        let batch = self.table.space.setting.training.global_batch;
        let worth: f64 = prices
            .iter()
            .zip(self.counts)
            .map(|(p, n)| p * f64::from(*n))
            .sum();
        if worth <= 0.0 {
            return Attempt::Open;
        }
        // A template is harmless if b M / cost < batch / worth, strictly: one that takes all devices for the whole batch
        // is a plan. It must cost `cutoff` for its hi, a little more than that.
        let ratio = batch as f64 / worth * (1.0 - 1e-9);
        let mut tasks = self.hot.clone();
        for &size in &self.table.space.micro_batches {
            let most = (batch / u64::from(size)).min(1 << 20) as u32;
            let mut low = 1u32;
            while low <= most {
                if !self.hot.contains(&(size, low)) {
                    tasks.push((size, low));
                }
                low = self.interval(size, low) + 1;
            }
        }
        for chunk in tasks.chunks(CHUNK) {
            if stop() || *work == 0 {
                return Attempt::Open;
            }
            let limit = *work;
            let open = AtomicBool::new(false);
            let done: Vec<(Option<Column>, u64)> = chunk
                .par_iter()
                .map(|&(size, low)| {
                    let high = self.interval(size, low);
                    let value = f64::from(size) * f64::from(high);
                    let pricing = Pricing {
                        prover: self,
                        size: &self.sizes[&size],
                        prices,
                        mean_price: worth / f64::from(self.counts.iter().sum::<u32>()),
                        time,
                        micro_batches: low,
                        cutoff: value / ratio,
                    };
                    let mut left = limit;
                    let found = match pricing.cheaper(&mut left) {
                        Ok(found) => found,
                        Err(()) => {
                            open.store(true, Ordering::Relaxed);
                            None
                        }
                    };
                    let column = found.map(|used| Column {
                        template: 0,
                        value,
                        counts: used[..self.counts.len()].iter().map(|n| u32::from(*n)).collect(),
                    });
                    (column, limit - left)
                })
                .collect();
            *work = work.saturating_sub(done.iter().map(|d| d.1).sum());
            let mut found = Vec::new();
            for (&task, (column, _)) in chunk.iter().zip(done) {
                if let Some(column) = column {
                    self.hot.retain(|h| *h != task);
                    self.hot.insert(0, task);
                    found.push(column);
                }
            }
            self.hot.truncate(CHUNK);
            if !found.is_empty() {
                return Attempt::Broken(found);
            }
            if open.into_inner() {
                return Attempt::Open;
            }
        }
        Attempt::Holds
    }

    /// Last micro-batch count of the interval that starts at `low`.
    fn interval(&self, size: u32, low: u32) -> u32 {
        let most = (self.table.space.setting.training.global_batch / u64::from(size)).min(1 << 20) as u32;
        ((f64::from(low) * INTERVAL) as u32).clamp(low, most)
    }
}

/// One micro-batch size and count at given prices.
struct Pricing<'p, 't, 'a> {
    prover: &'p Prover<'t, 'a>,
    size: &'p Size,
    prices: &'p [f64],
    mean_price: f64,
    time: f64,
    micro_batches: u32,
    cutoff: f64,
}

impl Pricing<'_, '_, '_> {
    fn price(&self, row: &Row) -> f64 {
        self.prices[row.option.class] * f64::from(row.option.devices())
    }

    /// Devices of a template that finishes the micro-batches within the time for less than the cutoff, if there is one.
    ///
    /// # Errors
    /// The work limit.
    fn cheaper(&self, work: &mut u64) -> Result<Option<[u16; MAX_CLASSES]>, ()> {
        let table = self.prover.table;
        let space = table.space;
        let relaxation = self.prover.relaxation;
        let num_atoms = space.setting.model.atoms.len();
        let (m, time, cutoff) = (f64::from(self.micro_batches), self.time, self.cutoff);
        if self.size.stages.is_empty() {
            return Ok(None);
        }
        let rest = self.rest(num_atoms);
        let least_price = self
            .size
            .stages
            .iter()
            .map(|s| self.price(&s.row))
            .fold(f64::INFINITY, f64::min);
        if rest[0].1[num_atoms].max(least_price) >= cutoff {
            return Ok(None);
        }
        let mut at: Vec<Vec<Label>> = vec![Vec::new(); num_atoms + 1];
        at[num_atoms].push(Label::EMPTY);
        for end in (1..=num_atoms).rev() {
            let mut labels = std::mem::take(&mut at[end]);
            merge(&mut labels);
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
                let room = self.prover.counts[class].min(u32::from(u16::MAX)) as u16;
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
                            if start == 0 {
                                return Ok(Some(used));
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
                        merge(&mut at[start]);
                    }
                }
            }
        }
        Ok(None)
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
