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

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::search::master::{self, Column};
use crate::search::table::{Holders, Table};

use super::capacity::price_guesses;
use super::pricing::{Pricing, Relaxation, Share, Size, sizes};

/// Ratio of the ends of an interval of micro-batch counts: the bound gives away as much.
const INTERVAL: f64 = 1.02;

/// Intervals looked at together; the work and the templates found do not depend on the number of threads.
pub(super) const CHUNK: usize = 16;

/// Cutting planes of one time.
const CUTS: u32 = 12;

/// What came of one proof attempt.
pub(super) enum Attempt {
    /// No template beats the prices.
    Holds,
    /// These templates do.
    Broken(Vec<Column>),
    /// The work limit was reached, or the search stopped.
    Open,
}

/// Refutes step times at one ZeRO level; keeps stage times and prices from one time to the next.
pub(crate) struct Prover<'t, 'a> {
    pub(super) table: &'t Table<'a>,
    pub(super) counts: &'t [u32],
    pub(super) relaxation: Relaxation,
    /// At the most holders any plan can have.
    sizes: FxHashMap<u32, Size>,
    /// At the most holders of plans with a pipeline of so many devices; only where whole pipelines are looked at.
    pub(super) shares: Vec<(Share, FxHashMap<u32, Size>)>,
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
        let total = counts.iter().sum();
        let sizes = sizes(table, counts, |row| {
            if relaxation.holders {
                Holders::most(total)
            } else {
                row.holders(row.option.replicas)
            }
        });
        let mut starts = price_guesses(table, counts);
        starts.extend(prices.cloned());
        starts.retain(|p| p.iter().zip(counts).map(|(p, n)| p * f64::from(*n)).sum::<f64>() > 0.0);
        Self {
            table,
            counts,
            relaxation,
            sizes,
            shares: Vec::new(),
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

    pub(super) fn worth(&self, prices: &[f64]) -> f64 {
        prices
            .iter()
            .zip(self.counts)
            .map(|(p, n)| p * f64::from(*n))
            .sum()
    }

    /// Micro-batch sizes and the first counts of their intervals.
    pub(super) fn intervals(&self) -> Vec<(u32, u32)> {
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
    pub(super) fn attempt(
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
                        table: self.table,
                        counts: self.counts,
                        relaxation: self.relaxation,
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
    pub(super) fn interval(&self, size: u32, low: u32) -> u32 {
        let most = (self.table.space.setting.training.global_batch / u64::from(size)).min(1 << 20) as u32;
        ((f64::from(low) * INTERVAL) as u32).clamp(low, most)
    }
}
