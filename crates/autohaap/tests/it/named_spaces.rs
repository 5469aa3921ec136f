//! Members and non-members of the named spaces, on plans written by hand.

use autohaap::cluster::{Cluster, parse_cluster};
use autohaap::model::Model;
use autohaap::plan::{Pipeline, Recompute, RecomputeRange, Replica, Schedule, ScheduleKind, Stage};
use autohaap::search::{NamedSpace, SPACES};

use crate::search_properties::preset;

fn cluster() -> Cluster {
    parse_cluster("1x2 A100-80G + 1x2 V100-32G", "--cluster").unwrap_or_else(|p| panic!("{p}"))
}

/// A device by its place in the list of nodes, two a node.
fn device(cluster: &Cluster, place: usize) -> String {
    cluster.device_name(place / 2, (place % 2) as u32)
}

/// Two stages cut at `cut`, each one replica over the devices given.
fn pipeline(model: &Model, cluster: &Cluster, cut: usize, stages: [&[usize]; 2]) -> Pipeline {
    let ranges = [[0, cut], [cut, model.atoms.len()]];
    Pipeline {
        micro_batch: 1,
        micro_batches: 4,
        schedule: Schedule {
            kind: ScheduleKind::OneF1b,
            file: None,
        },
        stages: ranges
            .into_iter()
            .zip(stages)
            .map(|(atoms, devices)| Stage {
                atoms,
                in_flight: 1,
                recompute: Vec::new(),
                ep: 1,
                etp: 1,
                replicas: vec![Replica {
                    devices: devices.iter().map(|&d| device(cluster, d)).collect(),
                    tp: devices.len() as u32,
                    cp: 1,
                    rows: 1,
                }],
                on_stage: None,
            })
            .collect(),
    }
}

/// Names of the spaces that hold a plan.
fn members(zero: u8, pipelines: &[Pipeline]) -> Vec<&'static str> {
    let (model, cluster) = (preset("llama-3.2-1b"), cluster());
    let holds = |s: &&NamedSpace| s.violations(&model, &cluster, zero, pipelines).is_empty();
    SPACES.iter().filter(holds).map(|s| s.name).collect()
}

#[test]
fn every_space_tells_members_from_others() {
    let (model, cluster) = (preset("llama-3.2-1b"), cluster());
    let make = |cut, stages| pipeline(&model, &cluster, cut, stages);
    let even = model.atoms.len() / 2;
    let grid = [
        "amp",
        "fasop",
        "hexiscale",
        "metis",
        "sailor",
        "sailor-layers",
        "uniform",
        "whale",
    ];
    assert_eq!(members(0, &[make(even, [&[0, 1], &[2, 3]])]), grid);
    // Uneven layers.
    let uneven = ["amp", "fasop", "hexiscale", "metis", "sailor-layers", "whale"];
    assert_eq!(members(0, &[make(even + 3, [&[0, 1], &[2, 3]])]), uneven);
    // TP 2 before TP 1 with an idle device; sharded optimizer; recompute.
    let idle = make(even, [&[0, 1], &[2]]);
    assert_eq!(members(0, &[idle]), ["sailor", "sailor-layers"]);
    assert_eq!(
        members(1, &[make(even, [&[0, 1], &[2, 3]])]),
        ["uniform", "whale"]
    );
    let mut again = make(even, [&[0, 1], &[2, 3]]);
    again.stages[0].recompute = vec![RecomputeRange {
        atoms: [0, even],
        mode: Recompute::Full,
    }];
    assert_eq!(members(0, &[again]), ["hexiscale", "uniform", "whale"]);
    // Pipelines on one type each with different cuts, then with different counts as well.
    let pair = [make(even, [&[0], &[1]]), make(even + 1, [&[2], &[3]])];
    assert_eq!(members(0, &pair), ["hexiscale"]);
    let mut counts = pair;
    counts[1].micro_batches = 2;
    assert!(members(0, &counts).is_empty());
}
