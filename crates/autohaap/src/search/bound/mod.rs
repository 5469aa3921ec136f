//! Lower bounds of the step time over every plan of the space.
//!
//! [`capacity`] is the start value: a linear program over classes and atoms without pipelines. [`Prover`] refutes step
//! times by duality over pipeline templates, with fill, depth and memory.

mod capacity;
mod duality;
mod labels;
mod pricing;
mod stages;
mod whole;

pub(super) use capacity::{capacity, price_guesses};
pub(super) use duality::Prover;
pub(super) use pricing::Relaxation;
