//! The stage table: one line per stage, equal pipelines and runs of equal stages written once.

use std::collections::BTreeMap;

use super::{WIDTH, table, table_lines, words};
use crate::plan::{DevicePrediction, Grade, Pipeline, Plan, Prediction, Recompute, Stage, StagePrediction};

/// Device types by address, looked up once.
pub(super) struct Types(BTreeMap<String, String>);

impl Types {
    /// Of all devices in use.
    pub(super) fn new(plan: &Plan) -> Self {
        let cluster = &plan.cluster.cluster;
        let devices = plan
            .pipelines
            .iter()
            .flat_map(|p| &p.stages)
            .flat_map(|s| &s.replicas)
            .flat_map(|r| &r.devices);
        Self(
            devices
                .filter_map(|d| {
                    let (node, index) = cluster.parse_device(d).ok()?;
                    Some((d.clone(), cluster.device_type_at(node, index)?.to_owned()))
                })
                .collect(),
        )
    }

    fn of(&self, device: &str) -> &str {
        self.0.get(device).map_or("?", String::as_str)
    }

    /// Devices per type of a stage.
    pub(super) fn counts(&self, stage: &Stage) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for device in stage.replicas.iter().flat_map(|r| &r.devices) {
            *counts.entry(self.of(device).to_owned()).or_default() += 1;
        }
        counts
    }
}

/// Pipelines of one shape, which may differ in their number of micro-batches.
struct Group {
    members: Vec<usize>,
    batches: (u32, u32),
    rows: Vec<Row>,
}

/// One line of the table: a stage, or a run of stages that differ only in depth, memory and load.
struct Row {
    pipeline: usize,
    stages: (usize, usize),
    counts: BTreeMap<String, usize>,
    /// Layers, degrees, rows and recompute, in the order of the columns.
    fixed: [String; 4],
    in_flight: (u32, u32),
    gib: f64,
    share: f64,
    grade: Grade,
    busy: (f64, f64),
}

impl Row {
    fn joins(&self, next: &Row) -> bool {
        self.counts == next.counts && self.fixed == next.fixed
    }

    fn join(&mut self, next: &Row) {
        self.stages.1 = next.stages.1;
        self.in_flight.1 = next.in_flight.1;
        if next.share > self.share {
            (self.gib, self.share, self.grade) = (next.gib, next.share, next.grade);
        }
        self.busy = (self.busy.0.min(next.busy.0), self.busy.1.max(next.busy.1));
    }

    fn holds(&self, critical: Option<(usize, usize)>) -> bool {
        critical.is_some_and(|(p, s)| p == self.pipeline && (self.stages.0..=self.stages.1).contains(&s))
    }
}

fn groups(plan: &Plan, prediction: &Prediction, types: &Types) -> Vec<Group> {
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
    let mut groups: Vec<Group> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for (i, p) in plan.pipelines.iter().enumerate() {
        let slot = *index.entry(shape(p, types)).or_insert(groups.len());
        if slot == groups.len() {
            let mut rows: Vec<Row> = Vec::new();
            for (s, stage) in p.stages.iter().enumerate() {
                let row = row(plan, (i, s), stage, types, &memory, times.get(&(i, s)).copied());
                match rows.last_mut() {
                    Some(last) if last.joins(&row) => last.join(&row),
                    _ => rows.push(row),
                }
            }
            groups.push(Group {
                members: Vec::new(),
                batches: (u32::MAX, 0),
                rows,
            });
        }
        let group = &mut groups[slot];
        group.members.push(i);
        group.batches = (
            group.batches.0.min(p.micro_batches),
            group.batches.1.max(p.micro_batches),
        );
    }
    groups
}

/// What makes two pipelines equal for a reader.
fn shape(p: &Pipeline, types: &Types) -> String {
    let stages: Vec<String> = p
        .stages
        .iter()
        .map(|s| {
            let replicas: Vec<_> = s
                .replicas
                .iter()
                .map(|r| (r.tp, r.cp, r.rows, r.devices.first().map_or("?", |d| types.of(d))))
                .collect();
            format!(
                "{:?} {} {} {replicas:?} {:?}",
                s.atoms, s.in_flight, s.ep, s.recompute
            )
        })
        .collect();
    format!("{} {stages:?}", p.micro_batch)
}

fn row(
    plan: &Plan,
    (pipeline, at): (usize, usize),
    stage: &Stage,
    types: &Types,
    memory: &BTreeMap<&str, &DevicePrediction>,
    times: Option<&StagePrediction>,
) -> Row {
    let fullest = stage
        .replicas
        .iter()
        .flat_map(|r| &r.devices)
        .filter_map(|d| memory.get(d.as_str()))
        .map(|d| (d.memory_bytes.total / d.memory_bytes.limit, *d))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let busy = times.map_or(0.0, |t| t.busy_fraction);
    Row {
        pipeline,
        stages: (at, at),
        counts: types.counts(stage),
        fixed: [
            layers(plan, stage),
            degrees(stage),
            rows_of(stage),
            recompute(stage),
        ],
        in_flight: (stage.in_flight, stage.in_flight),
        gib: fullest.map_or(0.0, |f| f.1.memory_bytes.total.gib()),
        share: fullest.map_or(0.0, |f| f.0),
        grade: fullest.map_or(Grade::Safe, |f| f.1.grade),
        busy: (busy, busy),
    }
}

/// `12 x 16`: micro-batches and their sequences.
fn batches(group: &Group, plan: &Plan) -> String {
    let size = plan.pipelines[group.members[0]].micro_batch;
    let (low, high) = group.batches;
    if low == high {
        format!("{low} x {size}")
    } else {
        format!("{low}-{high} x {size}")
    }
}

fn members(group: &Group, columns: usize) -> String {
    let list: Vec<u32> = group.members.iter().map(|&i| i as u32).collect();
    let text = words::elide(&words::ranges(&list), columns);
    if list.len() > 1 {
        format!("{text} (each)")
    } else {
        text
    }
}

/// The table in at most `limit` lines; the busiest stage, `critical`, is always among them.
pub(super) fn stage_table(
    plan: &Plan,
    prediction: &Prediction,
    types: &Types,
    limit: usize,
    critical: Option<(usize, usize)>,
) -> Vec<String> {
    let groups = groups(plan, prediction, types);
    let flat = groups.iter().all(|g| g.rows.len() == 1);
    // With one stage per pipeline the pipeline is a column, else it has a line of its own.
    let overhead = if flat { 0 } else { groups.len() };
    let total: usize = groups.iter().map(|g| g.rows.len()).sum::<usize>() + overhead + 1;
    let room = if total <= limit { limit } else { limit.max(6) - 1 };
    let mut header = if flat {
        vec!["pipeline", "batches"]
    } else {
        vec!["stage"]
    };
    header.extend([
        "devices",
        "layers",
        "TPxDP",
        "rows",
        "recompute",
        "W",
        "GiB",
        "of limit",
        "busy",
    ]);
    let first = header.len() - 9;
    let mut cells: Vec<Vec<String>> = Vec::new();
    let mut titles: Vec<(usize, String)> = Vec::new();
    let mut used = 1;
    let mut hidden = 0;
    let wanted = |row: &Row| row.holds(critical);
    let mut awaited = groups.iter().flat_map(|g| &g.rows).any(wanted);
    for group in &groups {
        let mut titled = flat;
        for row in &group.rows {
            let own = if titled { 1 } else { 2 };
            // The busiest stage keeps a place: its line and, if need be, its title.
            let kept = if awaited && !wanted(row) && total > limit {
                if flat { 1 } else { 2 }
            } else {
                0
            };
            if used + own + kept > room {
                hidden += row.stages.1 - row.stages.0 + 1;
                continue;
            }
            if wanted(row) {
                awaited = false;
            }
            used += own;
            if !titled {
                let several = group.members.len() > 1;
                titles.push((
                    cells.len(),
                    format!(
                        "pipeline{} {}: {}, {}",
                        if several { "s" } else { "" },
                        members(group, 40),
                        batches(group, plan).replace(" x ", " micro-batches of ")
                            + if plan.pipelines[group.members[0]].micro_batch == 1 {
                                " sequence"
                            } else {
                                " sequences"
                            },
                        words::plural(plan.pipelines[group.members[0]].stages.len(), "stage"),
                    ),
                ));
                titled = true;
            }
            let mut line = if flat {
                vec![members(group, 12), batches(group, plan)]
            } else {
                vec![match row.stages {
                    (a, b) if a == b => a.to_string(),
                    (a, b) => format!("{a}-{b} each"),
                }]
            };
            line.extend(texts(row));
            cells.push(line);
        }
    }
    shrink(&mut cells, &header, first, |i| {
        groups
            .iter()
            .flat_map(|g| &g.rows)
            .nth(i)
            .map(|r| r.counts.clone())
    });
    let indent = if flat { "" } else { "  " };
    let mut right: Vec<usize> = vec![first + 3, first + 5, first + 6, first + 7, first + 8];
    if !flat {
        right.push(0);
    }
    let mut rows = table(&header, &right);
    for line in &cells {
        rows.add_row(line.clone());
    }
    let mut lines = table_lines(&rows, indent);
    // Titles go in from the last to the first, so that earlier positions stay right; line 0 is the header.
    // The only title stands above the header.
    let header_first = usize::from(titles.len() > 1);
    for (at, title) in titles.into_iter().rev() {
        lines.insert(at + header_first, title);
    }
    if hidden > 0 {
        lines.push(format!(
            "{indent}... and {} more (in the plan file; `--explain` shows up to 80 lines)",
            words::plural(hidden, "stage")
        ));
    }
    lines
}

fn texts(row: &Row) -> Vec<String> {
    let range = |low: String, high: String| if low == high { low } else { format!("{low}-{high}") };
    let mark = match row.grade {
        Grade::Safe => "",
        Grade::Tight => "tight ",
        Grade::Over => "OVER ",
    };
    // Rounded down below the limit: 99.7 % is not full.
    let share = if row.share < 1.0 {
        (row.share * 100.0).floor()
    } else {
        (row.share * 100.0).ceil()
    };
    let [layers, degrees, rows, recompute] = row.fixed.clone();
    vec![
        words::counted(&row.counts, 46),
        layers,
        degrees,
        words::elide(&rows, 9),
        recompute,
        range(row.in_flight.0.to_string(), row.in_flight.1.to_string()),
        format!("{:.1}", row.gib),
        format!("{mark}{share:.0} %"),
        range(
            format!("{:.0}", row.busy.0 * 100.0),
            format!("{:.0}", row.busy.1 * 100.0),
        ) + " %",
    ]
}

/// Shortens device names, then the other wide columns, until a line fits.
fn shrink(
    cells: &mut [Vec<String>],
    header: &[&str],
    devices: usize,
    counts: impl Fn(usize) -> Option<BTreeMap<String, usize>>,
) {
    let widths = |cells: &[Vec<String>]| -> Vec<usize> {
        (0..header.len())
            .map(|c| {
                cells
                    .iter()
                    .map(|line| words::width(&line[c]))
                    .max()
                    .unwrap_or(0)
                    .max(words::width(header[c]))
            })
            .collect()
    };
    let too_wide = |w: &[usize]| (w.iter().sum::<usize>() + 2 * w.len()).saturating_sub(WIDTH);
    let now = widths(cells);
    let over = too_wide(&now);
    if over > 0 {
        let column = now[devices].saturating_sub(over).max(16);
        for (i, line) in cells.iter_mut().enumerate() {
            if words::width(&line[devices]) > column {
                let text = counts(i).map_or_else(|| line[devices].clone(), |c| words::counted(&c, column));
                line[devices] = words::elide(&text, column);
            }
        }
    }
    for column in [devices + 4, devices + 2, devices + 3, 0] {
        let now = widths(cells);
        let over = too_wide(&now);
        if over > 0 {
            let room = now[column].saturating_sub(over).max(8);
            for line in cells.iter_mut() {
                line[column] = words::elide(&line[column], room);
            }
        }
    }
}

/// Layers with the ends marked: `E+14`, `18+H`.
fn layers(plan: &Plan, stage: &Stage) -> String {
    let atoms = &plan.model.model.atoms;
    let [a, b] = stage.atoms;
    let own = atoms.get(a..b).unwrap_or_default();
    let blocks = own
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
    let mut text = format!("{tp}x{}", stage.replicas.len());
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
