//! What a caller of the search gives and gets.

use std::time::Duration;

use super::restriction::NamedSpace;
use crate::plan::{Pipeline, Plan};
use crate::units::Seconds;

/// How the search runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchOptions {
    /// Method.
    pub method: Method,
    /// Stop when (step - bound) / step is at most this.
    pub gap: Option<f64>,
    /// How many alternatives (losers) to report.
    pub top: usize,
    /// Seed of tie-breaking moves.
    pub seed: u64,
    /// ZeRO levels to try.
    pub zero: Vec<u8>,
    /// Largest micro-batch size to try, sequences.
    pub max_micro_batch: u32,
    /// Answer only with plans of this space; `None` is the full one.
    pub space: Option<&'static NamedSpace>,
    /// Pipelines of a known plan to start from; those that the cluster cannot hold are left out.
    pub start: Vec<Pipeline>,
    /// Answer soon: fewer rounds, the bound by capacity only, no alternatives of device groups.
    pub quick: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            method: Method::Auto,
            gap: None,
            top: 3,
            seed: 0,
            zero: vec![1],
            max_micro_batch: 16,
            space: None,
            start: Vec::new(),
            quick: false,
        }
    }
}

/// Search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By cluster size.
    Auto,
    /// Enumerate everything (tiny inputs).
    Brute,
}

/// The only place where clock and interrupt enter the search.
pub trait Budget: Sync {
    /// Whether to stop now and answer with the best so far.
    fn stop(&self) -> Option<StopReason>;
    /// Time since the search began (for records only, never for decisions).
    fn elapsed(&self) -> Duration;
    /// Progress for people.
    fn progress(&self, _event: &Progress) {}
}

/// A progress report.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Phase of the search.
    pub phase: &'static str,
    /// Best step time so far.
    pub best: Option<Seconds>,
    /// Best bound so far.
    pub bound: Option<Seconds>,
    /// Plans and templates priced.
    pub scored: u64,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The search space is exhausted or the work budget spent.
    Finished,
    /// The gap asked for is reached.
    Gap,
    /// The user's time limit.
    TimeLimit,
    /// Ctrl-C.
    Interrupted,
}

/// The negative answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Infeasible {
    /// True when no plan of the space can exist; false when only the limit was hit.
    pub proven: bool,
    /// Why, for example `training states need 1.1 TiB, the cluster holds 0.6 TiB`.
    pub reasons: Vec<String>,
    /// Smallest changes that would make a plan possible, for example `--global-batch 8`.
    pub relaxations: Vec<String>,
    /// Why the search ended.
    pub stop: Option<StopReason>,
}

/// Outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The best plan, with prediction, search record and alternatives filled in.
    Found(Box<Plan>),
    /// No plan.
    Infeasible(Infeasible),
}
