//! The stage table: time and memory of any atom range under a stage option, from prefix sums.
//!
//! Everything the search knows about costs passes through here, so that a stage costs the same in pricing, in
//! enumeration and (up to the real placement) in the exact price of a plan.

mod fit;
mod places;
mod row;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::{Collective, Group};
use crate::cost::memory;
use crate::search::space::Space;
use crate::units::Bytes;

pub(super) use row::{Fit, Holders, RecomputeChoice, Row};

/// All rows that a search has asked for, and the links between options.
pub(super) struct Table<'a> {
    /// The space.
    pub(crate) space: &'a Space<'a>,
    by_size: FxHashMap<u32, Vec<Arc<Row>>>,
}

impl<'a> Table<'a> {
    /// Builds the rows of every option with at most `counts` devices per class.
    pub(crate) fn new(space: &'a Space<'a>) -> Self {
        use rayon::prelude::*;
        let mut wanted = Vec::new();
        for &micro_batch in &space.micro_batches {
            for class in 0..space.classes.len() {
                for option in space.options(class, micro_batch, space.classes[class].devices) {
                    wanted.push((micro_batch, option));
                }
            }
        }
        let built: Vec<Arc<Row>> = wanted
            .par_iter()
            .map(|&(b, option)| Arc::new(Row::new(space, option, b)))
            .collect();
        let mut by_size: FxHashMap<u32, Vec<Arc<Row>>> = FxHashMap::default();
        for row in built {
            by_size.entry(row.micro_batch).or_default().push(row);
        }
        Self { space, by_size }
    }

    /// Rows of a micro-batch size, in canonical order.
    pub(crate) fn of_size(&self, micro_batch: u32) -> &[Arc<Row>] {
        self.by_size.get(&micro_batch).map_or(&[], Vec::as_slice)
    }

    /// Seconds of one boundary transfer from a stage under `from` to one under `to`: the best that the classes allow
    /// (`optimistic`) or what neighbours on different nodes see. `None` where no path exists.
    pub(crate) fn link(&self, from: &Row, to: &Row, optimistic: bool) -> Option<f64> {
        let space = self.space;
        let (a, b) = (&space.classes[from.option.class], &space.classes[to.option.class]);
        let setting = space.setting;
        let total = memory::boundary_bytes(setting, from.micro_batch).0;
        let ranks = from.option.devices().min(to.option.devices()).max(1);
        let node_a = a.nodes.first()?.0;
        let shared = b
            .nodes
            .iter()
            .find(|n| a.nodes.iter().any(|m| m.0 == n.0))
            .map(|n| n.0);
        let room = from.option.devices() + to.option.devices();
        let together = if a.id == b.id {
            room <= a.devices_per_node
        } else {
            shared.is_some()
        };
        let inside = if together {
            Some(shared.unwrap_or(node_a))
        } else {
            None
        };
        let (at_a, at_b) = match inside {
            Some(node) => (node, node),
            None => (
                node_a,
                b.nodes
                    .iter()
                    .map(|n| n.0)
                    .find(|&n| n != node_a)
                    .unwrap_or(node_a),
            ),
        };
        let nodes = ranks
            .div_ceil(a.devices_per_node.min(b.devices_per_node).max(1))
            .max(1);
        let bytes = Bytes(total / f64::from(ranks));
        let time = |at_a: usize, at_b: usize, concurrent: u32| {
            setting
                .cluster
                .transfer_time((at_a, &a.device_type), (at_b, &b.device_type), bytes, concurrent)
                .map(|s| s.0)
        };
        if !optimistic {
            return time(at_a, at_b, ranks.div_ceil(nodes));
        }
        // Inside a node or between two, whichever is faster: replicas of one stage may stand on different nodes.
        let inside = if a.id == b.id {
            (a.devices_per_node > 1).then_some(node_a)
        } else {
            shared
        };
        let pair = a
            .nodes
            .iter()
            .find_map(|x| b.nodes.iter().find(|y| y.0 != x.0).map(|y| (x.0, y.0)));
        let near = inside.and_then(|node| time(node, node, 1));
        let far = pair.and_then(|(x, y)| time(x, y, 1));
        match (near, far) {
            (Some(near), Some(far)) => Some(near.min(far)),
            (one, other) => one.or(other),
        }
    }

    /// Estimated seconds of the gradient reduction of atoms `a..b` over `holders` replicas, one per node of the class
    /// as far as nodes last.
    pub(crate) fn sync(&self, row: &Row, a: usize, b: usize, holders: Holders) -> f64 {
        let (dense, expert) = row.sync_bytes(a, b);
        self.reduction(row, dense, holders.replicas) + self.reduction(row, expert, holders.experts)
    }

    fn reduction(&self, row: &Row, bytes: f64, ranks: u32) -> f64 {
        if ranks < 2 || bytes <= 0.0 {
            return 0.0;
        }
        let class = &self.space.classes[row.option.class];
        let nodes = class.nodes.len() as u32;
        let (each, extra) = (ranks / nodes, ranks % nodes);
        let members: Vec<(usize, String, u32)> = class
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| {
                (
                    n.0,
                    class.device_type.clone(),
                    each + u32::from((i as u32) < extra),
                )
            })
            .filter(|m| m.2 > 0)
            .collect();
        let concurrent = (class.devices_per_node / members[0].2.max(1)).max(1);
        let group = Group { members, concurrent };
        self.space
            .setting
            .cluster
            .collective_time(Collective::AllReduce, &group, Bytes(bytes))
            .map_or(f64::INFINITY, |s| s.0)
    }
}
