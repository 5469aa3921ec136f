//! What a run measured, beside what was predicted.

use std::collections::BTreeMap;

use autohaap::launch::ranks;
use autohaap::plan::Plan;
use serde_json::{Value, json};

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

/// Mean seconds of each kind of work of a stage on a rank, from the trace of its last step.
fn work(run: &Run, rank: usize) -> BTreeMap<(usize, char), (f64, u32)> {
    let mut found: BTreeMap<(usize, char), (f64, u32)> = BTreeMap::new();
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
    found
}

/// Writes `measured.json` and shows the table.
pub(super) fn report(cli: &Cli, plan: &Plan, run: &Run) -> Result<(), Failure> {
    let Some(step) = step_time(run) else {
        return Ok(());
    };
    let simulation = super::simulation(plan)?;
    let predicted = simulation.timeline.step_time.0;
    let all = ranks(plan);
    let mut stages = Vec::new();
    note(
        cli,
        &format!("step {step:.4} s measured, {predicted:.4} s predicted for the planned devices"),
    );
    note(
        cli,
        "pipeline stage   forward s measured / predicted   backward s measured / predicted",
    );
    for (p, pipeline) in plan.pipelines.iter().enumerate() {
        for (s, stage) in pipeline.stages.iter().enumerate() {
            let owner = stage
                .on_stage
                .and_then(|o| pipeline.stages.get(o))
                .unwrap_or(stage);
            let holders = owner.replicas.iter().flat_map(|r| &r.devices);
            let (mut forward, mut backward) = (0.0_f64, 0.0_f64);
            for device in holders {
                let Some(rank) = all.iter().position(|r| r.device == *device) else {
                    continue;
                };
                let times = work(run, rank);
                let mean = |kind| times.get(&(s, kind)).map_or(0.0, |(sum, n)| sum / f64::from(*n));
                // The slowest device sets the pace of a stage.
                forward = forward.max(mean('F'));
                backward = backward.max(mean('B') + mean('I') + mean('W'));
            }
            let planned = simulation.program.chains.get(p).and_then(|c| c.stages.get(s));
            let (f, b) = planned.map_or((0.0, 0.0), |w| (w.forward, w.backward));
            note(
                cli,
                &format!("{p:>8} {s:>5}   {forward:>18.6} / {f:<12.6} {backward:>19.6} / {b:.6}"),
            );
            stages.push(json!({
                "pipeline": p, "stage": s, "forward_s": forward, "backward_s": backward,
                "predicted_forward_s": f, "predicted_backward_s": b,
            }));
        }
    }
    let record = json!({
        "schema": "autohaap/measured@1",
        "plan": plan.id,
        "step_time_s": step,
        "predicted_step_time_s": predicted,
        "stages": stages,
    });
    output::write_file(&run.folder.join("measured.json"), &format!("{record:#}"))?;
    Ok(())
}
