//! HOW FAST: rates of operators on a device, with the provenance and relative error of each.
//!
//! Resolution order: measured -> interpolated -> scaled -> transferred -> fitted -> roofline. Without measured tables the
//! last two remain: a published matmul rate makes a device `fitted`, a datasheet alone `roofline`.

use crate::cluster::{DeviceType, Precision};
use crate::model::OperatorClass;
use crate::units::{ByteRate, FlopRate, Seconds};

/// Launch and tail of one kernel: the low end of the measured 2-17 us, as kernels of a layer queue behind each other.
pub const LAUNCH: Seconds = Seconds(4e-6);

/// A weight-gradient product writes fp32 and reads both operands across rows: 0.85 of the forward rate until measured
/// (0.62 / 0.79 on one published shape, 10-20 % over several).
pub const WEIGHT_GRAD_SHARE: f64 = 0.85;

/// Size of a matrix dimension at which a product reaches half of its plateau along that dimension.
const HALF_RATE: f64 = 64.0;

/// Where a time comes from, in falling order of trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// From a published matmul rate of the device and a default curve.
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
            Self::Fitted => "fitted",
            Self::AlphaBeta => "alpha-beta",
            Self::Roofline => "roofline",
        }
    }
    /// Relative standard error of the step (working defaults until calibrated).
    pub fn sigma(self) -> f64 {
        match self {
            Self::Fitted => 0.10,
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
    /// Grouped expert products.
    pub expert: FlopRate,
    /// Attention core.
    pub attention: FlopRate,
    /// Memory-bound work.
    pub memory: ByteRate,
    /// Where the compute rates come from.
    pub step: Step,
}

impl Rates {
    /// Rates of a device at `speed_factor` times its nominal speed. An unsupported precision runs at the fp32 rate, which
    /// `check` reports; a device without any peak gets a rate of 1 FLOP/s, so that it is never chosen.
    pub fn of(device: &DeviceType, precision: Precision, speed_factor: f64) -> Self {
        let peak = device
            .peak(precision)
            .or_else(|| device.peak(Precision::Fp32))
            .map_or(1.0, |p| p.value.0);
        let share = |class| device.efficiency.get(&class).map_or(0.5, |e| e.value);
        let rate = |class| FlopRate(peak * share(class) * speed_factor);
        Self {
            gemm: rate(OperatorClass::Gemm),
            expert: rate(OperatorClass::ExpertGemm),
            attention: rate(OperatorClass::Attention),
            memory: ByteRate(device.memory_bandwidth.value.0 * share(OperatorClass::Memory) * speed_factor),
            step: if device.measured_peak.is_some() {
                Step::Fitted
            } else {
                Step::Roofline
            },
        }
    }
}

/// Share of the plateau that an `m x n x k` product reaches: `x / (x + 64)` along each dimension.
pub fn gemm_share(m: f64, n: f64, k: f64) -> f64 {
    let along = |x: f64| x / (x + HALF_RATE);
    along(m) * along(n) * along(k)
}
