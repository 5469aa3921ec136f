//! The conservation proof of a plan: nothing is lost, nothing counts twice.

use serde::Serialize;

use super::Plan;
use super::check::{Facts, sequences_per_atom, sharing_atoms, unaccounted};

/// What a plan conserves, in numbers that a reader can add up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conservation {
    /// Whether every statement below holds.
    pub holds: bool,
    /// Atoms of the model.
    pub atoms: usize,
    /// Decoder and MTP blocks of the model.
    pub blocks: usize,
    /// Per pipeline.
    pub pipelines: Vec<PipelineConservation>,
    /// Devices.
    pub devices: DeviceConservation,
    /// Sequences of all pipelines together.
    pub sequences: u64,
    /// Sequences of the global batch.
    pub global_batch: u64,
    /// Sum of the gradient weights of all pipelines: 1.
    pub gradient_weight_sum: f64,
    /// Whether the weights of the holders of every atom add up to 1, in exact arithmetic.
    pub every_token_counts_once: bool,
    /// Holders of a shared vocabulary weight, which are reduced together; empty = nothing is shared.
    pub tied_partners: Vec<TiedPartner>,
    /// Micro-batches of each pipeline.
    pub step_counts: Vec<u32>,
    /// Whether all pipelines run the same number; if not, the gradient reduction at the end of the step joins them.
    pub equal_step_counts: bool,
}

/// Atoms and sequences of one pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PipelineConservation {
    /// Blocks that its stages build.
    pub blocks: usize,
    /// Whether its stages cover every atom once, in order.
    pub atoms_covered_once: bool,
    /// Whether the rows of every stage add up to the micro-batch.
    pub rows_add_up: bool,
    /// Sequences of the step: micro-batch times micro-batches.
    pub sequences: u64,
    /// Its share in the gradient.
    pub gradient_weight: f64,
    /// Shares of its replicas, per stage that owns devices; each stage adds up to `gradient_weight`.
    pub stages: Vec<StageConservation>,
}

/// Shares of the replicas of one stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageConservation {
    /// Stage index.
    pub stage: usize,
    /// Rows of each replica.
    pub rows: Vec<u32>,
    /// Share of each replica in the gradient: rows times micro-batches over the global batch.
    pub gradient_weights: Vec<f64>,
}

/// Where the devices are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceConservation {
    /// Devices of the cluster, excluded ones too.
    pub total: usize,
    /// Used by a replica.
    pub used: usize,
    /// Listed as idle.
    pub idle: usize,
    /// Excluded by the cluster.
    pub excluded: usize,
    /// Neither.
    pub unaccounted: usize,
    /// Whether no device is used more than once.
    pub used_once: bool,
}

/// A stage that holds a shared vocabulary weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TiedPartner {
    /// Pipeline index.
    pub pipeline: usize,
    /// Stage index.
    pub stage: usize,
    /// Atom that holds the weight.
    pub atom: usize,
    /// Devices of the stage.
    pub devices: Vec<String>,
}

/// The conservation block of a plan. Also computed for illegal plans, where some statement does not hold.
pub fn conservation(plan: &Plan) -> Conservation {
    let facts = Facts::new(plan);
    let all = facts.all_atoms();
    let batch = plan.training.global_batch;
    let share = |sequences: u64| {
        if batch == 0 {
            0.0
        } else {
            sequences as f64 / batch as f64
        }
    };
    let mut pipelines = Vec::with_capacity(plan.pipelines.len());
    for (p, pipeline) in plan.pipelines.iter().enumerate() {
        let stages = facts.stages_of(p);
        let mut next = 0;
        let mut in_order = true;
        for stage in &pipeline.stages {
            in_order &= stage.atoms[0] == next && stage.atoms[1] > next;
            next = stage.atoms[1];
        }
        let owners = || stages.iter().filter(|s| !s.entry.replicas.is_empty());
        let micro_batch = u64::from(pipeline.micro_batch);
        let sums = |s: &&super::check::StageFacts<'_>| {
            s.entry.replicas.iter().map(|r| u64::from(r.rows)).sum::<u64>() == micro_batch
                && s.entry.replicas.iter().all(|r| r.rows > 0)
        };
        let sequences = micro_batch * u64::from(pipeline.micro_batches);
        pipelines.push(PipelineConservation {
            blocks: stages.iter().map(|s| facts.blocks(s.span)).sum(),
            atoms_covered_once: in_order && next == all.end,
            rows_add_up: owners().all(|s| sums(&s)),
            sequences,
            gradient_weight: share(sequences),
            stages: owners()
                .map(|s| StageConservation {
                    stage: s.stage,
                    rows: s.entry.replicas.iter().map(|r| r.rows).collect(),
                    gradient_weights: s
                        .entry
                        .replicas
                        .iter()
                        .map(|r| share(u64::from(r.rows) * u64::from(pipeline.micro_batches)))
                        .collect(),
                })
                .collect(),
        });
    }
    let sequences = pipelines
        .iter()
        .fold(0, |sum: u64, p| sum.saturating_add(p.sequences));
    let devices = devices(&facts);
    let every_token_counts_once = all.end > 0
        && sequences_per_atom(&facts)
            .iter()
            .all(|run| run.2 == u128::from(batch));
    let step_counts: Vec<u32> = plan.pipelines.iter().map(|p| p.micro_batches).collect();
    Conservation {
        holds: every_token_counts_once
            && sequences == batch
            && pipelines.iter().all(|p| p.atoms_covered_once && p.rows_add_up)
            && devices.used_once
            && devices.unaccounted == 0,
        atoms: all.end,
        blocks: facts.blocks(all),
        pipelines,
        devices,
        sequences,
        global_batch: batch,
        gradient_weight_sum: share(sequences),
        every_token_counts_once,
        tied_partners: tied_partners(&facts),
        equal_step_counts: step_counts.windows(2).all(|w| w[0] == w[1]),
        step_counts,
    }
}

fn devices(facts: &Facts<'_>) -> DeviceConservation {
    let count = |keep: &dyn Fn(usize) -> bool| (0..facts.map.len()).filter(|d| keep(*d)).count();
    let mut idle: Vec<usize> = facts
        .plan
        .idle
        .iter()
        .flat_map(|i| &i.devices)
        .filter_map(|d| facts.map.find(d))
        .collect();
    idle.sort_unstable();
    let listed = idle.len();
    idle.dedup();
    let resolved = facts
        .stages
        .iter()
        .flat_map(|s| &s.devices)
        .flatten()
        .all(Option::is_some);
    DeviceConservation {
        total: facts.map.len(),
        used: count(&|d| facts.uses[d] > 0),
        idle: idle.len(),
        excluded: count(&|d| facts.map.excluded(d)),
        unaccounted: unaccounted(facts).len(),
        used_once: resolved
            && listed == idle.len()
            && facts.uses.iter().all(|uses| *uses <= 1)
            && idle.iter().all(|d| facts.uses[*d] == 0),
    }
}

fn tied_partners(facts: &Facts<'_>) -> Vec<TiedPartner> {
    let sharing = sharing_atoms(facts);
    if sharing.len() < 2 {
        return Vec::new();
    }
    let mut partners = Vec::new();
    for stage in &facts.stages {
        let held = sharing
            .iter()
            .filter(|a| (stage.span.start..stage.span.end).contains(*a));
        for atom in held {
            partners.push(TiedPartner {
                pipeline: stage.pipeline,
                stage: stage.stage,
                atom: *atom,
                devices: facts
                    .owner(stage)
                    .known_devices()
                    .map(|d| facts.map.address(d))
                    .collect(),
            });
        }
    }
    partners
}
