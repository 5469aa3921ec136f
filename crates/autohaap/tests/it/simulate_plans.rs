//! Simulated plans: equal to the cost model without contention, never faster with it, complete in memory, path and trace.

use std::collections::{BTreeMap, BTreeSet};

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::plan::{Pipeline, Plan, PointToPointMode, ScheduleKind};
use autohaap::search::{Method, Outcome};
use autohaap::simulate::critical_path::{Cause, critical_path};
use autohaap::simulate::schedule::{self, csv};
use autohaap::simulate::{
    Choice, Name, Options, Simulation, SlowLink, SpanKind, simulate, simulate_parts, step, trace,
};

use crate::cost_support::{close, cluster, dense, pipeline, replica, round, stage, training};
use crate::search_generator::{Patient, instance};

fn alone() -> Options {
    Options {
        contention: false,
        ..Options::default()
    }
}

/// The plans of tiny random instances.
fn plans(seeds: std::ops::Range<u64>) -> Vec<Plan> {
    let solved = seeds.filter_map(|seed| match instance(seed).solve(Method::Auto, &Patient) {
        Outcome::Found(plan) => Some(*plan),
        Outcome::Infeasible(_) => None,
    });
    solved.collect()
}

fn close_to_the_end(simulation: &Simulation) {
    let path = critical_path(simulation);
    let mut at = 0.0;
    for segment in &path {
        close(segment.start.0 + 1.0, at + 1.0, 1e-12);
        assert!(segment.end.0 > segment.start.0);
        assert_ne!(segment.cause, Cause::Other, "{path:?}");
        at = segment.end.0;
    }
    close(at, simulation.timeline.step_time.0, 1e-12);
}

#[test]
fn random_plans_take_the_time_and_memory_of_the_cost_model() {
    let plans = plans(200_000..200_200);
    assert!(plans.len() > 80, "{}", plans.len());
    let (mut slower, mut shorter) = (0, 0);
    for plan in &plans {
        let prediction = plan.prediction.as_ref().expect("a prediction");
        let free = simulate(plan, &alone()).unwrap_or_else(|p| panic!("{p}"));
        close(free.timeline.step_time.0, prediction.step_time_s.0, 1e-9);
        close_to_the_end(&free);
        let shared = simulate(plan, &Options::default()).unwrap_or_else(|p| panic!("{p}"));
        let (with, without) = (shared.timeline.step_time.0, free.timeline.step_time.0);
        assert!(with >= without * (1.0 - 1e-9), "{with} below {without}");
        slower += u32::from(with > without * (1.0 + 1e-9));
        close_to_the_end(&shared);
        let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
        let quick = step(&setting, &plan.pipelines, &mut Cache::default()).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(quick, shared.timeline.step_time);
        // A zero-bubble order within the memory of each stage still fits.
        let fit = Options {
            schedule: Choice::Named(Name::ZbFit),
            ..alone()
        };
        match simulate(plan, &fit) {
            Ok(fit) => {
                let mut devices = fit.timeline.lanes.iter().flat_map(|l| &l.devices);
                assert!(devices.all(|d| d.peak.0 <= d.limit.0 * (1.0 + 1e-9)));
                shorter += u32::from(fit.timeline.step_time.0 < without * (1.0 - 1e-9));
            }
            // Made for asynchronous sends; blocking exchanges may cross.
            Err(problems) => {
                let blocking = plan.training.engine_semantics.p2p == PointToPointMode::Rendezvous;
                assert!(blocking && problems.0[0].code.id == "E473", "{problems}");
            }
        }
        // Peaks of the timeline are the itemised ones.
        let peaks: BTreeMap<&str, f64> = shared
            .timeline
            .lanes
            .iter()
            .flat_map(|l| &l.devices)
            .map(|d| (d.name.as_str(), d.peak.0))
            .collect();
        assert_eq!(peaks.len(), prediction.devices.len());
        for device in &prediction.devices {
            close(peaks[device.device.as_str()], device.memory_bytes.total.0, 1e-9);
        }
    }
    println!(
        "{} plans, {slower} slowed down by shared links, {shorter} shorter with zero bubbles in the same memory",
        plans.len()
    );
}

/// Two pipelines of two stages that cross from node n0 to n1 over one slow card.
fn crossing() -> (autohaap::model::Model, autohaap::cluster::Cluster, Vec<Pipeline>) {
    let model = dense(4, true);
    let mut cluster = round("2x2 A100-80G @ ib:100Gb", 1);
    for node in &mut cluster.nodes {
        node.nic.bandwidth.value.0 = 1e9;
    }
    let half = model.atoms.len() / 2;
    let one = |from: &str, to: &str| {
        pipeline(
            1,
            4,
            vec![
                stage([0, half], 2, vec![replica(from, 1)]),
                stage([half, model.atoms.len()], 1, vec![replica(to, 1)]),
            ],
        )
    };
    let pipelines = vec![one("n0:0", "n1:0"), one("n0:1", "n1:1")];
    (model, cluster, pipelines)
}

#[test]
fn pipelines_of_one_node_share_its_cards() {
    let (model, cluster, pipelines) = crossing();
    let run = |options: &Options| {
        simulate_parts(&model, &cluster, &training(), &pipelines, options).unwrap_or_else(|p| panic!("{p}"))
    };
    // With one micro-batch both pipelines send at the same time, and nothing else does: it takes twice as long.
    let mut single = pipelines.clone();
    for pipeline in &mut single {
        pipeline.micro_batches = 1;
    }
    let link = |options: &Options| {
        let simulation = simulate_parts(&model, &cluster, &training(), &single, options);
        simulation.unwrap_or_else(|p| panic!("{p}")).timeline.links[0].spans[0]
            .seconds()
            .0
    };
    close(link(&Options::default()), 2.0 * link(&alone()), 1e-9);
    let (free, shared) = (run(&alone()), run(&Options::default()));
    assert!(shared.timeline.step_time > free.timeline.step_time);
    let out = shared
        .timeline
        .pools
        .iter()
        .find(|p| p.name == "n0 out")
        .expect("a pool");
    // Two micro-batches of each pipeline are on their way at once: the cards are slower than the stages.
    close(out.peak_demand, 4.0, 1e-6);
    assert!(
        critical_path(&shared)
            .iter()
            .any(|s| s.cause == Cause::Contention)
    );
    assert!(critical_path(&free).iter().all(|s| s.cause != Cause::Contention));
    assert!(free.timeline.pools.is_empty());
}

#[test]
fn what_ifs_equal_a_slower_cluster() {
    let (model, cluster, pipelines) = crossing();
    let run = |options: &Options| {
        simulate_parts(&model, &cluster, &training(), &pipelines, options).unwrap_or_else(|p| panic!("{p}"))
    };
    let base = run(&alone()).timeline.step_time.0;
    let slow = Options {
        slow_nodes: vec![("n1".into(), 1.8)],
        ..alone()
    };
    let mut slower = cluster.clone();
    slower.nodes[1].speed_factor.value /= 1.8;
    let training = training();
    let setting = Setting::new(&model, &slower, &training);
    let (prediction, _) =
        price(&setting, &pipelines, &mut Cache::default()).unwrap_or_else(|p| panic!("{p}"));
    close(run(&slow).timeline.step_time.0, prediction.step_time_s.0, 1e-12);
    assert!(run(&slow).timeline.step_time.0 > base);
    let cards = Options {
        slow_links: vec![(SlowLink::Node("n0".into()), 4.0)],
        ..alone()
    };
    let boundary = Options {
        slow_links: vec![(SlowLink::Boundary(0, 0), 4.0), (SlowLink::Boundary(1, 0), 4.0)],
        ..alone()
    };
    let transfer = |o: &Options| run(o).timeline.links[0].alone.0;
    close(transfer(&cards), 4.0 * transfer(&alone()), 1e-9);
    close(transfer(&boundary), 4.0 * transfer(&alone()), 1e-12);
    // The same jitter twice; its mean does not move far.
    let jitter = Options {
        jitter: Some((0.05, 7)),
        ..alone()
    };
    assert_eq!(run(&jitter).timeline.step_time, run(&jitter).timeline.step_time);
    close(run(&jitter).timeline.step_time.0, base, 0.2);
    let deeper = Options {
        more_in_flight: 1,
        ..alone()
    };
    assert!(run(&deeper).timeline.step_time.0 <= base);
    assert!(run(&deeper).timeline.lanes[0].devices[0].peak > run(&alone()).timeline.lanes[0].devices[0].peak);
    for (options, code) in [
        (
            Options {
                slow_nodes: vec![("nowhere".into(), 2.0)],
                ..alone()
            },
            "E475",
        ),
        (
            Options {
                slow_links: vec![(SlowLink::Boundary(0, 1), 2.0)],
                ..alone()
            },
            "E475",
        ),
        (
            Options {
                schedule: Choice::Named(Name::ZbV),
                ..alone()
            },
            "E474",
        ),
        (
            Options {
                schedule: Choice::Named(Name::Gpipe),
                more_in_flight: 1,
                ..alone()
            },
            "E474",
        ),
        (
            Options {
                schedule: Choice::Orders(vec![schedule::one_f_one_b(&[1, 2], 4)]),
                ..alone()
            },
            "E473",
        ),
        (
            Options {
                schedule: Choice::Orders(vec![schedule::one_f_one_b(&[2, 1], 5)]),
                ..alone()
            },
            "E474",
        ),
    ] {
        let problems =
            simulate_parts(&model, &cluster, &training, &pipelines, &options).expect_err("a problem");
        assert_eq!(problems.0[0].code.id, code, "{problems}");
    }
}

#[test]
fn an_order_of_a_file_takes_the_time_of_its_name() {
    let (model, cluster, pipelines) = crossing();
    let run = |choice: Choice| {
        let options = Options {
            schedule: choice,
            ..alone()
        };
        simulate_parts(&model, &cluster, &training(), &pipelines, &options)
            .unwrap_or_else(|p| panic!("{p}"))
            .timeline
            .step_time
    };
    let mut times = BTreeSet::new();
    for name in [
        Name::OneF1b,
        Name::Gpipe,
        Name::ZbH1,
        Name::ZbH2,
        Name::Eager,
        Name::Minimal,
    ] {
        let options = Options {
            schedule: Choice::Named(name),
            ..alone()
        };
        let simulation = simulate_parts(&model, &cluster, &training(), &pipelines, &options)
            .unwrap_or_else(|p| panic!("{p}"));
        let orders = simulation
            .program
            .chains
            .iter()
            .map(|c| csv::read(&csv::write(&c.order), "order.csv").unwrap_or_else(|p| panic!("{p}")))
            .collect();
        assert_eq!(run(Choice::Orders(orders)), simulation.timeline.step_time);
        close_to_the_end(&simulation);
        times.insert(simulation.timeline.step_time.0.to_bits());
    }
    assert!(times.len() >= 3, "schedules differ");
}

/// Four chunks of a chain on two groups of devices.
fn chunked(kind: ScheduleKind, owners: [usize; 4]) -> (autohaap::model::Model, Vec<Pipeline>) {
    let model = dense(6, true);
    let cuts = [0, 2, 4, 6, model.atoms.len()];
    let stages = (0..4).map(|s| {
        let mut one = stage(
            [cuts[s], cuts[s + 1]],
            4,
            vec![replica(["n0:0", "n0:1"][s % 2], 1)],
        );
        if s > 1 {
            one.replicas.clear();
            one.on_stage = Some(owners[s]);
        }
        one
    });
    let mut one = pipeline(1, 8, stages.collect());
    one.schedule.kind = kind;
    (model, vec![one])
}

#[test]
fn virtual_stages_run_on_the_devices_of_their_owner() {
    let cluster = cluster("1x2 A100-80G");
    for (kind, owners) in [
        (ScheduleKind::Interleaved, [0, 1, 0, 1]),
        (ScheduleKind::ZbV, [0, 1, 1, 0]),
        (ScheduleKind::DualpipeV, [0, 1, 1, 0]),
    ] {
        let (model, pipelines) = chunked(kind, owners);
        let simulation = simulate_parts(&model, &cluster, &training(), &pipelines, &Options::default())
            .unwrap_or_else(|p| panic!("{kind:?}: {p}"));
        let lanes = &simulation.timeline.lanes;
        assert_eq!(lanes.len(), 2);
        let stages: Vec<usize> = lanes[0].stages.iter().map(|s| s.0).collect();
        assert_eq!(stages, if owners[2] == 0 { vec![0, 2] } else { vec![0, 3] });
        // Three boundaries, of which the turn of a V crosses no devices.
        assert_eq!(
            simulation.timeline.links.len(),
            if owners[2] == 0 { 6 } else { 4 }
        );
        close_to_the_end(&simulation);
        // The other shape is refused.
        let other = if owners[2] == 0 {
            Name::ZbV
        } else {
            Name::Interleaved
        };
        let options = Options {
            schedule: Choice::Named(other),
            ..Options::default()
        };
        let problems =
            simulate_parts(&model, &cluster, &training(), &pipelines, &options).expect_err("unfit");
        assert_eq!(problems.0[0].code.id, "E474");
    }
}

#[test]
fn traces_nest_and_name_every_node_and_rank() {
    let (model, cluster, pipelines) = crossing();
    let simulation = simulate_parts(&model, &cluster, &training(), &pipelines, &Options::default())
        .unwrap_or_else(|p| panic!("{p}"));
    let text = trace::chrome(&simulation, &cluster);
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    let mut threads: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut forward = 0.0;
    let mut categories = BTreeSet::new();
    let mut names = BTreeSet::new();
    for event in events {
        let number = |key: &str| event[key].as_f64().expect("a number");
        if event["ph"] == "M" {
            names.insert(event["args"]["name"].as_str().unwrap_or_default().to_owned());
        }
        if let Some(category) = event["cat"].as_str() {
            categories.insert(category.to_owned());
        }
        if event["ph"] == "X" {
            let key = (number("pid") as u64, number("tid") as u64);
            threads
                .entry(key)
                .or_default()
                .push((number("ts"), number("ts") + number("dur")));
            if event["cat"] == "fwd" {
                forward += number("dur") / 1e6;
            }
        }
    }
    let known = ["fwd", "bwd", "wgrad", "p2p", "tp", "cp", "dp", "ep", "opt"];
    assert!(
        categories.iter().all(|c| known.contains(&c.as_str())),
        "{categories:?}"
    );
    assert!(names.contains("n0") && names.contains("n1"), "{names:?}");
    assert!(names.iter().any(|n| n.starts_with("rank 3 A100")), "{names:?}");
    for spans in threads.values_mut() {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for &(start, end) in spans.iter() {
            while open.last().is_some_and(|&last| last <= start + 1e-6) {
                open.pop();
            }
            assert!(
                open.last().is_none_or(|&last| end <= last + 1e-6),
                "spans of a thread cross"
            );
            open.push(end);
        }
    }
    let lanes = &simulation.timeline.lanes;
    let spans = lanes
        .iter()
        .flat_map(|l| &l.compute)
        .filter(|s| s.kind.category() == "fwd");
    close(forward, spans.map(|s| s.seconds().0).sum(), 1e-9);
    assert!(
        lanes
            .iter()
            .all(|l| l.compute.iter().all(|s| matches!(s.kind, SpanKind::Work(_))))
    );
}
