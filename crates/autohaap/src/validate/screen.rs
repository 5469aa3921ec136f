//! The answer as text, at most 100 columns: groups first, then the worst rows, then what cannot be expressed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Group, Report};

/// Worst rows shown.
const WORST: usize = 12;

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{:.1}", 100.0 * v))
}

fn two(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.2}"))
}

/// One line a group.
fn line(g: &Group) -> String {
    let verdict = match (g.ok, g.goal_met) {
        (false, _) => "broken",
        (true, Some(true)) => "goal met",
        (true, Some(false)) => "missed",
        (true, None) => "-",
    };
    format!(
        "{:<8} {:<7} {:>4} {:>4} {:>4} {:>6} {:>6} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>5}  {verdict}",
        g.group,
        g.kind,
        g.n,
        g.n_calibration,
        g.n_not_expressed,
        percent(Some(g.mape)),
        percent(Some(g.max)),
        format!("{:+.1}", 100.0 * g.bias),
        two(g.spearman),
        percent(g.regret),
        percent(g.m0_mape),
        percent(g.m1_mape),
        percent(g.sheet_mape),
        percent(g.goal),
    )
}

/// The screen of `autohaap validate`.
pub fn screen(report: &Report) -> String {
    let mut out = String::new();
    let n: usize = report
        .groups
        .iter()
        .filter(|g| g.kind != "ratio")
        .map(|g| g.n)
        .sum();
    let met = report.groups.iter().filter(|g| g.goal_met == Some(true)).count();
    let goals = report.groups.iter().filter(|g| g.goal.is_some()).count();
    let _ = writeln!(
        out,
        "{n} published rows predicted that nothing was fitted on; {met} of {goals} goals met\n\n\
         errors in percent of the measured value; bias > 0: predicted too slow or too large\n\
         M0, M1: one- and two-parameter baselines on the same rows; sheet: mean without any fit\n"
    );
    let _ = writeln!(
        out,
        "{:<8} {:<7} {:>4} {:>4} {:>4} {:>6} {:>6} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>5}",
        "group",
        "kind",
        "rows",
        "cal",
        "out",
        "mean",
        "max",
        "bias",
        "rank",
        "regret",
        "M0",
        "M1",
        "sheet",
        "goal"
    );
    for g in &report.groups {
        let _ = writeln!(out, "{}", line(g));
    }
    let _ = write!(out, "{}", totals(report));
    let mut worst: Vec<_> = report
        .rows
        .iter()
        .filter(|r| r.status == "test" && r.error.is_some())
        .collect();
    worst.sort_by(|a, b| {
        let size = |e: Option<f64>| e.unwrap_or(0.0).abs();
        size(b.error).total_cmp(&size(a.error))
    });
    if !worst.is_empty() {
        let _ = writeln!(out, "\nworst rows");
    }
    for row in worst.iter().take(WORST) {
        let number = |v: Option<f64>| v.map_or_else(|| "-".into(), |v| format!("{v:.4}"));
        let _ = writeln!(
            out,
            "  {:<12} {:<7} {:>12} measured {:>12} predicted {:>+7.1} %  {}",
            row.id,
            row.kind,
            number(row.expected),
            number(row.predicted),
            100.0 * row.error.unwrap_or(0.0),
            row.model.chars().take(22).collect::<String>(),
        );
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for row in report.rows.iter().filter(|r| r.status == "not-expressed") {
        *reasons.entry(&row.reason).or_default() += 1;
    }
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nnot expressed");
    }
    for (reason, count) in reasons {
        let _ = writeln!(
            out,
            "  {count:>4} rows  {}",
            reason.chars().take(84).collect::<String>()
        );
    }
    if !report.oracles.is_empty() {
        let count = |s: &str| report.oracles.iter().filter(|c| c.status == s).count();
        let _ = writeln!(
            out,
            "\nexact checks: {} hold, {} broken, {} left to the test suite",
            count("holds"),
            count("broken"),
            count("not-covered")
        );
        for check in report.oracles.iter().filter(|c| c.status == "broken") {
            let _ = writeln!(
                out,
                "  {} ({}): {} expected, {} found",
                check.id, check.area, check.expected, check.found
            );
        }
    }
    out
}

/// Errors without any fit over all rows, and runs that are predicted not to fit.
pub fn totals(report: &Report) -> String {
    let mut out = String::new();
    let bare: Vec<(f64, f64, f64)> = report
        .groups
        .iter()
        .filter_map(|g| Some((g.n as f64, g.sheet_mape?, g.sheet_bias?)))
        .collect();
    let rows: f64 = bare.iter().map(|b| b.0).sum();
    if rows > 0.0 {
        let mean = |f: fn(&(f64, f64, f64)) -> f64| bare.iter().map(|b| b.0 * f(b)).sum::<f64>() / rows;
        let _ = writeln!(
            out,
            "\ndatasheets alone, nothing fitted: mean {:.1} %, bias {:+.1} % over {rows} rows of time (goal 15.0 %)",
            100.0 * mean(|b| b.1),
            100.0 * mean(|b| b.2)
        );
    }
    let (ran, out_of_room) = report.rejected();
    if ran > 0 {
        let _ = writeln!(
            out,
            "runs that took place with stated layout: {out_of_room} of {ran} predicted not to fit (goal 2 %)"
        );
    }
    out
}

/// The groups as a table for documents.
pub fn markdown(groups: &[Group]) -> String {
    let mut out = String::from(
        "| group | kind | rows | mean % | max % | bias % | rank | regret % | M0 % | M1 % | sheet % | sheet bias % | goal % | held out % |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for g in groups.iter().filter(|g| g.n > 0) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {:+.1} | {} | {} | {} | {} | {} | {} | {} | {} |",
            g.group,
            g.kind,
            g.n,
            percent(Some(g.mape)),
            percent(Some(g.max)),
            100.0 * g.bias,
            two(g.spearman),
            percent(g.regret),
            percent(g.m0_mape),
            percent(g.m1_mape),
            percent(g.sheet_mape),
            g.sheet_bias
                .map_or_else(|| "-".into(), |b| format!("{:+.1}", 100.0 * b)),
            percent(g.goal),
            percent(super::goals::find(&g.group, g.kind).and_then(|goal| goal.held_out)),
        );
    }
    out
}

/// The worst rows as a table for documents.
pub fn worst_rows(report: &Report, count: usize) -> String {
    let mut rows: Vec<_> = report
        .rows
        .iter()
        .filter(|r| r.status == "test" && r.kind != "fit" && r.error.is_some())
        .collect();
    rows.sort_by(|a, b| {
        let size = |e: Option<f64>| e.unwrap_or(0.0).abs();
        size(b.error).total_cmp(&size(a.error)).then(a.id.cmp(&b.id))
    });
    let mut out =
        String::from("| row | model | kind | measured | predicted | error % |\n|---|---|---|---|---|---|\n");
    for r in rows.iter().take(count) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.4} {} | {:.4} | {:+.1} |",
            r.id,
            r.model,
            r.kind,
            r.expected.unwrap_or(0.0),
            r.unit,
            r.predicted.unwrap_or(0.0),
            100.0 * r.error.unwrap_or(0.0)
        );
    }
    out
}
