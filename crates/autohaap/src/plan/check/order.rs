//! The order of work: virtual stages, schedules, in-flight depths, recomputation.

use super::{Facts, Found, atoms_in_words};
use crate::error::{Problem, plan as codes};
use crate::plan::{ScheduleKind, Stage};

/// The name of a schedule as the file writes it.
fn name(kind: ScheduleKind) -> &'static str {
    match kind {
        ScheduleKind::OneF1b => "1f1b",
        ScheduleKind::Gpipe => "gpipe",
        ScheduleKind::Interleaved => "interleaved",
        ScheduleKind::ZbH1 => "zb-h1",
        ScheduleKind::ZbH2 => "zb-h2",
        ScheduleKind::ZbV => "zb-v",
        ScheduleKind::DualpipeV => "dualpipe-v",
        ScheduleKind::Csv => "csv",
    }
}

fn runs_chunks(kind: ScheduleKind) -> bool {
    matches!(
        kind,
        ScheduleKind::Interleaved | ScheduleKind::ZbV | ScheduleKind::DualpipeV | ScheduleKind::Csv
    )
}

/// A virtual stage names an earlier entry that owns devices, under a schedule made for chunks.
pub(super) fn virtual_stage(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::VIRTUAL_STAGE;
    for stage in &facts.stages {
        let Some(owner) = stage.entry.on_stage else {
            continue;
        };
        let stages = &stage.parent.stages;
        let path = || format!("{}.on_stage", stage.path());
        let owners = || {
            let owning = |s: &(usize, &Stage)| s.1.on_stage.is_none() && !s.1.replicas.is_empty();
            let earlier = stages.iter().enumerate().take(stage.stage).filter(owning);
            format!(
                "earlier stages with devices: {}",
                super::list(earlier.map(|s| s.0))
            )
        };
        if !stage.entry.replicas.is_empty() {
            found.push(code, || {
                let message = format!("stage `{}` has both `replicas` and `on_stage`", stage.stage);
                Problem::new(code, path(), message).hint("keep one of them")
            });
        } else if owner >= stage.stage {
            found.push(code, || {
                let message = format!(
                    "`on_stage` is `{owner}`, not an earlier stage than `{}`",
                    stage.stage
                );
                Problem::new(code, path(), message).hint(owners())
            });
        } else if stages[owner].on_stage.is_some() || stages[owner].replicas.is_empty() {
            found.push(code, || {
                let message = format!("stage `{owner}` owns no devices");
                Problem::new(code, path(), message).hint(owners())
            });
        }
        let kind = stage.parent.schedule.kind;
        if !runs_chunks(kind) {
            found.push(code, || {
                let message = format!("schedule `{}` runs no virtual stages", name(kind));
                Problem::new(code, path(), message).hint("use `interleaved`, `zb-v`, `dualpipe-v` or `csv`")
            });
        }
    }
}

/// `csv` names its file, other schedules none; chunks are placed as the schedule expects.
pub(super) fn schedule(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::SCHEDULE;
    for (p, pipeline) in facts.plan.pipelines.iter().enumerate() {
        let kind = pipeline.schedule.kind;
        let file = pipeline.schedule.file.as_deref();
        let path = || format!("pipelines[{p}].schedule");
        let fault = match (kind, file) {
            (ScheduleKind::Csv, None) => Some("schedule `csv` names no file".to_owned()),
            (ScheduleKind::Csv, Some(file)) if !plain_file_name(file) => {
                let short: String = file.chars().take(80).collect();
                Some(format!("`{}` is no plain file name", short.escape_default()))
            }
            (ScheduleKind::Csv, Some(_)) | (_, None) => None,
            (_, Some(_)) => Some(format!("schedule `{}` takes no file", name(kind))),
        };
        if let Some(message) = fault {
            let hint = if kind == ScheduleKind::Csv {
                format!("set `file` to a name beside the plan, for example `schedule-{p}.csv`")
            } else {
                "delete `file`, or set `kind` to `csv`".to_owned()
            };
            found.push(code, || Problem::new(code, path(), message).hint(hint));
        }
        if let Some(message) = misplaced_chunks(kind, &pipeline.stages) {
            let hint = match kind {
                ScheduleKind::Interleaved => {
                    "list the owning stages first, then every further round in the same order"
                }
                _ => {
                    "list p stages with devices, then p virtual stages from the last owner back to the first"
                }
            };
            found.push(code, || Problem::new(code, path(), message).hint(hint));
        }
    }
}

fn plain_file_name(file: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '+' | '@');
    !file.is_empty() && file.len() <= 255 && !file.starts_with('.') && file.chars().all(legal)
}

fn misplaced_chunks(kind: ScheduleKind, stages: &[Stage]) -> Option<String> {
    let owners = stages.iter().take_while(|s| s.on_stage.is_none()).count();
    let shape = match kind {
        ScheduleKind::Interleaved => "rounds over all owning stages in the same order",
        ScheduleKind::ZbV | ScheduleKind::DualpipeV => {
            "two chunks per owning stage, the second in reverse order"
        }
        _ => return None,
    };
    if owners == 0 {
        return None; // reported as virtual stages without owner
    }
    let expected = |position: usize| match kind {
        ScheduleKind::Interleaved => position % owners,
        _ => (2 * owners - 1).saturating_sub(position),
    };
    let whole = match kind {
        ScheduleKind::Interleaved => stages.len().is_multiple_of(owners),
        _ => stages.len() == 2 * owners,
    };
    let wrong = (owners..stages.len()).find(|s| stages[*s].on_stage != Some(expected(*s)));
    match (whole, wrong) {
        (true, None) => None,
        (_, Some(s)) => Some(format!(
            "`{}` needs {shape}; stage `{s}` breaks the order",
            name(kind)
        )),
        (false, None) => Some(format!(
            "`{}` needs {shape}; there are `{}` entries on {owners} owning stages",
            name(kind),
            stages.len()
        )),
    }
}

/// Depths are at least 1 and, in 1F1B orders, do not grow downstream.
pub(super) fn in_flight(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::IN_FLIGHT;
    for (p, pipeline) in facts.plan.pipelines.iter().enumerate() {
        let path = |s: usize| format!("pipelines[{p}].stages[{s}].in_flight");
        for (s, stage) in pipeline.stages.iter().enumerate() {
            if stage.in_flight == 0 {
                found.push(code, || {
                    Problem::new(code, path(s), "in-flight depth is `0`").hint("at least 1 micro-batch")
                });
            }
        }
        let fixed_order = matches!(
            pipeline.schedule.kind,
            ScheduleKind::OneF1b | ScheduleKind::ZbH1 | ScheduleKind::ZbH2
        );
        if !fixed_order {
            continue;
        }
        let most = pipeline.micro_batches.max(1);
        for (s, pair) in pipeline.stages.windows(2).enumerate() {
            let (before, after) = (pair[0].in_flight.clamp(1, most), pair[1].in_flight.clamp(1, most));
            if after > before {
                found.push(code, || {
                    let message = format!(
                        "stage `{}` runs `{after}` forwards before its first backward, but stage `{s}` sends only `{before}`: \
                         both would wait for ever",
                        s + 1
                    );
                    Problem::new(code, path(s + 1), message).hint(format!(
                        "lower it to {before}, or raise stage {s} to {after}"
                    ))
                });
            }
        }
    }
}

/// Recompute ranges lie inside their stage and do not overlap.
pub(super) fn recompute_range(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::RECOMPUTE_RANGE;
    for stage in &facts.stages {
        let [start, end] = stage.entry.atoms;
        let path = |i: usize| format!("{}.recompute[{i}].atoms", stage.path());
        let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
        for (i, range) in stage.entry.recompute.iter().enumerate() {
            let [a, b] = range.atoms;
            if a >= b || a < start || b > end {
                found.push(code, || {
                    let message =
                        format!("range `[{a}, {b}]` is empty or leaves the stage's atoms [{start}, {end}]");
                    let (low, high) = (a.clamp(start, end.max(start)), b.clamp(start, end.max(start)));
                    let hint = if low < high {
                        format!("the part inside the stage is [{low}, {high}]")
                    } else {
                        "delete the range".to_owned()
                    };
                    Problem::new(code, path(i), message).hint(hint)
                });
            }
            ranges.push((a, b, i));
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((_, b, i), (a, c, j)) = (pair[0], pair[1]);
            if a < b && a < c {
                found.push(code, || {
                    let message = format!(
                        "{} in two recompute ranges, `{i}` and `{j}`",
                        atoms_in_words(a, b.min(c))
                    );
                    Problem::new(code, path(j), message).hint(format!("begin it at {b} or delete it"))
                });
            }
        }
    }
}
