//! Steady rates, and the depths that sustain them.

use autohaap::cost::pipeline::{
    Depth, Scratch, StageTime, Suffix, best_depth, critical_cycle, makespan, makespan_unabridged,
    minimal_depths, rendezvous, rendezvous_makespan, rendezvous_period, run, standard_depths, steady_period,
};

use super::{Pipeline, Source, assert_near};

#[test]
fn the_steady_period_is_the_simulated_one() {
    const CASES: u32 = 20_000;
    const SETTLED: u32 = 1_000;
    let (mut source, mut scratch) = (Source::new(4), Scratch::default());
    let mut checked = 0;
    for case in 0..CASES {
        let Pipeline {
            stages, in_flight, ..
        } = source.pipeline(1);
        let critical = critical_cycle(&stages, &in_flight);
        let what = format!("case {case}: {critical:?} {in_flight:?} {stages:?}");
        // The definition, term by term.
        let mut cycles = Vec::new();
        for s in 0..stages.len() {
            let mut segment = 0.0;
            for e in s..stages.len() {
                let advance = in_flight[s] - in_flight[e] + 1;
                cycles.push(((segment + stages[e].compute()) / f64::from(advance), advance));
                segment += stages[e].compute() + stages[e].links();
            }
        }
        let period = cycles.iter().map(|&(period, _)| period).fold(0.0, f64::max);
        assert_near(critical.period, period, 1e-12, &what);
        // Equally slow cycles repeat together after their common multiple.
        let tied = cycles
            .iter()
            .filter(|(other, _)| (other - period).abs() < 1e-12 * period);
        let common = tied.fold(1_u64, |common, &(_, advance)| {
            let (mut a, mut b) = (common, u64::from(advance));
            while b > 0 {
                (a, b) = (b, a % b);
            }
            common / a * u64::from(advance)
        });
        // A cycle almost as slow as the slowest may lead for as long as it likes.
        let close = |other: f64| (1e-12..2e-4).contains(&(1.0 - other / period));
        if common > 2_000 || cycles.iter().any(|&(other, _)| close(other)) {
            continue;
        }
        let turns = common as u32 * (512 / common as u32).max(1);
        // The growth over whole turns after the transient.
        let mut growth = |from| {
            let mut time = |m| makespan_unabridged(&stages, &in_flight, m, &mut scratch);
            (time(from + turns) - time(from)) / f64::from(turns)
        };
        let simulated = growth(SETTLED);
        if (simulated - period).abs() > 1e-9 * period {
            // The second slowest cycle still leads: look later.
            assert_near(period, growth(40 * SETTLED), 1e-9, &what);
        }
        checked += 1;
    }
    assert!(checked > CASES * 9 / 10, "{checked}");
}

#[test]
fn minimal_depths_sustain_the_rate_and_are_minimal() {
    let mut source = Source::new(5);
    for _ in 0..5_000 {
        let num_stages = source.count(1, 12) as usize;
        let stages = source.stages(num_stages);
        let slowest = stages.iter().map(StageTime::compute).fold(0.0, f64::max);
        let target = slowest * (1.0 + source.unit());
        let depths = minimal_depths(&stages, target);
        assert!(steady_period(&stages, &depths) <= target * (1.0 + 1e-9));
        assert!(depths.windows(2).all(|pair| pair[0] >= pair[1]));
        for s in 0..num_stages {
            let mut fewer = depths.clone();
            fewer[s] -= 1;
            if fewer[s] >= 1 {
                assert!(
                    steady_period(&stages, &fewer) > target * (1.0 - 1e-9),
                    "{depths:?} at {s}"
                );
            }
        }
    }
}

#[test]
fn the_best_depth_is_the_least_with_the_least_span() {
    let mut source = Source::new(9);
    for _ in 0..2_000 {
        let pipeline = source.pipeline(48);
        let m = pipeline.micro_batches;
        let mut below = Suffix::EMPTY;
        for stage in pipeline.stages.iter().rev() {
            let deepest = source.count(1, 16);
            let spans: Vec<(u32, f64)> = (below.depth..=deepest.min(m))
                .map(|w| (w, below.prepend(stage, Depth::Exactly(w), m, 0.0).span))
                .collect();
            let least = spans.iter().map(|&(_, span)| span).fold(f64::INFINITY, f64::min);
            let want = spans
                .iter()
                .find(|&&(_, span)| span <= least * (1.0 + 1e-11))
                .map(|&(w, _)| w);
            let got = best_depth(stage, &below, m, deepest, 0.0);
            assert_eq!(got.map(|(w, _)| w), want, "{spans:?}");
            let Some((_, longer)) = got else { break };
            below = longer;
        }
    }
}

#[test]
fn blocking_exchanges_settle_at_their_period_and_are_never_faster() {
    let (mut source, mut scratch) = (Source::new(11), Scratch::default());
    for case in 0..500 {
        let num_stages = source.count(1, 8) as usize;
        let stages = source.stages(num_stages);
        let depths = standard_depths(num_stages);
        let time = |m| rendezvous_makespan(&stages, &depths, m);
        let simulated = (time(464) - time(400)) / 64.0;
        assert_near(
            rendezvous_period(&stages),
            simulated,
            1e-9,
            &format!("case {case}: {stages:?}"),
        );
        let asynchronous = makespan(&stages, &depths, 64, &mut scratch);
        assert!(time(64) >= asynchronous * (1.0 - 1e-12), "case {case}");
        // Without links both modes are the same.
        let local: Vec<StageTime> = stages
            .iter()
            .map(|s| StageTime {
                link_forward: 0.0,
                link_backward: 0.0,
                ..*s
            })
            .collect();
        let detail = rendezvous(&local, &depths, 20);
        let want = run(&local, &depths, 20, &mut scratch);
        for (got, want) in detail.stages.iter().zip(&want.stages) {
            assert!(got.last_backward_end >= want.last_backward_end * (1.0 - 1e-12));
            assert_eq!(got.peak_in_flight, want.peak_in_flight);
        }
    }
}
