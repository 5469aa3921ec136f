//! Problems with an input or a plan, as values: a documented code, what is wrong, where, and what would be right.
//!
//! A check never stops at the first problem: it collects [`Problems`]. Codes live in one file per area
//! (`usage` E1xx, `model` E2xx, `cluster` E3xx, `plan` E4xx, `search` E5xx, `runtime` E6xx); `autohaap explain CODE` prints [`Code::page`].

pub mod cluster;
pub mod cost;
pub mod model;
pub mod plan;
pub mod profile;
pub mod runtime;
pub mod search;
pub mod simulate;
pub mod usage;
pub mod validate;

use std::fmt;

use serde::Serialize;

/// One documented kind of problem.
#[derive(Debug)]
pub struct Code {
    /// Stable identifier, for example `E302`.
    pub id: &'static str,
    /// The rule in one line.
    pub title: &'static str,
    /// What `autohaap explain` prints: why the rule exists, an example, and how to mend it.
    pub page: &'static str,
}

/// All documented codes in order of their identifiers.
pub fn all_codes() -> Vec<&'static Code> {
    let mut codes: Vec<&Code> = [
        usage::ALL,
        model::ALL,
        cluster::ALL,
        plan::ALL,
        cost::ALL,
        simulate::ALL,
        search::ALL,
        validate::ALL,
        profile::ALL,
        runtime::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect();
    codes.sort_by_key(|c| c.id);
    codes
}

/// Finds a code by identifier, in any letter case.
pub fn find_code(id: &str) -> Option<&'static Code> {
    all_codes()
        .into_iter()
        .find(|c| c.id.eq_ignore_ascii_case(id.trim()))
}

/// One violation: the rule, the value found, where it stands and the nearest legal values.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// The documented rule.
    #[serde(serialize_with = "code_id")]
    pub code: &'static Code,
    /// What is wrong: lower-case start, values in backticks, no final full stop.
    pub message: String,
    /// A command, a corrected line or the nearest legal values.
    pub hint: String,
    /// File and/or field path, for example `cluster.toml: nodes[0].device` or `pipelines[0].stages[1].atoms`.
    pub path: String,
    /// Line in the file (1-based), where known.
    pub line: Option<usize>,
    /// Column in the line (1-based), where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The source line itself, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_line: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
fn code_id<S: serde::Serializer>(code: &&'static Code, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(code.id)
}

impl Problem {
    /// A problem at `path` without a hint.
    pub fn new(code: &'static Code, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: String::new(),
            path: path.into(),
            line: None,
            column: None,
            source_line: None,
        }
    }
    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
    /// The same with a position in a text file (1-based).
    #[must_use]
    pub fn at(mut self, line: usize, column: usize) -> Self {
        self.line = Some(line);
        self.column = Some(column);
        self
    }
}

/// Every violation of one input, in reading order; never empty when it is an error.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }
    /// Records one more.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }
    /// Records all of another collection.
    pub fn extend(&mut self, other: Problems) {
        self.0.extend(other.0);
    }
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// `value` if nothing was recorded, else the problems.
    pub fn or<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(p: Problem) -> Self {
        Self(vec![p])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "error[{}]: {} (at {})", p.code.id, p.message, p.path)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The legal word nearest to `word`, for "did you mean" hints.
pub fn nearest<'a>(word: &str, legal: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    legal
        .into_iter()
        .map(|l| {
            (
                strsim::damerau_levenshtein(&word.to_lowercase(), &l.to_lowercase()),
                l,
            )
        })
        .min_by_key(|(d, l)| (*d, l.len()))
        .map(|(_, l)| l)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_explained() {
        let codes = all_codes();
        for pair in codes.windows(2) {
            assert_ne!(pair[0].id, pair[1].id);
        }
        for code in codes {
            assert!(code.page.len() > 80, "{} needs a page", code.id);
        }
    }
}
