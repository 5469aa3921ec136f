//! Speed of the simulator: `cargo bench -p autohaap --bench simulate`; prints CSV (`name,seconds,per_second,peak_mib`).
#![expect(clippy::print_stdout, reason = "a benchmark that answers on standard output")]

use std::hint::black_box;
use std::time::Instant;

use autohaap::cluster::{Precision, parse_cluster};
use autohaap::cost::pipeline::{Scratch, StageTime, makespan, minimal_depths, standard_depths};
use autohaap::plan::{
    EngineSemantics, Optimizer, Pipeline, PointToPointMode, Replica, Schedule, ScheduleKind, Stage, Training,
};
use autohaap::simulate::engine::execute;
use autohaap::simulate::program::{Chain, Pool, Program, StageWork, Transfer};
use autohaap::simulate::{Options, schedule, simulate_parts};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

fn main() {
    println!("name,seconds,per_second,peak_mib");
    for stages in [8, 16] {
        in_search(stages, 64, false);
        in_search(stages, 64, true);
    }
    whole_plan("1024 devices in 16 pipelines of 8 stages", 16, 8);
    whole_plan("1024 devices in 128 pipelines of 8 stages", 128, 1);
    ten_million(false);
    ten_million(true);
}

/// High-water mark of this process so far, MiB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn row(name: &str, seconds: f64, count: f64) {
    println!("{name},{seconds:.4},{:.0},{:.0}", count / seconds, peak());
}

/// The evaluator inside the search: exact event order of random asymmetric pipelines.
fn in_search(num_stages: usize, micro_batches: u32, minimal: bool) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut unit = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let plans: Vec<(Vec<StageTime>, Vec<u32>)> = (0..1024)
        .map(|_| {
            let mut stages: Vec<StageTime> = (0..num_stages)
                .map(|_| {
                    let forward = 1.0 + unit();
                    let link = 0.3 * unit();
                    StageTime {
                        forward,
                        backward: forward * (1.8 + 0.4 * unit()),
                        link_forward: link,
                        link_backward: link,
                    }
                })
                .collect();
            (
                stages[num_stages - 1].link_forward,
                stages[num_stages - 1].link_backward,
            ) = (0.0, 0.0);
            let depths = if minimal {
                minimal_depths(&stages, 0.0)
            } else {
                standard_depths(num_stages)
            };
            (stages, depths)
        })
        .collect();
    let mut scratch = Scratch::default();
    let rounds = 100;
    let began = Instant::now();
    for _ in 0..rounds {
        for (stages, depths) in &plans {
            black_box(makespan(black_box(stages), depths, micro_batches, &mut scratch));
        }
    }
    let depths = if minimal { "minimal" } else { "standard" };
    row(
        &format!("1F1B {num_stages} x {micro_batches} exact ({depths} depths)"),
        began.elapsed().as_secs_f64(),
        f64::from(rounds) * plans.len() as f64,
    );
}

/// Full detail of a plan of 1,024 devices.
fn whole_plan(name: &str, pipelines: usize, tp: usize) {
    let config = r#"{"num_layers":64,"hidden_size":4096,"num_attention_heads":32,"kv_channels":128,
        "num_query_groups":8,"ffn_hidden_size":14336,"swiglu":true,"normalization":"RMSNorm",
        "padded_vocab_size":131072,"untie_embeddings_and_output_weights":true,"add_bias_linear":false}"#;
    let model = autohaap::model::parse(config, "bench.json")
        .expect("a model")
        .model;
    let cluster = parse_cluster("128x8 H100-80G @ ib:8x400Gb", "--cluster").expect("a cluster");
    let training = Training {
        seq_len: 4096,
        global_batch: (pipelines * 64) as u64,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adam,
        zero: 1,
        sequence_parallel: true,
        attention: std::collections::BTreeMap::new(),
        engine_semantics: EngineSemantics::default(),
    };
    let stages = 8;
    let cut = |s: usize| {
        if s == stages {
            model.atoms.len()
        } else {
            s * 8 + usize::from(s > 0)
        }
    };
    let plan: Vec<Pipeline> = (0..pipelines)
        .map(|p| Pipeline {
            micro_batch: 1,
            micro_batches: 64,
            schedule: Schedule {
                kind: ScheduleKind::OneF1b,
                file: None,
            },
            stages: (0..stages)
                .map(|s| Stage {
                    atoms: [cut(s), cut(s + 1)],
                    in_flight: (stages - s) as u32,
                    recompute: Vec::new(),
                    ep: 1,
                    etp: 1,
                    replicas: vec![Replica {
                        devices: (0..tp)
                            .map(|t| {
                                let device = (p * stages + s) * tp + t;
                                format!("{}:{}", cluster.nodes[device / 8].name, device % 8)
                            })
                            .collect(),
                        tp: tp as u32,
                        cp: 1,
                        rows: 1,
                    }],
                    on_stage: None,
                })
                .collect(),
        })
        .collect();
    let began = Instant::now();
    let simulation =
        simulate_parts(&model, &cluster, &training, &plan, &Options::default()).expect("a simulation");
    let actions: usize = simulation
        .program
        .chains
        .iter()
        .map(|c| c.order.num_actions())
        .sum();
    row(name, began.elapsed().as_secs_f64(), actions as f64);
}

/// Ten million actions: 8 stages and 625,000 micro-batches, transfers on shared pools or dedicated links.
fn ten_million(shared: bool) {
    let micro_batches = 625_000;
    let stages = 8;
    let works = (0..stages)
        .map(|s| StageWork {
            forward: 1.0 + 0.01 * s as f64,
            backward: 2.0,
            input_grad: 1.0,
            weight_grad: 1.0,
        })
        .collect();
    let transfer = |pool: u32| Transfer {
        seconds: 0.1,
        bytes: 1.0,
        uses: if shared {
            vec![(pool, 0.4), (pool + 1, 0.4)]
        } else {
            Vec::new()
        },
    };
    let order = schedule::one_f_one_b(&standard_depths(stages), micro_batches);
    let chain = Chain {
        optimizer: vec![0.0; stages],
        order,
        stages: works,
        forward: (0..stages as u32 - 1).map(transfer).collect(),
        backward: (0..stages as u32 - 1).map(transfer).collect(),
    };
    let mut program = Program::of_chains(vec![chain], PointToPointMode::Async);
    program.pools = (0..stages)
        .map(|s| Pool {
            name: format!("pool {s}"),
            node: None,
        })
        .collect();
    let began = Instant::now();
    let execution = execute(&program, true).expect("runs");
    black_box(execution.step);
    let kind = if shared { "shared" } else { "dedicated" };
    row(
        &format!("10 million actions ({kind} links)"),
        began.elapsed().as_secs_f64(),
        program.chains[0].order.num_actions() as f64,
    );
}
