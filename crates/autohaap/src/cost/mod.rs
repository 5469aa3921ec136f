//! HOW LONG and HOW MUCH: times and memory of stages, pipelines and whole plans.
//!
//! * [`atom`]: time and memory of one atom on one replica, by phase and item (the *stage table* of search and price).
//! * [`memory`]: peak memory of a device, itemised; the same total from prefix sums.
//! * [`pipeline`]: time of an asymmetric 1F1B pipeline: closed forms, exact event order, lower bounds.
//! * [`price`]: a placed plan to a [`crate::plan::Prediction`], itemised.
//! * [`reference`]: published formulas of other sources, for comparison only; nothing above uses them.

pub mod atom;
pub mod memory;
pub mod pipeline;
pub mod price;
pub mod reference;
