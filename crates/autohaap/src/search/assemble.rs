//! From templates to placed pipelines: micro-batch counts that add up exactly, least recompute, device ids.

use std::collections::BTreeMap;

use crate::cost::pipeline::Scratch;
use crate::cost::price::{Cache, price_step};
use crate::plan::{Pipeline, Recompute, RecomputeRange, Replica, Schedule, ScheduleKind, Stage};

use super::placement::place;
use super::space::StageOption;
use super::table::{Fit, Holders, Row, Table};
use super::template::{Template, TemplateKey, Timed};

/// Pipelines of one shape.
#[derive(Clone)]
pub(super) struct Lane {
    /// Shape.
    pub(super) template: Template,
    /// Pipelines of this shape.
    pub(super) copies: u32,
}

/// A plan in the making: shapes and how often each is used.
#[derive(Clone)]
pub(super) struct Draft {
    /// Different shapes in canonical order.
    pub(super) lanes: Vec<Lane>,
    /// What made it, for the list of losers.
    pub(super) origin: &'static str,
}

/// A draft with an exact price.
#[derive(Clone)]
pub(super) struct Candidate {
    /// The draft.
    pub(super) draft: Draft,
    /// Placed pipelines.
    pub(super) pipelines: Vec<Pipeline>,
    /// Exact step time, seconds.
    pub(super) step: f64,
}

impl Draft {
    /// Merges equal shapes and sorts them.
    pub(super) fn new(lanes: impl IntoIterator<Item = Lane>, origin: &'static str) -> Self {
        let mut merged: BTreeMap<TemplateKey, Lane> = BTreeMap::new();
        for lane in lanes {
            merged
                .entry(lane.template.key())
                .and_modify(|kept| kept.copies += lane.copies)
                .or_insert(lane);
        }
        Self {
            lanes: merged.into_values().collect(),
            origin,
        }
    }

    /// Canonical key.
    pub(super) fn key(&self) -> Vec<(TemplateKey, u32)> {
        self.lanes.iter().map(|l| (l.template.key(), l.copies)).collect()
    }

    /// Replicas that hold each atom and copies of its experts, over all pipelines.
    fn holders(&self, num_atoms: usize) -> Vec<Holders> {
        let none = Holders {
            replicas: 0,
            experts: 0,
        };
        let mut holders = vec![none; num_atoms];
        for lane in &self.lanes {
            for stage in &lane.template.stages {
                let option = &stage.row.option;
                for h in &mut holders[stage.atoms.0..stage.atoms.1] {
                    h.replicas += lane.copies * option.replicas;
                    h.experts += lane.copies * (option.devices() / option.ep).max(1);
                }
            }
        }
        holders
    }

    /// Replicas that other pipelines add to one pipeline of shape `lane`, at least.
    pub(super) fn others(&self, lane: usize) -> u32 {
        self.lanes
            .iter()
            .enumerate()
            .map(|(i, l)| (l.copies - u32::from(i == lane)) * l.template.replicas())
            .sum()
    }

    /// Micro-batches of every pipeline of every lane so that the global batch is met exactly and the slowest ends as
    /// early as possible: (estimated step, counts per lane and copy).
    pub(super) fn allocate(&self, table: &Table<'_>, scratch: &mut Scratch) -> Option<(f64, Vec<Vec<u32>>)> {
        let batch = table.space.setting.training.global_batch;
        let timed: Vec<Timed> = self
            .lanes
            .iter()
            .enumerate()
            .map(|(i, l)| Timed::new(&l.template, table, self.others(i)))
            .collect::<Option<_>>()?;
        let sizes: Vec<u64> = self
            .lanes
            .iter()
            .map(|l| u64::from(l.template.micro_batch))
            .collect();
        let most: Vec<u32> = sizes.iter().map(|b| (batch / b).min(1 << 20) as u32).collect();
        let total = |time: f64, scratch: &mut Scratch| -> (u64, Vec<u32>) {
            let counts: Vec<u32> = timed
                .iter()
                .zip(&most)
                .map(|(t, m)| t.capacity(time, *m, scratch))
                .collect();
            let sum = counts
                .iter()
                .zip(&sizes)
                .zip(&self.lanes)
                .map(|((m, b), l)| u64::from(*m) * b * u64::from(l.copies))
                .sum();
            (sum, counts)
        };
        let mut high = timed
            .iter()
            .map(|t| t.step(1, scratch))
            .fold(f64::INFINITY, f64::min);
        let mut low = 0.0;
        for _ in 0..64 {
            if total(high, scratch).0 >= batch {
                break;
            }
            low = high;
            high *= 2.0;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if total(middle, scratch).0 >= batch {
                high = middle;
            } else {
                low = middle;
            }
            if high - low <= 1e-9 * high {
                break;
            }
        }
        let (sum, counts) = total(high, scratch);
        let mut excess = sum.checked_sub(batch)?;
        let mut split: Vec<Vec<u32>> = self
            .lanes
            .iter()
            .zip(&counts)
            .map(|(l, m)| vec![*m; l.copies as usize])
            .collect();
        // Take the surplus from the pipelines that end last.
        while excess > 0 {
            let mut slowest: Option<(f64, usize, usize)> = None;
            for (i, copies) in split.iter().enumerate() {
                if sizes[i] > excess {
                    continue;
                }
                // Copies of one lane differ by at most a few; the largest count comes first.
                if let Some((j, &m)) = copies
                    .iter()
                    .enumerate()
                    .max_by_key(|(j, m)| (**m, usize::MAX - j))
                    && m > 0
                {
                    let step = timed[i].step(m, scratch);
                    if slowest.is_none_or(|s| step > s.0) {
                        slowest = Some((step, i, j));
                    }
                }
            }
            let (_, i, j) = slowest?;
            split[i][j] -= 1;
            excess -= sizes[i];
        }
        Some((high, split))
    }

    /// Places the draft and prices it exactly; `None` if it does not pack, fit or add up.
    pub(super) fn realise(
        &self,
        table: &Table<'_>,
        cache: &mut Cache,
        scratch: &mut Scratch,
    ) -> Option<Candidate> {
        let (_, counts) = self.allocate(table, scratch)?;
        self.realise_with(table, &counts, cache)
    }

    /// The same with given micro-batch counts per lane and copy; a count of 0 leaves the pipeline out.
    pub(super) fn realise_with(
        &self,
        table: &Table<'_>,
        counts: &[Vec<u32>],
        cache: &mut Cache,
    ) -> Option<Candidate> {
        let space = table.space;
        let lanes: Vec<Lane> = self
            .lanes
            .iter()
            .zip(counts)
            .map(|(l, m)| Lane {
                template: l.template.clone(),
                copies: m.iter().filter(|m| **m > 0).count() as u32,
            })
            .filter(|l| l.copies > 0)
            .collect();
        let live = Draft {
            lanes,
            origin: self.origin,
        };
        let holders = live.holders(space.setting.model.atoms.len());
        // The order decides who stands where: one order for a plan, however it was put together.
        let mut lane_of: Vec<(&Template, u32)> = self
            .lanes
            .iter()
            .zip(counts)
            .flat_map(|(lane, m)| m.iter().filter(|m| **m > 0).map(|m| (&lane.template, *m)))
            .collect();
        lane_of.sort_by_cached_key(|(template, m)| (template.key(), std::cmp::Reverse(*m)));
        let shapes: Vec<Vec<StageOption>> = lane_of
            .iter()
            .map(|(template, _)| template.stages.iter().map(|s| s.row.option).collect())
            .collect();
        let placement = place(&space.classes, &shapes)?;
        let cluster = space.setting.cluster;
        let mut pipelines = Vec::with_capacity(shapes.len());
        for ((template, micro_batches), placed) in lane_of.into_iter().zip(placement) {
            let mut stages = Vec::with_capacity(template.stages.len());
            for (stage, replicas) in template.stages.iter().zip(placed) {
                let held = &holders[stage.atoms.0..stage.atoms.1];
                let least = Holders {
                    replicas: held.iter().map(|h| h.replicas).min().unwrap_or(1),
                    experts: held.iter().map(|h| h.experts).min().unwrap_or(1),
                };
                let depth = stage.depth.min(micro_batches);
                let fit = stage.row.fit(space, stage.atoms, depth, least)?;
                stages.push(Stage {
                    atoms: [stage.atoms.0, stage.atoms.1],
                    in_flight: depth,
                    recompute: recompute_ranges(stage.atoms, &fit),
                    ep: stage.row.option.ep,
                    etp: 1,
                    replicas: replicas
                        .into_iter()
                        .map(|devices| Replica {
                            devices: devices.iter().map(|d| cluster.device_name(d.0, d.1)).collect(),
                            tp: stage.row.option.tp,
                            cp: stage.row.option.cp,
                            rows: stage.row.rows(),
                        })
                        .collect(),
                    on_stage: None,
                });
            }
            pipelines.push(Pipeline {
                micro_batch: template.micro_batch,
                micro_batches,
                schedule: Schedule {
                    kind: ScheduleKind::OneF1b,
                    file: None,
                },
                stages,
            });
        }
        let (step, fits) = price_step(space.setting, &pipelines, cache).ok()?;
        fits.then_some(Candidate {
            draft: live,
            pipelines,
            step: step.0,
        })
    }
}

/// Recompute of a stage as ranges of the plan file.
fn recompute_ranges(atoms: (usize, usize), fit: &Fit) -> Vec<RecomputeRange> {
    let modes = Row::modes(atoms.1 - atoms.0, fit.recompute);
    let mut ranges: Vec<RecomputeRange> = Vec::new();
    for (i, &mode) in modes.iter().enumerate().filter(|(_, m)| **m != Recompute::None) {
        let at = atoms.0 + i;
        match ranges.last_mut() {
            Some(last) if last.mode == mode && last.atoms[1] == at => last.atoms[1] = at + 1,
            _ => ranges.push(RecomputeRange {
                atoms: [at, at + 1],
                mode,
            }),
        }
    }
    ranges
}
