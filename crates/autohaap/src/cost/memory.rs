//! Peak memory of a device, itemised, from the costs of its atoms; the same totals from prefix sums for the search.
//!
//! ```text
//! total = weights + gradients + optimizer / holders
//!       + in_flight * (saved activations of all atoms, each under its own recompute)
//!       + max(largest working set + one recomputed atom's saved set, logits) + held placeholders
//!       + boundary buffers + context + reserve
//! ```

use super::atom::{AtomCost, Setting, activation_bytes};
use crate::cluster::Precision;
use crate::plan::{Grade, MemoryItems, Optimizer, Recompute};
use crate::units::{Bytes, Seconds};

/// Share of the usable memory that the allocator keeps from use (fragmentation): allocator factor 0.94.
pub const RESERVE_SHARE: f64 = 0.06;

/// Free share below which a plan that fits is graded tight.
pub const TIGHT_SHARE: f64 = 0.08;

/// Where a stage stands and how its boundary tensors are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// Holds the first atom.
    pub first: bool,
    /// Holds the last atom.
    pub last: bool,
    /// Tensor parallelism of the replica.
    pub tp: u32,
    /// Context parallelism of the replica.
    pub cp: u32,
    /// Rows of the replica per micro-batch.
    pub rows: u32,
}

/// How many data-parallel copies share the optimizer state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// Holders of dense tensors.
    pub dense: u32,
    /// Holders of expert tensors.
    pub expert: u32,
}

/// Sums over an atom range, for differences of prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageSums {
    /// Weights.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer, dense tensors, unsharded.
    pub optimizer_dense: Bytes,
    /// Optimizer, expert tensors, unsharded.
    pub optimizer_expert: Bytes,
    /// Reduction bytes, dense.
    pub sync_dense: Bytes,
    /// Reduction bytes, expert.
    pub sync_expert: Bytes,
    /// Saved activations without recompute.
    pub saved_none: Bytes,
    /// Under selective recompute.
    pub saved_selective: Bytes,
    /// Under full recompute.
    pub saved_full: Bytes,
}

impl StageSums {
    /// The sums with one more atom.
    #[must_use]
    pub fn plus(&self, cost: &AtomCost) -> Self {
        Self {
            weights: self.weights + cost.weights,
            gradients: self.gradients + cost.gradients,
            optimizer_dense: self.optimizer_dense + cost.optimizer_dense,
            optimizer_expert: self.optimizer_expert + cost.optimizer_expert,
            sync_dense: self.sync_dense + cost.sync_dense,
            sync_expert: self.sync_expert + cost.sync_expert,
            saved_none: self.saved_none + cost.saved_none,
            saved_selective: self.saved_selective + cost.saved_selective,
            saved_full: self.saved_full + cost.saved_full,
        }
    }

    /// The sums of the atoms after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            weights: self.weights - before.weights,
            gradients: self.gradients - before.gradients,
            optimizer_dense: self.optimizer_dense - before.optimizer_dense,
            optimizer_expert: self.optimizer_expert - before.optimizer_expert,
            sync_dense: self.sync_dense - before.sync_dense,
            sync_expert: self.sync_expert - before.sync_expert,
            saved_none: self.saved_none - before.saved_none,
            saved_selective: self.saved_selective - before.saved_selective,
            saved_full: self.saved_full - before.saved_full,
        }
    }
}

/// Largest transients of an atom range, for the memory peak.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StagePeaks {
    /// Working set.
    pub working_set: Bytes,
    /// Logits.
    pub logits: Bytes,
    /// Placeholders of weight gradients.
    pub held: Bytes,
    /// Saved set of the largest fully recomputed atom.
    pub recomputed: Bytes,
    /// Gathered weights of ZeRO-3: two layers.
    pub gathered: Bytes,
}

impl StagePeaks {
    /// The peaks of a stage whose first `full` atoms are recomputed.
    pub fn of(costs: &[AtomCost], is_full: impl Fn(usize) -> bool) -> Self {
        let mut peaks = Self::default();
        for (i, cost) in costs.iter().enumerate() {
            peaks.working_set = peaks.working_set.max(cost.working_set);
            peaks.logits = peaks.logits.max(cost.logits);
            peaks.held = peaks.held.max(cost.held);
            peaks.gathered = peaks.gathered.max(cost.gathered * 2.0);
            if is_full(i) {
                peaks.recomputed = peaks.recomputed.max(cost.saved_none - cost.saved_full);
            }
        }
        peaks
    }
}

/// Vocabulary copies that the stage's other tensors make superfluous: the tied head where the embedding is on the same
/// stage, the MTP block's head where the head is.
fn superfluous(costs: &[AtomCost], boundary: Boundary) -> (Bytes, Bytes, Bytes) {
    let mut sum = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
    if !boundary.last {
        return sum;
    }
    let last = costs.len().saturating_sub(1);
    for (i, cost) in costs.iter().enumerate() {
        if i < last || boundary.first {
            sum.0 += cost.shared_copy.weights;
            sum.1 += cost.shared_copy.gradients;
            sum.2 += cost.shared_copy.optimizer;
        }
    }
    sum
}

/// Bytes of one micro-batch's residual stream at a stage boundary, all rows: `rows * seq * hidden * element`.
pub fn boundary_bytes(setting: &Setting<'_>, micro_batch: u32) -> Bytes {
    let training = setting.training;
    Bytes(
        f64::from(micro_batch)
            * training.seq_len as f64
            * setting.model.hidden as f64
            * activation_bytes(training),
    )
}

/// Itemised peak of a device of a stage; `limit` is what the device may hold.
pub fn stage_memory(
    setting: &Setting<'_>,
    costs: &[AtomCost],
    recompute: &[Recompute],
    in_flight: u32,
    copies: Copies,
    boundary: Boundary,
    limit: Bytes,
) -> MemoryItems {
    let mode = |i: usize| recompute.get(i).copied().unwrap_or(Recompute::None);
    let sums = costs.iter().fold(StageSums::default(), |s, c| s.plus(c));
    let saved: Bytes = costs
        .iter()
        .enumerate()
        .map(|(i, c)| match mode(i) {
            Recompute::None => c.saved_none,
            Recompute::Selective => c.saved_selective,
            Recompute::Full => c.saved_full,
        })
        .sum();
    let peaks = StagePeaks::of(costs, |i| mode(i) == Recompute::Full);
    items(
        setting,
        &sums,
        saved,
        &peaks,
        superfluous(costs, boundary),
        in_flight,
        copies,
        boundary,
        limit,
    )
}

fn items(
    setting: &Setting<'_>,
    sums: &StageSums,
    saved: Bytes,
    peaks: &StagePeaks,
    superfluous: (Bytes, Bytes, Bytes),
    in_flight: u32,
    copies: Copies,
    boundary: Boundary,
    limit: Bytes,
) -> MemoryItems {
    let sharded = setting.training.zero >= 1;
    let over = |bytes: Bytes, copies: u32| {
        if sharded {
            bytes / f64::from(copies.max(1))
        } else {
            bytes
        }
    };
    let context = setting.cluster.reserved_memory.value;
    let slice = boundary_bytes(setting, boundary.rows) / f64::from(boundary.tp * boundary.cp);
    // A receive and a send buffer at each neighbour.
    let neighbours = f64::from(u32::from(!boundary.first) + u32::from(!boundary.last));
    // Engines that keep input and output of every micro-batch in flight hold them whole where the stream is not divided.
    let kernels = &setting.training.engine_semantics.kernels;
    let kept = if setting.training.sequence_parallel {
        slice
    } else {
        slice * f64::from(boundary.tp)
    } * (kernels.pipe_buffers * f64::from(in_flight) * f64::from(u32::from(neighbours > 0.0)));
    let transient = peaks.working_set + peaks.recomputed;
    // Logits and layer work do not meet: the larger counts.
    let (working_set, logits) = if peaks.logits > transient {
        (peaks.held, peaks.logits)
    } else {
        (transient + peaks.held, Bytes::ZERO)
    };
    let mut m = MemoryItems {
        weights: sums.weights - superfluous.0,
        gradients: sums.gradients - superfluous.1,
        optimizer: over(sums.optimizer_dense - superfluous.2, copies.dense)
            + over(sums.optimizer_expert, copies.expert),
        activations: saved * f64::from(in_flight),
        working_set,
        logits,
        buffers: slice * 2.0 * neighbours + peaks.gathered + kept,
        context,
        reserve: (limit - context).max(Bytes::ZERO) * RESERVE_SHARE,
        total: Bytes::ZERO,
        limit,
    };
    m.total = m.weights
        + m.gradients
        + m.optimizer
        + m.activations
        + m.working_set
        + m.logits
        + m.buffers
        + m.context
        + m.reserve;
    m
}

/// Total of [`stage_memory`] from sums: `sums` of the whole stage, `saved` under its recompute.
pub fn total(
    setting: &Setting<'_>,
    sums: &StageSums,
    saved: Bytes,
    peaks: &StagePeaks,
    costs: &[AtomCost],
    in_flight: u32,
    copies: Copies,
    boundary: Boundary,
    limit: Bytes,
) -> Bytes {
    let extra = if boundary.last {
        superfluous(costs, boundary)
    } else {
        (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO)
    };
    items(
        setting, sums, saved, peaks, extra, in_flight, copies, boundary, limit,
    )
    .total
}

/// Grade of a device's memory.
pub fn grade(items: &MemoryItems) -> Grade {
    if items.total > items.limit {
        Grade::Over
    } else if items.total.0 > items.limit.0 * (1.0 - TIGHT_SHARE) {
        Grade::Tight
    } else {
        Grade::Safe
    }
}

/// Time of the optimizer step: reads gradients, reads and writes state and master weights, writes weights. For Adam with
/// 12 bytes of state that is 30 bytes moved per parameter.
pub fn optimizer_seconds(
    setting: &Setting<'_>,
    dense: Bytes,
    expert: Bytes,
    copies: Copies,
    memory_bandwidth: f64,
) -> Seconds {
    let training = setting.training;
    let sharded = training.zero >= 1;
    let moved = match (training.precision, training.optimizer) {
        (Precision::Fp32, Optimizer::Adam) => 28.0 / 8.0,
        (Precision::Fp32, Optimizer::Sgd) => 1.0,
        (_, Optimizer::Adam) => 30.0 / 12.0,
        (_, Optimizer::Sgd) => 14.0 / 4.0,
    };
    let over = |bytes: Bytes, n: u32| {
        if sharded {
            bytes.0 / f64::from(n.max(1))
        } else {
            bytes.0
        }
    };
    let bytes = over(dense, copies.dense) + over(expert, copies.expert);
    Seconds(bytes * moved / (memory_bandwidth * 0.85))
}
