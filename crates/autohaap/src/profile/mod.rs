//! HOW FAST: rates of operators on a device, with the provenance and relative error of each.
//!
//! Resolution order: measured -> interpolated -> scaled -> transferred -> fitted -> roofline. [`folder`] reads and writes
//! measured tables, [`import`] those of other tools, and [`attach`] gives them to a cluster. Without them the last two
//! steps remain: a published matmul rate or a fitted curve makes a device `fitted`, a datasheet alone `roofline`.
//!
//! Fitted figures are data: [`calibration`] reads `data/calibration`, and a device may carry its own [`Curve`].

mod attach;
pub mod calibration;
pub mod folder;
pub mod import;
pub mod nccl;
mod npy;

pub use attach::{attach, model_hash};

use crate::cluster::{Curve, DeviceType, Precision, Provenance};
use crate::model::OperatorClass;
use crate::units::{ByteRate, FlopRate, Seconds};

/// Where a time comes from, in falling order of trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Measured at this very setting.
    Measured,
    /// Between two measured settings.
    Interpolated,
    /// From a measured setting of the same device by the ratio of the model's times.
    Scaled,
    /// From another device by the ratio of the model's times.
    Transferred,
    /// From a published matmul rate of the device and a fitted or default curve.
    Fitted,
    /// Link latency and bandwidth.
    AlphaBeta,
    /// From datasheet peaks and architecture defaults.
    Roofline,
}

impl Step {
    /// Name in plans and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Interpolated => "interpolated",
            Self::Scaled => "scaled",
            Self::Transferred => "transferred",
            Self::Fitted => "fitted",
            Self::AlphaBeta => "alpha-beta",
            Self::Roofline => "roofline",
        }
    }
    /// Relative standard error of the step (working defaults until calibrated).
    pub fn sigma(self) -> f64 {
        match self {
            Self::Measured => 0.02,
            Self::Interpolated => 0.07,
            Self::Scaled => 0.08,
            Self::Transferred | Self::Fitted => 0.10,
            Self::AlphaBeta => 0.15,
            Self::Roofline => 0.25,
        }
    }
}

/// Rates of one device at one precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Dense products on their plateau.
    pub gemm: FlopRate,
    /// Dense products that stay in 16 bits where blocks run in 8: logits, router.
    pub gemm_wide: FlopRate,
    /// Grouped expert products.
    pub expert: FlopRate,
    /// Attention core (in 16 bits where blocks run in 8).
    pub attention: FlopRate,
    /// Memory-bound work.
    pub memory: ByteRate,
    /// Launch and tail of one kernel.
    pub launch: Seconds,
    /// Rate of weight-gradient products over that of forward ones.
    pub weight_grad: f64,
    /// Rate of dense products in training over that of published kernel tables: power, heat, what runs beside them.
    pub sustained: f64,
    /// Half-rate size of a matrix dimension.
    pub half: f64,
    /// Where the compute rates come from.
    pub step: Step,
}

impl Rates {
    /// Rates of a device at `speed_factor` times its nominal speed. An unsupported precision runs at the fp32 rate, which
    /// `check` reports; a device without any peak gets a rate of 1 FLOP/s, so that it is never chosen.
    ///
    /// Fitted factors apply to efficiencies that are the catalogue's; a figure of the user stands as it is.
    pub fn of(device: &DeviceType, precision: Precision, speed_factor: f64) -> Self {
        let looked_up;
        let curve: &Curve = match &device.curve {
            Some(own) => own,
            None => {
                looked_up = calibration::builtin().curve(device);
                looked_up
            }
        };
        let peak = |precision| {
            device
                .peak(precision)
                .or_else(|| device.peak(Precision::Fp32))
                .map_or(1.0, |p| p.value.0)
        };
        let share = |class, factor: f64| match device.efficiency.get(&class) {
            Some(e) if e.from == Provenance::User || e.from == Provenance::Imported => e.value,
            Some(e) => e.value * factor,
            None => 0.5 * factor,
        };
        let wide = match precision {
            Precision::Fp8 if device.supports(Precision::Bf16) => Precision::Bf16,
            Precision::Fp8 => Precision::Fp16,
            other => other,
        };
        let narrow = if precision == Precision::Fp8 {
            curve.fp8
        } else {
            1.0
        };
        let rate =
            |class, factor: f64, precision| FlopRate(peak(precision) * share(class, factor) * speed_factor);
        Self {
            gemm: rate(OperatorClass::Gemm, narrow, precision),
            gemm_wide: rate(OperatorClass::Gemm, 1.0, wide),
            expert: rate(OperatorClass::ExpertGemm, curve.expert * narrow, precision),
            attention: rate(OperatorClass::Attention, curve.attention, wide),
            memory: ByteRate(
                device.memory_bandwidth.value.0 * share(OperatorClass::Memory, curve.memory) * speed_factor,
            ),
            launch: curve.launch_s,
            weight_grad: curve.weight_grad,
            sustained: curve.gemm,
            half: curve.half,
            step: if device.measured_peak.is_some() || calibration::builtin().fitted(device) {
                Step::Fitted
            } else {
                Step::Roofline
            },
        }
    }

    /// Share of the plateau that an `m x n x k` product reaches: `x / (x + half)` along each dimension.
    pub fn gemm_share(&self, m: f64, n: f64, k: f64) -> f64 {
        let along = |x: f64| x / (x + self.half);
        along(m) * along(n) * along(k)
    }
}
