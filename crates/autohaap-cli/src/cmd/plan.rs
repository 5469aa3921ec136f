//! `autohaap plan`: model and cluster to the fastest plan.

use std::collections::BTreeMap;

use autohaap::cluster::{Cluster, Precision};
use autohaap::error::{Problem, Problems, usage as codes};
use autohaap::model::Model;
use autohaap::plan::{AttentionKernel, EngineSemantics, Optimizer, Training};
use autohaap::report::{self, Context};
use autohaap::search::{Infeasible, Method, Outcome, SearchOptions, StopReason, search};

use crate::args::{Cli, MethodArg, PlanArgs};
use crate::budget::Watch;
use crate::{ExitStatus, Failure, config, input, output, ui};

/// Tokens of the default global batch.
const DEFAULT_TOKENS: u64 = 4 << 20;

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &PlanArgs) -> Result<ExitStatus, Failure> {
    available(args)?;
    let (settings, _) = config::load(cli)?;
    let read = input::model(&args.model)?;
    let mut cluster = input::cluster(&args.cluster)?;
    exclude(&mut cluster, &args.exclude)?;
    if cli.anonymize {
        cluster = cluster.anonymized();
    }
    let mut assumed = Vec::new();
    let training = training(args, &settings, &read.model, &cluster, &mut assumed)?;
    let gap = args
        .gap
        .as_ref()
        .or(settings.gap.as_ref())
        .map(|g| input::share(g))
        .transpose()?;
    let limit = args
        .time_limit
        .as_ref()
        .or(settings.time_limit.as_ref())
        .map(|t| input::time(t))
        .transpose()?;
    if let Some(jobs) = args.jobs.or(settings.jobs) {
        // The pool can be set once per process.
        let _ = rayon::ThreadPoolBuilder::new()
            .num_threads(usize::from(jobs))
            .build_global();
    }
    let options = SearchOptions {
        method: match args.method {
            MethodArg::Auto => Method::Auto,
            MethodArg::Brute => Method::Brute,
        },
        gap,
        top: args.top.min(50),
        seed: args.seed,
        zero: match args.zero.or(settings.zero) {
            Some(zero) => vec![zero],
            None => vec![1, 2, 3],
        },
        max_micro_batch: args.max_micro_batch,
    };
    let watch = Watch::start(limit, !cli.no_progress && !cli.quiet);
    let outcome = search(&read.model, &cluster, &training, &options, &watch);
    watch.finish();
    match outcome? {
        Outcome::Found(plan) => {
            if let Some(path) = &args.output {
                output::write_file(path, &plan.to_json())?;
                if !cli.quiet {
                    ui::say(&format!("wrote {}", path.display()));
                }
            }
            if cli.json() {
                output::print(&plan.to_json())?;
            } else {
                let context = Context {
                    assumed,
                    notes: plan
                        .cluster
                        .cluster
                        .notes
                        .iter()
                        .chain(&read.notes)
                        .cloned()
                        .collect(),
                    saved: args.output.as_ref().map(|p| p.display().to_string()),
                    explain: args.explain,
                };
                output::print(&report::plan_screen(&plan, &context))?;
            }
            Ok(ExitStatus::Answer)
        }
        Outcome::Infeasible(answer) => negative(cli, &answer, &training, &assumed),
    }
}

fn negative(
    cli: &Cli,
    answer: &Infeasible,
    training: &Training,
    assumed: &[String],
) -> Result<ExitStatus, Failure> {
    if answer.stop == Some(StopReason::Interrupted) {
        return Err(Failure::Interrupted);
    }
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/infeasible@1",
            "feasible": false,
            "proven": answer.proven,
            "reasons": answer.reasons,
            "relaxations": answer.relaxations,
            "stop_reason": if answer.stop.is_some() { "time-limit" } else { "finished" },
        }))?;
    } else {
        output::print(&report::infeasible_screen(answer, training, assumed))?;
    }
    Ok(ExitStatus::Negative)
}

/// Refuses what this version does not have.
fn available(args: &PlanArgs) -> Result<(), Problems> {
    let mut problems = Problems::new();
    let mut refuse = |flag: &str, value: &str, legal: &str| {
        problems.push(
            Problem::new(&codes::NOT_AVAILABLE, flag, format!("`{value}` is not available"))
                .hint(format!("this version has: {legal}")),
        );
    };
    if let Some(engine) = &args.engine {
        refuse("--engine", engine, "no engine restriction; leave the flag out");
    }
    if args.space != "full" {
        refuse("--space", &args.space, "full");
    }
    if args.cost_model != "autohaap" {
        refuse("--cost-model", &args.cost_model, "autohaap");
    }
    problems.or(())
}

fn exclude(cluster: &mut Cluster, names: &[String]) -> Result<(), Problems> {
    let mut problems = Problems::new();
    for name in names {
        if let Some(node) = cluster.nodes.iter_mut().find(|n| n.name == *name) {
            node.excluded = (0..node.devices()).collect();
            continue;
        }
        match cluster.parse_device(name) {
            Ok((node, index)) => {
                let excluded = &mut cluster.nodes[node].excluded;
                excluded.push(index);
                excluded.sort_unstable();
                excluded.dedup();
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.or(())
}

/// Training settings; every default that was chosen is noted.
fn training(
    args: &PlanArgs,
    settings: &config::Settings,
    model: &Model,
    cluster: &Cluster,
    assumed: &mut Vec<String>,
) -> Result<Training, Problems> {
    let seq_len = args.seq.or(settings.seq).unwrap_or_else(|| {
        let seq = model.max_seq_len.unwrap_or(4096).clamp(1, 4096);
        assumed.push(format!("seq {seq}"));
        seq
    });
    let global_batch = args.global_batch.or(settings.global_batch).unwrap_or_else(|| {
        let exact = (DEFAULT_TOKENS as f64 / seq_len.max(1) as f64).max(1.0);
        let batch = 1u64 << (exact.log2().round() as u32).min(24);
        assumed.push(format!("global batch {batch}"));
        batch
    });
    let precision = match (args.precision, &settings.precision) {
        (Some(p), _) => input::precision(p),
        (None, Some(text)) => named_precision(text)?,
        (None, None) => {
            let precision = common_precision(cluster);
            let why = match precision {
                Precision::Bf16 => "bf16",
                Precision::Fp16 => "fp16: a device has no bf16",
                Precision::Fp8 => "fp8",
                Precision::Fp32 => "fp32: no 16-bit format is common to all devices",
            };
            assumed.push(why.to_owned());
            precision
        }
    };
    let attention: BTreeMap<String, AttentionKernel> = cluster
        .device_types
        .values()
        .map(|d| {
            let kernel = if d.flash_attention {
                AttentionKernel::Flash
            } else {
                AttentionKernel::Unfused
            };
            (d.name.clone(), kernel)
        })
        .collect();
    Ok(Training {
        seq_len,
        global_batch,
        precision,
        optimizer: Optimizer::Adam,
        zero: args.zero.or(settings.zero).unwrap_or(1),
        sequence_parallel: true,
        attention,
        engine_semantics: EngineSemantics::default(),
    })
}

fn named_precision(text: &str) -> Result<Precision, Problem> {
    match text {
        "bf16" => Ok(Precision::Bf16),
        "fp16" => Ok(Precision::Fp16),
        "fp8" => Ok(Precision::Fp8),
        "fp32" => Ok(Precision::Fp32),
        _ => Err(Problem::new(
            &codes::BAD_VALUE,
            "precision",
            format!("`{text}` is no precision"),
        )
        .hint("write bf16, fp16, fp8 or fp32")),
    }
}

/// The best format that every usable device has.
fn common_precision(cluster: &Cluster) -> Precision {
    let classes = cluster.classes();
    let all = |p: Precision| {
        classes.iter().all(|c| {
            cluster
                .device_types
                .get(&c.device_type)
                .is_some_and(|d| d.supports(p))
        })
    };
    [Precision::Bf16, Precision::Fp16]
        .into_iter()
        .find(|p| all(*p))
        .unwrap_or(Precision::Fp32)
}
