//! Ranks run their lists ahead of the event queue, and asynchronous transfers leave at their producer's end.

use super::Interval;
use super::state::{Engine, FREE, Kind, Load};
use crate::simulate::action::Action;

impl Engine<'_> {
    pub(super) fn advance(&mut self, lane: usize) {
        let program = self.program;
        let (c, rank) = (self.lanes[lane].chain, self.lanes[lane].rank);
        let list = &program.chains[c].order.ranks[rank];
        loop {
            let next = self.lanes[lane].next;
            let Some(&action) = list.get(next) else { return };
            let chain = &self.chains[c];
            let mut start = self.lanes[lane].clock;
            let partner = if action.with_next {
                list.get(next + 1)
            } else {
                None
            };
            for action in [Some(action), partner.copied()].into_iter().flatten() {
                if let Some((direction, slot)) = Self::input(chain, action) {
                    let arrived = chain.directions[usize::from(direction)].arrived[slot];
                    if arrived.is_nan() {
                        self.lanes[lane].blocked = u64::from(direction) << 63 | slot as u64;
                        return;
                    }
                    if arrived > start {
                        start = arrived;
                    }
                }
            }
            let end = self.compute(lane, action, partner.copied(), start);
            for action in [Some(action), partner.copied()].into_iter().flatten() {
                if let Some((direction, slot)) = Self::output(&self.chains[c], action) {
                    self.send(c, direction, slot, end);
                }
            }
        }
    }

    /// Runs an action or an overlapped pair; gives its end.
    pub(super) fn compute(
        &mut self,
        lane: usize,
        action: Action,
        partner: Option<Action>,
        start: f64,
    ) -> f64 {
        let c = self.lanes[lane].chain;
        let mut seconds = self.program.seconds(c, action);
        if let Some(partner) = partner {
            seconds = (seconds + self.program.seconds(c, partner)) * self.program.pair_factor;
        }
        let end = start + seconds;
        if self.record {
            self.actions[lane].push(Interval { start, end });
            if partner.is_some() {
                self.actions[lane].push(Interval { start, end });
            }
        }
        let state = &mut self.lanes[lane];
        state.clock = end;
        state.computed = end;
        state.next += 1 + usize::from(partner.is_some());
        for action in [Some(action), partner].into_iter().flatten() {
            if action.work.ends_backward() {
                let stage = usize::from(action.stage);
                let left = &mut self.chains[c].left[stage];
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.stage_done(c, stage, action.work, end);
                }
            }
        }
        end
    }

    /// Starts the transfer of a slot at `time`, when nothing has to be waited for.
    pub(super) fn send(&mut self, c: usize, direction: u8, slot: usize, time: f64) {
        let program = self.program;
        let (from, to) = self.ends(c, direction, slot);
        let order = &program.chains[c].order;
        if !self.chains[c].directions[usize::from(direction)].sent.is_empty() {
            self.chains[c].directions[usize::from(direction)].sent[slot] = time;
        }
        if order.rank_of[from] == order.rank_of[to] {
            self.arrive(c, direction, slot, time);
            return;
        }
        let transfer = self.transfer(c, direction, slot);
        if transfer.uses.is_empty() {
            self.arrive(c, direction, slot, time + transfer.seconds);
        } else {
            self.push(
                time,
                Kind::Start(Load::Transfer(c as u32, direction, slot as u32)),
            );
        }
    }

    /// A transfer has ended (or will at a known time).
    pub(super) fn arrive(&mut self, c: usize, direction: u8, slot: usize, time: f64) {
        self.chains[c].directions[usize::from(direction)].arrived[slot] = time;
        let (from, to) = self.ends(c, direction, slot);
        let receiver = self.lane_of(c, to);
        if self.blocking {
            let sender = self.lane_of(c, from);
            if sender == receiver {
                return;
            }
            for lane in [sender, receiver] {
                let state = &mut self.lanes[lane];
                state.pending -= 1;
                state.clock = state.clock.max(time);
                if state.pending == 0 {
                    self.ready.push(lane as u32);
                }
            }
            return;
        }
        if self.lanes[receiver].blocked == (u64::from(direction) << 63 | slot as u64) {
            self.lanes[receiver].blocked = FREE;
            self.ready.push(receiver as u32);
        }
    }
}
