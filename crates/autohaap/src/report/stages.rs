//! The stage table: one row per stage, equal pipelines and equal stages written once.

use std::collections::BTreeMap;

use super::{table, words};
use crate::plan::{DevicePrediction, Grade, Pipeline, Plan, Prediction, Recompute, Stage, StagePrediction};

/// Pipelines of one shape: index of the first and number.
fn shapes(plan: &Plan) -> Vec<(usize, usize)> {
    let shape = |p: &Pipeline| {
        let stages: Vec<_> = p
            .stages
            .iter()
            .map(|s| {
                let types: Vec<_> = s
                    .replicas
                    .iter()
                    .map(|r| (r.tp, r.cp, r.rows, device_type(plan, &r.devices[0])))
                    .collect();
                (s.atoms, s.in_flight, s.ep, types, format!("{:?}", s.recompute))
            })
            .collect();
        (p.micro_batch, stages)
    };
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (i, p) in plan.pipelines.iter().enumerate() {
        match found
            .iter_mut()
            .find(|(first, _)| shape(&plan.pipelines[*first]) == shape(p))
        {
            Some(f) => f.1 += 1,
            None => found.push((i, 1)),
        }
    }
    found
}

fn device_type(plan: &Plan, device: &str) -> String {
    plan.cluster
        .cluster
        .parse_device(device)
        .ok()
        .and_then(|(n, i)| plan.cluster.cluster.device_type_at(n, i).map(str::to_owned))
        .unwrap_or_else(|| "?".into())
}

/// The table, at most `limit` rows.
pub(super) fn stage_table(plan: &Plan, prediction: &Prediction, limit: usize) -> String {
    let mut rows = table(&[
        "pipelines",
        "stage",
        "devices",
        "layers",
        "tp x dp",
        "rows",
        "recompute",
        "W",
        "memory GiB",
        "busy",
    ]);
    let memory: BTreeMap<&str, &DevicePrediction> = prediction
        .devices
        .iter()
        .map(|d| (d.device.as_str(), d))
        .collect();
    let times: BTreeMap<(usize, usize), &StagePrediction> = prediction
        .stages
        .iter()
        .map(|s| ((s.pipeline, s.stage), s))
        .collect();
    let mut left = limit;
    let mut hidden = 0;
    for (first, copies) in shapes(plan) {
        let pipeline = &plan.pipelines[first];
        for (s, stage) in pipeline.stages.iter().enumerate() {
            if left == 0 {
                hidden += 1;
                continue;
            }
            left -= 1;
            let counts = {
                let same = plan.pipelines.iter().filter(|p| shape_equal(plan, p, pipeline));
                let (mut low, mut high) = (u32::MAX, 0);
                for p in same {
                    low = low.min(p.micro_batches);
                    high = high.max(p.micro_batches);
                }
                if low == high {
                    format!("{low}")
                } else {
                    format!("{low}-{high}")
                }
            };
            let label = if s == 0 {
                format!("{copies}x, {counts} x {}", pipeline.micro_batch)
            } else {
                String::new()
            };
            rows.add_row(vec![
                label,
                s.to_string(),
                devices_of(plan, stage),
                layers(plan, stage),
                degrees(stage),
                rows_of(stage),
                recompute(stage),
                stage.in_flight.to_string(),
                memory_of(stage, &memory),
                times
                    .get(&(first, s))
                    .map_or_else(String::new, |t| words::percent(t.busy_fraction)),
            ]);
        }
    }
    let mut text = rows.to_string();
    if hidden > 0 {
        text += &format!("\n  ... and {hidden} more stages (all in the plan file)");
    }
    text
}

fn shape_equal(plan: &Plan, a: &Pipeline, b: &Pipeline) -> bool {
    a.micro_batch == b.micro_batch
        && a.stages.len() == b.stages.len()
        && a.stages.iter().zip(&b.stages).all(|(x, y)| {
            x.atoms == y.atoms
                && x.in_flight == y.in_flight
                && x.recompute == y.recompute
                && x.ep == y.ep
                && x.replicas.len() == y.replicas.len()
                && x.replicas.iter().zip(&y.replicas).all(|(r, q)| {
                    r.tp == q.tp
                        && r.rows == q.rows
                        && device_type(plan, &r.devices[0]) == device_type(plan, &q.devices[0])
                })
        })
}

fn devices_of(plan: &Plan, stage: &Stage) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for device in stage.replicas.iter().flat_map(|r| &r.devices) {
        *counts.entry(device_type(plan, device)).or_default() += 1;
    }
    words::counted(&counts)
}

/// Layers with the ends marked: `E+14`, `18+H`.
fn layers(plan: &Plan, stage: &Stage) -> String {
    let [a, b] = stage.atoms;
    let atoms = &plan.model.model.atoms;
    let blocks = atoms[a..b]
        .iter()
        .filter(|x| {
            !matches!(
                x.kind,
                crate::model::AtomKind::Embedding | crate::model::AtomKind::Head
            )
        })
        .count();
    let mut text = String::new();
    if a == 0 {
        text += "E+";
    }
    text += &blocks.to_string();
    if b == atoms.len() {
        text += "+H";
    }
    text
}

fn degrees(stage: &Stage) -> String {
    let tp = stage.replicas.first().map_or(1, |r| r.tp);
    let cp = stage.replicas.first().map_or(1, |r| r.cp);
    let mut text = format!("{tp} x {}", stage.replicas.len());
    if cp > 1 {
        text += &format!(" cp{cp}");
    }
    if stage.ep > 1 {
        text += &format!(" ep{}", stage.ep);
    }
    text
}

fn rows_of(stage: &Stage) -> String {
    let mut rows: Vec<u32> = stage.replicas.iter().map(|r| r.rows).collect();
    rows.dedup();
    rows.iter().map(u32::to_string).collect::<Vec<_>>().join(":")
}

fn recompute(stage: &Stage) -> String {
    let mut full = 0;
    let mut selective = 0;
    for range in &stage.recompute {
        let n = range.atoms[1].saturating_sub(range.atoms[0]);
        match range.mode {
            Recompute::Full => full += n,
            Recompute::Selective => selective += n,
            Recompute::None => {}
        }
    }
    match (full, selective) {
        (0, 0) => "none".into(),
        (f, 0) => format!("full {f}"),
        (0, s) => format!("sel. {s}"),
        (f, s) => format!("full {f}, sel. {s}"),
    }
}

fn memory_of(stage: &Stage, memory: &BTreeMap<&str, &DevicePrediction>) -> String {
    let fullest = stage
        .replicas
        .iter()
        .flat_map(|r| &r.devices)
        .filter_map(|d| memory.get(d.as_str()))
        .max_by(|a, b| {
            (a.memory_bytes.total / a.memory_bytes.limit)
                .total_cmp(&(b.memory_bytes.total / b.memory_bytes.limit))
        });
    fullest.map_or_else(String::new, |d| {
        let m = &d.memory_bytes;
        let mark = match d.grade {
            Grade::Safe => "",
            Grade::Tight => " tight",
            Grade::Over => " OVER",
        };
        format!("{:.1} ({:.0} %{mark})", m.total.gib(), m.total / m.limit * 100.0)
    })
}
