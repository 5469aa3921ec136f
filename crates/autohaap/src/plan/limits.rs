//! How large the counts of a plan may be: beyond these no further work is reasonable, and no product overflows.

use serde_json::Value;

use super::types::Plan;
use crate::error::{Problem, Problems, plan as codes};

/// Longest text that is read.
pub const MAX_PLAN_BYTES: usize = 64 << 20;
/// Most devices of a cluster in a plan, and most addresses in its lists.
pub const MAX_DEVICES: u64 = 1_000_000;
/// Most atoms of a model in a plan.
pub const MAX_ATOMS: usize = 100_000;
/// Most stages of all pipelines.
pub const MAX_STAGES: usize = 100_000;
/// Most device types and domains.
pub const MAX_TYPES: usize = 1_024;
/// Most sequences of one pipeline and step, and most tokens of a sequence.
pub const MAX_SEQUENCES: u64 = 1 << 31;
/// Most micro-batches in flight over the stages of a pipeline, which an evaluation holds in memory.
pub const MAX_IN_FLIGHT: u64 = 1 << 22;
/// Largest degree of parallelism of any one kind: a product of two stays in 32 bits.
pub const MAX_DEGREE: u64 = 1 << 15;
/// Largest single number in the shape of a layer: a product of two, and three times it, stay in 64 bits.
pub const MAX_SHAPE: u64 = 1 << 30;

/// Counts that would make any further work unreasonable.
pub(super) fn limits(plan: &Plan, source_name: &str) -> Problems {
    let mut problems = Problems::new();
    let prefix = if source_name.is_empty() {
        String::new()
    } else {
        format!("{source_name}: ")
    };
    let mut most = |path: &str, what: &str, count: u64, limit: u64| {
        if count > limit {
            let message = format!("`{count}` {what}, at most {limit}");
            problems.push(
                Problem::new(&codes::PLAN_TOO_LARGE, format!("{prefix}{path}"), message)
                    .hint(format!("use {limit} or fewer")),
            );
        }
    };
    let cluster = &plan.cluster.cluster;
    let devices = cluster
        .nodes
        .iter()
        .flat_map(|n| &n.groups)
        .fold(0_u64, |sum, g| sum.saturating_add(u64::from(g.count)));
    most("cluster.nodes", "devices", devices, MAX_DEVICES);
    most(
        "cluster.device_types",
        "device types",
        cluster.device_types.len() as u64,
        MAX_TYPES as u64,
    );
    most(
        "cluster.domains",
        "domains",
        cluster.domains.len() as u64,
        MAX_TYPES as u64,
    );
    most(
        "model.atoms",
        "atoms",
        plan.model.model.atoms.len() as u64,
        MAX_ATOMS as u64,
    );
    let stages: usize = plan.pipelines.iter().map(|p| p.stages.len()).sum();
    most("pipelines", "stages", stages as u64, MAX_STAGES as u64);
    let used: usize = plan
        .pipelines
        .iter()
        .flat_map(|p| &p.stages)
        .flat_map(|s| &s.replicas)
        .map(|r| r.devices.len())
        .sum();
    let idle: usize = plan.idle.iter().map(|i| i.devices.len()).sum();
    most("pipelines", "device addresses", (used + idle) as u64, MAX_DEVICES);
    most("training.seq_len", "tokens", plan.training.seq_len, MAX_SEQUENCES);
    for (i, pipeline) in plan.pipelines.iter().enumerate() {
        let at = format!("pipelines[{i}]");
        for (key, count) in [
            ("micro_batch", u64::from(pipeline.micro_batch)),
            (
                "micro_batches",
                u64::from(pipeline.micro_batch.max(1)) * u64::from(pipeline.micro_batches),
            ),
        ] {
            most(
                &format!("{at}.{key}"),
                "sequences in a step",
                count,
                MAX_SEQUENCES,
            );
        }
        let deepest = pipeline.stages.iter().map(|s| s.in_flight).max().unwrap_or(0);
        most(
            &format!("{at}.stages"),
            "micro-batches in flight, at the deepest stage times the stages",
            u64::from(deepest.min(pipeline.micro_batches)) * pipeline.stages.len() as u64,
            MAX_IN_FLIGHT,
        );
        for (s, stage) in pipeline.stages.iter().enumerate() {
            let at = format!("{at}.stages[{s}]");
            let rows = stage.replicas.iter().map(|r| u64::from(r.rows)).sum();
            most(
                &format!("{at}.replicas"),
                "rows of a micro-batch",
                rows,
                MAX_SEQUENCES,
            );
            let in_flight = u64::from(stage.in_flight);
            most(
                &format!("{at}.in_flight"),
                "micro-batches in flight",
                in_flight,
                MAX_SEQUENCES,
            );
            most(&format!("{at}.ep"), "ranks", u64::from(stage.ep), MAX_DEGREE);
            most(&format!("{at}.etp"), "ranks", u64::from(stage.etp), MAX_DEGREE);
            for (r, replica) in stage.replicas.iter().enumerate() {
                let at = format!("{at}.replicas[{r}]");
                most(&format!("{at}.tp"), "ranks", u64::from(replica.tp), MAX_DEGREE);
                most(&format!("{at}.cp"), "ranks", u64::from(replica.cp), MAX_DEGREE);
            }
        }
    }
    let model = &plan.model.model;
    let shapes = serde_json::to_value(&model.atoms).unwrap_or_default();
    for (path, count) in [("hidden", model.hidden), ("vocab", model.vocab)] {
        most(
            &format!("model.{path}"),
            "in the shape of a layer",
            count,
            MAX_SHAPE,
        );
    }
    each_count(&shapes, "model.atoms", &mut |path, count| {
        most(path, "in the shape of a layer", count, MAX_SHAPE);
    });
    problems
}

/// Calls `visit` with the path and value of every whole number below `value`.
fn each_count(value: &Value, path: &str, visit: &mut impl FnMut(&str, u64)) {
    match value {
        Value::Number(number) => {
            if let Some(count) = number.as_u64() {
                visit(path, count);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                each_count(item, &format!("{path}[{i}]"), visit);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                each_count(item, &format!("{path}.{key}"), visit);
            }
        }
        _ => {}
    }
}
