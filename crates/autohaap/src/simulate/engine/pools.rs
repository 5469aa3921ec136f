//! Transfers over shared pools: rates while they are crowded, and the events of their ends.

use super::state::{Engine, Flow, Kind, Load};
use crate::simulate::program::Transfer;

/// Shares above this crowd a pool.
const FULL: f64 = 1.0 + 1e-9;

impl<'p> Engine<'p> {
    pub(super) fn load(&self, load: Load) -> &'p Transfer {
        match load {
            Load::Transfer(c, direction, slot) => self.transfer(c as usize, direction, slot as usize),
            Load::Reduction(r) => &self.program.reductions[r as usize].transfer,
        }
    }

    pub(super) fn start(&mut self, load: Load, time: f64) {
        if let Load::Reduction(r) = load {
            self.times[r as usize].start = time;
        }
        let transfer = self.load(load);
        let flow = Flow {
            load,
            remaining: transfer.seconds,
            rate: 1.0,
            since: time,
            version: 0,
        };
        let id = if let Some(id) = self.free_flows.pop() {
            let version = self.flows[id as usize].version + 1;
            self.flows[id as usize] = Flow { version, ..flow };
            id
        } else {
            self.flows.push(flow);
            self.flows.len() as u32 - 1
        };
        let mut crowded = false;
        for &(pool, share) in &transfer.uses {
            let (flows, sum) = &mut self.pools[pool as usize];
            flows.push(id);
            *sum += share;
            crowded |= *sum > FULL;
        }
        if crowded {
            self.settle(transfer, time);
        }
        if self.flows[id as usize].rate == 1.0 {
            let version = self.flows[id as usize].version;
            self.push(time + transfer.seconds, Kind::End(id, version));
        }
    }

    /// Adjusts the rate of every flow in the pools of a transfer that came or went.
    pub(super) fn settle(&mut self, changed: &Transfer, time: f64) {
        for &(pool, _) in &changed.uses {
            for at in 0..self.pools[pool as usize].0.len() {
                let id = self.pools[pool as usize].0[at];
                let load = self.flows[id as usize].load;
                let crowd = self
                    .load(load)
                    .uses
                    .iter()
                    .map(|&(pool, _)| self.pools[pool as usize].1)
                    .fold(1.0, f64::max);
                let rate = if crowd > FULL { 1.0 / crowd } else { 1.0 };
                let flow = &mut self.flows[id as usize];
                if rate == flow.rate {
                    continue;
                }
                flow.remaining = (flow.remaining - (time - flow.since) * flow.rate).max(0.0);
                flow.since = time;
                flow.rate = rate;
                flow.version += 1;
                let (end, version) = (time + flow.remaining / rate, flow.version);
                self.push(end, Kind::End(id, version));
            }
        }
    }

    pub(super) fn end(&mut self, id: u32, version: u32, time: f64) {
        if self.flows[id as usize].version != version {
            return;
        }
        let load = self.flows[id as usize].load;
        let transfer = self.load(load);
        // A late event of the past must not match the next flow under this number.
        self.flows[id as usize].version += 1;
        self.free_flows.push(id);
        let mut crowded = false;
        for &(pool, _) in &transfer.uses {
            let (flows, sum) = &mut self.pools[pool as usize];
            crowded |= *sum > FULL;
            if let Some(at) = flows.iter().position(|&other| other == id) {
                flows.swap_remove(at);
            }
        }
        for &(pool, _) in &transfer.uses {
            // Summed anew: no rounding is carried along.
            let sum = self.pools[pool as usize]
                .0
                .iter()
                .map(|&other| {
                    let uses = &self.load(self.flows[other as usize].load).uses;
                    uses.iter().find(|u| u.0 == pool).map_or(0.0, |u| u.1)
                })
                .sum();
            self.pools[pool as usize].1 = sum;
        }
        if crowded {
            self.settle(transfer, time);
        }
        match load {
            Load::Transfer(c, direction, slot) => self.arrive(c as usize, direction, slot as usize, time),
            Load::Reduction(r) => self.reduced(r, time),
        }
    }
}
