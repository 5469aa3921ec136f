//! Steps of a million micro-batches: little memory, and the closed form of stages with links of no length.

use autohaap::cost::pipeline::{
    Scratch, StageTime, makespan_unabridged, rendezvous_makespan, standard_depths,
};

const MICRO_BATCHES: u32 = 1_500_000;

/// With no link time the slowest stage works without a pause: its own passes, and once the way there and back.
#[test]
fn the_slowest_stage_sets_the_pace() {
    let compute = [(1.0, 2.0), (3.0, 4.0), (2.0, 2.5)];
    let stages: Vec<StageTime> = compute
        .iter()
        .map(|&(forward, backward)| StageTime {
            forward,
            backward,
            ..StageTime::default()
        })
        .collect();
    let (pace, way) = (7.0, 1.0 + 2.0);
    let expected = f64::from(MICRO_BATCHES) * pace + way;
    let depths = standard_depths(stages.len());
    let async_sends = makespan_unabridged(&stages, &depths, MICRO_BATCHES, &mut Scratch::default());
    // The first passes may wait for the stages after it, for at most a pass of each.
    assert!(
        (expected..expected + 14.5).contains(&async_sends),
        "{async_sends} {expected}"
    );
    // Blocking sends may wait at both ends of the step, for a pass of each stage.
    let blocking = rendezvous_makespan(&stages, &depths, MICRO_BATCHES);
    assert!(blocking >= expected * (1.0 - 1e-9), "{blocking} {expected}");
    assert!(
        blocking <= expected + 3.0 * 14.5 + 1e-5 * expected,
        "{blocking} {expected}"
    );
}
