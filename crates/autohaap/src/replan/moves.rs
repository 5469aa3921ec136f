//! Which parts of the training state each device needs and does not have: interval intersection per kind of weight.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::Sharding;
use crate::plan::{Optimizer, Plan};
use crate::units::Bytes;

/// A slice of an atom's training state that a device must get.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    /// Atom index.
    pub atom: usize,
    /// Weight, for example `gate and up`.
    pub weight: &'static str,
    /// The device that needs it.
    pub to: String,
    /// A device of the old plan that has (part of) it and still exists; none: only a checkpoint has it.
    pub from: Option<String>,
    /// Share of the weight: [start, end) of 0..1 along its divided dimension.
    pub share: [f64; 2],
    /// Master weights and moments of the slice.
    pub bytes: Bytes,
}

/// Holdings of one (atom, weight kind): device -> interval of the weight.
type Holdings = BTreeMap<(usize, usize), Vec<(String, [f64; 2])>>;

fn holdings(plan: &Plan) -> Holdings {
    let mut found = Holdings::new();
    let atoms = &plan.model.model.atoms;
    for pipeline in &plan.pipelines {
        for stage in &pipeline.stages {
            let owner = stage
                .on_stage
                .and_then(|s| pipeline.stages.get(s))
                .unwrap_or(stage);
            let mut position = 0_u32;
            for replica in &owner.replicas {
                for (i, device) in replica.devices.iter().enumerate() {
                    let tp = replica.tp.max(1);
                    let t = i as u32 % tp;
                    let ep = owner.ep.max(1);
                    let slot = position % ep;
                    position += 1;
                    for atom in stage.atoms[0]..stage.atoms[1].min(atoms.len()) {
                        for (w, weight) in atoms[atom].parts().weights.iter().enumerate() {
                            let share = match weight.sharding {
                                Sharding::Replicated => [0.0, 1.0],
                                Sharding::Expert => part(slot, ep),
                                _ => part(t, tp),
                            };
                            found.entry((atom, w)).or_default().push((device.clone(), share));
                        }
                    }
                }
            }
        }
    }
    found
}

fn part(index: u32, of: u32) -> [f64; 2] {
    let edge = |i: u32| f64::from(i) / f64::from(of);
    [edge(index), edge(index + 1)]
}

/// The slices that a device of `new` needs and does not hold under `old`, in the order of atoms. Devices are matched by
/// name; those that the new cluster excludes send nothing.
pub fn moves(old: &Plan, new: &Plan) -> Vec<Move> {
    // fp32 master weights, and two moments with Adam.
    let state = match new.training.optimizer {
        Optimizer::Adam => 12.0,
        Optimizer::Sgd => 4.0,
    };
    let alive = |device: &str| {
        let Some((name, index)) = device.rsplit_once(':') else {
            return false;
        };
        let node = new.cluster.cluster.nodes.iter().find(|n| n.name == name);
        node.is_some_and(|n| index.parse().is_ok_and(|i: u32| !n.excluded.contains(&i)))
    };
    let before = holdings(old);
    let empty = Vec::new();
    let mut found = Vec::new();
    for ((atom, w), wanted) in holdings(new) {
        let weight = &new.model.model.atoms[atom].parts().weights[w];
        let had = before.get(&(atom, w)).unwrap_or(&empty);
        for (device, share) in wanted {
            // One device holds at most one interval of a weight.
            let own = had.iter().find(|(d, _)| *d == device).map(|(_, s)| *s);
            for missing in without(share, own) {
                // Cut by the intervals of one copy that still exists.
                let mut at = missing[0];
                while at < missing[1] - 1e-12 {
                    let source = had
                        .iter()
                        .filter(|(d, s)| alive(d) && s[0] <= at + 1e-12 && s[1] > at + 1e-12)
                        .max_by(|a, b| a.1[1].total_cmp(&b.1[1]));
                    let end = source.map_or(missing[1], |(_, s)| s[1].min(missing[1]));
                    found.push(Move {
                        atom,
                        weight: weight.name,
                        to: device.clone(),
                        from: source.map(|(d, _)| d.clone()),
                        share: [at, end],
                        bytes: Bytes((end - at) * weight.parameters as f64 * state),
                    });
                    at = end;
                }
            }
        }
    }
    found.retain(|m| m.bytes.0 > 0.0);
    found
}

/// The parts of an interval outside another.
fn without(wanted: [f64; 2], own: Option<[f64; 2]>) -> Vec<[f64; 2]> {
    let Some(own) = own else {
        return vec![wanted];
    };
    [
        [wanted[0], wanted[1].min(own[0])],
        [wanted[0].max(own[1]), wanted[1]],
    ]
    .into_iter()
    .filter(|i| i[1] > i[0] + 1e-12)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_the_difference() {
        assert_eq!(without([0.0, 0.5], None), [[0.0, 0.5]]);
        assert_eq!(without([0.0, 1.0], Some([0.25, 0.5])), [[0.0, 0.25], [0.5, 1.0]]);
        assert!(without([0.25, 0.5], Some([0.0, 0.5])).is_empty());
    }
}
