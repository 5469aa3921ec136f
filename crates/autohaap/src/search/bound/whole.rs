//! Whole pipelines on small clusters.
//!
//! Shares of templates may meet the batch where whole ones do not. On small clusters the count vectors form a
//! small lattice: with prices at which no template is worth more than r times its price, a template of value v and devices d can
//! be part of a plan only if `v + r pi . (counts - d) >= batch`. All count vectors of such templates are listed, and a
//! knapsack over the lattice tells whether whole ones meet the batch.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::search::master::{self, Column};
use crate::search::pricing::MAX_CLASSES;

use super::duality::{Attempt, CHUNK, Prover};
use super::pricing::{Pricing, Share, sizes, within};

/// Count vectors up to which whole pipelines are told from shares of them.
const LATTICE: u64 = 1_000;

impl Prover<'_, '_> {
    /// Whether the count vectors are few enough to tell whole pipelines from shares of them.
    pub(crate) fn tells_whole_pipelines(&self) -> bool {
        let vectors = self
            .counts
            .iter()
            .fold(1_u64, |n, c| n.saturating_mul(u64::from(*c) + 1));
        vectors <= LATTICE
    }

    /// Whether whole templates do not meet the batch within the time although shares of those found so far do.
    pub(super) fn whole(
        &mut self,
        mut cuts: Vec<Column>,
        time: f64,
        work: &mut u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> bool {
        if !self.tells_whole_pipelines() {
            return false;
        }
        if self.shares.is_empty() {
            let total = self.counts.iter().sum();
            for share in Share::all(total) {
                let made = sizes(self.table, self.counts, |row| share.holders(row, total));
                self.shares.push((share, made));
            }
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
        let mut known: Vec<([u16; MAX_CLASSES], u64)> = Vec::new();
        for (share, sizes) in &self.shares {
            for chunk in tasks.chunks(CHUNK) {
                if stop() || *work == 0 {
                    return None;
                }
                let limit = *work;
                let done: Vec<(Option<Vec<[u16; MAX_CLASSES]>>, u64)> = chunk
                    .par_iter()
                    .map(|&(value, size, low)| {
                        let better: Vec<_> = known.iter().filter(|k| k.1 >= value).map(|k| k.0).collect();
                        let pricing = Pricing {
                            table: self.table,
                            counts: self.counts,
                            relaxation: self.relaxation,
                            size: &sizes[&size],
                            prices,
                            mean_price: worth / f64::from(self.counts.iter().sum::<u32>()),
                            time,
                            micro_batches: low,
                            cutoff: (value as f64 + goal - batch) / goal * worth * (1.0 + 1e-9),
                            all: Some((*share, &better)),
                        };
                        let mut left = limit;
                        let found = pricing.cheaper(&mut left).ok();
                        (found, limit - left)
                    })
                    .collect();
                *work = work.saturating_sub(done.iter().map(|d| d.1).sum());
                for (&(value, _, _), (found, _)) in chunk.iter().zip(done) {
                    for used in found? {
                        let counts: Vec<u32> =
                            used[..self.counts.len()].iter().map(|n| u32::from(*n)).collect();
                        let kept = items.entry(counts).or_insert(0);
                        *kept = (*kept).max(value);
                        if !known.iter().any(|k| k.1 >= value && within(&k.0, &used)) {
                            known.push((used, value));
                        }
                    }
                }
            }
        }
        Some(items)
    }
}
