//! The first screen of `plan`: the verdict, the stages, what holds them back, what they were compared with.

use super::stages::{Types, stage_table};
use super::{LINES, comparison, explain, screen, words};
use crate::plan::{
    DevicePrediction, Grade, Plan, PointToPointMode, Prediction, StagePrediction, conservation,
};

/// Lines of notes on the first screen.
const NOTES: usize = 3;

/// Rows of device groups on the first screen.
const GROUPS: usize = 4;

/// Losers on the first screen.
const LOSERS: usize = 3;

/// Lines of the stage table with `--explain`.
const ALL_STAGES: usize = 80;

/// What the screen says beside the plan.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Settings that were chosen by default, as flags: `--seq 4096`.
    pub assumed: Vec<String>,
    /// Remarks on the inputs.
    pub notes: Vec<String>,
    /// File that the plan was written to.
    pub saved: Option<String>,
    /// Whether to show the whole reasoning instead of one screen.
    pub explain: bool,
}

/// The answer of `plan`: one screen, or with [`Context::explain`] everything.
pub fn plan_screen(plan: &Plan, context: &Context) -> String {
    let Some(p) = &plan.prediction else {
        return "the plan has no prediction: run `autohaap estimate`".into();
    };
    let types = Types::new(plan);
    let mut head = verdict(plan, p);
    head.extend(settings(plan, p, &context.assumed));
    let mut middle = bottleneck(plan, p, &types);
    middle.push(fullest(p));
    middle.extend(idle(plan));
    let groups = if context.explain { usize::MAX } else { GROUPS };
    if let Some(a) = &plan.alternatives {
        middle.extend(comparison::lines(a, p.step_time_s.0, groups));
    }
    let mut tail = conservation_lines(plan);
    tail.push(trust(p));
    tail.extend(proof(plan, p));
    if context.explain {
        tail.extend(explain::lines(plan, p));
    }
    let notes = if context.explain { usize::MAX } else { NOTES };
    let hidden = context.notes.len().saturating_sub(notes);
    for note in context.notes.iter().take(notes) {
        let most = if context.explain { usize::MAX } else { 1 };
        tail.extend(words::wrap(&format!("note: {note}"), "  ", most));
    }
    if hidden > 0 {
        tail.push(format!(
            "  ... and {} (--explain)",
            words::plural(hidden, "more note")
        ));
    }
    tail.extend(next(context));

    let losers = |two: bool| {
        let most = if context.explain { usize::MAX } else { LOSERS };
        plan.alternatives
            .as_ref()
            .map_or_else(Vec::new, |a| comparison::losers(a, most, two))
    };
    let critical = critical(p).map(|s| (s.pipeline, s.stage));
    let table = |limit: usize| stage_table(plan, p, &types, limit, critical);
    let mut blank = vec![String::new()];
    let (stages, losers) = if context.explain {
        (table(ALL_STAGES), losers(true))
    } else {
        // Stages come first: the losers' shapes and then the empty lines make room for them.
        let fixed = head.len() + middle.len() + tail.len();
        let all = table(usize::MAX).len();
        let (long, short) = (losers(true), losers(false));
        if fixed + long.len() + all + 2 <= LINES {
            (table(all), long)
        } else if fixed + short.len() + all + 2 <= LINES {
            (table(all), short)
        } else {
            blank = Vec::new();
            let room = LINES.saturating_sub(fixed + short.len());
            (table(room), short)
        }
    };
    let parts = [head, blank.clone(), stages, middle, losers, blank, tail];
    screen(&parts.concat())
}

fn next(context: &Context) -> Vec<String> {
    let text = match &context.saved {
        Some(file) => {
            let file = words::elide(file, 30);
            format!("next: autohaap check {file}; autohaap estimate {file}")
        }
        None => {
            "next: `-o plan.json` keeps the plan; `--explain` shows the hardware figures and the bound".into()
        }
    };
    vec![text]
}

/// The answer in two lines: whether it fits, how fast, against what, how good it is proven to be.
fn verdict(plan: &Plan, p: &Prediction) -> Vec<String> {
    let step = p.step_time_s.0;
    let mut text = format!(
        "{}{}/step",
        if p.fits { "fits, " } else { "DOES NOT FIT, " },
        p.step_time_s
    );
    if let Some(a) = &plan.alternatives {
        if let Some(uniform) = a.uniform.step_time_s {
            text += &format!(", {:.2}x over the best uniform plan", uniform.0 / step);
        } else {
            text += ", no uniform plan fits";
        }
        if let (Some(fastest), false) = (a.fastest_class.step_time_s, a.without.is_empty()) {
            text += &format!(
                ", {:.2}x over {}",
                fastest.0 / step,
                words::elide(&a.fastest_class.label, 26)
            );
        }
    }
    let mut second = Vec::new();
    match plan.search.as_ref().map(|s| s.stop_reason.as_str()) {
        Some("interrupted") => second.push("stopped by Ctrl-C: the best plan so far".to_owned()),
        Some("time-limit") => second.push("stopped by the time limit: the best plan so far".to_owned()),
        _ => {}
    }
    if let Some(gap) = p.gap {
        second.push(if gap < 1e-9 {
            "proven optimal in its space".to_owned()
        } else {
            format!("within {} of the proven bound", words::percent(gap))
        });
    }
    second.push(format!("range {} to {}", p.range_s[0], p.range_s[1]));
    let mut lines = words::wrap(&text, "  ", 2);
    lines.extend(words::wrap(&second.join("; "), "  ", 2));
    lines
}

fn settings(plan: &Plan, p: &Prediction, assumed: &[String]) -> Vec<String> {
    let t = &plan.training;
    let mut lines = vec![format!(
        "{} on {}",
        words::elide(&plan.model.model.name, 36),
        words::elide(&plan.cluster.cluster.name, 58)
    )];
    lines.push(training_line(t));
    if !assumed.is_empty() {
        lines.extend(words::wrap(
            &format!("  by default: {}", assumed.join(", ")),
            "    ",
            2,
        ));
    }
    let shares: Vec<String> = p
        .utilisation
        .iter()
        .map(|(name, share)| format!("{} {}", words::elide(name, 20), words::percent(*share)))
        .collect();
    lines.extend(words::wrap(
        &format!(
            "{} tokens/s, MFU {} of the summed peaks; use of peak: {}",
            words::count(p.tokens_per_s),
            words::percent(p.mfu),
            shares.join(", ")
        ),
        "  ",
        2,
    ));
    lines
}

/// Sequence, batch, format, state sharding and, where it is not the default, optimizer and boundary semantics.
pub(super) fn training_line(t: &crate::plan::Training) -> String {
    let optimizer = match t.optimizer {
        crate::plan::Optimizer::Adam => "Adam",
        crate::plan::Optimizer::Sgd => "SGD",
    };
    let p2p = match t.engine_semantics.p2p {
        PointToPointMode::Async => "",
        PointToPointMode::Rendezvous => ", rendezvous p2p",
    };
    format!(
        "seq {}, global batch {}, {}, {optimizer}, ZeRO-{}{p2p}",
        t.seq_len,
        t.global_batch,
        format!("{:?}", t.precision).to_lowercase(),
        t.zero,
    )
}

/// The busiest stage.
pub(super) fn critical(p: &Prediction) -> Option<&StagePrediction> {
    p.stages.iter().max_by(|a, b| {
        a.busy_fraction
            .total_cmp(&b.busy_fraction)
            .then_with(|| (b.pipeline, b.stage).cmp(&(a.pipeline, a.stage)))
    })
}

/// Where the busiest stage's time goes.
pub(super) fn bottleneck(plan: &Plan, p: &Prediction, types: &Types) -> Vec<String> {
    let Some(s) = critical(p) else {
        return Vec::new();
    };
    let Some(pipeline) = plan.pipelines.get(s.pipeline) else {
        return Vec::new();
    };
    let step = p.step_time_s.0;
    let m = f64::from(pipeline.micro_batches);
    let per_batch = (s.forward_s + s.backward_s).0.max(1e-12);
    let communication = m * s.comm_s.0 / step;
    let recompute = m * s.recompute_s.0 / step;
    let compute = m * per_batch / step - communication - recompute;
    let tail = (s.grad_sync_s + s.optimizer_s).0 / step;
    let waiting = (1.0 - compute - communication - recompute - tail).max(0.0);
    let shares: Vec<String> = [
        ("compute", compute),
        ("communication", communication),
        ("recompute", recompute),
        ("gradient sync + optimizer", tail),
        ("waiting", waiting),
    ]
    .into_iter()
    .filter(|(name, share)| *name == "compute" || *share >= 0.0005)
    .map(|(name, share)| format!("{name} {}", words::percent(share)))
    .collect();
    let devices = pipeline
        .stages
        .get(s.stage)
        .map_or_else(String::new, |stage| words::counted(&types.counts(stage), 40));
    words::wrap(
        &format!(
            "bottleneck: pipeline {} stage {} ({devices}): {}",
            s.pipeline,
            s.stage,
            shares.join(", ")
        ),
        "  ",
        2,
    )
}

/// The device with the least room.
pub(super) fn fullest_device(p: &Prediction) -> Option<&DevicePrediction> {
    p.devices.iter().max_by(|a, b| {
        (a.memory_bytes.total / a.memory_bytes.limit)
            .total_cmp(&(b.memory_bytes.total / b.memory_bytes.limit))
            .then_with(|| b.device.cmp(&a.device))
    })
}

fn fullest(p: &Prediction) -> String {
    let Some(d) = fullest_device(p) else {
        return String::new();
    };
    let m = &d.memory_bytes;
    format!(
        "memory: fullest is {} ({}), {:.1} of {:.1} GiB, {}",
        words::elide(&d.device, 26),
        words::elide(&d.device_type, 20),
        m.total.gib(),
        m.limit.gib(),
        match d.grade {
            Grade::Safe => "safe",
            Grade::Tight => "tight (less than 8 % free)",
            Grade::Over => "OVER the limit",
        }
    )
}

fn idle(plan: &Plan) -> Vec<String> {
    if plan.idle.is_empty() {
        return Vec::new();
    }
    let devices: usize = plan.idle.iter().map(|i| i.devices.len()).sum();
    let words: Vec<String> = plan
        .idle
        .iter()
        .map(|i| {
            format!(
                "{} ({})",
                words::elide(&words::devices(i.devices.iter()), 60),
                i.reason
            )
        })
        .collect();
    words::wrap(
        &format!("idle: {}: {}", words::plural(devices, "device"), words.join("; ")),
        "  ",
        2,
    )
}

/// The proof that nothing is dropped or counted twice.
pub(super) fn conservation_lines(plan: &Plan) -> Vec<String> {
    let c = conservation(plan);
    let mut parts = Vec::new();
    let mut broken = 0;
    let mut add = |holds: bool, good: String, bad: String| {
        if !holds {
            broken += 1;
        }
        parts.push(if holds { good } else { bad });
    };
    add(
        c.pipelines.iter().all(|p| p.atoms_covered_once),
        format!("{} atoms once per pipeline, in order", c.atoms),
        format!("NOT all of {} atoms once per pipeline", c.atoms),
    );
    add(
        c.devices.used_once,
        "each device once".into(),
        "a device NOT once".into(),
    );
    add(
        c.pipelines.iter().all(|p| p.rows_add_up),
        "rows add up".into(),
        "rows do NOT add up".into(),
    );
    add(
        c.sequences == c.global_batch,
        format!("all {} sequences", c.global_batch),
        format!("{} of {} sequences", c.sequences, c.global_batch),
    );
    add(
        (c.gradient_weight_sum - 1.0).abs() < 1e-9,
        "gradient weights sum to 1".into(),
        format!("gradient weights sum to {:.6}", c.gradient_weight_sum),
    );
    let mut text = format!(
        "{}: {}",
        if broken == 0 { "conserved" } else { "NOT CONSERVED" },
        parts.join(", ")
    );
    if !c.tied_partners.is_empty() {
        text += &format!(
            "; the tied embedding is held by {} and reduced together",
            words::plural(c.tied_partners.len(), "stage")
        );
    }
    if !c.equal_step_counts {
        text += "; unequal step counts join at the gradient reduction";
    }
    words::wrap(&text, "  ", 3)
}

/// Where the predicted time comes from, largest share first.
pub(super) fn trust(p: &Prediction) -> String {
    let mut shares: Vec<(&String, &f64)> = p.provenance_share.iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let shares: Vec<String> = shares
        .into_iter()
        .map(|(name, share)| format!("{name} {}", words::percent(*share)))
        .collect();
    let simulated = p
        .step_time_simulated_s
        .map_or_else(String::new, |s| format!("simulated with shared links: {s}; "));
    words::cut(
        &format!("{simulated}time by provenance: {}", shares.join(", ")),
        100,
    )
}

fn proof(plan: &Plan, p: &Prediction) -> Vec<String> {
    let Some(s) = &plan.search else {
        return Vec::new();
    };
    // The part after `;` names the proof, the part before it the space, which `--explain` shows.
    let bound = match (&p.bound_s, &p.bound_space) {
        (Some(b), Some(space)) => {
            let by = space.rsplit_once("; ").map_or(space.as_str(), |s| s.1);
            format!("bound: {b} by {by}")
        }
        _ => "bound: none".into(),
    };
    let stopped = match s.stop_reason.as_str() {
        "interrupted" => "stopped by Ctrl-C after".to_owned(),
        "time-limit" => "stopped by the time limit after".to_owned(),
        reason => format!("{reason} in"),
    };
    let repeat = if s.reproducible {
        ""
    } else {
        " (time-bounded: not reproducible)"
    };
    vec![
        words::cut(&bound, 100),
        words::cut(
            &format!(
                "search: {}, {stopped} {}{repeat}, {} plans and templates priced",
                s.method,
                s.wall_s,
                words::whole(s.plans_scored)
            ),
            100,
        ),
    ]
}
