//! Settings files: flag > `AUTOHAAP_*` > `autohaap.toml` here or in a parent > user file > default.

use std::path::{Path, PathBuf};

use autohaap::error::{Problem, Problems, nearest, usage as codes};
use serde::Deserialize;

use crate::args::Cli;
use crate::{ExitStatus, Failure, input, output};

/// Defaults that a settings file may give.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Tokens per sequence.
    pub(crate) seq: Option<u64>,
    /// Sequences per optimizer step.
    pub(crate) global_batch: Option<u64>,
    /// Number format.
    pub(crate) precision: Option<String>,
    /// ZeRO level.
    pub(crate) zero: Option<u8>,
    /// Optimizer.
    pub(crate) optimizer: Option<String>,
    /// Boundary exchanges.
    pub(crate) p2p: Option<String>,
    /// Largest micro-batch.
    pub(crate) max_micro_batch: Option<u32>,
    /// Threads.
    pub(crate) jobs: Option<u16>,
    /// Time limit, for example `30s`.
    pub(crate) time_limit: Option<String>,
    /// Gap, for example `2%`.
    pub(crate) gap: Option<String>,
}

/// The keys, in the order of [`Settings`]; the page of E107 lists the same ones (tested).
const KEYS: [&str; 10] = [
    "seq",
    "global_batch",
    "precision",
    "zero",
    "optimizer",
    "p2p",
    "max_micro_batch",
    "jobs",
    "time_limit",
    "gap",
];

/// The settings in force and the file they come from.
pub(crate) fn load(cli: &Cli) -> Result<(Settings, Option<PathBuf>), Failure> {
    if cli.no_config {
        return Ok((Settings::default(), None));
    }
    let path = match &cli.config {
        Some(path) => Some(path.clone()),
        None => here_or_above().or_else(user_file),
    };
    let Some(path) = path else {
        return Ok((Settings::default(), None));
    };
    let text = input::read(&path.display().to_string())?;
    let settings = parse(&text, &path)?;
    Ok((settings, Some(path)))
}

fn parse(text: &str, path: &Path) -> Result<Settings, Problems> {
    let name = path.display().to_string();
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| syntax(&e, text, &name))?;
    let mut problems = Problems::new();
    for key in table.keys().filter(|k| !KEYS.contains(&k.as_str())) {
        let near = nearest(key, KEYS).unwrap_or("seq");
        problems.push(
            Problem::new(&codes::BAD_SETTINGS, name.clone(), format!("unknown key `{key}`"))
                .hint(format!("did you mean `{near}`? Keys are {}", KEYS.join(", "))),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let settings: Settings = toml::from_str(text).map_err(|e| syntax(&e, text, &name))?;
    let mut ranged = |key: &str, value: Option<u64>, low: u64, high: u64| {
        if let Some(value) = value.filter(|v| !(low..=high).contains(v)) {
            problems.push(
                Problem::new(
                    &codes::BAD_VALUE,
                    format!("{name}: {key}"),
                    format!("`{key}` is `{value}`"),
                )
                .hint(format!(
                    "{low} to {high}; nearest legal value: {}",
                    value.clamp(low, high)
                )),
            );
        }
    };
    ranged("zero", settings.zero.map(u64::from), 0, 3);
    ranged("jobs", settings.jobs.map(u64::from), 1, 1024);
    ranged("max_micro_batch", settings.max_micro_batch.map(u64::from), 1, 64);
    problems.or(settings)
}

fn syntax(error: &toml::de::Error, text: &str, name: &str) -> Problems {
    let mut problem = Problem::new(&codes::BAD_SETTINGS, name, error.message().to_owned())
        .hint("`autohaap explain E107` lists the keys and their kinds");
    if let Some(span) = error.span() {
        let before = &text[..span.start.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |i| i + 1) + 1;
        problem = problem.at(line, column);
        problem.source_line = text.lines().nth(line - 1).map(str::to_owned);
    }
    problem.into()
}

fn here_or_above() -> Option<PathBuf> {
    let start = std::env::current_dir().ok()?;
    start
        .ancestors()
        .map(|d| d.join("autohaap.toml"))
        .find(|p| p.is_file())
}

fn user_file() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".config")))?;
    Some(base.join("autohaap/autohaap.toml")).filter(|p| p.is_file())
}

/// `--show-settings`.
pub(crate) fn show(cli: &Cli) -> Result<ExitStatus, Failure> {
    let (settings, path) = load(cli)?;
    let origin = path.map_or_else(|| "default".to_owned(), |p| p.display().to_string());
    let text = |v: Option<String>, default: &str| match v {
        Some(v) => (v, origin.clone()),
        None => (default.to_owned(), "default".to_owned()),
    };
    let rows = [
        (
            "seq",
            text(
                settings.seq.map(|v| v.to_string()),
                "min(4096, the model's maximum)",
            ),
        ),
        (
            "global_batch",
            text(
                settings.global_batch.map(|v| v.to_string()),
                "power of two nearest 4 Mi tokens",
            ),
        ),
        (
            "precision",
            text(
                settings.precision.clone(),
                "bf16 where every device has it, else fp16, else fp32",
            ),
        ),
        (
            "zero",
            text(
                settings.zero.map(|v| v.to_string()),
                "1; 2 and 3 where the states do not fit",
            ),
        ),
        ("optimizer", text(settings.optimizer.clone(), "adam")),
        ("p2p", text(settings.p2p.clone(), "async")),
        (
            "max_micro_batch",
            text(settings.max_micro_batch.map(|v| v.to_string()), "8"),
        ),
        ("jobs", text(settings.jobs.map(|v| v.to_string()), "all cores")),
        ("time_limit", text(settings.time_limit.clone(), "none")),
        ("gap", text(settings.gap.clone(), "none")),
    ];
    if cli.json() {
        let map: serde_json::Map<String, serde_json::Value> = rows
            .iter()
            .map(|(k, (v, o))| ((*k).to_owned(), serde_json::json!({ "value": v, "origin": o })))
            .collect();
        output::print_json(&map)?;
    } else {
        let lines: Vec<String> = rows
            .iter()
            .map(|(k, (v, o))| format!("{k:<16} {v}   ({o})"))
            .collect();
        output::print(&lines.join("\n"))?;
    }
    Ok(ExitStatus::Answer)
}
