//! Which boundary an action's input and result cross, and whose lane stands at its ends.

use super::state::{ChainState, Engine};
use crate::simulate::action::{Action, Work};
use crate::simulate::program::Transfer;

impl<'p> Engine<'p> {
    /// Whether the input of an action comes over a boundary: (direction, slot).
    pub(super) fn input(chain: &ChainState, action: Action) -> Option<(u8, usize)> {
        let (stage, i) = (usize::from(action.stage), action.micro_batch as usize);
        match action.work {
            Work::Forward if stage > 0 && stage != chain.cut + 1 => Some((0, (stage - 1) * chain.m + i)),
            Work::Backward | Work::InputGrad if stage < chain.last && stage != chain.cut => {
                Some((1, stage * chain.m + i))
            }
            _ => None,
        }
    }

    /// The boundary that the result of an action crosses: (direction, slot).
    pub(super) fn output(chain: &ChainState, action: Action) -> Option<(u8, usize)> {
        let (stage, i) = (usize::from(action.stage), action.micro_batch as usize);
        match action.work {
            Work::Forward if stage < chain.last && stage != chain.cut => Some((0, stage * chain.m + i)),
            Work::Backward | Work::InputGrad if stage > 0 && stage != chain.cut + 1 => {
                Some((1, (stage - 1) * chain.m + i))
            }
            _ => None,
        }
    }

    /// (sending, receiving) stage of a slot.
    pub(super) fn ends(&self, chain: usize, direction: u8, slot: usize) -> (usize, usize) {
        let upper = slot / self.chains[chain].m;
        if direction == 0 {
            (upper, upper + 1)
        } else {
            (upper + 1, upper)
        }
    }

    pub(super) fn lane_of(&self, chain: usize, stage: usize) -> usize {
        self.chains[chain].base + self.program.chains[chain].order.rank_of[stage]
    }

    pub(super) fn transfer(&self, c: usize, direction: u8, slot: usize) -> &'p Transfer {
        let upper = slot / self.chains[c].m;
        let chain = &self.program.chains[c];
        if direction == 0 {
            &chain.forward[upper]
        } else {
            &chain.backward[upper]
        }
    }

    pub(super) fn remote_input(&self, c: usize, action: Action) -> Option<(u8, usize)> {
        let (direction, slot) = Self::input(&self.chains[c], action)?;
        let (from, to) = self.ends(c, direction, slot);
        let order = &self.program.chains[c].order;
        (order.rank_of[from] != order.rank_of[to]).then_some((direction, slot))
    }
}
