//! What a run measured, beside what was predicted.

use std::collections::BTreeSet;

use autohaap::launch::{Measured, Spans, profile, ranks};
use autohaap::plan::Plan;
use autohaap::report;
use serde_json::Value;

use super::folder::Run;
use super::note;
use crate::args::Cli;
use crate::{Failure, output};

/// Mean seconds of the steps after the first two, which warm up.
fn step_time(run: &Run) -> Option<f64> {
    let text = std::fs::read_to_string(run.folder.join("steps.jsonl")).ok()?;
    let times: Vec<f64> = text
        .lines()
        .filter_map(|l| {
            serde_json::from_str::<Value>(l)
                .ok()?
                .get("step_time_s")?
                .as_f64()
        })
        .collect();
    let steady = if times.len() > 2 { &times[2..] } else { &times[..] };
    (!steady.is_empty()).then(|| steady.iter().sum::<f64>() / steady.len() as f64)
}

/// The trace of a rank's last step: its device, and the seconds of each kind of work.
fn trace(run: &Run, rank: usize) -> (Option<String>, Spans) {
    let mut found = Spans::new();
    let text = std::fs::read_to_string(run.folder.join(format!("trace-{rank}.json"))).unwrap_or_default();
    let trace: Value = serde_json::from_str(&text).unwrap_or_default();
    for event in trace["traceEvents"].as_array().into_iter().flatten() {
        let name = event["name"].as_str().unwrap_or_default();
        let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
        if let (Ok(stage), Some(kind), Some(us)) = (
            digits.parse(),
            name.chars().nth(digits.len()),
            event["dur"].as_f64(),
        ) {
            let entry = found.entry((stage, kind)).or_default();
            entry.0 += us * 1e-6;
            entry.1 += 1;
        }
    }
    (trace["device"].as_str().map(str::to_owned), found)
}

/// Writes `measured.json` and the profile, and shows the table.
pub(super) fn report(cli: &Cli, plan: &Plan, run: &Run, scale: Option<f64>) -> Result<(), Failure> {
    let Some(step) = step_time(run) else {
        return Ok(());
    };
    let simulation = super::simulation(plan)?;
    let traces: Vec<(Option<String>, Spans)> = (0..ranks(plan).len()).map(|rank| trace(run, rank)).collect();
    let mut hardware: BTreeSet<String> = traces.iter().filter_map(|t| t.0.clone()).collect();
    if scale.is_some() {
        hardware = BTreeSet::from(["virtual".to_owned()]);
    }
    let spans: Vec<Spans> = traces.into_iter().map(|t| t.1).collect();
    let hardware: Vec<String> = hardware.into_iter().collect();
    let measured = Measured::new(plan, &simulation, hardware, step, &spans, scale.unwrap_or(1.0));
    let text = serde_json::to_string_pretty(&measured).unwrap_or_default() + "\n";
    output::write_file(&run.folder.join("measured.json"), &text)?;
    let folder = run.folder.join("profile");
    std::fs::create_dir_all(&folder)?;
    for (name, text) in profile(plan, &measured)?.write() {
        output::write_file(&folder.join(name), &text)?;
    }
    note(cli, &report::measured_screen(&measured));
    Ok(())
}
