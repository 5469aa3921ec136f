//! The space: stage options per device class and micro-batch sizes.

use crate::cluster::DeviceClass;
use crate::cost::atom::Setting;
use crate::model::Sharding;
use crate::plan::Pipeline;

use super::restriction::NamedSpace;

/// How a stage may be laid over devices of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StageOption {
    /// Index into [`Space::classes`].
    pub(super) class: usize,
    /// Tensor parallelism of each replica.
    pub(super) tp: u32,
    /// Context parallelism of each replica.
    pub(super) cp: u32,
    /// Replicas that split a micro-batch by rows.
    pub(super) replicas: u32,
    /// Expert parallelism over the stage.
    pub(super) ep: u32,
}

impl StageOption {
    /// Devices of the stage.
    pub(super) fn devices(&self) -> u32 {
        self.tp * self.cp * self.replicas
    }
}

/// What the search chooses from.
pub(super) struct Space<'a> {
    /// Model, cluster and training.
    pub(super) setting: &'a Setting<'a>,
    /// Device classes.
    pub(super) classes: Vec<DeviceClass>,
    /// For each atom the first atom that is identical.
    pub(super) twin: Vec<usize>,
    /// Legal TP degrees of the whole chain, ascending.
    pub(super) tps: Vec<u32>,
    /// Legal CP degrees, ascending.
    pub(super) cps: Vec<u32>,
    /// Routed experts: EP must divide each; empty = dense model.
    pub(super) experts: Vec<u64>,
    /// Micro-batch sizes, ascending.
    pub(super) micro_batches: Vec<u32>,
    /// Most rows of one replica.
    max_rows: u32,
    /// Parameters of (dense, routed-expert) tensors.
    pub(super) parameters: (f64, f64),
    /// Plans of this named space only; `None` is all.
    pub(super) named: Option<&'static NamedSpace>,
    /// Whether activations may be computed again.
    pub(super) recompute: bool,
}

/// Largest micro-batch of a dense model: replicas of a stage times rows of each.
const DENSE_MICRO_BATCH: u32 = 16;

/// Largest micro-batch of a mixture-of-experts model: expert parallelism spans the replicas of a stage, so that a stage
/// needs many of them.
const MOE_MICRO_BATCH: u32 = 128;

impl<'a> Space<'a> {
    /// The space of a setting; `max_rows` limits the sequences of a micro-batch that one replica computes.
    pub(super) fn new(setting: &'a Setting<'a>, max_rows: u32) -> Self {
        let classes = setting.cluster.classes();
        let atoms = &setting.model.atoms;
        let mut twin: Vec<usize> = Vec::with_capacity(atoms.len());
        for (i, atom) in atoms.iter().enumerate() {
            // Identical atoms mostly follow each other or repeat with a short period.
            let found = (0..i)
                .rev()
                .take(64)
                .find(|&j| atoms[j] == *atom)
                .map(|j| twin[j]);
            twin.push(found.unwrap_or(i));
        }
        let seq = setting.training.seq_len;
        let largest_node = classes.iter().map(|c| c.devices_per_node).max().unwrap_or(1);
        let tps = (1..=largest_node)
            .filter(|&tp| tp_is_legal(setting, tp))
            .collect();
        let cps = [1u32, 2, 4, 8]
            .into_iter()
            .filter(|&cp| cp == 1 || (seq > 16_384 && seq.is_multiple_of(2 * u64::from(cp))))
            .collect();
        let experts: Vec<u64> = setting
            .parts
            .iter()
            .map(|p| p.experts)
            .filter(|&e| e > 0)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        let batch = setting.training.global_batch.min(u64::from(u32::MAX)) as u32;
        let mut micro_batches = Vec::new();
        let mut size = 1u32;
        let largest = if experts.is_empty() {
            DENSE_MICRO_BATCH
        } else {
            MOE_MICRO_BATCH
        };
        while size <= largest.max(max_rows).min(batch) {
            micro_batches.push(size);
            size *= 2;
        }
        let count = |expert: bool| -> f64 {
            let weights = setting.parts.iter().flat_map(|p| &p.weights);
            weights
                .filter(|w| !w.tied_copy && (w.sharding == Sharding::Expert) == expert)
                .map(|w| w.parameters as f64)
                .sum()
        };
        let parameters = (count(false), count(true));
        Self {
            setting,
            classes,
            twin,
            tps,
            cps,
            experts,
            micro_batches,
            max_rows,
            parameters,
            named: None,
            recompute: true,
        }
    }

    /// The same space with options and plans of a named one only.
    pub(super) fn restricted(mut self, named: Option<&'static NamedSpace>) -> Self {
        self.named = named;
        if let Some(rules) = named.map(|n| &n.rules) {
            self.tps
                .retain(|tp| *tp <= rules.tp_most && (!rules.tp_power_of_two || tp.is_power_of_two()));
            self.cps.retain(|cp| *cp == 1);
            self.recompute = rules.recompute;
        }
        self
    }

    /// Whether the named space, if any, holds a plan.
    pub(super) fn admits(&self, pipelines: &[Pipeline]) -> bool {
        let (model, cluster) = (self.setting.model, self.setting.cluster);
        let zero = self.setting.training.zero;
        self.named
            .is_none_or(|n| n.violations(model, cluster, zero, pipelines).is_empty())
    }

    /// Most rows of one replica.
    pub(super) fn max_rows(&self) -> u32 {
        self.max_rows
    }

    /// Devices per class.
    pub(super) fn counts(&self) -> Vec<u32> {
        self.classes.iter().map(|c| c.devices).collect()
    }

    /// Options of one class at micro-batch size `micro_batch` with at most `available` devices.
    ///
    /// Rows are equal over the replicas: the number of replicas divides the micro-batch.
    pub(super) fn options(&self, class: usize, micro_batch: u32, available: u32) -> Vec<StageOption> {
        let per_node = self.classes[class].devices_per_node;
        let mut options = Vec::new();
        for &tp in self.tps.iter().filter(|&&tp| tp <= per_node) {
            for &cp in self.cps.iter().filter(|&&cp| tp * cp <= per_node.max(8)) {
                let one = self
                    .named
                    .is_some_and(|n| n.rules.replicas == super::restriction::Replicas::One);
                for replicas in
                    (1..=if one { 1 } else { micro_batch }).filter(|r| micro_batch.is_multiple_of(*r))
                {
                    if micro_batch / replicas > self.max_rows {
                        continue;
                    }
                    let devices = tp * cp * replicas;
                    if devices > available {
                        continue;
                    }
                    for ep in self.expert_degrees(devices, per_node) {
                        options.push(StageOption {
                            class,
                            tp,
                            cp,
                            replicas,
                            ep,
                        });
                    }
                }
            }
        }
        options
    }

    /// EP degrees of a stage with `devices` devices: all legal ones on up to eight devices; on more, none, a node and the
    /// whole stage. 1 for dense models.
    fn expert_degrees(&self, devices: u32, per_node: u32) -> Vec<u32> {
        let legal = |ep: &u32| {
            devices.is_multiple_of(*ep) && self.experts.iter().all(|e| e.is_multiple_of(u64::from(*ep)))
        };
        if self.experts.is_empty() || self.named.is_some() {
            return vec![1];
        }
        let all: Vec<u32> = (1..=devices).filter(legal).collect();
        if devices <= 8 {
            return all;
        }
        let up_to = |most: u32| all.iter().copied().filter(|ep| *ep <= most).max().unwrap_or(1);
        let mut few = vec![1, up_to(per_node), up_to(devices)];
        few.dedup();
        few
    }
}

/// Whether `tp` divides what it must in every atom (heads, widths), the key/value heads fit and, under sequence
/// parallelism, the sequence divides.
pub(super) fn tp_is_legal(setting: &Setting<'_>, tp: u32) -> bool {
    let t = u64::from(tp);
    let sequence = !setting.training.sequence_parallel || setting.training.seq_len.is_multiple_of(t);
    sequence
        && setting.parts.iter().all(|p| {
            p.tp_divides.iter().all(|(_, n)| n.is_multiple_of(t))
                && (p.kv_heads == 0 || p.kv_heads.is_multiple_of(t) || t.is_multiple_of(p.kv_heads))
        })
}
