//! Fitted figures as data: one curve per device or architecture, one entry per network, each with the rows it rests on and
//! what is left unexplained.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::cluster::{Curve, DeviceType};
use crate::units::Seconds;

/// The table as compiled in.
const TABLE: &str = include_str!("../../../../data/calibration/fitted.toml");

/// Everything that was fitted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Curves by device name, else by architecture.
    #[serde(default)]
    pub devices: BTreeMap<String, FittedCurve>,
    /// Networks and links inside nodes, by name.
    #[serde(default)]
    pub networks: BTreeMap<String, FittedLink>,
    /// Kernels of engines, by identifier.
    #[serde(default)]
    pub engines: BTreeMap<String, FittedKernels>,
}

/// Kernels of an engine with their basis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedKernels {
    /// Memory traffic of element-wise work relative to fused kernels.
    pub elementwise: f64,
    /// Host time of one operator.
    pub host_s: Seconds,
    /// Time of a step outside passes, reduction and optimizer.
    pub step_s: Seconds,
    /// Share of a hideable collective that stays visible.
    #[serde(default)]
    pub overlap_loss: f64,
    /// Start-up of one collective beyond the link's latency.
    #[serde(default)]
    pub collective_s: Seconds,
    /// Time of flash attention relative to a causal kernel of the device's own library.
    pub attention: f64,
    /// Memory traffic of routing, dispatch and combine of experts.
    #[serde(default = "one")]
    pub routing: f64,
    /// What it was fitted on.
    #[serde(default)]
    pub basis: Basis,
}

/// A curve with its basis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FittedCurve {
    /// The curve.
    #[serde(flatten)]
    pub curve: Curve,
    /// What it was fitted on.
    #[serde(default)]
    pub basis: Basis,
}

fn one() -> f64 {
    1.0
}

/// A network with its basis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FittedLink {
    /// Share of the nominal rate that large messages reach.
    pub efficiency: f64,
    /// Latency of one hop.
    pub latency_s: Seconds,
    /// What it was fitted on.
    #[serde(default)]
    pub basis: Basis,
}

/// What a fit rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Basis {
    /// Calibration rows that depend on the entry.
    pub rows: u32,
    /// Mean absolute relative error that remains on them.
    pub residual: f64,
}

/// The calibration compiled in.
pub fn builtin() -> &'static Calibration {
    static PARSED: OnceLock<Calibration> = OnceLock::new();
    PARSED.get_or_init(|| toml::from_str(TABLE).expect("the compiled-in calibration parses"))
}

impl Calibration {
    /// The curve of a device: by name, else by architecture, else none departing from the catalogue.
    pub fn curve(&self, device: &DeviceType) -> &Curve {
        static PLAIN: OnceLock<Curve> = OnceLock::new();
        self.devices
            .get(&device.name)
            .or_else(|| self.devices.get(&device.architecture))
            .map_or_else(|| PLAIN.get_or_init(Curve::default), |f| &f.curve)
    }

    /// Whether a device or its architecture has an entry of its own.
    pub fn fitted(&self, device: &DeviceType) -> bool {
        self.devices.contains_key(&device.name) || self.devices.contains_key(&device.architecture)
    }
}
