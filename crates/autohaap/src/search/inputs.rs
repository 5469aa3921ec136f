//! The inputs taken together: what cannot be searched, devices that lack the precision, devices left over.

use crate::cluster::Cluster;
use crate::error::{Problem, Problems, search as codes};
use crate::model::Model;
use crate::plan::{Idle, Pipeline, Training};

/// Sequences per step and tokens per sequence, each where it is known, against the sizes a plan can have.
///
/// # Errors
///
/// `E501` for each that is zero or too large.
pub fn batch_sizes(global_batch: Option<u64>, seq_len: Option<u64>) -> Result<(), Problems> {
    let mut problems = Problems::new();
    if let Some(batch) = global_batch.filter(|b| !(1..=1 << 20).contains(b)) {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "global_batch",
                format!("a global batch of `{batch}` sequences"),
            )
            .hint("give 1 to 1,048,576 sequences, for example `--global-batch 256`"),
        );
    }
    if let Some(seq_len) = seq_len.filter(|s| !(1..=1 << 27).contains(s)) {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "seq_len",
                format!("a sequence length of `{seq_len}` tokens"),
            )
            .hint("give 1 to 134,217,728 tokens, for example `--seq 4096`"),
        );
    }
    problems.or(())
}

pub(super) fn validate(model: &Model, cluster: &Cluster, training: &Training) -> Result<(), Problems> {
    let mut problems = Problems::new();
    if let Err(wrong) = batch_sizes(Some(training.global_batch), Some(training.seq_len)) {
        problems.extend(wrong);
    }
    if model.atoms.len() < 3 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "model",
                "a model needs an embedding, at least one block and a head",
            )
            .hint("check `autohaap model` on the file"),
        );
    }
    if cluster.total_devices() == 0 {
        problems.push(
            Problem::new(
                &codes::BAD_BATCH,
                "cluster",
                "the cluster has no usable device of this precision",
            )
            .hint("check `exclude`, the node list and `--precision`"),
        );
    }
    problems.or(())
}

/// The cluster without devices that lack the precision: they are excluded and a note says so.
pub(super) fn able(cluster: &Cluster, training: &Training) -> Cluster {
    let mut able = cluster.clone();
    for (name, device) in &cluster.device_types {
        if device.supports(training.precision) {
            continue;
        }
        let mut left_out = 0;
        for node in &mut able.nodes {
            let mut first = 0;
            for group in &node.groups {
                if group.device_type == *name {
                    left_out += group.count;
                    node.excluded.extend(first..first + group.count);
                }
                first += group.count;
            }
            node.excluded.sort_unstable();
            node.excluded.dedup();
        }
        if left_out > 0 {
            able.notes.push(format!(
                "{left_out}x {name} left out: no {:?} products; a precision that every device has would use them",
                training.precision
            ));
        }
    }
    able
}

pub(super) fn idle(cluster: &Cluster, pipelines: &[Pipeline]) -> Vec<Idle> {
    let used: std::collections::BTreeSet<&str> = pipelines
        .iter()
        .flat_map(|p| &p.stages)
        .flat_map(|s| &s.replicas)
        .flat_map(|r| r.devices.iter().map(String::as_str))
        .collect();
    let mut rows = Vec::new();
    for class in cluster.classes() {
        let devices: Vec<String> = class
            .nodes
            .iter()
            .flat_map(|&(node, first, count)| (first..first + count).map(move |i| (node, i)))
            .map(|(node, i)| cluster.device_name(node, i))
            .filter(|d| !used.contains(d.as_str()))
            .collect();
        if devices.is_empty() {
            continue;
        }
        let reason = if devices.len() as u32 == class.devices {
            "no plan with this device class was faster"
        } else {
            "left over: no split of the batch and the layers gains from these"
        };
        rows.push(Idle {
            devices,
            reason: reason.into(),
        });
    }
    rows
}
