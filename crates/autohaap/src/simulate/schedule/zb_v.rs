//! ZB-V: two chunks a rank, the chain goes down the ranks and back up; the backward is split.

use super::folded;
use crate::simulate::action::{Action, Order, Work};

/// A rank's list with its counters.
struct Rank {
    /// Stage of each chunk.
    stage: [usize; 2],
    micro_batches: u32,
    /// Next micro-batch per chunk: forward, input gradient, weight gradient.
    next: [[u32; 3]; 2],
    actions: Vec<Action>,
}

impl Rank {
    fn push(&mut self, work: Work, chunk: usize) {
        let slot = match work {
            Work::Forward => 0,
            Work::Backward | Work::InputGrad => 1,
            Work::WeightGrad => 2,
        };
        let i = self.next[chunk][slot];
        self.next[chunk][slot] += 1;
        // The pattern needs 2p - 1 micro-batches; those beyond the real number are left out.
        if i < self.micro_batches {
            self.actions.push(Action::new(self.stage[chunk], work, i));
        }
    }

    fn both(&mut self, chunk: usize) {
        self.push(Work::InputGrad, chunk);
        self.push(Work::WeightGrad, chunk);
    }
}

/// Stage r and stage 2p - 1 - r on rank r (torch's `ZBVZeroBubble`).
pub fn zb_v(num_ranks: usize, micro_batches: u32) -> Order {
    let one = |r: usize| {
        let needed = micro_batches.max(2 * num_ranks as u32 - 1);
        let mut rank = Rank {
            stage: [r, 2 * num_ranks - 1 - r],
            micro_batches,
            next: [[0; 3]; 2],
            actions: Vec::with_capacity(6 * micro_batches as usize),
        };
        for _ in 0..2 * (num_ranks - r) - 1 {
            rank.push(Work::Forward, 0);
        }
        for _ in 0..r {
            rank.push(Work::Forward, 1);
            rank.push(Work::Forward, 0);
        }
        for _ in 0..num_ranks - r {
            rank.push(Work::Forward, 1);
            rank.both(1);
        }
        while rank.next[1][0] < rank.next[0][0] || rank.next[0][0] < needed {
            if rank.next[0][0] < needed {
                rank.push(Work::Forward, 0);
            }
            rank.both(0);
            rank.push(Work::Forward, 1);
            rank.both(1);
        }
        for _ in 0..r {
            rank.push(Work::InputGrad, 0);
            rank.push(Work::InputGrad, 1);
        }
        for _ in 0..num_ranks - r {
            rank.push(Work::InputGrad, 0);
            rank.push(Work::WeightGrad, 0);
        }
        for chunk in [1, 0] {
            while rank.next[chunk][2] < rank.next[chunk][1] {
                rank.push(Work::WeightGrad, chunk);
            }
        }
        rank.actions
    };
    Order {
        micro_batches,
        rank_of: folded(num_ranks),
        cut: None,
        ranks: (0..num_ranks).map(one).collect(),
    }
}
