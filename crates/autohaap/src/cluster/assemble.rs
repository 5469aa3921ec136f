//! From described nodes to a cluster: expansion, default networks, cross links, domains, notes.

use std::collections::BTreeMap;

use crate::cluster::catalogue::catalogue_entry;
use crate::cluster::defaults::{self, Network};
use crate::cluster::{
    Bridge, Cluster, DeviceGroup, DeviceType, Domain, Fabric, Link, Node, Provenance, Sourced, Tier,
    parse_cards,
};
use crate::units::{ByteRate, Bytes};

/// The most devices or nodes that a description may expand to.
pub(super) const LIMIT: u64 = 100_000;

/// Network cards of a node as described.
#[derive(Debug, Clone)]
pub(super) struct Cards {
    pub(super) count: Sourced<u32>,
    pub(super) link: Link,
}

/// `count` equal nodes before expansion.
#[derive(Debug, Clone)]
pub(super) struct NodeSpec {
    /// Name; `{}` stands for the number.
    pub(super) name: String,
    /// Nodes; 1 with a plain name keeps the name.
    pub(super) count: u32,
    /// The number of the first one.
    pub(super) first: u32,
    pub(super) groups: Vec<DeviceGroup>,
    /// `None` = the assumed network of its devices.
    pub(super) cards: Option<Cards>,
    pub(super) speed_factor: Sourced<f64>,
    pub(super) tier: String,
    pub(super) cross: Option<Link>,
    pub(super) memory_cap: BTreeMap<String, Sourced<Bytes>>,
}

/// Everything that makes up a cluster, before expansion.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) device_types: BTreeMap<String, DeviceType>,
    pub(super) nodes: Vec<NodeSpec>,
    pub(super) tiers: Vec<Tier>,
    pub(super) domains: Vec<Domain>,
    pub(super) bridges: Vec<Bridge>,
    pub(super) reserved_memory: Option<Sourced<Bytes>>,
    pub(super) notes: Vec<String>,
}

/// Cards with this rate on this kind of network; latency and efficiency are its defaults.
pub(super) fn cards(
    network: Network,
    count: u32,
    rate: ByteRate,
    from: Provenance,
    source: Option<&str>,
) -> Cards {
    let sourced = |value| Sourced {
        value,
        from,
        source: source.map(str::to_owned),
    };
    Cards {
        count: Sourced {
            value: count,
            from,
            source: source.map(str::to_owned),
        },
        link: Link {
            fabric: Fabric::Switched,
            bandwidth: sourced(rate),
            pair_bandwidth: sourced(rate),
            latency: network.latency(),
            efficiency: network.efficiency(),
            table: Vec::new(),
        },
    }
}

/// The network that is assumed for a device: the one typical for it in the catalogue, else 100 Gb/s Ethernet.
fn assumed_cards(device: &DeviceType) -> (Cards, String) {
    let text = catalogue_entry(&device.name).map_or("eth:100Gb", |e| e.assumed_network.as_str());
    let (word, cards_text) = text.split_once(':').unwrap_or(("eth", text));
    let network = Network::parse(word).unwrap_or(Network::Ethernet);
    let (count, rate) = parse_cards(cards_text).unwrap_or((1, ByteRate(12.5e9)));
    let source = format!("typical for {}", device.name);
    (
        cards(network, count, rate, Provenance::Assumed, Some(&source)),
        text.to_owned(),
    )
}

impl Description {
    /// Names of the nodes of a spec.
    pub(super) fn names(spec: &NodeSpec) -> impl Iterator<Item = String> + '_ {
        (0..spec.count).map(move |i| {
            let i = spec.first + i;
            if spec.name.contains("{}") {
                spec.name.replace("{}", &i.to_string())
            } else if spec.count > 1 {
                format!("{}-{i}", spec.name)
            } else {
                spec.name.clone()
            }
        })
    }

    /// Says where a pair of cards is assumed to have a bridge.
    fn note_bridges(&mut self) {
        for device in self.device_types.values() {
            let link = &device.intra;
            let bridged = link.fabric == Fabric::Bus && link.pair_bandwidth.value > link.bandwidth.value;
            let several = self
                .nodes
                .iter()
                .flat_map(|n| &n.groups)
                .any(|g| g.device_type == device.name && g.count > 1);
            if bridged && several {
                self.notes.push(format!(
                    "`{}` is assumed to have bridges of {} between pairs; without them set `pair_bandwidth`",
                    device.name, link.pair_bandwidth.value
                ));
            }
        }
    }

    /// Expands the nodes and fills in what was left open. Counts are within [`LIMIT`] and device types are known.
    pub(super) fn assemble(mut self) -> Cluster {
        let total: u64 = self.nodes.iter().map(|n| u64::from(n.count)).sum();
        let mut nodes = Vec::with_capacity(total.min(LIMIT) as usize);
        for spec in &self.nodes {
            let devices: Vec<&DeviceType> = spec
                .groups
                .iter()
                .filter_map(|g| self.device_types.get(&g.device_type))
                .collect();
            let cards = spec.cards.clone().unwrap_or_else(|| {
                let slowest = devices.iter().map(|d| assumed_cards(d)).min_by(|a, b| {
                    let rate = |c: &Cards| f64::from(c.count.value) * c.link.bandwidth.value.0;
                    rate(&a.0).total_cmp(&rate(&b.0))
                });
                let (cards, text) = slowest.unwrap_or_else(|| {
                    (
                        cards(Network::Ethernet, 1, ByteRate(12.5e9), Provenance::Assumed, None),
                        "eth:100Gb".into(),
                    )
                });
                if total > 1 {
                    let devices: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
                    let note = format!(
                        "the network of nodes with {} is not given: `{text}` is assumed",
                        devices.join(" and ")
                    );
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
                cards
            });
            if total > 1
                && spec
                    .cards
                    .as_ref()
                    .is_some_and(|c| c.link.bandwidth.from == Provenance::Assumed)
            {
                let note =
                    "the network has a fabric but no rate: one card of 100 Gb/s a node is assumed".to_owned();
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            let mixed = spec
                .groups
                .windows(2)
                .any(|w| w[0].device_type != w[1].device_type);
            let cross = spec.cross.clone().or_else(|| mixed.then(|| cross_of(&devices)));
            if let (true, None, Some(link)) = (mixed, &spec.cross, &cross) {
                let mut words: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
                words.dedup();
                let rate = link.bandwidth.value * link.efficiency.value;
                let staged = if link.efficiency.value <= defaults::STAGED_EFFICIENCY {
                    ", staged through host memory,"
                } else {
                    ""
                };
                let note = format!(
                    "peer access between {} in one node is unknown: {rate}{staged} is assumed; measure it and set `cross`",
                    words.join(" and ")
                );
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            for name in Self::names(spec) {
                nodes.push(Node {
                    name,
                    groups: spec.groups.clone(),
                    speed_factor: spec.speed_factor.clone(),
                    nic_count: cards.count.clone(),
                    nic: cards.link.clone(),
                    tier: spec.tier.clone(),
                    cross: cross.clone(),
                    memory_cap: spec.memory_cap.clone(),
                    excluded: Vec::new(),
                });
            }
        }
        self.note_bridges();
        // Only the types in use stay: a file may define more.
        let used: std::collections::BTreeSet<String> = self
            .nodes
            .iter()
            .flat_map(|n| n.groups.iter().map(|g| g.device_type.clone()))
            .collect();
        self.device_types.retain(|name, _| used.contains(name));
        if self.domains.is_empty() {
            let mut by_library: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (name, device) in &self.device_types {
                by_library
                    .entry(&device.collective_library)
                    .or_default()
                    .push(name.clone());
            }
            self.domains = by_library
                .into_iter()
                .map(|(name, device_types)| Domain {
                    name: name.to_owned(),
                    device_types,
                })
                .collect();
        } else {
            for domain in &mut self.domains {
                domain.device_types.retain(|t| used.contains(t));
            }
        }
        Cluster {
            name: self.name,
            device_types: self.device_types,
            nodes,
            tiers: self.tiers,
            domains: self.domains,
            bridges: self.bridges,
            reserved_memory: self.reserved_memory.unwrap_or_else(|| {
                Sourced::with_source(
                    defaults::RESERVED_MEMORY,
                    Provenance::Assumed,
                    "context, communicators and library workspaces",
                )
            }),
            notes: self.notes,
            measured: Vec::new(),
        }
    }
}

/// The bus between unlike devices of a node: the slowest host link, staged where one of them lacks peer-to-peer access or
/// where vendors or architectures differ (peer access across generations is unknown until tested).
fn cross_of(devices: &[&DeviceType]) -> Link {
    let host = devices
        .iter()
        .map(|d| match d.intra.fabric {
            Fabric::Bus => d.intra.bandwidth.value.0,
            _ => defaults::HOST_LINK_GBPS * 1e9,
        })
        .fold(f64::INFINITY, f64::min);
    let host = if host.is_finite() {
        host
    } else {
        defaults::HOST_LINK_GBPS * 1e9
    };
    let alike = devices
        .windows(2)
        .all(|w| w[0].architecture == w[1].architecture && w[0].vendor == w[1].vendor);
    let access = devices
        .iter()
        .all(|d| d.intra.fabric != Fabric::Bus || d.intra.efficiency.value > defaults::STAGED_EFFICIENCY);
    defaults::cross_link(ByteRate(host), alike && access)
}
