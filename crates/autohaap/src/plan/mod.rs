//! THE NOUN: a plan says which devices hold which atoms, how the batch is split and in which order work runs.
//!
//! A plan file is self-sufficient: it embeds the resolved model, cluster and training settings. [`Plan::build`] makes a
//! plan from parts, [`Plan::from_json`] and [`Plan::to_json`] read and write the file, [`check()`] proves that any plan
//! is complete and legal, and [`conservation()`] shows the proof in numbers.

mod build;
mod check;
mod conservation;
mod io;
mod limits;
mod locate;
mod schema;
mod types;
pub mod uniform;

pub use check::{Violation, advise, check, check_layout};
pub use conservation::{
    Conservation, DeviceConservation, PipelineConservation, StageConservation, TiedPartner, conservation,
};
pub use limits::{
    MAX_ATOMS, MAX_DEGREE, MAX_DEVICES, MAX_IN_FLIGHT, MAX_PLAN_BYTES, MAX_SEQUENCES, MAX_SHAPE, MAX_STAGES,
    MAX_TYPES,
};
pub use locate::locate;
pub use schema::PLAN_SCHEMA_TEXT;
#[cfg(feature = "schema")]
pub use schema::schema_json;
pub use types::*;
