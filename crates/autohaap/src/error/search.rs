//! Codes E5xx: search.

use super::Code;

/// Batch, sequence, model or cluster out of range.
pub static BAD_BATCH: Code = Code {
    id: "E501",
    title: "a search needs a batch, a sequence length, a model and devices",
    page: "The global batch is the number of sequences of one optimizer step, over all pipelines: at least 1. The sequence \
length is in tokens: at least 1. The model has an embedding, at least one block and a head; the cluster at least one device \
that is not excluded.\n\nExample: `autohaap plan --model llama-3.1-8b --cluster \"1x8 A100-80G\" --seq 4096 --global-batch 256`.",
};
/// More device classes than the search counts.
pub static TOO_MANY_CLASSES: Code = Code {
    id: "E502",
    title: "the number of device classes is limited",
    page: "The search works on counts per device class: devices of one type, node shape, network, speed factor and memory \
limit. Every class adds a dimension, and beyond eight the search would not end in useful time.\n\nGive nodes of one type \
the same settings, or leave out the smallest classes with `--exclude`.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[&BAD_BATCH, &TOO_MANY_CLASSES];
