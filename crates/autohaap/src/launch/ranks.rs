//! Which process stands for which device.

use crate::plan::Plan;

/// A process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// `"<node>:<index>"`.
    pub device: String,
    /// Node.
    pub node: String,
    /// Index of the device in its node: the local rank.
    pub index: u32,
}

/// The processes of a plan in the order of their ranks: by node in the cluster's order, then by index.
pub fn ranks(plan: &Plan) -> Vec<Rank> {
    let nodes = &plan.cluster.cluster.nodes;
    let stages = plan.pipelines.iter().flat_map(|p| &p.stages);
    let mut found: Vec<(usize, Rank)> = stages
        .flat_map(|s| &s.replicas)
        .flat_map(|r| &r.devices)
        .filter_map(|device| {
            let (node, index) = device.rsplit_once(':')?;
            let at = nodes.iter().position(|n| n.name == node)?;
            Some((
                at,
                Rank {
                    device: device.clone(),
                    node: node.to_owned(),
                    index: index.parse().ok()?,
                },
            ))
        })
        .collect();
    found.sort_by_key(|(node, rank)| (*node, rank.index));
    found.into_iter().map(|(_, rank)| rank).collect()
}
