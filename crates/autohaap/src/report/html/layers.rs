//! The model over the hardware: one strip per distinct pipeline, stages as wide as their time per micro-batch, a cell per
//! layer.

use serde::Serialize;

use super::Page;
use super::facts::percent;
use super::shape::{Shapes, recompute_words};
use crate::model::AtomKind;

#[derive(Serialize)]
pub(super) struct View {
    strips: Vec<Strip>,
    legend: Vec<(String, usize)>,
}

#[derive(Serialize)]
struct Strip {
    title: String,
    stages: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    name: String,
    colour: usize,
    devices: String,
    layers: String,
    degrees: String,
    /// Forward and backward of one micro-batch, milliseconds: the width.
    time_ms: f64,
    forward: String,
    backward: String,
    recompute: String,
    in_flight: u32,
    busy: String,
    /// Class of the cell and what it stands for.
    cells: Vec<(&'static str, String)>,
}

pub(super) fn view(page: &Page<'_>, shapes: &Shapes<'_>) -> View {
    let plan = page.plan;
    let strips = shapes
        .groups
        .iter()
        .map(|(first, all)| {
            let pipeline = &plan.pipelines[*first];
            let mut counts: Vec<u32> = all.iter().map(|&i| plan.pipelines[i].micro_batches).collect();
            counts.sort_unstable();
            counts.dedup();
            let counts = match counts.as_slice() {
                [one] => one.to_string(),
                [low, .., high] => format!("{low} to {high}"),
                [] => String::new(),
            };
            let title = format!(
                "{} of {} micro-batches of {} sequence{} each",
                match all.as_slice() {
                    [one] => format!("Pipeline {one}:"),
                    [low, .., high] if high - low + 1 == all.len() =>
                        format!("Pipelines {low} to {high}, {} equal ones:", all.len()),
                    _ => format!("{} equal pipelines:", all.len()),
                },
                counts,
                pipeline.micro_batch,
                if pipeline.micro_batch == 1 { "" } else { "s" },
            )
            .replace(": of", ":");
            let stages = (0..pipeline.stages.len())
                .map(|s| block(page, shapes, *first, s))
                .collect();
            Strip { title, stages }
        })
        .collect();
    View {
        strips,
        legend: shapes
            .legend()
            .iter()
            .map(|(n, c)| ((*n).to_owned(), *c))
            .collect(),
    }
}

fn block(page: &Page<'_>, shapes: &Shapes<'_>, pipeline: usize, index: usize) -> Block {
    let stages = &page.plan.pipelines[pipeline].stages;
    let stage = &stages[index];
    // A virtual stage sits on the devices of the stage it names.
    let owner = stage.on_stage.and_then(|i| stages.get(i)).unwrap_or(stage);
    let device_type = shapes.type_of(owner);
    let atoms = &page.plan.model.model.atoms;
    let [start, end] = stage.atoms;
    let end = end.min(atoms.len());
    let start = start.min(end);
    let cells: Vec<(&'static str, String)> = (start..end)
        .map(|i| match atoms[i].kind {
            AtomKind::Embedding => ("e", "embedding".to_owned()),
            AtomKind::Dense => ("d", format!("layer {}, dense", i - 1)),
            AtomKind::Moe => ("m", format!("layer {}, experts", i - 1)),
            AtomKind::Scan => ("s", format!("layer {}, scan", i - 1)),
            AtomKind::Mtp => ("t", "token-prediction block".to_owned()),
            AtomKind::Head => ("h", "head and loss".to_owned()),
        })
        .collect();
    let blocks: Vec<usize> = (start..end)
        .filter(|&i| !matches!(atoms[i].kind, AtomKind::Embedding | AtomKind::Head))
        .map(|i| i - 1)
        .collect();
    let mut layers = match (blocks.first(), blocks.last()) {
        (Some(a), Some(b)) if a == b => format!("layer {a}"),
        (Some(a), Some(b)) => format!("layers {a}-{b} ({})", blocks.len()),
        _ => "no layers".into(),
    };
    if start == 0 {
        layers = format!("embedding, {layers}");
    }
    if end == atoms.len() {
        layers += ", head";
    }
    let first = owner.replicas.first();
    let mut degrees = format!(
        "tp {} x dp {}",
        first.map_or(1, |r| r.tp),
        owner.replicas.len().max(1)
    );
    if let Some(cp) = first.map(|r| r.cp).filter(|cp| *cp > 1) {
        degrees += &format!(" x cp {cp}");
    }
    if stage.ep > 1 {
        degrees += &format!(", ep {}", stage.ep);
    }
    let time = page
        .prediction
        .stages
        .iter()
        .find(|t| t.pipeline == pipeline && t.stage == index);
    Block {
        name: format!("stage {index}"),
        colour: shapes.colour(device_type),
        devices: format!(
            "{}x {device_type}",
            owner.replicas.iter().map(|r| r.devices.len()).sum::<usize>()
        ),
        layers,
        degrees,
        time_ms: time.map_or(1.0, |t| ((t.forward_s + t.backward_s).0 * 1e3).max(1e-3)),
        forward: time.map_or_else(String::new, |t| t.forward_s.to_string()),
        backward: time.map_or_else(String::new, |t| t.backward_s.to_string()),
        recompute: recompute_words(stage),
        in_flight: stage.in_flight,
        busy: time.map_or_else(String::new, |t| percent(t.busy_fraction)),
        cells,
    }
}
