//! Codes E4xx: plan files and the rules that every plan obeys.

use super::Code;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal, $page:literal;)*) => {
        $($(#[$doc])* pub static $name: Code = Code { id: $id, title: $title, page: $page };)*
        /// All codes of this area.
        pub static ALL: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    /// The file is not JSON.
    PLAN_SYNTAX = "E401", "the plan file is not well-formed JSON",
        "A plan file is one JSON object; the text at the reported place breaks the grammar, so nothing after it can be trusted.\n\n\
         Example: a comma after the last stage of a list, or a file that was cut off while it was written.\n\n\
         Remedy: mend the reported line, or write the plan again with `autohaap plan ... -o plan.json`.";
    /// The schema is missing, unknown or newer.
    PLAN_SCHEMA_VERSION = "E402", "the file is no plan of a version that this program reads",
        "Every plan file names its form in `schema`, so that a newer form is refused by name and never half understood.\n\n\
         Example: `\"schema\": \"autohaap/plan@2\"` comes from a newer release; `\"schema\": \"autohaap/cluster@1\"` is a cluster; \
         the answer of a search that found nothing carries `\"feasible\": false` and holds no pipelines.\n\n\
         Remedy: use the release named in `created_by`, or give a file that starts with `\"schema\": \"autohaap/plan@1\"`.";
    /// A field is missing, unknown or of the wrong type.
    PLAN_FIELD = "E403", "a field of the plan is missing, unknown or of the wrong type",
        "Fields have fixed names and types, and a misspelt field that is silently ignored would describe another plan than the one \
         meant; the message gives the path of the field.\n\n\
         Example: `\"tp\": \"8\"` is a text where a number belongs; `recompte` is no field of a stage.\n\n\
         Remedy: mend the field at the reported path. `autohaap schema plan` prints all fields and types.";
    /// A size or count is beyond the limits of a plan file.
    PLAN_TOO_LARGE = "E404", "the plan exceeds a size limit",
        "Counts in a file are checked before anything is allocated by them: 64 MiB of text, 1,000,000 devices, 100,000 atoms, \
         100,000 stages, 1,024 device types, and 2^31 sequences per pipeline and step.\n\n\
         Example: a node with `\"count\": 4000000000`, or `micro_batch` times `micro_batches` above 2^31.\n\n\
         Remedy: give the true counts; a plan of this size is almost always a slip of the pen.";
    /// Something that must have members is empty.
    EMPTY_PART = "E405", "a part of the plan is empty",
        "A plan has at least one pipeline, a pipeline at least one stage, a stage that owns devices at least one replica, and a \
         replica at least one device; otherwise nothing would compute the atoms.\n\n\
         Example: `\"pipelines\": []`, or a stage with neither `replicas` nor `on_stage`.\n\n\
         Remedy: add the missing part, or delete the empty pipeline or stage and give its atoms to a neighbour.";
    /// The embedded model is inconsistent.
    BROKEN_MODEL = "E406", "the model in the plan is inconsistent",
        "The checker trusts nothing in the file, the embedded model included: it is a chain of embedding, blocks, MTP blocks and head, in \
         that order, and its tie flag agrees with the head's.\n\n\
         Example: a head in the middle of the chain would hand logits to the next block.\n\n\
         Remedy: write the plan again from the model file; do not edit `model.atoms` by hand.";
    /// The embedded cluster is inconsistent.
    BROKEN_CLUSTER = "E407", "the cluster in the plan is inconsistent",
        "Device addresses, domains and bridges refer to names inside the embedded cluster: node names are unique, every group names a \
         known device type, and every device type in use lies in exactly one domain.\n\n\
         Example: two nodes named `n0` make the address `n0:3` ambiguous.\n\n\
         Remedy: write the plan again from the cluster file, or mend the name at the reported path.";
    /// Atoms are not covered exactly once in order.
    ATOM_COVERAGE = "E411", "every pipeline must cover every atom exactly once, in order",
        "An engine builds exactly the layers that the stages name. A gap silently trains a smaller model and an overlap a larger one; \
         equal cuts of an indivisible layer count are the usual cause.\n\n\
         Example: 30 blocks over 4 stages of 7 build 28; 80 blocks over 16 stages with 2 chunks of 2 build 64.\n\n\
         Remedy: let each stage begin where the one before ends, from 0 to the number of atoms; uneven cuts such as 8/8/7/7 are \
         legal. `autohaap plan` finds the fastest cut.";
    /// A device address names nothing.
    NO_SUCH_DEVICE = "E412", "the device does not exist in the plan's cluster",
        "Devices are written `<node>:<index>`, the index counted from 0 over the node's groups in order, without leading zeros. \
         Devices that the cluster excludes cannot be used either.\n\n\
         Example: `n0:8` on a node of eight devices, whose last one is `n0:7`.\n\n\
         Remedy: use an address from the hint; `autohaap report PLAN` lists nodes and devices.";
    /// A device is used more than once.
    DEVICE_USED_TWICE = "E413", "a device may be used only once",
        "A device holds one stage of one pipeline (virtual stages share it through `on_stage`). A second use would double its work \
         and its memory, which no prediction in the file contains.\n\n\
         Example: `n0:0` in the replicas of stage 0 and of stage 1, or a device that computes and is listed as idle.\n\n\
         Remedy: replace one of the uses by a free device, or delete it from `idle`.";
    /// A device is neither used nor idle.
    DEVICE_UNACCOUNTED = "E414", "a device is neither used nor listed as idle",
        "A plan accounts for every usable device of its cluster: what is left out stands in `idle` with the reason, so that nobody pays for a \
         card that was forgotten.\n\n\
         Example: a plan for 15 of 16 devices without an `idle` entry for `n1:7`.\n\n\
         Remedy: use the device or add `{\"devices\": [\"n1:7\"], \"reason\": \"...\"}` to `idle`.";
    /// Device count differs from tp x cp.
    REPLICA_SIZE = "E415", "a replica has tp x cp devices",
        "The devices of a replica form its tensor- and context-parallel groups, tensor parallelism fastest, so their number is the \
         product of both degrees.\n\n\
         Example: `\"tp\": 4, \"cp\": 2` with six devices.\n\n\
         Remedy: list tp x cp devices, or change a degree to one that the hint names.";
    /// Rows do not add up to the micro-batch.
    ROWS = "E416", "rows of a stage's replicas add up to the micro-batch",
        "Every replica computes `rows` whole sequences of each micro-batch. Rows that do not add up drop or repeat sequences without any \
         error at run time.\n\n\
         Example: `micro_batch` 4 with replicas of 2 and 1 rows; or a replica of 0 rows, which would idle and stall its collectives.\n\n\
         Remedy: change the rows, each at least 1, or the micro-batch to their sum.";
    /// Micro-batches do not add up to the global batch.
    GLOBAL_BATCH = "E417", "micro-batches of all pipelines add up to the global batch",
        "The sum over pipelines of `micro_batch` times `micro_batches` equals `training.global_batch` exactly: a batch is never truncated or \
         padded, because that changes the training.\n\n\
         Example: a global batch of 64 with pipelines of 2 x 20 and 1 x 23 sequences, 63 in all.\n\n\
         Remedy: use the micro-batch counts or the global batch that the hint names.";
    /// TP does not divide what it shards.
    TP_DEGREE = "E418", "tensor parallelism must divide heads and widths",
        "TP gives every rank the same number of heads and of MLP columns; key/value heads must divide TP or be divided by it (then they are \
         repeated). The vocabulary is padded and sets no rule.\n\n\
         Example: 40 heads with 8 key/value heads allow TP 1, 2, 4, 8; TP 6 on six devices is impossible, TP 2 with 3 stages is not.\n\n\
         Remedy: take a degree from the hint and use the left-over devices for more stages, replicas or pipelines.";
    /// CP does not fit the sequence.
    CP_DEGREE = "E419", "context parallelism needs a sequence divisible by 2 x cp",
        "Causal attention gives late tokens more work, so every CP rank takes one early and one late slice: the sequence is cut into 2 x cp \
         equal pieces.\n\n\
         Example: a sequence of 4096 tokens with CP 3 leaves a remainder of 4 tokens.\n\n\
         Remedy: use a CP degree from the hint or another sequence length.";
    /// Sequence parallelism does not fit the sequence.
    SEQUENCE_PARALLEL = "E420", "sequence parallelism divides a rank's tokens by tp",
        "With `sequence_parallel`, norms and residual activations are cut over the TP group along the sequence, so the tokens that a CP rank \
         holds must be divisible by TP.\n\n\
         Example: 4100 tokens with TP 8 leave a remainder of 4.\n\n\
         Remedy: use a TP degree from the hint, another sequence length, or switch `sequence_parallel` off.";
    /// EP is illegal.
    EP_DEGREE = "E421", "expert parallelism divides the experts and the stage's devices",
        "EP spreads whole experts over the devices of a stage: it divides the number of routed experts of every MoE atom, and ep x etp divides the stage's \
         device count (tp x cp summed over its replicas). World size is tp x cp x dp x pp; EP reuses the devices of a stage and multiplies nothing. \
         On a stage without experts only EP 1 has a meaning.\n\n\
         Example: 60 experts with EP 8; or EP 8 on a stage of 12 devices.\n\n\
         Remedy: use an EP degree from the hint; groups inside one node are fastest.";
    /// ETP is illegal.
    ETP_DEGREE = "E422", "expert tensor parallelism divides the expert width and the stage's devices",
        "ETP cuts the inner width of every expert, so it divides that width, and ep x etp divides the device count of the stage.\n\n\
         Example: experts of width 1408 with ETP 3.\n\n\
         Remedy: use a degree from the hint; ETP 1 is always legal.";
    /// Degrees do not multiply to the device count.
    WORLD_SIZE = "E423", "the product of the degrees differs from the number of devices",
        "A uniform plan uses tp x cp x pp x dp devices. The product is formed first, because a wrong one makes every other check moot. \
         Devices in `idle` do not count.\n\n\
         Example: TP 8 x CP 16 x PP 16 x DP 4 is 8,192 devices, not 16,384; DP 8 fits. TP 8 x PP 2 needs 16 devices where only 8 exist.\n\n\
         Remedy: use the DP that the hint names, another degree, or list the left-over devices as idle.";
    /// In-flight depth is impossible.
    IN_FLIGHT = "E424", "in-flight depths must allow the order of work to run",
        "`in_flight` counts the micro-batches that a stage runs forward before its first backward, at least 1. Under 1F1B a stage may not be deeper \
         than the one before it (both capped at the micro-batch count): it would wait for a forward that the earlier stage withholds until it gets \
         a backward, and the run would hang.\n\n\
         Example: depths 1, 2 with 4 micro-batches; stage 1 waits for its second forward for ever.\n\n\
         Remedy: lower the deeper stage or raise the earlier ones, as the hint says.";
    /// Recompute ranges are illegal.
    RECOMPUTE_RANGE = "E425", "recompute ranges lie inside their stage and do not overlap",
        "A recompute range names atoms of its own stage with the same indices as `atoms`; two modes for one atom would contradict each other.\n\n\
         Example: a stage of atoms 8 to 16 with a range of 6 to 10.\n\n\
         Remedy: cut the range to the stage; an atom not named is not recomputed.";
    /// A virtual stage is illegal.
    VIRTUAL_STAGE = "E426", "a virtual stage names an earlier stage that owns devices",
        "A later chunk on the same devices carries `on_stage`, the index of an earlier entry of the same pipeline that has `replicas`, and has no \
         replicas itself. Only schedules made for chunks (interleaved, zb-v, dualpipe-v, csv) can run it.\n\n\
         Example: `on_stage: 2` in stage 2, or chunks under `1f1b`.\n\n\
         Remedy: name an owning stage, or give the stage its own devices; the hint lists the choices.";
    /// The schedule does not fit the pipeline.
    SCHEDULE = "E427", "the schedule does not fit the pipeline",
        "`csv` needs the name of its file beside the plan (a plain file name); the named schedules take none. Interleaved orders need the same number of \
         chunks on all devices in the same order; zb-v and dualpipe-v need two chunks per stage, the second in reverse order.\n\n\
         Example: `{\"kind\": \"csv\"}` without `file`; `zb-v` with one chunk per stage.\n\n\
         Remedy: complete the schedule or choose one that the hint names.";
    /// A TP, CP or EP group crosses domains.
    GROUP_DOMAIN = "E428", "tensor, context and expert groups stay inside one domain",
        "A collective runs inside one library (NCCL, RCCL, HCCL, ...). Devices whose libraries do not talk to each other can exchange only \
         boundary tensors over a declared bridge.\n\n\
         Example: TP 2 over an NVIDIA and an AMD card.\n\n\
         Remedy: build the group from devices of one domain, and put the domains in different stages.";
    /// The holders of an atom lie in several domains.
    GRADIENT_DOMAIN = "E429", "all holders of an atom lie in one domain",
        "The gradients of an atom are reduced over all replicas of all pipelines that hold it, a collective. Tied embedding and head share one \
         weight, so their holders count together; MTP blocks share the head's weight.\n\n\
         Example: two pipelines, one on NVIDIA and one on Ascend cards, both holding every block.\n\n\
         Remedy: give each domain its own stages of one pipeline, or leave one domain idle.";
    /// Adjacent stages have no path.
    NO_BRIDGE = "E430", "stages in different domains need a declared bridge",
        "Boundary tensors between domains travel over host memory or a special library, whose speed is declared as a bridge; without one there is no path.\n\n\
         Example: stage 0 in `nccl`, stage 1 in `rccl`, and no bridge between them.\n\n\
         Remedy: add the bridge to the cluster file with its measured bandwidth, or keep the pipeline in one domain.";
    /// Tokens have unequal weights in the gradient.
    GRADIENT_WEIGHT = "E431", "every token has the same weight in the gradient",
        "The share of a replica in the gradient is its rows times micro-batches over the global batch. For every atom the shares of all its holders \
         add up to 1; otherwise some sequences are lost or count twice for that atom, and the gradient is biased without any error.\n\n\
         Example: two pipelines that both hold block 3 with 30 and 30 of 64 sequences.\n\n\
         Remedy: mend rows, micro-batches or atom ranges; this rule fails together with the rule whose breach causes it.";
    /// A device lacks the precision.
    PRECISION = "E432", "every device in use supports the training precision",
        "One number format holds for the whole job, because boundary tensors and gradients cross devices.\n\n\
         Example: bf16 on a V100, which has fp16 matrix units only.\n\n\
         Remedy: use a precision from the hint that all device types in use support, or leave the device idle.";
    /// A device lacks the attention kernel.
    ATTENTION_KERNEL = "E433", "every device in use supports its attention kernel",
        "Flash attention needs a kernel for the device; without one the scores are stored, which costs memory and time that the plan must contain.\n\n\
         Example: `\"attention\": {\"V100-SXM-32GB\": \"flash\"}`.\n\n\
         Remedy: set `unfused` for that device type, or leave it idle.";
    /// A training setting is out of range.
    TRAINING_SETTING = "E434", "a training setting is out of range",
        "The ZeRO level is 0, 1, 2 or 3; sequence length and global batch are at least 1.\n\n\
         Example: `\"zero\": 4` or `\"seq_len\": 0`.\n\n\
         Remedy: use a value from the hint.";
    /// Predicted memory exceeds the limit.
    MEMORY = "E435", "the predicted memory of a device exceeds its limit",
        "The peak memory that the plan predicts for the device is above what it may use: its capacity or the user's cap, whichever is less. Such a run \
         ends with an out-of-memory error, often only after some steps.\n\n\
         Example: 43.1 GiB predicted on a card of 40.0 GiB.\n\n\
         Remedy: recompute more atoms, lower `in_flight` or the micro-batch, raise the ZeRO level, or move atoms to a roomier stage.";
    /// The prediction does not cover the devices.
    PREDICTION_COVERAGE = "E436", "the prediction covers every used device and stage exactly once",
        "A prediction that leaves out a device says nothing about whether it fits; one for an unused device belongs to another plan.\n\n\
         Example: a device was added to a replica by hand and `prediction.devices` was not made again.\n\n\
         Remedy: run `autohaap estimate PLAN` for a fresh prediction, or delete `prediction`.";
    /// Figures of the prediction contradict each other.
    PREDICTION_FIGURES = "E437", "figures of the prediction contradict each other",
        "Totals are the sums of their items, `fits` and grades follow from totals and limits, limits do not exceed the hardware, the range holds the step \
         time, and tokens per second follow from it.\n\n\
         Example: `fits: true` beside a device graded `over`.\n\n\
         Remedy: run `autohaap estimate PLAN` for a fresh prediction.";
    /// Bound and gap contradict the step time.
    BOUND = "E438", "the step time is not below its bound, and the gap follows from both",
        "The bound is proven to be at most the step time of every plan in its space; gap = (step - bound) / step. A bound above the step \
         is a defect of the bound.\n\n\
         Example: a step of 10 s beside a bound of 11 s.\n\n\
         Remedy: if the file was not edited, please report it with the plan; otherwise run `autohaap plan` again.";
    /// A digest does not match.
    DIGEST = "E439", "a digest does not match the contents",
        "The digests of model, cluster and profile tie a prediction to its inputs. A mismatch means that the contents were edited after the plan was made, so \
         that its prediction and bound no longer hold.\n\n\
         Example: a node's `speed_factor` was changed inside the plan file.\n\n\
         Remedy: change the cluster or model file and plan again, or set the digest to the value in the hint if the edit was meant.";
    /// Advice: a communication-heavy group leaves its node.
    GROUP_ACROSS_NODES = "E441", "advice: a tensor- or expert-parallel group spans nodes",
        "Tensor parallelism communicates in every layer and expert parallelism twice in every MoE layer; the network between nodes is mostly ten times \
         slower than the link inside. The plan is legal and the advice is no violation.\n\n\
         Example: TP 8 over two nodes of four cards.\n\n\
         Remedy: lower the degree to what one node holds and add pipeline stages across nodes.";
    /// Advice: a tensor-parallel group mixes device types.
    MIXED_GROUP = "E442", "advice: a tensor- or context-parallel group mixes device types",
        "Ranks of one group wait for each other in every layer, so the group runs at the speed of its slowest card. The plan is legal and \
         the advice is no violation.\n\n\
         Example: TP 2 over an RTX 5090 and an RTX 3090 Ti; the faster card idles.\n\n\
         Remedy: put the types in different stages or pipelines.";
    /// Advice: the sequence is longer than the model was made for.
    LONG_SEQUENCE = "E443", "advice: the sequence is longer than the model was made for",
        "Positions beyond the model's maximum are untrained or fail, depending on the engine. The plan is legal and the advice is no violation.\n\n\
         Example: 8192 tokens with a model made for 4096.\n\n\
         Remedy: use a shorter `seq_len`, or extend the model's positions on purpose.";
}
