//! Transfers at a stage boundary: rows and tensor slices are re-divided between real devices.
//!
//! Every replica owns an interval of rows; each overlap of an upstream and a downstream interval is sent in slices, one
//! per rank of the smaller side. A device's transfers add up, and so does the traffic of a node's network cards.

use std::collections::BTreeMap;

use super::Place;
use crate::cost::atom::Setting;
use crate::cost::memory::boundary_bytes;
use crate::plan::Pipeline;
use crate::units::Bytes;

/// Seconds of one micro-batch's transfer from stage `s` to the next; `None` where no path exists.
pub(super) fn transfer(
    setting: &Setting<'_>,
    pipeline: &Pipeline,
    s: usize,
    from: &[Vec<Place<'_>>],
    to: &[Vec<Place<'_>>],
) -> Option<f64> {
    let (upstream, downstream) = (&pipeline.stages[s], &pipeline.stages[s + 1]);
    let row_bytes = boundary_bytes(setting, 1).0;
    let mut flows: Vec<(&Place<'_>, &Place<'_>, f64)> = Vec::new();
    let mut sent = 0u32;
    for (i, sender) in upstream.replicas.iter().enumerate() {
        let own = (sent, sent + sender.rows);
        sent = own.1;
        let mut received = 0u32;
        for (j, receiver) in downstream.replicas.iter().enumerate() {
            let other = (received, received + receiver.rows);
            received = other.1;
            let rows = own.1.min(other.1).saturating_sub(own.0.max(other.0));
            if rows == 0 {
                continue;
            }
            let slices = from[i].len().min(to[j].len()).max(1);
            let bytes = f64::from(rows) * row_bytes / slices as f64;
            for k in 0..slices {
                let a = &from[i][k * from[i].len() / slices];
                let b = &to[j][k * to[j].len() / slices];
                flows.push((a, b, bytes));
            }
        }
    }
    // Transfers that leave or enter a node share its network cards.
    let mut leaving: BTreeMap<usize, u32> = BTreeMap::new();
    let mut entering: BTreeMap<usize, u32> = BTreeMap::new();
    for (a, b, _) in flows.iter().filter(|(a, b, _)| a.node != b.node) {
        *leaving.entry(a.node).or_default() += 1;
        *entering.entry(b.node).or_default() += 1;
    }
    let inside: u32 = flows.iter().filter(|(a, b, _)| a.node == b.node).count() as u32;
    // One device's own transfers follow each other; the network share above already counts those of one node.
    let mut of_sender: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for (a, _, _) in &flows {
        *of_sender.entry((a.node, a.index)).or_default() += 1;
    }
    let mut per_device: BTreeMap<(usize, u32, bool), f64> = BTreeMap::new();
    for (a, b, bytes) in flows {
        let concurrent = if a.node == b.node {
            inside
        } else {
            leaving
                .get(&a.node)
                .copied()
                .unwrap_or(1)
                .max(entering.get(&b.node).copied().unwrap_or(1))
        };
        let of_sender = of_sender.get(&(a.node, a.index)).copied().unwrap_or(1).max(1);
        let shared = (concurrent / of_sender).max(1);
        let time = setting
            .cluster
            .transfer_time(
                (a.node, a.device_type),
                (b.node, b.device_type),
                Bytes(bytes),
                shared,
            )?
            .0;
        *per_device.entry((a.node, a.index, true)).or_default() += time;
        *per_device.entry((b.node, b.index, false)).or_default() += time;
    }
    Some(per_device.values().copied().fold(0.0, f64::max))
}
