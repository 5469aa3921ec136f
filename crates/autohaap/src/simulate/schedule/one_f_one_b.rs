//! 1F1B with free in-flight depths, one per stage.

use crate::simulate::action::{Action, Order, Work};

/// `in_flight[s]` forwards (W), then one backward and one forward alternately, then the backwards left. Depths below 1
/// count as 1, above `micro_batches` as that many. Depths that rise downstream deadlock.
pub fn one_f_one_b(in_flight: &[u32], micro_batches: u32) -> Order {
    let list = |(stage, &depth): (usize, &u32)| {
        let warm_up = (depth.max(1) - 1).min(micro_batches);
        let mut actions = Vec::with_capacity(2 * micro_batches as usize);
        actions.extend((0..warm_up).map(|i| Action::new(stage, Work::Forward, i)));
        for i in warm_up..micro_batches {
            actions.push(Action::new(stage, Work::Forward, i));
            actions.push(Action::new(stage, Work::Backward, i - warm_up));
        }
        let done = micro_batches - warm_up;
        actions.extend((done..micro_batches).map(|i| Action::new(stage, Work::Backward, i)));
        actions
    };
    Order {
        micro_batches,
        rank_of: (0..in_flight.len()).collect(),
        cut: None,
        ranks: in_flight.iter().enumerate().map(list).collect(),
    }
}

/// Depths of eager 1F1B: `2 (p - 1 - s) + 1`, which hide links up to half a stage's time.
pub fn eager_depths(num_stages: usize) -> Vec<u32> {
    (0..num_stages as u32).rev().map(|after| 2 * after + 1).collect()
}
