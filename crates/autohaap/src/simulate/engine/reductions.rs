//! Gradient reductions: each starts when its last holder is ready and every holder has come to it.

use super::state::{Engine, Kind, Load};
use crate::simulate::action::Work;

impl Engine<'_> {
    /// The last backward of a stage ends at `end`.
    pub(super) fn stage_done(&mut self, c: usize, stage: usize, work: Work, end: f64) {
        let times = &self.program.chains[c].stages[stage];
        let seconds = times.seconds(work);
        for at in 0..self.waiting[c][stage].len() {
            let (r, remaining) = self.waiting[c][stage][at];
            let state = &mut self.reductions[r as usize];
            state.ready = state.ready.max(end - remaining * seconds);
            state.missing -= 1;
            if state.missing == 0 {
                self.try_reduce(r);
            }
        }
    }

    /// Starts a reduction when its holders are ready and it is next on all of them.
    pub(super) fn try_reduce(&mut self, r: u32) {
        let program = self.program;
        let state = &self.reductions[r as usize];
        if state.missing > 0 || state.started {
            return;
        }
        let mut time = state.ready;
        for holder in &program.reductions[r as usize].holders {
            let lane = &self.lanes[self.lane_of(holder.chain, holder.stage)];
            if lane.queue.get(lane.reduced) != Some(&r) {
                return;
            }
            time = time.max(lane.reduce_clock);
        }
        self.reductions[r as usize].started = true;
        self.push(time, Kind::Start(Load::Reduction(r)));
    }

    pub(super) fn reduced(&mut self, r: u32, time: f64) {
        let program = self.program;
        self.times[r as usize].end = time;
        let holders = &program.reductions[r as usize].holders;
        for holder in holders {
            let lane = self.lane_of(holder.chain, holder.stage);
            let lane = &mut self.lanes[lane];
            if lane.queue.get(lane.reduced) == Some(&r) {
                lane.reduced += 1;
                lane.reduce_clock = time;
            }
        }
        for holder in holders {
            let lane = &self.lanes[self.lane_of(holder.chain, holder.stage)];
            if let Some(&next) = lane.queue.get(lane.reduced) {
                self.try_reduce(next);
            }
        }
    }
}
