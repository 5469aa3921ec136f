//! Device classes: what the search treats as interchangeable; and addresses, limits and the digest of a cluster.

use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, Node};
use crate::error::{Problem, cluster as codes};
use crate::units::Bytes;

/// Devices that the planner treats as interchangeable.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct DeviceClass {
    /// Position in [`Cluster::classes`].
    pub id: usize,
    /// Key into [`Cluster::device_types`].
    pub device_type: String,
    /// Index into [`Cluster::domains`].
    pub domain: usize,
    /// The whole node the devices sit in, for example `2x RTX 4090 + 2x RTX 3080`.
    pub node_shape: String,
    /// Relative speed, 1 = nominal.
    pub speed_factor: f64,
    /// Memory of one device that may be used: the smaller of capacity and cap.
    pub memory_limit: Bytes,
    /// (node index, first device index in the node, devices): runs of consecutive devices.
    pub nodes: Vec<(usize, u32, u32)>,
    /// Devices in all.
    pub devices: u32,
    /// Devices of the class in each of its nodes.
    pub devices_per_node: u32,
}

impl Node {
    /// Runs of usable devices: (device type, first index, devices).
    fn usable(&self) -> Vec<(&str, u32, u32)> {
        let mut runs = Vec::new();
        let mut first = 0;
        for group in &self.groups {
            let end = group.count.saturating_add(first);
            let mut start = first;
            for excluded in self.excluded.iter().copied().filter(|i| (first..end).contains(i)) {
                if excluded > start {
                    runs.push((group.device_type.as_str(), start, excluded - start));
                }
                start = start.max(excluded + 1);
            }
            if end > start {
                runs.push((group.device_type.as_str(), start, end - start));
            }
            first = end;
        }
        runs
    }

    /// Device types and counts in words, excluded devices left out.
    pub fn shape(&self) -> String {
        let mut words: Vec<(&str, u32)> = Vec::new();
        for (name, _, count) in self.usable() {
            match words.iter_mut().find(|w| w.0 == name) {
                Some(word) => word.1 += count,
                None => words.push((name, count)),
            }
        }
        let words: Vec<String> = words
            .iter()
            .map(|(name, count)| format!("{count}x {name}"))
            .collect();
        words.join(" + ")
    }
}

impl Cluster {
    /// Groups interchangeable devices: same type, node shape, network cards, tier, speed factor and memory limit. Classes come
    /// in the order of their first device.
    pub fn classes(&self) -> Vec<DeviceClass> {
        // The key is looked up in an ordered map: a cluster may have as many classes as nodes.
        let mut index: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        let mut classes: Vec<DeviceClass> = Vec::new();
        for (node_index, node) in self.nodes.iter().enumerate() {
            let shape = node.shape();
            let mut done: Vec<&str> = Vec::new();
            let runs = node.usable();
            for (name, _, _) in &runs {
                if done.contains(name) {
                    continue;
                }
                done.push(name);
                let own: Vec<(usize, u32, u32)> = runs
                    .iter()
                    .filter(|r| r.0 == *name)
                    .map(|r| (node_index, r.1, r.2))
                    .collect();
                let per_node: u32 = own.iter().map(|r| r.2).sum();
                let memory_limit = self.memory_limit(node_index, name);
                let key = format!(
                    "{name}|{shape}|{}|{:?}|{:?}|{:?}|{}|{:?}|{:?}|{:?}|{}",
                    node.nic_count.value,
                    node.nic.bandwidth.value.0,
                    node.nic.latency.value.0,
                    node.nic.efficiency.value,
                    node.tier,
                    node.speed_factor.value,
                    memory_limit.0,
                    node.cross.as_ref().map(|c| c.bandwidth.value.0),
                    node.nic.table.len(),
                );
                let id = *index.entry(key).or_insert(classes.len());
                if id == classes.len() {
                    classes.push(DeviceClass {
                        id,
                        device_type: (*name).to_owned(),
                        domain: self.domain_of(name).unwrap_or(0),
                        node_shape: shape.clone(),
                        speed_factor: node.speed_factor.value,
                        memory_limit,
                        nodes: Vec::new(),
                        devices: 0,
                        devices_per_node: per_node,
                    });
                }
                classes[id].devices += per_node;
                classes[id].nodes.extend(own);
            }
        }
        classes
    }

    /// Usable devices in all.
    pub fn total_devices(&self) -> u32 {
        self.nodes
            .iter()
            .map(|n| n.usable().iter().map(|r| r.2).fold(0, u32::saturating_add))
            .fold(0, u32::saturating_add)
    }

    /// The address of a device in plans: `node:index`.
    pub fn device_name(&self, node: usize, index: u32) -> String {
        match self.nodes.get(node) {
            Some(n) => format!("{}:{index}", n.name),
            None => format!("?{node}:{index}"),
        }
    }

    /// Reads `node:index`; excluded devices have an address too.
    #[allow(
        clippy::result_large_err,
        reason = "a problem is made once, at the end of an input"
    )]
    pub fn parse_device(&self, address: &str) -> Result<(usize, u32), Problem> {
        let wrong = |message: String, hint: String| {
            Err(Problem::new(&codes::BAD_ADDRESS, address, message).hint(hint))
        };
        let Some((name, index)) = address.trim().rsplit_once(':') else {
            return wrong(
                format!("`{address}` is no device address"),
                "write `node:index`, for example `n0:3`".into(),
            );
        };
        let Some(node) = self.nodes.iter().position(|n| n.name == name) else {
            let near = crate::error::nearest(name, self.nodes.iter().take(2000).map(|n| n.name.as_str()));
            let hint = near.map_or_else(
                || "the cluster has no nodes".to_owned(),
                |n| format!("the nearest node is `{n}`"),
            );
            return wrong(format!("no node is named `{name}`"), hint);
        };
        let devices = self.nodes[node].devices();
        match index.parse::<u32>() {
            Ok(i) if i < devices && index.bytes().all(|b| b.is_ascii_digit()) => Ok((node, i)),
            _ => wrong(
                format!("node `{name}` has no device `{index}`"),
                format!(
                    "its devices are `{name}:0` to `{name}:{}`",
                    devices.saturating_sub(1)
                ),
            ),
        }
    }

    /// The type of a device, `None` where it does not exist.
    pub fn device_type_at(&self, node: usize, index: u32) -> Option<&str> {
        let mut first = 0;
        for group in &self.nodes.get(node)?.groups {
            if index < group.count.saturating_add(first) {
                return Some(&group.device_type);
            }
            first = group.count.saturating_add(first);
        }
        None
    }

    /// Memory of a device of this type and node that may be used: the smaller of capacity and user cap (the reserve is not
    /// subtracted). Zero for an unknown type.
    pub fn memory_limit(&self, node: usize, device_type: &str) -> Bytes {
        let capacity = self
            .device_types
            .get(device_type)
            .map_or(Bytes::ZERO, |d| d.memory.value);
        match self.nodes.get(node).and_then(|n| n.memory_cap.get(device_type)) {
            Some(cap) => capacity.min(cap.value),
            None => capacity,
        }
    }

    /// The domain (index into [`Cluster::domains`]) of a device type.
    pub fn domain_of(&self, device_type: &str) -> Option<usize> {
        self.domains
            .iter()
            .position(|d| d.device_types.iter().any(|t| t == device_type))
    }

    /// The same cluster with neutral names of nodes, tiers and the cluster itself, for reports that are shown in public.
    #[must_use]
    pub fn anonymized(&self) -> Self {
        let mut bare = self.clone();
        "cluster".clone_into(&mut bare.name);
        let tiers: std::collections::BTreeMap<&str, String> = self
            .tiers
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.as_str(), format!("tier{i}")))
            .collect();
        let renamed = |name: &str| tiers.get(name).cloned().unwrap_or_default();
        for tier in &mut bare.tiers {
            tier.name = renamed(&tier.name);
            tier.parent = renamed(&tier.parent);
        }
        for (i, node) in bare.nodes.iter_mut().enumerate() {
            node.name = format!("n{i}");
            node.tier = renamed(&node.tier);
        }
        bare
    }

    /// First 16 hex digits of the SHA-256 of the canonical JSON, display name and notes left out.
    pub fn digest(&self) -> String {
        let mut bare = self.clone();
        bare.name.clear();
        bare.notes.clear();
        let json = serde_json::to_vec(&bare).unwrap_or_default();
        let hash = Sha256::digest(&json);
        let head: [u8; 8] = std::array::from_fn(|i| hash[i]);
        format!("{:016x}", u64::from_be_bytes(head))
    }
}
