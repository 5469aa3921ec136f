//! The reference runtime's tests: random legal plans against a single process of another library.

mod plans;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Plans of the equality test.
const PLANS: usize = 64;

/// Writes plans, runs the tests under the pinned torch.
pub(crate) fn run(root: &Path, only: Option<&Path>) -> Result<()> {
    if let Some(folder) = only {
        std::fs::create_dir_all(folder)?;
        for reason in plans::write(folder, PLANS)? {
            println!("refused: {reason}");
        }
        return Ok(());
    }
    let python = crate::torch::environment(root)?;
    let began = Instant::now();
    let folder = tempfile::tempdir()?;
    let refused = plans::write(folder.path(), PLANS)?;
    println!(
        "{PLANS} legal plans, {} draws refused by the checker or the simulator",
        refused.len()
    );
    let status = Command::new(&python)
        .arg(root.join("tests/python/runtime_equality.py"))
        .arg(folder.path())
        .arg(plans::DEVICES.to_string())
        .env("PYTHONPATH", root.join("python"))
        .status()
        .context("cannot run the virtual environment's python")?;
    if !status.success() {
        bail!("the runtime differs from a single process");
    }
    let status = Command::new(&python)
        .arg(root.join("tests/python/runtime_runs.py"))
        .arg(crate::examples::build(root)?)
        .arg(folder.path())
        .status()
        .context("cannot run the virtual environment's python")?;
    if !status.success() {
        bail!("the runtime's runs failed");
    }
    println!("runtime: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
