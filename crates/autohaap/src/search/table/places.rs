//! Where the groups of a stage may stand, before any device is chosen.

use crate::cluster::Group;
use crate::cost::atom::ReplicaShape;
use crate::search::space::{Space, StageOption};

/// A replica of the option as it stands on the first nodes of its class.
pub(super) fn representative(space: &Space<'_>, option: StageOption, micro_batch: u32) -> ReplicaShape {
    let class = &space.classes[option.class];
    let group = |ranks: u32, per_node: u32, stride: u32| {
        let per_node = per_node.max(1);
        let mut members = Vec::new();
        let mut left = ranks;
        for &(node, _, _) in &class.nodes {
            if left == 0 {
                break;
            }
            let here = left.min(per_node);
            members.push((node, class.device_type.clone(), here));
            left -= here;
        }
        Group {
            members,
            concurrent: stride.max(1),
        }
    };
    let per_node = class.devices_per_node;
    let replica = option.tp * option.cp;
    ReplicaShape {
        device_type: class.device_type.clone(),
        speed_factor: class.speed_factor,
        tp: option.tp,
        cp: option.cp,
        rows: micro_batch / option.replicas,
        ep: option.ep,
        etp: 1,
        stage_replicas: option.replicas,
        tp_group: group(option.tp, option.tp, 1),
        cp_group: group(option.cp, (per_node / option.tp).max(1), option.tp),
        ep_group: group(
            option.ep,
            per_node,
            (option.devices().min(per_node) / option.ep).max(1),
        ),
        stage_group: group(
            option.replicas,
            (per_node / replica).max(1),
            replica.min(per_node),
        ),
    }
}

/// The shape under the other ways to spread its groups over the nodes of the class, each as if it had the network to
/// itself. Only groups that may span nodes; none where all placements cost the same.
pub(super) fn other_places(
    space: &Space<'_>,
    option: StageOption,
    shape: &ReplicaShape,
) -> Vec<ReplicaShape> {
    let class = &space.classes[option.class];
    let mut nodes: Vec<usize> = class.nodes.iter().map(|n| n.0).collect();
    nodes.dedup();
    let zero = space.setting.training.zero >= 2 && option.replicas > 1;
    if nodes.len() < 2 || !(option.ep > 1 || option.cp > 1 || zero) {
        return Vec::new();
    }
    let spread = |ranks: u32, per_node: u32| {
        let mut left = ranks;
        let mut members = Vec::new();
        for &node in &nodes {
            let here = left.min(per_node);
            if here > 0 {
                members.push((node, class.device_type.clone(), here));
                left -= here;
            }
        }
        (left == 0).then_some(Group {
            members,
            concurrent: 1,
        })
    };
    (1..=class.devices_per_node.min(option.devices()))
        .map(|per_node| {
            let group = |ranks: u32, kept: &Group| spread(ranks, per_node).unwrap_or_else(|| kept.clone());
            ReplicaShape {
                cp_group: group(option.cp, &shape.cp_group),
                ep_group: group(option.ep, &shape.ep_group),
                stage_group: group(option.replicas, &shape.stage_group),
                ..shape.clone()
            }
        })
        .collect()
}
