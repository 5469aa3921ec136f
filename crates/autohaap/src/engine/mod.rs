//! WHO RUNS IT: what a training engine does by itself, as data (`data/engines`): overlap, transfers at stage boundaries,
//! kernels, loss, memory besides the tensors, and what its printed FLOPs count.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::plan::{EngineSemantics, Kernels, Overlap, PointToPointMode};
use crate::profile::calibration::{self, Calibration};

const TABLE: &str = include_str!("../../../../data/engines/engines.toml");

/// One engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Short name.
    pub id: String,
    /// Words in the names of frameworks that mean this engine.
    pub words: Vec<String>,
    /// Whether stage boundaries block.
    pub p2p: PointToPointMode,
    /// What is overlapped with compute.
    pub overlap: Overlap,
    /// Whether attention is a flash kernel where the device has one.
    pub flash: bool,
    /// What its kernels cost besides the arithmetic.
    #[serde(default)]
    pub kernels: Kernels,
    /// Copies of the fp32 logits alive at the peak of the loss.
    pub loss_copies: f64,
    /// Memory outside the allocator: context, communicators, libraries; GiB.
    pub context_gib: f64,
    /// Share by which the allocator's reserved memory exceeds the allocated peak.
    pub fragmentation: f64,
    /// What the engine's own TFLOP/s figure counts.
    pub flops: String,
    /// Where the semantics are documented.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    engine: Vec<Engine>,
}

impl Engine {
    /// The semantics as a plan carries them, with the fitted kernels where they are known.
    pub fn semantics(&self) -> EngineSemantics {
        EngineSemantics {
            p2p: self.p2p,
            overlap: self.overlap,
            kernels: self.fitted(calibration::builtin()),
        }
    }

    /// The kernels under a calibration.
    pub fn fitted(&self, calibration: &Calibration) -> Kernels {
        match calibration.engines.get(&self.id) {
            None => self.kernels,
            Some(fit) => Kernels {
                elementwise: fit.elementwise,
                host_s: fit.host_s,
                step_s: fit.step_s,
                overlap_loss: fit.overlap_loss,
                collective_s: fit.collective_s,
                attention: fit.attention,
                routing: fit.routing,
                ..self.kernels
            },
        }
    }
}

/// All engines, in the order in which words are matched.
pub fn engines() -> &'static [Engine] {
    static PARSED: OnceLock<Vec<Engine>> = OnceLock::new();
    PARSED.get_or_init(|| {
        toml::from_str::<Table>(TABLE)
            .expect("the compiled-in engine table parses")
            .engine
    })
}

/// The engine that the name of a framework means.
pub fn engine_of(framework: &str) -> Option<&'static Engine> {
    let name = framework.to_ascii_lowercase();
    engines()
        .iter()
        .find(|e| e.words.iter().any(|w| name.contains(&w.to_ascii_lowercase())))
}
