//! Parts exist, names are unique, atoms are covered.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::error::{Problem, nearest, plan as codes};
use crate::model::{AtomKind, Shape};
use crate::plan::uniform::{cut_in_words, even_cut};

/// Embedding, blocks, MTP blocks, head, in that order; the tie flag agrees with the head.
pub(super) fn broken_model(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::BROKEN_MODEL;
    let model = &facts.plan.model.model;
    if model.atoms.is_empty() {
        found.push(code, || {
            Problem::new(code, "model.atoms", "the model has no atoms").hint("plan again from the model file")
        });
    }
    let rank = |kind: AtomKind| match kind {
        AtomKind::Embedding => 0,
        AtomKind::Dense | AtomKind::Moe | AtomKind::Scan => 1,
        AtomKind::Mtp => 2,
        AtomKind::Head => 3,
    };
    for (i, pair) in model.atoms.windows(2).enumerate() {
        let (a, b) = (rank(pair[0].kind), rank(pair[1].kind));
        if a > b || (a == b && matches!(a, 0 | 3)) {
            found.push(code, || {
                let message = format!("atom `{}` is out of order", i + 1);
                Problem::new(code, format!("model.atoms[{}].kind", i + 1), message)
                    .hint("the order is embedding, blocks, MTP blocks, head")
            });
        }
    }
    for (i, atom) in model.atoms.iter().enumerate() {
        let agrees = match atom.shape {
            Shape::Embedding { .. } => atom.kind == AtomKind::Embedding,
            Shape::Block(_) => rank(atom.kind) == 1,
            Shape::Mtp { .. } => atom.kind == AtomKind::Mtp,
            Shape::Head { tied, .. } => {
                if tied != model.tied {
                    found.push(code, || {
                        let message = format!("the head's `tied` is `{tied}`, the model's `{}`", model.tied);
                        Problem::new(code, "model.tied", message).hint("both flags are equal")
                    });
                }
                atom.kind == AtomKind::Head
            }
        };
        if !agrees {
            found.push(code, || {
                let message = format!("kind and shape of atom `{i}` disagree");
                Problem::new(code, format!("model.atoms[{i}]"), message)
                    .hint("plan again from the model file")
            });
        }
    }
}

/// Unique node names, known types, one domain per type, bridges between known domains.
pub(super) fn broken_cluster(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::BROKEN_CLUSTER;
    let cluster = &facts.plan.cluster.cluster;
    for (i, node) in cluster.nodes.iter().enumerate() {
        if facts.map.node(&node.name).is_some_and(|n| n.0 != i) {
            found.push(code, || {
                let message = format!("two nodes are named `{}`", node.name);
                Problem::new(code, format!("cluster.nodes[{i}].name"), message)
                    .hint("give every node its own name")
            });
        }
        for (g, group) in node.groups.iter().enumerate() {
            if !cluster.device_types.contains_key(&group.device_type) {
                found.push(code, || {
                    let message = format!("unknown device type `{}`", group.device_type);
                    let known = cluster.device_types.keys().map(String::as_str);
                    let near = nearest(&group.device_type, known).unwrap_or("none");
                    Problem::new(code, format!("cluster.nodes[{i}].groups[{g}].type"), message)
                        .hint(format!("the nearest type of the plan is `{near}`"))
                });
            }
        }
    }
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    for name in cluster.domains.iter().flat_map(|d| &d.device_types) {
        *domains.entry(name).or_default() += 1;
    }
    for name in cluster.device_types.keys() {
        let count = domains.get(name.as_str()).copied().unwrap_or(0);
        if count != 1 {
            found.push(code, || {
                let message = format!("device type `{name}` lies in {count} domains");
                Problem::new(code, "cluster.domains", message).hint("name it in exactly one domain")
            });
        }
    }
    for (i, bridge) in cluster.bridges.iter().enumerate() {
        for end in &bridge.between {
            if !cluster.domains.iter().any(|d| d.name == *end) {
                found.push(code, || {
                    let message = format!("the bridge names the unknown domain `{end}`");
                    let known = cluster.domains.iter().map(|d| d.name.as_str());
                    Problem::new(code, format!("cluster.bridges[{i}].between"), message)
                        .hint(format!("domains of the plan: {}", super::list(known)))
                });
            }
        }
    }
}

/// Pipelines, stages, replicas and device lists have members.
pub(super) fn empty_part(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::EMPTY_PART;
    let mut empty = |path: String, what: &str, hint: &str| {
        found.push(code, || Problem::new(code, path, what).hint(hint));
    };
    if facts.plan.pipelines.is_empty() {
        empty("pipelines".into(), "the plan has no pipelines", "add a pipeline");
    }
    for (i, pipeline) in facts.plan.pipelines.iter().enumerate() {
        if pipeline.stages.is_empty() {
            let path = format!("pipelines[{i}].stages");
            empty(
                path,
                "the pipeline has no stages",
                "add a stage or delete the pipeline",
            );
        }
    }
    for stage in &facts.stages {
        if stage.entry.replicas.is_empty() && stage.entry.on_stage.is_none() {
            let hint = "add a replica, or `on_stage` for a virtual stage";
            empty(
                format!("{}.replicas", stage.path()),
                "the stage has no replicas",
                hint,
            );
        }
        for (r, replica) in stage.entry.replicas.iter().enumerate() {
            if replica.devices.is_empty() {
                let path = format!("{}.devices", stage.replica_path(r));
                empty(
                    path,
                    "the replica has no devices",
                    "list tp x cp devices or delete the replica",
                );
            }
        }
    }
}

/// Every pipeline covers every atom exactly once, in order.
pub(super) fn atom_coverage(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::ATOM_COVERAGE;
    let all = facts.all_atoms();
    for (p, pipeline) in facts.plan.pipelines.iter().enumerate() {
        let stages = facts.stages_of(p);
        let built: usize = stages.iter().map(|s| facts.blocks(s.span)).sum();
        let blocks = facts.blocks(all);
        let intro = format!("pipeline `{p}` builds {built} of {blocks} blocks");
        let cut = if built == blocks || stages.is_empty() {
            String::new()
        } else {
            let even = cut_in_words(&even_cut(blocks, stages.len()));
            format!("; an even cut is {even} blocks, the last stage lighter for the head")
        };
        let mut next = 0;
        for (s, stage) in pipeline.stages.iter().enumerate() {
            let [start, end] = stage.atoms;
            let path = || format!("pipelines[{p}].stages[{s}].atoms");
            if start != next {
                let what = if start > next {
                    "is skipped"
                } else {
                    "is built twice"
                };
                let (low, high) = (start.min(next), start.max(next));
                let gap = if high == low + 1 {
                    format!("atom {low} {what}")
                } else {
                    format!("atoms {low} to {} {what}", high - 1).replace(" is ", " are ")
                };
                found.push(code, || {
                    let message =
                        format!("{intro}: stage `{s}` begins at atom `{start}`, not `{next}`; {gap}");
                    Problem::new(code, path(), message)
                        .hint(format!("begin it at {next}, where the stage before ends{cut}"))
                });
            }
            if end <= start {
                found.push(code, || {
                    let message = format!("stage `{s}` holds no atoms: `[{start}, {end}]` is half-open");
                    Problem::new(code, path(), message).hint("give it at least one atom or delete the stage")
                });
            }
            next = end;
        }
        if next != all.end && !stages.is_empty() {
            let last = pipeline.stages.len() - 1;
            found.push(code, || {
                let message = format!(
                    "{intro}: the last stage ends at atom `{next}`, the model at {}",
                    all.end
                );
                Problem::new(code, format!("pipelines[{p}].stages[{last}].atoms"), message)
                    .hint(format!("end it at {}{cut}", all.end))
            });
        }
    }
}
