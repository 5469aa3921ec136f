//! The stage table: time and memory of any atom range under a stage option, from prefix sums.
//!
//! Everything the search knows about costs passes through here, so that a stage costs the same in pricing, in
//! enumeration and (up to the real placement) in the exact price of a plan.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::{Collective, Group};
use crate::cost::atom::{AtomCost, ReplicaShape, atom_cost};
use crate::cost::memory::{self, StageSums};
use crate::plan::Recompute;
use crate::units::Bytes;

use super::space::{Space, StageOption};

/// Costs of every atom range under one option and micro-batch size.
pub(super) struct Row {
    /// The option.
    pub(super) option: StageOption,
    /// Sequences of a micro-batch.
    pub(super) micro_batch: u32,
    /// Times where the groups stand as [`representative`] puts them.
    times: Times,
    /// Times not above those of any placement, where the placement matters: for bounds.
    least: Option<Times>,
    /// Prefix sums of the memory items and reduction bytes.
    sums: Vec<StageSums>,
    /// Number of atoms with routed experts before each position.
    routed: Vec<u32>,
    /// Costs per atom.
    costs: Vec<AtomCost>,
    /// Memory that one device of the class may use.
    limit: Bytes,
    /// Range maxima of the transients, bytes.
    working_set: RangeMax,
    logits: RangeMax,
    held: RangeMax,
    recomputed: RangeMax,
    gathered: RangeMax,
    /// Memory bandwidth of the class, bytes per second.
    memory_bandwidth: f64,
    /// Whether selective recompute saves anything.
    selective_helps: bool,
    /// Whether full recompute keeps the least of every atom.
    full_saves_most: bool,
}

/// Prefix sums of seconds over the atoms.
struct Times {
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

    fn with(&self, a: usize, b: usize, recompute: RecomputeChoice) -> Fit {
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
pub(super) struct Holders {
    /// Replicas of all pipelines that hold the stage's atoms.
    pub(super) replicas: u32,
    /// Copies of the stage's experts over all pipelines.
    pub(super) experts: u32,
}

impl Holders {
    fn copies(self) -> memory::Copies {
        memory::Copies {
            dense: self.replicas,
            expert: self.experts.max(1),
        }
    }

    /// More than any plan on `devices` devices has: every device a replica with all experts.
    pub(super) fn most(devices: u32) -> Self {
        Self {
            replicas: devices,
            experts: devices,
        }
    }
}

/// Recompute of a stage: the first `full` atoms are computed again, the others selectively or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct RecomputeChoice {
    /// Leading atoms of the stage under full recompute.
    pub(super) full: u32,
    /// Whether the others recompute their attention core.
    pub(super) selective: bool,
}

/// The deepest in-flight limits of a stage that its memory holds; 0 where none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Depths {
    /// Without recompute.
    pub(super) plain: u32,
    /// With some recompute or none.
    pub(super) any: u32,
}

/// A stage that fits: its recompute and times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fit {
    /// Least recompute that fits.
    pub(super) recompute: RecomputeChoice,
    /// Forward seconds of one micro-batch.
    pub(super) forward: f64,
    /// Backward seconds of one micro-batch, recompute included.
    pub(super) backward: f64,
}

impl Row {
    fn new(space: &Space<'_>, option: StageOption, micro_batch: u32) -> Self {
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
    pub(super) fn rows(&self) -> u32 {
        self.micro_batch / self.option.replicas
    }

    /// Forward and backward seconds of atoms `a..b` without recompute.
    pub(super) fn times(&self, a: usize, b: usize) -> (f64, f64) {
        self.times.of(a, b)
    }

    fn least(&self) -> &Times {
        self.least.as_ref().unwrap_or(&self.times)
    }

    /// The least that [`Row::compute`] can be under any placement.
    pub(super) fn least_compute(&self, a: usize, b: usize) -> f64 {
        let (f, w) = self.least().of(a, b);
        f + w
    }

    /// Forward plus backward seconds of atoms `a..b` without recompute.
    pub(super) fn compute(&self, a: usize, b: usize) -> f64 {
        let (f, w) = self.times(a, b);
        f + w
    }

    /// Whether a stage of atoms `a..b` may take the option: expert parallelism needs experts.
    pub(super) fn allows(&self, (a, b): (usize, usize)) -> bool {
        self.option.ep == 1 || self.routed[b] > self.routed[a]
    }

    /// Peak memory of a device that holds atoms `a..b` with `in_flight` micro-batches.
    pub(super) fn memory(
        &self,
        space: &Space<'_>,
        (a, b): (usize, usize),
        in_flight: u32,
        recompute: RecomputeChoice,
        holders: Holders,
    ) -> f64 {
        let recomputed = self.recomputed.max(a, a + recompute.full as usize);
        self.memory_of(space, (a, b), in_flight, recompute, recomputed, holders)
    }

    /// [`Row::memory`] with the largest recomputed atom given.
    fn memory_of(
        &self,
        space: &Space<'_>,
        (a, b): (usize, usize),
        in_flight: u32,
        recompute: RecomputeChoice,
        recomputed: f64,
        holders: Holders,
    ) -> f64 {
        let cut = a + recompute.full as usize;
        let sums = self.sums[b].since(&self.sums[a]);
        let head = self.sums[cut].saved_full - self.sums[a].saved_full;
        let (x, y) = (&self.sums[cut], &self.sums[b]);
        let rest = if recompute.selective {
            y.saved_selective - x.saved_selective
        } else {
            y.saved_none - x.saved_none
        };
        let peaks = memory::StagePeaks {
            working_set: Bytes(self.working_set.max(a, b)),
            logits: Bytes(self.logits.max(a, b)),
            held: Bytes(self.held.max(a, b)),
            recomputed: Bytes(recomputed),
            gathered: Bytes(self.gathered.max(a, b)),
        };
        memory::total(
            space.setting,
            &sums,
            head + rest,
            &peaks,
            &self.costs[a..b],
            in_flight,
            holders.copies(),
            self.boundary(space, a, b),
            self.limit,
        )
        .0
    }

    /// The least number of leading full atoms, the others selective, that may fit: what an atom takes while it is
    /// recomputed is left out, so that memory falls with every further one and bisection finds it. `None`: none fits.
    fn first_selective(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<u32> {
        if !self.full_saves_most {
            return Some(0);
        }
        let length = (range.1 - range.0) as u32;
        let may_fit = |full: u32| {
            let choice = RecomputeChoice {
                full,
                selective: true,
            };
            self.memory_of(space, range, in_flight, choice, 0.0, holders) <= self.limit.0
        };
        if !may_fit(length) {
            return None;
        }
        let (mut low, mut high) = (0, length);
        while low < high {
            let middle = u32::midpoint(low, high);
            if may_fit(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    fn boundary(&self, space: &Space<'_>, a: usize, b: usize) -> memory::Boundary {
        memory::Boundary {
            first: a == 0,
            last: b == space.setting.model.atoms.len(),
            tp: self.option.tp,
            cp: self.option.cp,
            rows: self.rows(),
        }
    }

    /// Holders where the stage's tensors have `replicas` replicas in all, each laid out like its own.
    pub(super) fn holders(&self, replicas: u32) -> Holders {
        Holders {
            replicas,
            experts: (replicas * self.option.tp * self.option.cp / self.option.ep).max(1),
        }
    }

    /// The least recompute with which `in_flight` micro-batches fit, `None` if none does or the range is not allowed.
    pub(super) fn fit(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        self.fit_in(&self.times, space, range, in_flight, holders)
    }

    /// The same with times not above those of any placement.
    pub(super) fn least_fit(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        self.fit_in(self.least(), space, range, in_flight, holders)
    }

    fn fit_in(
        &self,
        times: &Times,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        if !self.allows(range) {
            return None;
        }
        let fits = |choice| self.memory(space, range, in_flight, choice, holders) <= self.limit.0;
        let none = RecomputeChoice::default();
        if fits(none) {
            return Some(times.with(range.0, range.1, none));
        }
        let length = (range.1 - range.0) as u32;
        let mut best: Option<Fit> = None;
        let mut offer = |full: u32, selective: bool| {
            let fit = times.with(range.0, range.1, RecomputeChoice { full, selective });
            if best.is_none_or(|kept| fit.backward < kept.backward) {
                best = Some(fit);
            }
        };
        if self.selective_helps {
            // A fully recomputed atom beside selective ones may take more memory than it saves: no bisection.
            let first = self.first_selective(space, range, in_flight, holders)?;
            let least = (first..=length).find(|&full| {
                fits(RecomputeChoice {
                    full,
                    selective: true,
                })
            });
            if let Some(full) = least {
                offer(full, true);
            }
        }
        // Without selective ones memory never rises with a further atom.
        let fitting = |full: u32| {
            fits(RecomputeChoice {
                full,
                selective: false,
            })
        };
        if length > 0 && fitting(length) {
            let (mut low, mut high) = (1, length);
            while low < high {
                let middle = u32::midpoint(low, high);
                if fitting(middle) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            offer(low, false);
        }
        best
    }

    /// The deepest in-flight limits up to `most` that fit.
    pub(super) fn depths(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        most: u32,
        holders: Holders,
    ) -> Depths {
        if !self.allows(range) {
            return Depths::default();
        }
        let length = (range.1 - range.0) as u32;
        let choice = |full, selective| RecomputeChoice { full, selective };
        let plain = self.deepest_with(space, range, most, choice(0, false), holders);
        if plain == most {
            return Depths { plain, any: most };
        }
        let full = self.deepest_with(space, range, most, choice(length, false), holders);
        let mut any = plain.max(full);
        // Some atoms in full and the others selectively may go deeper than either alone.
        let mixed = |w: u32| {
            self.first_selective(space, range, w, holders)
                .is_some_and(|first| {
                    (first..length)
                        .any(|full| self.memory(space, range, w, choice(full, true), holders) <= self.limit.0)
                })
        };
        if self.selective_helps && any < most && mixed(any + 1) {
            let (mut low, mut high) = (any + 1, most);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if mixed(middle) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            any = low;
        }
        Depths { plain, any }
    }

    /// The deepest in-flight limit up to `most` that fits under one recompute choice; 0 if none does. Memory rises by the same
    /// amount with every further micro-batch, so two values of it give the limit up to rounding.
    fn deepest_with(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        most: u32,
        choice: RecomputeChoice,
        holders: Holders,
    ) -> u32 {
        let most = most.max(1);
        let memory = |w: u32| self.memory(space, range, w, choice, holders);
        let limit = self.limit.0;
        let all = memory(most);
        if all <= limit {
            return most;
        }
        let one = memory(1);
        if most == 1 || one > limit {
            return 0;
        }
        let each = (all - one) / f64::from(most - 1);
        let mut depth = (1 + ((limit - one) / each) as u32).min(most - 1);
        while depth > 1 && memory(depth) > limit {
            depth -= 1;
        }
        while depth + 1 < most && memory(depth + 1) <= limit {
            depth += 1;
        }
        depth
    }

    /// Bytes of gradients of atoms `a..b` that a device reduces: (dense, expert).
    pub(super) fn sync_bytes(&self, a: usize, b: usize) -> (f64, f64) {
        let (x, y) = (&self.sums[a], &self.sums[b]);
        (y.sync_dense.0 - x.sync_dense.0, y.sync_expert.0 - x.sync_expert.0)
    }

    /// Seconds of the optimizer step of atoms `a..b`.
    pub(super) fn optimizer(&self, space: &Space<'_>, a: usize, b: usize, holders: Holders) -> f64 {
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
    pub(super) fn modes(length: usize, choice: RecomputeChoice) -> Vec<Recompute> {
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
struct RangeMax {
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
    fn max(&self, a: usize, b: usize) -> f64 {
        if a >= b {
            return 0.0;
        }
        let level = (b - a).ilog2() as usize;
        self.levels[level][a].max(self.levels[level][b - (1 << level)])
    }
}

/// A replica of the option as it stands on the first nodes of its class.
fn representative(space: &Space<'_>, option: StageOption, micro_batch: u32) -> ReplicaShape {
    let class = &space.classes[option.class];
    let group = |ranks: u32, per_node: u32, stride: u32| {
        let per_node = per_node.max(1);
        let mut members = Vec::new();
        let mut left = ranks;
        for &(node, _, _) in &class.nodes {
            if left == 0 {
                break;
            }
            let here = left.min(per_node);
            members.push((node, class.device_type.clone(), here));
            left -= here;
        }
        Group {
            members,
            concurrent: stride.max(1),
        }
    };
    let per_node = class.devices_per_node;
    let replica = option.tp * option.cp;
    ReplicaShape {
        device_type: class.device_type.clone(),
        speed_factor: class.speed_factor,
        tp: option.tp,
        cp: option.cp,
        rows: micro_batch / option.replicas,
        ep: option.ep,
        etp: 1,
        stage_replicas: option.replicas,
        tp_group: group(option.tp, option.tp, 1),
        cp_group: group(option.cp, (per_node / option.tp).max(1), option.tp),
        ep_group: group(
            option.ep,
            per_node,
            (option.devices().min(per_node) / option.ep).max(1),
        ),
        stage_group: group(
            option.replicas,
            (per_node / replica).max(1),
            replica.min(per_node),
        ),
    }
}

/// The shape under the other ways to spread its groups over the nodes of the class, each as if it had the network to
/// itself. Only groups that may span nodes; none where all placements cost the same.
fn other_places(space: &Space<'_>, option: StageOption, shape: &ReplicaShape) -> Vec<ReplicaShape> {
    let class = &space.classes[option.class];
    let mut nodes: Vec<usize> = class.nodes.iter().map(|n| n.0).collect();
    nodes.dedup();
    let zero = space.setting.training.zero >= 2 && option.replicas > 1;
    if nodes.len() < 2 || !(option.ep > 1 || option.cp > 1 || zero) {
        return Vec::new();
    }
    let spread = |ranks: u32, per_node: u32| {
        let mut left = ranks;
        let mut members = Vec::new();
        for &node in &nodes {
            let here = left.min(per_node);
            if here > 0 {
                members.push((node, class.device_type.clone(), here));
                left -= here;
            }
        }
        (left == 0).then_some(Group {
            members,
            concurrent: 1,
        })
    };
    (1..=class.devices_per_node.min(option.devices()))
        .map(|per_node| {
            let group = |ranks: u32, kept: &Group| spread(ranks, per_node).unwrap_or_else(|| kept.clone());
            ReplicaShape {
                cp_group: group(option.cp, &shape.cp_group),
                ep_group: group(option.ep, &shape.ep_group),
                stage_group: group(option.replicas, &shape.stage_group),
                ..shape.clone()
            }
        })
        .collect()
}

/// All rows that a search has asked for, and the links between options.
pub(super) struct Table<'a> {
    /// The space.
    pub(super) space: &'a Space<'a>,
    by_size: FxHashMap<u32, Vec<Arc<Row>>>,
}

impl<'a> Table<'a> {
    /// Builds the rows of every option with at most `counts` devices per class.
    pub(super) fn new(space: &'a Space<'a>) -> Self {
        use rayon::prelude::*;
        let mut wanted = Vec::new();
        for &micro_batch in &space.micro_batches {
            for class in 0..space.classes.len() {
                for option in space.options(class, micro_batch, space.classes[class].devices) {
                    wanted.push((micro_batch, option));
                }
            }
        }
        let built: Vec<Arc<Row>> = wanted
            .par_iter()
            .map(|&(b, option)| Arc::new(Row::new(space, option, b)))
            .collect();
        let mut by_size: FxHashMap<u32, Vec<Arc<Row>>> = FxHashMap::default();
        for row in built {
            by_size.entry(row.micro_batch).or_default().push(row);
        }
        Self { space, by_size }
    }

    /// Rows of a micro-batch size, in canonical order.
    pub(super) fn of_size(&self, micro_batch: u32) -> &[Arc<Row>] {
        self.by_size.get(&micro_batch).map_or(&[], Vec::as_slice)
    }

    /// Seconds of one boundary transfer from a stage under `from` to one under `to`: the best that the classes allow
    /// (`optimistic`) or what neighbours on different nodes see. `None` where no path exists.
    pub(super) fn link(&self, from: &Row, to: &Row, optimistic: bool) -> Option<f64> {
        let space = self.space;
        let (a, b) = (&space.classes[from.option.class], &space.classes[to.option.class]);
        let setting = space.setting;
        let total = memory::boundary_bytes(setting, from.micro_batch).0;
        let ranks = from.option.devices().min(to.option.devices()).max(1);
        let node_a = a.nodes.first()?.0;
        let shared = b
            .nodes
            .iter()
            .find(|n| a.nodes.iter().any(|m| m.0 == n.0))
            .map(|n| n.0);
        let room = from.option.devices() + to.option.devices();
        let together = if a.id == b.id {
            room <= a.devices_per_node
        } else {
            shared.is_some()
        };
        let inside = if together {
            Some(shared.unwrap_or(node_a))
        } else {
            None
        };
        let (at_a, at_b) = match inside {
            Some(node) => (node, node),
            None => (
                node_a,
                b.nodes
                    .iter()
                    .map(|n| n.0)
                    .find(|&n| n != node_a)
                    .unwrap_or(node_a),
            ),
        };
        let nodes = ranks
            .div_ceil(a.devices_per_node.min(b.devices_per_node).max(1))
            .max(1);
        let bytes = Bytes(total / f64::from(ranks));
        let time = |at_a: usize, at_b: usize, concurrent: u32| {
            setting
                .cluster
                .transfer_time((at_a, &a.device_type), (at_b, &b.device_type), bytes, concurrent)
                .map(|s| s.0)
        };
        if !optimistic {
            return time(at_a, at_b, ranks.div_ceil(nodes));
        }
        // Inside a node or between two, whichever is faster: replicas of one stage may stand on different nodes.
        let inside = if a.id == b.id {
            (a.devices_per_node > 1).then_some(node_a)
        } else {
            shared
        };
        let pair = a
            .nodes
            .iter()
            .find_map(|x| b.nodes.iter().find(|y| y.0 != x.0).map(|y| (x.0, y.0)));
        let near = inside.and_then(|node| time(node, node, 1));
        let far = pair.and_then(|(x, y)| time(x, y, 1));
        match (near, far) {
            (Some(near), Some(far)) => Some(near.min(far)),
            (one, other) => one.or(other),
        }
    }

    /// Estimated seconds of the gradient reduction of atoms `a..b` over `holders` replicas, one per node of the class
    /// as far as nodes last.
    pub(super) fn sync(&self, row: &Row, a: usize, b: usize, holders: Holders) -> f64 {
        let (dense, expert) = row.sync_bytes(a, b);
        self.reduction(row, dense, holders.replicas) + self.reduction(row, expert, holders.experts)
    }

    fn reduction(&self, row: &Row, bytes: f64, ranks: u32) -> f64 {
        if ranks < 2 || bytes <= 0.0 {
            return 0.0;
        }
        let class = &self.space.classes[row.option.class];
        let nodes = class.nodes.len() as u32;
        let (each, extra) = (ranks / nodes, ranks % nodes);
        let members: Vec<(usize, String, u32)> = class
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| {
                (
                    n.0,
                    class.device_type.clone(),
                    each + u32::from((i as u32) < extra),
                )
            })
            .filter(|m| m.2 > 0)
            .collect();
        let concurrent = (class.devices_per_node / members[0].2.max(1)).max(1);
        let group = Group { members, concurrent };
        self.space
            .setting
            .cluster
            .collective_time(Collective::AllReduce, &group, Bytes(bytes))
            .map_or(f64::INFINITY, |s| s.0)
    }
}
