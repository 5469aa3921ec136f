//! What a rank that never ended waits for.

use super::state::Engine;
use crate::simulate::deadlock::Wait;

impl Engine<'_> {
    /// What a lane waits for.
    pub(super) fn wait(&self, lane: usize) -> Option<Wait> {
        let state = &self.lanes[lane];
        let c = state.chain;
        let list = &self.program.chains[c].order.ranks[state.rank];
        let &action = list.get(state.next)?;
        let partner = if action.with_next {
            list.get(state.next + 1).copied()
        } else {
            None
        };
        let chain = &self.chains[c];
        let candidates = [Some(action), partner].into_iter().flatten();
        for action in candidates {
            if let Some((direction, slot)) = Self::input(chain, action)
                && chain.directions[usize::from(direction)].arrived[slot].is_nan()
            {
                let (from, _) = self.ends(c, direction, slot);
                return Some(Wait {
                    pipeline: c,
                    rank: state.rank,
                    action,
                    on: self.lane_of(c, from),
                    on_rank: self.program.chains[c].order.rank_of[from],
                    needs: (from, direction == 0, action.micro_batch),
                });
            }
        }
        // Blocking: its own send finds nobody.
        let sent = state.next.checked_sub(1).and_then(|at| list.get(at))?;
        let (direction, slot) = Self::output(chain, *sent)?;
        let (_, to) = self.ends(c, direction, slot);
        Some(Wait {
            pipeline: c,
            rank: state.rank,
            action: *sent,
            on: self.lane_of(c, to),
            on_rank: self.program.chains[c].order.rank_of[to],
            needs: (to, direction == 0, sent.micro_batch),
        })
    }
}
