//! Times of whole commands (the examples' plans, estimates from JSON Lines) and of the simulator. Archived under `bench/runs`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::examples::{self, Example};

/// Lines of the estimate run.
const LINES: usize = 20_000;

/// Runs everything and writes `bench/runs/<date>-<arch>-<cores>cores/`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let binary = examples::build(root)?;
    let mut csv = String::from("example,first_plan_s,whole_s,peak_mib,step_time_s,bound_s,gap,stop_reason\n");
    println!(
        "{:<28} {:>10} {:>8} {:>9} {:>10} {:>7}",
        "example", "first plan", "whole", "peak MiB", "step", "gap"
    );
    for example in examples::load(root, &[])? {
        let row = example_row(root, &binary, &example)?;
        println!(
            "{:<28} {:>8} s {:>6} s {:>9} {:>8} s {:>7}",
            row[0],
            short(&row[1]),
            short(&row[2]),
            short(&row[3]),
            short(&row[4]),
            short(&row[6])
        );
        writeln!(csv, "{}", row.join(","))?;
    }
    let rate = lines(root, &binary)?;
    println!("estimate --lines: {rate:.0} plans a minute on one core ({LINES} plans of 4 devices)");
    let simulator = simulator(root)?;
    print!("{simulator}");
    let date = output("date", &["+%Y-%m-%d"])?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let folder = root.join(format!(
        "bench/runs/{date}-{}-{cores}cores",
        std::env::consts::ARCH
    ));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("raw.csv"), csv)?;
    fs::write(folder.join("simulator.csv"), &simulator)?;
    let processor = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|t| {
            t.lines()
                .find_map(|l| l.strip_prefix("model name"))
                .map(|l| l.trim_matches([':', ' ', '\t']).to_owned())
        })
        .unwrap_or_else(|| "unknown".into());
    fs::write(
        folder.join("README.md"),
        format!(
            "# Whole-command times\n\nCommand: `cargo xtask bench`\n\nMachine: {cores} cores, {processor}; {}\n\n\
             `raw.csv`: one row per example, wall times with set-up included. `first_plan_s` is when the search knew a plan \
             that fits.\n\n`estimate --lines`: {rate:.0} plans a minute on one core ({LINES} lines, plans of 4 devices).\n\n\
             `simulator.csv`: `cargo bench -p autohaap --bench simulate` pinned to one core: exact evaluations inside the \
             search per second, full-detail simulations of 1,024 devices, runs of ten million actions; `peak_mib` is the \
             process's high-water mark so far.\n",
            output("rustc", &["--version"])?
        ),
    )?;
    println!("wrote {}", folder.strip_prefix(root).unwrap_or(&folder).display());
    Ok(())
}

/// The simulator's own benchmark on one core, as CSV.
fn simulator(root: &Path) -> Result<String> {
    let built = Command::new("cargo")
        .args([
            "bench", "--locked", "--quiet", "-p", "autohaap", "--bench", "simulate", "--no-run",
        ])
        .current_dir(root)
        .status()?;
    if !built.success() {
        bail!("the simulator's benchmark does not build");
    }
    let run = [
        "-c", "0", "cargo", "bench", "--locked", "--quiet", "-p", "autohaap", "--bench", "simulate",
    ];
    output("taskset", &run).map(|csv| csv + "\n")
}

fn short(text: &str) -> String {
    text.parse::<f64>()
        .map_or_else(|_| text.to_owned(), |v| format!("{v:.3}"))
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn example_row(root: &Path, binary: &Path, example: &Example) -> Result<Vec<String>> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("plan.json");
    let began = Instant::now();
    let mut child = Command::new(binary)
        .args(example.arguments())
        .args(["--no-progress", "-o", &file.to_string_lossy()])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0u64;
    let code = loop {
        // The high-water mark is read while the process lives; the last reading misses at most one interval.
        if let Some(kib) = fs::read_to_string(&status).ok().and_then(|t| high_water(&t)) {
            peak_kib = peak_kib.max(kib);
        }
        if let Some(code) = child.try_wait()? {
            break code;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let whole = began.elapsed().as_secs_f64();
    let plan: Value = match fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    if !matches!(code.code(), Some(0 | 1)) {
        bail!("{} ended with {code}", example.name);
    }
    let text = |v: &Value| match v {
        Value::Null => "-".to_owned(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    Ok(vec![
        example.name.clone(),
        text(&plan["search"]["first_plan_s"]),
        format!("{whole:.3}"),
        format!("{:.1}", peak_kib as f64 / 1024.0),
        text(&plan["prediction"]["step_time_s"]),
        text(&plan["prediction"]["bound_s"]),
        text(&plan["prediction"]["gap"]),
        if plan.is_null() {
            "no plan".into()
        } else {
            text(&plan["search"]["stop_reason"])
        },
    ])
}

fn high_water(status: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .ok()
}

/// Plans per minute of `estimate --lines` on one core: one four-device plan with its cut moved from line to line.
fn lines(root: &Path, binary: &Path) -> Result<f64> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("plan.json");
    let example = examples::load(root, &["06"])?.remove(0);
    let made = Command::new(binary)
        .args(example.arguments())
        .args(["--no-progress", "-o", &file.to_string_lossy()])
        .current_dir(root)
        .output()?;
    if !made.status.success() {
        bail!("no plan for the estimate run");
    }
    let mut plan: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    if let Some(map) = plan.as_object_mut() {
        for key in ["prediction", "search", "alternatives"] {
            map.remove(key);
        }
    }
    let path = scratch.path().join("plans.jsonl");
    let mut out = std::io::BufWriter::new(fs::File::create(&path)?);
    let cut = plan["pipelines"][0]["stages"][0]["atoms"][1]
        .as_u64()
        .context("a plan has stages")?;
    let stages = plan["pipelines"][0]["stages"].as_array().map_or(0, Vec::len);
    for i in 0..LINES {
        let moved = cut + (i as u64 % 5) - 2;
        if stages > 1 {
            plan["pipelines"][0]["stages"][0]["atoms"][1] = moved.into();
            plan["pipelines"][0]["stages"][1]["atoms"][0] = moved.into();
        }
        plan["id"] = format!("p{i}").into();
        serde_json::to_writer(&mut out, &plan)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    drop(out);
    let began = Instant::now();
    let answer = Command::new("taskset")
        .args(["-c", "0"])
        .arg(binary)
        .args(["estimate", "-", "--lines"])
        .stdin(fs::File::open(&path)?)
        .output()
        .context("cannot run taskset, which pins the run to one core")?;
    let seconds = began.elapsed().as_secs_f64();
    let answers = String::from_utf8_lossy(&answer.stdout).lines().count();
    if answers != LINES {
        bail!(
            "{answers} answers to {LINES} lines: {}",
            String::from_utf8_lossy(&answer.stderr)
        );
    }
    Ok(LINES as f64 / seconds * 60.0)
}
