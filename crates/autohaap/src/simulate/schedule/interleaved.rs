//! Several chunks a rank, stage `c * p + r` on rank `r`: Megatron's interleaved 1F1B, torch's variants, breadth first.
//!
//! Micro-batches run in groups of `g`: the group passes through the first chunk, then through the second, and so on.
//! Warm-up of rank r: `2 (p - r - 1) + (v - 1) g` forwards, at most all of them; backwards take the chunks in reverse.

use super::looped;
use crate::simulate::action::{Action, Order, Work};

/// Torch's group size: micro-batches over `max(1, m / p)` rounds; None where they do not divide.
pub fn torch_group(num_ranks: usize, micro_batches: u32) -> Option<u32> {
    let rounds = (micro_batches / num_ranks.max(1) as u32).max(1);
    (micro_batches > 0 && micro_batches.is_multiple_of(rounds)).then(|| micro_batches / rounds)
}

/// Whether Megatron accepts a group size: `p <= g <= m` and a last group that is empty or at least p.
pub fn legal_group(num_ranks: usize, micro_batches: u32, group: u32) -> bool {
    let p = num_ranks as u32;
    let rest = micro_batches.checked_rem(group);
    p <= group && group <= micro_batches && rest.is_some_and(|rest| rest == 0 || rest >= p)
}

/// (chunk, micro-batch) of every forward of a rank in order: groups of `group` micro-batches, chunk by chunk.
fn table(chunks: usize, micro_batches: u32, group: u32) -> Vec<(usize, u32)> {
    let group = group.max(1);
    let mut table = Vec::with_capacity(chunks * micro_batches as usize);
    let mut first = 0;
    while first < micro_batches {
        let end = (first + group).min(micro_batches);
        for chunk in 0..chunks {
            table.extend((first..end).map(|i| (chunk, i)));
        }
        first = end;
    }
    table
}

/// When the weight gradient of a split backward runs.
struct Split {
    /// Backwards that run before the first weight gradient.
    delay: usize,
}

/// One rank: warm-up, pairs of forward and backward, backwards left; weight gradients after their delay.
fn list(
    (rank, num_ranks): (usize, usize),
    chunks: usize,
    table: &[(usize, u32)],
    warm_up: usize,
    split: Option<&Split>,
) -> Vec<Action> {
    let stage = |chunk: usize| chunk * num_ranks + rank;
    let forward = |at: usize| {
        let (chunk, i) = table[at];
        Action::new(stage(chunk), Work::Forward, i)
    };
    let backward = |at: usize, work: Work| {
        let (chunk, i) = table[at];
        Action::new(stage(chunks - 1 - chunk), work, i)
    };
    let total = table.len();
    let warm_up = warm_up.min(total);
    let kind = if split.is_some() {
        Work::InputGrad
    } else {
        Work::Backward
    };
    let mut actions = Vec::with_capacity(total * if split.is_some() { 3 } else { 2 });
    actions.extend((0..warm_up).map(&forward));
    let mut weights = 0;
    for at in 0..total {
        if warm_up + at < total {
            actions.push(forward(warm_up + at));
        }
        actions.push(backward(at, kind));
        if split.is_some_and(|split| at >= split.delay) {
            actions.push(backward(weights, Work::WeightGrad));
            weights += 1;
        }
    }
    if split.is_some() {
        actions.extend((weights..total).map(|at| backward(at, Work::WeightGrad)));
    }
    actions
}

/// Megatron's interleaved 1F1B with groups of `group` micro-batches ([`legal_group`]); [`torch_group`] gives torch's.
pub fn interleaved(num_ranks: usize, chunks: usize, micro_batches: u32, group: u32) -> Order {
    let table = table(chunks, micro_batches, group);
    let warm_up = |rank: usize| 2 * (num_ranks - 1 - rank) + chunks.saturating_sub(1) * group as usize;
    Order {
        micro_batches,
        rank_of: looped(num_ranks, chunks),
        cut: None,
        ranks: (0..num_ranks)
            .map(|rank| list((rank, num_ranks), chunks, &table, warm_up(rank), None))
            .collect(),
    }
}

/// Torch's interleaved zero bubble: warm-up `(p - r - 1) + (v - 1) g`, weight gradients delayed by the rank.
pub fn interleaved_zero_bubble(num_ranks: usize, chunks: usize, micro_batches: u32, group: u32) -> Order {
    let table = table(chunks, micro_batches, group);
    let warm_up = |rank: usize| (num_ranks - 1 - rank) + chunks.saturating_sub(1) * group as usize;
    let one = |rank: usize| {
        let split = Split { delay: rank };
        list((rank, num_ranks), chunks, &table, warm_up(rank), Some(&split))
    };
    Order {
        micro_batches,
        rank_of: looped(num_ranks, chunks),
        cut: None,
        ranks: (0..num_ranks).map(one).collect(),
    }
}

/// ZB-H1 (torch's ZB1P): the warm-up of 1F1B, weight gradients delayed by the rank; p micro-batches live everywhere.
pub fn zb_h1(num_stages: usize, micro_batches: u32) -> Order {
    interleaved_zero_bubble(num_stages, 1, micro_batches, micro_batches)
}

/// Breadth first: every chunk takes all micro-batches before the next one starts.
pub fn looped_bfs(num_ranks: usize, chunks: usize, micro_batches: u32) -> Order {
    let one = |rank: usize| {
        let stages = (0..chunks).map(|chunk| chunk * num_ranks + rank);
        let forwards = stages
            .clone()
            .flat_map(|s| (0..micro_batches).map(move |i| Action::new(s, Work::Forward, i)));
        let backwards = stages.rev().flat_map(|s| {
            (0..micro_batches)
                .rev()
                .map(move |i| Action::new(s, Work::Backward, i))
        });
        forwards.chain(backwards).collect()
    };
    Order {
        micro_batches,
        rank_of: looped(num_ranks, chunks),
        cut: None,
        ranks: (0..num_ranks).map(one).collect(),
    }
}
