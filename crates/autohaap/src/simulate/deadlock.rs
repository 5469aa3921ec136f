//! Ranks that wait for each other in a circle.

use super::action::{Action, Work};
use crate::error::{Problem, simulate as codes};

/// What a rank waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wait {
    pub(super) pipeline: usize,
    pub(super) rank: usize,
    /// The action that cannot run (or whose result finds no taker).
    pub(super) action: Action,
    /// Lane and rank waited for.
    pub(super) on: usize,
    pub(super) on_rank: usize,
    /// Stage, direction (forward?) and micro-batch of the transfer.
    pub(super) needs: (usize, bool, u32),
}

/// The circle that starts at a stuck lane, as a problem. `waits` has one entry per lane; None: finished.
pub(super) fn problem(waits: &[Option<Wait>], stuck: usize) -> Problem {
    let mut path: Vec<usize> = Vec::new();
    let mut at = stuck;
    let circle = loop {
        if let Some(start) = path.iter().position(|&lane| lane == at) {
            break &path[start..];
        }
        let Some(wait) = waits.get(at).and_then(Option::as_ref) else {
            break &path[..];
        };
        path.push(at);
        at = wait.on;
    };
    let parts: Vec<String> = circle
        .iter()
        .filter_map(|&lane| waits[lane].as_ref())
        .map(|wait| {
            let (stage, forward, i) = wait.needs;
            let work = if forward { Work::Forward } else { Work::Backward };
            format!(
                "rank {} stands at `{}` and waits for `{stage}{}{i}` of rank {}",
                wait.rank,
                wait.action,
                work.letter(),
                wait.on_rank
            )
        })
        .collect();
    let pipeline = waits
        .get(stuck)
        .and_then(Option::as_ref)
        .map_or(0, |w| w.pipeline);
    Problem::new(
        &codes::SCHEDULE_DEADLOCK,
        format!("pipelines[{pipeline}]"),
        format!("the schedule deadlocks: {}", parts.join("; ")),
    )
    .hint("let every rank produce what another waits for before it waits itself: in-flight limits must not rise downstream")
}
