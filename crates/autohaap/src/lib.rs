//! `autohaap` finds the fastest asymmetric hybrid-parallel training plan for a large language model on a cluster of
//! mixed accelerators, proves how close to optimal it is and predicts time and memory per device.
//!
//! ```text
//! config.json  -> model   ┐
//! cluster.toml -> cluster ├-> search (calls cost) -> Plan -> { check, estimate, report, ... }
//! data         -> profile ┘
//! ```
//!
//! Modules stand in the order of the data flow; a module uses earlier ones only (`cargo xtask layers` checks it).

// Unit tests share the instance generator of the integration tests.
#[cfg(test)]
extern crate self as autohaap;

pub mod units;

pub mod error;

pub mod model;

pub mod cluster;

pub mod profile;

pub mod plan;

pub mod engine;

pub mod cost;

pub mod simulate;

pub mod search;

pub mod validate;

pub mod replan;

pub mod launch;

pub mod report;
