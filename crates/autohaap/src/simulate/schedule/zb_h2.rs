//! Zero-bubble orders made for the stages' real times: input gradients first, then forwards up to a limit, weight
//! gradients where a rank would idle. ZB-H2 is the limit of two micro-batches per stage downstream.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::simulate::action::{Action, Order, Work};
use crate::simulate::program::StageWork;

/// A rank while its list grows.
struct Rank {
    free: f64,
    /// Next forward, input gradient and weight gradient.
    next: [u32; 3],
    /// Arrival of the input of each forward and of each backward.
    arrivals: [Vec<f64>; 2],
    actions: Vec<Action>,
    asleep: bool,
}

impl Rank {
    /// When the next action of a kind may start; None: its input is not on the way, or the limit is reached.
    fn at(&self, work: Work, limit: u32, m: u32) -> Option<f64> {
        let [f, i, w] = self.next;
        match work {
            Work::Forward if f < m && f - w < limit => self.arrivals[0].get(f as usize).copied(),
            Work::InputGrad if i < f => self.arrivals[1].get(i as usize).copied(),
            Work::WeightGrad if w < i => Some(self.free),
            _ => None,
        }
    }
}

/// A greedy order for stages with times (`input_grad`, `weight_grad`) and (forward, backward) links to the next stage. At
/// most `limits[s]` micro-batches are live on stage s.
pub fn zero_bubble(stages: &[StageWork], links: &[(f64, f64)], limits: &[u32], micro_batches: u32) -> Order {
    let p = stages.len();
    let m = micro_batches;
    let mut ranks: Vec<Rank> = (0..p)
        .map(|s| Rank {
            free: 0.0,
            next: [0; 3],
            arrivals: [
                if s == 0 { vec![0.0; m as usize] } else { Vec::new() },
                Vec::new(),
            ],
            actions: Vec::with_capacity(3 * m as usize),
            asleep: false,
        })
        .collect();
    // Non-negative times order like their bits.
    let key = |time: f64, s: usize| Reverse((time.max(0.0).to_bits(), s));
    let mut queue: BinaryHeap<Reverse<(u64, usize)>> = (0..p).map(|s| key(0.0, s)).collect();
    while let Some(Reverse((bits, s))) = queue.pop() {
        let now = f64::from_bits(bits);
        let limit = limits.get(s).copied().unwrap_or(1).max(1);
        let rank = &mut ranks[s];
        let ready = |rank: &Rank, work| rank.at(work, limit, m).filter(|&t| t <= now);
        let work = if ready(rank, Work::InputGrad).is_some() {
            Work::InputGrad
        } else if ready(rank, Work::Forward).is_some() {
            Work::Forward
        } else if ready(rank, Work::WeightGrad).is_some() {
            Work::WeightGrad
        } else {
            let coming = [Work::InputGrad, Work::Forward]
                .into_iter()
                .filter_map(|work| rank.at(work, limit, m))
                .reduce(f64::min);
            match coming {
                Some(time) => queue.push(key(time, s)),
                None => rank.asleep = true,
            }
            continue;
        };
        let slot = match work {
            Work::Forward => 0,
            Work::InputGrad | Work::Backward => 1,
            Work::WeightGrad => 2,
        };
        let i = rank.next[slot];
        rank.next[slot] += 1;
        rank.actions.push(Action::new(s, work, i));
        let end = now + stages[s].seconds(work);
        rank.free = end;
        queue.push(key(end, s));
        let (to, direction, arrival) = match work {
            Work::Forward if s + 1 < p => (s + 1, 0, end + links[s].0),
            Work::Forward => (s, 1, end),
            Work::InputGrad if s > 0 => (s - 1, 1, end + links[s - 1].1),
            _ => continue,
        };
        let other = &mut ranks[to];
        other.arrivals[direction].push(arrival);
        if other.asleep {
            other.asleep = false;
            queue.push(key(other.free.max(arrival), to));
        }
    }
    Order {
        micro_batches,
        rank_of: (0..p).collect(),
        cut: None,
        ranks: ranks.into_iter().map(|rank| rank.actions).collect(),
    }
}

/// ZB-H2: [`zero_bubble`] with at most `2p` live micro-batches on every rank.
pub fn zb_h2(stages: &[StageWork], links: &[(f64, f64)], micro_batches: u32) -> Order {
    let limits = vec![2 * stages.len() as u32; stages.len()];
    zero_bubble(stages, links, &limits, micro_batches)
}
