//! Rules that a whole cluster must obey, whatever it was read from.

use std::collections::BTreeSet;

use crate::cluster::assemble::LIMIT;
use crate::cluster::{Cluster, Link};
use crate::error::{Problem, Problems, cluster as codes, nearest};

impl Cluster {
    /// Checks the cluster as a whole and reports all violations together: sizes, names, references, tiers, domains, bridges,
    /// figures and memory.
    pub fn validate(&self) -> Problems {
        let mut problems = Problems::new();
        self.check_sizes(&mut problems);
        self.check_nodes(&mut problems);
        self.check_links(&mut problems);
        self.check_tiers(&mut problems);
        self.check_domains(&mut problems);
        self.check_bridges(&mut problems);
        self.check_measured(&mut problems);
        problems
    }

    fn check_sizes(&self, problems: &mut Problems) {
        let devices: u64 = self
            .nodes
            .iter()
            .flat_map(|n| &n.groups)
            .map(|g| u64::from(g.count))
            .sum();
        if devices > LIMIT || self.nodes.len() as u64 > LIMIT {
            problems.push(
                Problem::new(
                    &codes::BAD_COUNT,
                    "nodes",
                    format!("{devices} devices on {} nodes", self.nodes.len()),
                )
                .hint(format!("at most {LIMIT} of each")),
            );
            return;
        }
        if self.total_devices() == 0 {
            problems.push(
                Problem::new(&codes::EMPTY_CLUSTER, "nodes", "no usable device")
                    .hint("add `[[nodes]]` with devices, or exclude fewer"),
            );
        }
    }

    fn check_nodes(&self, problems: &mut Problems) {
        let mut names = BTreeSet::new();
        let mut short_of_memory = BTreeSet::new();
        let mut unknown = BTreeSet::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let path = format!("nodes[{i}]");
            if !names.insert(node.name.as_str()) {
                let message = format!("two nodes are named `{}`", node.name);
                problems
                    .push(Problem::new(&codes::DUPLICATE_NAME, &path, message).hint("rename one of them"));
            }
            for group in &node.groups {
                if group.count == 0 {
                    let message = format!("node `{}` has 0 devices `{}`", node.name, group.device_type);
                    problems.push(Problem::new(&codes::BAD_COUNT, &path, message).hint("delete the group"));
                }
                let Some(device) = self.device_types.get(&group.device_type) else {
                    if unknown.insert(group.device_type.as_str()) {
                        let message =
                            format!("unknown device `{}` in node `{}`", group.device_type, node.name);
                        problems.push(
                            Problem::new(&codes::UNKNOWN_DEVICE, &path, message)
                                .hint("describe it in `device_types`"),
                        );
                    }
                    continue;
                };
                let limit = self.memory_limit(i, &group.device_type);
                if device.memory.value.0 > 0.0
                    && limit.0 <= self.reserved_memory.value.0
                    && short_of_memory.insert(group.device_type.as_str())
                {
                    let message = format!(
                        "`{}` in node `{}` may use {limit}, {} are reserved",
                        group.device_type, node.name, self.reserved_memory.value
                    );
                    let hint = "lower `reserved_memory`, raise the cap, or exclude the device";
                    problems.push(Problem::new(&codes::NO_MEMORY_LEFT, &path, message).hint(hint));
                }
            }
            if !(node.speed_factor.value > 0.0 && node.speed_factor.value <= 10.0) {
                let message = format!(
                    "the speed factor of node `{}` is {}",
                    node.name, node.speed_factor.value
                );
                problems.push(
                    Problem::new(&codes::IMPLAUSIBLE, &path, message)
                        .hint("a factor is above 0 and at most 10"),
                );
            }
            if node.nic_count.value == 0 {
                let message = format!("node `{}` has 0 network cards", node.name);
                problems.push(Problem::new(&codes::BAD_COUNT, &path, message).hint("write at least 1"));
            }
        }
        for (name, device) in &self.device_types {
            let missing = device.missing_figures();
            if !missing.is_empty() {
                let message = format!("`{name}` has no {}", missing.join(", "));
                let hint = format!("add {} under `[devices.\"{name}\"]`", missing.join(", "));
                problems.push(
                    Problem::new(&codes::MISSING_FIGURES, format!("device_types.{name}"), message).hint(hint),
                );
            }
        }
    }

    /// Rates above zero, latencies and efficiencies in range, measured points sorted and positive.
    fn check_links(&self, problems: &mut Problems) {
        let check = |link: &Link, path: String, problems: &mut Problems| {
            let positive = |v: f64| v.is_finite() && v > 0.0;
            let sound = positive(link.bandwidth.value.0)
                && positive(link.pair_bandwidth.value.0)
                && positive(link.efficiency.value)
                && link.efficiency.value <= 1.0
                && (0.0..1.0).contains(&link.latency.value.0);
            if !sound {
                let message = "a link with a rate, latency or efficiency out of range";
                let hint = "rates are positive, latencies in [0, 1) s, efficiencies in (0, 1]";
                problems.push(Problem::new(&codes::IMPLAUSIBLE, &path, message).hint(hint));
            }
            let rising = link.table.windows(2).all(|w| {
                (w[0].op, w[0].ranks) < (w[1].op, w[1].ranks)
                    || ((w[0].op, w[0].ranks) == (w[1].op, w[1].ranks)
                        && w[0].bytes.0 < w[1].bytes.0
                        && w[0].time_s.0 <= w[1].time_s.0)
            });
            let points = link
                .table
                .iter()
                .all(|p| p.ranks >= 2 && positive(p.bytes.0) && positive(p.time_s.0));
            if !rising || !points {
                let message = "measured points are not sorted, positive and rising";
                let hint = "sort by operation, ranks and size; times must not fall as sizes rise";
                problems.push(Problem::new(&codes::BAD_TABLE, &path, message).hint(hint));
            }
        };
        for (name, device) in &self.device_types {
            check(&device.intra, format!("device_types.{name}.intra"), problems);
        }
        for (i, node) in self.nodes.iter().enumerate() {
            check(&node.nic, format!("nodes[{i}].nic"), problems);
            if let Some(cross) = &node.cross {
                check(cross, format!("nodes[{i}].cross"), problems);
            }
        }
    }

    fn check_tiers(&self, problems: &mut Problems) {
        let names: BTreeSet<&str> = self.tiers.iter().map(|t| t.name.as_str()).collect();
        let unknown = |word: &str, path: String| {
            let hint = nearest(word, names.iter().copied()).map_or_else(
                || "the cluster has no tiers".to_owned(),
                |n| format!("the nearest tier is `{n}`"),
            );
            Problem::new(
                &codes::UNKNOWN_REFERENCE,
                path,
                format!("no tier is named `{word}`"),
            )
            .hint(hint)
        };
        if names.len() < self.tiers.len() {
            problems.push(
                Problem::new(&codes::DUPLICATE_NAME, "tiers", "two tiers share a name")
                    .hint("rename one of them"),
            );
        }
        let mut reported = BTreeSet::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let tier = node.tier.as_str();
            if !tier.is_empty() && !names.contains(tier) && reported.insert(tier) {
                problems.push(unknown(tier, format!("nodes[{i}].tier")));
            }
        }
        let parents: std::collections::BTreeMap<&str, &str> = self
            .tiers
            .iter()
            .map(|t| (t.name.as_str(), t.parent.as_str()))
            .collect();
        for (i, tier) in self.tiers.iter().enumerate() {
            if !tier.parent.is_empty() && !names.contains(tier.parent.as_str()) {
                problems.push(unknown(&tier.parent, format!("tiers[{i}].parent")));
            }
        }
        for (i, tier) in self.tiers.iter().enumerate() {
            let mut at = tier.parent.as_str();
            for _ in 0..=self.tiers.len().min(64) {
                if at.is_empty() || at == tier.name {
                    break;
                }
                at = parents.get(at).copied().unwrap_or("");
            }
            if !at.is_empty() {
                let message = format!(
                    "tier `{}` is its own ancestor or lies more than 64 deep",
                    tier.name
                );
                problems.push(
                    Problem::new(&codes::TIER_CYCLE, format!("tiers[{i}]"), message)
                        .hint("delete the `parent` of the topmost tier"),
                );
                break;
            }
        }
    }

    fn check_domains(&self, problems: &mut Problems) {
        let mut names = BTreeSet::new();
        for (i, domain) in self.domains.iter().enumerate() {
            if !names.insert(domain.name.as_str()) {
                let message = format!("two domains are named `{}`", domain.name);
                problems.push(
                    Problem::new(&codes::DUPLICATE_NAME, format!("domains[{i}]"), message)
                        .hint("rename one of them"),
                );
            }
        }
        for name in self.device_types.keys() {
            let holders: Vec<&str> = self
                .domains
                .iter()
                .filter(|d| d.device_types.contains(name))
                .map(|d| d.name.as_str())
                .collect();
            if holders.len() != 1 {
                let message = if holders.is_empty() {
                    format!("device type `{name}` is in no domain")
                } else {
                    format!(
                        "device type `{name}` is in several domains: {}",
                        holders.join(", ")
                    )
                };
                let hint = "list each type in one domain, or delete all `[[domains]]`";
                problems.push(Problem::new(&codes::DOMAIN_COVERAGE, "domains", message).hint(hint));
            }
        }
    }

    fn check_bridges(&self, problems: &mut Problems) {
        let mut seen = BTreeSet::new();
        for (i, bridge) in self.bridges.iter().enumerate() {
            let path = format!("bridges[{i}]");
            let [a, b] = &bridge.between;
            for name in [a, b] {
                if !self.domains.iter().any(|d| d.name == *name) {
                    let hint = nearest(name, self.domains.iter().map(|d| d.name.as_str()))
                        .unwrap_or("?")
                        .to_owned();
                    let message = format!("no domain is named `{name}`");
                    problems.push(
                        Problem::new(&codes::UNKNOWN_REFERENCE, &path, message)
                            .hint(format!("the nearest domain is `{hint}`")),
                    );
                }
            }
            let pair = if a <= b { (a, b) } else { (b, a) };
            if a == b || !seen.insert(pair) {
                let message = format!(
                    "`{a}` and `{b}`: {}",
                    if a == b {
                        "one domain twice"
                    } else {
                        "a second bridge"
                    }
                );
                problems.push(
                    Problem::new(&codes::BAD_BRIDGE, &path, message).hint("name two different domains, once"),
                );
            }
        }
    }
}
