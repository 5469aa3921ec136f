//! Times of collectives and transfers on the cluster's links.

use crate::cluster::{Cluster, Collective};
use crate::units::{Bytes, Seconds};

/// Members of a collective group: how many ranks on which node and of which device type, and how many equal groups use
/// the same network cards at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Group {
    /// (node index, device type, ranks), in ring order.
    pub members: Vec<(usize, String, u32)>,
    /// Groups per node that share its network cards during the call (>= 1).
    pub concurrent: u32,
}

impl Group {
    /// Ranks in all.
    pub fn ranks(&self) -> u32 {
        self.members.iter().map(|m| m.2).sum()
    }
}

impl Cluster {
    /// Time of one collective of `bytes` (the full tensor) over `group`; zero for fewer than two ranks.
    ///
    /// Returns `None` when the group spans domains: no collective library connects them.
    pub fn collective_time(&self, _op: Collective, _group: &Group, _bytes: Bytes) -> Option<Seconds> {
        None
    }

    /// Time to move `bytes` from one device to another, `concurrent` equal transfers sharing the nodes' network cards.
    ///
    /// Devices are (node index, device type). `None` when no path exists (domains without a bridge).
    pub fn transfer_time(
        &self,
        _from: (usize, &str),
        _to: (usize, &str),
        _bytes: Bytes,
        _concurrent: u32,
    ) -> Option<Seconds> {
        None
    }
}
