//! What one link does to a group: the flat formulas, group-size scaling, measured points.

use crate::cluster::{Collective, Fabric, Link, LinkPoint, defaults};

/// Bandwidth per rank and latency per hop, as they act.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) bandwidth: f64,
    pub(super) latency: f64,
}

impl Rate {
    pub(super) const FREE: Self = Self {
        bandwidth: f64::INFINITY,
        latency: 0.0,
    };

    pub(super) fn slower(self, other: Self) -> Self {
        Self {
            bandwidth: self.bandwidth.min(other.bandwidth),
            latency: self.latency.max(other.latency),
        }
    }
}

/// Time of one flat collective over `n` ranks at `rate`: the formulas of the module head.
pub(super) fn flat(op: Collective, n: f64, bytes: f64, rate: Rate) -> f64 {
    if n < 2.0 || bytes <= 0.0 {
        return 0.0;
    }
    let share = (n - 1.0) / n;
    let Rate { bandwidth, latency } = rate;
    match op {
        Collective::AllReduce => {
            let ring = 2.0 * (n - 1.0) * latency + 2.0 * share * bytes / bandwidth;
            let tree = 2.0 * n.log2().ceil() * latency + 2.0 * bytes / bandwidth;
            ring.min(tree)
        }
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
            (n - 1.0) * latency + share * bytes / bandwidth
        }
        Collective::PointToPoint => latency + bytes / bandwidth,
    }
}

impl Link {
    /// Sorts the measured points as look-ups expect them.
    pub fn sort_table(&mut self) {
        self.table.sort_by(|a, b| {
            (a.op, a.ranks)
                .cmp(&(b.op, b.ranks))
                .then(a.bytes.0.total_cmp(&b.bytes.0))
        });
    }

    /// Bandwidth per rank when `n` devices of one node form a group and `flows` devices of the node are busy.
    ///
    /// - switched: the device's full bandwidth at any group size;
    /// - mesh: `pair * (n - 1)`, at most the device's bandwidth: a pair uses one link, eight devices use seven;
    /// - bus: the host link, shared when more than four devices send at once; bridged pairs use their bridge.
    pub(super) fn inside(&self, n: f64, flows: f64) -> Rate {
        let device = self.bandwidth.value.0;
        let pair = self.pair_bandwidth.value.0;
        let bandwidth = match self.fabric {
            Fabric::Switched => device,
            Fabric::Mesh => (pair * (n - 1.0).max(1.0)).min(device),
            Fabric::Bus if n <= 2.0 && pair > device => pair,
            Fabric::Bus => device * (defaults::BUS_FLOWS / flows).min(1.0),
        };
        Rate {
            bandwidth: bandwidth * self.efficiency.value,
            latency: self.latency.value.0,
        }
    }

    /// Time from measured points, if the table has the operation.
    ///
    /// Between two sizes the time is interpolated log-log. Outside, it is a line through the nearest point whose value at
    /// size 0 is the latency term of the formula. Between two group sizes the interpolation is log-log in the ranks; outside,
    /// the nearest group size is scaled by the ratio of the bandwidth terms.
    pub(super) fn measured(&self, op: Collective, n: u32, bytes: f64) -> Option<f64> {
        let start = self.table.partition_point(|p| p.op < op);
        let points = &self.table[start..];
        let points = &points[..points.partition_point(|p| p.op == op)];
        let first = points.first()?;
        let last = points.last()?;
        let at = |ranks: u32| {
            let from = points.partition_point(|p| p.ranks < ranks);
            let to = points.partition_point(|p| p.ranks <= ranks);
            self.at_size(op, ranks, points.get(from..to)?, bytes)
        };
        // Bandwidth terms at unit rate, with the growth that the fabric gives: it must not depend on the link's own figures,
        // or a faster link could make a measured time slower.
        let unit = |m: u32| {
            let m_f = f64::from(m);
            let growth = match self.fabric {
                Fabric::Mesh => m_f.min(f64::from(last.ranks)) - 1.0,
                Fabric::Switched => 1.0,
                Fabric::Bus => (defaults::BUS_FLOWS / m_f).min(1.0),
            };
            flat(
                op,
                m_f,
                1.0,
                Rate {
                    latency: 0.0,
                    bandwidth: growth.max(0.01),
                },
            )
        };
        let scaled = |ranks: u32| Some(at(ranks)? * unit(n) / unit(ranks));
        if n <= first.ranks {
            return if n == first.ranks {
                at(n)
            } else {
                scaled(first.ranks)
            };
        }
        if n >= last.ranks {
            return if n == last.ranks {
                at(n)
            } else {
                scaled(last.ranks)
            };
        }
        let next = points.partition_point(|p| p.ranks < n);
        let above = points.get(next)?.ranks;
        if above == n {
            return at(n);
        }
        let below = points.get(next.checked_sub(1)?)?.ranks;
        let weight = (f64::from(n) / f64::from(below)).ln() / (f64::from(above) / f64::from(below)).ln();
        Some((at(below)?.ln() * (1.0 - weight) + at(above)?.ln() * weight).exp())
    }

    /// Interpolation over the size; `points` is one operation and group size, sorted. `None` without points.
    fn at_size(&self, op: Collective, ranks: u32, points: &[LinkPoint], bytes: f64) -> Option<f64> {
        let line = |p: &LinkPoint| {
            let n = f64::from(ranks);
            let floor = flat(
                op,
                n,
                f64::MIN_POSITIVE,
                Rate {
                    bandwidth: f64::INFINITY,
                    latency: self.latency.value.0,
                },
            )
            .min(p.time_s.0);
            floor + (p.time_s.0 - floor) * bytes / p.bytes.0
        };
        let above = points.partition_point(|p| p.bytes.0 < bytes);
        if above == 0 || above == points.len() {
            return points.get(above.saturating_sub(1)).map(line);
        }
        let (low, high) = (&points[above - 1], &points[above]);
        let weight = (bytes / low.bytes.0).ln() / (high.bytes.0 / low.bytes.0).ln();
        Some((low.time_s.0.ln() * (1.0 - weight) + high.time_s.0.ln() * weight).exp())
    }
}
