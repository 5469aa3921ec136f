//! Codes E60x, E61x: launching, training, re-planning.

use super::Code;

/// A plan that the runtime does not read.
pub static PLAN_VERSION: Code = Code {
    id: "E601",
    title: "the runtime reads plan files and schedules of its own version",
    page: "The runtime checks the `schema` of the plan and every cell of the schedule before it starts. A plan of another \
version is not guessed at: make it again with the `autohaap` that launches it (`autohaap plan ... -o plan.json`).",
};
/// Something that is planned, but not executed.
pub static NOT_EXECUTED: Code = Code {
    id: "E602",
    title: "the reference runtime executes what it can execute exactly, and refuses the rest",
    page: "Refused before any process starts, never approximated: context parallelism (cp > 1), experts divided over \
tensor parallelism (etp > 1), ZeRO 2 and 3, fp8, MTP, MLA and state-space blocks, attention dropout, partial or unusual \
rotary embeddings, and MoE stages with tensor parallelism whose sequence does not divide by tp.\n\nExecuted families: \
Llama, Mistral, Qwen2, Qwen3, GPT-2, Mixtral, Qwen2-MoE, Qwen3-MoE. Plan with other settings, for example `--zero 1`.",
};
/// The machine is not what the plan or the runtime needs.
pub static ENVIRONMENT: Code = Code {
    id: "E603",
    title: "every rank needs the pinned torch and the device that the plan names",
    page: "The runtime is tested with one version of torch (the message names it). `--python FILE` or AUTOHAAP_PYTHON names \
the interpreter that has it; `--any-torch` accepts another version at your own risk.\n\nOn GPUs the pre-flight check also \
compares memory, compute capability and number format of every rank: torch 2.15 wheels hold code for sm_75 and newer, \
and bf16 needs Ampere or newer.",
};
/// The ranks do not come together.
pub static WORLD: Code = Code {
    id: "E604",
    title: "one process per device of the plan, and all of them meet",
    page: "WORLD_SIZE must be the number of devices that the plan uses, and every rank must reach MASTER_ADDR:MASTER_PORT \
within the timeout of the training file (`run.timeout_s`). `autohaap launch` sets all of it; `--node NAME --master ADDR:PORT` \
starts the ranks of one node. Start all nodes within the timeout.",
};
/// The port is taken.
pub static PORT_IN_USE: Code = Code {
    id: "E605",
    title: "the port of the rendezvous must be free",
    page: "Another process listens on the port. Leave out `--master` for a run on this machine: a free port is chosen. For \
several nodes name another one, the same on every node: `--master node0:29501`.",
};
/// Weights or model config that do not fit.
pub static WEIGHTS: Code = Code {
    id: "E606",
    title: "weights and config.json must be those of the planned model",
    page: "The plan embeds the shapes it was made for; `model.config` of the training file names the config.json with the \
rest (rotary base, norm epsilon, activation). Layers, widths, heads, experts and the tying of embeddings must agree, and \
every tensor of `model.weights` must have the model's shape.\n\nPlan again from this config.json, or name the right one.",
};
/// A checkpoint that cannot be used.
pub static CHECKPOINT: Code = Code {
    id: "E607",
    title: "a checkpoint is complete, undamaged, and of the same model",
    page: "Each checkpoint holds a digest of its files; one that does not match is refused. A save writes beside and renames \
at the end, so that a crash leaves the checkpoint before it intact: remove the damaged folder and launch with `--resume`.",
};
/// Token files that cannot be used.
pub static DATA: Code = Code {
    id: "E608",
    title: "training reads a token file that fits the model",
    page: "`data.tokens` names a file of little-endian integers with a `.json` of the same name beside it (width, number, \
vocabulary). `python -m autohaap.data TEXT... -o tokens.bin --tokenizer tokenizer.json` writes both. The tokens' \
vocabulary must not exceed the model's, and there must be at least one sequence.",
};
/// A training file that does not parse.
pub static TRAINING_FILE: Code = Code {
    id: "E609",
    title: "a training file has the sections model, data, optimizer and run",
    page: "Smallest example:\n\n    [model]\n    config = \"config.json\"\n\n    [data]\n    tokens = \"tokens.bin\"\n\n    \
[run]\n    steps = 1000\n    checkpoint_every = 100\n\nFurther keys: model.weights; data.seed; optimizer.lr, betas, eps, \
weight_decay, clip, warmup, cosine; run.folder, seed, precision, backend (gloo or nccl), threads, timeout_s, hang_s, export. \
Paths are relative to the training file. Unknown keys are refused by name.",
};
/// A worker that ended or hung.
pub static WORKER_LOST: Code = Code {
    id: "E610",
    title: "a worker that ends or stops answering ends the run",
    page: "When one rank is killed, crashes or shows no progress for `run.hang_s` seconds, the launcher ends the others and \
names the rank, its device and its log. `autohaap replan PLAN --without DEVICE -o new.json` and `launch new.json --resume` \
continue without the device from the last checkpoint; `launch --elastic` does both by itself.",
};
/// A question to `replan` that names nothing.
pub static BAD_REPLAN: Code = Code {
    id: "E611",
    title: "a re-plan names nodes or devices of the plan's cluster",
    page: "`--without node0` or `--without node0:3` leaves devices out, `--slow node0=1.8x` makes a node slower, \
`--add node0=2` adds two nodes like `node0`. Names are those of the plan's cluster, factors between 0.01 and 1000.",
};
/// Measured times of a run that cannot be used.
pub static MEASURED: Code = Code {
    id: "E612",
    title: "measured times belong to the plan that was run",
    page: "`autohaap launch` writes `measured.json` beside the `plan.json` of each attempt: times of the step and of every \
replica's work. `autohaap compare plan.json --measured measured.json` lays them beside the prediction; both files must be of \
the same attempt, times finite and not negative.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[
    &PLAN_VERSION,
    &NOT_EXECUTED,
    &ENVIRONMENT,
    &WORLD,
    &PORT_IN_USE,
    &WEIGHTS,
    &CHECKPOINT,
    &DATA,
    &TRAINING_FILE,
    &WORKER_LOST,
    &BAD_REPLAN,
    &MEASURED,
];
