//! Screens: the width and length that the contract promises, for the examples' answers and for names and shapes meant
//! to break them.

use std::collections::BTreeMap;

use autohaap::cluster::Cluster;
use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::error::{Problem, plan as codes};
use autohaap::model::{parse, preset_ids};
use autohaap::plan::{Alternative, Alternatives, Idle, Pipeline, Plan, SearchRecord};
use autohaap::report::{
    Context, LINES, WIDTH, check_screen, device_screen, devices_screen, estimate_screen, infeasible_screen,
    model_screen, plan_screen,
};
use autohaap::search::Infeasible;
use autohaap::units::Seconds;
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use crate::plan::{addresses, cluster, dense, pipeline, replica, stage, training};

#[track_caller]
fn narrow(screen: &str) {
    for line in screen.lines() {
        assert!(
            line.width() <= WIDTH,
            "{} columns: {line}\n{screen}",
            line.width()
        );
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[track_caller]
fn one_screen(plan: &Plan, context: &Context) -> String {
    let screen = plan_screen(plan, context);
    narrow(&screen);
    assert!(
        screen.lines().count() <= LINES,
        "{} lines\n{screen}",
        screen.lines().count()
    );
    // Whatever is left out, the parts that decide are there.
    for part in [
        "/step",
        "stage",
        "bottleneck: ",
        "memory: fullest is ",
        "compared with",
        "best uniform plan",
        "fastest class",
        "hand split by FLOPs",
        "hand split by memory",
        "without ",
        "why they lose",
        "conserved: ",
        "range ",
        "time by provenance: ",
        "bound: ",
        "search: ",
        "next: ",
    ] {
        assert!(screen.contains(part), "no `{part}`:\n{screen}");
    }
    screen
}

/// The pipelines of a cluster, priced, with everything that `plan` adds.
fn answer(
    model: &autohaap::model::Model,
    cluster: &Cluster,
    pipelines: Vec<Pipeline>,
    idle: Vec<Idle>,
) -> Plan {
    let batch = pipelines
        .iter()
        .map(|p| u64::from(p.micro_batch) * u64::from(p.micro_batches))
        .sum();
    let mut plan = Plan::build(model, cluster, training(batch), pipelines, idle);
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let (mut prediction, _) = price(&setting, &plan.pipelines, &mut Cache::default()).expect("a price");
    prediction.bound_s = Some(prediction.step_time_s * 0.9);
    prediction.gap = Some(0.1);
    prediction.bound_space = Some(format!("full; {}", "a proof of many words ".repeat(20)));
    let row = |step: Option<f64>| Alternative {
        label: "tp8 pp16 dp4 ep64, micro-batch 4, selective recompute ".repeat(3),
        feasible: step.is_some(),
        step_time_s: step.map(Seconds),
        reason: "a reason that is longer than any line of a terminal may be ".repeat(4),
    };
    plan.alternatives = Some(Alternatives {
        uniform: row(None),
        fastest_class: row(Some(1e7)),
        flops_split: row(Some(1e-7)),
        memory_split: row(None),
        without: (0..12)
            .map(|i| {
                (
                    format!("{} ({i})", "A100-SXM-80GB-".repeat(8)),
                    row((i % 2 == 0).then_some(3.0)),
                )
            })
            .collect(),
        losers: vec![row(Some(2.0)); 50],
    });
    plan.search = Some(SearchRecord {
        space: "full".into(),
        method: "columns".into(),
        stop_reason: "interrupted".into(),
        wall_s: Seconds(1234.5),
        first_plan_s: None,
        plans_scored: u64::MAX,
        seed: 0,
        reproducible: false,
        phases: Vec::new(),
    });
    plan.prediction = Some(prediction);
    plan
}

fn noisy() -> Context {
    Context {
        assumed: vec!["--precision fp16 (a device has no bf16)".into(); 12],
        notes: vec!["a note with a name \u{1b}[31m and a line\nbreak ".repeat(9); 30],
        saved: Some("a/very/long/folder/".repeat(12)),
        explain: false,
    }
}

/// `pipelines` pipelines of `stages` stages over the devices in order, every one of another shape.
fn ragged(cluster: &Cluster, layers: usize, pipelines: usize, stages: usize) -> Vec<Pipeline> {
    let all = addresses(cluster);
    (0..pipelines)
        .map(|p| {
            let cut = |s: usize| match s {
                0 => 0,
                s if s == stages => layers + 2,
                s => 1 + s + (p % (layers - stages).max(1)),
            };
            let stages = (0..stages)
                .map(|s| {
                    let device = &all[(p * stages + s) % all.len()..][..1];
                    let depth = (stages - s) as u32;
                    stage([cut(s), cut(s + 1)], depth, vec![replica(device, 1, 1, 1)])
                })
                .collect();
            pipeline(1, 8 + p as u32, stages)
        })
        .collect()
}

#[test]
fn twenty_pipelines_of_different_shapes_on_96_nodes() {
    let cluster = cluster("64x8 A100-80G + 32x8 V100-32G @ ib:8x100Gb");
    let model = dense(40);
    for (pipelines, stages) in [(20, 1), (20, 8), (1, 30), (96, 8), (3, 2)] {
        let plan = answer(
            &model,
            &cluster,
            ragged(&cluster, 40, pipelines, stages),
            Vec::new(),
        );
        one_screen(&plan, &Context::default());
        one_screen(&plan, &noisy());
        let all = plan_screen(
            &plan,
            &Context {
                explain: true,
                ..noisy()
            },
        );
        narrow(&all);
        assert!(all.contains("sources") && all.contains("measured_peak"), "{all}");
    }
}

#[test]
fn equal_pipelines_and_stages_are_one_line() {
    let cluster = cluster("4x8 A100-80G @ ib:8x100Gb");
    let all = addresses(&cluster);
    let pipelines = (0..4)
        .map(|p| {
            let stages = (0..8).map(|s| {
                let cut = |s: usize| if s == 8 { 42 } else { s * 5 + usize::from(s > 0) };
                stage(
                    [cut(s), cut(s + 1)],
                    8 - s as u32,
                    vec![replica(&all[p * 8 + s..][..1], 1, 1, 1)],
                )
            });
            pipeline(1, 16, stages.collect())
        })
        .collect();
    let screen = one_screen(
        &answer(&dense(40), &cluster, pipelines, Vec::new()),
        &Context::default(),
    );
    assert!(
        screen.contains("pipelines 0-3 (each): 16 micro-batches of 1 sequence, 8 stages"),
        "{screen}"
    );
    assert!(
        screen.contains("1-6 each  1x A100-SXM-80GB") && screen.contains(" 7-2 "),
        "{screen}"
    );
    // Header, three lines of stages and the title.
    let table = screen
        .lines()
        .skip_while(|l| !l.starts_with("pipelines"))
        .take_while(|l| !l.starts_with("bottleneck"));
    assert_eq!(table.count(), 5, "{screen}");
}

#[test]
fn the_busiest_stage_is_never_left_out() {
    let cluster = cluster("64x8 A100-80G + 32x8 V100-32G @ ib:8x100Gb");
    let mut pipelines = ragged(&cluster, 40, 20, 8);
    // The last pipeline has far more work than the others.
    pipelines[19].micro_batches = 900;
    let plan = answer(&dense(40), &cluster, pipelines, Vec::new());
    let screen = one_screen(&plan, &Context::default());
    assert!(screen.contains("bottleneck: pipeline 19 "), "{screen}");
    assert!(screen.contains("pipeline 19: 900 micro-batches"), "{screen}");
}

#[test]
fn answers_that_were_stopped_say_so() {
    let cluster = cluster("1x2 A100-80G + 1x2 V100-32G @ ib:100Gb");
    let mut plan = answer(&dense(4), &cluster, ragged(&cluster, 4, 1, 2), Vec::new());
    let screen = one_screen(&plan, &Context::default());
    assert!(
        screen.contains("stopped by Ctrl-C: the best plan so far"),
        "{screen}"
    );
    assert!(screen.contains("not reproducible"), "{screen}");
    plan.search.as_mut().expect("a record").stop_reason = "time-limit".into();
    assert!(one_screen(&plan, &Context::default()).contains("stopped by the time limit"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Names of nodes, model and cluster come from files: any text is shown, none breaks the screen.
    #[test]
    fn any_names(
        name in "\\PC{0,120}", hostile in ".{0,40}", pipelines in 1_usize..24, stages in 1_usize..12, nodes in 2_u32..20
    ) {
        let mut cluster = cluster(&format!("{nodes}x8 A100-80G + {nodes}x8 V100-32G @ ib:8x100Gb"));
        cluster.name.clone_from(&name);
        for (i, node) in cluster.nodes.iter_mut().enumerate() {
            node.name = format!("{name}{hostile}{i}");
        }
        let mut model = dense(24);
        model.name = format!("{hostile}{name}");
        let idle = vec![Idle { devices: addresses(&cluster), reason: format!("{name} {hostile}") }];
        let plan = answer(&model, &cluster, ragged(&cluster, 24, pipelines, stages), idle);
        for context in [Context::default(), noisy()] {
            let screen = plan_screen(&plan, &context);
            narrow(&screen);
            prop_assert!(screen.lines().count() <= LINES, "{}", screen);
            narrow(&plan_screen(&plan, &Context { explain: true, ..context }));
        }
        let prediction = plan.prediction.clone().expect("a prediction");
        narrow(&estimate_screen(&plan, &prediction, 2));
        let problem = Problem::new(codes::ALL[0], name.clone(), format!("{name} {hostile}")).hint(hostile.clone());
        let screen = check_screen(&plan, &vec![problem.clone(); 200], &vec![problem; 200]);
        narrow(&screen);
        prop_assert!(screen.lines().count() < 200, "{}", screen);
        let negative = Infeasible {
            proven: false,
            reasons: vec![format!("{name} {hostile} ").repeat(8); 40],
            relaxations: vec![format!("{name} {hostile} ").repeat(8); 40],
            stop: None,
        };
        let screen = infeasible_screen(&negative, &plan.training, &[name, hostile]);
        narrow(&screen);
        prop_assert!(screen.lines().count() <= 80, "{}", screen);
    }
}

#[test]
fn models_and_devices() {
    for id in preset_ids() {
        let input = parse(autohaap::model::preset(id).expect("a preset"), id).expect("a model");
        let screen = model_screen(&input);
        narrow(&screen);
        assert!(screen.lines().count() <= 60, "{screen}");
    }
    let keys: BTreeMap<String, u32> = (0..900)
        .map(|i| (format!("a_key_that_nothing_uses_{i}"), i))
        .collect();
    let mut config = serde_json::json!({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1280,
        "num_attention_heads": 40, "intermediate_size": 4096, "vocab_size": 32000});
    for (key, value) in keys {
        config[key] = value.into();
    }
    let screen = model_screen(&parse(&config.to_string(), "x").expect("a model"));
    narrow(&screen);
    assert!(screen.contains("more (--format json)"), "{screen}");
    let devices = autohaap::cluster::device_table();
    let screen = devices_screen(&devices);
    narrow(&screen);
    for d in devices {
        assert!(screen.contains(&d.name), "{} is missing", d.name);
        let (entry, figures, assumed) = autohaap::cluster::device_detail(&d.name).expect("a device");
        narrow(&device_screen(&entry.row().name, &figures, assumed.as_deref()));
    }
}
