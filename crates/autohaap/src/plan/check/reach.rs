//! Who can talk to whom: collectives inside one domain, bridges between stages, nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::StageFacts;
use super::{Facts, Found, atoms_in_words};
use crate::error::{Problem, plan as codes};
use crate::model::AtomKind;

fn domains(facts: &Facts<'_>, devices: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    devices.filter_map(|d| facts.map.domain_of(d)).collect()
}

fn names(facts: &Facts<'_>, domains: &BTreeSet<usize>) -> String {
    super::list(domains.iter().map(|d| format!("`{}`", facts.domain_name(*d))))
}

/// Device numbers of the expert groups of a stage: consecutive ep x etp devices, replica-major.
fn expert_groups<'a>(owner: &'a StageFacts<'_>, size: usize) -> impl Iterator<Item = Vec<usize>> + 'a {
    let flat: Vec<Option<usize>> = owner.devices.iter().flatten().copied().collect();
    let groups: Vec<Vec<usize>> = flat
        .chunks(size.max(1))
        .map(|g| g.iter().copied().flatten().collect())
        .collect();
    groups.into_iter()
}

/// TP, CP and EP groups lie in one domain.
pub(super) fn group_domain(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GROUP_DOMAIN;
    for stage in &facts.stages {
        let mut broken = false;
        for (r, replica) in stage.devices.iter().enumerate() {
            let set = domains(facts, replica.iter().flatten().copied());
            if set.len() > 1 {
                broken = true;
                found.push(code, || {
                    let entry = &stage.entry.replicas[r];
                    let message = format!(
                        "tp `{}` x cp `{}` over domains {}",
                        entry.tp,
                        entry.cp,
                        names(facts, &set)
                    );
                    Problem::new(code, stage.replica_path(r), message)
                        .hint("use devices of one domain; other domains go to other stages")
                });
            }
        }
        let size = (stage.entry.ep as usize).saturating_mul(stage.entry.etp as usize);
        if size <= 1 || broken {
            continue;
        }
        let crossing = expert_groups(facts.owner(stage), size)
            .map(|g| domains(facts, g.into_iter()))
            .find(|set| set.len() > 1);
        if let Some(set) = crossing {
            found.push(code, || {
                let message = format!("ep `{}` over domains {}", stage.entry.ep, names(facts, &set));
                Problem::new(code, format!("{}.ep", stage.path()), message)
                    .hint("lower `ep` so that consecutive groups stay inside one domain")
            });
        }
    }
}

/// All holders of an atom, tied ends included, lie in one domain.
pub(super) fn gradient_domain(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GRADIENT_DOMAIN;
    let mut events: Vec<(usize, bool, usize)> = Vec::new();
    for stage in &facts.stages {
        if stage.span.start < stage.span.end {
            for domain in domains(facts, facts.owner(stage).known_devices()) {
                events.push((stage.span.start, true, domain));
                events.push((stage.span.end, false, domain));
            }
        }
    }
    events.sort_unstable();
    let mut active: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open: Option<(usize, BTreeSet<usize>)> = None;
    let mut report = |start: usize, end: usize, set: &BTreeSet<usize>| {
        found.push(code, || {
            let message = format!(
                "{} held in domains {}",
                atoms_in_words(start, end),
                names(facts, set)
            );
            Problem::new(code, "pipelines", message).hint(
                "gradients are reduced over all holders: give each domain its own stages, or leave one idle",
            )
        });
    };
    let mut next = 0;
    while next < events.len() {
        let atom = events[next].0;
        while next < events.len() && events[next].0 == atom {
            let (_, begins, domain) = events[next];
            let count = active.entry(domain).or_default();
            *count = if begins {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                active.remove(&domain);
            }
            next += 1;
        }
        let now: Option<BTreeSet<usize>> = (active.len() > 1).then(|| active.keys().copied().collect());
        if let Some((start, set)) = open.take_if(|o| Some(&o.1) != now.as_ref()) {
            report(start, atom, &set);
        }
        if let (None, Some(set)) = (&open, now) {
            open = Some((atom, set));
        }
    }
    tied_ends(facts, found);
}

/// The holders of one shared weight: embedding and head if tied, MTP blocks and head.
fn tied_ends(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GRADIENT_DOMAIN;
    let sharing = sharing_atoms(facts);
    if sharing.len() < 2 {
        return;
    }
    let mut per_atom: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); sharing.len()];
    for stage in &facts.stages {
        let held = sharing.partition_point(|a| *a < stage.span.start)
            ..sharing.partition_point(|a| *a < stage.span.end);
        if !held.is_empty() {
            let set = domains(facts, facts.owner(stage).known_devices());
            for atom in held {
                per_atom[atom].extend(&set);
            }
        }
    }
    // An atom that itself spans domains has been reported.
    let all: BTreeSet<usize> = per_atom.iter().flatten().copied().collect();
    if all.len() > 1 && per_atom.iter().all(|set| set.len() <= 1) {
        found.push(code, || {
            let atoms = super::list(sharing.iter().map(|a| format!("`{a}`")));
            let message = format!(
                "atoms {atoms} share one weight but lie in domains {}",
                names(facts, &all)
            );
            Problem::new(code, "model.tied", message)
                .hint("put the first and the last stage in one domain, other domains between them")
        });
    }
}

/// Atoms that hold one and the same vocabulary weight, in order; fewer than two if nothing is shared.
pub(in crate::plan) fn sharing_atoms(facts: &Facts<'_>) -> Vec<usize> {
    let model = &facts.plan.model.model;
    let shares = |kind: AtomKind| match kind {
        AtomKind::Embedding => model.tied,
        AtomKind::Mtp | AtomKind::Head => true,
        _ => false,
    };
    let numbered = model.atoms.iter().enumerate();
    numbered.filter(|(_, a)| shares(a.kind)).map(|(i, _)| i).collect()
}

/// Adjacent stages in different domains have a declared bridge.
pub(super) fn no_bridge(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::NO_BRIDGE;
    let cluster = &facts.plan.cluster.cluster;
    let bridged = |a: usize, b: usize| {
        let (a, b) = (facts.domain_name(a), facts.domain_name(b));
        let joins = |e: &[String; 2]| (e[0] == a && e[1] == b) || (e[0] == b && e[1] == a);
        cluster.bridges.iter().any(|bridge| joins(&bridge.between))
    };
    for p in 0..facts.plan.pipelines.len() {
        let stages = facts.stages_of(p);
        let sets: Vec<BTreeSet<usize>> = stages
            .iter()
            .map(|s| domains(facts, facts.owner(s).known_devices()))
            .collect();
        for (s, pair) in sets.windows(2).enumerate() {
            for (a, b) in pair[0].iter().flat_map(|a| pair[1].iter().map(move |b| (*a, *b))) {
                if a == b || bridged(a, b) {
                    continue;
                }
                found.push(code, || {
                    let (from, to) = (facts.domain_name(a), facts.domain_name(b));
                    let message = format!(
                        "stage `{s}` in `{from}` has no path to stage `{}` in `{to}`",
                        s + 1
                    );
                    let declared: Vec<String> = cluster
                        .bridges
                        .iter()
                        .map(|b| format!("{} - {}", b.between[0], b.between[1]))
                        .collect();
                    let hint = if declared.is_empty() {
                        format!("declare a bridge between `{from}` and `{to}` in the cluster file")
                    } else {
                        format!(
                            "declare a bridge between `{from}` and `{to}`; declared: {}",
                            super::list(declared)
                        )
                    };
                    Problem::new(code, stages[s + 1].path(), message).hint(hint)
                });
            }
        }
    }
}

/// Advice: tensor- and expert-parallel groups inside one node.
pub(super) fn group_across_nodes(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GROUP_ACROSS_NODES;
    let node_count = |devices: &[usize]| {
        devices
            .iter()
            .map(|d| facts.map.node_of(*d))
            .collect::<BTreeSet<_>>()
            .len()
    };
    for stage in &facts.stages {
        for (r, replica) in stage.devices.iter().enumerate() {
            let tp = stage.entry.replicas[r].tp as usize;
            let groups = replica
                .chunks(tp.max(1))
                .map(|g| g.iter().copied().flatten().collect::<Vec<_>>());
            if let Some(nodes) = groups.map(|g| node_count(&g)).find(|n| *n > 1) {
                found.push(code, || {
                    let message = format!("a tp `{tp}` group spans {nodes} nodes");
                    Problem::new(code, format!("{}.tp", stage.replica_path(r)), message)
                        .hint("lower tp to what one node holds, and use stages across nodes")
                });
            }
        }
        let size = (stage.entry.ep as usize).saturating_mul(stage.entry.etp as usize);
        if size > 1
            && let Some(nodes) = expert_groups(facts.owner(stage), size)
                .map(|g| node_count(&g))
                .find(|n| *n > 1)
        {
            found.push(code, || {
                let message = format!("an ep `{}` group spans {nodes} nodes", stage.entry.ep);
                Problem::new(code, format!("{}.ep", stage.path()), message)
                    .hint("lower ep to what one node holds, if the experts fit")
            });
        }
    }
}

/// Advice: tensor- and context-parallel groups of one device type.
pub(super) fn mixed_group(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::MIXED_GROUP;
    for stage in &facts.stages {
        for (r, replica) in stage.devices.iter().enumerate() {
            let types: BTreeSet<&str> = replica.iter().flatten().map(|d| facts.map.type_of(*d)).collect();
            if types.len() > 1 {
                found.push(code, || {
                    let message = format!("a replica mixes {}", super::list(types.iter().map(|t| format!("`{t}`"))));
                    Problem::new(code, stage.replica_path(r), message)
                        .hint("its speed is that of the slowest card; put the types in different replicas or stages")
                });
            }
        }
    }
}
