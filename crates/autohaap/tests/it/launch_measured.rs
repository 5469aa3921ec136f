//! Measured times of a run: beside the prediction, and as a profile that gives them back.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::launch::{Measured, Spans, profile, ranks};
use autohaap::plan::Plan;
use autohaap::profile::attach;
use autohaap::search::{Outcome, SearchOptions, search};
use autohaap::simulate::{Options, Simulation, simulate};

use crate::search_generator::Patient;
use crate::search_properties::medium;

fn planned() -> Plan {
    let problem = medium("llama-3.2-1b", "1x2 A100-80G + 1x2 V100-32G @ ib:100Gb", 1024, 16);
    let options = SearchOptions::default();
    match search(
        &problem.model,
        &problem.cluster,
        &problem.training,
        &options,
        &Patient,
    ) {
        Ok(Outcome::Found(plan)) => *plan,
        other => panic!("{other:?}"),
    }
}

/// Spans of a run in which every action takes `factor` times its simulated time, in two micro-batches.
fn spans(plan: &Plan, simulation: &Simulation, factor: f64) -> Vec<Spans> {
    let of = |device: &str| {
        let mut found = Spans::new();
        for (pipeline, chain) in plan.pipelines.iter().zip(&simulation.program.chains) {
            for (s, (stage, work)) in pipeline.stages.iter().zip(&chain.stages).enumerate() {
                if stage
                    .replicas
                    .iter()
                    .any(|r| r.devices.iter().any(|d| d == device))
                {
                    found.insert((s, 'F'), (2.0 * factor * work.forward, 2));
                    found.insert((s, 'B'), (2.0 * factor * work.backward, 2));
                }
            }
        }
        found
    };
    ranks(plan).iter().map(|rank| of(&rank.device)).collect()
}

#[test]
fn a_profile_of_a_run_gives_its_times_back() {
    let plan = planned();
    let simulation = simulate(&plan, &Options::default()).expect("a simulation");
    let hardware = vec!["virtual".to_owned()];
    for factor in [1.0, 1.7] {
        let spans = spans(&plan, &simulation, factor);
        let step = factor * simulation.timeline.step_time.0;
        let measured = Measured::new(&plan, &simulation, hardware.clone(), step, &spans, 1.0);
        assert_eq!(
            measured.stages.len(),
            plan.pipelines
                .iter()
                .flat_map(|p| &p.stages)
                .map(|s| s.replicas.len())
                .sum::<usize>()
        );
        let text = serde_json::to_string(&measured).expect("text");
        assert_eq!(
            Measured::read(&text, "measured.json", &plan).expect("the same"),
            measured
        );
        let folder = profile(&plan, &measured).expect("a profile");
        let mut cluster = plan.cluster.cluster.clone();
        attach(
            &mut cluster,
            &folder,
            &plan.model.model,
            plan.training.precision,
            "run",
        )
        .expect("attached");
        let setting = Setting::new(&plan.model.model, &cluster, &plan.training);
        let (prediction, _) = price(&setting, &plan.pipelines, &mut Cache::default()).expect("a price");
        for stage in &prediction.stages {
            let row = measured
                .stages
                .iter()
                .filter(|m| (m.pipeline, m.stage) == (stage.pipeline, stage.stage))
                .max_by(|a, b| a.forward_s.0.total_cmp(&b.forward_s.0))
                .expect("a row");
            let off = |found: f64, wanted: f64| (found / wanted - 1.0).abs();
            // The median over a device's stages may differ from each where their layers differ.
            assert!(
                off(stage.forward_s.0, row.forward_s.0) < 0.01,
                "{stage:?} {row:?}"
            );
            assert!(
                off(stage.backward_s.0, row.backward_s.0) < 0.01,
                "{stage:?} {row:?}"
            );
        }
    }
}

#[test]
fn a_measurement_of_another_plan_is_refused() {
    let plan = planned();
    let simulation = simulate(&plan, &Options::default()).expect("a simulation");
    let measured = Measured::new(&plan, &simulation, Vec::new(), 1.0, &[], 1.0);
    let mut other = measured.clone();
    other.plan = "0".repeat(measured.plan.len());
    other.stages[0].stage = 99;
    other.stages[1].forward_s.0 = -1.0;
    let text = serde_json::to_string(&other).expect("text");
    let problems = Measured::read(&text, "measured.json", &plan).expect_err("refused");
    assert_eq!(problems.0.len(), 3, "{problems}");
    assert!(problems.0.iter().all(|p| p.code.id == "E612"));
    assert!(Measured::read("{}", "measured.json", &plan).is_err());
    assert!(Measured::read("", "measured.json", &plan).is_err());
}
