//! Project verbs: `cargo xtask VERB`.
//!
//! * `bench`: time the examples and batch estimates, archive under `bench/runs`
//! * `browser`: open the HTML report in a headless browser
//! * `ci`: everything CI runs (the steps stand in `.ci/run`)
//! * `examples [--check] [NAME...]`: run the examples and record their answers, or compare with the recorded ones
//! * `gen [--check]`: write the generated files, or fail when one is stale
//! * `layers`: fail on a module that uses a later one
//! * `runtime [DIR]`: test the runtime on random plans; with a folder only write the plans there
//! * `torch`: compare the schedules with those of the pinned torch, installed into the user's cache folder
#![expect(
    clippy::print_stdout,
    reason = "a command line tool that answers on standard output"
)]

mod bench;
mod browser;
mod examples;
mod generate;
mod layers;
mod runtime;
mod torch;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask VERB

  bench                       time the examples and batch estimates; archives under bench/runs
  browser                     open the HTML report in headless Chromium (installed if possible)
  ci                          run everything CI runs
  examples [--check] [NAME]   run examples/*/ and record their answers; --check compares
  gen [--check]               write schemas, reference pages and README blocks; --check compares
  layers                      check the module order of crates/autohaap
  runtime [DIR]               test the runtime on random plans; with DIR only write the plans
  torch                       compare schedules with the pinned torch (installed into the cache folder)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let root = root()?;
    let Some((verb, rest)) = arguments.split_first() else {
        bail!("no verb\n\n{USAGE}");
    };
    let (flags, names): (Vec<&str>, Vec<&str>) =
        rest.iter().map(String::as_str).partition(|a| a.starts_with('-'));
    let check = match flags[..] {
        [] => false,
        ["--check"] if matches!(verb.as_str(), "gen" | "examples") => true,
        _ => bail!("unknown flag `{}` of `{verb}`\n\n{USAGE}", flags[0]),
    };
    if !names.is_empty() && !matches!(verb.as_str(), "examples" | "runtime") {
        bail!("`{verb}` takes no argument `{}`\n\n{USAGE}", names[0]);
    }
    match verb.as_str() {
        "bench" => bench::run(&root),
        "browser" => browser::run(&root),
        "ci" => ci(&root),
        "examples" => examples::run(&root, check, &names),
        "gen" => generate::run(&root, check),
        "layers" => layers::run(&root),
        "runtime" => runtime::run(&root, names.first().map(Path::new)),
        "torch" => torch::run(&root),
        "help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown verb `{other}`\n\n{USAGE}"),
    }
}

/// The repository root: the folder above this package.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask has no parent folder")
}

fn ci(root: &Path) -> Result<()> {
    let status = Command::new("bash")
        .arg(root.join(".ci/run"))
        .status()
        .context("cannot start bash")?;
    if !status.success() {
        bail!("ci failed");
    }
    Ok(())
}
