//! The Gantt of one step: a row per stage, one path per kind of work, so that a row of hundreds of spans stays small.

use serde::Serialize;

use super::Page;
use super::shape::Shapes;

/// What a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    /// Forward of a micro-batch.
    Forward,
    /// Backward of a micro-batch (input gradient only, where the schedule splits).
    Backward,
    /// Weight gradient.
    WeightGrad,
    /// Gradient reduction.
    Reduce,
    /// Optimizer.
    Optimizer,
}

const KINDS: [(SpanKind, &str, &str); 5] = [
    (SpanKind::Forward, "f", "forward"),
    (SpanKind::Backward, "b", "backward"),
    (SpanKind::WeightGrad, "w", "weight gradient"),
    (SpanKind::Reduce, "r", "gradient reduction"),
    (SpanKind::Optimizer, "o", "optimizer"),
];

/// Work of a stage between two times, seconds from the start of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Kind of work.
    pub kind: SpanKind,
    /// Micro-batch, where the work belongs to one.
    pub micro_batch: Option<u32>,
    /// Start, seconds.
    pub start: f64,
    /// End, seconds.
    pub end: f64,
}

/// A row of the Gantt.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Pipeline index.
    pub pipeline: usize,
    /// Stage index.
    pub stage: usize,
    /// Pipelines that look the same; at least 1.
    pub copies: usize,
    /// Spans in order of their start.
    pub spans: Vec<Span>,
}

/// Horizontal resolution of a row in units.
const UNITS: f64 = 100_000.0;
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
    let end = page
        .lanes
        .iter()
        .flat_map(|l| &l.spans)
        .map(|s| s.end)
        .fold(page.prediction.step_time_s.0, f64::max);
    if page.lanes.is_empty() || !end.is_finite() || end <= 0.0 {
        return None;
    }
    let scale = UNITS / end;
    let mut rows = Vec::new();
    let mut data = Vec::new();
    let mut drawn = 0;
    let mut hidden = 0;
    for lane in page.lanes {
        drawn += lane.spans.len();
        if drawn > MOST_SPANS && !rows.is_empty() {
            hidden += 1;
            continue;
        }
        rows.push(row(page, shapes, lane, scale, end));
        data.push(
            lane.spans
                .iter()
                .map(|s| {
                    let kind = KINDS.iter().zip(0..).find(|(k, _)| k.0 == s.kind);
                    let batch = s.micro_batch.map_or(-1, i64::from);
                    [
                        kind.map_or(0, |(_, number)| number),
                        batch,
                        (s.start * scale).round() as i64,
                        (s.end * scale).round() as i64,
                    ]
                })
                .collect::<Vec<_>>(),
        );
    }
    let used = |kind: SpanKind| page.lanes.iter().any(|l| l.spans.iter().any(|s| s.kind == kind));
    Some(View {
        step: page.prediction.step_time_s.to_string(),
        rows,
        kinds: KINDS.iter().filter(|k| used(k.0)).map(|k| (k.1, k.2)).collect(),
        legend: shapes
            .legend()
            .iter()
            .map(|(n, c)| ((*n).to_owned(), *c))
            .collect(),
        ticks: (0..=4)
            .map(|i| {
                let share = f64::from(i) / 4.0;
                (share * 100.0, crate::units::Seconds(end * share).to_string())
            })
            .collect(),
        hidden,
        data: serde_json::to_string(&data).unwrap_or_default(),
        step_s: end,
    })
}

fn row(page: &Page<'_>, shapes: &Shapes<'_>, lane: &Lane, scale: f64, end: f64) -> Row {
    let stage = page
        .plan
        .pipelines
        .get(lane.pipeline)
        .and_then(|p| p.stages.get(lane.stage));
    let device_type = stage.map_or("?", |s| shapes.type_of(s));
    let mut paths = Vec::new();
    for (kind, class, _) in KINDS {
        let mut path = String::new();
        for span in lane.spans.iter().filter(|s| s.kind == kind) {
            let x = (span.start * scale).round() as i64;
            // A span never vanishes: it is at least one unit wide.
            let width = ((span.end * scale).round() as i64 - x).max(1);
            path += &format!("M{x} 0h{width}v20h-{width}z");
        }
        if !path.is_empty() {
            paths.push((class, path));
        }
    }
    let work: f64 = lane
        .spans
        .iter()
        .filter(|s| !matches!(s.kind, SpanKind::Reduce))
        .map(|s| s.end - s.start)
        .sum();
    let copies = if lane.copies > 1 {
        format!(" (and {} equal)", lane.copies - 1)
    } else {
        String::new()
    };
    let devices: usize = stage.map_or(0, |s| s.replicas.iter().map(|r| r.devices.len()).sum());
    Row {
        label: format!("p{} s{}", lane.pipeline, lane.stage),
        title: format!(
            "pipeline {}{copies}, stage {}: {devices}x {device_type}",
            lane.pipeline, lane.stage
        ),
        colour: shapes.colour(device_type),
        busy: super::facts::percent(work / end),
        paths,
    }
}
