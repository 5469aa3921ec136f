//! The folder of a run: everything that its processes read.

use std::path::PathBuf;

use autohaap::launch::{PACKAGE, TrainingFile, virtual_times};
use autohaap::plan::Plan;
use autohaap::simulate::schedule::csv;
use serde_json::json;

use crate::{Failure, output};

/// A run's folder.
pub(super) struct Run {
    /// The attempt's own folder: plan, logs, traces.
    pub(super) folder: PathBuf,
    /// Folder for PYTHONPATH.
    pub(super) package: PathBuf,
}

/// Writes plan, schedules, settings and the runtime itself.
pub(super) fn write(
    plan: &Plan,
    file: &TrainingFile,
    name: &str,
    resume: bool,
    virtual_scale: Option<f64>,
) -> Result<Run, Failure> {
    let root = &file.run.folder;
    let folder = root.join(name);
    let package = root.join("runtime");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    std::fs::create_dir_all(package.join("autohaap"))?;
    for (name, text) in PACKAGE {
        output::write_file(&package.join("autohaap").join(name), text)?;
    }
    output::write_file(&folder.join("plan.json"), &plan.to_json())?;
    let simulation = super::simulation(plan)?;
    let mut schedules = Vec::new();
    for (p, chain) in simulation.program.chains.iter().enumerate() {
        let text = csv::write(&chain.order);
        output::write_file(&folder.join(format!("schedule-{p}.csv")), &text)?;
        schedules.push(text);
    }
    let times = virtual_scale.map(|scale| json!({"scale": scale, "ranks": virtual_times(plan, &simulation)}));
    let record = json!({
        "schema": "autohaap/run@1",
        "plan": "plan.json",
        "schedules": schedules,
        "train": file,
        "checkpoints": root.join("checkpoints"),
        "resume": resume,
        "virtual": times,
        "predicted_step_s": simulation.timeline.step_time,
    });
    output::write_file(&folder.join("run.json"), &format!("{record:#}"))?;
    Ok(Run { folder, package })
}
