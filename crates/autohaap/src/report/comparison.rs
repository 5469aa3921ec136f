//! What the answer is compared with.

use crate::plan::{Alternative, Alternatives};

/// Lines of baselines, device groups and losers.
pub(super) fn lines(a: &Alternatives, step: f64) -> Vec<String> {
    let mut lines = vec!["compared with".to_owned()];
    let mut add = |name: &str, row: &Alternative| lines.push(line(name, row, step));
    add("best uniform plan", &a.uniform);
    add(
        &format!("fastest class: {}", a.fastest_class.label),
        &a.fastest_class,
    );
    add("layers by FLOPs, by hand", &a.flops_split);
    add("layers by memory, by hand", &a.memory_split);
    for (name, row) in &a.without {
        add(&format!("without {name}"), row);
    }
    for (i, row) in a.losers.iter().enumerate() {
        let seconds = row.step_time_s.map_or_else(String::new, |s| format!("{s}"));
        lines.push(fit(&format!(
            "  loser {}: {seconds}, {}: {}",
            i + 1,
            row.reason,
            row.label
        )));
    }
    lines
}

fn line(name: &str, row: &Alternative, step: f64) -> String {
    match row.step_time_s {
        Some(s) => {
            let label = if row.label.is_empty() || name.contains(&row.label) {
                String::new()
            } else {
                format!("   {}", row.label)
            };
            fit(&format!(
                "  {name:<38} {:>9}  {:>5.2}x{label}",
                format!("{s}"),
                s.0 / step
            ))
        }
        None => fit(&format!("  {name:<38} no plan: {}", row.reason)),
    }
}

/// Cuts a line to the width of the screen.
fn fit(text: &str) -> String {
    if text.chars().count() <= 100 {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(97).collect();
    cut += "...";
    cut
}
