//! The screen of `simulate`: verdict, Gantt, memory over time, what is busy, the critical path.

use std::collections::BTreeMap;

use super::words;
use crate::plan::Plan;
use crate::simulate::critical_path::{Cause, Segment, totals};
use crate::simulate::{Device, Lane, Simulation, SpanKind, Timeline};
use crate::units::Seconds;

/// Columns of the Gantt chart.
const CHART: usize = 80;
/// Columns of a memory time-line, and of a memory bar.
const TIMELINE: usize = 48;
const BAR: usize = 16;
/// Rows of a chart.
const ROWS: usize = 16;

/// The answer of `simulate`.
pub fn simulate_screen(plan: &Plan, simulation: &Simulation, path: &[Segment], notes: &[String]) -> String {
    let t = &simulation.timeline;
    let mut lines = vec![verdict(plan, simulation)];
    lines.extend(notes.iter().cloned());
    lines.push(String::new());
    let windows = Windows::of(t);
    lines.push(windows.title());
    lines.extend(chart(t, |lane| format!("|{}|", windows.row(lane))));
    lines.push(String::new());
    lines.push(
        "memory of the fullest device: peak, and the step in tenths of the limit (! = over the limit)"
            .to_owned(),
    );
    lines.extend(chart(t, |lane| memory(lane, t.step_time.0)));
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
        text += &format!(
            "\nthe plan's estimate, each transfer on a link of its own: {}",
            p.step_time_s
        );
        if change.abs() >= 5e-4 {
            text += &format!(
                " (simulated: {}{})",
                if change > 0.0 { "+" } else { "-" },
                words::percent(change.abs())
            );
        }
    }
    text
}

/// One row per lane; equal rows are written once.
fn chart(t: &Timeline, row: impl Fn(&Lane) -> String) -> Vec<String> {
    let mut rows: Vec<(String, String, usize)> = Vec::new();
    for lane in &t.lanes {
        let text = row(lane);
        match rows.iter_mut().find(|r| r.1 == text) {
            Some(known) => known.2 += 1,
            None => rows.push((name(lane), text, 1)),
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
            format!("{name:<9.9}{text}{times}")
        })
        .collect();
    if hidden > 0 {
        lines.push(format!("... and {hidden} more rows; `--trace FILE` draws all"));
    }
    lines
}

/// `p0 s1`, or `p0 s1+6` with virtual stages.
fn name(lane: &Lane) -> String {
    let stages: Vec<String> = lane.stages.iter().map(|s| s.0.to_string()).collect();
    format!("p{} s{}", lane.pipeline, stages.join("+"))
}

/// What the Gantt chart shows: the whole step, or where single actions would not be seen, its start and its end.
struct Windows {
    /// Seconds a column.
    column: f64,
    /// Start of each window and its columns.
    parts: Vec<(f64, usize)>,
    step: f64,
}

impl Windows {
    fn of(t: &Timeline) -> Self {
        let step = t.step_time.0.max(f64::MIN_POSITIVE);
        let mut lengths: Vec<f64> = t
            .lanes
            .iter()
            .filter_map(|lane| lane.compute.first().map(|span| span.seconds().0))
            .filter(|&seconds| seconds > 0.0)
            .collect();
        lengths.sort_by(f64::total_cmp);
        let typical = lengths.get(lengths.len() / 2).copied().unwrap_or(step);
        let whole = step / CHART as f64;
        if whole <= typical {
            return Self {
                column: whole,
                parts: vec![(0.0, CHART)],
                step,
            };
        }
        let half = CHART / 2 - 1;
        Self {
            column: typical,
            parts: vec![(0.0, half), (step - half as f64 * typical, half)],
            step,
        }
    }

    fn title(&self) -> String {
        let what = if self.parts.len() == 1 {
            "the step".to_owned()
        } else {
            let shown: f64 = self.parts.iter().map(|w| w.1 as f64).sum::<f64>() * self.column;
            format!(
                "its start and its end ({} of the step)",
                words::percent(shown / self.step)
            )
        };
        format!(
            "timeline of {what}, {} a column\n\
             F forward, B backward, I input gradient, W weight gradient, r reduction, o optimizer, . idle",
            Seconds(self.column)
        )
    }

    fn row(&self, lane: &Lane) -> String {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|&(start, columns)| gantt(lane, start, self.column, columns))
            .collect();
        parts.join(" ~ ")
    }
}

fn gantt(lane: &Lane, from: f64, width: f64, columns: usize) -> String {
    // Seconds of each letter in each column.
    let mut cells: Vec<BTreeMap<char, f64>> = vec![BTreeMap::new(); columns];
    let until = from + width * columns as f64;
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
        if end <= from || start >= until {
            continue;
        }
        let first = ((start.max(from) - from) / width) as usize;
        for (column, cell) in cells.iter_mut().enumerate().skip(first) {
            let left = from + column as f64 * width;
            if left >= end {
                break;
            }
            *cell.entry(letter).or_default() += (end.min(left + width) - start.max(left)).max(0.0);
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

/// The device with the least share of its limit free.
fn fullest(lane: &Lane) -> Option<&Device> {
    let share = |d: &Device| d.peak.0 / d.limit.0.max(1.0);
    lane.devices.iter().max_by(|a, b| share(a).total_cmp(&share(b)))
}

fn memory(lane: &Lane, step: f64) -> String {
    let Some(device) = fullest(lane) else {
        return String::new();
    };
    let limit = device.limit.0.max(1.0);
    let steps = lane.memory(device);
    let mut text = String::with_capacity(TIMELINE);
    let mut at = 0;
    for column in 0..TIMELINE {
        let right = step * (column + 1) as f64 / TIMELINE as f64;
        let mut most = steps.get(at).map_or(0.0, |s| s.1.0);
        while at + 1 < steps.len() && steps[at + 1].0.0 < right {
            at += 1;
            most = most.max(steps[at].1.0);
        }
        let tenths = ((10.0 * most / limit).floor() as u32).min(9);
        text.push(if most > limit {
            '!'
        } else {
            char::from_digit(tenths, 10).unwrap_or('9')
        });
    }
    let filled = ((device.peak.0 / limit).clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!(
        "[{}{}] {:>5.1} of {:>5.1} GiB |{text}|",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        device.peak.gib(),
        device.limit.gib()
    )
}

/// Stages: how busy, with what.
fn busy(t: &Timeline) -> String {
    let step = t.step_time.0.max(f64::MIN_POSITIVE);
    let mut rows: Vec<(String, String, usize)> = Vec::new();
    for lane in &t.lanes {
        let reduced: f64 = lane
            .reductions
            .iter()
            .map(|s| s.seconds().0)
            .fold(0.0, |a, b| a + b);
        let mut devices: BTreeMap<String, usize> = BTreeMap::new();
        for device in &lane.devices {
            *devices.entry(device.device_type.clone()).or_default() += 1;
        }
        let text = format!(
            "{:<36.36} {:>7} {:>14} {:>12} {:>10}",
            words::counted(&devices, 36),
            words::percent(lane.busy.0 / step),
            words::percent(lane.communication.0 / step),
            words::percent(reduced / step),
            words::percent(lane.optimizer.seconds().0 / step),
        );
        match rows.iter_mut().find(|r| r.1 == text) {
            Some(known) => known.2 += 1,
            None => rows.push((name(lane), text, 1)),
        }
    }
    let mut lines = vec![format!(
        "{:<9}{:<36} {:>7} {:>14} {:>12} {:>10}",
        "", "devices", "busy", "communicating", "reducing", "optimizer"
    )];
    let hidden = rows.len().saturating_sub(ROWS);
    lines.extend(rows.into_iter().take(ROWS).map(|(name, text, times)| {
        let times = if times > 1 {
            format!(" x{times}")
        } else {
            String::new()
        };
        format!("{name:<9.9}{text}{times}")
    }));
    if hidden > 0 {
        lines.push(format!("... and {hidden} more rows; `--format json` lists all"));
    }
    lines.join("\n")
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
            "busiest boundary: p{} s{} -> s{}, {} of the step, {} a transfer",
            link.pipeline,
            link.from,
            link.to,
            words::percent(link.busy.0 / step),
            link.alone
        );
        if late > 1.005 {
            text += &format!(", up to {late:.2}x when shared");
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
            "busiest shared link: {:.40}, {} used, at most {:.2}x its capacity asked for at once",
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
        .take(4)
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
