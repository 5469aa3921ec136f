//! THE NOUN: a plan says which devices hold which atoms, how the batch is split and in which order work runs.
//!
//! A plan file is self-sufficient: it embeds the resolved model, cluster and training settings. [`Plan::build`] makes a
//! plan from parts, [`Plan::from_json`] and [`Plan::to_json`] read and write the file.

mod build;
mod io;
mod locate;
mod types;
pub mod uniform;

pub use io::{MAX_ATOMS, MAX_DEVICES, MAX_PLAN_BYTES, MAX_SEQUENCES, MAX_STAGES, MAX_TYPES};
pub use locate::locate;
pub use types::*;
