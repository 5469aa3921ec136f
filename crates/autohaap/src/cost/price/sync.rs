//! Gradient reduction: per segment of atoms with equal holders, over all replicas of all pipelines that hold it.
//!
//! A segment's reduction starts when its last holder is ready. With overlap a stage has its last atoms ready first, while
//! the last backward still runs through the earlier ones. Where holders differ in TP they exchange lcm slices; the
//! largest share of a device sets the time. Segments are scheduled from the last atom to the first on the stages' links.

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
    let overlap = setting.training.engine_semantics.overlap.dp;
    let num_atoms = setting.model.atoms.len();
    let mut cuts: BTreeSet<usize> = BTreeSet::from([0, num_atoms]);
    for stage in pipelines.iter().flat_map(|p| &p.stages) {
        cuts.insert(stage.atoms[1]);
    }
    if overlap {
        // Buckets of single atoms: the first are reduced while the rest is still computed.
        cuts.extend(0..num_atoms);
    }
    let cuts: Vec<usize> = cuts.into_iter().collect();
    let mut free: Vec<Vec<f64>> = priced.iter().map(|p| vec![0.0; p.stages.len()]).collect();
    // Stage that holds an atom, per pipeline, from the last atom on.
    let mut at: Vec<usize> = pipelines.iter().map(|p| p.stages.len() - 1).collect();
    let mut domain_problem = false;
    let mut last: Option<(Vec<usize>, f64, (u64, u64))> = None;
    for window in cuts.windows(2).rev() {
        let (a, b) = (window[0], window[1]);
        for (p, pipeline) in pipelines.iter().enumerate() {
            while pipeline.stages[at[p]].atoms[0] > a {
                at[p] -= 1;
            }
        }
        let mut ready = 0.0_f64;
        let mut dense = 0.0_f64;
        let mut expert = 0.0_f64;
        for (p, pricing) in priced.iter().enumerate() {
            let s = at[p];
            let stage = &pricing.stages[s];
            let first = pipelines[p].stages[s].atoms[0];
            let end = pricing.run.stages[s].last_backward_end;
            let remaining: f64 = if overlap {
                stage.atom_backward[..a - first].iter().sum()
            } else {
                0.0
            };
            ready = ready.max(end - remaining);
            for member in stage.members.iter().filter(|m| m.distinct) {
                let sum = |f: &dyn Fn(usize) -> f64| (a..b).map(f).sum::<f64>();
                dense = dense.max(sum(&|i| {
                    member.costs[i].sync_dense.0 - shared(setting, pipelines, p, s, i, member)
                }));
                expert = expert.max(sum(&|i| member.costs[i].sync_expert.0));
            }
        }
        // Equal holders and bytes as the segment before: the same time.
        let bits = (dense.to_bits(), expert.to_bits());
        let duration = match &last {
            Some((stages, time, bytes)) if *stages == at && *bytes == bits => *time,
            _ => {
                let time = duration(setting, pipelines, priced, &at, dense, expert);
                domain_problem |= time.is_none();
                time.unwrap_or(0.0)
            }
        };
        last = Some((at.clone(), duration, bits));
        let start = at
            .iter()
            .enumerate()
            .map(|(p, &s)| free[p][s])
            .fold(ready, f64::max);
        for (p, &s) in at.iter().enumerate() {
            if duration > 0.0 {
                free[p][s] = start + duration;
            }
        }
    }
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
        return Err(Problem::new(
            &codes::GROUP_ACROSS_DOMAINS,
            "pipelines",
            "the holders of some atoms are in domains that share no collective library: their gradients cannot be reduced",
        )
        .hint("let every atom (tied ends included) be held inside one domain: split the model between domains, not the batch")
        .into());
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
fn tied(setting: &Setting<'_>, pipelines: &[Pipeline], priced: &[PricedPipeline]) -> Option<f64> {
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
