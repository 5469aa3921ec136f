//! Exhaustive search for small clusters: every plan whose lower bound is below the best known step is priced exactly.
//!
//! 1. All pipeline structures (micro-batch size, cuts, options; no depths) whose lower bound for one micro-batch is below
//!    the best step, each with the most sequences it could finish by then.
//! 2. All multisets of structures whose sequences reach the batch; a knapsack over the count lattice bounds what the
//!    devices left can still add.
//! 3. For each, all splits of the batch into micro-batches and all in-flight depths not excluded by their bound.
//!
//! If the work limit is not hit, the best plan is proven optimal in the space. Space: depths do not rise downstream,
//! exceed the next stage's by at most [`DEPTH_STEP`], and are 1 on the last stage; recompute is the least that fits.

use std::collections::BTreeMap;

use crate::cost::pipeline::{Depth, StageTime, Suffix};
use crate::cost::price::Cache;

use super::assemble::{Candidate, Draft, Lane};
use super::master;
use super::table::{Holders, Table};
use super::template::{Template, TemplateStage};

/// How much deeper a stage may run than the next one.
pub(super) const DEPTH_STEP: u32 = 8;

/// Outcome of the enumeration.
pub(super) struct Closed {
    /// The best candidate found, better than the incumbent; `None` if there is none.
    pub(super) better: Option<Candidate>,
    /// Whether everything was covered: then the best known step is optimal.
    pub(super) complete: bool,
    /// Structures and plans priced.
    pub(super) scored: u64,
}

struct Structure {
    template: Template,
    counts: Vec<u32>,
    /// Most sequences that it could finish below the incumbent step.
    value: u64,
}

struct Enumeration<'t, 'a> {
    table: &'t Table<'a>,
    counts: Vec<u32>,
    total: u32,
    incumbent: f64,
    best: Option<Candidate>,
    left: u64,
    scored: u64,
    structures: Vec<Structure>,
    cache: Cache,
}

/// Searches everything below `incumbent` seconds (infinite if no plan is known) with at most `work` steps.
pub(super) fn close(
    table: &Table<'_>,
    counts: &[u32],
    incumbent: f64,
    work: u64,
    stop: &dyn Fn() -> bool,
) -> Closed {
    let mut e = Enumeration {
        table,
        counts: counts.to_vec(),
        total: counts.iter().sum(),
        incumbent,
        best: None,
        left: work,
        scored: 0,
        structures: Vec::new(),
        cache: Cache::default(),
    };
    let num_atoms = table.space.setting.model.atoms.len();
    for &b in &table.space.micro_batches {
        let mut used = vec![0; counts.len()];
        e.structures_before(b, num_atoms, Suffix::EMPTY, &mut Vec::new(), &mut used);
    }
    e.structures.sort_by(|a, b| {
        b.value
            .cmp(&a.value)
            .then_with(|| a.template.key().cmp(&b.template.key()))
    });
    if e.left > 0 {
        let room = e.knapsack();
        let mut free = counts.to_vec();
        e.combine(0, 0, &mut free, &room, &mut Vec::new(), stop);
    }
    Closed {
        better: e.best,
        complete: e.left > 0 && !stop(),
        scored: e.scored,
    }
}

impl Enumeration<'_, '_> {
    fn spend(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// Optimistic stage time of a range: least recompute, most holders, best link.
    fn optimistic(&self, stage: &TemplateStage, next: Option<&TemplateStage>) -> Option<(StageTime, f64)> {
        let holders = Holders::most(self.total);
        let fit = stage.row.least_fit(self.table.space, stage.atoms, 1, holders)?;
        let link = match next {
            Some(next) => self.table.link(&stage.row, &next.row, true)?,
            None => 0.0,
        };
        let tail = stage
            .row
            .optimizer(self.table.space, stage.atoms.0, stage.atoms.1, holders);
        let time = StageTime {
            forward: fit.forward,
            backward: fit.backward,
            link_forward: link,
            link_backward: link,
        };
        Some((time, tail))
    }

    fn structures_before(
        &mut self,
        b: u32,
        end: usize,
        suffix: Suffix,
        stages: &mut Vec<TemplateStage>,
        used: &mut Vec<u32>,
    ) {
        if end == 0 {
            self.scored += 1;
            let template = Template {
                micro_batch: b,
                stages: stages.iter().rev().cloned().collect(),
            };
            let value = self.most_sequences(&template);
            if value > 0 {
                self.structures.push(Structure {
                    counts: used.clone(),
                    template,
                    value,
                });
            }
            return;
        }
        let rows = self.table.of_size(b).to_vec();
        for row in rows {
            let class = row.option.class;
            if used[class] + row.option.devices() > self.counts[class] {
                continue;
            }
            let mut next = end;
            while next > 0 {
                let start = next - 1;
                next = start;
                if !self.spend() {
                    return;
                }
                let stage = TemplateStage {
                    row: row.clone(),
                    atoms: (start, end),
                    depth: 1,
                };
                let Some((time, tail)) = self.optimistic(&stage, stages.last()) else {
                    continue;
                };
                let longer = suffix.prepend(&time, Depth::UpTo(1), 1, tail);
                if longer.step >= self.incumbent {
                    // A longer range is slower, but for one with the first atom: it may spare recompute.
                    next = start.min(1);
                    continue;
                }
                used[class] += row.option.devices();
                stages.push(stage);
                self.structures_before(b, start, longer, stages, used);
                stages.pop();
                used[class] -= row.option.devices();
            }
        }
    }

    /// Lower bound of the step of a structure with `m` micro-batches, any depths.
    fn bound(&self, template: &Template, m: u32) -> f64 {
        let mut suffix = Suffix::EMPTY;
        let mut next: Option<&TemplateStage> = None;
        for stage in template.stages.iter().rev() {
            let Some((time, tail)) = self.optimistic(stage, next) else {
                return f64::INFINITY;
            };
            suffix = suffix.prepend(&time, Depth::UpTo(m), m, tail);
            next = Some(stage);
        }
        suffix.step
    }

    fn most_sequences(&self, template: &Template) -> u64 {
        let batch = self.table.space.setting.training.global_batch;
        let (mut low, mut high) = (0, (batch / u64::from(template.micro_batch)) as u32);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.bound(template, middle) < self.incumbent {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        u64::from(low) * u64::from(template.micro_batch)
    }

    /// For every count vector the most sequences that structures within it could finish.
    fn knapsack(&self) -> BTreeMap<Vec<u32>, u64> {
        let mut best_of: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for s in &self.structures {
            let kept = best_of.entry(s.counts.clone()).or_insert(0);
            *kept = (*kept).max(s.value);
        }
        master::knapsack(&best_of, &self.counts)
    }

    fn combine(
        &mut self,
        from: usize,
        value: u64,
        free: &mut Vec<u32>,
        room: &BTreeMap<Vec<u32>, u64>,
        chosen: &mut Vec<usize>,
        stop: &dyn Fn() -> bool,
    ) {
        let batch = self.table.space.setting.training.global_batch;
        if value >= batch {
            self.splits(chosen, stop);
        }
        for i in from..self.structures.len() {
            if !self.spend() || stop() {
                self.left = 0;
                return;
            }
            if value + room.get(free).copied().unwrap_or(0) < batch && value < batch {
                return;
            }
            let s = &self.structures[i];
            if s.counts.iter().zip(free.iter()).any(|(n, f)| n > f) {
                continue;
            }
            let counts = s.counts.clone();
            let more = s.value;
            for (f, n) in free.iter_mut().zip(&counts) {
                *f -= n;
            }
            chosen.push(i);
            self.combine(i, value + more, free, room, chosen, stop);
            chosen.pop();
            for (f, n) in free.iter_mut().zip(&counts) {
                *f += n;
            }
        }
    }

    /// All micro-batch splits of a multiset of structures.
    fn splits(&mut self, chosen: &[usize], stop: &dyn Fn() -> bool) {
        let batch = self.table.space.setting.training.global_batch;
        let mut split = Vec::with_capacity(chosen.len());
        self.split_from(chosen, batch, &mut split, stop);
    }

    fn split_from(&mut self, chosen: &[usize], left: u64, split: &mut Vec<u32>, stop: &dyn Fn() -> bool) {
        let at = split.len();
        if at == chosen.len() {
            if left == 0 {
                self.depths(chosen, split, stop);
            }
            return;
        }
        let template = self.structures[chosen[at]].template.clone();
        let b = u64::from(template.micro_batch);
        let others = (chosen.len() - at - 1) as u64;
        let mut m = 1;
        while u64::from(m) * b + others <= left {
            if !self.spend() || stop() {
                self.left = 0;
                return;
            }
            // Equal structures take counts in falling order: each multiset once.
            let repeated = at > 0 && chosen[at] == chosen[at - 1] && m > split[at - 1];
            if repeated || self.bound(&template, m) >= self.incumbent {
                break;
            }
            split.push(m);
            self.split_from(chosen, left - u64::from(m) * b, split, stop);
            split.pop();
            m += 1;
        }
    }

    fn depths(&mut self, chosen: &[usize], split: &[u32], stop: &dyn Fn() -> bool) {
        let mut choices: Vec<Vec<Template>> = Vec::new();
        for (&i, &m) in chosen.iter().zip(split) {
            let mut found = Vec::new();
            let mut template = self.structures[i].template.clone();
            let last = template.stages.len() - 1;
            self.ramp(&mut template, last, 1, Suffix::EMPTY, m, &mut found);
            choices.push(found);
        }
        let mut pick = Vec::new();
        self.price_all(&choices, split, &mut pick, stop);
    }

    /// All depth ramps of a template below the incumbent, from stage `s` to the front with depths from `low` on.
    fn ramp(
        &mut self,
        template: &mut Template,
        s: usize,
        low: u32,
        suffix: Suffix,
        m: u32,
        found: &mut Vec<Template>,
    ) {
        let last = s + 1 == template.stages.len();
        let high = if last { 1 } else { m.min(low + DEPTH_STEP) };
        for depth in low..=high {
            if !self.spend() {
                return;
            }
            template.stages[s].depth = depth;
            let holders = Holders::most(self.total);
            let stage = &template.stages[s];
            let Some(fit) = stage.row.least_fit(self.table.space, stage.atoms, depth, holders) else {
                break;
            };
            let Some((mut time, tail)) = self.optimistic(stage, template.stages.get(s + 1)) else {
                return;
            };
            time.backward = fit.backward;
            let longer = suffix.prepend(&time, Depth::Exactly(depth), m, tail);
            if longer.step >= self.incumbent {
                continue;
            }
            if s == 0 {
                found.push(template.clone());
            } else {
                self.ramp(template, s - 1, depth, longer, m, found);
            }
        }
    }

    fn price_all(
        &mut self,
        choices: &[Vec<Template>],
        split: &[u32],
        pick: &mut Vec<usize>,
        stop: &dyn Fn() -> bool,
    ) {
        let at = pick.len();
        if at == choices.len() {
            if !self.spend() || stop() {
                self.left = 0;
                return;
            }
            self.scored += 1;
            if let Some(candidate) = price_exactly(self.table, choices, pick, split, &mut self.cache)
                && candidate.step < self.incumbent * (1.0 - 1e-12)
            {
                self.incumbent = candidate.step;
                self.best = Some(candidate);
            }
            return;
        }
        for i in 0..choices[at].len() {
            pick.push(i);
            self.price_all(choices, split, pick, stop);
            pick.pop();
            if self.left == 0 {
                return;
            }
        }
    }
}

/// Prices one choice of templates with given micro-batch counts.
pub(super) fn price_exactly(
    table: &Table<'_>,
    choices: &[Vec<Template>],
    pick: &[usize],
    split: &[u32],
    cache: &mut Cache,
) -> Option<Candidate> {
    let lanes: Vec<Lane> = pick
        .iter()
        .zip(choices)
        .map(|(&i, templates)| Lane {
            template: templates[i].clone(),
            copies: 1,
        })
        .collect();
    // Lanes stay apart here: each has its own micro-batch count.
    let draft = Draft {
        lanes,
        origin: "exhaustive",
    };
    let counts: Vec<Vec<u32>> = split.iter().map(|m| vec![*m]).collect();
    draft.realise_with(table, &counts, cache)
}
