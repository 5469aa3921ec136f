//! Transfers at a stage boundary: rows and tensor slices are re-divided between real devices.
//!
//! Every replica owns an interval of rows; each overlap of an upstream and a downstream interval is sent in slices, one
//! per rank of the smaller side. A device's transfers add up, and so does the traffic of a node's network cards: the slowest of
//! these sums is the time.

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
    let flows = flows(setting, pipeline, s, from, to);
    // Pools that transfers share: the network cards of a node they leave or enter, the links inside a node.
    let pools = |a: &Place<'_>, b: &Place<'_>| -> [Option<(usize, Pool)>; 2] {
        if a.node == b.node {
            [Some((a.node, Pool::Inside)), None]
        } else {
            [Some((a.node, Pool::Leaving)), Some((b.node, Pool::Entering))]
        }
    };
    let mut sharing: BTreeMap<(usize, Pool), u32> = BTreeMap::new();
    for (a, b, _) in &flows {
        for pool in pools(a, b).into_iter().flatten() {
            *sharing.entry(pool).or_default() += 1;
        }
    }
    let mut of_device: BTreeMap<(usize, u32, bool), f64> = BTreeMap::new();
    let mut of_pool: BTreeMap<(usize, Pool), f64> = BTreeMap::new();
    for (a, b, bytes) in flows {
        let time = |sharing: u32| {
            let ends = ((a.node, a.device_type), (b.node, b.device_type));
            setting
                .cluster
                .transfer_time(ends.0, ends.1, Bytes(bytes), sharing)
                .map(|t| t.0)
        };
        // A device's own transfers follow each other at its full rate.
        let alone = time(1)?;
        *of_device.entry((a.node, a.index, true)).or_default() += alone;
        *of_device.entry((b.node, b.index, false)).or_default() += alone;
        // With n transfers in a pool each takes 1/n of its time when all run at a share of 1/n.
        for pool in pools(a, b).into_iter().flatten() {
            let n = sharing[&pool];
            let shared = if n > 1 { time(n)? } else { alone };
            *of_pool.entry(pool).or_default() += shared / f64::from(n);
        }
    }
    Some(
        of_device
            .into_values()
            .chain(of_pool.into_values())
            .fold(0.0, f64::max),
    )
}

/// Every transfer of one micro-batch from stage `s` to the next: sender, receiver, bytes.
pub(super) fn flows<'p, 'c>(
    setting: &Setting<'_>,
    pipeline: &Pipeline,
    s: usize,
    from: &'p [Vec<Place<'c>>],
    to: &'p [Vec<Place<'c>>],
) -> Vec<(&'p Place<'c>, &'p Place<'c>, f64)> {
    let (upstream, downstream) = (&pipeline.stages[s], &pipeline.stages[s + 1]);
    let row_bytes = boundary_bytes(setting, 1).0;
    let mut flows: Vec<(&'p Place<'c>, &'p Place<'c>, f64)> = Vec::new();
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
    flows
}

/// What transfers of one node share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pool {
    /// Network cards, outwards.
    Leaving,
    /// Network cards, inwards.
    Entering,
    /// Links between its devices.
    Inside,
}
