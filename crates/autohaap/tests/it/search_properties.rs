//! What must not change, or may only improve, when a planning problem changes.

use autohaap::cluster::{Cluster, Precision, parse_cluster};
use autohaap::model::{self, Model};
use autohaap::plan::{EngineSemantics, Optimizer, Plan, Training};
use autohaap::search::{Method, Outcome, SearchOptions, search};
use autohaap::units::{ByteRate, Bytes, Seconds};

use crate::search_generator::{Instance, Patient, instance};

/// First seed and number of the tiny instances.
const SEEDS: std::ops::Range<u64> = 100_000..100_120;

fn step(plan: &Plan) -> f64 {
    plan.prediction.as_ref().expect("a prediction").step_time_s.0
}

fn bound(plan: &Plan) -> f64 {
    let bound = plan.prediction.as_ref().and_then(|p| p.bound_s);
    bound.expect("a bound").0
}

/// The proven optimum: infinite where no plan exists, none where nothing is proven.
fn optimum(problem: &Instance) -> Option<f64> {
    match problem.solve(Method::Auto, &Patient) {
        Outcome::Infeasible(none) => none.proven.then_some(f64::INFINITY),
        Outcome::Found(plan) => {
            let proven = plan.search.as_ref().is_some_and(|s| s.stop_reason == "optimal");
            proven.then(|| step(&plan))
        }
    }
}

/// The optimum of each changed problem is at most that of the original.
fn never_worse(change: impl Fn(&mut Instance)) {
    let (mut compared, mut better) = (0, 0);
    let mut faults = Vec::new();
    for seed in SEEDS {
        let problem = instance(seed);
        let mut changed = problem.clone();
        change(&mut changed);
        let (Some(before), Some(after)) = (optimum(&problem), optimum(&changed)) else {
            continue;
        };
        compared += 1;
        better += u32::from(after < before);
        if after > before * (1.0 + 1e-9) {
            faults.push(format!("{}\n    {before} became {after}", problem.describe()));
        }
    }
    assert!(faults.is_empty(), "{compared} compared:\n{}", faults.join("\n"));
    assert!(
        compared >= 80 && better >= 10,
        "{compared} compared, {better} better"
    );
}

#[test]
fn more_memory_never_hurts() {
    never_worse(|problem| {
        for device in problem.cluster.device_types.values_mut() {
            device.memory.value = device.memory.value * 1.3;
        }
    });
}

#[test]
fn faster_network_never_hurts() {
    never_worse(|problem| {
        for node in &mut problem.cluster.nodes {
            node.nic.bandwidth.value = ByteRate(node.nic.bandwidth.value.0 * 2.0);
            node.nic.latency.value = Seconds(node.nic.latency.value.0 / 2.0);
        }
    });
}

#[test]
fn faster_links_inside_nodes_never_hurt() {
    never_worse(|problem| {
        for device in problem.cluster.device_types.values_mut() {
            device.intra.bandwidth.value = ByteRate(device.intra.bandwidth.value.0 * 2.0);
            device.intra.pair_bandwidth.value = ByteRate(device.intra.pair_bandwidth.value.0 * 2.0);
            device.intra.latency.value = Seconds(device.intra.latency.value.0 / 2.0);
        }
    });
}

#[test]
fn faster_devices_never_hurt() {
    never_worse(|problem| {
        for device in problem.cluster.device_types.values_mut() {
            for peak in device.datasheet_peak.values_mut() {
                peak.value = peak.value * 1.5;
            }
        }
    });
}

#[test]
fn another_node_never_hurts() {
    never_worse(|problem| {
        let mut more = problem.cluster.nodes[problem.cluster.nodes.len() - 1].clone();
        more.name = "more".into();
        problem.cluster.nodes.push(more);
    });
}

#[test]
fn names_and_order_of_equal_nodes_do_not_matter() {
    let mut compared = 0;
    for seed in SEEDS {
        let problem = instance(seed);
        let mut changed = problem.clone();
        for (i, node) in changed.cluster.nodes.iter_mut().enumerate() {
            node.name = format!("z{}", 9 - i);
        }
        // Equal nodes are neighbours: turning each run of them around.
        changed
            .cluster
            .nodes
            .chunk_by_mut(|a, b| a.groups == b.groups)
            .for_each(<[_]>::reverse);
        let (before, after) = (optimum(&problem), optimum(&changed));
        assert_eq!(before, after, "{}", problem.describe());
        compared += u32::from(before.is_some_and(f64::is_finite));
    }
    assert!(compared >= 60, "{compared} plans compared");
}

/// The plan as text without the record of the run's clock.
fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Found(plan) => plan.to_json(),
        Outcome::Infeasible(none) => format!("{none:?}"),
    }
}

fn with_threads(threads: usize, problem: &Instance) -> String {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.unwrap_or_else(|e| panic!("{e}"));
    pool.install(|| text(&problem.solve(Method::Auto, &Patient)))
}

#[test]
fn threads_and_repetition_do_not_matter() {
    for seed in SEEDS.step_by(4) {
        let problem = instance(seed);
        let once = with_threads(1, &problem);
        assert_eq!(once, with_threads(1, &problem), "{}", problem.describe());
        assert_eq!(once, with_threads(2, &problem), "{}", problem.describe());
    }
}

pub(crate) fn preset(id: &str) -> Model {
    let text = model::preset(id).unwrap_or_else(|| panic!("no preset {id}"));
    let input = model::parse(text, id).unwrap_or_else(|p| panic!("{p}"));
    input.model
}

pub(crate) fn medium(id: &str, devices: &str, seq_len: u64, global_batch: u64) -> Instance {
    let cluster: Cluster = parse_cluster(devices, "--cluster").unwrap_or_else(|p| panic!("{devices}: {p}"));
    Instance {
        seed: 0,
        model: preset(id),
        cluster,
        training: Training {
            seq_len,
            global_batch,
            precision: Precision::Fp16,
            optimizer: Optimizer::Adam,
            zero: 1,
            sequence_parallel: true,
            attention: std::collections::BTreeMap::new(),
            engine_semantics: EngineSemantics::default(),
        },
        options: SearchOptions {
            max_micro_batch: 4,
            ..SearchOptions::default()
        },
    }
}

fn plan(problem: &Instance) -> Plan {
    let found = search(
        &problem.model,
        &problem.cluster,
        &problem.training,
        &problem.options,
        &Patient,
    );
    match found.unwrap_or_else(|p| panic!("{p}")) {
        Outcome::Found(plan) => *plan,
        Outcome::Infeasible(none) => panic!("{none:?}"),
    }
}

#[test]
fn medium_answers_lie_between_bound_and_baselines() {
    for (id, devices, seq_len, batch) in [
        ("llama-3.2-1b", "1x8 A100-80G", 2048, 32),
        ("llama-3.2-1b", "1x4 A100-80G + 1x4 V100-32G", 2048, 32),
        ("llama-3.2-1b", "2x(2 RTX4090 + 2 RTX3080)", 1024, 16),
        ("llama-3.2-1b", "4x4 V100-32G @ ib:100Gb", 1024, 64),
        ("llama-3.2-1b", "1x8 H100-80G + 3x8 V100-32G @ ib:100Gb", 2048, 64),
        ("llama-3.1-8b", "1x8 A100-80G", 2048, 16),
        ("llama-3.1-8b", "1x8 A100-80G + 1x8 V100-32G @ ib:100Gb", 2048, 32),
        ("llama-3.1-8b", "2x8 A100-40G @ ib:200Gb", 4096, 32),
        ("llama-3.1-8b", "2x8 H100-80G + 2x8 A100-40G @ ib:200Gb", 4096, 64),
    ] {
        let problem = medium(id, devices, seq_len, batch);
        let found = plan(&problem);
        let (answer, least) = (step(&found), bound(&found));
        assert!(
            least > 0.0 && least <= answer,
            "{id} on {devices}: bound {least}, step {answer}"
        );
        let rows = found.alternatives.as_ref().expect("alternatives");
        let compared = [
            &rows.uniform,
            &rows.flops_split,
            &rows.memory_split,
            &rows.fastest_class,
        ];
        for row in compared.into_iter().chain(rows.without.values()) {
            if let Some(other) = row.step_time_s {
                assert!(
                    answer <= other.0 * (1.0 + 1e-9),
                    "{id} on {devices}: {answer} but {row:?}"
                );
            }
        }
        assert!(
            autohaap::plan::check(&found).is_empty(),
            "{id} on {devices}: {:?}",
            autohaap::plan::check(&found)
        );
    }
}

/// A plan for some devices is a plan for more: no bound for more devices may exceed its time.
#[test]
fn bounds_of_more_devices_stay_below_plans_of_fewer() {
    let mut shortest = f64::INFINITY;
    for nodes in [1, 2, 3] {
        let problem = medium(
            "llama-3.2-1b",
            &format!("{nodes}x4 A100-80G + {nodes}x4 V100-32G @ ib:100Gb"),
            2048,
            32,
        );
        let found = plan(&problem);
        shortest = shortest.min(step(&found));
        assert!(
            bound(&found) <= shortest,
            "{nodes} nodes: bound {} above a plan of {shortest}",
            bound(&found)
        );
    }
}

/// A quick search that starts from a plan answers at least as well on the same cluster, and with a legal plan on less of it.
#[test]
fn a_quick_search_starts_from_the_plan_it_is_given() {
    for devices in [
        "1x8 A100-80G + 1x8 V100-32G @ ib:100Gb",
        "3x4 A100-40G @ ib:100Gb",
    ] {
        let mut problem = medium("llama-3.2-1b", devices, 2048, 32);
        let first = plan(&problem);
        problem.options.quick = true;
        problem.options.start.clone_from(&first.pipelines);
        let again = plan(&problem);
        assert!(
            step(&again) <= step(&first) * (1.0 + 1e-9),
            "{devices}: {} after {}",
            step(&again),
            step(&first)
        );
        assert!(bound(&again) <= step(&first));
        problem.cluster.nodes[0].excluded = vec![3];
        let less = plan(&problem);
        assert!(autohaap::plan::check(&less).is_empty(), "{devices}");
        let gone = problem.cluster.device_name(0, 3);
        let all = || less.pipelines.iter().flat_map(|p| &p.stages);
        assert!(!all().flat_map(|s| &s.replicas).any(|r| r.devices.contains(&gone)));
    }
}

/// More memory than any plan needs changes nothing but the reserve, which is a share of it.
#[test]
fn memory_beyond_need_changes_nothing() {
    for seed in SEEDS.step_by(3) {
        let mut problem = instance(seed);
        let mut ample = |share: f64| {
            for device in problem.cluster.device_types.values_mut() {
                device.memory.value = Bytes(1e15 * share);
            }
            optimum(&problem)
        };
        assert_eq!(ample(1.0), ample(2.0), "seed {seed}");
    }
}
