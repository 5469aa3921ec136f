//! Time and memory items of any atom range under one stage option, from prefix sums.

use crate::cost::atom::{AtomCost, ReplicaShape, atom_cost};
use crate::cost::memory::{self, StageSums};
use crate::plan::Recompute;
use crate::search::space::{Space, StageOption};
use crate::units::Bytes;

use super::places::{other_places, representative};

/// Costs of every atom range under one option and micro-batch size.
pub(crate) struct Row {
    /// The option.
    pub(crate) option: StageOption,
    /// Sequences of a micro-batch.
    pub(crate) micro_batch: u32,
    /// Times where the groups stand as [`representative`] puts them.
    pub(super) times: Times,
    /// Times not above those of any placement, where the placement matters: for bounds.
    pub(super) least: Option<Times>,
    /// Prefix sums of the memory items and reduction bytes.
    pub(super) sums: Vec<StageSums>,
    /// Number of atoms with routed experts before each position.
    routed: Vec<u32>,
    /// Costs per atom.
    pub(super) costs: Vec<AtomCost>,
    /// Memory that one device of the class may use.
    pub(super) limit: Bytes,
    /// Range maxima of the transients, bytes.
    pub(super) working_set: RangeMax,
    pub(super) logits: RangeMax,
    pub(super) held: RangeMax,
    pub(super) recomputed: RangeMax,
    pub(super) gathered: RangeMax,
    /// Memory bandwidth of the class, bytes per second.
    memory_bandwidth: f64,
    /// Whether selective recompute saves anything.
    pub(super) selective_helps: bool,
    /// Whether full recompute keeps the least of every atom.
    pub(super) full_saves_most: bool,
}

/// Prefix sums of seconds over the atoms.
pub(super) struct Times {
    forward: Vec<f64>,
    /// Backward without recompute.
    backward: Vec<f64>,
    /// Extra backward under selective recompute.
    selective: Vec<f64>,
    /// Extra backward under full recompute.
    full: Vec<f64>,
}

impl Times {
    fn new(costs: &[AtomCost]) -> Self {
        Self {
            forward: prefix(costs, |c| c.forward.total().0),
            backward: prefix(costs, |c| c.input_grad.total().0 + c.weight_grad.total().0),
            selective: prefix(costs, |c| c.recompute_selective.total().0),
            full: prefix(costs, |c| c.recompute_full.total().0),
        }
    }

    /// Forward and backward seconds of atoms `a..b` without recompute.
    fn of(&self, a: usize, b: usize) -> (f64, f64) {
        (
            self.forward[b] - self.forward[a],
            self.backward[b] - self.backward[a],
        )
    }

    pub(super) fn with(&self, a: usize, b: usize, recompute: RecomputeChoice) -> Fit {
        let (forward, mut backward) = self.of(a, b);
        let cut = a + recompute.full as usize;
        backward += self.full[cut] - self.full[a];
        if recompute.selective {
            backward += self.selective[b] - self.selective[cut];
        }
        Fit {
            recompute,
            forward,
            backward,
        }
    }
}

fn prefix(costs: &[AtomCost], value: impl Fn(&AtomCost) -> f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    for cost in costs {
        sum += value(cost);
        sums.push(sum);
    }
    sums
}

/// How many data-parallel copies an optimizer state or gradient is divided over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holders {
    /// Replicas of all pipelines that hold the stage's atoms.
    pub(crate) replicas: u32,
    /// Copies of the stage's experts over all pipelines.
    pub(crate) experts: u32,
}

impl Holders {
    pub(super) fn copies(self) -> memory::Copies {
        memory::Copies {
            dense: self.replicas,
            expert: self.experts.max(1),
        }
    }

    /// More than any plan on `devices` devices has: every device a replica with all experts.
    pub(crate) fn most(devices: u32) -> Self {
        Self {
            replicas: devices,
            experts: devices,
        }
    }
}

/// Recompute of a stage: the first `full` atoms are computed again, the others selectively or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct RecomputeChoice {
    /// Leading atoms of the stage under full recompute.
    pub(crate) full: u32,
    /// Whether the others recompute their attention core.
    pub(crate) selective: bool,
}

/// The deepest in-flight limits of a stage that its memory holds; 0 where none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Depths {
    /// Without recompute.
    pub(crate) plain: u32,
    /// With some recompute or none.
    pub(crate) any: u32,
}

/// A stage that fits: its recompute and times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Least recompute that fits.
    pub(crate) recompute: RecomputeChoice,
    /// Forward seconds of one micro-batch.
    pub(crate) forward: f64,
    /// Backward seconds of one micro-batch, recompute included.
    pub(crate) backward: f64,
}

impl Row {
    pub(super) fn new(space: &Space<'_>, option: StageOption, micro_batch: u32) -> Self {
        let setting = space.setting;
        let shape = representative(space, option, micro_batch);
        let class = &space.classes[option.class];
        let num_atoms = setting.model.atoms.len();
        let all = |shape: &ReplicaShape| {
            let mut costs: Vec<AtomCost> = Vec::with_capacity(num_atoms);
            for atom in 0..num_atoms {
                let twin = space.twin[atom];
                costs.push(if twin < atom {
                    costs[twin]
                } else {
                    atom_cost(setting, atom, shape)
                });
            }
            costs
        };
        let costs = all(&shape);
        let mut least: Option<Vec<AtomCost>> = None;
        for shape in other_places(space, option, &shape) {
            let made = all(&shape);
            let kept = least.get_or_insert_with(|| costs.clone());
            for (kept, made) in kept.iter_mut().zip(&made) {
                kept.forward = kept.forward.least(&made.forward);
                kept.input_grad = kept.input_grad.least(&made.input_grad);
                kept.recompute_full = kept.recompute_full.least(&made.recompute_full);
            }
        }
        let mut sums = vec![StageSums::default()];
        for cost in &costs {
            sums.push(sums[sums.len() - 1].plus(cost));
        }
        let mut routed = vec![0];
        for parts in &setting.parts {
            routed.push(routed[routed.len() - 1] + u32::from(parts.experts > 0));
        }
        let selective_helps = costs.iter().any(|c| c.saved_selective.0 < c.saved_none.0);
        let full_saves_most = costs
            .iter()
            .all(|c| c.saved_full.0 <= c.saved_selective.0 && c.saved_full.0 <= c.saved_none.0);
        Self {
            option,
            micro_batch,
            times: Times::new(&costs),
            least: least.as_deref().map(Times::new),
            sums,
            routed,
            working_set: RangeMax::new(&costs, |c| c.working_set.0),
            logits: RangeMax::new(&costs, |c| c.logits.0),
            held: RangeMax::new(&costs, |c| c.held.0),
            recomputed: RangeMax::new(&costs, |c| c.saved_none.0 - c.saved_full.0),
            gathered: RangeMax::new(&costs, |c| 2.0 * c.gathered.0),
            costs,
            limit: class.memory_limit,
            memory_bandwidth: setting
                .cluster
                .device_types
                .get(&class.device_type)
                .map_or(1e12, |d| d.memory_bandwidth.value.0),
            selective_helps,
            full_saves_most,
        }
    }

    /// Rows of one replica.
    pub(crate) fn rows(&self) -> u32 {
        self.micro_batch / self.option.replicas
    }

    /// Forward and backward seconds of atoms `a..b` without recompute.
    pub(crate) fn times(&self, a: usize, b: usize) -> (f64, f64) {
        self.times.of(a, b)
    }

    pub(super) fn least(&self) -> &Times {
        self.least.as_ref().unwrap_or(&self.times)
    }

    /// The least that [`Row::compute`] can be under any placement.
    pub(crate) fn least_compute(&self, a: usize, b: usize) -> f64 {
        let (f, w) = self.least().of(a, b);
        f + w
    }

    /// Forward plus backward seconds of atoms `a..b` without recompute.
    pub(crate) fn compute(&self, a: usize, b: usize) -> f64 {
        let (f, w) = self.times(a, b);
        f + w
    }

    /// Whether a stage of atoms `a..b` may take the option: expert parallelism needs experts.
    pub(crate) fn allows(&self, (a, b): (usize, usize)) -> bool {
        self.option.ep == 1 || self.routed[b] > self.routed[a]
    }

    pub(super) fn boundary(&self, space: &Space<'_>, a: usize, b: usize) -> memory::Boundary {
        memory::Boundary {
            first: a == 0,
            last: b == space.setting.model.atoms.len(),
            tp: self.option.tp,
            cp: self.option.cp,
            rows: self.rows(),
        }
    }

    /// Holders where the stage's tensors have `replicas` replicas in all, each laid out like its own.
    pub(crate) fn holders(&self, replicas: u32) -> Holders {
        Holders {
            replicas,
            experts: (replicas * self.option.tp * self.option.cp / self.option.ep).max(1),
        }
    }

    /// Bytes of gradients of atoms `a..b` that a device reduces: (dense, expert).
    pub(crate) fn sync_bytes(&self, a: usize, b: usize) -> (f64, f64) {
        let (x, y) = (&self.sums[a], &self.sums[b]);
        (y.sync_dense.0 - x.sync_dense.0, y.sync_expert.0 - x.sync_expert.0)
    }

    /// Seconds of the optimizer step of atoms `a..b`.
    pub(crate) fn optimizer(&self, space: &Space<'_>, a: usize, b: usize, holders: Holders) -> f64 {
        let (x, y) = (&self.sums[a], &self.sums[b]);
        memory::optimizer_seconds(
            space.setting,
            Bytes(y.optimizer_dense.0 - x.optimizer_dense.0),
            Bytes(y.optimizer_expert.0 - x.optimizer_expert.0),
            holders.copies(),
            self.memory_bandwidth,
        )
        .0
    }

    /// The recompute modes of atoms `a..b` under a choice.
    pub(crate) fn modes(length: usize, choice: RecomputeChoice) -> Vec<Recompute> {
        (0..length)
            .map(|i| match (i < choice.full as usize, choice.selective) {
                (true, _) => Recompute::Full,
                (false, true) => Recompute::Selective,
                (false, false) => Recompute::None,
            })
            .collect()
    }
}

/// Maxima over ranges in constant time: level k holds maxima of 2^k neighbours.
pub(super) struct RangeMax {
    levels: Vec<Vec<f64>>,
}

impl RangeMax {
    fn new(costs: &[AtomCost], value: impl Fn(&AtomCost) -> f64) -> Self {
        let mut levels = vec![costs.iter().map(value).collect::<Vec<f64>>()];
        let mut width = 1;
        while 2 * width <= costs.len() {
            let below = &levels[levels.len() - 1];
            levels.push(
                (0..=costs.len() - 2 * width)
                    .map(|i| below[i].max(below[i + width]))
                    .collect(),
            );
            width *= 2;
        }
        Self { levels }
    }

    /// The maximum over `a..b`, 0 for an empty range.
    pub(super) fn max(&self, a: usize, b: usize) -> f64 {
        if a >= b {
            return 0.0;
        }
        let level = (b - a).ilog2() as usize;
        self.levels[level][a].max(self.levels[level][b - (1 << level)])
    }
}
