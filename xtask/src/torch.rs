//! Torch's own pipeline schedules against ours, action for action, and ours in torch's runtime.
//!
//! Torch is installed at pinned versions (`tests/python/requirements.txt`) into a virtual environment in the user's cache
//! folder, named after the pins, and reused from then on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use autohaap::simulate::action::Order;
use autohaap::simulate::conservation::conserves;
use autohaap::simulate::program::StageWork;
use autohaap::simulate::schedule::{self, Backwards, csv};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// A schedule as torch made it; no rows: torch refuses the size.
#[derive(Deserialize)]
struct Made {
    schedule: String,
    ranks: usize,
    chunks: usize,
    micro_batches: u32,
    rows: Option<Vec<Vec<String>>>,
}

/// Installs torch if needed, then compares.
pub(crate) fn run(root: &Path) -> Result<()> {
    let python = environment(root)?;
    let script = root.join("tests/python/torch_schedules.py");
    let began = Instant::now();
    let output = Command::new(&python)
        .arg(&script)
        .arg("dump")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run the virtual environment's python")?;
    if !output.status.success() {
        bail!("{} dump failed", script.display());
    }
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut refused = 0;
    for line in String::from_utf8(output.stdout)?.lines() {
        let made: Made = serde_json::from_str(line)?;
        let what = format!(
            "{} of {} ranks, {} chunks, {} micro-batches",
            made.schedule, made.ranks, made.chunks, made.micro_batches
        );
        match (&made.rows, ours(&made)) {
            (Some(rows), Some(order)) => {
                let text: String = rows.iter().map(|r| r.join(",") + "\n").collect();
                if csv::write(&order) == text {
                    *passed.entry(made.schedule).or_default() += 1;
                } else {
                    failed.push(format!(
                        "{what}:\n  torch {text:?}\n  ours  {:?}",
                        csv::write(&order)
                    ));
                }
            }
            (Some(_), None) => failed.push(format!("{what}: torch runs it, ours does not exist")),
            // Also sizes that an order exists for.
            (None, _) => refused += 1,
        }
    }
    for (name, count) in &passed {
        println!("{name}: {count} orders equal torch's, action for action");
    }
    println!("{refused} sizes that torch refuses");
    let loaded = load(&python, &script)?;
    println!(
        "{loaded} of our orders loaded and lowered to communication by torch, without deadlock in its simulator"
    );
    println!("torch schedules: {:.1} s", began.elapsed().as_secs_f64());
    for failure in failed.iter().take(5) {
        println!("FAILED {failure}");
    }
    println!(
        "{} passed, {} failed",
        passed.values().sum::<usize>() + loaded,
        failed.len()
    );
    if !failed.is_empty() {
        bail!("{} orders differ from torch's", failed.len());
    }
    Ok(())
}

/// Our order of the same name and size.
fn ours(made: &Made) -> Option<Order> {
    let (p, v, m) = (made.ranks, made.chunks, made.micro_batches);
    match made.schedule.as_str() {
        "GPipe" => Some(schedule::gpipe(p, m, Backwards::InOrder)),
        "1F1B" => Some(schedule::one_f_one_b(
            &(1..=p as u32).rev().collect::<Vec<_>>(),
            m,
        )),
        "Interleaved1F1B" => Some(schedule::interleaved(p, v, m, schedule::torch_group(p, m)?)),
        "LoopedBFS" => Some(schedule::looped_bfs(p, v, m)),
        "InterleavedZeroBubble" => Some(schedule::interleaved_zero_bubble(
            p,
            v,
            m,
            schedule::torch_group(p, m)?,
        )),
        "ZBVZeroBubble" => Some(schedule::zb_v(p, m)),
        "DualPipeV" => schedule::dual_pipe_v(p, m),
        _ => None,
    }
}

/// Orders that torch has no name for, through torch's loader: free depths, zero bubbles for unequal stages.
fn load(python: &Path, script: &Path) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let mut orders: Vec<(String, Order)> = Vec::new();
    for m in [8, 12] {
        for depths in [
            [1, 1, 1, 1],
            [2, 1, 1, 1],
            [4, 3, 2, 1],
            [7, 5, 3, 1],
            [5, 5, 2, 2],
        ] {
            let name = depths.map(|d: u32| d.to_string()).join("");
            orders.push((format!("depths{name}-m{m}"), schedule::one_f_one_b(&depths, m)));
        }
        let work = |f: f64| StageWork {
            forward: f,
            backward: 2.0 * f,
            input_grad: 1.2 * f,
            weight_grad: 0.8 * f,
        };
        let unequal = [work(1.0), work(1.5), work(0.7), work(1.2)];
        orders.push((
            format!("zbh2-m{m}"),
            schedule::zb_h2(&unequal, &[(0.1, 0.2); 3], m),
        ));
        orders.push((format!("zbh1-m{m}"), schedule::zb_h1(4, m)));
        orders.push((format!("zbv-m{m}"), schedule::zb_v(4, m)));
        orders.push((format!("megatron-m{m}"), schedule::interleaved(4, 3, m, 4)));
        orders.extend(schedule::dual_pipe_v(4, m).map(|order| (format!("dualpipev-m{m}"), order)));
    }
    for (name, order) in &orders {
        conserves(order, name).map_err(|problems| anyhow::anyhow!("{name}: {problems}"))?;
        fs::write(folder.path().join(format!("{name}.csv")), csv::write(order))?;
    }
    let output = Command::new(python)
        .arg(script)
        .arg("load")
        .arg(folder.path())
        .stderr(Stdio::inherit())
        .output()?;
    let loaded = String::from_utf8(output.stdout)?.lines().count();
    if !output.status.success() || loaded != orders.len() {
        bail!("torch loaded {loaded} of {} orders", orders.len());
    }
    Ok(loaded)
}

/// Python of the virtual environment with the pinned packages, made where it is missing or incomplete.
pub(crate) fn environment(root: &Path) -> Result<PathBuf> {
    let requirements = root.join("tests/python/requirements.txt");
    let pins = fs::read(&requirements).context("cannot read tests/python/requirements.txt")?;
    let version = Command::new("python3")
        .arg("--version")
        .output()
        .context("cannot run python3")?;
    let mut digest = Sha256::new();
    digest.update(&pins);
    digest.update(&version.stdout);
    let name: String = digest
        .finalize()
        .iter()
        .take(6)
        .map(|b| format!("{b:02x}"))
        .collect();
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = cache.join(format!("autohaap/python-{name}"));
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    if complete.is_file() {
        return Ok(python);
    }
    println!(
        "installing the packages of tests/python/requirements.txt into {}",
        folder.display()
    );
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&cache)?;
    let checked = |command: &mut Command| -> Result<()> {
        let status = command
            .status()
            .with_context(|| format!("cannot run {command:?}"))?;
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
        Ok(())
    };
    checked(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ];
    checked(Command::new(&python).args(install).arg(&requirements))?;
    fs::write(&complete, pins)?;
    Ok(python)
}
