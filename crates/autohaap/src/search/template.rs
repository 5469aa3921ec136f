//! A pipeline template: micro-batch size and stages as counts, without device ids.

use std::sync::Arc;

use crate::cost::pipeline::{Scratch, StageTime, run};

use super::table::{Fit, Row, Table};

/// A stage of a template.
#[derive(Clone)]
pub(super) struct TemplateStage {
    /// Option and stage table.
    pub(super) row: Arc<Row>,
    /// Half-open atom range.
    pub(super) atoms: (usize, usize),
    /// In-flight limit W.
    pub(super) depth: u32,
}

/// A pipeline shape.
#[derive(Clone)]
pub(super) struct Template {
    /// Sequences per micro-batch.
    pub(super) micro_batch: u32,
    /// Stages in chain order.
    pub(super) stages: Vec<TemplateStage>,
}

/// Order and identity of a template, for deterministic ties.
pub(super) type TemplateKey = (u32, Vec<(super::space::StageOption, usize, u32)>);

impl Template {
    /// Canonical key.
    pub(super) fn key(&self) -> TemplateKey {
        (
            self.micro_batch,
            self.stages
                .iter()
                .map(|s| (s.row.option, s.atoms.1, s.depth))
                .collect(),
        )
    }

    /// Devices used per class.
    pub(super) fn counts(&self, num_classes: usize) -> Vec<u32> {
        let mut counts = vec![0; num_classes];
        for stage in &self.stages {
            counts[stage.row.option.class] += stage.row.option.devices();
        }
        counts
    }

    /// The least number of replicas over the stages: what this pipeline adds to the holders of every atom.
    pub(super) fn replicas(&self) -> u32 {
        self.stages
            .iter()
            .map(|s| s.row.option.replicas)
            .min()
            .unwrap_or(1)
    }

    /// Fits of all stages with `others` replicas elsewhere, `None` if memory does not suffice.
    pub(super) fn fits(&self, table: &Table<'_>, others: u32) -> Option<Vec<Fit>> {
        self.stages
            .iter()
            .map(|s| {
                let holders = s.row.holders(others + s.row.option.replicas);
                s.row.fit(table.space, s.atoms, s.depth, holders)
            })
            .collect()
    }

    /// Stage and link times, `None` where a stage does not fit or no link exists.
    pub(super) fn times(&self, table: &Table<'_>, others: u32) -> Option<Vec<StageTime>> {
        let fits = self.fits(table, others)?;
        let mut times = Vec::with_capacity(fits.len());
        for (i, fit) in fits.iter().enumerate() {
            let link = match self.stages.get(i + 1) {
                Some(next) => table.link(&self.stages[i].row, &next.row, false)?,
                None => 0.0,
            };
            times.push(StageTime {
                forward: fit.forward,
                backward: fit.backward,
                link_forward: link,
                link_backward: link,
            });
        }
        Some(times)
    }

    /// What follows the last backward of each stage: exposed gradient reduction and optimizer.
    pub(super) fn tails(&self, table: &Table<'_>, others: u32) -> Vec<f64> {
        let overlap = table.space.setting.training.engine_semantics.overlap.dp;
        self.stages
            .iter()
            .map(|s| {
                let holders = s.row.holders(others + s.row.option.replicas);
                let sync = table.sync(&s.row, s.atoms.0, s.atoms.1, holders);
                let exposed = if overlap {
                    // All but the first atom of the stage may be reduced under the last backward.
                    let (_, backward) = s.row.times(s.atoms.0, s.atoms.1);
                    let least = table.sync(&s.row, s.atoms.0, s.atoms.0 + 1, holders);
                    (sync - backward).max(least)
                } else {
                    sync
                };
                exposed + s.row.optimizer(table.space, s.atoms.0, s.atoms.1, holders)
            })
            .collect()
    }

    /// The same options and depths with cuts of the least slowest stage, recompute that the depths ask for included;
    /// `None` if no cuts fit. Bisection on the stage time: each stage takes as many atoms as it can and leaves one for
    /// every later stage.
    pub(super) fn rebalanced(&self, table: &Table<'_>, others: u32) -> Option<Self> {
        let num_atoms = self.stages.last()?.atoms.1;
        let num_stages = self.stages.len();
        let time = |stage: &TemplateStage, a: usize, b: usize| {
            let holders = stage.row.holders(others + stage.row.option.replicas);
            stage
                .row
                .fit(table.space, (a, b), stage.depth, holders)
                .map_or(f64::INFINITY, |fit| fit.forward + fit.backward)
        };
        let fill = |limit: f64| -> Option<Vec<usize>> {
            let mut cuts = Vec::with_capacity(num_stages);
            let mut start = 0;
            for (s, stage) in self.stages.iter().enumerate() {
                let most = num_atoms - (num_stages - 1 - s);
                let mut end = start;
                while end < most && stage.row.compute(start, end + 1) <= limit {
                    end += 1;
                }
                // Compute alone is a lower bound; what recompute adds shortens the range further.
                while end > start && time(stage, start, end) > limit {
                    end -= 1;
                }
                if end == start {
                    return None;
                }
                start = end;
                cuts.push(end);
            }
            (start == num_atoms).then_some(cuts)
        };
        let slowest = self
            .stages
            .iter()
            .map(|s| time(s, s.atoms.0, s.atoms.1))
            .fold(0.0, f64::max);
        // Without a finite time of the present cuts, anything up to one stage for all is worth a look.
        let mut high = if slowest.is_finite() {
            slowest
        } else {
            self.stages
                .iter()
                .map(|s| 2.0 * s.row.compute(0, num_atoms))
                .fold(0.0, f64::max)
        };
        let mut low = 0.0;
        let mut best = fill(high)?;
        for _ in 0..14 {
            let middle = f64::midpoint(low, high);
            match fill(middle) {
                Some(cuts) => {
                    best = cuts;
                    high = middle;
                }
                None => low = middle,
            }
        }
        let mut next = self.clone();
        let mut start = 0;
        for (stage, cut) in next.stages.iter_mut().zip(best) {
            stage.atoms = (start, cut);
            start = cut;
        }
        Some(next)
    }

    /// Depths in chain order.
    pub(super) fn depths(&self) -> Vec<u32> {
        self.stages.iter().map(|s| s.depth).collect()
    }
}

/// Prepared to answer "how many micro-batches within T" quickly.
pub(super) struct Timed {
    times: Vec<StageTime>,
    depths: Vec<u32>,
    tails: Vec<f64>,
}

impl Timed {
    /// Times of a template with `others` replicas elsewhere; `None` if it does not fit.
    pub(super) fn new(template: &Template, table: &Table<'_>, others: u32) -> Option<Self> {
        Some(Self {
            times: template.times(table, others)?,
            depths: template.depths(),
            tails: template.tails(table, others),
        })
    }

    /// Step time with `micro_batches`, seconds.
    pub(super) fn step(&self, micro_batches: u32, scratch: &mut Scratch) -> f64 {
        let run = run(&self.times, &self.depths, micro_batches, scratch);
        run.stages
            .iter()
            .zip(&self.tails)
            .map(|(s, tail)| s.last_backward_end + tail)
            .fold(0.0, f64::max)
    }

    /// The most micro-batches, up to `most`, that end within `time`; 0 if not even one does.
    pub(super) fn capacity(&self, time: f64, most: u32, scratch: &mut Scratch) -> u32 {
        let slowest = self.times.iter().map(StageTime::compute).fold(0.0, f64::max);
        let (mut low, mut high) = (0, most.min((time / slowest.max(1e-12)) as u32));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.step(middle, scratch) <= time {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}
