//! Plan, pipeline, stage, replica and the records of prediction and search (`autohaap/plan@1`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Precision};
use crate::model::Model;
use crate::units::{Bytes, Seconds};

/// Schema identifier of plan files.
pub const PLAN_SCHEMA: &str = "autohaap/plan@1";

/// Training settings that a plan is made for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Tokens per sequence.
    pub seq_len: u64,
    /// Sequences per optimizer step.
    pub global_batch: u64,
    /// Number format.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// ZeRO level 0-3.
    pub zero: u8,
    /// Whether norms and residual activations are divided over the TP group.
    pub sequence_parallel: bool,
    /// Attention kernel per device type.
    pub attention: BTreeMap<String, AttentionKernel>,
    /// How the target engine communicates.
    pub engine_semantics: EngineSemantics,
}

/// Optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Adam(W): two fp32 moments and an fp32 master copy.
    Adam,
    /// Plain SGD: an fp32 master copy only.
    Sgd,
}

/// Attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernel {
    /// Fused, linear memory.
    Flash,
    /// Materialises the scores.
    Unfused,
}

/// How an engine communicates and computes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EngineSemantics {
    /// Whether stage boundaries block.
    pub p2p: PointToPointMode,
    /// What is overlapped with compute.
    pub overlap: Overlap,
    /// What its kernels cost besides the arithmetic.
    #[serde(default, skip_serializing_if = "Kernels::is_default")]
    pub kernels: Kernels,
}

/// What an engine's kernels cost besides the arithmetic; the defaults are a fused mixed-precision engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Kernels {
    /// Memory traffic of element-wise work relative to fused kernels (1).
    pub elementwise: f64,
    /// Host time to issue one operator: a pass takes no less than its operators take to issue.
    pub host_s: Seconds,
    /// Time of a step outside passes, reduction and optimizer: data, logging, gradient norm.
    pub step_s: Seconds,
    /// Whether dropout runs: masks are kept for backward and applied in both passes.
    pub dropout: bool,
    /// Bytes of one accumulated gradient element in mixed precision: 4 (fp32 main gradients) or 2.
    pub gradient_bytes: f64,
    /// Whether the loss is one kernel: no second copy of the logits.
    pub fused_loss: bool,
    /// Share of a hideable collective that stays visible under overlap: contention for memory and compute units.
    pub overlap_loss: f64,
    /// Start-up of one collective beyond the link's latency: launch, synchronisation, ramp to full rate.
    pub collective_s: Seconds,
    /// Time of flash attention relative to a causal kernel of the device's own library.
    pub attention: f64,
    /// Memory traffic of routing, dispatch and combine of experts relative to one read and one write of each copy.
    pub routing: f64,
    /// Buffers of a stage boundary that an engine keeps per micro-batch in flight.
    pub pipe_buffers: f64,
    /// Whether weight gradients need no tensor besides their accumulator; if not, a two-byte placeholder of each weight shape
    /// of a layer is held.
    pub fused_weight_grad: bool,
    /// Whether tensor-parallel collectives of the backward pass run under the weight-gradient products.
    pub backward_tp_hidden: bool,
}

impl Default for Kernels {
    fn default() -> Self {
        Self {
            elementwise: 1.0,
            host_s: Seconds(0.0),
            step_s: Seconds(0.0),
            dropout: false,
            gradient_bytes: 4.0,
            fused_loss: true,
            overlap_loss: 0.0,
            collective_s: Seconds(0.0),
            attention: 1.0,
            routing: 1.0,
            pipe_buffers: 0.0,
            fused_weight_grad: true,
            backward_tp_hidden: false,
        }
    }
}

impl Kernels {
    /// Whether every figure is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Boundary transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PointToPointMode {
    /// Sends cost the sender nothing.
    Async,
    /// Fused blocking exchanges (Megatron without p2p overlap).
    Rendezvous,
}

/// Overlap switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Tensor-parallel collectives under GEMMs.
    pub tp: bool,
    /// Gradient reduction under the remaining backward.
    pub dp: bool,
    /// Boundary transfers under compute.
    pub p2p: bool,
}

impl Default for EngineSemantics {
    fn default() -> Self {
        Self {
            p2p: PointToPointMode::Async,
            overlap: Overlap {
                tp: false,
                dp: true,
                p2p: true,
            },
            kernels: Kernels::default(),
        }
    }
}

/// A complete plan file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// Always [`PLAN_SCHEMA`].
    pub schema: String,
    /// Tool and version.
    #[serde(default)]
    pub created_by: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Digest of pipelines, model, cluster and training.
    #[serde(default)]
    pub id: String,
    /// Training settings.
    pub training: Training,
    /// The resolved model with derived figures per atom.
    pub model: ModelRecord,
    /// The resolved cluster.
    pub cluster: ClusterRecord,
    /// Profile entries used.
    #[serde(default)]
    pub profile: ProfileRecord,
    /// Pipelines over disjoint devices.
    pub pipelines: Vec<Pipeline>,
    /// Devices left out, with the reason.
    #[serde(default)]
    pub idle: Vec<Idle>,
    /// What the cost model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// How the plan was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// What was compared; only in the answer of `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternatives: Option<Alternatives>,
}

/// The model inside a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelRecord {
    /// Digest of the model.
    pub digest: String,
    /// The model itself.
    #[serde(flatten)]
    pub model: Model,
    /// Figures per atom, derived again on load: for readers.
    #[serde(default)]
    pub figures: Vec<AtomFigures>,
}

/// Derived figures of one atom, for readers of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtomFigures {
    /// Parameters (a tied head counts none).
    pub parameters: u64,
    /// Parameters touched per token.
    pub parameters_active: u64,
    /// Forward FLOPs per token at the plan's sequence length (causal attention halved).
    pub flops_forward_per_token: f64,
    /// Weight-gradient FLOPs per token.
    pub flops_weight_grad_per_token: f64,
    /// Input-gradient FLOPs per token.
    pub flops_input_grad_per_token: f64,
    /// Bytes per token handed to the next atom.
    pub boundary_bytes_per_token: f64,
    /// Bytes per token kept for backward, unsharded, no recompute.
    pub activation_bytes_per_token: f64,
}

/// The cluster inside a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterRecord {
    /// Digest of the cluster.
    pub digest: String,
    /// The cluster itself.
    #[serde(flatten)]
    pub cluster: Cluster,
}

/// Profile entries that the plan's prediction rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfileRecord {
    /// Digest of the entries.
    pub digest: String,
    /// Entries.
    pub entries: Vec<ProfileEntry>,
}

/// One resolved time of the profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfileEntry {
    /// Device type.
    pub device_type: String,
    /// Atom kind (first atom of its run).
    pub atom: usize,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Rows per replica.
    pub micro_batch: u32,
    /// Phase: `F`, `I` (input gradient), `W` (weight gradient).
    pub phase: String,
    /// Time of one micro-batch.
    pub time_s: Seconds,
    /// Step of the resolution ladder, for example `roofline`.
    pub provenance: String,
    /// Relative standard error.
    pub sigma: f64,
}

/// An ordered list of stages that covers all atoms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Sequences of one micro-batch.
    pub micro_batch: u32,
    /// Micro-batches per step.
    pub micro_batches: u32,
    /// Order of work.
    pub schedule: Schedule,
    /// Stages in chain order.
    pub stages: Vec<Stage>,
}

/// Order of work of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// `1f1b`, `gpipe`, ...
    pub kind: ScheduleKind,
    /// Torch schedule file beside the plan, for `csv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Named schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// One forward, one backward, with free in-flight depths.
    #[serde(rename = "1f1b")]
    OneF1b,
    /// All forwards, then all backwards.
    Gpipe,
    /// Megatron's interleaved 1F1B over virtual stages.
    Interleaved,
    /// Zero bubble H1.
    ZbH1,
    /// Zero bubble H2.
    ZbH2,
    /// Zero bubble V.
    ZbV,
    /// DualPipe-V.
    #[serde(rename = "dualpipe-v")]
    DualpipeV,
    /// A torch schedule file.
    Csv,
}

/// A contiguous atom range and the replicas that hold it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Half-open range of atom indices.
    pub atoms: [usize; 2],
    /// In-flight limit W >= 1: warm-up depth + 1, in micro-batches.
    pub in_flight: u32,
    /// Recompute per atom range; atoms not named: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recompute: Vec<RecomputeRange>,
    /// Expert parallelism over the stage's devices.
    #[serde(default = "one")]
    pub ep: u32,
    /// Tensor parallelism inside an expert.
    #[serde(default = "one")]
    pub etp: u32,
    /// Replicas, which split every micro-batch by rows; empty when `on_stage` is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// Index of the stage entry whose devices this virtual stage shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_stage: Option<usize>,
}

fn one() -> u32 {
    1
}

/// Recompute mode of an atom range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RecomputeRange {
    /// Half-open range of atom indices.
    pub atoms: [usize; 2],
    /// Mode.
    pub mode: Recompute,
}

/// What is computed again in backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// Nothing.
    None,
    /// The attention core.
    Selective,
    /// The whole atom from its input.
    Full,
}

/// Devices that hold one copy of the stage's atoms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// `"<node>:<index>"`, cp-major, tp fastest.
    pub devices: Vec<String>,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Sequences of each micro-batch that this replica computes.
    pub rows: u32,
}

/// Devices that the plan does not use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// Devices.
    pub devices: Vec<String>,
    /// Why.
    pub reason: String,
}

/// What the cost model predicts for a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Event-order makespan with gradient sync and optimizer.
    pub step_time_s: Seconds,
    /// The closed-form estimate that ranks and prunes.
    pub step_time_closed_form_s: Seconds,
    /// Step time of the event simulation, where transfers and reductions share network cards, uplinks and host buses;
    /// absent where the plan was not simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time_simulated_s: Option<Seconds>,
    /// Tokens of the global batch per second.
    pub tokens_per_s: f64,
    /// Model FLOPs utilisation.
    pub mfu: f64,
    /// Which FLOPs and which peak `mfu` uses.
    pub mfu_formula: String,
    /// Proven lower bound on the step time of any plan in `bound_space`; absent in `estimate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<Seconds>,
    /// Space, schedule family and assumptions of the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_space: Option<String>,
    /// (step - bound) / step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// Per stage.
    pub stages: Vec<StagePrediction>,
    /// Per device in use.
    pub devices: Vec<DevicePrediction>,
    /// Achieved share of the peak per device type in use, busy share included.
    pub utilisation: BTreeMap<String, f64>,
    /// Low and high step time from the propagated relative errors.
    pub range_s: [Seconds; 2],
    /// Share of the predicted time by provenance.
    pub provenance_share: BTreeMap<String, f64>,
    /// Whether every device's memory fits.
    pub fits: bool,
}

/// Times of one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StagePrediction {
    /// Pipeline index.
    pub pipeline: usize,
    /// Stage index.
    pub stage: usize,
    /// Forward of one micro-batch, communication inside the stage included.
    pub forward_s: Seconds,
    /// Backward of one micro-batch, recompute and communication included.
    pub backward_s: Seconds,
    /// Recompute part of `backward_s`.
    pub recompute_s: Seconds,
    /// Exposed communication per micro-batch inside the stage (TP, CP, EP, ZeRO), forward and backward.
    pub comm_s: Seconds,
    /// Transfer to the next stage per micro-batch, forward direction.
    pub send_forward_s: Seconds,
    /// Transfer to the next stage per micro-batch, backward direction.
    pub send_backward_s: Seconds,
    /// Gradient reduction after the last backward, exposed part.
    pub grad_sync_s: Seconds,
    /// Optimizer.
    pub optimizer_s: Seconds,
    /// Share of the step during which the stage computes.
    pub busy_fraction: f64,
}

/// Memory of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePrediction {
    /// `"<node>:<index>"`.
    pub device: String,
    /// Device type.
    #[serde(rename = "type")]
    pub device_type: String,
    /// Itemised peak.
    pub memory_bytes: MemoryItems,
    /// safe, tight (less than 8 % free) or over.
    pub grade: Grade,
}

/// Itemised memory of one device at its peak.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryItems {
    /// Weights.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer state and master weights.
    pub optimizer: Bytes,
    /// Saved activations of all micro-batches in flight.
    pub activations: Bytes,
    /// Largest working set of one atom (recompute, gathered layers).
    pub working_set: Bytes,
    /// Logits and loss.
    pub logits: Bytes,
    /// Send/receive, bucket and gather buffers.
    pub buffers: Bytes,
    /// Context, communicators, libraries.
    pub context: Bytes,
    /// Allocator reserve.
    pub reserve: Bytes,
    /// Sum of the above.
    pub total: Bytes,
    /// What the device may hold: capacity or the user's cap, whichever is less.
    pub limit: Bytes,
}

/// Memory grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// At least 8 % free.
    Safe,
    /// Fits with less than 8 % free.
    Tight,
    /// Does not fit.
    Over,
}

/// How the plan was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchRecord {
    /// Space searched.
    pub space: String,
    /// `lattice`, `columns` or `brute`.
    pub method: String,
    /// Why the search ended.
    pub stop_reason: String,
    /// Wall time.
    pub wall_s: Seconds,
    /// Wall time when the first plan that fits was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_plan_s: Option<Seconds>,
    /// Plans and templates priced.
    pub plans_scored: u64,
    /// Seed.
    pub seed: u64,
    /// False when the clock ended the search.
    pub reproducible: bool,
    /// Wall time per phase.
    pub phases: Vec<Phase>,
}

/// One phase of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// Name.
    pub name: String,
    /// Wall time.
    pub wall_s: Seconds,
    /// Work units (labels, plans).
    pub count: u64,
}

/// What the plan was compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alternatives {
    /// Best plan with one (tp, pp, dp) and equal layers on all devices.
    pub uniform: Alternative,
    /// Best plan on the fastest device class alone.
    pub fastest_class: Alternative,
    /// Hand split: layers proportional to FLOPs.
    pub flops_split: Alternative,
    /// Hand split: layers proportional to memory.
    pub memory_split: Alternative,
    /// Value of each device group: step time without it.
    #[serde(default)]
    pub without: BTreeMap<String, Alternative>,
    /// The best plans that lost, with the reason.
    pub losers: Vec<Alternative>,
}

/// One compared plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alternative {
    /// Short description, for example `tp8 pp2 dp4`.
    #[serde(default)]
    pub label: String,
    /// Whether it fits and is legal.
    pub feasible: bool,
    /// Its predicted step time.
    pub step_time_s: Option<Seconds>,
    /// Why it loses or why it is infeasible.
    pub reason: String,
}
