//! The oracle: every plan of the space, priced one by one. For tiny inputs and tests.
//!
//! It shares the stage table and the pricing of a placed plan with the search, and nothing else: no bound, no label.

use crate::cost::price::Cache;

use super::assemble::Candidate;
use super::lattice::{DEPTH_STEP, price_exactly};
use super::table::Table;
use super::template::{Template, TemplateStage};

/// All plans priced, or the limit hit.
pub(super) struct Enumerated {
    /// The best plan; `None` if no plan fits.
    pub(super) best: Option<Candidate>,
    /// Plans priced.
    pub(super) plans: u64,
    /// Whether all were.
    pub(super) complete: bool,
}

/// Prices every plan over `counts` devices, at most `limit`.
pub(super) fn enumerate(
    table: &Table<'_>,
    counts: &[u32],
    limit: u64,
    stop: &dyn Fn() -> bool,
) -> Enumerated {
    let mut all = Vec::new();
    for &b in &table.space.micro_batches {
        let mut used = vec![0; counts.len()];
        templates(table, counts, b, 0, &mut Vec::new(), &mut used, &mut all);
    }
    let mut state = State {
        table,
        all,
        limit,
        plans: 0,
        best: None,
        cache: Cache::default(),
        stop,
    };
    let mut free = counts.to_vec();
    let batch = table.space.setting.training.global_batch;
    state.choose(0, batch, &mut free, &mut Vec::new());
    let complete = state.plans < state.limit && !stop();
    Enumerated {
        best: state.best,
        plans: state.plans,
        complete,
    }
}

/// Every sequence of stages over all atoms, from the first atom on, depths 1.
fn templates(
    table: &Table<'_>,
    counts: &[u32],
    b: u32,
    start: usize,
    stages: &mut Vec<TemplateStage>,
    used: &mut Vec<u32>,
    all: &mut Vec<Template>,
) {
    let num_atoms = table.space.setting.model.atoms.len();
    if start == num_atoms {
        all.push(Template {
            micro_batch: b,
            stages: stages.clone(),
        });
        return;
    }
    for row in table.of_size(b) {
        let class = row.option.class;
        if used[class] + row.option.devices() > counts[class] {
            continue;
        }
        for end in start + 1..=num_atoms {
            used[class] += row.option.devices();
            stages.push(TemplateStage {
                row: row.clone(),
                atoms: (start, end),
                depth: 1,
            });
            templates(table, counts, b, end, stages, used, all);
            stages.pop();
            used[class] -= row.option.devices();
        }
    }
}

struct State<'t, 'a> {
    table: &'t Table<'a>,
    all: Vec<Template>,
    limit: u64,
    plans: u64,
    best: Option<Candidate>,
    cache: Cache,
    stop: &'t dyn Fn() -> bool,
}

impl State<'_, '_> {
    fn choose(&mut self, from: usize, left: u64, free: &mut Vec<u32>, chosen: &mut Vec<(usize, u32)>) {
        if left == 0 {
            self.all_depths(chosen);
            return;
        }
        for i in from..self.all.len() {
            if self.plans >= self.limit || (self.stop)() {
                return;
            }
            let need = self.all[i].counts(free.len());
            if need.iter().zip(free.iter()).any(|(n, f)| n > f) {
                continue;
            }
            let b = u64::from(self.all[i].micro_batch);
            for (f, n) in free.iter_mut().zip(&need) {
                *f -= n;
            }
            for m in 1..=left / b {
                // Equal templates take falling counts, so that each multiset comes once.
                if chosen.last().is_some_and(|last| last.0 == i && m as u32 > last.1) {
                    break;
                }
                chosen.push((i, m as u32));
                self.choose(i, left - m * b, free, chosen);
                chosen.pop();
            }
            for (f, n) in free.iter_mut().zip(&need) {
                *f += n;
            }
        }
    }

    fn all_depths(&mut self, chosen: &[(usize, u32)]) {
        let choices: Vec<Vec<Template>> = chosen.iter().map(|&(i, m)| ramps(&self.all[i], m)).collect();
        let split: Vec<u32> = chosen.iter().map(|c| c.1).collect();
        let mut pick = vec![0; choices.len()];
        loop {
            if self.plans >= self.limit {
                return;
            }
            self.plans += 1;
            if let Some(candidate) = price_exactly(self.table, &choices, &pick, &split, &mut self.cache)
                && self.best.as_ref().is_none_or(|best| candidate.step < best.step)
            {
                self.best = Some(candidate);
            }
            let Some(at) = (0..pick.len()).find(|&k| pick[k] + 1 < choices[k].len()) else {
                return;
            };
            pick[at] += 1;
            pick[..at].fill(0);
        }
    }
}

/// All in-flight depths of a template with `m` micro-batches: 1 on the last stage, never rising downstream.
fn ramps(template: &Template, m: u32) -> Vec<Template> {
    let num_stages = template.stages.len();
    let mut ramps = vec![vec![1u32]];
    for _ in 1..num_stages {
        ramps = ramps
            .into_iter()
            .flat_map(|ramp| {
                let low = ramp[ramp.len() - 1];
                (low..=m.min(low + DEPTH_STEP)).map(move |w| {
                    let mut longer = ramp.clone();
                    longer.push(w);
                    longer
                })
            })
            .collect();
    }
    ramps
        .into_iter()
        .map(|ramp| {
            let mut deep = template.clone();
            for (stage, w) in deep.stages.iter_mut().zip(ramp.iter().rev()) {
                stage.depth = *w;
            }
            deep
        })
        .collect()
}
