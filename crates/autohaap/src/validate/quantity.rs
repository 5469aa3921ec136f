//! What a row measures, and how the source counts FLOPs.

use super::case::Case;
use super::express::Expressed;
use crate::model::{AtomKind, Causal};
use crate::units::GIB;

/// What a source's FLOP/s count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// Three forward passes with the full attention square.
    Full,
    /// Four of the layers, three of the head, full square.
    FullWithRecompute,
    /// Three forward passes with half of the square.
    Halved,
    /// Full square, attention core recomputed.
    FullWithCore,
}

impl Convention {
    /// FLOPs of a step.
    pub fn flops(self, row: &Expressed) -> f64 {
        let tokens = (row.training.global_batch * row.training.seq_len) as f64;
        let seq = row.training.seq_len;
        let model = |causal| row.model.flops_forward_per_token(seq, causal).0;
        let full = 3.0 * model(Causal::Full);
        let core = 2.0 * (model(Causal::Full) - model(Causal::Halved));
        let blocks: f64 = row
            .model
            .atoms
            .iter()
            .filter(|a| !matches!(a.kind, AtomKind::Head | AtomKind::Embedding))
            .map(|a| a.flops_by_class(seq, Causal::Full).total().0)
            .sum();
        tokens
            * match self {
                Self::Full => full,
                Self::FullWithRecompute => full + blocks,
                Self::Halved => 3.0 * model(Causal::Halved),
                Self::FullWithCore => full + core,
            }
    }
}

/// What a row measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Step time in units of so many seconds.
    StepSeconds(f64),
    /// Tokens per second and device.
    TokensPerDevice,
    /// Sequences per second and device.
    SamplesPerDevice,
    /// FLOP/s per device under a convention, in 1e12.
    FlopsPerDevice(Convention),
    /// Percent of a peak (of the device's 16-bit datasheet peak if none is given).
    Utilisation(Convention, Option<f64>),
    /// Forward of one layer, ms.
    LayerForward,
    /// Backward of one layer, ms.
    LayerBackward,
    /// Allocator peak.
    Allocated,
    /// Reserved by the allocator.
    Reserved,
    /// As the device reports it.
    InUse,
    /// Activations of the first stage.
    FirstActivations,
    /// Weights, gradients, optimizer.
    Statics,
    /// Activations relative to no recompute without sequence parallelism, percent.
    ActivationShare,
    /// Idle share of the pipeline.
    Bubble,
    /// 1 where the run does not fit.
    DoesNotFit,
}

impl Quantity {
    /// Kind of the group it is scored in.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Allocated
            | Self::Reserved
            | Self::InUse
            | Self::FirstActivations
            | Self::Statics
            | Self::ActivationShare => "memory",
            Self::Bubble => "bubble",
            Self::DoesNotFit => "fit",
            _ => "time",
        }
    }

    /// Whether a larger value is a shorter step.
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Self::TokensPerDevice | Self::SamplesPerDevice | Self::FlopsPerDevice(_) | Self::Utilisation(..)
        )
    }
}

/// What a row measures.
///
/// # Errors
/// A sentence where the metric is unknown.
pub fn of(case: &Case) -> Result<Quantity, String> {
    let definition = case.text("flops_def");
    let convention = if definition.contains("INCLUDES full recompute") {
        Convention::FullWithRecompute
    } else if definition.contains("attention recompute") {
        Convention::FullWithCore
    } else if matches!(case.group.as_str(), "zoo" | "mbr") || definition.contains("causal") {
        Convention::Halved
    } else {
        Convention::Full
    };
    Ok(match case.text("metric") {
        "iteration_time" => Quantity::StepSeconds(if case.text("unit") == "ms" { 1e-3 } else { 1.0 }),
        "tokens_per_s_per_gpu" => Quantity::TokensPerDevice,
        "samples_per_gpu_per_s" => Quantity::SamplesPerDevice,
        "TFLOPs_per_gpu" => Quantity::FlopsPerDevice(convention),
        "MFU" | "HFU" => Quantity::Utilisation(convention, None),
        "layer_forward_time" => Quantity::LayerForward,
        "layer_backward_time" => Quantity::LayerBackward,
        "bubble_rate" => Quantity::Bubble,
        "OOM" | "FAILED/OOM" => Quantity::DoesNotFit,
        "activation_bytes_per_gpu(first stage)" => Quantity::FirstActivations,
        "params+optimizer_bytes_per_gpu" => Quantity::Statics,
        "activation_memory_relative_to_TP_baseline" => Quantity::ActivationShare,
        // The context counts where the source's own model of the figure has to add it.
        "gpu_memory_used" | "peak_memory(max over GPUs)" => Quantity::InUse,
        m if m.contains("nvidia-smi") => Quantity::InUse,
        m if m.contains("reserved") => Quantity::Reserved,
        "peak_memory(max over ranks)" | "memory" => Quantity::Reserved,
        m if m.contains("(steady)") => Quantity::Statics,
        m if m.contains("memory") || m.contains("allocated") => Quantity::Allocated,
        other => return Err(format!("the metric `{other}` is not predicted")),
    })
}

/// Bytes in the unit of a row.
pub(super) fn bytes_in_unit(bytes: f64, unit: &str) -> f64 {
    match unit {
        "GiB" | "GB" => bytes / GIB,
        _ => bytes,
    }
}
