//! The words of the page: verdict, comparisons, trust, provenance, conservation.

use serde::Serialize;

use super::Page;
use crate::cluster::Sourced;
use crate::plan::{Alternative, Grade, conservation};
use crate::report::{comparison, words};

pub(super) use crate::report::words::percent;

#[derive(Serialize)]
pub(super) struct View {
    title: String,
    subtitle: String,
    verdict: String,
    good: bool,
    tiles: Vec<Tile>,
    comparisons: Vec<Bar>,
    /// Position of the bound in the comparison, per cent.
    bound_at: Option<String>,
    losers: Vec<(String, String, String)>,
    bound: Option<String>,
    settings: Vec<(&'static str, String)>,
    hardware: Vec<Hardware>,
    shares: Vec<(String, String)>,
    mfu_formula: String,
    conserved: Vec<(bool, String)>,
    idle: Vec<(String, String)>,
    search: Option<String>,
    cluster_notes: Vec<String>,
    created_by: String,
    id: String,
}

#[derive(Serialize)]
struct Tile {
    name: &'static str,
    value: String,
    detail: String,
}

#[derive(Serialize)]
struct Bar {
    name: String,
    /// Per cent of the longest; 0 without a plan.
    width: String,
    text: String,
    detail: String,
    own: bool,
}

#[derive(Serialize)]
struct Hardware {
    name: String,
    confidence: String,
    source: String,
    figures: Vec<(String, String, String)>,
}

pub(super) fn view(page: &Page<'_>) -> View {
    let plan = page.plan;
    let p = page.prediction;
    let step = p.step_time_s.0;
    let (comparisons, longest) = comparisons(page);
    View {
        title: if plan.name.is_empty() {
            format!("{} on {}", plan.model.model.name, plan.cluster.cluster.name)
        } else {
            plan.name.clone()
        },
        subtitle: format!(
            "{} on {}, {} devices in {} nodes",
            plan.model.model.name,
            plan.cluster.cluster.name,
            plan.cluster.cluster.total_devices(),
            plan.cluster.cluster.nodes.len()
        ),
        verdict: verdict(page),
        good: p.fits,
        tiles: tiles(page),
        bound_at: p
            .bound_s
            .filter(|_| longest > 0.0)
            .map(|b| format!("{:.3}", 100.0 * b.0 / longest)),
        comparisons,
        losers: plan.alternatives.as_ref().map_or_else(Vec::new, |a| {
            a.losers
                .iter()
                .map(|l| {
                    let seconds = l.step_time_s.map_or_else(String::new, |s| s.to_string());
                    (seconds, l.reason.clone(), l.label.clone())
                })
                .collect()
        }),
        bound: p.bound_s.map(|b| {
            format!(
                "No plan of this space is faster than {b} ({} below this plan). Space: {}.",
                percent((step - b.0) / step),
                p.bound_space.as_deref().unwrap_or("not recorded")
            )
        }),
        settings: settings(page),
        hardware: hardware(page),
        shares: p
            .provenance_share
            .iter()
            .map(|(name, share)| (name.clone(), percent(*share)))
            .collect(),
        mfu_formula: p.mfu_formula.clone(),
        conserved: conserved(page),
        idle: plan
            .idle
            .iter()
            .map(|i| (words::devices(i.devices.iter()), i.reason.clone()))
            .collect(),
        search: plan.search.as_ref().map(|s| {
            format!(
                "{} search of the space {}, {}, {} plans and templates priced in {}",
                s.method,
                s.space,
                s.stop_reason,
                words::whole(s.plans_scored),
                s.wall_s
            )
        }),
        cluster_notes: plan.cluster.cluster.notes.clone(),
        created_by: plan.created_by.clone(),
        id: plan.id.clone(),
    }
}

fn verdict(page: &Page<'_>) -> String {
    let p = page.prediction;
    let step = p.step_time_s.0;
    let mut text = if p.fits {
        format!("{} per step, and every device has the memory.", p.step_time_s)
    } else {
        format!("{} per step, but NOT every device has the memory.", p.step_time_s)
    };
    if let Some(a) = &page.plan.alternatives {
        text += &match a.uniform.step_time_s {
            Some(u) => format!(" {:.2} times the speed of the best uniform plan", u.0 / step),
            None => " No uniform plan fits".into(),
        };
        text += &match a.fastest_class.step_time_s {
            Some(f) if !a.without.is_empty() => {
                format!(", {:.2} times that of {}.", f.0 / step, a.fastest_class.label)
            }
            _ => ".".into(),
        };
    }
    if let Some(gap) = p.gap {
        text += &if gap < 1e-9 {
            " Proven optimal in its space.".to_owned()
        } else {
            format!(" At most {} from the proven optimum.", percent(gap))
        };
    }
    text
}

fn tiles(page: &Page<'_>) -> Vec<Tile> {
    let p = page.prediction;
    let fullest = p.devices.iter().max_by(|a, b| {
        (a.memory_bytes.total / a.memory_bytes.limit)
            .total_cmp(&(b.memory_bytes.total / b.memory_bytes.limit))
    });
    let mut tiles = vec![
        Tile {
            name: "step time",
            value: p.step_time_s.to_string(),
            detail: format!("likely {} to {}", p.range_s[0], p.range_s[1]),
        },
        Tile {
            name: "tokens per second",
            value: words::count(p.tokens_per_s),
            detail: format!(
                "{} sequences of {} tokens a step",
                page.plan.training.global_batch, page.plan.training.seq_len
            ),
        },
        Tile {
            name: "model FLOPs utilisation",
            value: percent(p.mfu),
            detail: p
                .utilisation
                .iter()
                .map(|(name, share)| format!("{name} {}", percent(*share)))
                .collect::<Vec<_>>()
                .join(", "),
        },
    ];
    if let Some(d) = fullest {
        tiles.push(Tile {
            name: "fullest device",
            value: percent(d.memory_bytes.total / d.memory_bytes.limit),
            detail: format!(
                "{} ({}): {:.1} of {:.1} GiB, {}",
                d.device,
                d.device_type,
                d.memory_bytes.total.gib(),
                d.memory_bytes.limit.gib(),
                match d.grade {
                    Grade::Safe => "safe",
                    Grade::Tight => "tight",
                    Grade::Over => "over",
                }
            ),
        });
    }
    if let Some(gap) = p.gap {
        tiles.push(Tile {
            name: "gap to the bound",
            value: percent(gap),
            detail: p.bound_s.map_or_else(String::new, |b| format!("bound {b}")),
        });
    }
    tiles
}

fn comparisons(page: &Page<'_>) -> (Vec<Bar>, f64) {
    let step = page.prediction.step_time_s;
    let mut rows: Vec<(String, Option<f64>, String)> =
        vec![("this plan".into(), Some(step.0), String::new())];
    if let Some(a) = &page.plan.alternatives {
        let mut add = |name: String, x: &Alternative| {
            let detail = match x.step_time_s {
                Some(_) if x.label == name => String::new(),
                Some(_) => x.label.clone(),
                None => comparison::without_step(&x.reason).1.to_owned(),
            };
            rows.push((name, x.step_time_s.map(|s| s.0), detail));
        };
        add("best uniform plan".into(), &a.uniform);
        add("fastest class only".into(), &a.fastest_class);
        add("layers by FLOPs, by hand".into(), &a.flops_split);
        add("layers by memory, by hand".into(), &a.memory_split);
        for (name, x) in &a.without {
            add(format!("without {name}"), x);
        }
    }
    let longest = rows.iter().filter_map(|r| r.1).fold(0.0, f64::max);
    let bars = rows
        .into_iter()
        .enumerate()
        .map(|(i, (name, seconds, detail))| Bar {
            name,
            width: format!("{:.3}", seconds.map_or(0.0, |s| 100.0 * s / longest)),
            text: seconds.map_or_else(
                || {
                    let worked_out = comparison::without_step(&detail).0;
                    if worked_out { "no plan" } else { "-" }.into()
                },
                |s| {
                    if i == 0 {
                        format!("{}", crate::units::Seconds(s))
                    } else {
                        format!("{}, {:.2}x", crate::units::Seconds(s), s / step.0)
                    }
                },
            ),
            detail,
            own: i == 0,
        })
        .collect();
    (bars, longest)
}

fn settings(page: &Page<'_>) -> Vec<(&'static str, String)> {
    let t = &page.plan.training;
    let overlap = &t.engine_semantics.overlap;
    vec![
        ("sequence length", words::whole(t.seq_len)),
        ("global batch", words::whole(t.global_batch)),
        ("precision", format!("{:?}", t.precision).to_lowercase()),
        ("optimizer", format!("{:?}", t.optimizer).to_lowercase()),
        ("ZeRO level", t.zero.to_string()),
        (
            "sequence parallel",
            if t.sequence_parallel { "yes" } else { "no" }.into(),
        ),
        (
            "point-to-point",
            format!("{:?}", t.engine_semantics.p2p).to_lowercase(),
        ),
        (
            "overlapped with compute",
            [
                ("tensor parallel", overlap.tp),
                ("gradient reduction", overlap.dp),
                ("boundaries", overlap.p2p),
            ]
            .iter()
            .filter(|x| x.1)
            .map(|x| x.0)
            .collect::<Vec<_>>()
            .join(", "),
        ),
    ]
}

fn hardware(page: &Page<'_>) -> Vec<Hardware> {
    let cluster = &page.plan.cluster.cluster;
    cluster
        .device_types
        .values()
        .map(|d| {
            let mut figures = Vec::new();
            let mut add = |name: String, value: String, origin: String| figures.push((name, value, origin));
            for (precision, peak) in &d.datasheet_peak {
                add(
                    format!("{} peak", format!("{precision:?}").to_lowercase()),
                    peak.value.to_string(),
                    origin(peak),
                );
            }
            if let Some(peak) = &d.measured_peak {
                add(
                    "measured matmul rate".into(),
                    peak.value.to_string(),
                    origin(peak),
                );
            }
            for (class, share) in &d.efficiency {
                add(
                    format!("{} efficiency", format!("{class:?}").to_lowercase()),
                    percent(share.value),
                    origin(share),
                );
            }
            add(
                "memory".into(),
                format!("{:.1} GiB", d.memory.value.gib()),
                origin(&d.memory),
            );
            add(
                "memory bandwidth".into(),
                d.memory_bandwidth.value.to_string(),
                origin(&d.memory_bandwidth),
            );
            add(
                "link inside a node".into(),
                format!("{}, {}", d.intra.bandwidth.value, d.intra.latency.value),
                origin(&d.intra.bandwidth),
            );
            Hardware {
                name: d.name.clone(),
                confidence: d.confidence.clone(),
                source: d.source.clone(),
                figures,
            }
        })
        .collect()
}

/// `measured`, `datasheet: document`.
fn origin<T>(figure: &Sourced<T>) -> String {
    let from = format!("{:?}", figure.from).to_lowercase();
    match &figure.source {
        Some(source) => format!("{from}: {source}"),
        None => from,
    }
}

fn conserved(page: &Page<'_>) -> Vec<(bool, String)> {
    let c = conservation(page.plan);
    let mut lines = vec![
        (
            c.pipelines.iter().all(|p| p.atoms_covered_once),
            format!("{} atoms, each once and in order in every pipeline", c.atoms),
        ),
        (
            c.devices.used_once,
            format!("{} devices in use, each once", c.devices.used),
        ),
        (
            c.pipelines.iter().all(|p| p.rows_add_up),
            "the rows of every stage add up to its micro-batch".into(),
        ),
        (
            c.sequences == c.global_batch,
            format!(
                "{} of {} sequences",
                words::whole(c.sequences),
                words::whole(c.global_batch)
            ),
        ),
        (
            c.every_token_counts_once,
            format!("gradient weights add up to {:.6}", c.gradient_weight_sum),
        ),
    ];
    if !c.tied_partners.is_empty() {
        lines.push((
            true,
            format!(
                "the tied embedding's {} holders are reduced together",
                c.tied_partners.len()
            ),
        ));
    }
    if !c.equal_step_counts {
        lines.push((
            true,
            "pipelines run unequal numbers of micro-batches and join at the gradient reduction".into(),
        ));
    }
    lines
}
