//! Generated files: schemas, reference pages and the README's example block.
//!
//! Everything here is a pure function of the source tree (and of the recorded example answers), so that `--check` needs
//! no release build.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use autohaap::profile::calibration;
use autohaap::validate;

use crate::examples;

pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let accuracy = accuracy()?;
    let mut files = vec![
        (PathBuf::from("schemas/plan.schema.json"), plan_schema()?),
        (PathBuf::from("docs/reference/errors.md"), error_reference()),
        (PathBuf::from("docs/examples.md"), examples_page(root)?),
        (
            PathBuf::from("README.md"),
            replace_block(&readme(root)?, "accuracy", &accuracy.0)?,
        ),
        (PathBuf::from(TRUST), trust(root, &accuracy)?),
    ];
    files.extend(published(root)?);
    let mut stale = 0;
    for (path, content) in files {
        let full = root.join(&path);
        let current = fs::read_to_string(&full).unwrap_or_default();
        if current == content {
            continue;
        }
        stale += 1;
        if check {
            println!("{}", first_difference(&path, &current, &content));
        } else {
            if let Some(folder) = full.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&full, content).with_context(|| format!("cannot write {}", full.display()))?;
            println!("wrote {}", path.display());
        }
    }
    match (check, stale) {
        (_, 0) => println!("gen: up to date"),
        (true, n) => bail!("{n} generated files are stale; run `cargo xtask gen` and commit the result"),
        (false, _) => {}
    }
    Ok(())
}

/// The page on accuracy.
const TRUST: &str = "docs/guide/trust.md";

/// Tables of the published comparison: groups, worst rows.
fn accuracy() -> Result<(String, String)> {
    let failed = |p: autohaap::error::Problems| anyhow::anyhow!("{p}");
    let cases = validate::published_cases().map_err(failed)?;
    let (mut groups, rows) = validate::compare(&cases, &cases, calibration::builtin());
    validate::without_calibration(&mut groups, &cases);
    let table = validate::screen::markdown(&groups);
    let report = validate::Report {
        groups,
        rows,
        oracles: Vec::new(),
    };
    let worst = validate::screen::worst_rows(&report, 20);
    let table = format!(
        "{}\n{}",
        table.trim_end(),
        validate::screen::totals(&report).replace('\n', "\n\n")
    );
    Ok((table.trim_end().to_owned(), worst.trim_end().to_owned()))
}

fn trust(root: &Path, (table, worst): &(String, String)) -> Result<String> {
    let text = fs::read_to_string(root.join(TRUST)).context("cannot read the page on accuracy")?;
    replace_block(&replace_block(&text, "accuracy", table)?, "worst", worst)
}

/// The published rows with their `use` column as the fixed rule writes it.
fn published(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for (name, _) in validate::published::SOURCES {
        let path = PathBuf::from("data/published").join(name).join("cases.csv");
        let text = fs::read_to_string(root.join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let written = validate::case::with_use_column(&text, name)
            .map_err(|p| anyhow::anyhow!("{}: {p}", path.display()))?;
        files.push((path, written));
    }
    Ok(files)
}

fn first_difference(path: &Path, current: &str, wanted: &str) -> String {
    let mut line = 1;
    let (mut a, mut b) = (current.lines(), wanted.lines());
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => line += 1,
            (x, y) => {
                let show = |s: Option<&str>| s.map_or("end of file".to_string(), |s| format!("`{s}`"));
                return format!(
                    "{}:{line}: has {}, should be {}",
                    path.display(),
                    show(x),
                    show(y)
                );
            }
        }
    }
}

fn plan_schema() -> Result<String> {
    let schema = schemars::schema_for!(autohaap::plan::Plan);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// One section per documented code, as `autohaap explain` prints it.
fn error_reference() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Every message carries its code; `autohaap explain CODE` prints the same text.\n\
         E1xx usage, E2xx model, E3xx cluster, E4xx plan, E5xx search.\n",
    );
    for code in autohaap::error::all_codes() {
        let _ = write!(page, "\n## {}: {}\n\n{}\n", code.id, code.title, code.page.trim());
    }
    page
}

/// A table of all examples with their recorded answers.
fn examples_page(root: &Path) -> Result<String> {
    let mut page = String::from(
        "# Examples\n\n\
         Each folder of `examples/` holds a model, a cluster, the question and the recorded answer. `cargo xtask examples`\n\
         runs them all; the figures below are predictions of the cost model, not measurements.\n\n\
         | example | global batch | step time | gap | pipelines x stages | idle devices |\n\
         |---|---|---|---|---|---|\n",
    );
    for example in examples::load(root, &[])? {
        let answer = example.recorded()?;
        let cells = match &answer {
            None => "not recorded | | | ".to_string(),
            Some(answer) => answer.cells(),
        };
        let _ = writeln!(
            page,
            "| {} | {} | {cells} |",
            example.name, example.question.global_batch
        );
    }
    Ok(page)
}

/// The README with its example block replaced by the recorded first screen of example 01.
fn readme(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let loaded = examples::load(root, &["01"])?;
    let example = loaded.first().context("no example 01")?;
    match example.recorded_screen() {
        Some(screen) => replace_block(
            &text,
            "example-01",
            &format!("```text\n{}\n```", screen.trim_end()),
        ),
        None => Ok(text),
    }
}

/// Replaces what stands between `<!-- begin:NAME -->` and the next `<!-- end -->`.
fn replace_block(text: &str, name: &str, content: &str) -> Result<String> {
    let begin = format!("<!-- begin:{name} -->");
    let (before, rest) = text
        .split_once(&begin)
        .with_context(|| format!("README.md has no `{begin}`"))?;
    let (_, after) = rest
        .split_once("<!-- end -->")
        .with_context(|| format!("README.md has no `<!-- end -->` after `{begin}`"))?;
    Ok(format!("{before}{begin}\n{content}\n<!-- end -->{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_replaced_and_stable() {
        let text = "a\n<!-- begin:x -->\nold\n<!-- end -->\nb\n";
        let once = replace_block(text, "x", "new").unwrap();
        assert_eq!(once, "a\n<!-- begin:x -->\nnew\n<!-- end -->\nb\n");
        assert_eq!(replace_block(&once, "x", "new").unwrap(), once);
        assert!(replace_block(text, "y", "new").is_err());
    }

    #[test]
    fn differences_name_the_first_line() {
        let message = first_difference(Path::new("f"), "a\nb\n", "a\nc\n");
        assert_eq!(message, "f:2: has `b`, should be `c`");
        assert_eq!(
            first_difference(Path::new("f"), "", "a"),
            "f:1: has end of file, should be `a`"
        );
    }
}
