//! The cluster: nodes with their devices by stage, and the loads of the links; nodes that look the same are drawn once.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Page;
use super::facts::percent;
use super::shape::Shapes;
use crate::simulate::PoolUse;

/// Node cards drawn at most.
const MOST_NODES: usize = 36;

#[derive(Serialize)]
pub(super) struct View {
    nodes: Vec<NodeCard>,
    hidden: usize,
    uplinks: Vec<Load>,
    domains: Vec<String>,
    bridges: Vec<String>,
}

#[derive(Serialize, Clone)]
struct Load {
    what: String,
    share: f64,
    text: String,
}

#[derive(Serialize)]
struct NodeCard {
    name: String,
    /// Nodes that look the same, this one included.
    count: usize,
    shape: String,
    network: String,
    speed: Option<String>,
    devices: Vec<Cell>,
    loads: Vec<Load>,
}

#[derive(Serialize, Clone)]
struct Cell {
    label: String,
    title: String,
    colour: usize,
    idle: bool,
}

pub(super) fn view(page: &Page<'_>, shapes: &Shapes<'_>) -> View {
    let cluster = &page.plan.cluster.cluster;
    let used = places(page);
    let pools = page.timeline.map_or(&[][..], |t| t.pools.as_slice());
    let load = |pool: &PoolUse| Load {
        what: pool.name.clone(),
        share: (100.0 * pool.utilisation).min(100.0),
        text: format!(
            "{} used, {} per step{}",
            percent(pool.utilisation),
            pool.bytes,
            if pool.peak_demand > 1.0 + 1e-9 {
                format!(", up to {:.1} times its rate asked for", pool.peak_demand)
            } else {
                String::new()
            }
        ),
    };
    let mut nodes: Vec<NodeCard> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    let distinct: BTreeMap<usize, usize> = shapes
        .groups
        .iter()
        .enumerate()
        .flat_map(|(g, (_, all))| all.iter().map(move |&p| (p, g)))
        .collect();
    for (n, node) in cluster.nodes.iter().enumerate() {
        let mut devices = Vec::new();
        let mut key = node.shape();
        let count: u32 = node.groups.iter().map(|g| g.count).sum();
        for i in 0..count.min(64) {
            let name = cluster.device_name(n, i);
            let device_type = cluster.device_type_at(n, i).unwrap_or("?");
            let place = used.get(name.as_str());
            key += &format!("|{device_type} {:?}", place.map(|(p, s)| (distinct.get(p), s)));
            devices.push(Cell {
                label: match place {
                    Some((p, s)) => format!("p{p} s{s}"),
                    None if node.excluded.contains(&i) => "out".into(),
                    None => "idle".into(),
                },
                title: match place {
                    Some((p, s)) => format!("{name}, {device_type}: pipeline {p}, stage {s}"),
                    None => format!("{name}, {device_type}: not used"),
                },
                colour: shapes.colour(device_type),
                idle: place.is_none(),
            });
        }
        let loads: Vec<Load> = pools.iter().filter(|l| l.node == Some(n)).map(load).collect();
        key += &format!(
            "|{} {} {} {}",
            node.tier, node.speed_factor.value, node.nic_count.value, node.nic.bandwidth.value.0
        );
        // Only large clusters are folded: up to a dozen nodes are all shown.
        if cluster.nodes.len() <= 12 {
            key += &format!("|{n}");
        }
        if let Some(&at) = index.get(&key) {
            nodes[at].count += 1;
            continue;
        }
        index.insert(key, nodes.len());
        nodes.push(NodeCard {
            name: node.name.clone(),
            count: 1,
            shape: node.shape(),
            network: match node.nic_count.value {
                0 => "no network".into(),
                k => format!("{k} x {} network", node.nic.bandwidth.value),
            },
            speed: (node.speed_factor.value != 1.0)
                .then(|| format!("runs at {} of nominal speed", percent(node.speed_factor.value))),
            devices,
            loads,
        });
    }
    let hidden = nodes.iter().skip(MOST_NODES).map(|n| n.count).sum();
    nodes.truncate(MOST_NODES);
    View {
        nodes,
        hidden,
        uplinks: pools.iter().filter(|l| l.node.is_none()).map(load).collect(),
        domains: if cluster.domains.len() > 1 {
            cluster
                .domains
                .iter()
                .map(|d| format!("{}: {}", d.name, d.device_types.join(", ")))
                .collect()
        } else {
            Vec::new()
        },
        bridges: cluster
            .bridges
            .iter()
            .map(|b| {
                format!(
                    "{} - {}: {} per node",
                    b.between[0], b.between[1], b.bandwidth.value
                )
            })
            .collect(),
    }
}

/// Device name to (pipeline, stage).
fn places<'p>(page: &Page<'p>) -> BTreeMap<&'p str, (usize, usize)> {
    let mut places = BTreeMap::new();
    for (p, pipeline) in page.plan.pipelines.iter().enumerate() {
        for (s, stage) in pipeline.stages.iter().enumerate() {
            for device in stage.replicas.iter().flat_map(|r| &r.devices) {
                places.entry(device.as_str()).or_insert((p, s));
            }
        }
    }
    places
}
