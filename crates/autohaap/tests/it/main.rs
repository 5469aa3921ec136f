//! Promises that hold across modules, one file each.

mod brute_equals_search;
mod cluster;
mod cluster_devices;
mod cluster_file;
mod cluster_hostile;
mod cluster_network;
mod cost_atom;
mod cost_memory;
mod cost_oracles;
mod cost_price;
mod cost_support;
mod model;
mod mutations;
mod pipeline;
mod plan;
mod plan_cases;
mod plan_hostile;
mod plan_io;
mod plan_rules;
mod report;
mod search_generator;
mod search_properties;
mod simulate_engine;
mod simulate_oracles;
mod simulate_plans;
mod validate;
