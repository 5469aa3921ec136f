//! All flags in one place: help, completions and the man page come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Plans the fastest asymmetric training of a large language model on a cluster of mixed accelerators.
#[derive(Debug, Parser)]
#[command(
    name = "autohaap",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 an answer, 1 a negative answer (nothing fits, check failed), 2 bad usage or input, \
130 interrupted without any answer.\n\nExamples:\n  autohaap plan --model llama-3.1-8b --cluster \"1x8 A100-80G + 1x8 H800 @ ib:8x200Gb\"\n  \
autohaap model config.json"
)]
pub(crate) struct Cli {
    /// Answer as text for people or as JSON for scripts.
    #[arg(long, global = true, value_enum, env = "AUTOHAAP_FORMAT", default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Colour of messages.
    #[arg(long, global = true, value_enum, env = "AUTOHAAP_COLOR", default_value_t = Color::Auto)]
    pub(crate) color: Color,
    /// Say less on stderr.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more on stderr; repeat for more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No progress on stderr.
    #[arg(long, global = true, env = "AUTOHAAP_NO_PROGRESS")]
    pub(crate) no_progress: bool,
    /// Replace host names in everything that is printed or written.
    #[arg(long, global = true)]
    pub(crate) anonymize: bool,
    /// Settings file instead of `autohaap.toml` of this folder or a parent.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read no settings file.
    #[arg(long, global = true)]
    pub(crate) no_config: bool,
    /// Print every setting with its origin.
    #[arg(long, global = true)]
    pub(crate) show_settings: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// Whether the answer is JSON.
    pub(crate) fn json(&self) -> bool {
        self.format == Format::Json
    }
}

/// Format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find the fastest plan for a model on a cluster.
    Plan(PlanArgs),
    /// Predict time and memory of a plan file.
    Estimate(EstimateArgs),
    /// Simulate one step of a plan file: timeline, memory, critical path, what-ifs.
    Simulate(SimulateArgs),
    /// Train under a plan file with the reference runtime on torch.
    Launch(LaunchArgs),
    /// Plan again after a node was lost, slowed down or added.
    Replan(ReplanArgs),
    /// Lay plans, restricted spaces, or a run and its prediction side by side.
    Compare(CompareArgs),
    /// Prove that a plan file is legal, or list every violation.
    Check(CheckArgs),
    /// Write a self-contained HTML page about a plan file.
    Report(ReportArgs),
    /// Show a model: parameters, FLOPs and atoms.
    Model(ModelArgs),
    /// List the devices of the catalogue, or one with the source of each figure.
    Devices(DevicesArgs),
    /// Compare predictions with published or own measurements.
    Validate(ValidateArgs),
    /// Fit the cost model's figures to measurements.
    Calibrate(CalibrateArgs),
    /// Write a profile from measurements of another tool.
    Import(ImportArgs),
    /// Write a commented cluster file.
    Init(InitArgs),
    /// Print a JSON schema.
    Schema(SchemaArgs),
    /// Explain an error code.
    Explain(ExplainArgs),
    /// Print shell completions.
    Completions(CompletionsArgs),
    /// Print the man page.
    Man,
}

/// Number format of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// bfloat16 mixed precision.
    Bf16,
    /// float16 mixed precision.
    Fp16,
    /// 8-bit products, bf16 storage.
    Fp8,
    /// float32 throughout.
    Fp32,
}

/// Optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerArg {
    /// Two fp32 moments and an fp32 master copy: 12 bytes a parameter.
    Adam,
    /// An fp32 master copy only: 4 bytes a parameter.
    Sgd,
}

/// Whether stage boundaries block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum P2pArg {
    /// A send costs the sender nothing.
    Async,
    /// Fused blocking exchanges, as in Megatron without p2p overlap.
    Rendezvous,
}

/// Search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodArg {
    /// Chosen by the cluster's size.
    Auto,
    /// Price every plan (tiny inputs).
    Brute,
}

/// `autohaap plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap plan --model llama-3.1-8b --cluster \"1x8 A100-80G + 1x8 H800 @ ib:8x200Gb\"\n  \
autohaap plan --model config.json --cluster cluster.toml --seq 4096 --global-batch 256 -o plan.json"
)]
pub(crate) struct PlanArgs {
    /// Model: a config.json, a folder with one, another model file, a preset, or `-`.
    #[arg(short, long, value_name = "PATH|PRESET")]
    pub(crate) model: String,
    /// Cluster: a cluster.toml, a shorthand such as "2x8 A100-80G + 4x8 V100-32G @ ib:100Gb", or `-`.
    #[arg(short, long, value_name = "FILE|SHORTHAND")]
    pub(crate) cluster: String,
    /// Tokens per sequence [default: 4096 or the model's maximum, if less].
    #[arg(long, value_name = "N")]
    pub(crate) seq: Option<u64>,
    /// Sequences per optimizer step [default: the power of two nearest 4 Mi tokens].
    #[arg(long, value_name = "N")]
    pub(crate) global_batch: Option<u64>,
    /// Number format [default: bf16 where every device has it, else fp16, else fp32].
    #[arg(long, value_enum, value_name = "P")]
    pub(crate) precision: Option<PrecisionArg>,
    /// ZeRO level [default: 1, and 2 and 3 are tried where the states do not fit].
    #[arg(long, value_name = "Z", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) zero: Option<u8>,
    /// Optimizer [default: adam].
    #[arg(long, value_enum, value_name = "O")]
    pub(crate) optimizer: Option<OptimizerArg>,
    /// How stages exchange activations and gradients [default: async].
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) p2p: Option<P2pArg>,
    /// Restrict to what an engine can execute.
    #[arg(long, value_name = "E")]
    pub(crate) engine: Option<String>,
    /// Restrict to what another planner can express: uniform, amp, metis, sailor, hexiscale, ... (`full`: no limit).
    #[arg(long, value_name = "S", default_value = "full")]
    pub(crate) space: String,
    /// Measured layer times and collectives: a folder that `import` writes.
    #[arg(long, value_name = "DIR")]
    pub(crate) profile: Option<PathBuf>,
    /// Cost model.
    #[arg(long, value_name = "C", default_value = "autohaap")]
    pub(crate) cost_model: String,
    /// Search method.
    #[arg(long, value_enum, default_value_t = MethodArg::Auto)]
    pub(crate) method: MethodArg,
    /// Stop when the answer is proven to be within this share of the optimum, for example `2%`.
    #[arg(long, value_name = "GAP")]
    pub(crate) gap: Option<String>,
    /// Stop after this time with the best plan so far, for example `30s`.
    #[arg(long, value_name = "TIME")]
    pub(crate) time_limit: Option<String>,
    /// Plans that lost to report.
    #[arg(long, value_name = "K", default_value_t = 3)]
    pub(crate) top: usize,
    /// Threads.
    #[arg(long, value_name = "N", env = "AUTOHAAP_JOBS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Seed of random choices (the search makes none today).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Largest micro-batch in sequences [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) max_micro_batch: Option<u32>,
    /// Leave out a device (`node:index`) or a node; repeat for more.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) exclude: Vec<String>,
    /// Also show why the bottleneck is one, the hardware figures with their sources, and the space of the bound.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a self-contained HTML page about the plan here.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the plan file here.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `autohaap compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap compare mine.json best.json\n  autohaap compare plan.json --measured run/attempt-0/measured.json\n  \
autohaap compare --spaces uniform,metis,sailor --model llama-3.1-8b --cluster \"1x8 A100-80G + 1x8 H800 @ ib:8x200Gb\""
)]
pub(crate) struct CompareArgs {
    /// Plan files; the first is the one that others are compared with.
    #[arg(value_name = "PLAN", required_unless_present = "spaces")]
    pub(crate) plans: Vec<String>,
    /// Lay this run's times beside the prediction of its plan: the `measured.json` of an attempt.
    #[arg(long, value_name = "FILE", conflicts_with = "spaces")]
    pub(crate) measured: Option<String>,
    /// The best plan of each of these spaces against the full one, for one model and cluster; `all` is every space.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', requires_all = ["model", "cluster"], conflicts_with = "plans")]
    pub(crate) spaces: Vec<String>,
    /// Model of `--spaces`: as for `plan`.
    #[arg(short, long, value_name = "PATH|PRESET", requires = "spaces")]
    pub(crate) model: Option<String>,
    /// Cluster of `--spaces`: as for `plan`.
    #[arg(short, long, value_name = "FILE|SHORTHAND", requires = "spaces")]
    pub(crate) cluster: Option<String>,
    /// Tokens per sequence, as for `plan`.
    #[arg(long, value_name = "N", requires = "spaces")]
    pub(crate) seq: Option<u64>,
    /// Sequences per optimizer step, as for `plan`.
    #[arg(long, value_name = "N", requires = "spaces")]
    pub(crate) global_batch: Option<u64>,
    /// Number format, as for `plan`.
    #[arg(long, value_enum, value_name = "P", requires = "spaces")]
    pub(crate) precision: Option<PrecisionArg>,
    /// ZeRO level, as for `plan`; a space may allow fewer.
    #[arg(long, value_name = "Z", value_parser = clap::value_parser!(u8).range(0..=3), requires = "spaces")]
    pub(crate) zero: Option<u8>,
    /// Time for all searches together, for example `60s`.
    #[arg(long, value_name = "TIME", requires = "spaces")]
    pub(crate) time_limit: Option<String>,
    /// Threads.
    #[arg(long, value_name = "N", env = "AUTOHAAP_JOBS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

/// `autohaap estimate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap estimate plan.json\n  autohaap estimate - --lines < plans.jsonl"
)]
pub(crate) struct EstimateArgs {
    /// A plan file, or `-`.
    pub(crate) plan: String,
    /// JSON Lines: one plan per line in, one prediction per line out.
    #[arg(long)]
    pub(crate) lines: bool,
    /// Price with these measurements instead of those in the plan: a folder that `import` writes.
    #[arg(long, value_name = "DIR")]
    pub(crate) profile: Option<PathBuf>,
    /// Price with this optimizer instead of the plan's.
    #[arg(long, value_enum, value_name = "O")]
    pub(crate) optimizer: Option<OptimizerArg>,
    /// Price with these boundary exchanges instead of the plan's.
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) p2p: Option<P2pArg>,
}

/// `autohaap report`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  autohaap report plan.json -o report.html")]
pub(crate) struct ReportArgs {
    /// Plan file, or `-`.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: String,
    /// File to write, or `-`; an existing one is replaced.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// `autohaap simulate`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  autohaap simulate plan.json --trace trace.json\n  autohaap simulate plan.json --schedule zb-h1\n  \
autohaap simulate plan.json --slow node0=1.8x --depth +1"
)]
pub(crate) struct SimulateArgs {
    /// A plan file, or `-`.
    pub(crate) plan: String,
    /// Write a Chrome trace (Perfetto, chrome://tracing) here.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Another order of work: 1f1b, 1f1b-standard, 1f1b-eager, 1f1b-minimal, gpipe, interleaved, looped-bfs,
    /// interleaved-zb, zb-h1, zb-h2, zb-fit, zb-v, dualpipe-v, or a torch schedule file (one for all pipelines, or repeated).
    #[arg(long, value_name = "NAME|FILE.csv")]
    pub(crate) schedule: Vec<String>,
    /// Write the order of work as torch schedule files into this folder, `schedule-<pipeline>.csv` each.
    #[arg(long, value_name = "DIR")]
    pub(crate) write_schedule: Option<PathBuf>,
    /// What if a node were slower, for example `node0=1.8x`; repeat for more.
    #[arg(long, value_name = "NODE=FACTOR")]
    pub(crate) slow: Vec<String>,
    /// What if a link were slower: a node's network cards (`node0=4x`) or a boundary (`PIPELINE.STAGE=4x`).
    #[arg(long, value_name = "LINK=FACTOR")]
    pub(crate) slow_link: Vec<String>,
    /// What if compute times varied with this relative deviation, for example `5%`.
    #[arg(long, value_name = "SHARE")]
    pub(crate) jitter: Option<String>,
    /// Seed of the jitter.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// What if every stage held more micro-batches in flight, for example `+1`.
    #[arg(long, value_name = "+N")]
    pub(crate) depth: Option<String>,
    /// Let transfers and reductions run as if nothing else used their links.
    #[arg(long)]
    pub(crate) no_contention: bool,
}

/// `autohaap launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "`--config` names the training file (`autohaap explain E609` shows one).\n\nExamples:\n  autohaap launch plan.json \
--config train.toml\n  autohaap launch plan.json --config train.toml --elastic\n  autohaap launch plan.json --config train.toml \
--node node1 --master node0:29500\n  autohaap launch plan.json --config train.toml --write-scripts scripts"
)]
pub(crate) struct LaunchArgs {
    /// A plan file, or `-`.
    pub(crate) plan: String,
    /// Go on from the last checkpoint of the run's folder, whatever plan it was saved under.
    #[arg(long)]
    pub(crate) resume: bool,
    /// When a process is killed, crashes or hangs: plan again without its device and go on from the last checkpoint.
    #[arg(long, conflicts_with = "node")]
    pub(crate) elastic: bool,
    /// Start only the processes of this node of the plan.
    #[arg(long, value_name = "NAME", requires = "master")]
    pub(crate) node: Option<String>,
    /// Where the processes meet: host and port of rank 0. Without it all run on this machine.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) master: Option<String>,
    /// Write one script per node, a Slurm script and a Kubernetes JobSet into this folder, and start nothing.
    #[arg(long, value_name = "DIR")]
    pub(crate) write_scripts: Option<PathBuf>,
    /// Python interpreter with torch (default: AUTOHAAP_PYTHON, else python3).
    #[arg(long, value_name = "FILE")]
    pub(crate) python: Option<PathBuf>,
    /// Accept another version of torch than the tested one.
    #[arg(long)]
    pub(crate) any_torch: bool,
    /// Virtual devices: let compute and links take their simulated time, times this factor, by sleeping.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) virtual_scale: Option<f64>,
}

/// `autohaap replan`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap replan plan.json --without node0:3 -o new.json\n  autohaap replan plan.json --slow \
node1=1.8x\n  autohaap replan plan.json --add node0=2 --format json"
)]
pub(crate) struct ReplanArgs {
    /// A plan file, or `-`.
    pub(crate) plan: String,
    /// A node (`node0`) or device (`node0:3`) that is gone; repeat for more.
    #[arg(long, value_name = "NODE|DEVICE")]
    pub(crate) without: Vec<String>,
    /// A slower node, for example `node0=1.8x`; repeat for more.
    #[arg(long, value_name = "NODE=FACTOR")]
    pub(crate) slow: Vec<String>,
    /// More nodes like one, for example `node0=2`; repeat for more.
    #[arg(long, value_name = "NODE=COUNT")]
    pub(crate) add: Vec<String>,
    /// Search as long as `plan` does, with a proven bound, instead of answering within a second.
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Write the new plan here.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `autohaap check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  autohaap check plan.json\n  autohaap check plan.json --format json")]
pub(crate) struct CheckArgs {
    /// A plan file, or `-`.
    pub(crate) plan: String,
    /// Also check the limits of an engine.
    #[arg(long, value_name = "E")]
    pub(crate) engine: Option<String>,
}

/// `autohaap model`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap model llama-3.1-8b\n  autohaap model path/to/config.json --format json"
)]
pub(crate) struct ModelArgs {
    /// A config.json, a folder with one, another model file, a preset, or `-`; without it the presets are listed.
    pub(crate) model: Option<String>,
}

/// `autohaap devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// A device, by any of its names.
    pub(crate) name: Option<String>,
}

/// `autohaap init`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  autohaap init\n  autohaap init mixed -o my-cluster.toml")]
pub(crate) struct InitArgs {
    /// Which template: basic, one-node or mixed.
    #[arg(default_value = "basic")]
    pub(crate) kind: String,
    /// File to write; `-` prints it.
    #[arg(short, long, default_value = "cluster.toml")]
    pub(crate) output: String,
    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `autohaap schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Which schema: plan.
    pub(crate) kind: String,
}

/// `autohaap explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A code such as E302; without it all codes are listed.
    pub(crate) code: Option<String>,
}

/// `autohaap completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// `autohaap validate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap validate\n  autohaap validate --cases measured.csv --format json\n\n\
Exit code 1: a recorded tolerance or an exact check is broken."
)]
pub(crate) struct ValidateArgs {
    /// Measurements with the columns of data/published [default: the published ones].
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) cases: Option<String>,
    /// Exact checks with the columns of data/published/oracles.csv.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) oracles: Option<String>,
    /// Fitted figures instead of the compiled-in ones.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) calibration: Option<String>,
}

/// `autohaap calibrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap calibrate all_reduce.txt --device A100-SXM-80GB -o measured.toml\n  \
autohaap calibrate steps.csv\n  autohaap calibrate --published -o data/calibration/fitted.toml"
)]
pub(crate) struct CalibrateArgs {
    /// Output of the nccl-tests, or step times as CSV with the columns of data/published.
    pub(crate) files: Vec<String>,
    /// Device that the nccl-tests ran on, by any of its names.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Ranks of the nccl-tests, where their text does not list them.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// Fit on the calibration rows of the published measurements instead.
    #[arg(long, conflicts_with = "files")]
    pub(crate) published: bool,
    /// Predict every step time of this published group by a fit that has seen no row of its kind (see --by).
    #[arg(long, value_name = "GROUP", conflicts_with = "files")]
    pub(crate) held_out: Option<String>,
    /// What is held out together.
    #[arg(long, value_enum, default_value_t = ByArg::Model)]
    pub(crate) by: ByArg,
    /// Fitted figures to start from [default: the compiled-in ones].
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) start: Option<String>,
    /// File to write.
    #[arg(short, long, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,
}

/// `autohaap import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  autohaap import sailor-profile profile.json --model opt-350m --device A100-40G --seq 2048 \
--precision fp32 -o profile\n  autohaap import nccl-tests all_reduce.txt --device H100 --ranks 8 -o profile"
)]
pub(crate) struct ImportArgs {
    /// What the files are: sailor-profile, sailor-links, metis-profile, amp-npy, fasop-npy, nccl-tests.
    pub(crate) kind: String,
    /// The files.
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    /// Model whose layers were measured: a config.json, a folder with one, another model file or a preset.
    #[arg(short, long, value_name = "PATH|PRESET")]
    pub(crate) model: Option<String>,
    /// The model inside a file that holds several.
    #[arg(long, value_name = "NAME")]
    pub(crate) entry: Option<String>,
    /// Device that was measured, by any of its names, where the files do not say it.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Tokens per sequence of the measurement.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=1 << 27))]
    pub(crate) seq: u64,
    /// Number format of the measurement.
    #[arg(long, value_enum, value_name = "P", default_value_t = PrecisionArg::Bf16)]
    pub(crate) precision: PrecisionArg,
    /// Ranks of the nccl-tests, where their text does not list them.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// Folder to write; tables that stand in it are replaced.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// Rows held out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// All rows of a model.
    Model,
    /// All rows of a run.
    Run,
    /// All rows with equal tensor-parallel degree and number of stages.
    Family,
}
