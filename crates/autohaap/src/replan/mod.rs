//! WHAT NOW: a lost, slow or new node gives a new plan and the list of parameter slices that move.

mod moves;

use crate::cluster::{Cluster, Provenance, Sourced};
use crate::error::{Problem, Problems, runtime as codes};
use crate::plan::Plan;

pub use moves::{Move, moves};

/// What changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Nodes or devices (`node:index`) that are gone.
    pub without: Vec<String>,
    /// `NODE=FACTOR`: slower nodes.
    pub slow: Vec<String>,
    /// `NODE=COUNT`: more nodes like this one.
    pub add: Vec<String>,
}

/// The plan's cluster after a change.
///
/// # Errors
/// Names of no node or device, factors and counts out of range; all of them together.
pub fn changed(plan: &Plan, change: &Change) -> Result<Cluster, Problems> {
    let mut cluster = plan.cluster.cluster.clone();
    let mut problems = Problems::new();
    let names: Vec<String> = cluster.nodes.iter().map(|n| n.name.clone()).collect();
    let bad = |flag: &str, message: String| {
        Problem::new(&codes::BAD_REPLAN, flag, message).hint(format!(
            "the nodes are {}",
            names.iter().take(8).cloned().collect::<Vec<_>>().join(", ")
        ))
    };
    for name in &change.without {
        let whole = name.strip_prefix("node:").unwrap_or(name);
        if let Some(node) = cluster.nodes.iter_mut().find(|n| n.name == whole) {
            node.excluded = (0..node.devices()).collect();
            continue;
        }
        match cluster.parse_device(name) {
            Ok((node, index)) => {
                let excluded = &mut cluster.nodes[node].excluded;
                excluded.push(index);
                excluded.sort_unstable();
                excluded.dedup();
            }
            Err(_) => problems.push(bad("--without", format!("no node or device `{name}`"))),
        }
    }
    for text in &change.slow {
        let parsed = text.rsplit_once('=').and_then(|(name, factor)| {
            let factor: f64 = factor.trim_end_matches('x').parse().ok()?;
            let node = cluster.nodes.iter().position(|n| n.name == name.trim())?;
            (0.01..=1000.0).contains(&factor).then_some((node, factor))
        });
        match parsed {
            Some((node, factor)) => {
                let speed = &mut cluster.nodes[node].speed_factor;
                *speed = Sourced::new(speed.value / factor, Provenance::User);
            }
            None => problems.push(bad("--slow", format!("`{text}` is no NODE=FACTOR"))),
        }
    }
    for text in &change.add {
        let parsed = text.rsplit_once('=').and_then(|(name, count)| {
            let count: u32 = count.parse().ok()?;
            let node = cluster.nodes.iter().find(|n| n.name == name.trim())?;
            (1..=1024).contains(&count).then(|| (node.clone(), count))
        });
        match parsed {
            Some((like, count)) => {
                for _ in 0..count {
                    let mut node = like.clone();
                    let free = (0..).map(|i| format!("{}-new{i}", like.name));
                    let taken = |name: &String| cluster.nodes.iter().any(|n| n.name == *name);
                    if let Some(name) = free.into_iter().find(|name| !taken(name)) {
                        node.name = name;
                    }
                    node.excluded.clear();
                    cluster.nodes.push(node);
                }
            }
            None => problems.push(bad("--add", format!("`{text}` is no NODE=COUNT"))),
        }
    }
    problems.or(cluster)
}
