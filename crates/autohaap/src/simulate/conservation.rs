//! Every forward and every backward exactly once, on one rank, in a possible order.

use super::action::{Order, Work};
use crate::error::{Problem, Problems, simulate as codes};

/// Most violations that are listed.
const LISTED: usize = 12;

const FORWARD: u8 = 1;
const INPUT: u8 = 2;
const WEIGHT: u8 = 4;

/// Proves that an order runs each micro-batch of each stage exactly once: `F` then `B`, or `F` then `I` then `W`, all on
/// the rank that holds the stage; overlapped pairs are two actions of different stages.
///
/// # Errors
/// All violations (the first of many), each with the action.
pub fn conserves(order: &Order, path: &str) -> Result<(), Problems> {
    let m = order.micro_batches as usize;
    let mut problems = Problems::new();
    let mut more = 0_usize;
    let mut report = |message: String| {
        if problems.0.len() < LISTED {
            problems.push(
                Problem::new(&codes::WRONG_SCHEDULE, path, message)
                    .hint("every stage and micro-batch: one F, then one B or one I and one W"),
            );
        } else {
            more += 1;
        }
    };
    let mut done = vec![0_u8; order.num_stages() * m];
    for (rank, actions) in order.ranks.iter().enumerate() {
        for (at, action) in actions.iter().enumerate() {
            let (stage, i) = (usize::from(action.stage), action.micro_batch as usize);
            if stage >= order.num_stages() || i >= m {
                report(format!("`{action}` of rank {rank} is not in the pipeline"));
                continue;
            }
            if order.rank_of[stage] != rank {
                report(format!(
                    "`{action}` is on rank {rank}, but the stage is on rank {}",
                    order.rank_of[stage]
                ));
            }
            let cell = &mut done[stage * m + i];
            let (needs, gives) = match action.work {
                Work::Forward => (0, FORWARD),
                Work::Backward => (FORWARD, INPUT | WEIGHT),
                Work::InputGrad => (FORWARD, INPUT),
                Work::WeightGrad => (FORWARD | INPUT, WEIGHT),
            };
            if *cell & gives != 0 {
                report(format!("`{action}` of rank {rank} runs a second time"));
            } else if *cell & needs != needs {
                let before = if *cell & FORWARD == 0 { 'F' } else { 'I' };
                report(format!(
                    "`{action}` of rank {rank} runs before `{stage}{before}{i}`"
                ));
            }
            *cell |= gives;
            let partner = actions.get(at + 1);
            if action.with_next
                && !partner.is_some_and(|next| {
                    !next.with_next && (next.work == Work::Forward) != (action.work == Work::Forward)
                })
            {
                report(format!(
                    "`{action}` of rank {rank} overlaps with nothing of the other direction"
                ));
            }
        }
    }
    for (cell, &seen) in done.iter().enumerate() {
        let missing = match seen {
            s if s & FORWARD == 0 => 'F',
            s if s & INPUT == 0 => 'B',
            s if s & WEIGHT == 0 => 'W',
            _ => continue,
        };
        report(format!("`{}{missing}{}` is missing", cell / m, cell % m));
    }
    if let Some(last) = problems.0.last_mut()
        && more > 0
    {
        last.message.push_str(&format!(" (and {more} more violations)"));
    }
    problems.or(())
}
