//! Questions that users ask about degrees and cuts, asked of whole plans.

use autohaap::plan::uniform::{UniformDegrees, equal_cut, world_size};
use autohaap::plan::{ScheduleKind, check};

use crate::plan::{cluster, dense, experts, stage, uniform};

#[test]
fn seven_layers_on_two_stages_and_forty_on_sixteen() {
    assert!(equal_cut(7, 2, 1, "pp").unwrap_err().0[0].hint.contains("4/3"));
    let forty = equal_cut(40, 16, 1, "pp").unwrap_err();
    assert!(forty.0[0].hint.contains("8x3 + 8x2"), "{forty}");
    let cuts: Vec<usize> = [0].into_iter().chain((1..=16).map(|s| 1 + s * 2)).collect();
    let sixteen = cluster("2x8 A100-80G @ ib:100Gb");
    let found = check(&uniform(&dense(40), &sixteen, 1, 1, &cuts, 1));
    assert_eq!(found[0].code.id, "E411");
    assert!(found[0].message.contains("builds 32 of 40 blocks"), "{found:#?}");
    assert!(found[0].hint.contains("8x3 + 8x2"), "{found:#?}");
}

#[test]
fn thirty_layers_on_four_stages() {
    let four = cluster("1x4 A100-80G");
    let found = check(&uniform(&dense(30), &four, 1, 1, &[0, 8, 15, 22, 29], 1));
    assert_eq!(found[0].code.id, "E411");
    assert!(found[0].message.contains("builds 28 of 30 blocks"), "{found:#?}");
    assert!(found[0].hint.contains("8/8/7/7"), "{found:#?}");
}

#[test]
fn eighty_layers_on_sixteen_stages_with_two_chunks() {
    let sixteen = cluster("2x8 A100-80G @ ib:100Gb");
    let cuts: Vec<usize> = [0].into_iter().chain((1..=16).map(|s| 1 + s * 2)).collect();
    let mut plan = uniform(&dense(80), &sixteen, 1, 1, &cuts, 1);
    plan.pipelines[0].schedule.kind = ScheduleKind::Interleaved;
    for s in 0..16 {
        let start = 33 + 2 * s;
        let mut chunk = stage([start, start + 2], 1, Vec::new());
        chunk.on_stage = Some(s);
        plan.pipelines[0].stages.push(chunk);
    }
    let found = check(&plan);
    assert_eq!(found[0].code.id, "E411");
    assert!(found[0].message.contains("builds 64 of 80 blocks"), "{found:#?}");
    assert!(found[0].hint.contains("16x3 + 16x2"), "{found:#?}");
}

#[test]
fn eight_layers_cut_one_two_two_three() {
    let four = cluster("1x4 A100-80G");
    assert!(check(&uniform(&dense(8), &four, 1, 1, &[0, 2, 4, 6, 10], 1)).is_empty());
}

#[test]
fn head_counts_decide_the_tensor_parallel_degrees() {
    let three = cluster("1x3 A100-80G");
    let mut plan = uniform(&dense(30), &three, 3, 1, &[0, 32], 1);
    plan.training.sequence_parallel = false;
    let found = check(&plan);
    assert_eq!(found[0].code.id, "E418");
    assert!(
        found[0].message.contains("does not divide 40 heads"),
        "{found:#?}"
    );
    assert!(found[0].hint.contains("legal tp: 1, 2, 4, 8"), "{found:#?}");
    assert!(found[0].hint.contains("tp 1 x 3 stages"), "{found:#?}");
    let six = cluster("1x6 A100-80G");
    let mut plan = uniform(&dense(30), &six, 6, 1, &[0, 32], 1);
    plan.training.sequence_parallel = false;
    let found = check(&plan);
    assert!(found[0].hint.contains("tp 2 x 3 stages"), "{found:#?}");
}

#[test]
fn expert_parallelism_divides_the_devices_of_a_stage() {
    let nodes = cluster("3x4 A100-80G @ ib:100Gb");
    let mut plan = uniform(&experts(6), &nodes, 4, 1, &[0, 3, 6, 8], 1);
    for stage in &mut plan.pipelines[0].stages {
        stage.ep = 8;
    }
    let found = check(&plan);
    assert!(found.iter().all(|v| v.code.id == "E421"), "{found:#?}");
    assert!(
        found[0]
            .message
            .contains("does not divide 4 devices of the stage"),
        "{found:#?}"
    );
}

#[test]
fn products_of_degrees_come_first() {
    let llama = UniformDegrees {
        tp: 8,
        cp: 16,
        pp: 16,
        dp: 4,
    };
    let problem = world_size(llama, 16_384, "dp").expect("a mismatch");
    assert_eq!((problem.code.id, problem.hint.as_str()), ("E423", "dp 8 fits"));
    assert!(problem.message.contains("8192"));
    let many = cluster("2048x8 A100-80G @ ib:400Gb");
    let cuts: Vec<usize> = (0..16).map(|s| s * 8).chain([128]).collect();
    let plan = uniform(&dense(126), &many, 8, 16, &cuts, 4);
    let found = check(&plan);
    assert_eq!(found[0].code.id, "E423");
    assert_eq!(found[0].hint, "dp 8 fits");
    let fits = uniform(&dense(126), &many, 8, 16, &cuts, 8);
    assert!(check(&fits).is_empty(), "{:#?}", check(&fits));

    let eight = cluster("1x8 A100-80G");
    let twice = check(&uniform(&dense(30), &eight, 8, 1, &[0, 16, 32], 1));
    assert_eq!(twice[0].code.id, "E423");
    assert!(twice[0].message.contains("is 16 devices, not 8"), "{twice:#?}");
}
