//! The screen of `simulate`: verdict, Gantt, memory over time, what is busy, the critical path.

use std::collections::BTreeMap;

use super::{table, words};
use crate::plan::Plan;
use crate::simulate::critical_path::{Cause, Segment, totals};
use crate::simulate::{Lane, Simulation, SpanKind, Timeline};
use crate::units::Seconds;

/// Columns of a chart.
const CHART: usize = 72;
/// Rows of a chart.
const ROWS: usize = 16;

/// The answer of `simulate`.
pub fn simulate_screen(plan: &Plan, simulation: &Simulation, path: &[Segment], notes: &[String]) -> String {
    let t = &simulation.timeline;
    let mut lines = vec![verdict(plan, simulation)];
    lines.extend(notes.iter().cloned());
    lines.push(String::new());
    lines.push(format!(
        "one step, {} a column: F forward, B backward, I input and W weight gradient, r reduction, o optimizer",
        Seconds(t.step_time.0 / CHART as f64)
    ));
    lines.extend(chart(t, gantt));
    lines.push(String::new());
    lines.push(
        "memory over the step in tenths of the limit (fullest device; 0-9, ! above 10 tenths)".to_owned(),
    );
    lines.extend(chart(t, memory));
    lines.push(String::new());
    lines.push(busy(t));
    if let Some(links) = links(t) {
        lines.push(links);
    }
    lines.extend(critical(t, path));
    lines.join("\n")
}

fn verdict(plan: &Plan, simulation: &Simulation) -> String {
    let t = &simulation.timeline;
    let devices: usize = t.lanes.iter().map(|l| l.devices.len()).sum();
    let mut text = format!(
        "{}/step simulated, bubble {}, {} actions on {devices} devices",
        t.step_time,
        words::percent(t.bubble()),
        words::whole(t.lanes.iter().map(|l| l.compute.len() as u64).sum()),
    );
    if let Some(p) = &plan.prediction {
        let change = t.step_time.0 / p.step_time_s.0 - 1.0;
        text += &format!("; the plan's estimate is {}", p.step_time_s);
        if change.abs() >= 5e-4 {
            text += &format!(
                " ({}{})",
                if change > 0.0 { "+" } else { "-" },
                words::percent(change.abs())
            );
        }
    }
    text
}

/// One row per lane; equal rows are written once.
fn chart(t: &Timeline, row: impl Fn(&Lane, f64) -> String) -> Vec<String> {
    let mut rows: Vec<(String, String, usize)> = Vec::new();
    for lane in &t.lanes {
        let text = row(lane, t.step_time.0);
        let stages: Vec<String> = lane.stages.iter().map(|s| s.0.to_string()).collect();
        match rows.iter_mut().find(|r| r.1 == text) {
            Some(known) => known.2 += 1,
            None => rows.push((format!("p{} s{}", lane.pipeline, stages.join("+")), text, 1)),
        }
    }
    let hidden = rows.len().saturating_sub(ROWS);
    let mut lines: Vec<String> = rows
        .into_iter()
        .take(ROWS)
        .map(|(name, text, times)| {
            let times = if times > 1 {
                format!(" x{times}")
            } else {
                String::new()
            };
            format!("{name:<10.10}|{text}|{times}")
        })
        .collect();
    if hidden > 0 {
        lines.push(format!("... and {hidden} more rows; `--trace FILE` draws all"));
    }
    lines
}

fn gantt(lane: &Lane, step: f64) -> String {
    let width = step / CHART as f64;
    // Seconds of each letter in each column.
    let mut cells: Vec<BTreeMap<char, f64>> = vec![BTreeMap::new(); CHART];
    let spans = lane
        .compute
        .iter()
        .chain(&lane.reductions)
        .chain([&lane.optimizer]);
    for span in spans {
        let letter = match span.kind {
            SpanKind::Work(work) => work.letter(),
            SpanKind::Reduce | SpanKind::ReduceTied => 'r',
            SpanKind::Optimizer => 'o',
            SpanKind::SendForward | SpanKind::SendBackward => continue,
        };
        let (start, end) = (span.start.0, span.end.0);
        let first = ((start / width) as usize).min(CHART - 1);
        for (column, cell) in cells.iter_mut().enumerate().skip(first) {
            let (left, right) = (column as f64 * width, (column + 1) as f64 * width);
            if left >= end {
                break;
            }
            *cell.entry(letter).or_default() += (end.min(right) - start.max(left)).max(0.0);
        }
    }
    let letter = |cell: &BTreeMap<char, f64>| {
        // A reduction under compute is hidden; alone it is seen.
        let compute: f64 = cell.iter().filter(|c| *c.0 != 'r').map(|c| c.1).sum();
        let idle = (width - compute).max(0.0);
        let best = cell
            .iter()
            .map(|(&letter, &seconds)| (letter, if letter == 'r' { seconds.min(idle) } else { seconds }))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let reduced = cell.get(&'r').copied().unwrap_or(0.0).min(idle);
        match best {
            Some((letter, seconds)) if seconds >= idle - reduced => letter,
            _ => '.',
        }
    };
    cells.iter().map(letter).collect()
}

fn memory(lane: &Lane, step: f64) -> String {
    let fullest = lane
        .devices
        .iter()
        .max_by(|a, b| (a.peak.0 / a.limit.0.max(1.0)).total_cmp(&(b.peak.0 / b.limit.0.max(1.0))));
    let Some(device) = fullest else {
        return String::new();
    };
    let steps = lane.memory(device);
    let mut text = String::with_capacity(CHART);
    let mut at = 0;
    for column in 0..CHART {
        let right = step * (column + 1) as f64 / CHART as f64;
        let mut most = steps.get(at).map_or(0.0, |s| s.1.0);
        while at + 1 < steps.len() && steps[at + 1].0.0 < right {
            at += 1;
            most = most.max(steps[at].1.0);
        }
        let tenths = (10.0 * most / device.limit.0.max(1.0)).floor();
        text.push(if most > device.limit.0 {
            '!'
        } else {
            char::from_digit((tenths as u32).min(9), 10).unwrap_or('9')
        });
    }
    format!(
        "{text}| {:.1} of {:.1} GiB",
        device.peak.gib(),
        device.limit.gib()
    )
}

/// Stages: busy, communication, reductions.
fn busy(t: &Timeline) -> String {
    let step = t.step_time.0.max(f64::MIN_POSITIVE);
    let mut rows = table(&[
        "pipeline",
        "stage",
        "devices",
        "busy",
        "of it comm",
        "reductions",
        "peak / limit GiB",
        "",
    ]);
    let mut known: Vec<(String, usize, usize)> = Vec::new();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for lane in &t.lanes {
        let stages: Vec<String> = lane.stages.iter().map(|s| s.0.to_string()).collect();
        let reduced: f64 = lane.reductions.iter().map(|s| s.seconds().0).sum();
        let fullest = lane
            .devices
            .iter()
            .max_by(|a, b| (a.peak.0 / a.limit.0.max(1.0)).total_cmp(&(b.peak.0 / b.limit.0.max(1.0))));
        let (memory, bar) = fullest.map_or_else(Default::default, |d| {
            let share = (d.peak.0 / d.limit.0.max(1.0)).clamp(0.0, 1.0);
            let filled = (share * 20.0).round() as usize;
            (
                format!("{:.1} / {:.1}", d.peak.gib(), d.limit.gib()),
                format!("{}{}", "#".repeat(filled), ".".repeat(20 - filled)),
            )
        });
        let mut devices: BTreeMap<String, usize> = BTreeMap::new();
        for device in &lane.devices {
            *devices.entry(device.device_type.clone()).or_default() += 1;
        }
        let line = vec![
            stages.join("+"),
            words::counted(&devices),
            words::percent(lane.busy.0 / step),
            words::percent(lane.communication.0 / lane.busy.0.max(f64::MIN_POSITIVE)),
            words::percent(reduced / step),
            memory,
            bar,
        ];
        let key = line.join("|");
        match known.iter_mut().find(|k| k.0 == key) {
            Some(k) => k.2 += 1,
            None => {
                known.push((key, lane.pipeline, 1));
                lines.push(line);
            }
        }
    }
    let hidden = lines.len().saturating_sub(ROWS);
    for (line, (_, pipeline, times)) in lines.into_iter().zip(&known).take(ROWS) {
        let name = if *times > 1 {
            format!("{pipeline} x{times}")
        } else {
            pipeline.to_string()
        };
        rows.add_row([vec![name], line].concat());
    }
    let mut text = rows.to_string();
    if hidden > 0 {
        text += &format!("\n... and {hidden} more rows; `--format json` lists all");
    }
    text
}

/// The busiest boundaries and shared pools.
fn links(t: &Timeline) -> Option<String> {
    let step = t.step_time.0.max(f64::MIN_POSITIVE);
    let mut links: Vec<_> = t.links.iter().collect();
    links.sort_by(|a, b| b.busy.0.total_cmp(&a.busy.0));
    let mut text = String::new();
    if let Some(link) = links.first() {
        let late = link
            .spans
            .iter()
            .map(|s| s.seconds().0 / link.alone.0.max(f64::MIN_POSITIVE))
            .fold(1.0, f64::max);
        text += &format!(
            "busiest boundary: pipeline {} stage {} -> {}, {} of the step, {} a transfer",
            link.pipeline,
            link.from,
            link.to,
            words::percent(link.busy.0 / step),
            link.alone
        );
        if late > 1.005 {
            text += &format!(", up to {late:.2} times that when shared");
        }
    }
    let pool = t
        .pools
        .iter()
        .max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
    if let Some(pool) = pool {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!(
            "busiest shared link: {}, {} used over the step, at most {:.2} times its capacity asked for at once",
            pool.name,
            words::percent(pool.utilisation),
            pool.peak_demand
        );
    }
    (!text.is_empty()).then_some(text)
}

fn critical(t: &Timeline, path: &[Segment]) -> Vec<String> {
    let step = t.step_time.0.max(f64::MIN_POSITIVE);
    let mut by_cause: BTreeMap<Cause, f64> = BTreeMap::new();
    for segment in path {
        *by_cause.entry(segment.cause).or_default() += (segment.end - segment.start).0;
    }
    let mut causes: Vec<(Cause, f64)> = by_cause.into_iter().collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares: Vec<String> = causes
        .iter()
        .filter(|c| c.1 / step >= 5e-4)
        .map(|(cause, seconds)| format!("{} {}", cause.text(), words::percent(seconds / step)))
        .collect();
    let mut lines = vec![format!("critical path: {}", shares.join(", "))];
    for (cause, pipeline, stage, seconds) in totals(path).into_iter().take(4) {
        lines.push(format!(
            "  {:>6}  {} of pipeline {pipeline} stage {stage}, {seconds}",
            words::percent(seconds.0 / step),
            cause.text(),
        ));
    }
    lines
}
