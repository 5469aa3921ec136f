//! `autohaap plan`: model and cluster to the fastest plan.

use std::collections::BTreeMap;
use std::time::Duration;

use autohaap::cluster::{Cluster, Precision};
use autohaap::error::{Problem, Problems, usage as codes};
use autohaap::model::{Model, ModelInput};
use autohaap::plan::{AttentionKernel, EngineSemantics, Optimizer, PointToPointMode, Training};
use autohaap::profile::attach;
use autohaap::report::{self, Context};
use autohaap::search::{
    Infeasible, Method, NamedSpace, Outcome, SPACES, SearchOptions, StopReason, batch_sizes, search,
};

use clap::ValueEnum;

use crate::args::{Cli, MethodArg, PlanArgs};
use crate::budget::Watch;
use crate::{ExitStatus, Failure, config, gather, input, output, ui};

/// Everything the search needs, read and checked.
pub(super) struct Question {
    pub(super) read: ModelInput,
    pub(super) cluster: Cluster,
    pub(super) training: Training,
    gap: Option<f64>,
    pub(super) limit: Option<Duration>,
    pub(super) settings: config::Settings,
}

/// Reads all inputs before any problem is reported, so that one run shows the problems of all of them.
pub(super) fn question(cli: &Cli, args: &PlanArgs, assumed: &mut Vec<String>) -> Result<Question, Failure> {
    let mut problems = Problems::new();
    gather(&mut problems, available(args))?;
    let inputs = [args.model.as_str(), args.cluster.as_str()];
    gather(
        &mut problems,
        output::keeps_inputs(args.output.as_deref(), &inputs),
    )?;
    let settings = gather(&mut problems, config::load(cli))?.map_or_else(config::Settings::default, |s| s.0);
    let gap = args.gap.as_ref().or(settings.gap.as_ref());
    let gap = gather(&mut problems, gap.map(|g| input::share(g)).transpose())?;
    let limit = args.time_limit.as_ref().or(settings.time_limit.as_ref());
    let limit = gather(&mut problems, limit.map(|t| input::time(t)).transpose())?;
    let named = gather(&mut problems, Named::new(args, &settings))?;
    gather(
        &mut problems,
        batch_sizes(
            args.global_batch.or(settings.global_batch),
            args.seq.or(settings.seq),
        ),
    )?;
    if args.model == "-" && args.cluster == "-" {
        problems.push(
            Problem::new(
                &codes::BAD_USAGE,
                "command line",
                "standard input cannot be both the model and the cluster",
            )
            .hint("give one of them as a file"),
        );
        return Err(problems.into());
    }
    let profile = gather(
        &mut problems,
        args.profile.as_deref().map(input::profile).transpose(),
    )?;
    let read = gather(&mut problems, input::model(&args.model))?;
    let cluster = gather(&mut problems, input::cluster(&args.cluster))?;
    let cluster = match cluster {
        Some(mut cluster) => {
            gather(&mut problems, exclude(&mut cluster, &args.exclude))?;
            Some(if cli.anonymize {
                cluster.anonymized()
            } else {
                cluster
            })
        }
        None => None,
    };
    // Without any problem all of them are there.
    match (problems.is_empty(), named, gap, limit, read, cluster, profile) {
        (true, Some(named), Some(gap), Some(limit), Some(read), Some(mut cluster), Some(profile)) => {
            let training = training(args, &settings, named, &read.model, &cluster, assumed);
            if let (Some(folder), Some(path)) = (&profile, &args.profile) {
                let name = path.display().to_string();
                attach(&mut cluster, folder, &read.model, training.precision, &name)?;
            }
            if limit.is_none() {
                assumed.push("no time limit".into());
            }
            Ok(Question {
                read,
                cluster,
                training,
                gap,
                limit,
                settings,
            })
        }
        _ => Err(problems.into()),
    }
}

/// Settings that are words: given by flag or settings file, or left to the defaults.
#[derive(Clone, Copy)]
struct Named {
    precision: Option<Precision>,
    optimizer: Option<Optimizer>,
    p2p: Option<PointToPointMode>,
}

impl Named {
    fn new(args: &PlanArgs, settings: &config::Settings) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let named = Self {
            precision: args
                .precision
                .or_else(|| word(&mut problems, "precision", settings.precision.as_deref()))
                .map(input::precision),
            optimizer: args
                .optimizer
                .or_else(|| word(&mut problems, "optimizer", settings.optimizer.as_deref()))
                .map(input::optimizer),
            p2p: args
                .p2p
                .or_else(|| word(&mut problems, "p2p", settings.p2p.as_deref()))
                .map(input::p2p),
        };
        problems.or(named)
    }
}

/// A word of the settings file, by the rules of the flag of that name.
fn word<T: ValueEnum>(problems: &mut Problems, key: &str, text: Option<&str>) -> Option<T> {
    let text = text?;
    let found = T::from_str(text, true).ok();
    if found.is_none() {
        let legal: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|v| v.to_possible_value().map(|p| p.get_name().to_owned()))
            .collect();
        problems.push(
            Problem::new(&codes::BAD_VALUE, key, format!("`{text}` is no {key}"))
                .hint(format!("write one of: {}", legal.join(", "))),
        );
    }
    found
}

/// Default of `--max-micro-batch`.
const MAX_MICRO_BATCH: u32 = 8;

/// Tokens of the default global batch.
const DEFAULT_TOKENS: u64 = 4 << 20;

/// Sets the number of threads of the searches of this process.
pub(super) fn threads(jobs: Option<u16>) {
    if let Some(jobs) = jobs {
        // The pool can be set once per process.
        let _ = rayon::ThreadPoolBuilder::new()
            .num_threads(usize::from(jobs))
            .build_global();
    }
}

/// How the search runs for these flags.
pub(super) fn options(args: &PlanArgs, asked: &Question) -> SearchOptions {
    let space = NamedSpace::by_name(&args.space);
    let settings = &asked.settings;
    SearchOptions {
        method: match args.method {
            MethodArg::Auto => Method::Auto,
            MethodArg::Brute => Method::Brute,
        },
        gap: asked.gap,
        top: args.top.min(50),
        seed: args.seed,
        zero: match args.zero.or(settings.zero) {
            Some(zero) => vec![zero],
            None => match space {
                Some(space) if space.rules.zero_most == 0 => vec![0],
                _ => vec![1, 2, 3],
            },
        },
        space,
        max_micro_batch: args
            .max_micro_batch
            .or(settings.max_micro_batch)
            .unwrap_or(MAX_MICRO_BATCH)
            .clamp(1, 64),
        start: Vec::new(),
        quick: false,
    }
}

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &PlanArgs) -> Result<ExitStatus, Failure> {
    let mut assumed = Vec::new();
    let asked = question(cli, args, &mut assumed)?;
    threads(args.jobs.or(asked.settings.jobs));
    let options = options(args, &asked);
    let Question {
        read,
        cluster,
        training,
        limit,
        ..
    } = asked;
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
            if let Some(path) = &args.report {
                output::write_file(path, &super::report::page(&mut plan.clone())?)?;
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
    if args.space != "full" && NamedSpace::by_name(&args.space).is_none() {
        let names: Vec<&str> = SPACES.iter().map(|s| s.name).collect();
        refuse("--space", &args.space, &format!("full, {}", names.join(", ")));
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

/// Training settings; every default that was chosen is noted by the name of its flag.
fn training(
    args: &PlanArgs,
    settings: &config::Settings,
    named: Named,
    model: &Model,
    cluster: &Cluster,
    assumed: &mut Vec<String>,
) -> Training {
    let seq_len = args.seq.or(settings.seq).unwrap_or_else(|| {
        let seq = model.max_seq_len.unwrap_or(4096).clamp(1, 4096);
        assumed.push(format!("--seq {seq}"));
        seq
    });
    let global_batch = args.global_batch.or(settings.global_batch).unwrap_or_else(|| {
        let exact = (DEFAULT_TOKENS as f64 / seq_len.max(1) as f64).max(1.0);
        let batch = 1u64 << (exact.log2().round() as u32).min(20);
        assumed.push(format!("--global-batch {batch}"));
        batch
    });
    let precision = named.precision.unwrap_or_else(|| {
        let precision = common_precision(cluster);
        let why = match precision {
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "fp16 (a device has no bf16)",
            Precision::Fp8 => "fp8",
            Precision::Fp32 => "fp32 (no 16-bit format is common to all devices)",
        };
        assumed.push(format!("--precision {why}"));
        precision
    });
    let zero = args.zero.or(settings.zero).unwrap_or_else(|| {
        assumed.push("--zero 1-3".into());
        1
    });
    let optimizer = named.optimizer.unwrap_or_else(|| {
        assumed.push("--optimizer adam".into());
        Optimizer::Adam
    });
    let p2p = named.p2p.unwrap_or_else(|| {
        assumed.push("--p2p async".into());
        PointToPointMode::Async
    });
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
    Training {
        seq_len,
        global_batch,
        precision,
        optimizer,
        zero,
        sequence_parallel: true,
        attention,
        engine_semantics: EngineSemantics {
            p2p,
            ..EngineSemantics::default()
        },
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
