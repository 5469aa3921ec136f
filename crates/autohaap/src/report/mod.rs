//! Answers for people: one screen of text each. A report formats what was computed; it computes nothing itself.

mod comparison;
mod inputs;
mod plan_screen;
mod simulate_screen;
mod stages;
mod words;

pub use inputs::{columns, device_screen, devices_screen, model_screen};
pub use plan_screen::{Context, check_screen, estimate_screen, infeasible_screen, plan_screen};

pub use simulate_screen::simulate_screen;

use comfy_table::{ContentArrangement, Table, presets};

/// Width of a screen in columns.
const WIDTH: u16 = 100;

/// A table in the common style.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header.to_vec());
    table
}
