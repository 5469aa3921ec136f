//! Times of collectives and transfers on the cluster's links.
//!
//! With n ranks, S bytes (the full tensor), latency a per hop and bandwidth B per rank and direction:
//!
//! ```text
//! all-reduce                       min( 2(n-1)a + 2(n-1)/n S/B ,  2 ceil(log2 n) a + 2 S/B )       ring, tree
//! all-gather, reduce-scatter, a2a  (n-1)a + (n-1)/n S/B                                          ring
//! transfer                         a + S/B
//! ```
//!
//! Over N nodes with g ranks each, a collective runs in levels: reduce-scatter inside the node, the operation over the
//! network cards on S/g bytes per rank, all-gather inside the node. A node's network bandwidth is
//! `cards * rate * efficiency`, divided by the groups that use it at the same time; a rank can use no more than the cards
//! that belong to it and its own link. The slowest member sets the pace. Measured points replace the formula.

use crate::cluster::link::{Rate, flat};
use crate::cluster::{Cluster, Collective, Fabric, Link, Node, defaults};
use crate::units::{ByteRate, Bytes, Seconds};

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

impl Node {
    /// Devices of the node, excluded ones too.
    pub fn devices(&self) -> u32 {
        self.groups.iter().fold(0, |sum, g| g.count.saturating_add(sum))
    }

    /// What all network cards of the node carry together, per direction.
    pub fn network_rate(&self) -> ByteRate {
        ByteRate(self.network())
    }

    /// Bandwidth of all network cards together.
    fn network(&self) -> f64 {
        f64::from(self.nic_count.value) * self.nic.bandwidth.value.0 * self.nic.efficiency.value
    }

    /// What one rank can use of it: the cards that belong to a device (at least one).
    fn network_per_rank(&self) -> f64 {
        let cards = self.nic_count.value.div_ceil(self.devices().max(1)).max(1);
        f64::from(cards) * self.nic.bandwidth.value.0 * self.nic.efficiency.value
    }
}

/// Uplinks that a group crosses, per tier of the cluster.
struct Crossing {
    /// Nodes of the group behind each tier.
    behind: Vec<u32>,
    /// Nodes of the group.
    nodes: u32,
}

impl Cluster {
    /// Host links that the buses of one node carry at full rate at the same time.
    pub const BUS_FLOWS: f64 = defaults::BUS_FLOWS;

    fn tier_index(&self, name: &str) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        self.tiers.iter().position(|t| t.name == name)
    }

    /// The tiers from the one named up to the root.
    fn ancestors<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let first = self.tier_index(name);
        std::iter::successors(first, |i| self.tier_index(&self.tiers[*i].parent)).take(self.tiers.len())
    }

    /// The tiers whose uplinks traffic between two nodes crosses: those above the sender and those above the receiver that
    /// the two do not share.
    pub fn crossed_tiers(&self, from: usize, to: usize) -> (Vec<usize>, Vec<usize>) {
        let above = |node: usize| -> Vec<usize> {
            self.nodes
                .get(node)
                .map_or_else(Vec::new, |node| self.ancestors(&node.tier).collect())
        };
        let (up, down) = (above(from), above(to));
        let only = |own: &[usize], other: &[usize]| {
            own.iter().copied().filter(|tier| !other.contains(tier)).collect()
        };
        (only(&up, &down), only(&down, &up))
    }

    /// The rate that a node gets through the tiers above it: each crossed uplink is divided among the nodes of the group
    /// behind it, and its latency is added.
    fn uplinks(&self, node: &Node, crossing: &Crossing) -> Rate {
        let mut rate = Rate::FREE;
        for tier in self.ancestors(&node.tier) {
            let behind = crossing.behind[tier];
            if behind > 0 && behind < crossing.nodes {
                rate.bandwidth = rate
                    .bandwidth
                    .min(self.tiers[tier].uplink.value.0 / f64::from(behind));
                rate.latency += self.tiers[tier].latency.value.0;
            }
        }
        rate
    }

    fn crossing(&self, nodes: impl Iterator<Item = usize> + Clone) -> Option<Crossing> {
        if self.tiers.is_empty() {
            return None;
        }
        let mut crossing = Crossing {
            behind: vec![0; self.tiers.len()],
            nodes: 0,
        };
        for node in nodes {
            crossing.nodes += 1;
            for tier in self.ancestors(&self.nodes[node].tier) {
                crossing.behind[tier] += 1;
            }
        }
        Some(crossing)
    }

    /// The link between devices of different type in one node.
    fn cross_rate(&self, node: &Node, n: f64, flows: f64) -> Rate {
        if let Some(link) = &node.cross {
            return link.inside(n, flows);
        }
        let mut rate = Rate::FREE;
        for group in &node.groups {
            if let Some(device) = self.device_types.get(&group.device_type) {
                let host = device.intra.bandwidth.value.0.min(defaults::HOST_LINK_GBPS * 1e9);
                let bandwidth = host * defaults::STAGED_EFFICIENCY * (defaults::BUS_FLOWS / flows).min(1.0);
                rate = rate.slower(Rate {
                    bandwidth,
                    latency: device.intra.latency.value.0,
                });
            }
        }
        rate
    }

    /// Rate and measured link inside one node for the members of a group there (one run of equal node indices).
    fn inside_node<'a>(
        &'a self,
        members: &[(usize, String, u32)],
        concurrent: u32,
    ) -> Option<(f64, Rate, Option<&'a Link>)> {
        let (index, first_type, _) = &members[0];
        let node = self.nodes.get(*index)?;
        let ranks: u32 = members.iter().map(|m| m.2).sum();
        let n = f64::from(ranks);
        let busy = u64::from(ranks) * u64::from(concurrent);
        let flows = busy.clamp(1, u64::from(node.devices().max(ranks).max(1))) as f64;
        if members.iter().all(|m| m.1 == *first_type) {
            let link = &self.device_types.get(first_type)?.intra;
            return Some((n, link.inside(n, flows), Some(link)));
        }
        Some((n, self.cross_rate(node, n, flows), None))
    }

    /// Time of one collective of `bytes` (the full tensor) over `group`; zero for fewer than two ranks.
    ///
    /// Returns `None` when the group spans domains: no collective library connects them.
    pub fn collective_time(&self, op: Collective, group: &Group, bytes: Bytes) -> Option<Seconds> {
        let members = group.members.as_slice();
        let first = members.iter().find(|m| m.2 > 0);
        let Some(first) = first else {
            return Some(Seconds::ZERO);
        };
        let domain = self.domain_of(&first.1)?;
        let mut previous = first.1.as_str();
        for member in members {
            if member.1 != previous {
                previous = member.1.as_str();
                if self.domain_of(previous)? != domain {
                    return None;
                }
            }
        }
        if group.ranks() < 2 || bytes.0 <= 0.0 {
            return Some(Seconds::ZERO);
        }
        let concurrent = group.concurrent.max(1);
        let ordered = members.windows(2).all(|w| w[0].0 <= w[1].0);
        if ordered && members.iter().all(|m| m.2 > 0) {
            return self.levels(op, members, concurrent, bytes.0);
        }
        let mut sorted: Vec<(usize, String, u32)> = members.iter().filter(|m| m.2 > 0).cloned().collect();
        sorted.sort();
        self.levels(op, &sorted, concurrent, bytes.0)
    }

    /// The levels of a collective; members are sorted by node and not empty.
    fn levels(
        &self,
        op: Collective,
        members: &[(usize, String, u32)],
        concurrent: u32,
        bytes: f64,
    ) -> Option<Seconds> {
        let runs = || members.chunk_by(|a, b| a.0 == b.0);
        let nodes = runs().count();
        if nodes == 1 {
            let (n, rate, link) = self.inside_node(members, concurrent)?;
            let table = link.and_then(|l| l.measured(op, n as u32, bytes));
            return Some(Seconds(table.unwrap_or_else(|| flat(op, n, bytes, rate))));
        }
        let total: u32 = members.iter().map(|m| m.2).sum();
        if let Some(time) = self.measured_between(op, members, concurrent, total, bytes) {
            return Some(Seconds(time));
        }
        let crossing = self.crossing(runs().map(|r| r[0].0));
        // Rails: each of the g rings over the nodes needs one rank of every node.
        let rails = runs()
            .map(|run| run.iter().map(|m| m.2).sum::<u32>())
            .min()
            .unwrap_or(1)
            .max(1);
        let rails = f64::from(rails);
        let count = nodes as f64;
        let all = f64::from(total);
        let mut between = Rate::FREE;
        let (mut scatter, mut gather, mut exchange) = (0.0_f64, 0.0_f64, 0.0_f64);
        let mut uplink_latency = 0.0_f64;
        for run in runs() {
            let node = self.nodes.get(run[0].0)?;
            let (g, inside, link) = self.inside_node(run, concurrent)?;
            let up = crossing.as_ref().map_or(Rate::FREE, |c| self.uplinks(node, c));
            uplink_latency = uplink_latency.max(up.latency);
            // A single rank in the node is limited by its own link as well (its fabric link or host link).
            let own = run
                .iter()
                .filter_map(|m| self.device_types.get(&m.1))
                .map(|d| d.intra.bandwidth.value.0)
                .fold(f64::INFINITY, f64::min)
                .min(node.network_per_rank());
            let here = node.network().min(up.bandwidth) / f64::from(concurrent);
            match op {
                Collective::AllReduce => {
                    let level = |op| {
                        link.and_then(|l| l.measured(op, g as u32, bytes))
                            .filter(|_| g >= 2.0)
                            .unwrap_or_else(|| flat(op, g, bytes, inside))
                    };
                    scatter = scatter.max(level(Collective::ReduceScatter));
                    gather = gather.max(level(Collective::AllGather));
                    between = between.slower(Rate {
                        bandwidth: here.min(rails * own),
                        latency: node.nic.latency.value.0,
                    });
                }
                Collective::AllGather | Collective::ReduceScatter => {
                    gather = gather.max(if g < 2.0 {
                        0.0
                    } else {
                        link.and_then(|l| l.measured(op, g as u32, bytes))
                            .unwrap_or_else(|| flat(op, g, bytes, inside))
                    });
                    between = between.slower(Rate {
                        bandwidth: here.min(rails * own),
                        latency: node.nic.latency.value.0,
                    });
                }
                Collective::AllToAll | Collective::PointToPoint => {
                    // Each rank keeps S/n per peer: g-1 peers inside, n-g outside, at the same time.
                    let local = (g - 1.0).max(0.0) * (inside.latency + bytes / all / inside.bandwidth);
                    let rank = (here / g).min(own);
                    let remote = (all - g) * (node.nic.latency.value.0 + bytes / all / rank);
                    exchange = exchange.max(local.max(remote));
                }
            }
        }
        // A hop between tiers leaves one and enters another.
        between.latency += 2.0 * uplink_latency;
        Some(Seconds(match op {
            Collective::AllToAll => exchange + (all - 1.0) * 2.0 * uplink_latency,
            Collective::PointToPoint => {
                let last = &members[members.len() - 1];
                return self.transfer_time(
                    (members[0].0, &members[0].1),
                    (last.0, &last.1),
                    Bytes(bytes),
                    concurrent,
                );
            }
            _ => scatter + flat(op, count, bytes, between) + gather,
        }))
    }

    /// A measured time of the whole group over the network: all nodes carry a table and no other group runs.
    fn measured_between(
        &self,
        op: Collective,
        members: &[(usize, String, u32)],
        concurrent: u32,
        total: u32,
        bytes: f64,
    ) -> Option<f64> {
        if concurrent > 1 {
            return None;
        }
        let mut slowest: Option<f64> = None;
        for member in members {
            let node = self.nodes.get(member.0)?;
            if node.nic.table.is_empty() {
                return None;
            }
            let has = node.nic.table.iter().any(|p| p.op == op && p.ranks == total);
            let time = if has {
                node.nic.measured(op, total, bytes)
            } else {
                None
            }?;
            slowest = Some(slowest.map_or(time, |s| s.max(time)));
        }
        slowest
    }

    /// Time to move `bytes` from one device to another, `concurrent` equal transfers sharing the nodes' network cards.
    ///
    /// Devices are (node index, device type). `None` when no path exists (domains without a bridge).
    ///
    /// Inside a node the pair's link is used (the host link on a bus, as bridges join some pairs only) (`a + S/B`); between nodes the slower end's share of its network cards, every
    /// crossed uplink and, between domains, the bridge, whose latency is added.
    pub fn transfer_time(
        &self,
        from: (usize, &str),
        to: (usize, &str),
        bytes: Bytes,
        concurrent: u32,
    ) -> Option<Seconds> {
        let (sender, receiver) = (self.nodes.get(from.0)?, self.nodes.get(to.0)?);
        let (own, other) = (self.device_types.get(from.1)?, self.device_types.get(to.1)?);
        let shared = f64::from(concurrent.max(1));
        let (own_domain, other_domain) = (self.domain_of(from.1)?, self.domain_of(to.1)?);
        let bridge = if own_domain == other_domain {
            None
        } else {
            let (a, b) = (&self.domains[own_domain].name, &self.domains[other_domain].name);
            let found = self.bridges.iter().find(|x| {
                (x.between[0] == *a && x.between[1] == *b) || (x.between[0] == *b && x.between[1] == *a)
            });
            Some(found?)
        };
        if bytes.0 <= 0.0 {
            return Some(Seconds::ZERO);
        }
        let mut rate = if from.0 == to.0 {
            let flows = (2.0 * shared).min(f64::from(sender.devices().max(2)));
            if from.1 == to.1 {
                if let Some(time) = own
                    .intra
                    .measured(Collective::PointToPoint, 2, bytes.0)
                    .filter(|_| bridge.is_none())
                {
                    return Some(Seconds(time));
                }
                // Bridges join some pairs only: in larger nodes an arbitrary pair meets on the host bus.
                let bridged = own.intra.fabric != Fabric::Bus || sender.devices() <= 2;
                own.intra.inside(if bridged { 2.0 } else { 3.0 }, flows)
            } else {
                self.cross_rate(sender, 2.0, flows)
            }
        } else {
            let end = |node: &Node, device: &crate::cluster::DeviceType| {
                (node.network() / shared)
                    .min(node.network_per_rank())
                    .min(device.intra.bandwidth.value.0)
            };
            let mut rate = Rate {
                bandwidth: end(sender, own).min(end(receiver, other)),
                latency: sender.nic.latency.value.0.max(receiver.nic.latency.value.0),
            };
            if let Some(crossing) = self.crossing([from.0, to.0].into_iter()) {
                for node in [sender, receiver] {
                    let up = self.uplinks(node, &crossing);
                    rate.bandwidth = rate.bandwidth.min(up.bandwidth / shared);
                    rate.latency += up.latency;
                }
            }
            rate
        };
        if let Some(bridge) = bridge {
            rate.bandwidth = rate.bandwidth.min(bridge.bandwidth.value.0 / shared);
            rate.latency += bridge.latency.value.0;
        }
        Some(Seconds(flat(Collective::PointToPoint, 2.0, bytes.0, rate)))
    }
}
