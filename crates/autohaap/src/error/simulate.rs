//! Codes E47x: simulation.

use super::Code;

/// A schedule file that does not parse.
pub static BAD_SCHEDULE_FILE: Code = Code {
    id: "E471",
    title: "a schedule file has one row per rank and cells such as 0F0, 3B2",
    page: "Torch's schedule format: row r lists what rank r runs, cells are separated by commas and read \
`{stage}{F|B|I|W}{micro-batch}` (forward, whole backward, input gradient, weight gradient) or, for a forward and a backward \
that run together, `(0F4;7B2)OVERLAP_F_B`. Empty cells are idle steps. Communication cells (SEND_F, RECV_B, UNSHARD, ...) \
are accepted and left out: the simulator derives them.\n\nExample for two ranks and two micro-batches:\n\n    \
0F0,0F1,0B0,0B1\n    1F0,1B0,1F1,1B1",
};
/// A schedule that is not that of the plan.
pub static WRONG_SCHEDULE: Code = Code {
    id: "E472",
    title: "a schedule runs every forward and every backward of its pipeline exactly once",
    page: "For every stage and micro-batch of the pipeline the order holds one forward and one backward (`B`), or one input \
gradient and one weight gradient (`I` and `W`), all on one rank, the forward before the backward and `I` before `W`. \
Stages that share devices are on one rank. The message lists what is missing, doubled or out of place.",
};
/// A schedule whose ranks wait for each other.
pub static SCHEDULE_DEADLOCK: Code = Code {
    id: "E473",
    title: "ranks must not wait for each other in a circle",
    page: "A rank runs its actions in order. When the next action of each of several ranks needs the result of an action that \
another of them has further down its list, none moves. The message prints the circle: who waits with which action for \
which action of whom.\n\nUsual causes: in-flight limits that rise downstream, a backward before its forward, or blocking \
exchanges (p2p `rendezvous`) with in-flight limits that fall by more than two from one stage to the next.",
};
/// A schedule that the plan's stages cannot run.
pub static UNFIT_SCHEDULE: Code = Code {
    id: "E474",
    title: "the schedule must fit the plan's stages and micro-batches",
    page: "`gpipe`, `1f1b`, `zb-h1` and `zb-h2` run one stage per group of devices. `interleaved` needs virtual stages \
(`on_stage` entries, in rounds over all owning stages) and micro-batches whose groups of p leave no rest smaller than p; \
`zb-v` and `dualpipe-v` need exactly one virtual stage per owning stage, in reverse order, `dualpipe-v` also at least two \
micro-batches per owning stage.\n\nUse a schedule that fits, change the micro-batches, or give the plan virtual stages.",
};
/// A what-if that names nothing of the plan.
pub static BAD_WHAT_IF: Code = Code {
    id: "E475",
    title: "a what-if names a node or boundary of the plan and a factor",
    page: "`--slow NODE=1.8x` makes a node's devices 1.8 times slower, `--slow-link NODE=4x` the network cards of a node, \
`--slow-link P.S=4x` the boundary after stage S of pipeline P; `--jitter 5%` varies every action's time with that relative \
standard deviation; `--depth +1` lets every stage hold one micro-batch more.\n\nFactors are between 0.01 and 1000, jitter \
between 0 and 100 %, nodes are named as in the plan's cluster.",
};
/// Too many actions.
pub static TOO_MANY_ACTIONS: Code = Code {
    id: "E476",
    title: "a simulation holds at most 40 million actions",
    page: "Every stage and micro-batch is two or three actions, kept in memory with its times. Plans beyond the limit usually \
have a micro-batch count typed wrongly; `autohaap estimate` predicts them without a timeline.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[
    &BAD_SCHEDULE_FILE,
    &WRONG_SCHEDULE,
    &SCHEDULE_DEADLOCK,
    &UNFIT_SCHEDULE,
    &BAD_WHAT_IF,
    &TOO_MANY_ACTIONS,
];
