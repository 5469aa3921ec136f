//! Degrees: their product first, then what each must divide.

use super::{Facts, Found, Span};
use crate::error::{Problem, plan as codes};
use crate::plan::uniform::{self, DegreeRules, UniformDegrees};

/// The product of the degrees of a uniform plan is the number of devices that are not idle.
pub(super) fn world_size(facts: &Facts<'_>, found: &mut Found) {
    let Some(degrees) = uniform_degrees(facts) else {
        return;
    };
    let mut idle = vec![false; facts.map.len()];
    for address in facts.plan.idle.iter().flat_map(|i| &i.devices) {
        if let Some(id) = facts.map.find(address) {
            idle[id] = true;
        }
    }
    let usable = (0..facts.map.len())
        .filter(|d| !idle[*d] && !facts.map.excluded(*d))
        .count();
    if let Some(problem) = uniform::world_size(degrees, usable as u64, "pipelines") {
        found.push(&codes::WORLD_SIZE, || problem);
    }
}

/// The degrees of a plan whose stages are all alike.
pub(in crate::plan) fn uniform_degrees(facts: &Facts<'_>) -> Option<UniformDegrees> {
    let first = facts.stages.first()?.entry.replicas.first()?;
    let (tp, cp) = (first.tp, first.cp);
    let mut pp = None;
    let mut dp = 0_u64;
    for p in 0..facts.plan.pipelines.len() {
        let mut owners = 0_u64;
        let mut copies = None;
        for stage in facts.stages_of(p) {
            if stage.entry.on_stage.is_some() {
                continue;
            }
            owners += 1;
            let replicas = &stage.entry.replicas;
            if replicas.iter().any(|r| (r.tp, r.cp) != (tp, cp)) {
                return None;
            }
            if *copies.get_or_insert(replicas.len()) != replicas.len() {
                return None;
            }
        }
        if *pp.get_or_insert(owners) != owners {
            return None;
        }
        dp += copies? as u64;
    }
    let (tp, cp) = (u64::from(tp), u64::from(cp));
    Some(UniformDegrees { tp, cp, pp: pp?, dp })
}

fn tp_rules(facts: &Facts<'_>, span: Span) -> DegreeRules {
    let mut rules = DegreeRules::default();
    for needs in facts.needs(span) {
        for (name, number) in &needs.tp_divides {
            rules.divide(name, *number);
        }
        rules.divide_or_multiple("key/value heads", needs.kv_heads);
    }
    rules
}

/// TP divides heads and widths; key/value heads divide it or are divided by it.
pub(super) fn tp_degree(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::TP_DEGREE;
    for stage in &facts.stages {
        let owner = facts.owner(stage);
        let mut seen: Vec<u32> = Vec::new();
        let mut rules = None;
        for (r, replica) in owner.entry.replicas.iter().enumerate() {
            if replica.tp == 1 || (seen.len() < 64 && seen.contains(&replica.tp)) {
                continue;
            }
            seen.push(replica.tp);
            let rules = rules.get_or_insert_with(|| tp_rules(facts, stage.span));
            let tp = u64::from(replica.tp);
            if rules.allows(tp) {
                continue;
            }
            found.push(code, || {
                let message = format!("tp `{tp}` {}", super::list(rules.broken(tp)));
                let mut hint = rules.hint("tp", tp, tp.max(8));
                let split = rules
                    .legal(tp)
                    .into_iter()
                    .rev()
                    .find(|d| *d < tp && tp.is_multiple_of(*d));
                if let Some(split) = split {
                    let rest = tp / split;
                    hint = format!(
                        "{hint}; {tp} devices fit tp {split} x {rest} stages, or tp {split} x {rest} replicas"
                    );
                }
                Problem::new(code, format!("{}.tp", owner.replica_path(r)), message).hint(hint)
            });
        }
    }
}

/// The sequence is divisible by 2 x cp.
pub(super) fn cp_degree(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::CP_DEGREE;
    let seq_len = facts.plan.training.seq_len;
    for stage in &facts.stages {
        for (r, replica) in stage.entry.replicas.iter().enumerate() {
            let cp = u64::from(replica.cp);
            if cp == 1 || (cp > 0 && seq_len.is_multiple_of(2 * cp)) {
                continue;
            }
            found.push(code, || {
                let message = if cp == 0 {
                    "cp is `0`".to_owned()
                } else {
                    format!("cp `{cp}`: a sequence of {seq_len} tokens is not divisible by 2 x {cp}")
                };
                let mut rules = DegreeRules::default();
                rules.divide(
                    "half sequence",
                    if seq_len.is_multiple_of(2) { seq_len / 2 } else { 1 },
                );
                Problem::new(code, format!("{}.cp", stage.replica_path(r)), message).hint(rules.hint(
                    "cp",
                    cp,
                    cp.max(16),
                ))
            });
        }
    }
}

/// Under sequence parallelism the tokens of a CP rank are divisible by TP.
pub(super) fn sequence_parallel(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::SEQUENCE_PARALLEL;
    if !facts.plan.training.sequence_parallel {
        return;
    }
    let seq_len = facts.plan.training.seq_len;
    for stage in &facts.stages {
        for (r, replica) in stage.entry.replicas.iter().enumerate() {
            let (tp, cp) = (u64::from(replica.tp), u64::from(replica.cp));
            if tp <= 1 || cp == 0 || !seq_len.is_multiple_of(cp) || (seq_len / cp).is_multiple_of(tp) {
                continue;
            }
            let tokens = seq_len / cp;
            found.push(code, || {
                let mut rules = tp_rules(facts, stage.span);
                rules.divide("tokens", tokens);
                let message =
                    format!("tp `{tp}` does not divide the {tokens} tokens of a rank (sequence parallel)");
                Problem::new(code, format!("{}.tp", stage.replica_path(r)), message).hint(format!(
                    "{}; or switch `sequence_parallel` off",
                    rules.hint("tp", tp, tp.max(8))
                ))
            });
        }
    }
}

/// EP divides the experts, ep x etp the stage's devices.
pub(super) fn ep_degree(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::EP_DEGREE;
    for stage in &facts.stages {
        let (ep, etp) = (u64::from(stage.entry.ep), u64::from(stage.entry.etp));
        if ep == 1 {
            continue;
        }
        let path = || format!("{}.ep", stage.path());
        let experts: Vec<u64> = facts
            .needs(stage.span)
            .iter()
            .map(|n| n.experts)
            .filter(|e| *e > 0)
            .collect();
        if experts.is_empty() && ep > 1 {
            found.push(code, || {
                let message = format!("ep `{ep}` on a stage without experts");
                Problem::new(code, path(), message).hint("set `ep` to 1, or give the stage an MoE atom")
            });
            continue;
        }
        let devices = facts.owner(stage).device_count();
        let mut rules = DegreeRules::default();
        for count in &experts {
            rules.divide("experts", *count);
        }
        let groups = if etp > 0 && devices.is_multiple_of(etp) {
            devices / etp
        } else {
            devices
        };
        rules.divide("devices of the stage per etp", groups);
        if !rules.allows(ep) {
            found.push(code, || {
                let message = format!("ep `{ep}` {}", super::list(rules.broken(ep)));
                Problem::new(code, path(), message).hint(rules.hint("ep", ep, ep.max(16)))
            });
        }
    }
}

/// ETP divides the expert width, ep x etp the stage's devices.
pub(super) fn etp_degree(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::ETP_DEGREE;
    for stage in &facts.stages {
        let etp = u64::from(stage.entry.etp);
        if etp == 1 {
            continue;
        }
        let path = || format!("{}.etp", stage.path());
        let widths: Vec<u64> = facts
            .needs(stage.span)
            .iter()
            .map(|n| n.expert_width)
            .filter(|w| *w > 0)
            .collect();
        if widths.is_empty() && etp > 1 {
            found.push(code, || {
                let message = format!("etp `{etp}` on a stage without experts");
                Problem::new(code, path(), message).hint("set `etp` to 1")
            });
            continue;
        }
        let mut rules = DegreeRules::default();
        for width in &widths {
            rules.divide("columns of an expert", *width);
        }
        rules.divide("devices of the stage", facts.owner(stage).device_count());
        if !rules.allows(etp) {
            found.push(code, || {
                let message = format!("etp `{etp}` {}", super::list(rules.broken(etp)));
                Problem::new(code, path(), message).hint(rules.hint("etp", etp, etp.max(16)))
            });
        }
    }
}
