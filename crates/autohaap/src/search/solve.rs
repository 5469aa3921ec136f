//! One search over given device counts: column generation inside a bisection on the step time, then exact prices.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::cost::pipeline::Scratch;
use crate::cost::price::Cache;

use super::api::{Budget, Progress};
use super::assemble::{Candidate, Draft, Lane};
use super::bound;
use super::master::{self, Column};
use super::polish::polish;
use super::pricing::{self, Round};
use super::seeds;
use super::table::Table;
use super::template::{Template, TemplateKey, Timed};
use crate::units::Seconds;

/// How much work a search may do, in counts: never in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Pricing rounds in all.
    pub(super) rounds: u32,
    /// Labels kept per position in pricing.
    pub(super) beam: usize,
    /// Nodes of one integer packing.
    pub(super) pack_nodes: usize,
    /// Exact prices in polishing one candidate.
    pub(super) polish: u64,
    /// Candidates polished.
    pub(super) finalists: usize,
    /// Falling step times tried for plans of equal pipelines.
    pub(super) falls: u32,
}

/// A template of the pool, with its times for one number of replicas elsewhere.
struct Entry {
    template: Template,
    counts: Vec<u32>,
    others: u32,
    timed: Option<Timed>,
}

/// What a search has found so far, for one ZeRO level.
pub(super) struct Solver<'t, 'a> {
    table: &'t Table<'a>,
    counts: Vec<u32>,
    effort: Effort,
    budget: &'t dyn Budget,
    cache: Cache,
    scratch: Scratch,
    pool: Vec<Entry>,
    known: BTreeSet<TemplateKey>,
    /// Candidates by key, priced exactly.
    pub(super) candidates: Vec<Candidate>,
    seen: BTreeSet<Vec<(TemplateKey, u32)>>,
    /// Templates and plans priced.
    pub(super) scored: u64,
    aim: Option<f64>,
    /// Prices of the last LP that could not meet its step time.
    pub(super) prices: Option<Vec<f64>>,
    /// When the first candidate was known, for the record.
    pub(super) first_plan: Option<std::time::Duration>,
}

impl<'t, 'a> Solver<'t, 'a> {
    /// A search over `counts` devices per class.
    pub(super) fn new(
        table: &'t Table<'a>,
        counts: Vec<u32>,
        effort: Effort,
        budget: &'t dyn Budget,
    ) -> Self {
        Self {
            table,
            counts,
            effort,
            budget,
            cache: Cache::default(),
            scratch: Scratch::default(),
            pool: Vec::new(),
            known: BTreeSet::new(),
            candidates: Vec::new(),
            seen: BTreeSet::new(),
            scored: 0,
            aim: None,
            prices: None,
            first_plan: None,
        }
    }

    /// The templates found so far.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.pool.iter().map(|e| &e.template)
    }

    /// Starts from templates found by another search.
    pub(super) fn seed<'s>(&mut self, templates: impl Iterator<Item = &'s Template>) {
        for template in templates {
            let counts = template.counts(self.counts.len());
            if counts
                .iter()
                .zip(&self.counts)
                .all(|(n, available)| n <= available)
            {
                self.add(template.clone());
            }
        }
    }

    /// Starts from a whole plan, a template per pipeline; what the devices cannot hold together is left for packing.
    pub(super) fn start(&mut self, templates: &[Template]) {
        self.seed(templates.iter());
        let mut left = self.counts.clone();
        let held = |left: &mut Vec<u32>, template: &&Template| {
            let counts = template.counts(left.len());
            let fits = counts.iter().zip(left.iter()).all(|(n, l)| n <= l);
            if fits {
                left.iter_mut().zip(counts).for_each(|(l, n)| *l -= n);
            }
            fits
        };
        let kept: Vec<Lane> = templates
            .iter()
            .filter(|t| held(&mut left, t))
            .map(|t| Lane {
                template: t.clone(),
                copies: 1,
            })
            .collect();
        if !kept.is_empty() {
            self.offer(&Draft::new(kept, "the plan it started from"));
        }
    }

    /// A step time known from elsewhere, seconds: the search starts below it.
    pub(super) fn aim(&mut self, step: f64) {
        self.aim = Some(step);
    }

    fn stopped(&self) -> bool {
        self.budget.stop().is_some()
    }

    fn best_step(&self) -> Option<f64> {
        self.candidates.iter().map(|c| c.step).min_by(f64::total_cmp)
    }

    /// Prices a draft exactly and keeps it.
    pub(super) fn offer(&mut self, draft: &Draft) -> Option<f64> {
        if !self.seen.insert(draft.key()) {
            return None;
        }
        self.scored += 1;
        let candidate = draft.realise(self.table, &mut self.cache, &mut self.scratch)?;
        if !self.table.space.admits(&candidate.pipelines) {
            for lane in &candidate.draft.lanes {
                self.add(lane.template.clone());
            }
            return None;
        }
        let step = candidate.step;
        self.first_plan.get_or_insert_with(|| self.budget.elapsed());
        if self.best_step().is_none_or(|best| step < best) {
            self.budget.progress(&Progress {
                phase: "columns",
                best: Some(Seconds(step)),
                bound: None,
                scored: self.scored,
            });
        }
        for lane in &candidate.draft.lanes {
            self.add(lane.template.clone());
        }
        self.candidates.push(candidate);
        Some(step)
    }

    fn add(&mut self, template: Template) -> bool {
        let new = self.known.insert(template.key());
        if new {
            self.pool.push(Entry {
                counts: template.counts(self.counts.len()),
                template,
                others: u32::MAX,
                timed: None,
            });
        }
        new
    }

    /// Columns of the pool at a step time, with `others` replicas elsewhere.
    fn columns(&mut self, time: f64, others: u32) -> Vec<Column> {
        let batch = self.table.space.setting.training.global_batch;
        let mut columns = Vec::new();
        for (i, entry) in self.pool.iter_mut().enumerate() {
            if self.budget.stop().is_some() {
                break;
            }
            if entry
                .counts
                .iter()
                .zip(&self.counts)
                .any(|(n, available)| n > available)
            {
                continue;
            }
            if entry.others != others {
                entry.others = others;
                entry.timed = Timed::new(&entry.template, self.table, others);
                self.scored += 1;
            }
            let Some(timed) = &entry.timed else { continue };
            let size = entry.template.micro_batch;
            let capacity = timed.capacity(time, (batch / u64::from(size)) as u32, &mut self.scratch);
            if capacity > 0 {
                let value = f64::from(capacity) * f64::from(size);
                columns.push(Column {
                    template: i,
                    value,
                    counts: entry.counts.clone(),
                });
            }
        }
        // Of equal devices only the best few matter for prices and packing.
        columns.sort_by(|a, b| {
            a.counts
                .cmp(&b.counts)
                .then(b.value.total_cmp(&a.value))
                .then(a.template.cmp(&b.template))
        });
        let mut run = 0;
        let mut kept: Vec<Column> = Vec::new();
        for column in columns {
            run = if kept.last().is_some_and(|k| k.counts == column.counts) {
                run + 1
            } else {
                0
            };
            if run < 2 {
                kept.push(column);
            }
        }
        kept
    }

    /// Runs column generation from the candidates offered so far.
    pub(super) fn run(&mut self, floor: f64) {
        let batch = self.table.space.setting.training.global_batch as f64;
        let mut rounds = self.effort.rounds;
        let mut others = self.typical_others();
        let first = self.best_step().or(self.aim).unwrap_or(floor * 2.0);
        let budget = self.budget;
        let stop = || budget.stop().is_some();
        for template in seeds::regular(self.table, &self.counts, first, others, &stop) {
            self.add(template);
        }
        let columns = self.columns(first, others);
        self.pack(&columns, first, batch);
        // Without any plan yet, look for one at growing times.
        let mut high = self.best_step().or(self.aim).unwrap_or(floor * 2.0);
        let mut tries = 0;
        while self.candidates.is_empty() && rounds > 0 && tries < 10 && !self.stopped() {
            others = if tries % 2 == 0 { others } else { 0 };
            self.probe(high, others, batch, &mut rounds);
            high = self.best_step().unwrap_or(high * 2.5);
            tries += 1;
        }
        self.equal_shares(high);
        let Some(mut best) = self.best_step() else { return };
        let mut low = floor.min(best);
        while rounds > 0 && low < best * 0.995 && !self.stopped() {
            others = self.typical_others();
            let middle = if low < best * 0.6 {
                best * 0.8
            } else {
                f64::midpoint(low, best)
            };
            let feasible = self.probe(middle, others, batch, &mut rounds);
            let now = self.best_step().unwrap_or(best);
            if !feasible || now >= best * (1.0 - 1e-3) {
                low = middle;
            }
            best = now.min(best);
        }
        self.finish();
    }

    /// Plans of equal pipelines at falling step times, until two rounds in a row bring nothing. Without any plan yet (a named
    /// space may hold none of those seen) the time falls from `high` all the same.
    fn equal_shares(&mut self, high: f64) {
        let prices = bound::price_guesses(self.table, &self.counts).swap_remove(0);
        let mut failures = 0;
        let mut shrink = 0.97;
        let mut unmet = high;
        for _ in 0..self.effort.falls {
            let best = match self.best_step() {
                Some(best) => best,
                None if self.table.space.named.is_none() => return,
                None => {
                    unmet *= 0.7;
                    unmet / shrink
                }
            };
            if failures == self.effort.falls.min(2) || self.stopped() {
                return;
            }
            let round = Round {
                time: best * shrink,
                prices: &prices,
                counts: &self.counts,
                others: self.typical_others(),
                beam: self.effort.beam,
                cut: false,
            };
            let budget = self.budget;
            let stop = || budget.stop().is_some();
            let found = pricing::equal_shares(self.table, round, &[1, 2, 3, 4, 6, 8, 12, 16], &stop);
            for (copies, template) in found {
                if self.stopped() {
                    return;
                }
                self.offer(&Draft::new([Lane { template, copies }], "equal pipelines"));
            }
            if self.candidates.is_empty() {
                continue;
            }
            if self.best_step().is_some_and(|now| now < best * (1.0 - 1e-3)) {
                failures = 0;
            } else {
                failures += 1;
                shrink = 0.99;
            }
        }
    }

    /// Replicas that the other pipelines of the best candidate hold.
    fn typical_others(&self) -> u32 {
        self.candidates
            .iter()
            .min_by(|a, b| a.step.total_cmp(&b.step))
            .map_or(0, |c| c.pipelines.len().saturating_sub(1) as u32)
    }

    /// Asks whether `time` can be met: generates columns until the LP meets the batch or nothing better is priced, then
    /// packs and prices what it finds. Returns whether the LP met the batch.
    fn probe(&mut self, time: f64, others: u32, batch: f64, rounds: &mut u32) -> bool {
        let mut feasible = false;
        let mut columns = self.columns(time, others);
        for _ in 0..6 {
            if self.stopped() {
                break;
            }
            let (prices, value, cut) = match master::prices(&columns, &self.counts) {
                Some((prices, value)) if !columns.is_empty() => (prices, value, true),
                _ => (vec![1.0; self.counts.len()], 0.0, false),
            };
            if value >= batch * 1.0 {
                feasible = true;
                break;
            }
            if cut {
                self.prices = Some(prices.clone());
            }
            if *rounds == 0 {
                break;
            }
            *rounds -= 1;
            let before = self.pool.len();
            let budget = self.budget;
            let stop = || budget.stop().is_some();
            let found = pricing::price(
                self.table,
                Round {
                    time,
                    prices: &prices,
                    counts: &self.counts,
                    others,
                    beam: self.effort.beam,
                    cut,
                },
                &stop,
            );
            for template in found {
                self.add(template);
            }
            if self.pool.len() == before {
                break;
            }
            columns = self.columns(time, others);
        }
        self.pack(&columns, time, batch);
        feasible
    }

    /// Integer packings of the columns at this and slightly larger targets, priced exactly.
    fn pack(&mut self, columns: &[Column], time: f64, batch: f64) {
        let Some((prices, value)) = master::prices(columns, &self.counts) else {
            return;
        };
        if columns.is_empty() || (self.stopped() && self.best_step().or(self.aim).is_some()) {
            return;
        }
        // At most what the LP gives; below that, a plan with a longer step than asked for.
        for share in [1.0, 0.97, 0.93, 0.88, 0.8, 0.65] {
            let target = (batch.min(value) * share).floor().max(1.0);
            let packed = master::pack(columns, &self.counts, &prices, target, self.effort.pack_nodes);
            if let Some(packed) = packed {
                let lanes = packed.iter().map(|&(column, copies)| Lane {
                    template: self.pool[columns[column].template].template.clone(),
                    copies,
                });
                let draft = Draft::new(lanes, "columns");
                if self.offer(&draft).is_some_and(|step| step <= time * 1.02) {
                    break;
                }
                if share < 0.9 {
                    break;
                }
            }
        }
    }

    /// Polishes the best distinct candidates.
    fn finish(&mut self) {
        self.candidates
            .sort_by(|a, b| a.step.total_cmp(&b.step).then(a.draft.key().cmp(&b.draft.key())));
        let finalists: Vec<Candidate> = self
            .candidates
            .iter()
            .take(self.effort.finalists)
            .cloned()
            .collect();
        // Each finalist with a cache of its own: the result does not depend on the number of threads.
        let (table, budget, effort) = (self.table, self.budget, self.effort);
        let polished: Vec<(Candidate, u64)> = finalists
            .into_par_iter()
            .map(|finalist| {
                let stop = || budget.stop().is_some();
                let (mut cache, mut scratch) = (Cache::default(), Scratch::default());
                polish(table, finalist, effort.polish, &stop, &mut cache, &mut scratch)
            })
            .collect();
        for (candidate, scored) in polished {
            self.scored += scored;
            if self.seen.insert(candidate.draft.key()) && self.table.space.admits(&candidate.pipelines) {
                self.candidates.push(candidate);
            }
        }
        self.candidates
            .sort_by(|a, b| a.step.total_cmp(&b.step).then(a.draft.key().cmp(&b.draft.key())));
    }

    /// The best candidates with different shapes, best first.
    pub(super) fn ranked(&self) -> Vec<&Candidate> {
        let mut by_step: Vec<&Candidate> = self.candidates.iter().collect();
        by_step.sort_by(|a, b| a.step.total_cmp(&b.step).then(a.draft.key().cmp(&b.draft.key())));
        let mut shapes: BTreeSet<Vec<(u32, Vec<super::space::StageOption>, u32)>> = BTreeSet::new();
        by_step
            .into_iter()
            .filter(|c| {
                let shape = c
                    .draft
                    .lanes
                    .iter()
                    .map(|l| {
                        let options = l.template.stages.iter().map(|s| s.row.option).collect();
                        (l.template.micro_batch, options, l.copies)
                    })
                    .collect();
                shapes.insert(shape)
            })
            .collect()
    }
}
