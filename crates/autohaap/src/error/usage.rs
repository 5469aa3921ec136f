//! Codes E1xx: usage.

use super::Code;

/// The command line does not parse.
pub static BAD_USAGE: Code = Code {
    id: "E101",
    title: "the command line must name a verb and its flags",
    page: "A flag is unknown, misspelt, repeated or lacks its value, or a required one is missing. The message names it and \
the nearest legal one.\n\n`autohaap --help` lists the verbs, `autohaap VERB --help` the flags of one.",
};
/// A file cannot be read.
pub static READ_FAILED: Code = Code {
    id: "E102",
    title: "an input file must be readable text",
    page: "The path does not exist, is a folder without the expected file, may not be read, is larger than the limit of \
64 MiB, or is not UTF-8.\n\nFor models a folder is searched for `config.json`, then `params.json`; a name without a file \
is looked up among the presets (`autohaap model` lists them), unless it looks like a path: it starts with `.`, `/` or \
`~`, has several parts, or ends like a file (`model.json`).",
};
/// A file cannot be written.
pub static WRITE_FAILED: Code = Code {
    id: "E103",
    title: "an output file must be writable",
    page: "Output is written to a temporary file in the same folder and renamed into place, so that a reader never sees \
half a file. The folder must exist and allow new files; existing files are replaced only where the verb says so.",
};
/// A flag's value is out of range.
pub static BAD_VALUE: Code = Code {
    id: "E104",
    title: "a flag's value must be of its kind",
    page: "Shares are written as `2%` or `0.02` (more than 0, less than 1), times as `30s`, `2m` or `500ms`, precisions as \
bf16, fp16, fp8 or fp32, optimizers as adam or sgd, boundary exchanges (`--p2p`) as async or rendezvous. The message names the value and an example of a legal one.",
};
/// Something that this version does not have.
pub static NOT_AVAILABLE: Code = Code {
    id: "E105",
    title: "the engine, space or cost model is not in this version",
    page: "`--engine`, `--space` and `--cost-model` restrict or replace what the search uses. The spaces are `full` and \
the named ones that the message lists; this version has the cost model `autohaap`; engine limits are not checked yet. A restriction that is not known is refused \
instead of being ignored, since a plan outside it would look as if it were inside.",
};
/// An unknown error code.
pub static UNKNOWN_CODE: Code = Code {
    id: "E106",
    title: "`explain` knows the documented codes",
    page: "Codes are written `E` and three digits: E1xx usage, E2xx model, E3xx cluster, E4xx plan, E5xx search. \
`autohaap explain` without an argument lists them all.",
};
/// A settings file has an error.
pub static BAD_SETTINGS: Code = Code {
    id: "E107",
    title: "a settings file holds known keys",
    page: "`autohaap.toml` in the current folder or a parent, or the file named by `--config`, may set defaults of flags: \
`seq`, `global_batch`, `precision`, `zero`, `optimizer`, `p2p`, `max_micro_batch`, `jobs`, `time_limit`, `gap`. Flags \
and AUTOHAAP_* variables win over it. Unknown keys are refused, so that a misspelt one is not ignored.",
};
/// An existing file would be overwritten.
pub static EXISTS: Code = Code {
    id: "E108",
    title: "no file is overwritten that is still needed",
    page: "`autohaap init` writes a file that people then edit. If it exists already, the command stops so that no edit is \
lost. Give another name with `-o FILE`, print with `-o -`, or overwrite with `--force`.\n\nNo verb writes its answer over one of \
its own inputs: give another file.",
};
/// A fault of this program.
pub static INTERNAL: Code = Code {
    id: "E109",
    title: "a fault of autohaap itself",
    page: "Something that no input may cause went wrong. Please report it with the message, the command and the inputs \
(`--anonymize` replaces host names).",
};
/// The user stopped the command before it had an answer.
pub static INTERRUPTED: Code = Code {
    id: "E110",
    title: "the command was interrupted before it had an answer",
    page: "Ctrl-C during `autohaap plan` answers with the best plan so far and exit code 0. If none is known yet, there is \
nothing to answer: the exit code is 130. Let the search run until its progress line shows a best step, or give it \
`--time-limit`. A second Ctrl-C ends the process at once.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[
    &BAD_USAGE,
    &READ_FAILED,
    &WRITE_FAILED,
    &BAD_VALUE,
    &NOT_AVAILABLE,
    &UNKNOWN_CODE,
    &BAD_SETTINGS,
    &EXISTS,
    &INTERNAL,
    &INTERRUPTED,
];
