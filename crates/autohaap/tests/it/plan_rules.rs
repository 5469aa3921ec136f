//! Every rule of the plan check has a plan that breaks it.

use autohaap::cluster::{Bridge, Precision, Provenance, Sourced};
use autohaap::plan::{AttentionKernel, Grade, Plan, Recompute, RecomputeRange, ScheduleKind, check};
use autohaap::units::{ByteRate, Bytes, Seconds};

use crate::plan::{
    addresses, asymmetric, broken, cluster, dense, experts, pipeline, predicted, replica, stage, tied,
    training, uniform,
};

/// Breaks one thing in the asymmetric plan and expects these codes, in the order of the rules.
fn breaks(codes: &[&str], change: impl FnOnce(&mut Plan)) {
    let mut plan = predicted(asymmetric());
    change(&mut plan);
    assert_eq!(broken(&plan), codes, "{:#?}", check(&plan));
}

#[test]
fn every_problem_has_value_place_and_remedy() {
    let mut plan = predicted(asymmetric());
    plan.pipelines[0].stages[0].atoms[1] += 1;
    plan.pipelines[0].micro_batches += 1;
    plan.training.zero = 7;
    plan.pipelines[1].stages[0].replicas[0].devices[0] = "nowhere:0".into();
    let violations = check(&plan);
    assert!(violations.len() >= 4);
    for violation in violations {
        assert!(violation.message.contains('`'), "{violation:?}");
        assert!(!violation.message.ends_with('.'), "{violation:?}");
        assert!(
            !violation.path.is_empty() && !violation.hint.is_empty(),
            "{violation:?}"
        );
    }
}

#[test]
fn two_edits_give_at_least_two_violations() {
    let mut plan = asymmetric();
    plan.pipelines[0].stages[0].atoms[1] += 1;
    plan.pipelines[0].micro_batches += 1;
    assert_eq!(broken(&plan), ["E411", "E417", "E431"]);
}

#[test]
fn structure() {
    breaks(&["E405", "E414", "E431", "E436"], |p| {
        p.pipelines[1].stages[2].replicas.clear();
    });
    let mut empty = asymmetric();
    empty.pipelines.clear();
    assert!(broken(&empty).contains(&"E405"));
    breaks(&["E406", "E439"], |p| p.model.model.atoms.swap(30, 31));
    breaks(&["E407", "E439"], |p| {
        p.cluster.cluster.domains[0].device_types.clear();
    });
    breaks(&["E411", "E431"], |p| p.pipelines[1].stages[2].atoms = [30, 31]);
    breaks(&["E411", "E431"], |p| p.pipelines[1].stages[1].atoms = [12, 30]);
}

#[test]
fn devices() {
    breaks(&["E412", "E414", "E436"], |p| {
        p.pipelines[0].stages[1].replicas[0].devices[0] = "nowhere:0".into();
    });
    breaks(&["E412", "E414", "E436"], |p| {
        let device = &mut p.pipelines[0].stages[1].replicas[0].devices[0];
        *device = device.replace(":4", ":04");
    });
    breaks(&["E413", "E414", "E436"], |p| {
        p.pipelines[0].stages[1].replicas[0].devices[0] =
            p.pipelines[0].stages[0].replicas[0].devices[0].clone();
    });
    breaks(&["E413"], |p| {
        p.idle[0]
            .devices
            .push(p.pipelines[0].stages[0].replicas[0].devices[0].clone());
    });
    breaks(&["E414"], |p| p.idle.clear());
    breaks(&["E415"], |p| p.pipelines[0].stages[0].replicas[0].tp = 2);
    breaks(&["E412", "E439"], |p| {
        let node = p.cluster.cluster.nodes.first_mut().expect("a node");
        node.excluded.push(0);
    });
}

#[test]
fn batches() {
    breaks(&["E416", "E431"], |p| {
        p.pipelines[0].stages[0].replicas[0].rows = 2;
    });
    breaks(&["E416", "E431"], |p| {
        p.pipelines[1].stages[0].replicas[0].rows = 0;
    });
    breaks(&["E417", "E431", "E437"], |p| p.training.global_batch = 33);
    breaks(&["E417", "E431"], |p| p.pipelines[1].micro_batches = 0);
}

#[test]
fn degrees() {
    breaks(&["E418", "E420"], |p| {
        let replica = &mut p.pipelines[0].stages[0].replicas[0];
        replica.tp = 3;
        replica.devices.truncate(3);
        let gone = addresses(&p.cluster.cluster)[3].clone();
        p.idle[0].devices.push(gone.clone());
        let prediction = p.prediction.as_mut().expect("predicted");
        prediction.devices.retain(|d| d.device != gone);
    });
    breaks(&["E419"], |p| {
        p.training.seq_len = 4098;
        p.training.sequence_parallel = false;
        let tokens = (p.training.seq_len * p.training.global_batch) as f64;
        p.prediction.as_mut().expect("predicted").tokens_per_s = tokens / 4.0;
    });
    breaks(&["E421"], |p| p.pipelines[0].stages[0].ep = 2);
    breaks(&["E422"], |p| p.pipelines[0].stages[0].etp = 2);
    breaks(&["E434"], |p| p.training.zero = 4);

    let eight = cluster("1x8 A100-80G");
    let moe = experts(6);
    let with = |ep: u32, etp: u32| {
        let mut plan = uniform(&moe, &eight, 4, 1, &[0, 4, 8], 1);
        plan.pipelines[0].stages[0].ep = ep;
        plan.pipelines[0].stages[0].etp = etp;
        plan
    };
    assert_eq!(broken(&with(4, 1)), [""; 0]);
    assert_eq!(broken(&with(2, 2)), [""; 0]);
    assert_eq!(broken(&with(3, 1)), ["E421"], "3 devices do not divide 4");
    assert_eq!(broken(&with(8, 1)), ["E421"], "neither 60 experts nor 4 devices");
    assert_eq!(broken(&with(0, 1)), ["E421"]);
    assert_eq!(broken(&with(2, 4)), ["E421"], "ep x etp is 8");
    assert_eq!(broken(&with(1, 3)), ["E422"]);
    let found = check(&with(8, 1));
    assert!(
        found[0].message.contains("does not divide 60 experts"),
        "{found:?}"
    );
    assert!(found[0].hint.contains("1, 2, 4"), "{found:?}");
}

#[test]
fn world_sizes() {
    let eight = cluster("1x8 A100-80G");
    let plan = uniform(&dense(30), &eight, 2, 1, &[0, 16, 32], 1);
    assert_eq!(broken(&plan), ["E423", "E414"]);
    assert_eq!(check(&plan)[0].hint, "dp 2 fits");
}

#[test]
fn order_of_work() {
    breaks(&["E424"], |p| p.pipelines[0].stages[0].in_flight = 0);
    breaks(&["E424"], |p| p.pipelines[1].stages[1].in_flight = 4);
    // Both are cut to the micro-batches, or run in another order.
    breaks(&[], |p| p.pipelines[0].stages[0].in_flight = 99);
    breaks(&[], |p| {
        p.pipelines[1].stages[1].in_flight = 4;
        p.pipelines[1].schedule.kind = ScheduleKind::Gpipe;
    });
    let range = |atoms| RecomputeRange {
        atoms,
        mode: Recompute::Full,
    };
    breaks(&[], |p| {
        p.pipelines[0].stages[0].recompute = vec![range([1, 5]), range([5, 20])];
    });
    breaks(&["E425"], |p| {
        p.pipelines[0].stages[0].recompute = vec![range([1, 21])];
    });
    breaks(&["E425"], |p| {
        p.pipelines[0].stages[0].recompute = vec![range([3, 3])];
    });
    breaks(&["E425"], |p| {
        p.pipelines[0].stages[0].recompute = vec![range([4, 9]), range([1, 5])];
    });
    breaks(&["E427"], |p| p.pipelines[0].schedule.kind = ScheduleKind::Csv);
    breaks(&["E427"], |p| p.pipelines[0].schedule.file = Some("a.csv".into()));
    breaks(&["E427"], |p| {
        p.pipelines[0].schedule.kind = ScheduleKind::Csv;
        p.pipelines[0].schedule.file = Some("../../etc/passwd".into());
    });
    breaks(&[], |p| {
        p.pipelines[0].schedule.kind = ScheduleKind::Csv;
        p.pipelines[0].schedule.file = Some("schedule-0.csv".into());
    });
}

#[test]
fn virtual_stages() {
    let four = cluster("1x4 A100-80G");
    let all = addresses(&four);
    let chunk = |atoms, on| {
        let mut chunk = stage(atoms, 1, Vec::new());
        chunk.on_stage = Some(on);
        chunk
    };
    let plan = |kind, order: [usize; 2]| {
        let stages = vec![
            stage([0, 8], 2, vec![replica(&all[0..2], 2, 1, 1)]),
            stage([8, 16], 2, vec![replica(&all[2..4], 2, 1, 1)]),
            chunk([16, 24], order[0]),
            chunk([24, 32], order[1]),
        ];
        let mut one = pipeline(1, 8, stages);
        one.schedule.kind = kind;
        Plan::build(&dense(30), &four, training(8), vec![one], Vec::new())
    };
    assert_eq!(broken(&plan(ScheduleKind::Interleaved, [0, 1])), [""; 0]);
    assert_eq!(broken(&plan(ScheduleKind::ZbV, [1, 0])), [""; 0]);
    assert_eq!(broken(&plan(ScheduleKind::DualpipeV, [1, 0])), [""; 0]);
    assert_eq!(broken(&plan(ScheduleKind::Interleaved, [1, 0])), ["E427"]);
    assert_eq!(broken(&plan(ScheduleKind::ZbV, [0, 1])), ["E427"]);
    assert_eq!(broken(&plan(ScheduleKind::OneF1b, [0, 1])), ["E426"]);
    let mut circular = plan(ScheduleKind::Interleaved, [0, 1]);
    circular.pipelines[0].stages[2].on_stage = Some(2);
    assert!(broken(&circular).contains(&"E426"));
    let mut both = plan(ScheduleKind::Interleaved, [0, 1]);
    both.pipelines[0].stages[2].replicas = both.pipelines[0].stages[0].replicas.clone();
    assert!(broken(&both).contains(&"E426"));
    assert!(broken(&both).contains(&"E413"));
    let short = uniform(&dense(30), &four, 2, 1, &[0, 16, 32], 1);
    let mut v = short.clone();
    v.pipelines[0].schedule.kind = ScheduleKind::ZbV;
    assert_eq!(broken(&v), ["E427"]);
}

#[test]
fn domains() {
    let mixed = cluster("1x4 A100-80G + 1x4 MI250X @ eth:100Gb");
    let all = addresses(&mixed);
    let model = dense(30);
    let bridge = || Bridge {
        between: [mixed.domains[1].name.clone(), mixed.domains[0].name.clone()],
        bandwidth: Sourced::new(ByteRate(1e9), Provenance::User),
        latency: Sourced::new(Seconds(1e-4), Provenance::User),
    };
    let build = |model: &autohaap::model::Model, bridged: bool, pipelines| {
        let mut cluster = mixed.clone();
        cluster.bridges.clear();
        if bridged {
            cluster.bridges.push(bridge());
        }
        Plan::build(model, &cluster, training(8), pipelines, Vec::new())
    };
    let two_stages = |end: usize| {
        vec![pipeline(
            1,
            8,
            vec![
                stage([0, end / 2], 2, vec![replica(&all[0..4], 4, 1, 1)]),
                stage([end / 2, end], 1, vec![replica(&all[4..8], 4, 1, 1)]),
            ],
        )]
    };
    assert_eq!(broken(&build(&model, true, two_stages(32))), [""; 0]);
    assert_eq!(broken(&build(&model, false, two_stages(32))), ["E430"]);
    assert_eq!(broken(&build(&tied(6), true, two_stages(8))), ["E429"]);
    let across = vec![pipeline(
        1,
        8,
        vec![stage([0, 32], 1, vec![replica(&all, 8, 1, 1)])],
    )];
    assert_eq!(broken(&build(&model, true, across)), ["E428", "E429"]);
    let side_by_side = vec![
        pipeline(1, 4, vec![stage([0, 32], 1, vec![replica(&all[0..4], 4, 1, 1)])]),
        pipeline(1, 4, vec![stage([0, 32], 1, vec![replica(&all[4..8], 4, 1, 1)])]),
    ];
    let plan = build(&model, true, side_by_side);
    assert_eq!(broken(&plan), ["E429"]);
    assert!(
        check(&plan)[0].message.contains("atoms `0` to `31`"),
        "{:?}",
        check(&plan)
    );
    let mut expert_stage = stage(
        [0, 8],
        1,
        vec![replica(&all[0..4], 4, 1, 4), replica(&all[4..8], 4, 1, 4)],
    );
    expert_stage.ep = 2;
    expert_stage.etp = 4;
    let spread = build(&experts(6), true, vec![pipeline(8, 1, vec![expert_stage])]);
    assert_eq!(broken(&spread), ["E428", "E429"]);
}

#[test]
fn device_support() {
    breaks(&["E432"], |p| p.training.precision = Precision::Bf16);
    let mut plan = asymmetric();
    plan.training.precision = Precision::Bf16;
    let found = check(&plan);
    assert!(
        found[0].message.contains("V100") && found[0].message.contains("bf16"),
        "{found:?}"
    );
    assert!(found[0].hint.contains("fp16"), "{found:?}");
    let old = asymmetric()
        .cluster
        .cluster
        .device_types
        .keys()
        .find(|t| t.contains("V100"))
        .cloned();
    let old = old.expect("a V100");
    breaks(&["E433"], |p| {
        p.training.attention.insert(old.clone(), AttentionKernel::Flash);
    });
    breaks(&[], |p| {
        p.training.attention.insert(old.clone(), AttentionKernel::Unfused);
    });
    breaks(&["E433"], |p| {
        p.training
            .attention
            .insert("Z9000".into(), AttentionKernel::Unfused);
    });
}

#[test]
fn predictions() {
    let with = |codes: &[&str], change: fn(&mut autohaap::plan::Prediction)| {
        breaks(codes, |p| change(p.prediction.as_mut().expect("predicted")));
    };
    with(&["E435"], |p| {
        let memory = &mut p.devices[3].memory_bytes;
        memory.activations = Bytes(90e9);
        memory.total = Bytes(100e9);
        p.devices[3].grade = Grade::Over;
        p.fits = false;
    });
    with(&["E435", "E437"], |p| {
        let memory = &mut p.devices[3].memory_bytes;
        memory.activations = Bytes(90e9);
        memory.total = Bytes(100e9);
    });
    with(&["E436"], |p| p.devices.truncate(p.devices.len() - 1));
    with(&["E436"], |p| p.devices.push(p.devices[0].clone()));
    with(&["E436"], |p| p.stages.truncate(p.stages.len() - 1));
    with(&["E437"], |p| p.devices[0].memory_bytes.weights = Bytes(7e9));
    with(&["E437"], |p| p.devices[0].memory_bytes.limit = Bytes(1e12));
    with(&["E437"], |p| p.tokens_per_s *= 2.0);
    with(&["E437"], |p| p.range_s = [Seconds(1.0), Seconds(2.0)]);
    with(&["E437"], |p| p.fits = false);
    with(&["E437"], |p| p.step_time_closed_form_s = Seconds(-1.0));
    with(&["E437"], |p| p.mfu = -0.5);
    with(&["E437"], |p| p.mfu = 1e18);
    with(&["E437"], |p| {
        p.utilisation.insert("A100-SXM-80GB".into(), f64::INFINITY);
    });
    with(&["E437"], |p| {
        p.provenance_share = [("fitted".to_owned(), 0.5)].into();
    });
    with(&["E437"], |p| p.stages[0].backward_s = Seconds(1e308));
    with(&["E437"], |p| p.stages[0].optimizer_s = Seconds(-1e-3));
    with(&["E437"], |p| p.stages[0].grad_sync_s = Seconds(f64::NAN));
    with(&["E438"], |p| p.gap = Some(0.9));
    with(&["E438"], |p| {
        p.bound_s = Some(Seconds(5.0));
        p.gap = Some(-0.25);
    });
    with(&["E438"], |p| p.bound_s = None);
}

#[test]
fn digests() {
    breaks(&["E439"], |p| p.cluster.cluster.nodes[0].speed_factor.value = 0.5);
    breaks(&["E439"], |p| p.model.model.expert_load = 1.5);
    breaks(&["E439"], |p| p.profile.digest = "0123456789abcdef".into());
    breaks(&["E404"], |p| p.pipelines[0].micro_batches = u32::MAX);
}

#[test]
fn a_rule_broken_everywhere_is_listed_in_part() {
    let many = cluster("16x8 A100-80G @ ib:100Gb");
    let mut plan = uniform(&dense(30), &many, 2, 1, &[0, 16, 32], 32);
    for stage in plan.pipelines.iter_mut().flat_map(|p| &mut p.stages) {
        stage.in_flight = 0;
    }
    let found = check(&plan);
    assert_eq!(found.len(), 21);
    assert!(found[20].message.contains("44 further"), "{:?}", found[20]);
}
