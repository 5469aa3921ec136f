//! What the answer is compared with.

use super::words;
use crate::plan::{Alternative, Alternatives};

/// Baselines and the step time without each device group, at most `most` of the latter.
pub(super) fn lines(a: &Alternatives, step: f64, most: usize) -> Vec<String> {
    let mut lines = vec![format!("{:<35}{:>9}{:>8}", "compared with", "step", "ratio")];
    let mut add = |name: &str, row: &Alternative| lines.push(line(name, row, step));
    add("best uniform plan", &a.uniform);
    add(
        &format!("fastest class {}", words::elide(&a.fastest_class.label, 18)),
        &Alternative {
            label: String::new(),
            ..a.fastest_class.clone()
        },
    );
    add("hand split by FLOPs", &a.flops_split);
    add("hand split by memory", &a.memory_split);
    for (name, row) in a.without.iter().take(most) {
        let row = Alternative {
            label: String::new(),
            ..row.clone()
        };
        add(&format!("without {name}"), &row);
    }
    let hidden = a.without.len().saturating_sub(most);
    if hidden > 0 {
        lines.push(format!(
            "  ... and without {hidden} more device groups (--format json)"
        ));
    }
    lines
}

/// Plans that lost: the reason and, with `two`, the shape on a second line.
pub(super) fn losers(a: &Alternatives, most: usize, two: bool) -> Vec<String> {
    if a.losers.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["next best plans, and why they lose".to_owned()];
    for row in a.losers.iter().take(most) {
        let seconds = row
            .step_time_s
            .map_or_else(|| "no plan".to_owned(), |s| s.to_string());
        lines.push(words::cut(&format!("  {seconds}, {}", row.reason), 100));
        if two {
            lines.push(words::elide(&format!("      {}", row.label), 100));
        }
    }
    let hidden = a.losers.len().saturating_sub(most);
    if hidden > 0 {
        lines.push(format!("  ... and {hidden} more (--format json)"));
    }
    lines
}

/// Why an alternative has no step time: whether that was worked out (there is no plan) or not, and the reason
/// without the words that repeat the name of its line (`the others alone: ...`).
pub(super) fn without_step(reason: &str) -> (bool, &str) {
    let reason = ["fastest class alone: ", "the others alone: "]
        .iter()
        .find_map(|prefix| reason.strip_prefix(prefix))
        .unwrap_or(reason);
    (!reason.starts_with("not worked out"), reason)
}

fn line(name: &str, row: &Alternative, step: f64) -> String {
    let name = words::elide(name, 32);
    let pad = " ".repeat(32 - words::width(&name));
    let text = match row.step_time_s {
        Some(s) => format!(
            "  {name}{pad} {:>9}{:>7}x  {}",
            s.to_string(),
            if s.0 / step < 1000.0 {
                format!("{:.2}", s.0 / step)
            } else {
                ">999".to_owned()
            },
            row.label.replace(", selective", ", sel.")
        ),
        None => {
            let (worked_out, reason) = without_step(&row.reason);
            let word = if worked_out { "no plan:" } else { "-" };
            format!("  {name}{pad} {word:>9}  {reason}")
        }
    };
    words::cut(text.trim_end(), 100)
}
