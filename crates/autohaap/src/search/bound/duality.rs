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
//!
//! **Whole pipelines.** Shares of templates may meet the batch where whole ones do not. On small clusters the count vectors form a
//! small lattice: with prices at which no template is worth more than r times its price, a template of value v and devices d can
//! be part of a plan only if `v + r pi . (counts - d) >= batch`. All count vectors of such templates are listed, and a
//! knapsack over the lattice tells whether whole ones meet the batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::cost::pipeline::StageTime;
use crate::search::master::{self, Column};
use crate::search::pricing::MAX_CLASSES;
use crate::search::table::{Holders, Row, Table};

use super::capacity::price_guesses;
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

/// Ratio of the ends of an interval of micro-batch counts: the bound gives away as much.
const INTERVAL: f64 = 1.02;

/// Intervals looked at together; the work and the templates found do not depend on the number of threads.
const CHUNK: usize = 16;

/// Labels at a position before they are merged early.
const CROWD: usize = 1024;

/// Multipliers of the fill in the cost of what is still to come, relative to the mean price.
const FILL_PRICES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Count vectors up to which whole pipelines are told from shares of them.
const LATTICE: u64 = 1_000;

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
            match self.attempt(&tried, time, batch, work, stop) {
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
                        return self.relaxation.labels && self.whole(cuts, time, work, stop);
                    }
                    // Halfway: the linear program jumps between corners.
                    let scale = value / self.worth(&tried).max(1e-300);
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

    fn worth(&self, prices: &[f64]) -> f64 {
        prices
            .iter()
            .zip(self.counts)
            .map(|(p, n)| p * f64::from(*n))
            .sum()
    }

    /// Whether whole templates do not meet the batch within the time although shares of those found so far do.
    fn whole(
        &mut self,
        mut cuts: Vec<Column>,
        time: f64,
        work: &mut u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> bool {
        let lattice: u64 = self
            .counts
            .iter()
            .fold(1, |n, c| n.saturating_mul(u64::from(*c) + 1));
        if lattice > LATTICE {
            return false;
        }
        let batch = self.table.space.setting.training.global_batch as f64;
        for slack in [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1] {
            let Some((prices, value)) = master::prices(&cuts, self.counts) else {
                return false;
            };
            let goal = value.max(batch) * (1.0 + slack);
            match self.attempt(&prices, time, goal, work, stop) {
                Attempt::Broken(found) => cuts.extend(found),
                Attempt::Open => return false,
                Attempt::Holds => {
                    let Some(items) = self.items(&prices, time, goal, work, stop) else {
                        return false;
                    };
                    let room = master::knapsack(&items, self.counts);
                    return room.get(self.counts).is_none_or(|most| (*most as f64) < batch);
                }
            }
        }
        false
    }

    /// Count vectors and values of all templates that can be part of a plan, given that at these prices all devices are
    /// worth at most `goal` sequences. `None`: the work limit was reached, or the search stopped.
    fn items(
        &self,
        prices: &[f64],
        time: f64,
        goal: f64,
        work: &mut u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Option<BTreeMap<Vec<u32>, u64>> {
        let batch = self.table.space.setting.training.global_batch as f64;
        let worth = self.worth(prices);
        let mut tasks: Vec<(u64, u32, u32)> = Vec::new();
        for (size, low) in self.intervals() {
            let high = self.interval(size, low);
            tasks.push((u64::from(size) * u64::from(high), size, low));
        }
        // What finishes more on fewer devices makes the rest pointless.
        tasks.sort_unstable_by(|a, b| b.cmp(a));
        let mut items: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        let mut known: Vec<[u16; MAX_CLASSES]> = Vec::new();
        for chunk in tasks.chunks(CHUNK) {
            if stop() || *work == 0 {
                return None;
            }
            let limit = *work;
            let done: Vec<(Option<Vec<[u16; MAX_CLASSES]>>, u64)> = chunk
                .par_iter()
                .map(|&(value, size, low)| {
                    let pricing = Pricing {
                        prover: self,
                        size: &self.sizes[&size],
                        prices,
                        mean_price: worth / f64::from(self.counts.iter().sum::<u32>()),
                        time,
                        micro_batches: low,
                        cutoff: (value as f64 + goal - batch) / goal * worth * (1.0 + 1e-9),
                        all: Some(&known),
                    };
                    let mut left = limit;
                    let found = pricing.cheaper(&mut left).ok();
                    (found, limit - left)
                })
                .collect();
            *work = work.saturating_sub(done.iter().map(|d| d.1).sum());
            for (&(value, _, _), (found, _)) in chunk.iter().zip(done) {
                for used in found? {
                    let counts: Vec<u32> = used[..self.counts.len()].iter().map(|n| u32::from(*n)).collect();
                    let kept = items.entry(counts).or_insert(0);
                    *kept = (*kept).max(value);
                    if !known.iter().any(|k| within(k, &used)) {
                        known.push(used);
                    }
                }
            }
        }
        Some(items)
    }

    /// Micro-batch sizes and the first counts of their intervals.
    fn intervals(&self) -> Vec<(u32, u32)> {
        let batch = self.table.space.setting.training.global_batch;
        let mut intervals = Vec::new();
        for &size in &self.table.space.micro_batches {
            let most = (batch / u64::from(size)).min(1 << 20) as u32;
            let mut low = 1u32;
            while low <= most {
                intervals.push((size, low));
                low = self.interval(size, low) + 1;
            }
        }
        intervals
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
        let batch = self.table.space.setting.training.global_batch as f64;
        matches!(self.attempt(prices, time, batch, &mut work, stop), Attempt::Holds)
    }

    /// Whether no template at these prices finishes more than its devices' share of `goal` sequences.
    fn attempt(
        &mut self,
        prices: &[f64],
        time: f64,
        goal: f64,
        work: &mut u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Attempt {
        let worth = self.worth(prices);
        if worth <= 0.0 {
            return Attempt::Open;
        }
        // A template is harmless if b M / cost < goal / worth, strictly: one that takes all devices for the whole batch
        // is a plan. It must cost `cutoff` for its hi, a little more than that.
        let ratio = goal / worth * (1.0 - 1e-9);
        let mut tasks = self.hot.clone();
        tasks.extend(
            self.intervals()
                .into_iter()
                .filter(|task| !self.hot.contains(task)),
        );
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
                        all: None,
                    };
                    let mut left = limit;
                    let found = match pricing.cheaper(&mut left) {
                        Ok(found) => found,
                        Err(()) => {
                            open.store(true, Ordering::Relaxed);
                            Vec::new()
                        }
                    };
                    let column = found.first().map(|used| Column {
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
    /// Devices of every template wanted, not of the first one; those that take all of one of these are not.
    all: Option<&'p [[u16; MAX_CLASSES]]>,
}

/// Whether `less` takes no more devices of any class.
fn within(less: &[u16; MAX_CLASSES], more: &[u16; MAX_CLASSES]) -> bool {
    less.iter().zip(more).all(|(l, m)| l <= m)
}

impl Pricing<'_, '_, '_> {
    fn price(&self, row: &Row) -> f64 {
        self.prices[row.option.class] * f64::from(row.option.devices())
    }

    /// Devices of a template that finishes the micro-batches within the time for less than the cutoff, if there is one; or of all
    /// such templates, less those that take more devices than another.
    ///
    /// # Errors
    /// The work limit.
    fn cheaper(&self, work: &mut u64) -> Result<Vec<[u16; MAX_CLASSES]>, ()> {
        let table = self.prover.table;
        let space = table.space;
        let relaxation = self.prover.relaxation;
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
                            if let Some(known) = self.all
                                && known.iter().chain(&found).any(|k| within(k, &used))
                            {
                                continue;
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
