//! THE NOUN: a plan says which devices hold which atoms, how the batch is split and in which order work runs.
//!
//! A plan file is self-sufficient: it embeds the resolved model, cluster and training settings.

mod types;

pub use types::*;
