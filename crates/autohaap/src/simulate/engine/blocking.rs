//! Rendezvous: a rank stands at its exchanges until both ends are there.

use super::state::{Engine, Kind, Load};
use crate::simulate::action::Work;

impl Engine<'_> {
    /// Blocking exchanges: input alone or fused with the send before it when the direction turns.
    pub(super) fn advance_blocking(&mut self, lane: usize) {
        let program = self.program;
        let (c, rank) = (self.lanes[lane].chain, self.lanes[lane].rank);
        let list = &program.chains[c].order.ranks[rank];
        while self.lanes[lane].pending == 0 {
            let next = self.lanes[lane].next;
            let Some(&action) = list.get(next) else { return };
            let partner = if action.with_next {
                list.get(next + 1)
            } else {
                None
            }
            .copied();
            if !self.lanes[lane].received {
                self.lanes[lane].received = true;
                let mut posts = [None; 2];
                for (post, action) in posts.iter_mut().zip([Some(action), partner]) {
                    *post = action.and_then(|action| self.remote_input(c, action));
                }
                let at = self.lanes[lane].clock;
                self.stand(lane, c, &posts.map(|p| p.map(|slot| (slot, true))), at);
                continue;
            }
            // Results of the rank's own other chunks are there, or never will be.
            let own = [Some(action), partner].into_iter().flatten().any(|action| {
                Self::input(&self.chains[c], action).is_some_and(|(direction, slot)| {
                    self.chains[c].directions[usize::from(direction)].arrived[slot].is_nan()
                })
            });
            if own {
                return;
            }
            let start = self.lanes[lane].clock;
            let end = self.compute(lane, action, partner, start);
            self.lanes[lane].received = false;
            let mut group: [Option<((u8, usize), bool)>; 4] = [None; 4];
            let mut sends = false;
            for (entry, action) in group.iter_mut().zip([Some(action), partner]) {
                let Some(output) = action.and_then(|action| Self::output(&self.chains[c], action)) else {
                    continue;
                };
                let (from, to) = self.ends(c, output.0, output.1);
                if program.chains[c].order.rank_of[from] == program.chains[c].order.rank_of[to] {
                    self.send(c, output.0, output.1, end);
                } else {
                    *entry = Some((output, false));
                    sends = true;
                }
            }
            let following = self.lanes[lane].next;
            if let Some(&after) = list.get(following)
                && sends
                && partner.is_none()
                && !after.with_next
                && after.work != Work::WeightGrad
                && (after.work == Work::Forward) != (action.work == Work::Forward)
            {
                group[2] = self.remote_input(c, after).map(|slot| (slot, true));
                self.lanes[lane].received = true;
            }
            self.stand(lane, c, &group, end);
        }
    }

    /// The lane stands at a group of transfers; those whose other end stands there too start.
    pub(super) fn stand(&mut self, lane: usize, c: usize, group: &[Option<((u8, usize), bool)>], time: f64) {
        self.lanes[lane].pending += group.iter().flatten().count() as u32;
        for &((direction, slot), receives) in group.iter().flatten() {
            let state = &mut self.chains[c].directions[usize::from(direction)];
            let other = if receives {
                state.posted[slot] = time;
                state.sent[slot]
            } else {
                state.sent[slot] = time;
                state.posted[slot]
            };
            if other.is_nan() {
                continue;
            }
            let begin = time.max(other);
            self.chains[c].directions[usize::from(direction)].sent[slot] = begin;
            let transfer = self.transfer(c, direction, slot);
            if transfer.uses.is_empty() {
                self.arrive(c, direction, slot, begin + transfer.seconds);
            } else {
                self.push(
                    begin,
                    Kind::Start(Load::Transfer(c as u32, direction, slot as u32)),
                );
            }
        }
    }
}
