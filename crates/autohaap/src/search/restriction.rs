//! Named spaces: what other planners can express, as rules over a placed plan.
//!
//! A named space is data ([`Rules`]); [`NamedSpace::violations`] reads a plan alone and knows nothing of how it was found.
//! Equal pipelines with equal batches are one pipeline whose stages have that many times the replicas: rules of a single
//! pipeline hold for both forms.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::model::{AtomKind, Model};
use crate::plan::{Pipeline, Recompute, Replica, Stage};

/// How layers may be shared out over stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    /// Any contiguous ranges.
    Free,
    /// Blocks per stage differ by at most one.
    Even,
}

/// How many replicas the stages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// Any number.
    Free,
    /// The same number in all stages, equal pipelines counted together.
    Same,
    /// One in each stage of each pipeline.
    One,
}

/// What a named space permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// All pipelines have the same cuts and batches, so that they are one grid of replicas.
    pub one_grid: bool,
    /// All pipelines have the same micro-batch size; `one_grid` implies it.
    pub one_micro_batch: bool,
    /// All pipelines have the same number of micro-batches; `one_grid` implies it.
    pub one_count: bool,
    /// No device may idle.
    pub all_devices: bool,
    /// Layers per stage.
    pub layers: Layers,
    /// One TP degree for the whole plan.
    pub one_tp: bool,
    /// One TP degree per stage and device type.
    pub one_tp_per_type: bool,
    /// TP degrees are powers of two.
    pub tp_power_of_two: bool,
    /// Largest TP degree.
    pub tp_most: u32,
    /// Replicas per stage.
    pub replicas: Replicas,
    /// A stage may hold devices of several types.
    pub mixed_stages: bool,
    /// Least and most device types of the plan.
    pub types: (usize, usize),
    /// Recompute may be used.
    pub recompute: bool,
    /// Largest ZeRO level.
    pub zero_most: u8,
    /// Most stages of a pipeline.
    pub stages_most: usize,
}

/// Rules that most spaces share: one grid over all devices, layers free, no recompute, ZeRO 0.
const GRID: Rules = Rules {
    one_grid: true,
    one_micro_batch: true,
    one_count: true,
    all_devices: true,
    layers: Layers::Free,
    one_tp: false,
    one_tp_per_type: false,
    tp_power_of_two: true,
    tp_most: u32::MAX,
    replicas: Replicas::Free,
    mixed_stages: true,
    types: (1, usize::MAX),
    recompute: false,
    zero_most: 0,
    stages_most: usize::MAX,
};

/// A space with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedSpace {
    /// Name on the command line.
    pub name: &'static str,
    /// What it permits, in one line.
    pub summary: &'static str,
    /// What the rules leave out of the planner's own limits; empty where they are all there.
    pub wider: &'static str,
    /// The rules.
    pub rules: Rules,
}

/// Every named space but `full`, by name.
pub static SPACES: &[NamedSpace] = &[
    NamedSpace {
        name: "alpa",
        summary: "devices of one type (the others idle), layers free, TP and replicas per stage free",
        wider: "degrees per operator are those of the stage; submesh shapes are not limited",
        rules: Rules {
            all_devices: false,
            types: (1, 1),
            mixed_stages: false,
            ..GRID
        },
    },
    NamedSpace {
        name: "amp",
        summary: "one TP, DP and PP for all devices, layers free",
        wider: "the order of nodes is free",
        rules: Rules {
            one_tp: true,
            replicas: Replicas::Same,
            ..GRID
        },
    },
    NamedSpace {
        name: "cephalo",
        summary: "pure data parallelism, rows free per device",
        wider: "state shards are equal or absent, by the ZeRO level",
        rules: Rules {
            one_grid: false,
            one_micro_batch: false,
            one_count: false,
            tp_most: 1,
            stages_most: 1,
            recompute: true,
            zero_most: 3,
            ..GRID
        },
    },
    NamedSpace {
        name: "fasop",
        summary: "two device types, one TP (at most 4), DP and PP, layers free",
        wider: "the order of nodes is free; layers are not limited to its local moves",
        rules: Rules {
            one_tp: true,
            tp_most: 4,
            replicas: Replicas::Same,
            types: (2, 2),
            ..GRID
        },
    },
    NamedSpace {
        name: "hexiscale",
        summary: "pipelines of one replica per stage with equal batches, TP per stage, layers free",
        wider: "the machine menu does not limit TP groups; recompute is free, the planner always recomputes",
        rules: Rules {
            one_grid: false,
            tp_power_of_two: true,
            replicas: Replicas::One,
            mixed_stages: true,
            recompute: true,
            ..GRID
        },
    },
    NamedSpace {
        name: "malleus",
        summary: "pipelines of one replica per stage, micro-batches per pipeline and layers free, idle devices",
        wider: "stage counts are not limited to one around their mean; stragglers may stand anywhere",
        rules: Rules {
            one_grid: false,
            one_count: false,
            all_devices: false,
            replicas: Replicas::One,
            types: (1, 1),
            ..GRID
        },
    },
    NamedSpace {
        name: "metis",
        summary: "one grid over all devices, TP and replicas per stage powers of two, layers free",
        wider: "group sizes and orders are not limited by its variance and permutation length",
        rules: GRID,
    },
    NamedSpace {
        name: "oobleck",
        summary: "devices of one type (the others idle), pipelines of different depth and count, one micro-batch size",
        wider: "pipelines need not be whole nodes",
        rules: Rules {
            one_grid: false,
            one_count: false,
            all_devices: false,
            types: (1, 1),
            ..GRID
        },
    },
    NamedSpace {
        name: "sailor",
        summary: "even layers, the same replicas in all stages, types mixed in a stage, TP per stage and type, idle devices",
        wider: "the odd layers may stand on any stage; blocks are counted without embedding and head",
        rules: Rules {
            layers: Layers::Even,
            ..SAILOR
        },
    },
    NamedSpace {
        name: "sailor-layers",
        summary: "the space `sailor` with free layers",
        wider: "TP per type is free where the planner's rule fixes it",
        rules: SAILOR,
    },
    NamedSpace {
        name: "uniform",
        summary: "one TP, DP and PP, even layers, all devices",
        wider: "",
        rules: Rules {
            layers: Layers::Even,
            one_tp: true,
            replicas: Replicas::Same,
            tp_power_of_two: false,
            recompute: true,
            zero_most: 3,
            ..GRID
        },
    },
    NamedSpace {
        name: "whale",
        summary: "one TP, DP and PP for all devices, shares of layers free",
        wider: "shares are free where the planner's rule follows the FLOP/s ratio",
        rules: Rules {
            one_tp: true,
            tp_power_of_two: false,
            replicas: Replicas::Same,
            recompute: true,
            zero_most: 3,
            ..GRID
        },
    },
];

const SAILOR: Rules = Rules {
    all_devices: false,
    one_tp_per_type: true,
    tp_most: 4,
    replicas: Replicas::Same,
    ..GRID
};

impl NamedSpace {
    /// The space of that name; `None` for `full` and unknown names.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        SPACES.iter().find(|s| s.name == name)
    }

    /// Why a plan lies outside the space, one sentence a rule; empty for members.
    pub fn violations(
        &self,
        model: &Model,
        cluster: &Cluster,
        zero: u8,
        pipelines: &[Pipeline],
    ) -> Vec<String> {
        let rules = &self.rules;
        let mut found = Vec::new();
        let mut rule = |broken: bool, reason: String| {
            if broken {
                found.push(reason);
            }
        };
        let differ = |f: &dyn Fn(&Pipeline) -> Vec<usize>| pipelines.windows(2).any(|w| f(&w[0]) != f(&w[1]));
        let cuts = |p: &Pipeline| p.stages.iter().map(|s| s.atoms[1]).collect();
        let one = |only: bool| only || rules.one_grid;
        rule(
            rules.one_grid && differ(&cuts),
            "pipelines differ in their cuts".into(),
        );
        rule(
            one(rules.one_micro_batch) && differ(&|p| vec![p.micro_batch as usize]),
            "pipelines differ in micro-batch size".into(),
        );
        rule(
            one(rules.one_count) && differ(&|p| vec![p.micro_batches as usize]),
            "pipelines differ in their number of micro-batches".into(),
        );
        let stages = || pipelines.iter().flat_map(|p| &p.stages);
        let replicas = || stages().flat_map(|s| &s.replicas);
        let used: usize = replicas().map(|r| r.devices.len()).sum();
        let all = cluster
            .classes()
            .iter()
            .map(|c| c.devices as usize)
            .sum::<usize>();
        rule(
            rules.all_devices && used < all,
            format!("{} devices idle", all.saturating_sub(used)),
        );
        let blocks = |s: &Stage| {
            let atoms = model.atoms.iter().take(s.atoms[1]).skip(s.atoms[0]);
            atoms
                .filter(|a| !matches!(a.kind, AtomKind::Embedding | AtomKind::Head))
                .count()
        };
        let uneven = |p: &Pipeline| {
            let counts: Vec<usize> = p.stages.iter().map(blocks).collect();
            let most = counts.iter().max().copied().unwrap_or(0);
            most - counts.iter().min().copied().unwrap_or(0) > 1
        };
        rule(
            rules.layers == Layers::Even && pipelines.iter().any(uneven),
            "layers per stage differ by more than one".into(),
        );
        let tps: BTreeSet<u32> = replicas().map(|r| r.tp).collect();
        rule(rules.one_tp && tps.len() > 1, format!("TP degrees {tps:?}"));
        let illegal = |tp: &u32| *tp > rules.tp_most || (rules.tp_power_of_two && !tp.is_power_of_two());
        if let Some(tp) = tps.iter().find(|tp| illegal(tp)) {
            rule(true, format!("TP degree {tp}"));
        }
        rule(replicas().any(|r| r.cp > 1), "context parallelism".into());
        rule(
            stages().any(|s| s.ep > 1 || s.etp > 1),
            "expert parallelism".into(),
        );
        rule(
            !rules.recompute && stages().any(|s| s.recompute.iter().any(|r| r.mode != Recompute::None)),
            "recompute".into(),
        );
        rule(zero > rules.zero_most, format!("ZeRO level {zero}"));
        rule(
            pipelines.iter().any(|p| p.stages.len() > rules.stages_most),
            format!("more than {} stages", rules.stages_most),
        );
        let kind = |r: &Replica| -> BTreeSet<String> {
            let types = r.devices.iter().filter_map(|d| {
                let (node, index) = cluster.parse_device(d).ok()?;
                cluster.device_type_at(node, index).map(str::to_owned)
            });
            types.collect()
        };
        let types: BTreeSet<String> = replicas().flat_map(kind).collect();
        rule(
            types.len() < rules.types.0 || types.len() > rules.types.1,
            format!("{} device types", types.len()),
        );
        let groups = gradient_groups(pipelines, rules.one_grid);
        let sizes: BTreeSet<usize> = groups.iter().map(Vec::len).collect();
        rule(
            match rules.replicas {
                Replicas::Free => false,
                Replicas::Same => sizes.len() > 1,
                Replicas::One => stages().any(|s| s.replicas.len() != 1),
            },
            "replicas per stage".into(),
        );
        for group in &groups {
            let mut degree: BTreeMap<BTreeSet<String>, u32> = BTreeMap::new();
            let mixed = group
                .iter()
                .any(|r| *degree.entry(kind(r)).or_insert(r.tp) != r.tp);
            rule(
                rules.one_tp_per_type && mixed,
                "TP degrees differ inside a stage and device type".into(),
            );
            let types: BTreeSet<String> = group.iter().copied().flat_map(kind).collect();
            rule(
                !rules.mixed_stages && types.len() > 1,
                "a stage of several device types".into(),
            );
        }
        found.dedup();
        found
    }
}

/// Replicas of each stage; the stages of equal pipelines at one position are taken together if `joined`.
fn gradient_groups(pipelines: &[Pipeline], joined: bool) -> Vec<Vec<&Replica>> {
    let mut groups: BTreeMap<(usize, usize), Vec<&Replica>> = BTreeMap::new();
    for (p, pipeline) in pipelines.iter().enumerate() {
        for (s, stage) in pipeline.stages.iter().enumerate() {
            let key = (if joined { 0 } else { p }, s);
            groups.entry(key).or_default().extend(&stage.replicas);
        }
    }
    groups.into_values().collect()
}
