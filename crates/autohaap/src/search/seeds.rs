//! Templates of regular structure to start from: one class, or two classes one after the other, with equal replicas.
//!
//! Pricing finds irregular templates but sees only what its beam keeps; these make sure that the obvious shapes, cut to
//! equal stage times, are among the columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::cost::pipeline::Scratch;

use super::table::{Row, Table};
use super::template::{Template, TemplateStage, Timed};

/// Stage counts tried per class.
const STAGES: [u32; 12] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24];

/// Templates kept per count vector.
const KEEP: usize = 2;

/// Regular templates that finish something within `time`, the best few per count vector; those found so far if stopped.
pub(super) fn regular(
    table: &Table<'_>,
    counts: &[u32],
    time: f64,
    others: u32,
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<Template> {
    let space = table.space;
    let per_size: Vec<Vec<(Vec<u32>, f64, Template)>> = space
        .micro_batches
        .par_iter()
        .map(|&b| {
            let mut best: BTreeMap<Vec<u32>, Vec<(f64, Template)>> = BTreeMap::new();
            let mut scratch = Scratch::default();
            let rows = table.of_size(b);
            for first in rows
                .iter()
                .filter(|r| r.option.devices() <= counts[r.option.class])
            {
                for &p in &STAGES {
                    if p * first.option.devices() > counts[first.option.class] || stop() {
                        break;
                    }
                    consider(
                        table,
                        &[(first, p)],
                        time,
                        others,
                        counts.len(),
                        &mut best,
                        &mut scratch,
                    );
                    let second = rows.iter().filter(|r| {
                        r.option.class != first.option.class
                            && r.option.replicas == first.option.replicas
                            && r.option.devices() <= counts[r.option.class]
                    });
                    for second in second {
                        for &q in &STAGES {
                            if q * second.option.devices() > counts[second.option.class] || stop() {
                                break;
                            }
                            consider(
                                table,
                                &[(first, p), (second, q)],
                                time,
                                others,
                                counts.len(),
                                &mut best,
                                &mut scratch,
                            );
                        }
                    }
                }
            }
            best.into_iter()
                .flat_map(|(counts, kept)| kept.into_iter().map(move |(v, t)| (counts.clone(), v, t)))
                .collect()
        })
        .collect();
    let mut merged: BTreeMap<Vec<u32>, Vec<(f64, Template)>> = BTreeMap::new();
    for (counts, value, template) in per_size.into_iter().flatten() {
        insert(merged.entry(counts).or_default(), value, template);
    }
    let kept: Vec<Template> = merged.into_values().flatten().map(|(_, t)| t).collect();
    // Equal compute is not equal time where the depths ask some stages for recompute.
    let rebalanced: Vec<Template> = kept
        .par_iter()
        .filter_map(|t| t.rebalanced(table, others).filter(|r| r.key() != t.key()))
        .collect();
    kept.into_iter().chain(rebalanced).collect()
}

fn insert(kept: &mut Vec<(f64, Template)>, value: f64, template: Template) {
    kept.push((value, template));
    kept.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key().cmp(&b.1.key())));
    kept.truncate(KEEP);
}

fn consider(
    table: &Table<'_>,
    parts: &[(&Arc<Row>, u32)],
    time: f64,
    others: u32,
    num_classes: usize,
    best: &mut BTreeMap<Vec<u32>, Vec<(f64, Template)>>,
    scratch: &mut Scratch,
) {
    let rows: Vec<&Arc<Row>> = parts
        .iter()
        .flat_map(|(row, n)| std::iter::repeat_n(*row, *n as usize))
        .collect();
    let num_atoms = table.space.setting.model.atoms.len();
    if rows.len() > num_atoms {
        return;
    }
    let Some(cuts) = balance(&rows, num_atoms) else {
        return;
    };
    let num_stages = rows.len();
    let stages = rows
        .iter()
        .enumerate()
        .map(|(s, row)| TemplateStage {
            row: (*row).clone(),
            atoms: (cuts[s], cuts[s + 1]),
            depth: (num_stages - s) as u32,
        })
        .collect();
    let template = Template {
        micro_batch: rows[0].micro_batch,
        stages,
    };
    let Some(timed) = Timed::new(&template, table, others) else {
        return;
    };
    let batch = table.space.setting.training.global_batch;
    let most = (batch / u64::from(template.micro_batch)) as u32;
    let value = f64::from(timed.capacity(time, most, scratch)) * f64::from(template.micro_batch);
    if value <= 0.0 {
        return;
    }
    let kept = best.entry(template.counts(num_classes)).or_default();
    if kept.len() < KEEP || kept.iter().any(|k| value > k.0) {
        insert(kept, value, template);
    }
}

/// Cuts with the least slowest stage: bisection on the stage time, each stage taking as many atoms as it can while
/// leaving one for every later stage.
fn balance(rows: &[&Arc<Row>], num_atoms: usize) -> Option<Vec<usize>> {
    let fill = |limit: f64| -> Option<Vec<usize>> {
        let mut cuts = vec![0];
        let mut at = 0;
        for (s, row) in rows.iter().enumerate() {
            let most = num_atoms - (rows.len() - 1 - s);
            let mut end = at;
            while end < most && row.compute(at, end + 1) <= limit {
                end += 1;
            }
            if end == at {
                return None;
            }
            at = end;
            cuts.push(at);
        }
        (at == num_atoms).then_some(cuts)
    };
    let mut high = rows.iter().map(|r| r.compute(0, num_atoms)).fold(0.0, f64::max);
    let mut low = 0.0;
    let mut best = fill(high)?;
    for _ in 0..18 {
        let middle = f64::midpoint(low, high);
        match fill(middle) {
            Some(cuts) => {
                best = cuts;
                high = middle;
            }
            None => low = middle,
        }
    }
    Some(best)
}
