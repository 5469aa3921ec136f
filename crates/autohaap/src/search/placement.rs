//! Counts to device ids: TP groups into nodes, replicas of a stage and neighbours of a pipeline close together.

use crate::cluster::DeviceClass;

use super::space::StageOption;

/// A device: node index and index in the node.
pub(super) type DeviceAt = (usize, u32);

/// Free devices of one class by node.
struct Pool {
    nodes: Vec<(usize, Vec<u32>)>,
}

impl Pool {
    fn new(class: &DeviceClass) -> Self {
        let mut nodes: Vec<(usize, Vec<u32>)> = Vec::new();
        for &(node, first, count) in &class.nodes {
            let indices = first..first + count;
            match nodes.iter_mut().find(|n| n.0 == node) {
                Some(n) => n.1.extend(indices),
                None => nodes.push((node, indices.collect())),
            }
        }
        for node in &mut nodes {
            node.1.reverse(); // taken from the end: lowest index first
        }
        Self { nodes }
    }

    /// Takes `size` devices from one node: from a preferred node if it has room, else from the node that is left
    /// fullest (best fit), ties by node order.
    fn take(&mut self, size: u32, preferred: &[usize]) -> Option<Vec<DeviceAt>> {
        let size = size as usize;
        let chosen = preferred
            .iter()
            .find_map(|p| self.nodes.iter().position(|n| n.0 == *p && n.1.len() >= size))
            .or_else(|| {
                (0..self.nodes.len())
                    .filter(|&i| self.nodes[i].1.len() >= size)
                    .min_by_key(|&i| (self.nodes[i].1.len() - size, i))
            })?;
        let (node, free) = &mut self.nodes[chosen];
        let node = *node;
        let taken: Vec<DeviceAt> = (0..size)
            .filter_map(|_| free.pop())
            .map(|index| (node, index))
            .collect();
        Some(taken)
    }
}

/// Devices of every replica of every stage of every pipeline: `[pipeline][stage][replica][device]`.
pub(super) type Placement = Vec<Vec<Vec<Vec<DeviceAt>>>>;

/// Places stages; `None` when the TP groups cannot be packed into the nodes.
///
/// Large groups go first, so that small ones fill the holes; inside a size the order is pipelines, then stages, so that
/// neighbours share nodes.
pub(super) fn place(classes: &[DeviceClass], pipelines: &[Vec<StageOption>]) -> Option<Placement> {
    let mut pools: Vec<Pool> = classes.iter().map(Pool::new).collect();
    let mut placed: Placement = pipelines
        .iter()
        .map(|stages| {
            stages
                .iter()
                .map(|s| vec![Vec::new(); s.replicas as usize])
                .collect()
        })
        .collect();
    let mut sizes: Vec<u32> = pipelines.iter().flatten().map(|s| s.tp * s.cp).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    for size in sizes {
        for (p, stages) in pipelines.iter().enumerate() {
            for (s, option) in stages.iter().enumerate().filter(|(_, o)| o.tp * o.cp == size) {
                for r in 0..option.replicas as usize {
                    let mut preferred: Vec<usize> =
                        placed[p][s][..r].iter().flatten().map(|d| d.0).rev().collect();
                    if s > 0 {
                        preferred.extend(placed[p][s - 1].iter().flatten().map(|d| d.0).rev());
                    }
                    preferred.dedup();
                    placed[p][s][r] = match pools[option.class].take(size, &preferred) {
                        Some(devices) => devices,
                        // A CP group may span nodes by whole TP groups.
                        None if option.cp > 1 => {
                            let mut devices = Vec::new();
                            for _ in 0..option.cp {
                                devices.extend(pools[option.class].take(option.tp, &preferred)?);
                            }
                            devices
                        }
                        None => return None,
                    };
                }
            }
        }
    }
    Some(placed)
}
