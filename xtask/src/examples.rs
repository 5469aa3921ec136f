//! The examples: each folder of `examples/` is a question with a recorded answer.
//!
//! `example.toml` states the question; `answer.json` records what must stay (step time, pipelines, idle devices, or why
//! there is no plan) and `screen.txt` the first screen as printed. A comparison ignores digits of the screen: the times
//! that matter are compared in the record, and wall times differ from run to run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Relative difference of step times that counts as equal.
const TOLERANCE: f64 = 1e-6;

/// Most lines of a first screen.
const LINES: usize = 45;

/// Most columns of a screen.
const COLUMNS: usize = 100;

/// `example.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// A config.json in the folder, or a preset.
    model: String,
    /// A cluster.toml in the folder, or a shorthand.
    cluster: String,
    /// Tokens per sequence.
    seq: u64,
    /// Sequences per step.
    pub(crate) global_batch: u64,
    /// Whether a plan exists.
    expect: Expect,
    /// Further flags.
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Found,
    Infeasible,
}

/// `answer.json`: the part of the answer that is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// A plan.
    Found(Box<Found>),
    /// No plan.
    Infeasible {
        /// Whether it is proven that none exists.
        proven: bool,
        /// Why.
        reasons: Vec<String>,
        /// What would help.
        relaxations: Vec<String>,
    },
}

/// The compared part of a plan file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    step_time_s: f64,
    bound_s: Option<f64>,
    gap: Option<f64>,
    pipelines: Vec<Value>,
    idle: Vec<Value>,
}

/// One folder.
pub(crate) struct Example {
    /// Folder name.
    pub(crate) name: String,
    folder: PathBuf,
    /// The question.
    pub(crate) question: Question,
}

/// The examples whose names start with one of `names` (all if empty), in name order.
pub(crate) fn load(root: &Path, names: &[&str]) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    for entry in fs::read_dir(root.join("examples")).context("cannot read examples/")? {
        let folder = entry?.path();
        let file = folder.join("example.toml");
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !file.is_file() || !(names.is_empty() || names.iter().any(|n| name.starts_with(n))) {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let question = toml::from_str(&text).with_context(|| format!("examples/{name}/example.toml"))?;
        examples.push(Example {
            name,
            folder,
            question,
        });
    }
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    if examples.is_empty() {
        bail!("no example of that name");
    }
    Ok(examples)
}

pub(crate) fn run(root: &Path, check: bool, names: &[&str]) -> Result<()> {
    let binary = build(root)?;
    let mut failed = Vec::new();
    for example in load(root, names)? {
        let outcome = example.answer(root, &binary).and_then(|(answer, screen)| {
            if check {
                example.compare(&answer, &screen).map(|()| answer)
            } else {
                example.record(&answer, &screen).map(|()| answer)
            }
        });
        match outcome {
            Ok(answer) => println!("{}: {}", example.name, answer.summary()),
            Err(error) => {
                println!("{}: FAILED: {error:#}", example.name);
                failed.push(example.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("{} examples failed: {}", failed.len(), failed.join(", "));
    }
    Ok(())
}

/// Builds the release binary and returns its path.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", "autohaap-cli"])
        .current_dir(root)
        .status()?;
    if !status.success() {
        bail!("the release build failed");
    }
    let metadata = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("no target directory")?;
    Ok(Path::new(target)
        .join("release")
        .join(format!("autohaap{}", std::env::consts::EXE_SUFFIX)))
}

impl Example {
    /// The arguments of `autohaap`, relative to the repository root.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let q = &self.question;
        let place = |value: &str| {
            if self.folder.join(value).is_file() {
                format!("examples/{}/{value}", self.name)
            } else {
                value.to_string()
            }
        };
        let mut arguments: Vec<String> = ["plan", "--no-config", "--color", "never"]
            .map(String::from)
            .into();
        for (flag, value) in [
            ("--model", place(&q.model)),
            ("--cluster", place(&q.cluster)),
            ("--seq", q.seq.to_string()),
            ("--global-batch", q.global_batch.to_string()),
        ] {
            arguments.extend([flag.to_string(), value]);
        }
        arguments.extend(q.flags.iter().cloned());
        arguments
    }

    /// Runs the question once (twice when the answer is negative) and returns record and first screen.
    fn answer(&self, root: &Path, binary: &Path) -> Result<(Answer, String)> {
        let scratch = tempfile::tempdir()?;
        let plan = scratch.path().join("plan.json");
        let execute = |extra: &[&str]| -> Result<Output> {
            Command::new(binary)
                .args(self.arguments())
                .args(extra)
                .current_dir(root)
                .output()
                .with_context(|| format!("cannot run {}", binary.display()))
        };
        let output = execute(&["-o", &plan.to_string_lossy()])?;
        // The scratch folder has another name in every run.
        let screen = String::from_utf8(output.stdout)?.replace(&*plan.to_string_lossy(), "plan.json");
        fits_terminal(&screen)?;
        match (output.status.code(), self.question.expect) {
            (Some(0), Expect::Found) => {
                let plan: Value = serde_json::from_str(&fs::read_to_string(&plan)?)?;
                Ok((Answer::from_plan(&plan)?, screen))
            }
            (Some(1), Expect::Infeasible) => {
                let output = execute(&["--format", "json"])?;
                Ok((
                    serde_json::from_slice(&output.stdout).context("negative answer")?,
                    screen,
                ))
            }
            (code, expect) => bail!(
                "expected {expect:?}, exit code {code:?}: {screen}{}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }

    fn record(&self, answer: &Answer, screen: &str) -> Result<()> {
        fs::write(
            self.folder.join("answer.json"),
            serde_json::to_string_pretty(answer)? + "\n",
        )?;
        fs::write(self.folder.join("screen.txt"), screen)?;
        Ok(())
    }

    /// The recorded answer, if there is one.
    pub(crate) fn recorded(&self) -> Result<Option<Answer>> {
        match fs::read_to_string(self.folder.join("answer.json")) {
            Ok(text) => Ok(Some(
                serde_json::from_str(&text).with_context(|| self.name.clone())?,
            )),
            Err(_) => Ok(None),
        }
    }

    /// The recorded first screen, if there is one.
    pub(crate) fn recorded_screen(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("screen.txt")).ok()
    }

    fn compare(&self, answer: &Answer, screen: &str) -> Result<()> {
        let hint = "run `cargo xtask examples` and review the difference";
        let recorded = self
            .recorded()?
            .with_context(|| format!("no recorded answer; {hint}"))?;
        if let Some(difference) = recorded.difference(answer) {
            bail!("{difference}; {hint}");
        }
        let recorded = self
            .recorded_screen()
            .with_context(|| format!("no recorded screen; {hint}"))?;
        let (a, b) = (masked(&recorded), masked(screen));
        if let Some((was, is)) = a.iter().zip(&b).find(|(x, y)| x != y) {
            bail!("the first screen has changed: was `{was}`, is `{is}`; {hint}");
        }
        if a.len() != b.len() {
            bail!(
                "the first screen has {} lines, recorded are {}; {hint}",
                b.len(),
                a.len()
            );
        }
        Ok(())
    }
}

impl Answer {
    fn from_plan(plan: &Value) -> Result<Self> {
        let prediction = &plan["prediction"];
        let list = |key: &str| {
            plan[key]
                .as_array()
                .cloned()
                .with_context(|| format!("the plan has no `{key}`"))
        };
        Ok(Self::Found(Box::new(Found {
            step_time_s: prediction["step_time_s"]
                .as_f64()
                .context("the plan has no `step_time_s`")?,
            bound_s: prediction["bound_s"].as_f64(),
            gap: prediction["gap"].as_f64(),
            pipelines: list("pipelines")?,
            idle: list("idle")?,
        })))
    }

    /// What differs in `other`, if anything that counts does.
    fn difference(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Found(a), Self::Found(b)) => {
                if !close(a.step_time_s, b.step_time_s) {
                    return Some(format!(
                        "step time was {} s, is {} s",
                        a.step_time_s, b.step_time_s
                    ));
                }
                if a.pipelines.len() != b.pipelines.len() {
                    return Some(format!(
                        "pipelines were {}, are {}",
                        a.pipelines.len(),
                        b.pipelines.len()
                    ));
                }
                let pipeline = a.pipelines.iter().zip(&b.pipelines).position(|(x, y)| x != y);
                if let Some(index) = pipeline {
                    return Some(format!("pipeline {index} differs"));
                }
                (a.idle != b.idle).then(|| "idle devices differ".to_string())
            }
            (a, b) => (a != b).then(|| "the negative answer differs".to_string()),
        }
    }

    fn summary(&self) -> String {
        match self {
            Self::Found(found) => {
                let stages: usize = found.pipelines.iter().map(stages).sum();
                let gap = found
                    .gap
                    .map_or(String::new(), |g| format!(", gap {:.1} %", 100.0 * g));
                format!(
                    "{:.4} s a step{gap}, {} pipelines, {stages} stages",
                    found.step_time_s,
                    found.pipelines.len()
                )
            }
            Self::Infeasible { proven, .. } => {
                format!("no plan{}", if *proven { " (proven)" } else { "" })
            }
        }
    }

    /// Step time, gap, pipelines and idle devices as cells of a table.
    pub(crate) fn cells(&self) -> String {
        match self {
            Self::Found(found) => {
                let gap = found
                    .gap
                    .map_or("none".to_string(), |g| format!("{:.1} %", 100.0 * g));
                let mut depths: Vec<usize> = found.pipelines.iter().map(stages).collect();
                depths.sort_unstable();
                let depths = match (depths.first(), depths.last()) {
                    (Some(a), Some(b)) if a != b => format!("{a}-{b}"),
                    (Some(a), _) => a.to_string(),
                    _ => "0".to_string(),
                };
                let idle: usize = found
                    .idle
                    .iter()
                    .map(|i| i["devices"].as_array().map_or(0, Vec::len))
                    .sum();
                format!(
                    "{:.2} s | {gap} | {} x {depths} | {idle}",
                    found.step_time_s,
                    found.pipelines.len()
                )
            }
            Self::Infeasible { proven, .. } => {
                format!("no plan{} | | | ", if *proven { " (proven)" } else { "" })
            }
        }
    }
}

fn stages(pipeline: &Value) -> usize {
    pipeline["stages"].as_array().map_or(0, Vec::len)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

/// The first screen is one screen: its length and width are promised.
fn fits_terminal(screen: &str) -> Result<()> {
    let lines = screen.lines().count();
    if lines > LINES {
        bail!("the first screen has {lines} lines, promised are {LINES}");
    }
    match screen.lines().find(|l| l.chars().count() > COLUMNS) {
        Some(line) => bail!("a line of the first screen is wider than {COLUMNS} columns: {line}"),
        None => Ok(()),
    }
}

/// Words of each line with runs of digits, points and commas replaced, so that only the wording is compared.
fn masked(screen: &str) -> Vec<String> {
    screen
        .lines()
        .map(|line| {
            let mut text = String::new();
            for c in line.chars() {
                let number = c.is_ascii_digit() || matches!(c, '.' | ',') && text.ends_with('#');
                match (number, text.ends_with('#')) {
                    (true, true) => {}
                    (true, false) => text.push('#'),
                    (false, _) => text.push(c),
                }
            }
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            // The wall time differs from run to run, its unit too.
            if text.starts_with("search:") {
                text.replace("# ms,", "# s,").replace("# us,", "# s,")
            } else {
                text
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_and_sizes_of_screens() {
        let a = masked("search: columns, finished in 3.55 s, 246,123 plans priced");
        assert_eq!(
            a,
            masked("search: columns, finished in 786.98 ms, 468 plans priced")
        );
        assert!(fits_terminal(&"a\n".repeat(45)).is_ok());
        assert!(fits_terminal(&"a\n".repeat(46)).is_err());
        assert!(fits_terminal(&"a".repeat(101)).is_err());
    }

    fn found(step: f64) -> Answer {
        let plan = serde_json::json!({
            "prediction": {"step_time_s": step, "gap": 0.02},
            "pipelines": [{"stages": [{}, {}]}],
            "idle": [],
        });
        Answer::from_plan(&plan).unwrap()
    }

    #[test]
    fn step_times_are_equal_within_the_tolerance() {
        assert_eq!(found(1.0).difference(&found(1.0 + 5e-7)), None);
        assert!(found(1.0).difference(&found(1.0 + 5e-6)).is_some());
    }

    #[test]
    fn answers_survive_the_record() {
        let negative: Answer = serde_json::from_str(
            r#"{"schema": "x", "feasible": false, "proven": true, "reasons": ["r"], "relaxations": []}"#,
        )
        .unwrap();
        for answer in [found(3.5), negative] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        }
        assert!(found(1.0).summary().contains("gap 2.0 %"));
    }

    #[test]
    fn screens_are_compared_by_wording() {
        assert_eq!(masked("took 0.93 s,  12 plans"), masked("took 11.2 s, 7 plans"));
        assert_ne!(masked("took 1 s"), masked("needs 1 s"));
    }

    #[test]
    fn every_example_states_a_question_and_its_files_exist() {
        let root = crate::root().unwrap();
        let examples = load(&root, &[]).unwrap();
        assert!(examples.len() >= 10);
        for example in examples {
            let q = &example.question;
            assert!(
                example.folder.join("README.md").is_file(),
                "{} has no README.md",
                example.name
            );
            for value in [&q.model, &q.cluster] {
                let is_file_name = Path::new(value)
                    .extension()
                    .is_some_and(|e| e == "json" || e == "toml");
                assert!(
                    !is_file_name || example.folder.join(value).is_file(),
                    "{}: {value}",
                    example.name
                );
            }
        }
    }
}
