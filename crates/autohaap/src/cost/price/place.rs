//! Devices of a stage: where they stand, and the shape of each replica as its costs depend on it.

use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, Group};
use crate::cost::atom::ReplicaShape;
use crate::error::{Problem, Problems, cost as codes};
use crate::plan::Stage;

/// Where a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'c> {
    /// Node index.
    pub node: usize,
    /// Index in the node.
    pub index: u32,
    /// Device type.
    pub device_type: &'c str,
}

/// Nodes by name, and which nodes are alike.
#[derive(Default)]
pub(super) struct Nodes {
    by_name: FxHashMap<String, usize>,
    /// Kind of each node: nodes of one kind differ in name only. Empty where tiers tell nodes apart.
    kind: Vec<usize>,
    /// Nodes of each kind in cluster order.
    of_kind: Vec<Vec<usize>>,
}

impl Nodes {
    fn fill(&mut self, cluster: &Cluster) {
        if !self.by_name.is_empty() {
            return;
        }
        self.by_name
            .extend(cluster.nodes.iter().enumerate().map(|(i, n)| (n.name.clone(), i)));
        if !cluster.tiers.is_empty() {
            return;
        }
        for (i, node) in cluster.nodes.iter().enumerate() {
            let alike = |&k: &usize| {
                let other = &cluster.nodes[self.of_kind[k][0]];
                other.groups == node.groups
                    && other.speed_factor == node.speed_factor
                    && other.nic_count == node.nic_count
                    && other.nic == node.nic
                    && other.cross == node.cross
            };
            let kind = (0..self.of_kind.len()).find(alike).unwrap_or(self.of_kind.len());
            if kind == self.of_kind.len() {
                self.of_kind.push(Vec::new());
            }
            self.of_kind[kind].push(i);
            self.kind.push(kind);
        }
    }

    /// The same group on the first nodes of each kind: its times are equal, and so memoised once.
    fn canonical(&self, mut group: Group) -> Group {
        if self.kind.is_empty() {
            return group;
        }
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for member in &mut group.members {
            let actual = member.0;
            let kind = self.kind[actual];
            let rank = match taken.iter().position(|t| t.0 == actual) {
                Some(at) => taken[at].1,
                None => {
                    let rank = taken.iter().filter(|t| self.kind[t.0] == kind).count();
                    taken.push((actual, rank));
                    rank
                }
            };
            member.0 = self.of_kind[kind][rank];
        }
        group
    }
}

/// Places of the devices of each replica; all unknown devices are reported together.
pub(super) fn locate<'c>(
    cluster: &'c Cluster,
    stage: &Stage,
    path: &str,
    nodes: &mut Nodes,
) -> Result<Vec<Vec<Place<'c>>>, Problems> {
    nodes.fill(cluster);
    let mut problems = Problems::new();
    let mut all = Vec::with_capacity(stage.replicas.len());
    for (r, replica) in stage.replicas.iter().enumerate() {
        let mut places = Vec::with_capacity(replica.devices.len());
        for device in &replica.devices {
            let found = device.rsplit_once(':').and_then(|(name, index)| {
                let node = *nodes.by_name.get(name)?;
                let index: u32 = index.parse().ok()?;
                let device_type = cluster.device_type_at(node, index)?;
                Some(Place {
                    node,
                    index,
                    device_type,
                })
            });
            match found {
                Some(place) => places.push(place),
                None => problems.push(
                    Problem::new(
                        &codes::UNKNOWN_DEVICE,
                        format!("{path}.replicas[{r}].devices"),
                        format!("device `{device}` is not in the cluster"),
                    )
                    .hint("devices are `<node>:<index>` with the nodes of the plan's cluster"),
                ),
            }
        }
        all.push(places);
    }
    problems.or(all)
}

/// Shapes of a stage: (replica, positions of its devices of this type, shape) for each device type in each replica.
pub(super) fn shapes(
    cluster: &Cluster,
    stage: &Stage,
    places: &[Vec<Place<'_>>],
    nodes: &Nodes,
) -> Vec<(usize, Vec<usize>, ReplicaShape)> {
    let flat: Vec<&Place<'_>> = places.iter().flatten().collect();
    let block = (stage.ep * stage.etp).max(1) as usize;
    let heads: Vec<&Place<'_>> = places.iter().filter_map(|p| p.first()).collect();
    let mut all = Vec::new();
    let mut before = 0;
    for (r, (replica, own)) in stage.replicas.iter().zip(places).enumerate() {
        let (tp, cp) = (replica.tp as usize, replica.cp as usize);
        let tp_group = nodes.canonical(group(own.iter().take(tp), 1));
        let cp_group = nodes.canonical(group(own.iter().step_by(tp.max(1)).take(cp), replica.tp));
        // Expert groups are consecutive blocks of the stage's devices; the replica's first device is in this one.
        let start = before / block * block;
        let experts: Vec<&Place<'_>> = flat
            .iter()
            .skip(start)
            .step_by(stage.etp.max(1) as usize)
            .take(stage.ep as usize)
            .copied()
            .collect();
        let per_node = |places: &[&Place<'_>]| {
            places.first().map_or(1, |first| {
                places.iter().filter(|p| p.node == first.node).count().max(1)
            })
        };
        let stage_per_node = per_node(&flat);
        let concurrent = (stage_per_node / per_node(&experts)).max(1) as u32;
        let ep_group = nodes.canonical(group(experts.iter().copied(), concurrent));
        let stage_group = nodes.canonical(group(heads.iter().copied(), replica.tp * replica.cp));
        before += own.len();

        let mut types: Vec<&str> = own.iter().map(|p| p.device_type).collect();
        types.sort_unstable();
        types.dedup();
        for device_type in types {
            let devices: Vec<usize> = (0..own.len())
                .filter(|&d| own[d].device_type == device_type)
                .collect();
            let speed = devices
                .iter()
                .map(|&d| cluster.nodes[own[d].node].speed_factor.value)
                .fold(f64::INFINITY, f64::min);
            all.push((
                r,
                devices,
                ReplicaShape {
                    device_type: device_type.to_owned(),
                    speed_factor: speed,
                    tp: replica.tp,
                    cp: replica.cp,
                    rows: replica.rows,
                    ep: stage.ep,
                    etp: stage.etp,
                    stage_replicas: stage.replicas.len() as u32,
                    tp_group: tp_group.clone(),
                    cp_group: cp_group.clone(),
                    ep_group: ep_group.clone(),
                    stage_group: stage_group.clone(),
                },
            ));
        }
    }
    all
}

/// A group of places, counted per node and type in the order of their first member.
pub(super) fn group<'p>(places: impl Iterator<Item = &'p Place<'p>>, concurrent: u32) -> Group {
    let mut members: Vec<(usize, String, u32)> = Vec::new();
    for place in places {
        match members.last_mut() {
            Some(m) if m.0 == place.node && m.1 == place.device_type => m.2 += 1,
            _ => match members
                .iter_mut()
                .find(|m| m.0 == place.node && m.1 == place.device_type)
            {
                Some(m) => m.2 += 1,
                None => members.push((place.node, place.device_type.to_owned(), 1)),
            },
        }
    }
    Group {
        members,
        concurrent: concurrent.max(1),
    }
}
