//! Devices exist, are used once and accounted for; replicas have the size of their degrees.

use super::{Facts, Found};
use crate::error::{Problem, nearest, plan as codes};

/// Addresses of replicas and idle lists name usable devices.
pub(super) fn no_such_device(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::NO_SUCH_DEVICE;
    for stage in &facts.stages {
        for (r, replica) in stage.devices.iter().enumerate() {
            for (d, device) in replica.iter().enumerate() {
                let path = || format!("{}.devices[{d}]", stage.replica_path(r));
                match device {
                    None => {
                        let address = &stage.entry.replicas[r].devices[d];
                        found.push(code, || unknown(facts, address, path()));
                    }
                    Some(id) if facts.map.excluded(*id) => {
                        found.push(code, || {
                            let message =
                                format!("device `{}` is excluded by the cluster", facts.map.address(*id));
                            Problem::new(code, path(), message).hint("use another device of the node")
                        });
                    }
                    Some(_) => {}
                }
            }
        }
    }
    for (i, idle) in facts.plan.idle.iter().enumerate() {
        for (d, address) in idle.devices.iter().enumerate() {
            if facts.map.find(address).is_none() {
                found.push(code, || {
                    unknown(facts, address, format!("idle[{i}].devices[{d}]"))
                });
            }
        }
    }
}

fn unknown(facts: &Facts<'_>, address: &str, path: String) -> Problem {
    let short: String = address.chars().take(80).collect();
    let node = address.rsplit_once(':').map_or(address, |a| a.0);
    let hint = match facts.map.node(node) {
        Some((_, 0)) => format!("node `{node}` has no devices"),
        Some((_, n)) => format!("devices of the node: `{node}:0` to `{node}:{}`", n - 1),
        None => {
            let word: String = node.chars().take(80).collect();
            match nearest(&word, facts.map.node_names().iter().take(2_000).copied()) {
                Some(near) => format!("the nearest node is `{near}`; write `{near}:0`"),
                None => "the cluster has no nodes".to_owned(),
            }
        }
    };
    Problem::new(
        &codes::NO_SUCH_DEVICE,
        path,
        format!("no device `{short}` in the cluster"),
    )
    .hint(hint)
}

/// A device is in one replica or one idle list, once.
pub(super) fn device_used_twice(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::DEVICE_USED_TWICE;
    // Position of the first use: stage number + 1, or 0 for none; idle lists are marked apart.
    let mut first: Vec<usize> = vec![0; facts.map.len()];
    for (number, stage) in facts.stages.iter().enumerate() {
        for (r, replica) in stage.devices.iter().enumerate() {
            for (d, device) in replica.iter().enumerate() {
                let Some(id) = *device else { continue };
                if first[id] == 0 {
                    first[id] = number + 1;
                    continue;
                }
                found.push(code, || {
                    let other = facts.stages[first[id] - 1].path();
                    let message = format!("device `{}` is already used in {other}", facts.map.address(id));
                    Problem::new(code, format!("{}.devices[{d}]", stage.replica_path(r)), message)
                        .hint(free_devices(facts))
                });
            }
        }
    }
    let mut idle_seen = vec![false; facts.map.len()];
    for (i, idle) in facts.plan.idle.iter().enumerate() {
        for (d, address) in idle.devices.iter().enumerate() {
            let Some(id) = facts.map.find(address) else {
                continue;
            };
            let message = if facts.uses[id] > 0 {
                format!(
                    "idle device `{address}` is used in {}",
                    facts.stages[first[id] - 1].path()
                )
            } else if idle_seen[id] {
                format!("idle device `{address}` is listed twice")
            } else {
                idle_seen[id] = true;
                continue;
            };
            found.push(code, || {
                Problem::new(code, format!("idle[{i}].devices[{d}]"), message).hint("delete it from `idle`")
            });
        }
    }
}

fn free_devices(facts: &Facts<'_>) -> String {
    let free = (0..facts.map.len()).filter(|d| facts.uses[*d] == 0 && !facts.map.excluded(*d));
    let words = super::list(free.take(5).map(|d| format!("`{}`", facts.map.address(d))));
    if words.is_empty() {
        "no device is free: remove one of the uses".to_owned()
    } else {
        format!("unused devices: {words}")
    }
}

/// Every usable device is used or idle.
pub(super) fn device_unaccounted(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::DEVICE_UNACCOUNTED;
    let missing = unaccounted(facts);
    if missing.is_empty() {
        return;
    }
    found.push(code, || {
        let runs = runs_in_words(facts, &missing);
        let (noun, verb) = if missing.len() == 1 {
            ("device", "is")
        } else {
            ("devices", "are")
        };
        let message = format!("`{}` {noun} {verb} neither used nor idle: {runs}", missing.len());
        Problem::new(code, "idle", message).hint("use them, or list them in `idle` with a reason")
    });
}

/// Usable devices that the plan does not mention.
pub(in crate::plan) fn unaccounted(facts: &Facts<'_>) -> Vec<usize> {
    let mut idle = vec![false; facts.map.len()];
    for address in facts.plan.idle.iter().flat_map(|i| &i.devices) {
        if let Some(id) = facts.map.find(address) {
            idle[id] = true;
        }
    }
    (0..facts.map.len())
        .filter(|d| facts.uses[*d] == 0 && !idle[*d] && !facts.map.excluded(*d))
        .collect()
}

/// Devices as runs: `n0:4` to `n0:7`.
fn runs_in_words(facts: &Facts<'_>, devices: &[usize]) -> String {
    let joined = |a: &usize, b: &usize| b - a == 1 && facts.map.node_of(*a) == facts.map.node_of(*b);
    let run = |run: &[usize]| match run {
        [one] => format!("`{}`", facts.map.address(*one)),
        [a, .., b] => format!("`{}` to `{}`", facts.map.address(*a), facts.map.address(*b)),
        [] => String::new(),
    };
    super::list(devices.chunk_by(joined).take(17).map(run))
}

/// A replica has tp x cp devices.
pub(super) fn replica_size(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::REPLICA_SIZE;
    for stage in &facts.stages {
        for (r, replica) in stage.entry.replicas.iter().enumerate() {
            let (tp, cp) = (u64::from(replica.tp), u64::from(replica.cp));
            let count = replica.devices.len() as u64;
            if tp * cp == count && count > 0 {
                continue;
            }
            if count == 0 && tp > 0 && cp > 0 {
                continue; // an empty replica has its own rule
            }
            found.push(code, || {
                let message = format!("tp `{tp}` x cp `{cp}` is {} devices, {count} are listed", tp * cp);
                let hint = if cp > 0 && count > 0 && count.is_multiple_of(cp) {
                    format!("tp {} with cp {cp} fits {count} devices", count / cp)
                } else if tp > 0 && count > 0 && count.is_multiple_of(tp) {
                    format!("cp {} with tp {tp} fits {count} devices", count / tp)
                } else {
                    format!("list {} devices, both degrees at least 1", (tp * cp).max(1))
                };
                Problem::new(code, stage.replica_path(r), message).hint(hint)
            });
        }
    }
}
