//! The Gantt of one step: a row per stage, one path per kind of work, so that a row of hundreds of spans stays small.

use serde::Serialize;

use super::Page;
use super::shape::Shapes;
use crate::simulate::action::Work;
use crate::simulate::{Lane, Span, SpanKind};
use crate::units::Seconds;

/// Kinds of work drawn: class of the path and name.
const KINDS: [(&str, &str); 5] = [
    ("f", "forward"),
    ("b", "backward"),
    ("w", "weight gradient"),
    ("r", "gradient reduction"),
    ("o", "optimizer"),
];

/// Position in [`KINDS`]; `None` for what lies on links.
fn kind(span: &Span) -> Option<usize> {
    Some(match span.kind {
        SpanKind::Work(Work::Forward) => 0,
        SpanKind::Work(Work::Backward | Work::InputGrad) => 1,
        SpanKind::Work(Work::WeightGrad) => 2,
        SpanKind::Reduce | SpanKind::ReduceTied => 3,
        SpanKind::Optimizer => 4,
        SpanKind::SendForward | SpanKind::SendBackward => return None,
    })
}

/// Spans of a lane in drawing order.
fn spans(lane: &Lane) -> impl Iterator<Item = (usize, &Span)> {
    lane.compute
        .iter()
        .chain(&lane.reductions)
        .chain([&lane.optimizer])
        .filter_map(|s| kind(s).map(|k| (k, s)))
        .filter(|(_, s)| s.end.0 > s.start.0)
}

/// Horizontal resolution of a row in units.
const UNITS: f64 = 100_000.0;
/// Rows up to which every pipeline has its own.
const MOST_ROWS: usize = 40;
/// Spans drawn in all rows together; a longer step shows its first rows only.
const MOST_SPANS: usize = 14_000;

#[derive(Serialize)]
pub(super) struct View {
    step: String,
    rows: Vec<Row>,
    kinds: Vec<(&'static str, &'static str)>,
    legend: Vec<(String, usize)>,
    ticks: Vec<(f64, String)>,
    /// Rows left out.
    hidden: usize,
    /// Per row: `[kind, micro-batch or -1, start, end]` in units, for hover.
    data: String,
    step_s: f64,
}

#[derive(Serialize)]
struct Row {
    label: String,
    title: String,
    colour: usize,
    busy: String,
    /// (class of the kind, path).
    paths: Vec<(&'static str, String)>,
}

pub(super) fn view(page: &Page<'_>, shapes: &Shapes<'_>) -> Option<View> {
    let timeline = page.timeline?;
    let end = timeline.step_time.0;
    if timeline.lanes.is_empty() || !end.is_finite() || end <= 0.0 {
        return None;
    }
    let scale = UNITS / end;
    // Many rows: of equal pipelines with equally many micro-batches only the first is drawn.
    let fold = timeline.lanes.len() > MOST_ROWS;
    let mut rows = Vec::new();
    let mut data = Vec::new();
    let mut used = [false; KINDS.len()];
    let mut drawn = 0;
    let mut hidden = 0;
    for lane in &timeline.lanes {
        let twins = if fold {
            twins(page, shapes, lane.pipeline)
        } else {
            Vec::new()
        };
        if twins.first().is_some_and(|&first| first < lane.pipeline) {
            continue;
        }
        drawn += spans(lane).count();
        if drawn > MOST_SPANS && !rows.is_empty() {
            hidden += 1;
            continue;
        }
        rows.push(row(shapes, lane, twins.len(), scale, end));
        data.push(
            spans(lane)
                .map(|(k, s)| {
                    used[k] = true;
                    let batch = if k < 3 { i64::from(s.micro_batch) } else { -1 };
                    let at = |t: Seconds| (t.0 * scale).round() as i64;
                    (k, batch, at(s.start), at(s.end))
                })
                .collect::<Vec<_>>(),
        );
    }
    Some(View {
        step: timeline.step_time.to_string(),
        rows,
        kinds: KINDS
            .iter()
            .zip(used)
            .filter(|(_, used)| *used)
            .map(|(k, _)| *k)
            .collect(),
        legend: shapes
            .legend()
            .iter()
            .map(|(n, c)| ((*n).to_owned(), *c))
            .collect(),
        ticks: (0..=4)
            .map(|i| {
                let share = f64::from(i) / 4.0;
                (share * 100.0, Seconds(end * share).to_string())
            })
            .collect(),
        hidden,
        data: serde_json::to_string(&data).unwrap_or_default(),
        step_s: end,
    })
}

/// Pipelines that look the same as this one and run as many micro-batches, itself included, ascending.
fn twins(page: &Page<'_>, shapes: &Shapes<'_>, pipeline: usize) -> Vec<usize> {
    let count = |p: usize| page.plan.pipelines.get(p).map(|q| q.micro_batches);
    shapes
        .groups
        .iter()
        .find(|(_, all)| all.contains(&pipeline))
        .map_or_else(Vec::new, |(_, all)| {
            all.iter()
                .copied()
                .filter(|&p| count(p) == count(pipeline))
                .collect()
        })
}

fn row(shapes: &Shapes<'_>, lane: &Lane, twins: usize, scale: f64, end: f64) -> Row {
    let device_type = lane.devices.first().map_or("?", |d| shapes.device_type(&d.name));
    let mut paths = vec![String::new(); KINDS.len()];
    for (k, span) in spans(lane) {
        let x = (span.start.0 * scale).round() as i64;
        // A span never vanishes: it is at least one unit wide.
        let width = ((span.end.0 * scale).round() as i64 - x).max(1);
        paths[k] += &format!("M{x} 0h{width}v20h-{width}z");
    }
    let stages: Vec<String> = lane.stages.iter().map(|(s, _)| s.to_string()).collect();
    let stages = stages.join("+");
    let copies = if twins > 1 {
        format!(" (and {} equal)", twins - 1)
    } else {
        String::new()
    };
    Row {
        label: format!("p{} s{stages}", lane.pipeline),
        title: format!(
            "pipeline {}{copies}, stage {stages}: {}x {device_type}",
            lane.pipeline,
            lane.devices.len()
        ),
        colour: shapes.colour(device_type),
        busy: super::facts::percent(lane.busy.0 / end),
        paths: KINDS
            .iter()
            .zip(paths)
            .filter(|(_, path)| !path.is_empty())
            .map(|(k, path)| (k.0, path))
            .collect(),
    }
}
