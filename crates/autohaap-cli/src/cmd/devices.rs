//! `autohaap devices`: the catalogue, or one device with the source of each figure.

use autohaap::cluster::{device_detail, device_table};
use autohaap::report;

use crate::args::{Cli, DevicesArgs};
use crate::{ExitStatus, Failure, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &DevicesArgs) -> Result<ExitStatus, Failure> {
    match &args.name {
        None => {
            let rows = device_table();
            if cli.json() {
                output::print_json(&serde_json::json!({ "schema": "autohaap/devices@1", "devices": rows }))?;
            } else {
                output::print(&report::devices_screen(&rows))?;
            }
        }
        Some(name) => {
            let (entry, figures, assumed) = device_detail(name)?;
            if cli.json() {
                output::print_json(&serde_json::json!({
                    "schema": "autohaap/device@1",
                    "name": entry.row().name,
                    "assumed": assumed,
                    "figures": figures,
                }))?;
            } else {
                output::print(&report::device_screen(
                    &entry.row().name,
                    &figures,
                    assumed.as_deref(),
                ))?;
            }
        }
    }
    Ok(ExitStatus::Answer)
}
