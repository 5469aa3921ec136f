//! The negative answer: whether it is proven, what does not fit, and the smallest changes that would.

use super::api::{Budget, Infeasible};
use super::solve::{Effort, Solver};
use super::space::Space;
use super::table::{Holders, Table};
use crate::cluster::Cluster;
use crate::cost::atom::{Setting, bytes_per_parameter};
use crate::plan::Training;
use crate::units::Bytes;

/// Least bytes of static state that the whole model needs, sharded as far as the level allows: one copy of weights and
/// gradients and one of the optimizer.
fn least_state(setting: &Setting<'_>) -> Bytes {
    let (weight, gradient, state) = bytes_per_parameter(setting.training);
    let parameters: f64 = setting
        .parts
        .iter()
        .flat_map(|p| &p.weights)
        .filter(|w| !w.tied_copy)
        .map(|w| w.parameters as f64)
        .sum();
    Bytes(parameters * (weight + gradient + state))
}

/// Memory of all devices after context and reserve.
fn usable(cluster: &Cluster) -> Bytes {
    let reserved = cluster.reserved_memory.value;
    cluster
        .classes()
        .iter()
        .map(|c| (c.memory_limit - reserved).max(Bytes::ZERO) * 0.94 * f64::from(c.devices))
        .sum()
}

/// Explains why no plan was found.
pub(super) fn explain(
    tables: &[Table<'_>],
    counts: &[u32],
    training: &Training,
    complete: bool,
    budget: &dyn Budget,
) -> Infeasible {
    let space = tables[0].space;
    let setting = space.setting;
    let need = least_state(setting);
    let have = usable(setting.cluster);
    let short = need > have;
    let mut reasons = Vec::new();
    if short {
        reasons.push(format!(
            "weights, gradients and optimizer need {need} even without any copy, all devices together offer {have} after \
             context and reserve: {} short",
            need - have
        ));
    } else {
        reasons.push(format!(
            "no cut of the {} atoms over {} devices leaves every device within its limit: states need {need} of {have}, \
             activations, logits and buffers do not fit in the rest",
            setting.model.atoms.len(),
            counts.iter().sum::<u32>()
        ));
    }
    if let Some(text) = tightest(tables) {
        reasons.push(text);
    }
    let relaxations = relaxations(setting, training, need, have, budget);
    Infeasible {
        proven: short || complete,
        reasons,
        relaxations,
        stop: budget.stop(),
    }
}

/// The atom that is hardest to place, on the class with most memory.
fn tightest(tables: &[Table<'_>]) -> Option<String> {
    let table = &tables[0];
    let space = table.space;
    let total: u32 = space.classes.iter().map(|c| c.devices).sum();
    let mut worst: Option<(f64, usize, String)> = None;
    for atom in (0..space.setting.model.atoms.len()).filter(|&a| space.twin[a] == a) {
        let least = space
            .micro_batches
            .iter()
            .flat_map(|&b| table.of_size(b))
            .map(|row| {
                let range = (atom, atom + 1);
                let holders = Holders::most(total);
                let bytes = [0, 1]
                    .into_iter()
                    .map(|full| {
                        let choice = super::table::RecomputeChoice {
                            full,
                            selective: false,
                        };
                        row.memory(space, range, 1, choice, holders)
                    })
                    .fold(f64::INFINITY, f64::min);
                (bytes / space.classes[row.option.class].memory_limit.0, row.option)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        if least.0 > 1.0 && worst.as_ref().is_none_or(|w| least.0 > w.0) {
            let class = &space.classes[least.1.class];
            worst = Some((
                least.0,
                atom,
                format!(
                    "atom {atom} alone takes {:.0} % of a {} even at tp {}, one micro-batch in flight and full recompute",
                    least.0 * 100.0,
                    class.device_type,
                    least.1.tp
                ),
            ));
        }
    }
    worst.map(|w| w.2)
}

/// The smallest changes with which a plan exists, each tried by a search.
fn relaxations(
    setting: &Setting<'_>,
    training: &Training,
    need: Bytes,
    have: Bytes,
    budget: &dyn Budget,
) -> Vec<String> {
    let mut found = Vec::new();
    let feasible = |cluster: &Cluster, training: &Training| -> bool {
        let setting = Setting::new(setting.model, cluster, training);
        let space = Space::new(&setting, 1);
        let table = Table::new(&space);
        let effort = Effort {
            rounds: 6,
            beam: 3,
            pack_nodes: 2_000,
            polish: 0,
            finalists: 1,
            falls: 2,
        };
        let mut solver = Solver::new(&table, space.counts(), effort, budget);
        solver.run(super::bound::capacity(&table, &space.counts()));
        !solver.candidates.is_empty()
    };
    let stop = || budget.stop().is_some();
    // A shorter sequence helps only if the states fit.
    if need <= have {
        let mut seq = training.seq_len / 2;
        while seq >= 128 && !stop() {
            if feasible(
                setting.cluster,
                &Training {
                    seq_len: seq,
                    ..training.clone()
                },
            ) {
                found.push(format!("--seq {seq} (instead of {})", training.seq_len));
                break;
            }
            seq /= 2;
        }
    }
    if training.optimizer == crate::plan::Optimizer::Adam && !stop() {
        let sgd = Training {
            optimizer: crate::plan::Optimizer::Sgd,
            ..training.clone()
        };
        if feasible(setting.cluster, &sgd) {
            found.push("--optimizer sgd (less state: 4 instead of 12 bytes per parameter)".into());
        }
    }
    // More nodes of each shape: doubling, then the least number between.
    for (at, node) in setting.cluster.nodes.iter().enumerate() {
        if stop()
            || setting.cluster.nodes[..at]
                .iter()
                .any(|n| n.shape() == node.shape())
        {
            continue;
        }
        let with = |extra: u32| {
            let mut cluster = setting.cluster.clone();
            for i in 0..extra {
                let mut more = node.clone();
                more.name = format!("{}-more-{i}", node.name);
                cluster.nodes.push(more);
            }
            cluster
        };
        let mut extra = 1;
        while extra <= 64 && usable(&with(extra)) < need {
            extra *= 2;
        }
        while extra <= 64 && !stop() && !feasible(&with(extra), training) {
            extra *= 2;
        }
        if extra <= 64 && !stop() {
            let (mut low, mut high) = (extra / 2, extra);
            while high - low > 1 && !stop() {
                let middle = u32::midpoint(low, high);
                if feasible(&with(middle), training) {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            found.push(format!(
                "{high} more node(s) like `{}` ({})",
                node.name,
                node.shape()
            ));
        }
    }
    // More memory on every device.
    if !stop() {
        let with = |gib: f64| {
            let mut cluster = setting.cluster.clone();
            for device in cluster.device_types.values_mut() {
                device.memory.value += Bytes::from_gib(gib);
            }
            for node in &mut cluster.nodes {
                for cap in node.memory_cap.values_mut() {
                    cap.value += Bytes::from_gib(gib);
                }
            }
            cluster
        };
        let mut high = 1.0;
        while high <= 256.0 && !stop() && !feasible(&with(high), training) {
            high *= 2.0;
        }
        if high <= 256.0 && !stop() {
            let mut low = high / 2.0;
            while high - low > 1.0 && !stop() {
                let middle = f64::midpoint(low, high).round();
                if middle <= low || middle >= high {
                    break;
                }
                if feasible(&with(middle), training) {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            found.push(format!("{high:.0} GiB more memory on every device"));
        }
    }
    found
}
