//! Codes E46x: a plan that cannot be priced.

use super::Code;

/// The stages do not form whole pipelines.
pub static NOT_PRICEABLE: Code = Code {
    id: "E460",
    title: "a plan must be whole before it can be priced",
    page: "Pricing needs, for every pipeline: stages that cover all atoms once and in order, at least one replica per \
stage with tp * cp devices and one row, an in-flight limit of 1 or more and at least one micro-batch.\n\n\
`autohaap check PLAN` lists every violation of these and all other rules, each with its nearest legal values. Mend \
those first, then run `autohaap estimate` again.",
};
/// No evaluator for a schedule.
pub static SCHEDULE_WITHOUT_EVALUATOR: Code = Code {
    id: "E461",
    title: "the schedule has no exact evaluator",
    page: "`step_time_s` is always the event-order makespan of the schedule that the plan names. The kinds `1f1b` (with \
free in-flight limits) and `gpipe` have one. Other kinds (`interleaved`, `zb-h1`, ...) are legal in a plan file, but \
pricing them by another schedule's formula would be wrong, so they are refused.\n\nUse `1f1b` or `gpipe`, or run \
`autohaap simulate PLAN`, which executes any schedule.",
};
/// Neighbouring stages without a link.
pub static NO_PATH: Code = Code {
    id: "E462",
    title: "neighbouring stages need a link",
    page: "Activations and their gradients cross every stage boundary. Between two domains (devices of vendors that share \
no collective library) traffic is possible only over a declared bridge.\n\nAdd to the cluster file, for example:\n\n\
    [[bridges]]\n    between = [\"nccl\", \"rccl\"]\n    bandwidth = \"10 GB/s\"\n    latency = \"50 us\"",
};
/// In-flight limits that deadlock.
pub static DEADLOCK: Code = Code {
    id: "E463",
    title: "in-flight limits must not rise downstream",
    page: "A stage with limit W runs W forwards before its first backward. If the next stage has a larger limit, it waits \
for forwards that the stage before sends only after a backward, which waits for the next stage: the pipeline never moves.\n\n\
Use limits that do not rise from the first stage to the last, for example 4, 3, 2, 1 for four stages.",
};
/// A collective group across domains.
pub static GROUP_ACROSS_DOMAINS: Code = Code {
    id: "E464",
    title: "a collective group lies inside one domain",
    page: "Tensor, context and expert parallel groups and the gradient reduction of every atom (tied embedding and head \
included) use one collective library. Devices of different libraries (for example NCCL and RCCL) can only exchange point \
to point over a bridge.\n\nSplit the layers between the domains, not the batch: every atom is then held inside one domain.",
};
/// A device that the cluster does not have.
pub static UNKNOWN_DEVICE: Code = Code {
    id: "E465",
    title: "a plan uses devices of its own cluster",
    page: "Devices are written `<node>:<index>`, with the node names of the plan's `cluster` record and indices from 0 over \
the node's device groups in order. A name that is not there usually means that the plan was made for another cluster, or \
that the node was renamed in one of the two places.",
};

/// A device over its memory limit.
pub static OVER_MEMORY: Code = Code {
    id: "E466",
    title: "predicted memory must not exceed the device's limit",
    page: "The peak of weights, gradients, optimizer state, activations in flight, working set, logits, buffers, context \
and allocator reserve must fit the smaller of the device's capacity and the user's cap. `autohaap estimate PLAN` itemises \
it.\n\nSmallest changes first: a smaller in-flight limit, recompute on more layers, fewer layers on this stage, a smaller \
micro-batch, a higher ZeRO level, more tensor parallelism.",
};

/// A prediction that is not a finite time.
pub static NOT_FINITE: Code = Code {
    id: "E467",
    title: "the predicted step time must be a finite, positive number",
    page: "A rate of 0 or a latency beyond every clock in the plan's `cluster` record makes some transfer or operation last \
for ever, and a size of 0 in a measured table makes it undefined. No step time follows from such figures.\n\n\
`autohaap check PLAN` names the figure that is out of range. Mend it, or plan again from the cluster file.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[
    &NOT_PRICEABLE,
    &SCHEDULE_WITHOUT_EVALUATOR,
    &NO_PATH,
    &DEADLOCK,
    &GROUP_ACROSS_DOMAINS,
    &UNKNOWN_DEVICE,
    &OVER_MEMORY,
    &NOT_FINITE,
];
