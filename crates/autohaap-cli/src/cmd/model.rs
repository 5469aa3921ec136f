//! `autohaap model`: parameters, FLOPs and atoms.

use autohaap::report;

use crate::args::{Cli, ModelArgs};
use crate::{ExitStatus, Failure, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &ModelArgs) -> Result<ExitStatus, Failure> {
    let Some(name) = &args.model else {
        let ids: Vec<&str> = autohaap::model::preset_ids().collect();
        if cli.json() {
            output::print_json(&serde_json::json!({ "schema": "autohaap/presets@1", "presets": ids }))?;
        } else {
            output::print(&report::columns(&ids, 100))?;
        }
        return Ok(ExitStatus::Answer);
    };
    let read = input::model(name)?;
    if cli.json() {
        let mut answer = serde_json::to_value(read.summary()).unwrap_or_default();
        if let Some(map) = answer.as_object_mut() {
            map.insert(
                "model_hash".into(),
                autohaap::profile::model_hash(&read.model).into(),
            );
        }
        output::print_json(&answer)?;
    } else {
        output::print(&report::model_screen(&read))?;
    }
    Ok(ExitStatus::Answer)
}
