//! Measured layer times that a cluster carries, so that a plan file holds what its prediction rests on.

use serde::{Deserialize, Serialize};

use super::{Cluster, DeviceType};
use crate::error::{Problem, Problems, profile as codes};
use crate::model::AtomKind;
use crate::units::Seconds;

/// Layer times of one device type; all of the model that the cluster is planned for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerProfile {
    /// The device the times were measured on: not necessarily one of the cluster.
    pub device: DeviceType,
    /// Whether the times contain the collectives inside the layer (tensor, context and expert parallelism).
    pub includes_communication: bool,
    /// The times, in ascending order of their setting.
    pub layers: Vec<LayerTimes>,
}

/// Times of one layer class at one setting: per device, layer and micro-batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerTimes {
    /// The setting.
    #[serde(flatten)]
    pub at: LayerSetting,
    /// Forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_s: Option<Seconds>,
    /// Backward; the input gradient alone where `weight_grad_s` stands apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_s: Option<Seconds>,
    /// Weight gradient, where it was measured apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_grad_s: Option<Seconds>,
    /// Forward and backward together, where they were not told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_backward_s: Option<Seconds>,
    /// Relative standard error of a measurement: 2 %, or more where the recorded percentiles are wider.
    pub sigma: f64,
}

/// Where a layer was measured; the order is that of tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerSetting {
    /// Class of the layer.
    pub layer_class: AtomKind,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Expert tensor parallelism.
    pub etp: u32,
    /// Whether activations between the products were split over the tensor-parallel group.
    pub sp: bool,
    /// What the backward pass computed again.
    pub recompute: MeasuredRecompute,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of the micro-batch.
    pub micro_batch: u32,
}

/// What a measured backward pass computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredRecompute {
    /// Nothing.
    None,
    /// The attention core.
    Selective,
    /// The whole forward pass.
    Full,
}

impl LayerTimes {
    /// A setting without times yet.
    pub fn new(at: LayerSetting, sigma: f64) -> Self {
        Self {
            at,
            forward_s: None,
            backward_s: None,
            weight_grad_s: None,
            forward_backward_s: None,
            sigma,
        }
    }

    /// All times given.
    pub fn times(&self) -> impl Iterator<Item = Seconds> + '_ {
        [
            self.forward_s,
            self.backward_s,
            self.weight_grad_s,
            self.forward_backward_s,
        ]
        .into_iter()
        .flatten()
    }
}

/// Degrees, tokens and times above zero and finite, some time at every setting, a sigma in 0..=1.
pub fn check_layer_times(layers: &[LayerTimes], path: &str) -> Problems {
    let mut problems = Problems::new();
    for (i, layer) in layers.iter().enumerate() {
        let at = &layer.at;
        let degrees = [at.tp, at.cp, at.ep, at.etp, at.micro_batch];
        let message = if degrees.contains(&0) || at.seq_len == 0 {
            "a degree, micro-batch or sequence length of zero"
        } else if degrees.iter().any(|d| *d > 1 << 16) || at.seq_len > 1 << 27 {
            "a degree, micro-batch or sequence length that no layer was measured at"
        } else if layer.times().any(|t| !(t.0.is_finite() && t.0 > 0.0)) {
            "a time that is not above zero"
        } else if layer.times().next().is_none() {
            "a setting without any time"
        } else if layer.weight_grad_s.is_some() && layer.backward_s.is_none() {
            "a weight gradient (W) without the input gradient (B)"
        } else if !(0.0..=1.0).contains(&layer.sigma) {
            "a relative error outside 0..1"
        } else {
            continue;
        };
        problems.push(
            Problem::new(&codes::BAD_TIME, format!("{path}[{i}]"), message).hint(
                "leave out what was not measured: a missing time is estimated and labelled, never zero",
            ),
        );
    }
    problems
}

impl Cluster {
    pub(super) fn check_measured(&self, problems: &mut Problems) {
        for (i, profile) in self.measured.iter().enumerate() {
            problems.extend(check_layer_times(
                &profile.layers,
                &format!("measured[{i}].layers"),
            ));
        }
    }
}
