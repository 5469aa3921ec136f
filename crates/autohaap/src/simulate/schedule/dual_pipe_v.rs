//! DualPipe and DualPipe-V: two chunks a rank (both directions, or a V); in the main part a forward of one chunk runs together with a backward of the
//! other, so that communication hides under compute.

use std::collections::VecDeque;

use super::folded;
use crate::simulate::action::{Action, Order, Work};

/// A rank's list with its counters.
struct Rank {
    /// Stage of each chunk.
    stage: [usize; 2],
    /// Next forward and next backward per chunk.
    forward: [u32; 2],
    backward: [u32; 2],
    /// Weight gradients put off.
    pending: VecDeque<(usize, u32)>,
    actions: Vec<Action>,
}

impl Rank {
    fn forward(&mut self, chunk: usize) {
        let action = Action::new(self.stage[chunk], Work::Forward, self.forward[chunk]);
        self.actions.push(action);
        self.forward[chunk] += 1;
    }

    fn backward(&mut self, chunk: usize, split: bool) {
        let (stage, i) = (self.stage[chunk], self.backward[chunk]);
        self.backward[chunk] += 1;
        let work = if split {
            self.pending.push_back((stage, i));
            Work::InputGrad
        } else {
            Work::Backward
        };
        self.actions.push(Action::new(stage, work, i));
    }

    fn weight(&mut self) {
        if let Some((stage, i)) = self.pending.pop_front() {
            self.actions.push(Action::new(stage, Work::WeightGrad, i));
        }
    }

    fn overlapped(&mut self, forward: usize, backward: usize) {
        self.forward(forward);
        if let Some(action) = self.actions.last_mut() {
            action.with_next = true;
        }
        self.backward(backward, false);
    }
}

/// The list of the rank `r` of `num_ranks` down the V (or into the middle of DualPipe): eight phases.
fn list(stage: [usize; 2], r: usize, num_ranks: usize, main: usize) -> Vec<Action> {
    let after = num_ranks - 1 - r;
    let mut rank = Rank {
        stage,
        forward: [0; 2],
        backward: [0; 2],
        pending: VecDeque::new(),
        actions: Vec::with_capacity(5 * (main + 2 * num_ranks)),
    };
    for _ in 0..2 * after {
        rank.forward(0);
    }
    for _ in 0..=r {
        rank.forward(0);
        rank.forward(1);
    }
    for _ in 0..after {
        rank.backward(1, true);
        rank.weight();
        rank.forward(1);
    }
    for turn in 0..=main + r {
        if turn == 0 && after == 0 {
            // Not overlapped: shortens the bubble.
            rank.forward(0);
            rank.backward(1, false);
        } else {
            rank.overlapped(0, 1);
        }
        rank.overlapped(1, 0);
    }
    for _ in 0..after {
        rank.backward(1, false);
        rank.overlapped(1, 0);
    }
    let half = r.div_ceil(2);
    let mut split = false;
    for turn in 0..=r {
        split |= turn == half && r % 2 == 1;
        rank.backward(1, split);
        split |= turn == half && r.is_multiple_of(2);
        rank.backward(0, split);
    }
    for _ in 0..after {
        rank.weight();
        rank.backward(0, split);
    }
    for _ in 0..=r {
        rank.weight();
    }
    rank.actions
}

/// Stage r and stage 2p - 1 - r on rank r (torch's `DualPipeV`); at least 2p micro-batches, else None.
pub fn dual_pipe_v(num_ranks: usize, micro_batches: u32) -> Option<Order> {
    let main = (micro_batches as usize).checked_sub(2 * num_ranks)?;
    let one = |r: usize| list([r, 2 * num_ranks - 1 - r], r, num_ranks, main);
    Some(Order {
        micro_batches,
        rank_of: folded(num_ranks),
        cut: None,
        ranks: (0..num_ranks).map(one).collect(),
    })
}

/// DualPipe: half of the micro-batches run from rank 0 to the last, the other half from the last to rank 0, and every rank
/// holds a stage of both directions. Stages 0 to p - 1 are the first direction, p to 2p - 1 the second, each with
/// micro-batches 0 to m / 2 - 1. An even number of ranks, an even m of at least 2p, else None.
///
/// Ranks r and p - 1 - r run the list of rank r of a DualPipe-V over p / 2 ranks: that schedule is this one cut in half.
pub fn dual_pipe(num_ranks: usize, micro_batches: u32) -> Option<Order> {
    if num_ranks == 0 || !num_ranks.is_multiple_of(2) || !micro_batches.is_multiple_of(2) {
        return None;
    }
    let main = (micro_batches as usize / 2).checked_sub(num_ranks)?;
    let half = num_ranks / 2;
    let one = |r: usize| {
        let (first, second) = (r, 2 * num_ranks - 1 - r);
        if r < half {
            list([first, second], r, half, main)
        } else {
            list([second, first], num_ranks - 1 - r, half, main)
        }
    };
    Some(Order {
        micro_batches: micro_batches / 2,
        rank_of: folded(num_ranks),
        cut: Some(num_ranks - 1),
        ranks: (0..num_ranks).map(one).collect(),
    })
}
