//! One row of a file of published measurements.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Problem, Problems, validate as codes};

/// Columns that name a run: rows that agree in all of them are one run, measured in several ways.
const RUN: &[&str] = &[
    "model",
    "framework",
    "device",
    "gpus",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "vpp",
    "mbs",
    "gbs",
    "seq",
    "recompute",
    "precision",
    "shard",
    "schedule",
    "stage_layers",
    "stage_devices",
];

/// Columns without which a row means nothing.
const REQUIRED: &[&str] = &["id", "model", "device", "gpus", "metric", "value"];

/// What a row may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Parameters may be fitted on it; it is not part of a reported error.
    Calibration,
    /// Reported, never fitted.
    Test,
    /// Flagged by the source: predicted, but in no figure.
    Excluded,
}

impl Use {
    /// The word of the `use` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calibration => "calibration",
            Self::Test => "test",
            Self::Excluded => "excluded",
        }
    }
}

/// A published measurement: its columns by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Identifier, `<group>-<number>`.
    pub id: String,
    /// The identifier's prefix.
    pub group: String,
    /// What it may be used for.
    pub used_for: Use,
    cells: BTreeMap<String, String>,
}

impl Case {
    /// A column's text, empty where the file has none.
    pub fn text(&self, column: &str) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    /// The leading whole number of a column.
    pub fn count(&self, column: &str) -> Option<u64> {
        leading(self.text(column))
    }

    /// A column as a number.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).trim().parse().ok()
    }

    /// The run that the row belongs to.
    pub fn run(&self) -> String {
        RUN.iter().map(|c| self.text(c)).collect::<Vec<_>>().join("|")
    }
}

/// What the fixed rule says of the rows of one source: rows that the source suspects are excluded; of the runs left the
/// fifth (rounded up) with the lowest SHA-256 digests of their naming columns calibrates. The rule never looks at a value.
pub fn rule(cases: &[Case]) -> Vec<Use> {
    let suspect = |c: &Case| c.text("subset") == "suspect";
    let mut runs: Vec<([u8; 32], String)> = cases
        .iter()
        .filter(|c| !suspect(c))
        .map(|c| (Sha256::digest(c.run().as_bytes()).into(), c.run()))
        .collect();
    runs.sort();
    runs.dedup();
    runs.truncate(runs.len().div_ceil(5));
    cases
        .iter()
        .map(|c| {
            if suspect(c) {
                Use::Excluded
            } else if runs.iter().any(|(_, run)| *run == c.run()) {
                Use::Calibration
            } else {
                Use::Test
            }
        })
        .collect()
}

/// Digits at the start of a text, as a number: `128 (=2048/16)` is 128.
pub(super) fn leading(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Reads a file of cases. Rows without a `use` column are tests, except those marked `suspect`.
///
/// # Errors
/// No CSV, a missing column, a row of another length, an empty identifier.
pub fn read_cases(text: &str, name: &str) -> Result<Vec<Case>, Problems> {
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let header = reader
        .headers()
        .map_err(|e| Problem::new(&codes::CASE_FILE, name, format!("no CSV: {e}")))?
        .clone();
    let missing: Vec<&str> = REQUIRED
        .iter()
        .copied()
        .filter(|c| !header.iter().any(|h| h == *c))
        .collect();
    if !missing.is_empty() {
        return Err(Problem::new(
            &codes::CASE_FILE,
            name,
            format!("the header lacks the columns `{}`", missing.join("`, `")),
        )
        .hint("use the columns of `data/published/*/cases.csv`")
        .into());
    }
    let mut problems = Problems::new();
    let mut cases = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let line = i + 2;
        let record = match record {
            Ok(record) => record,
            Err(e) => {
                problems.push(Problem::new(&codes::CASE_FILE, name, format!("no CSV row: {e}")).at(line, 1));
                continue;
            }
        };
        let cells: BTreeMap<String, String> = header
            .iter()
            .zip(record.iter())
            .map(|(h, c)| (h.to_owned(), c.trim().to_owned()))
            .collect();
        let id = cells.get("id").cloned().unwrap_or_default();
        if id.is_empty() {
            problems.push(Problem::new(&codes::CASE_FILE, name, "a row has no `id`").at(line, 1));
            continue;
        }
        let mut case = Case {
            group: id.rsplit_once('-').map_or(id.as_str(), |(g, _)| g).to_owned(),
            id,
            used_for: Use::Test,
            cells,
        };
        case.used_for = match case.text("use") {
            "calibration" => Use::Calibration,
            "excluded" => Use::Excluded,
            _ if case.text("subset") == "suspect" => Use::Excluded,
            _ => Use::Test,
        };
        cases.push(case);
    }
    problems.or(cases)
}

/// The file with its `use` column written by the rule (added where it is missing).
///
/// # Errors
/// As [`read_cases`].
pub fn with_use_column(text: &str, name: &str) -> Result<String, Problems> {
    let cases = read_cases(text, name)?;
    let failed = |e: &dyn std::fmt::Display| Problem::new(&codes::CASE_FILE, name, format!("no CSV: {e}"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut header: Vec<String> = reader
        .headers()
        .map_err(|e| failed(&e))?
        .iter()
        .map(str::to_owned)
        .collect();
    if header.last().is_none_or(|h| h != "use") {
        header.retain(|h| h != "use");
        header.push("use".into());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).map_err(|e| failed(&e))?;
    for (case, used) in cases.iter().zip(rule(&cases)) {
        let row: Vec<&str> = header
            .iter()
            .map(|h| if h == "use" { used.name() } else { case.text(h) })
            .collect();
        writer.write_record(row).map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
