//! Schedules against published makespans, spans and live counts, and against closed forms.

use autohaap::cost::pipeline::{
    Scratch, StageTime, closed_form_step, lower_bound, makespan, minimal_depths, rendezvous_makespan,
    steady_period,
};
use autohaap::plan::PointToPointMode;
use autohaap::simulate::action::{Order, Work};
use autohaap::simulate::conservation::conserves;
use autohaap::simulate::engine::{Execution, execute};
use autohaap::simulate::program::{Chain, Program, StageWork, Transfer};
use autohaap::simulate::schedule::{self, Backwards};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

use crate::cost_support::{Row, close, rows};

/// A chain without pools; `links` are (forward, backward) after each stage.
pub(crate) fn chain(order: Order, stages: Vec<StageWork>, links: &[(f64, f64)]) -> Chain {
    let transfer = |seconds: f64| Transfer {
        seconds,
        ..Transfer::default()
    };
    Chain {
        optimizer: vec![0.0; order.ranks.len()],
        order,
        stages,
        forward: links.iter().map(|l| transfer(l.0)).collect(),
        backward: links.iter().map(|l| transfer(l.1)).collect(),
    }
}

pub(crate) fn run(chain: Chain, p2p: PointToPointMode) -> Execution {
    execute(&Program::of_chains(vec![chain], p2p), true).unwrap_or_else(|problem| panic!("{problem:?}"))
}

/// Orders, times and the pair factor of a row with equal stages.
fn equal_stages(row: &Row) -> (Order, StageWork, f64) {
    let number = |key: &str| row.inputs[key].as_f64().unwrap_or(0.0);
    let (p, m) = (row.number("p") as usize, row.number("m") as u32);
    let v = row.inputs["v"].as_u64().unwrap_or(1) as usize;
    let work = StageWork {
        forward: number("f"),
        backward: number("b_input") + number("b_weight"),
        input_grad: number("b_input"),
        weight_grad: number("b_weight"),
    };
    let order = match row.inputs["schedule"].as_str().expect("a name") {
        "gpipe" => schedule::gpipe(p, m, Backwards::Reversed),
        "1f1b" => schedule::one_f_one_b(&(1..=p as u32).rev().collect::<Vec<_>>(), m),
        "interleaved-1f1b (Megatron order)" => schedule::interleaved(p, v, m, p as u32),
        "zb1p" | "zb-h1" => schedule::zb_h1(p, m),
        "zb-h2" => {
            let limit = row.number("mem_limit_in_F") as u32;
            schedule::zero_bubble(&vec![work; p], &vec![(0.0, 0.0); p - 1], &vec![limit; p], m)
        }
        "zbv" => schedule::zb_v(p, m),
        "dualpipev" => schedule::dual_pipe_v(p, m).expect("enough micro-batches"),
        other => panic!("no schedule {other}"),
    };
    let pair = row.inputs["fb_overlap"]
        .as_f64()
        .map_or(1.0, |pair| pair / (work.forward + work.backward));
    (order, work, pair)
}

fn counts(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|n| n.as_u64().expect("a count") as u32)
        .collect()
}

#[test]
fn rows_of_equal_stages() {
    let rows = rows("schedule");
    assert_eq!(rows.len(), 27);
    for row in rows {
        let (order, work, pair) = equal_stages(&row);
        conserves(&order, &row.id).unwrap_or_else(|problems| panic!("{}: {problems}", row.id));
        if row.quantity.starts_with("peak live") {
            assert_eq!(order.peak_in_flight(), counts(&row.expected), "{}", row.id);
            continue;
        }
        let stages = order.num_stages();
        let ranks = order.ranks.len();
        let mut program = Program::of_chains(
            vec![chain(order, vec![work; stages], &vec![(0.0, 0.0); stages - 1])],
            PointToPointMode::Async,
        );
        program.pair_factor = pair;
        let execution = execute(&program, true).expect("runs");
        let found = if row.quantity.starts_with("max per-stage span") {
            (0..ranks)
                .map(|r| {
                    let actions = &execution.actions[0][r];
                    actions[actions.len() - 1].end - actions[0].start
                })
                .fold(0.0, f64::max)
        } else {
            execution.makespan
        };
        eprintln!("{} {} {found} {}", row.id, row.quantity, row.value());
        close(found, row.value(), 1e-9);
    }
}

struct Asymmetric {
    stages: Vec<StageTime>,
    depths: Vec<u32>,
    m: u32,
}

impl Asymmetric {
    fn execution(&self, p2p: PointToPointMode) -> Execution {
        let works = self.stages.iter().map(|s| StageWork {
            forward: s.forward,
            backward: s.backward,
            ..StageWork::default()
        });
        let p = self.stages.len();
        let links: Vec<(f64, f64)> = self.stages[..p - 1]
            .iter()
            .map(|s| (s.link_forward, s.link_backward))
            .collect();
        run(
            chain(
                schedule::one_f_one_b(&self.depths, self.m),
                works.collect(),
                &links,
            ),
            p2p,
        )
    }
}

fn asymmetric(row: &Row) -> Asymmetric {
    let list = |key: &str| -> Vec<f64> {
        let values = row.inputs[key].as_array().expect("a list");
        values.iter().map(|v| v.as_f64().expect("a number")).collect()
    };
    let (f, b, there, back) = (list("f"), list("b"), list("link_fwd"), list("link_bwd"));
    Asymmetric {
        stages: (0..f.len())
            .map(|s| StageTime {
                forward: f[s],
                backward: b[s],
                link_forward: there.get(s).copied().unwrap_or(0.0),
                link_backward: back.get(s).copied().unwrap_or(0.0),
            })
            .collect(),
        depths: list("warmup").iter().map(|&w| w as u32 + 1).collect(),
        m: row.number("m") as u32,
    }
}

#[test]
fn rows_of_asymmetric_pipelines() {
    let rows = rows("hetero_1f1b");
    assert_eq!(rows.len(), 32);
    for row in rows {
        let pipeline = asymmetric(&row);
        let mode = match row.inputs["p2p"].as_str() {
            Some("rendezvous") => PointToPointMode::Rendezvous,
            _ => PointToPointMode::Async,
        };
        match row.quantity.as_str() {
            "makespan" => close(pipeline.execution(mode).makespan, row.value(), 1e-9),
            "peak in-flight per stage" => {
                let order = schedule::one_f_one_b(&pipeline.depths, pipeline.m);
                assert_eq!(order.peak_in_flight(), counts(&row.expected), "{}", row.id);
            }
            "steady period" => {
                let long = |m| Asymmetric {
                    m,
                    stages: pipeline.stages.clone(),
                    depths: pipeline.depths.clone(),
                };
                let time = |m| long(m).execution(mode).makespan;
                close((time(960) - time(480)) / 480.0, row.value(), 1e-9);
                close(
                    steady_period(&pipeline.stages, &pipeline.depths),
                    row.value(),
                    1e-9,
                );
            }
            "admissible lower bound of the makespan" => {
                close(lower_bound(&pipeline.stages, pipeline.m), row.value(), 1e-9);
            }
            quantity => {
                assert!(quantity.starts_with("minimal warm-up depths"), "{quantity}");
                let warm_up: Vec<u32> = minimal_depths(&pipeline.stages, 0.0)
                    .iter()
                    .map(|w| w - 1)
                    .collect();
                assert_eq!(warm_up, counts(&row.expected), "{}", row.id);
            }
        }
    }
}

/// Random asymmetric pipelines: stage times, links, depths, micro-batches.
struct Source(ChaCha8Rng);

impl Source {
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.next_u64() % u64::from(high - low + 1)) as u32
    }

    fn pipeline(&mut self) -> Asymmetric {
        let p = self.count(2, 8) as usize;
        let spread = [0.0, 0.5, 4.0][self.count(0, 2) as usize];
        let link = [0.0, 0.3, 3.0][self.count(0, 2) as usize];
        let mut stages: Vec<StageTime> = (0..p)
            .map(|_| {
                let forward = 1.0 + spread * self.unit();
                StageTime {
                    forward,
                    backward: forward * (1.5 + self.unit()),
                    link_forward: link * self.unit(),
                    link_backward: link * self.unit(),
                }
            })
            .collect();
        (stages[p - 1].link_forward, stages[p - 1].link_backward) = (0.0, 0.0);
        let depths = match self.count(0, 3) {
            0 => (1..=p as u32).rev().collect(),
            1 => minimal_depths(&stages, 0.0),
            2 => schedule::eager_depths(p),
            _ => {
                let mut depth = 1;
                let mut depths: Vec<u32> = (0..p)
                    .map(|_| {
                        depth += self.count(0, 2);
                        depth
                    })
                    .collect();
                depths.reverse();
                depths
            }
        };
        let m = self.count(p as u32, 40);
        Asymmetric { stages, depths, m }
    }
}

#[test]
fn closed_form_period_is_the_simulated_one_on_100_000_pipelines() {
    let mut source = Source(ChaCha8Rng::seed_from_u64(41));
    let mut scratch = Scratch::default();
    let (mut low, mut high, mut sum) = (0.0_f64, 0.0_f64, 0.0);
    let mut below = 0;
    for case in 0..100_000 {
        let Asymmetric { stages, depths, m } = source.pipeline();
        let period = steady_period(&stages, &depths);
        // Every cycle's advance divides the turn, so the growth over one turn is exact once the slowest cycle leads; a
        // cycle almost as slow may lead for long, then the growth is taken later.
        let mut growth = |turn: u32| {
            let mut far = |m| makespan(&stages, &depths, m, &mut scratch);
            (far(2 * turn) - far(turn)) / f64::from(turn)
        };
        let equal = [27_720, 32 * 27_720].into_iter().any(|turn| {
            let simulated = growth(turn);
            (simulated - period).abs() <= 1e-9 * period
        });
        assert!(equal, "case {case}: the period is not {period}");
        let exact = makespan(&stages, &depths, m, &mut scratch);
        let bound = lower_bound(&stages, m);
        assert!(
            bound <= exact * (1.0 + 1e-12),
            "case {case}: bound {bound} above {exact}"
        );
        let error = closed_form_step(&stages, &depths, m) / exact - 1.0;
        (low, high, sum) = (low.min(error), high.max(error), sum + error);
        below += i32::from(error < -1e-12);
    }
    println!(
        "closed-form estimate against events: mean {:+.2} %, from {:+.2} % to {:+.2} %, {below} of 100,000 below",
        sum / 1_000.0,
        100.0 * low,
        100.0 * high
    );
    // The figures of the cost model: mostly above, rarely below by up to a few per cent.
    assert!(low > -0.15 && sum / 100_000.0 < 0.05);
}

#[test]
fn the_engine_equals_the_evaluators_of_the_search() {
    let mut source = Source(ChaCha8Rng::seed_from_u64(42));
    let mut scratch = Scratch::default();
    for case in 0..2_000 {
        let pipeline = source.pipeline();
        let exact = makespan(&pipeline.stages, &pipeline.depths, pipeline.m, &mut scratch);
        let found = pipeline.execution(PointToPointMode::Async).makespan;
        assert!(
            (found - exact).abs() <= 1e-12 * exact,
            "case {case}: {found} against {exact}"
        );
        // A warm-up of all micro-batches fuses no exchange, which an order alone does not tell.
        let depths: Vec<u32> = pipeline
            .depths
            .iter()
            .map(|&depth| depth.min(pipeline.m))
            .collect();
        let pipeline = Asymmetric { depths, ..pipeline };
        let blocking = rendezvous_makespan(&pipeline.stages, &pipeline.depths, pipeline.m);
        if blocking.is_finite() {
            let found = pipeline.execution(PointToPointMode::Rendezvous).makespan;
            assert!(
                (found - blocking).abs() <= 1e-12 * blocking,
                "case {case}: {found} against {blocking}"
            );
        }
    }
}

#[test]
fn interleaving_shortens_the_bubble_by_the_number_of_chunks() {
    for (p, v, m) in [(2, 2, 4), (4, 2, 8), (4, 3, 12), (8, 4, 32)] {
        let order = schedule::interleaved(p, v, m, p as u32);
        let work = StageWork {
            forward: 1.0 / v as f64,
            backward: 2.0 / v as f64,
            ..StageWork::default()
        };
        let stages = p * v;
        let found = run(
            chain(order, vec![work; stages], &vec![(0.0, 0.0); stages - 1]),
            PointToPointMode::Async,
        )
        .makespan;
        close(
            found,
            3.0 * f64::from(m) + 3.0 * (p as f64 - 1.0) / v as f64,
            1e-12,
        );
    }
}

#[test]
fn zero_bubble_orders_follow_their_closed_forms() {
    for (p, m) in [(2, 6), (4, 8), (4, 16), (8, 24)] {
        let work = StageWork {
            forward: 10.0,
            backward: 20.0,
            input_grad: 12.0,
            weight_grad: 8.0,
        };
        let links = vec![(0.0, 0.0); p - 1];
        let time = |order: Order| run(chain(order, vec![work; p], &links), PointToPointMode::Async).makespan;
        let (all, less) = (f64::from(m) * 30.0, (p - 1) as f64);
        close(time(schedule::zb_h1(p, m)), all + less * 14.0, 1e-12);
        let equal = StageWork {
            forward: 1.0,
            backward: 2.0,
            input_grad: 1.0,
            weight_grad: 1.0,
        };
        let chunks = 2 * p;
        let v = run(
            chain(
                schedule::zb_v(p, m.max(2 * p as u32)),
                vec![equal; chunks],
                &vec![(0.0, 0.0); chunks - 1],
            ),
            PointToPointMode::Async,
        );
        close(v.makespan, 6.0 * f64::from(m.max(2 * p as u32)) + less, 1e-12);
    }
}

#[test]
fn dual_pipes_follow_their_bubble() {
    // Work 2 m F&B and bubble (P / 2 - 1)(F&B + B - 3 W) over P stages, for forward 1, input and weight gradient 1 each.
    let time = |order: Order, together: f64| {
        let work = StageWork {
            forward: 1.0,
            backward: 2.0,
            input_grad: 1.0,
            weight_grad: 1.0,
        };
        let stages = order.num_stages();
        let mut program = Program::of_chains(
            vec![chain(order, vec![work; stages], &vec![(0.0, 0.0); stages - 1])],
            PointToPointMode::Async,
        );
        program.pair_factor = together / 3.0;
        execute(&program, true).expect("runs").makespan
    };
    let v = |m| schedule::dual_pipe_v(4, m).expect("enough micro-batches");
    for (m, together, wanted) in [(8, 3.0, 54.0), (8, 2.0, 44.0), (10, 2.0, 52.0), (16, 2.0, 76.0)] {
        close(time(v(m), together), wanted, 1e-12);
        // Both directions over twice the ranks: the same lists.
        let both = schedule::dual_pipe(8, 2 * m).expect("enough micro-batches");
        conserves(&both, "order").unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(both.peak_in_flight(), vec![9; 8]);
        close(time(both, together), wanted, 1e-12);
    }
    assert!(schedule::dual_pipe(7, 32).is_none() && schedule::dual_pipe(8, 14).is_none());
}

#[test]
fn orders_of_every_generator_conserve() {
    let all = |order: Order| conserves(&order, "order").unwrap_or_else(|problems| panic!("{problems}"));
    for p in 1..6 {
        for m in 1..14 {
            all(schedule::gpipe(p, m, Backwards::Reversed));
            all(schedule::one_f_one_b(&schedule::eager_depths(p), m));
            all(schedule::zb_h1(p, m));
            all(schedule::zb_v(p, m));
            let work = StageWork {
                forward: 1.0,
                backward: 2.0,
                input_grad: 1.1,
                weight_grad: 0.9,
            };
            all(schedule::zb_h2(&vec![work; p], &vec![(0.1, 0.2); p - 1], m));
            for v in 1..4 {
                all(schedule::looped_bfs(p, v, m));
                for group in 1..=m {
                    all(schedule::interleaved(p, v, m, group));
                    all(schedule::interleaved_zero_bubble(p, v, m, group));
                }
            }
            if let Some(order) = schedule::dual_pipe_v(p, m) {
                all(order);
            }
        }
    }
    let mut broken = schedule::zb_h1(2, 2);
    broken.ranks[0].pop();
    let first = broken.ranks[1][0];
    broken.ranks[1].push(first);
    let problems = conserves(&broken, "order").expect_err("two violations");
    assert_eq!(problems.0.len(), 2, "{problems}");
    assert!(
        problems.0.iter().any(|p| p.message.contains("`0W1` is missing")),
        "{problems}"
    );
    assert_eq!(first.work, Work::Forward);
}
