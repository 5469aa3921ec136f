//! Local moves on a candidate with the exact price as judge: cuts, depths, in a fixed order until nothing improves.

use crate::cost::pipeline::Scratch;
use crate::cost::price::Cache;

use super::assemble::{Candidate, Draft};
use super::table::Table;
use super::template::Template;

/// Improves a candidate; at most `budget` exact prices. Returns it and the number of prices taken.
pub(super) fn polish(
    table: &Table<'_>,
    mut best: Candidate,
    budget: u64,
    stop: &dyn Fn() -> bool,
    cache: &mut Cache,
    scratch: &mut Scratch,
) -> (Candidate, u64) {
    let mut scored = 0;
    let mut improved = true;
    while improved && scored < budget && !stop() {
        improved = false;
        'moves: for lane in 0..best.draft.lanes.len() {
            let own = &best.draft.lanes[lane].template;
            let others = best.draft.others(lane);
            let rebalanced = ramps(own)
                .into_iter()
                .filter_map(|t| t.rebalanced(table, others))
                .filter(|t| t.key() != own.key());
            for template in rebalanced.chain(neighbours(table, own)) {
                if scored >= budget || stop() {
                    break 'moves;
                }
                let mut lanes = best.draft.lanes.clone();
                lanes[lane].template = template;
                let draft = Draft::new(lanes, best.draft.origin);
                // The estimate costs a fraction of the exact price and discards most moves.
                let Some((estimate, _)) = draft.allocate(table, scratch) else {
                    continue;
                };
                if estimate > best.step * 1.02 {
                    continue;
                }
                scored += 1;
                if let Some(candidate) = draft.realise(table, cache, scratch)
                    && candidate.step < best.step * (1.0 - 1e-9)
                {
                    best = candidate;
                    improved = true;
                    break 'moves;
                }
            }
        }
    }
    (best, scored)
}

/// Templates one move away: a cut shifted by one or two atoms, a depth changed by one (ramps kept executable), another
/// option on the same devices, two neighbouring stages exchanged.
fn neighbours(table: &Table<'_>, template: &Template) -> Vec<Template> {
    let mut made = Vec::new();
    let num_stages = template.stages.len();
    for s in 0..num_stages.saturating_sub(1) {
        for shift in [1isize, -1, 2, -2] {
            let mut next = template.clone();
            let Some(cut) = next.stages[s].atoms.1.checked_add_signed(shift) else {
                continue;
            };
            if cut <= next.stages[s].atoms.0 || cut >= next.stages[s + 1].atoms.1 {
                continue;
            }
            next.stages[s].atoms.1 = cut;
            next.stages[s + 1].atoms.0 = cut;
            made.push(next.clone());
            // The stage that grows may need to start earlier: one or two micro-batches more in flight up to it.
            let grown = if shift > 0 { s } else { s + 1 };
            for _ in 0..if shift.abs() == 1 { 2 } else { 0 } {
                for upstream in &mut next.stages[..=grown] {
                    upstream.depth += 1;
                }
                made.push(next.clone());
            }
        }
    }
    // A layer carried past several stages: from each stage to each other one.
    for from in 0..num_stages {
        for to in 0..num_stages {
            if from.abs_diff(to) < 2 || num_stages > 12 {
                continue;
            }
            let mut next = template.clone();
            let (low, high) = (from.min(to), from.max(to));
            let mut legal = true;
            for s in low..high {
                let shift: isize = if from < to { -1 } else { 1 };
                match next.stages[s].atoms.1.checked_add_signed(shift) {
                    Some(cut) => {
                        next.stages[s].atoms.1 = cut;
                        next.stages[s + 1].atoms.0 = cut;
                    }
                    None => legal = false,
                }
            }
            if legal && next.stages.iter().all(|s| s.atoms.0 < s.atoms.1) {
                made.push(next);
            }
        }
    }
    for s in 0..num_stages {
        for up in [true, false] {
            let mut next = template.clone();
            let depth = next.stages[s].depth;
            if up {
                next.stages[s].depth = depth + 1;
                for upstream in &mut next.stages[..s] {
                    upstream.depth = upstream.depth.max(depth + 1);
                }
            } else if depth > 1 {
                next.stages[s].depth = depth - 1;
                for downstream in &mut next.stages[s + 1..] {
                    downstream.depth = downstream.depth.min(depth - 1);
                }
            } else {
                continue;
            }
            made.push(next);
        }
    }
    // Another option on the same devices.
    for s in 0..num_stages {
        let own = &template.stages[s].row;
        for row in table.of_size(template.micro_batch) {
            let same = row.option.class == own.option.class && row.option.devices() == own.option.devices();
            if same && row.option != own.option {
                let mut next = template.clone();
                next.stages[s].row = row.clone();
                made.push(next);
            }
        }
    }
    // Neighbouring stages of different options exchanged, with their numbers of atoms.
    for s in 0..num_stages.saturating_sub(1) {
        let (first, second) = (&template.stages[s], &template.stages[s + 1]);
        if first.row.option != second.row.option {
            let mut next = template.clone();
            let cut = first.atoms.0 + (second.atoms.1 - second.atoms.0);
            let row = next.stages[s].row.clone();
            next.stages[s].row = next.stages[s + 1].row.clone();
            next.stages[s + 1].row = row;
            next.stages[s].atoms.1 = cut;
            next.stages[s + 1].atoms.0 = cut;
            made.push(next);
        }
    }
    made.extend(ramps(template).into_iter().skip(1));
    made
}

/// The template itself, and with the whole ramp one deeper or shallower.
fn ramps(template: &Template) -> Vec<Template> {
    let shifted = |change: &dyn Fn(u32) -> u32| {
        let mut next = template.clone();
        for stage in &mut next.stages {
            stage.depth = change(stage.depth);
        }
        next
    };
    vec![
        template.clone(),
        shifted(&|depth| depth + 1),
        shifted(&|depth| (depth - 1).max(1)),
    ]
}
