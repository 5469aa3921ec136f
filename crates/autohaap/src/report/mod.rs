//! Answers for people: one screen of text each. A report formats what was computed; it computes nothing itself.
//!
//! Every screen is at most 100 columns wide whatever the names in the inputs, and the first screen of `plan` at most
//! [`LINES`] lines long: [`screen`] is the last step of each and holds the width.

mod answers;
mod compare_screen;
mod comparison;
mod explain;
mod html;
mod inputs;
mod plan_screen;
mod simulate_screen;
mod stages;
mod words;

pub use answers::{check_screen, estimate_screen, infeasible_screen, page_screen};
pub use compare_screen::{Compared, Figures, compare_screen, measured_screen};
pub use html::{Page, html_page};
pub use inputs::{columns, device_screen, devices_screen, model_screen};
pub use plan_screen::{Context, plan_screen};

pub use simulate_screen::simulate_screen;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Width of a screen in columns.
pub const WIDTH: usize = 100;

/// Most lines of the first screen of `plan`.
pub const LINES: usize = 45;

/// A table without rules: one line per row, two spaces between columns; `right` names the columns of numbers.
fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec());
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Lines of a table, indented.
fn table_lines(table: &Table, indent: &str) -> Vec<String> {
    table
        .to_string()
        .lines()
        .map(|line| format!("{indent}{}", line.trim_end()))
        .collect()
}

/// The lines as one text: no control characters, no line wider than the screen.
fn screen(lines: &[String]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|line| words::elide(line, WIDTH).trim_end().to_owned())
        .collect();
    lines.join("\n")
}
