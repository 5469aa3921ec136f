//! Bounds of whole pipelines and of suffixes stay below what they bound.

use autohaap::cost::pipeline::{
    Depth, Scratch, Suffix, closed_form_step, executable_depths, lower_bound, makespan, run,
};

use super::{Pipeline, Source};

#[test]
fn bounds_stay_below_and_estimates_near_the_makespan() {
    let (mut source, mut scratch) = (Source::new(6), Scratch::default());
    let mut ratios = 0.0;
    for _ in 0..5_000 {
        let Pipeline {
            stages,
            in_flight,
            micro_batches,
        } = source.pipeline(64);
        let exact = makespan(&stages, &in_flight, micro_batches, &mut scratch);
        let bound = lower_bound(&stages, micro_batches);
        assert!(bound <= exact * (1.0 + 1e-12));
        ratios += closed_form_step(&stages, &in_flight, micro_batches) / exact / 5_000.0;
    }
    assert!((0.99..1.1).contains(&ratios), "mean estimate / exact {ratios}");
}

/// Adds tails, all equal to 0 in half of the cases.
fn tails(source: &mut Source, num_stages: usize) -> Vec<f64> {
    let scale = if source.count(0, 1) == 0 { 0.0 } else { 20.0 };
    (0..num_stages).map(|_| scale * source.unit()).collect()
}

/// Exact step: the latest end of a stage's last backward plus its tail.
fn exact_step(pipeline: &Pipeline, in_flight: &[u32], tails: &[f64], scratch: &mut Scratch) -> f64 {
    let run = run(&pipeline.stages, in_flight, pipeline.micro_batches, scratch);
    run.stages
        .iter()
        .zip(tails)
        .map(|(row, tail)| row.last_backward_end + tail)
        .fold(0.0, f64::max)
}

fn suffix(pipeline: &Pipeline, tails: &[f64], depth: impl Fn(u32) -> Depth) -> Suffix {
    let stages = pipeline.stages.iter().zip(&pipeline.in_flight).zip(tails).rev();
    stages.fold(Suffix::EMPTY, |suffix, ((stage, &w), &tail)| {
        suffix.prepend(stage, depth(w), pipeline.micro_batches, tail)
    })
}

#[test]
fn suffix_bounds_hold_for_exact_depths() {
    let (mut source, mut scratch) = (Source::new(7), Scratch::default());
    let (mut closeness, mut worst, mut limits) = (0.0, 1.0_f64, 0.0);
    let cases = 20_000;
    for case in 0..cases {
        let pipeline = source.pipeline(96);
        let tails = tails(&mut source, pipeline.stages.len());
        let exact = exact_step(&pipeline, &pipeline.in_flight, &tails, &mut scratch);
        let bound = suffix(&pipeline, &tails, Depth::Exactly).step;
        assert!(bound <= exact * (1.0 + 1e-12), "case {case}: {bound} > {exact}");
        closeness += bound / exact / f64::from(cases);
        worst = worst.min(bound / exact);
        let limit = suffix(&pipeline, &tails, Depth::UpTo).step;
        assert!(limit <= exact * (1.0 + 1e-12), "case {case}: {limit} > {exact}");
        limits += limit / exact / f64::from(cases);
    }
    assert!(
        closeness > 0.995 && worst > 0.6,
        "bound / step: mean {closeness}, least {worst}"
    );
    assert!(limits > 0.85, "limits: bound / step mean {limits}");
}

#[test]
fn suffix_bounds_hold_for_any_depths_within_limits() {
    let (mut source, mut scratch) = (Source::new(8), Scratch::default());
    for case in 0..10_000 {
        let mut pipeline = source.pipeline(48);
        let num_stages = pipeline.stages.len();
        let tails = tails(&mut source, num_stages);
        // Limits in any order, and depths that run within them.
        pipeline.in_flight = (0..num_stages).map(|_| source.count(1, 14)).collect();
        let bound = suffix(&pipeline, &tails, Depth::UpTo).step;
        for _ in 0..4 {
            let mut depths: Vec<u32> = pipeline.in_flight.iter().map(|&w| source.count(1, w)).collect();
            executable_depths(&mut depths);
            let exact = exact_step(&pipeline, &depths, &tails, &mut scratch);
            assert!(
                bound <= exact * (1.0 + 1e-12),
                "case {case}: {bound} > {exact} with {depths:?}"
            );
        }
        let rises = pipeline
            .in_flight
            .windows(2)
            .any(|w| w[0].min(pipeline.micro_batches) < w[1].min(pipeline.micro_batches));
        assert_eq!(
            suffix(&pipeline, &tails, Depth::Exactly).step.is_infinite(),
            rises
        );
    }
}
