//! Pipeline times agree with published oracle rows and with a plain event simulation of random pipelines.

use autohaap::cost::pipeline::{
    Depth, Scratch, StageTime, Suffix, best_depth, closed_form_step, critical_cycle, executable_depths,
    gpipe, gpipe_makespan, lower_bound, makespan, makespan_unabridged, minimal_depths, rendezvous,
    rendezvous_makespan, rendezvous_period, run, standard_depths, steady_period,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

const ORACLES: &str = include_str!("../../../../data/published/oracles.csv");

/// Seeded random pipelines.
struct Source(ChaCha8Rng);

struct Pipeline {
    stages: Vec<StageTime>,
    in_flight: Vec<u32>,
    micro_batches: u32,
}

impl Source {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to `high`, both included.
    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.next_u64() % u64::from(high - low + 1)) as u32
    }

    fn stages(&mut self, num_stages: usize) -> Vec<StageTime> {
        // Equal or unequal stages; no links, short ones or ones as long as a stage; whole numbers make ties.
        let spread = [0.0, 0.5, 4.0][self.count(0, 2) as usize];
        let link = [0.0, 0.3, 3.0][self.count(0, 2) as usize];
        let whole = self.count(0, 3) == 0;
        let round = |x: f64| if whole { x.round() } else { x };
        let mut stages: Vec<StageTime> = (0..num_stages)
            .map(|_| StageTime {
                forward: round(1.0 + spread * self.unit()),
                backward: round(1.0 + (1.0 + spread) * self.unit()),
                link_forward: round(link * self.unit()),
                link_backward: round(link * self.unit()),
            })
            .collect();
        let last = &mut stages[num_stages - 1];
        (last.link_forward, last.link_backward) = (0.0, 0.0);
        stages
    }

    /// Textbook, minimal or random depths, never rising downstream.
    fn depths(&mut self, stages: &[StageTime]) -> Vec<u32> {
        match self.count(0, 3) {
            0 => standard_depths(stages.len()),
            1 => minimal_depths(stages, 0.0),
            _ => {
                let widest = self.count(0, 3);
                let mut depth = self.count(1, 2);
                let mut depths: Vec<u32> = stages
                    .iter()
                    .map(|_| {
                        depth += self.count(0, widest);
                        depth
                    })
                    .collect();
                depths.reverse();
                depths
            }
        }
    }

    fn pipeline(&mut self, max_micro_batches: u32) -> Pipeline {
        let num_stages = self.count(1, 12) as usize;
        let stages = self.stages(num_stages);
        let in_flight = self.depths(&stages);
        Pipeline {
            stages,
            in_flight,
            micro_batches: self.count(1, max_micro_batches),
        }
    }
}

/// Times of each stage, by walking each rank's list of ops until nothing moves. None: deadlock.
struct Reference {
    first: Vec<f64>,
    last: Vec<f64>,
    peak: Vec<u32>,
}

fn simulate(stages: &[StageTime], in_flight: &[u32], m: u32) -> Option<Reference> {
    let (p, m) = (stages.len(), m as usize);
    let orders: Vec<Vec<(bool, usize)>> = in_flight
        .iter()
        .map(|&w| {
            let warm_up = (w as usize - 1).min(m);
            let mut order: Vec<(bool, usize)> = (0..warm_up).map(|i| (false, i)).collect();
            for i in warm_up..m {
                order.extend([(false, i), (true, i - warm_up)]);
            }
            order.extend((m - warm_up..m).map(|i| (true, i)));
            order
        })
        .collect();
    let mut forward = vec![vec![f64::NAN; m]; p];
    let mut backward = vec![vec![f64::NAN; m]; p];
    let (mut next, mut free) = (vec![0; p], vec![0.0_f64; p]);
    let mut reference = Reference {
        first: vec![0.0; p],
        last: vec![0.0; p],
        peak: vec![0; p],
    };
    let mut live = vec![0_u32; p];
    loop {
        let mut moved = false;
        for s in 0..p {
            while let Some(&(is_backward, i)) = orders[s].get(next[s]) {
                let ready = match (is_backward, s) {
                    (false, 0) => 0.0,
                    (false, s) => forward[s - 1][i] + stages[s - 1].link_forward,
                    (true, s) if s + 1 == p => forward[s][i],
                    (true, s) => backward[s + 1][i] + stages[s].link_backward,
                };
                if ready.is_nan() {
                    break;
                }
                let start = free[s].max(ready);
                if next[s] == 0 {
                    reference.first[s] = start;
                }
                if is_backward {
                    free[s] = start + stages[s].backward;
                    backward[s][i] = free[s];
                    live[s] -= 1;
                } else {
                    free[s] = start + stages[s].forward;
                    forward[s][i] = free[s];
                    live[s] += 1;
                    reference.peak[s] = reference.peak[s].max(live[s]);
                }
                reference.last[s] = free[s];
                next[s] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    (0..p).all(|s| next[s] == 2 * m).then_some(reference)
}

#[track_caller]
fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got - want).abs() <= tolerance * want.abs().max(1e-9),
        "{what}: {got} is not {want}"
    );
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|x| x.as_f64().expect("a number"))
        .collect()
}

fn counts(text: &str) -> Vec<u32> {
    serde_json::from_str(text).expect("a list of counts")
}

struct Row {
    id: String,
    inputs: Value,
    quantity: String,
    expected: String,
}

fn rows(area: &str) -> Vec<Row> {
    csv::Reader::from_reader(ORACLES.as_bytes())
        .records()
        .map(|record| record.expect("a CSV record"))
        .filter(|record| &record[1] == area)
        .map(|record| Row {
            id: record[0].to_owned(),
            inputs: serde_json::from_str(&record[4]).expect("inputs are JSON"),
            quantity: record[5].to_owned(),
            expected: record[7].to_owned(),
        })
        .collect()
}

#[test]
fn rows_of_asymmetric_pipelines() {
    let rows = rows("hetero_1f1b");
    assert_eq!(rows.len(), 32);
    for Row {
        id,
        inputs,
        quantity,
        expected,
    } in rows
    {
        let mut link_forward = numbers(&inputs["link_fwd"]);
        let mut link_backward = numbers(&inputs["link_bwd"]);
        link_forward.push(0.0);
        link_backward.push(0.0);
        let stages: Vec<StageTime> = numbers(&inputs["f"])
            .into_iter()
            .zip(numbers(&inputs["b"]))
            .zip(link_forward.into_iter().zip(link_backward))
            .map(|((forward, backward), (link_forward, link_backward))| StageTime {
                forward,
                backward,
                link_forward,
                link_backward,
            })
            .collect();
        let in_flight: Vec<u32> = numbers(&inputs["warmup"])
            .into_iter()
            .map(|w| w as u32 + 1)
            .collect();
        let m = inputs["m"].as_u64().expect("micro-batches") as u32;
        let blocking = inputs["p2p"] == "rendezvous";
        let value = || expected.parse::<f64>().expect("a number");
        let scratch = &mut Scratch::default();
        match quantity.as_str() {
            "makespan" if blocking => {
                assert_near(rendezvous_makespan(&stages, &in_flight, m), value(), 1e-9, &id);
            }
            "makespan" => {
                assert_near(makespan(&stages, &in_flight, m, scratch), value(), 1e-9, &id);
                assert_near(
                    makespan_unabridged(&stages, &in_flight, m, scratch),
                    value(),
                    1e-9,
                    &id,
                );
            }
            "steady period" => assert_near(steady_period(&stages, &in_flight), value(), 1e-9, &id),
            "peak in-flight per stage" => {
                let peaks: Vec<u32> = run(&stages, &in_flight, m, scratch)
                    .stages
                    .iter()
                    .map(|s| s.peak_in_flight)
                    .collect();
                assert_eq!(peaks, counts(&expected), "{id}");
            }
            "minimal warm-up depths for rate max(f+b)" => {
                let warm_up: Vec<u32> = minimal_depths(&stages, 0.0).iter().map(|w| w - 1).collect();
                assert_eq!(warm_up, counts(&expected), "{id}");
            }
            "admissible lower bound of the makespan" => {
                assert_near(lower_bound(&stages, m), value(), 1e-9, &id);
            }
            other => panic!("{id}: no check for {other}"),
        }
    }
}

#[test]
fn rows_of_equal_stages() {
    let mut checked = 0;
    for Row {
        id,
        inputs,
        quantity,
        expected,
    } in rows("schedule")
    {
        let name = inputs["schedule"].as_str().expect("a name");
        if name != "gpipe" && name != "1f1b" {
            continue;
        }
        let number = |key: &str| inputs[key].as_f64().expect("a number");
        let stage = StageTime {
            forward: number("f"),
            backward: number("b_input") + number("b_weight"),
            ..StageTime::default()
        };
        let stages = vec![stage; number("p") as usize];
        let m = number("m") as u32;
        let run = if name == "gpipe" {
            gpipe(&stages, m)
        } else {
            run(
                &stages,
                &standard_depths(stages.len()),
                m,
                &mut Scratch::default(),
            )
        };
        if quantity == "makespan" {
            assert_near(run.makespan, expected.parse().expect("a number"), 1e-9, &id);
        } else {
            let peaks: Vec<u32> = run.stages.iter().map(|s| s.peak_in_flight).collect();
            assert_eq!(peaks, counts(&expected), "{id}");
        }
        checked += 1;
    }
    assert!(checked >= 6, "{checked} rows");
}

#[test]
fn rounds_equal_a_plain_simulation() {
    let (mut source, mut scratch) = (Source::new(1), Scratch::default());
    for case in 0..3_000 {
        let Pipeline {
            stages,
            in_flight,
            micro_batches,
        } = source.pipeline(80);
        let want = simulate(&stages, &in_flight, micro_batches).expect("no deadlock");
        let got = run(&stages, &in_flight, micro_batches, &mut scratch);
        assert_near(
            got.makespan,
            want.last.iter().copied().fold(0.0, f64::max),
            1e-12,
            "makespan",
        );
        for (s, row) in got.stages.iter().enumerate() {
            let what = format!("case {case}, stage {s}");
            assert_near(row.first_forward_start, want.first[s], 1e-12, &what);
            assert_near(row.last_backward_end, want.last[s], 1e-12, &what);
            assert_near(
                row.busy,
                f64::from(micro_batches) * stages[s].compute(),
                1e-12,
                &what,
            );
            assert_eq!(row.peak_in_flight, want.peak[s], "{what}");
        }
    }
}

#[test]
fn depths_deadlock_exactly_where_they_rise_downstream() {
    let mut source = Source::new(2);
    let mut deadlocks = 0;
    for _ in 0..3_000 {
        let num_stages = source.count(1, 6) as usize;
        let stages = source.stages(num_stages);
        let mut in_flight: Vec<u32> = (0..num_stages).map(|_| source.count(1, 6)).collect();
        let m = source.count(1, 10);
        let rises = in_flight.windows(2).any(|pair| pair[0].min(m) < pair[1].min(m));
        assert_eq!(simulate(&stages, &in_flight, m).is_none(), rises);
        let scratch = &mut Scratch::default();
        assert_eq!(makespan(&stages, &in_flight, m, scratch).is_infinite(), rises);
        assert_eq!(run(&stages, &in_flight, m, scratch).makespan.is_infinite(), rises);
        deadlocks += u32::from(rises);
        executable_depths(&mut in_flight);
        assert!(makespan(&stages, &in_flight, m, scratch).is_finite());
    }
    assert!(deadlocks > 500);
}

#[test]
fn jumping_over_repeating_rounds_changes_nothing() {
    let (mut source, mut scratch) = (Source::new(3), Scratch::default());
    for case in 0..10_000 {
        let Pipeline {
            stages,
            in_flight,
            micro_batches,
        } = source.pipeline(600);
        let full = makespan_unabridged(&stages, &in_flight, micro_batches, &mut scratch);
        let short = makespan(&stages, &in_flight, micro_batches, &mut scratch);
        assert_near(short, full, 1e-12, &format!("case {case}"));
    }
}

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

#[test]
fn equal_stages_give_the_textbook_span() {
    let stage = StageTime {
        forward: 1.0,
        backward: 2.0,
        ..StageTime::default()
    };
    let mut suffix = Suffix::EMPTY;
    for p in 1..=8_u32 {
        suffix = suffix.prepend(&stage, Depth::Exactly(p), 16, 0.0);
        assert_eq!(suffix.step, f64::from(16 + p - 1) * 3.0);
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
fn slower_parts_or_more_micro_batches_never_shorten_a_step() {
    let (mut source, mut scratch) = (Source::new(10), Scratch::default());
    for _ in 0..5_000 {
        let Pipeline {
            mut stages,
            in_flight,
            micro_batches,
        } = source.pipeline(64);
        let base = makespan(&stages, &in_flight, micro_batches, &mut scratch);
        let longer = makespan(&stages, &in_flight, micro_batches + 1, &mut scratch);
        assert!(longer >= base * (1.0 - 1e-12));
        let s = source.count(0, stages.len() as u32 - 1) as usize;
        let more = source.unit();
        match source.count(0, 3) {
            0 => stages[s].forward += more,
            1 => stages[s].backward += more,
            2 => stages[s].link_forward += more,
            _ => stages[s].link_backward += more,
        }
        assert!(makespan(&stages, &in_flight, micro_batches, &mut scratch) >= base * (1.0 - 1e-12));
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

#[test]
fn gpipe_is_two_flow_shops() {
    let mut source = Source::new(12);
    for _ in 0..500 {
        let Pipeline {
            stages,
            micro_batches,
            ..
        } = source.pipeline(24);
        // Backward order is reversed, so micro-batch `i` of the return is the i-th from the end.
        let (p, m) = (stages.len(), micro_batches as usize);
        let mut ends = vec![vec![0.0_f64; m]; p];
        for s in 0..p {
            for i in 0..m {
                let free = if i == 0 { 0.0 } else { ends[s][i - 1] };
                let ready = if s == 0 {
                    0.0
                } else {
                    ends[s - 1][i] + stages[s - 1].link_forward
                };
                ends[s][i] = free.max(ready) + stages[s].forward;
            }
        }
        let mut returns = vec![vec![0.0_f64; m]; p];
        for s in (0..p).rev() {
            for i in 0..m {
                let free = if i == 0 { ends[s][m - 1] } else { returns[s][i - 1] };
                let ready = if s + 1 == p {
                    0.0
                } else {
                    returns[s + 1][i] + stages[s].link_backward
                };
                returns[s][i] = free.max(ready) + stages[s].backward;
            }
        }
        let run = gpipe(&stages, micro_batches);
        assert_near(
            gpipe_makespan(&stages, micro_batches),
            returns[0][m - 1],
            1e-12,
            "makespan",
        );
        for s in 0..p {
            assert_near(
                run.stages[s].last_backward_end,
                returns[s][m - 1],
                1e-12,
                "last backward",
            );
        }
    }
}

#[test]
fn nothing_to_run_takes_no_time() {
    let scratch = &mut Scratch::default();
    assert_eq!(makespan(&[], &[], 4, scratch), 0.0);
    let stage = StageTime {
        forward: 1.0,
        backward: 2.0,
        ..StageTime::default()
    };
    assert_eq!(makespan(&[stage], &[1], 0, scratch), 0.0);
    assert_eq!(run(&[stage], &[1], 0, scratch).makespan, 0.0);
    assert_eq!(rendezvous_makespan(&[stage], &[1], 0), 0.0);
    assert_eq!(gpipe_makespan(&[stage], 0), 0.0);
    // A depth of 0 counts as 1, one above the micro-batches as their number.
    assert_eq!(makespan(&[stage], &[0], 5, scratch), 15.0);
    assert_eq!(makespan(&[stage, stage], &[5, 9], 4, scratch), 15.0);
    assert!(closed_form_step(&[stage, stage], &[5, 9], 4).is_finite());
    assert!(closed_form_step(&[stage, stage], &[2, 3], 4).is_infinite());
}
