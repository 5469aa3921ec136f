//! GPipe: all forwards, then all backwards.

use crate::simulate::action::{Action, Order, Work};

/// Order of GPipe's backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backwards {
    /// Last micro-batch first, as the paper draws it.
    Reversed,
    /// First micro-batch first, as torch runs it.
    InOrder,
}

/// All forwards, then all backwards. The time is the same in both orders when every micro-batch takes the same time.
pub fn gpipe(num_stages: usize, micro_batches: u32, backwards: Backwards) -> Order {
    let list = |stage: usize| {
        let forward = (0..micro_batches).map(|i| Action::new(stage, Work::Forward, i));
        let backward = (0..micro_batches).map(|i| {
            let i = match backwards {
                Backwards::Reversed => micro_batches - 1 - i,
                Backwards::InOrder => i,
            };
            Action::new(stage, Work::Backward, i)
        });
        forward.chain(backward).collect()
    };
    Order {
        micro_batches,
        rank_of: (0..num_stages).collect(),
        cut: None,
        ranks: (0..num_stages).map(list).collect(),
    }
}
