//! RUN IT: what a plan needs to be executed by the reference runtime (`python/autohaap`, on torch.distributed).
//!
//! A run is a folder: `plan.json`, `run.json` for the ranks, one log per rank, `steps.jsonl`, traces and checkpoints. This
//! module makes its contents as values; the command writes files and starts processes.

mod measured;
mod package;
mod ranks;
mod refuse;
mod scripts;
mod times;
mod training_file;

pub use measured::{MEASURED, Measured, Spans, StageTimes, profile};
pub use package::{PACKAGE, TORCH};
pub use ranks::{Rank, ranks};
pub use refuse::refuse;
pub use scripts::{Script, scripts};
pub use times::virtual_times;
pub use training_file::{DataSection, ModelSection, OptimizerSection, RunSection, TrainingFile};
