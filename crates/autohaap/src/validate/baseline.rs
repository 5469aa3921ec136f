//! The two trivial predictors that any model must beat, refitted on the calibration rows of the group.
//!
//! ```text
//! M0   t = F / (g peak e) (1 + (p - 1) / (m v))                 F = model FLOPs + recompute, full attention; e = median
//! M1   M0 + tensor-parallel all-reduces (4 a layer, 6 with full recompute) over a bus of rate w
//!         + ring all-reduce of two-byte gradients over the node's share of its network (rate x on mixed clusters)
//! ```

use super::express::Expressed;
use super::quantity::Convention;
use crate::cluster::Precision;

/// The terms of a row: compute seconds at efficiency 1, bytes on the bus, bytes on the network, network rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    compute: f64,
    bus: f64,
    network: f64,
    mixed: bool,
}

/// Terms of a row.
pub fn terms(row: &Expressed) -> Terms {
    let m = f64::from(row.pipeline.micro_batches);
    let (p, v) = (f64::from(row.stages()), f64::from(row.chunks()));
    let full = row.full_recompute();
    let flops = if full {
        Convention::FullWithRecompute.flops(row)
    } else {
        Convention::Full.flops(row)
    };
    // Sum of peaks of the devices in use; 8-bit runs count at the 16-bit peak.
    let peak: f64 = row
        .cluster
        .nodes
        .iter()
        .flat_map(|n| &n.groups)
        .filter_map(|g| {
            let peaks = &row.cluster.device_types.get(&g.device_type)?.datasheet_peak;
            let wanted = if row.training.precision == Precision::Fp32 {
                Precision::Fp32
            } else {
                Precision::Fp16
            };
            let peak = peaks.get(&wanted).or_else(|| peaks.get(&Precision::Bf16))?;
            Some(f64::from(g.count) * peak.value.0)
        })
        .sum();
    let tp = f64::from(row.tp);
    let layers = (row.model.atoms.len() - 2) as f64;
    let rows = f64::from(row.pipeline.micro_batch) / f64::from(row.dp);
    let tensor = rows * row.training.seq_len as f64 * row.model.hidden as f64 * 2.0;
    let reductions = if full { 6.0 } else { 4.0 };
    let d = f64::from(row.dp);
    let gradients = row.model.parameters_total() as f64 * 2.0 / (tp * p);
    let node = &row.cluster.nodes[0];
    let nic =
        f64::from(node.nic_count.value) * node.nic.bandwidth.value.0 / tp.min(f64::from(node.devices()));
    Terms {
        compute: flops / peak.max(1.0) * (1.0 + (p - 1.0) / (m * v)),
        bus: if tp > 1.0 {
            layers / p * reductions * tensor * 2.0 * (tp - 1.0) / tp * (m + (p - 1.0) / v)
        } else {
            0.0
        },
        network: 2.0 * (d - 1.0) / d * gradients / nic.max(1.0),
        mixed: row.cluster.device_types.len() > 1,
    }
}

/// A fitted baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    efficiency: f64,
    bus: Option<f64>,
    network: f64,
}

impl Baseline {
    /// Step seconds.
    pub fn predict(&self, t: &Terms) -> f64 {
        let communication = match self.bus {
            None => 0.0,
            Some(w) => t.bus / w + t.network / self.network,
        };
        t.compute / self.efficiency + communication
    }

    /// M0: the median efficiency.
    pub fn m0(rows: &[(Terms, f64)]) -> Option<Self> {
        let mut shares: Vec<f64> = rows.iter().map(|(t, measured)| t.compute / measured).collect();
        shares.sort_by(f64::total_cmp);
        let middle = *shares.get(shares.len() / 2)?;
        let efficiency = if shares.len().is_multiple_of(2) {
            f64::midpoint(middle, shares[shares.len() / 2 - 1])
        } else {
            middle
        };
        Some(Self {
            efficiency,
            bus: None,
            network: 1.0,
        })
    }

    /// M1: the grid point of least mean absolute relative error, refined twice.
    pub fn m1(rows: &[(Terms, f64)]) -> Option<Self> {
        let start = Self::m0(rows)?;
        let mixed = rows.iter().any(|r| r.0.mixed);
        let mut best = Self {
            bus: Some(1e11),
            ..start
        };
        let score = |b: &Self| -> f64 {
            rows.iter()
                .map(|(t, measured)| (b.predict(t) / measured - 1.0).abs())
                .sum()
        };
        let mut least = score(&best);
        let mut width = 3.0_f64;
        for _ in 0..4 {
            let center = best;
            let at = |k: i32| (f64::from(k) / 10.0 * width.ln()).exp();
            let around = if mixed { -10..=10 } else { 0..=0 };
            for i in -10..=10 {
                for j in -10..=10 {
                    for k in around.clone() {
                        let wide = if width > 2.0 { 3.0 } else { 1.0 };
                        let b = Self {
                            efficiency: center.efficiency * at(i),
                            bus: center.bus.map(|w| w * at(j).powf(wide)),
                            network: center.network * at(k).powf(wide),
                        };
                        let s = score(&b);
                        if s < least {
                            (least, best) = (s, b);
                        }
                    }
                }
            }
            width = width.sqrt();
        }
        Some(best)
    }
}
