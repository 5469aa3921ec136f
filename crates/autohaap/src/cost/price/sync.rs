//! Gradient reduction: per segment of atoms with equal holders, over all replicas of all pipelines that hold it.
//!
//! A segment's reduction starts when its last holder is ready. With overlap a stage has its last atoms ready first, while
//! the last backward still runs through the earlier ones. Where holders differ in TP they exchange lcm slices; the
//! largest share of a device sets the time. Where pipelines are cut at different atoms, one order from the last atom to the
//! first would chain all stages to each other; segments therefore run in the order of their possible starts, which is one
//! order for all ranks and hence free of deadlock.

use std::collections::BTreeSet;

use super::place::group;
use super::{Place, PricedPipeline};
use crate::cluster::Collective;
use crate::cost::atom::Setting;
use crate::cost::memory::Copies;
use crate::error::{Problem, Problems, cost as codes};
use crate::plan::{Pipeline, Stage};
use crate::units::Bytes;

/// Replicas that hold each atom, and expert copies.
pub(super) struct Holders {
    dense: Vec<u32>,
    expert: Vec<u32>,
}

impl Holders {
    /// Copies that share a stage's optimizer state: the least over its atoms.
    pub(super) fn copies(&self, stage: &Stage) -> Copies {
        let [a, b] = stage.atoms;
        let least = |v: &[u32]| v[a..b].iter().copied().min().unwrap_or(1).max(1);
        Copies {
            dense: least(&self.dense),
            expert: least(&self.expert),
        }
    }
}

/// Counts holders per atom over all pipelines.
pub(super) fn holders(setting: &Setting<'_>, pipelines: &[Pipeline]) -> Holders {
    let num_atoms = setting.model.atoms.len();
    let mut holders = Holders {
        dense: vec![0; num_atoms],
        expert: vec![0; num_atoms],
    };
    for stage in pipelines.iter().flat_map(|p| &p.stages) {
        let devices: usize = stage.replicas.iter().map(|r| r.devices.len()).sum();
        let copies = (devices as u32 / (stage.ep * stage.etp).max(1)).max(1);
        for atom in stage.atoms[0]..stage.atoms[1] {
            // Ranks of a context-parallel group hold the same weights and see different tokens.
            holders.dense[atom] += stage.replicas.iter().map(|r| r.cp.max(1)).sum::<u32>();
            holders.expert[atom] += copies;
        }
    }
    holders
}

/// End of the gradient reduction of each stage and its exposed part, seconds from the start of the step.
pub(super) fn reduce(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
) -> Result<Vec<Vec<(f64, f64)>>, Problems> {
    let (runs, domain_problem) = segment_runs(setting, pipelines, priced, |p, s| {
        priced[p].run.stages[s].last_backward_end
    });
    let mut domain_problem = domain_problem;
    let stages: Vec<usize> = priced.iter().map(|p| p.stages.len()).collect();
    let mut free = schedule(&runs, &stages, |_| {});
    if setting.model.tied {
        match tied(setting, pipelines, priced) {
            None => domain_problem = true,
            Some(duration) if duration > 0.0 => {
                let ends: Vec<(usize, usize)> = pipelines
                    .iter()
                    .enumerate()
                    .flat_map(|(p, q)| [(p, 0), (p, q.stages.len() - 1)])
                    .collect();
                let start = ends
                    .iter()
                    .map(|&(p, s)| free[p][s].max(priced[p].run.stages[s].last_backward_end))
                    .fold(0.0, f64::max);
                for (p, s) in ends {
                    free[p][s] = start + duration;
                }
            }
            Some(_) => {}
        }
    }
    if domain_problem {
        return Err(across_domains());
    }
    Ok(priced
        .iter()
        .zip(&free)
        .map(|(p, free)| {
            p.run
                .stages
                .iter()
                .zip(free)
                .map(|(run, free)| {
                    let end = free.max(run.last_backward_end);
                    (end, end - run.last_backward_end)
                })
                .collect()
        })
        .collect())
}

/// Consecutive segments, from the last atom to the first, with the same holders.
struct SegmentRun {
    /// Stage of each pipeline.
    at: Vec<usize>,
    /// When the last holder is ready and how long the reduction takes, seconds.
    segments: Vec<(f64, f64)>,
}

/// Segments with the times at which their last holder is ready, from the end of the last backward of each stage
/// (pipeline, stage); and whether some holders share no collective library.
fn segment_runs(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
    backward_end: impl Fn(usize, usize) -> f64,
) -> (Vec<SegmentRun>, bool) {
    let overlap = setting.training.engine_semantics.overlap.dp;
    let mut runs: Vec<SegmentRun> = Vec::new();
    let mut across = false;
    each_segment(setting, pipelines, priced, |segment| {
        let mut ready = f64::NEG_INFINITY;
        for (p, pricing) in priced.iter().enumerate() {
            let s = segment.stages[p];
            let first = pipelines[p].stages[s].atoms[0];
            let remaining: f64 = if overlap {
                pricing.stages[s].atom_backward[..segment.atoms[0] - first]
                    .iter()
                    .sum()
            } else {
                0.0
            };
            ready = ready.max(backward_end(p, s) - remaining);
        }
        across |= segment.seconds.is_none();
        let duration = segment.seconds.unwrap_or(0.0);
        match runs.last_mut() {
            Some(run) if run.at == segment.stages => run.segments.push((ready, duration)),
            _ => runs.push(SegmentRun {
                at: segment.stages.to_vec(),
                segments: vec![(ready, duration)],
            }),
        }
    });
    (runs, across)
}

/// The order in which all ranks run their reductions, as numbers of [`each_segment`]'s visits: that of the possible starts
/// if all pipelines end together, the last backward of a stage as long before that as the stages before it take.
pub(super) fn reduction_order(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
) -> Vec<usize> {
    let before = |p: usize, s: usize| {
        let stages = &priced[p].stages[..s];
        stages.iter().flat_map(|stage| &stage.atom_backward).sum::<f64>()
    };
    let (runs, _) = segment_runs(setting, pipelines, priced, |p, s| -before(p, s));
    let stages: Vec<usize> = priced.iter().map(|p| p.stages.len()).collect();
    let mut order = Vec::new();
    schedule(&runs, &stages, |segment| order.push(segment));
    order
}

/// When the links of each stage of each pipeline are free again after all reductions, seconds: of the segments that are
/// next in their run, the one that can start first goes first.
///
/// `started` is told the number of each segment, counted from the last atom, in the order of the starts.
fn schedule(runs: &[SegmentRun], stages: &[usize], mut started: impl FnMut(usize)) -> Vec<Vec<f64>> {
    let firsts: Vec<usize> = runs
        .iter()
        .scan(0, |sum, run| {
            let first = *sum;
            *sum += run.segments.len();
            Some(first)
        })
        .collect();
    let mut free: Vec<Vec<f64>> = stages.iter().map(|&n| vec![f64::NEG_INFINITY; n]).collect();
    let mut next = vec![0; runs.len()];
    // Runs come in the order of the stages: beyond this one, none is started yet; before that one, all are done.
    let mut open = 0;
    loop {
        let mut first: Option<(f64, usize)> = None;
        for (r, run) in runs.iter().enumerate().skip(open) {
            let Some(&(ready, _)) = run.segments.get(next[r]) else {
                open += usize::from(r == open);
                continue;
            };
            let start = run
                .at
                .iter()
                .zip(&free)
                .map(|(&s, free)| free[s])
                .fold(ready, f64::max);
            if first.is_none_or(|(least, _)| start < least) {
                first = Some((start, r));
            }
            // A run that shares no stage with the next does not compete with what follows it.
            let alone = runs
                .get(r + 1)
                .is_none_or(|after| run.at.iter().zip(&after.at).all(|(a, b)| a != b));
            if alone {
                break;
            }
        }
        let Some((start, r)) = first else { return free };
        let (_, duration) = runs[r].segments[next[r]];
        started(firsts[r] + next[r]);
        next[r] += 1;
        if duration > 0.0 {
            for (&s, free) in runs[r].at.iter().zip(&mut free) {
                free[s] = start + duration;
            }
        }
    }
}

/// The error of gradients that no collective library can reduce.
pub(super) fn across_domains() -> Problems {
    Problem::new(
        &codes::GROUP_ACROSS_DOMAINS,
        "pipelines",
        "the holders of some atoms are in domains that share no collective library: their gradients cannot be reduced",
    )
    .hint("let every atom (tied ends included) be held inside one domain: split the model between domains, not the batch")
    .into()
}

/// A segment of atoms with equal holders and the reduction of its gradients.
pub(super) struct Segment<'s> {
    /// Half-open range of atoms.
    pub(super) atoms: [usize; 2],
    /// Stage that holds it, per pipeline.
    pub(super) stages: &'s [usize],
    /// Seconds of the reduction; None where holders share no collective library.
    pub(super) seconds: Option<f64>,
    /// Largest share of a device, dense and expert tensors.
    pub(super) bytes: (f64, f64),
}

/// Visits the segments from the last atom to the first: one per atom where reductions overlap with backward, else one per
/// range between stage boundaries.
pub(super) fn each_segment(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
    mut visit: impl FnMut(&Segment<'_>),
) {
    let num_atoms = setting.model.atoms.len();
    let mut cuts: BTreeSet<usize> = BTreeSet::from([0, num_atoms]);
    for stage in pipelines.iter().flat_map(|p| &p.stages) {
        cuts.insert(stage.atoms[1]);
    }
    if setting.training.engine_semantics.overlap.dp {
        // Buckets of single atoms: the first are reduced while the rest is still computed.
        cuts.extend(0..num_atoms);
    }
    let cuts: Vec<usize> = cuts.into_iter().collect();
    // Stage that holds an atom, per pipeline, from the last atom on.
    let mut at: Vec<usize> = pipelines.iter().map(|p| p.stages.len() - 1).collect();
    let mut last: Option<(Vec<usize>, Option<f64>, (u64, u64))> = None;
    for window in cuts.windows(2).rev() {
        let (a, b) = (window[0], window[1]);
        for (p, pipeline) in pipelines.iter().enumerate() {
            while pipeline.stages[at[p]].atoms[0] > a {
                at[p] -= 1;
            }
        }
        let mut dense = 0.0_f64;
        let mut expert = 0.0_f64;
        for (p, pricing) in priced.iter().enumerate() {
            let s = at[p];
            for member in pricing.stages[s].members.iter().filter(|m| m.distinct) {
                let sum = |f: &dyn Fn(usize) -> f64| (a..b).map(f).sum::<f64>();
                dense = dense.max(sum(&|i| {
                    member.costs[i].sync_dense.0 - shared(setting, pipelines, p, s, i, member)
                }));
                expert = expert.max(sum(&|i| member.costs[i].sync_expert.0));
            }
        }
        // Equal holders and bytes as the segment before: the same time.
        let bits = (dense.to_bits(), expert.to_bits());
        let seconds = match &last {
            Some((stages, time, bytes)) if *stages == at && *bytes == bits => *time,
            _ => {
                let time = duration(setting, pipelines, priced, &at, dense, expert);
                last = Some((at.clone(), time, bits));
                time
            }
        };
        visit(&Segment {
            atoms: [a, b],
            stages: &at,
            seconds,
            bytes: (dense, expert),
        });
    }
}

/// Reduction bytes of a shared vocabulary copy that the stage does not hold twice.
fn shared(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    p: usize,
    s: usize,
    atom: usize,
    member: &super::Member,
) -> f64 {
    let stages = &pipelines[p].stages;
    let last = s + 1 == stages.len();
    let is_head = atom + 1 == setting.model.atoms.len();
    // A tied head is reduced with the embedding; an MTP block's head with the head.
    if last && (!is_head || setting.model.tied) {
        member.costs[atom].shared_copy.sync.0
    } else {
        0.0
    }
}

/// Seconds of a segment's reduction over all holders: dense and expert tensors one after the other.
fn duration(
    setting: &Setting<'_>,
    pipelines: &[Pipeline],
    priced: &[PricedPipeline<'_>],
    at: &[usize],
    dense: f64,
    expert: f64,
) -> Option<f64> {
    let mut members: Vec<&Place<'_>> = Vec::new();
    let mut copies: Vec<&Place<'_>> = Vec::new();
    let mut tp = 1;
    let mut block = 1;
    for (p, &s) in at.iter().enumerate() {
        let stage = &pipelines[p].stages[s];
        let places = &priced[p].stages[s].places;
        for (replica, own) in stage.replicas.iter().zip(places) {
            members.extend(own.iter().step_by(replica.tp.max(1) as usize));
        }
        let size = (stage.ep * stage.etp).max(1);
        if expert > 0.0 {
            copies.extend(places.iter().flatten().step_by(size as usize));
        }
        tp = stage.replicas.iter().map(|r| r.tp).max().unwrap_or(1).max(tp);
        block = block.max(size);
    }
    let mut time = 0.0;
    if members.len() > 1 && dense > 0.0 {
        time += setting
            .cluster
            .collective_time(
                Collective::AllReduce,
                &group(members.into_iter(), tp),
                Bytes(dense),
            )?
            .0;
    }
    if copies.len() > 1 && expert > 0.0 {
        let here = copies
            .first()
            .map_or(1, |c| setting.cluster.nodes[c.node].devices());
        time += setting
            .cluster
            .collective_time(
                Collective::AllReduce,
                &group(copies.into_iter(), block.min(here)),
                Bytes(expert),
            )?
            .0;
    }
    Some(time)
}

/// The extra all-reduce of a tied embedding between all first and last stages that differ.
pub(super) fn tied(setting: &Setting<'_>, pipelines: &[Pipeline], priced: &[PricedPipeline]) -> Option<f64> {
    let mut members: Vec<&Place<'_>> = Vec::new();
    let mut bytes = 0.0_f64;
    let mut tp = 1;
    for (p, pipeline) in pipelines.iter().enumerate() {
        let last = pipeline.stages.len() - 1;
        if last == 0 {
            continue;
        }
        for s in [0, last] {
            let stage = &priced[p].stages[s];
            members.extend(stage.places.iter().filter_map(|r| r.first()));
            tp = pipeline.stages[s]
                .replicas
                .iter()
                .map(|r| r.tp * r.cp)
                .max()
                .unwrap_or(1)
                .max(tp);
            for member in &stage.members {
                bytes = bytes.max(member.costs[member.costs.len() - 1].shared_copy.sync.0);
            }
        }
    }
    if members.is_empty() {
        return Some(0.0);
    }
    Some(
        setting
            .cluster
            .collective_time(
                Collective::AllReduce,
                &group(members.into_iter(), tp),
                Bytes(bytes),
            )?
            .0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six atoms of one second each; two stages of three atoms against three stages of two: in strict order every
    /// stage waits for the one after it, 6 s; any order that keeps all links busy takes 3 s.
    #[test]
    fn unequal_cuts_do_not_chain_the_stages() {
        let run = |at: [usize; 2], count: usize| SegmentRun {
            at: at.to_vec(),
            segments: vec![(0.0, 1.0); count],
        };
        let runs = [run([1, 2], 2), run([1, 1], 1), run([0, 1], 1), run([0, 0], 2)];
        let free = schedule(&runs, &[2, 3], |_| {});
        assert_eq!(free, vec![vec![3.0, 3.0], vec![3.0, 3.0, 2.0]]);
    }

    #[test]
    fn a_segment_waits_for_its_last_holder() {
        let runs = [SegmentRun {
            at: vec![0, 0],
            segments: vec![(5.0, 1.0), (7.0, 2.0)],
        }];
        assert_eq!(schedule(&runs, &[1, 1], |_| {}), vec![vec![9.0], vec![9.0]]);
    }
}
