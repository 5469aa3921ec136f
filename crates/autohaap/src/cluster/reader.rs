//! Reading a TOML document with places: every problem of a file is found in one pass and knows its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Code, Problem, Problems, cluster as codes, nearest};

/// A value with its place in the text.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// The most problems that are recorded; one mistake repeated in every line needs no longer list.
const MOST_PROBLEMS: usize = 200;

/// The longest source line that is shown.
const MOST_SHOWN: usize = 300;

/// The document and the problems found so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    source: &'a str,
    line_starts: Vec<usize>,
    pub(super) problems: Problems,
}

/// One table of the document.
#[derive(Clone)]
pub(super) struct Section<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
}

impl<'a> Section<'a> {
    /// The value of the first of several names of a key.
    pub(super) fn get(&self, names: &[&str]) -> Option<&'a Value<'a>> {
        names
            .iter()
            .find_map(|name| self.table.iter().find(|(key, _)| key.get_ref().as_ref() == *name))
            .map(|(_, value)| value)
    }

    /// The path of a key in this section.
    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, source: &'a str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(i, _)| i + 1))
            .collect();
        Self {
            text,
            source,
            line_starts,
            problems: Problems::new(),
        }
    }

    /// Records a problem with its place.
    pub(super) fn problem(
        &mut self,
        code: &'static Code,
        span: Option<&Range<usize>>,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.problems.0.len() >= MOST_PROBLEMS {
            return;
        }
        let path = if path.is_empty() {
            self.source.to_owned()
        } else {
            format!("{}: {path}", self.source)
        };
        let mut problem = Problem::new(code, path, message).hint(hint);
        if let Some(span) = span {
            let start = span.start.min(self.text.len());
            let line = self.line_starts.partition_point(|s| *s <= start);
            let from = self.line_starts[line - 1];
            let column = self.text.get(from..start).map_or(1, |t| t.chars().count() + 1);
            problem = problem.at(line, column);
            problem.source_line = self
                .text
                .get(from..)
                .and_then(|t| t.lines().next())
                .map(|l| l.chars().take(MOST_SHOWN).collect());
        }
        self.problems.push(problem);
    }

    /// The problems in reading order.
    pub(super) fn finish(mut self) -> Problems {
        self.problems
            .0
            .sort_by_key(|p| (p.line.unwrap_or(usize::MAX), p.column));
        self.problems
    }

    /// Reports keys that are not in `legal`.
    pub(super) fn only(&mut self, section: &Section<'a>, legal: &[&str]) {
        for key in section.table.keys() {
            let name = key.get_ref().as_ref();
            if !legal.contains(&name) && self.problems.0.len() < MOST_PROBLEMS {
                let shown: String = name.chars().take(60).collect();
                let hint = nearest(&shown, legal.iter().copied())
                    .map_or_else(String::new, |n| format!("the nearest key is `{n}`"));
                let place = if section.path.is_empty() {
                    String::new()
                } else {
                    format!(" in `{}`", section.path)
                };
                self.problem(
                    &codes::UNKNOWN_KEY,
                    Some(&key.span()),
                    &section.at(&shown),
                    format!("unknown key `{shown}`{place}"),
                    hint,
                );
            }
        }
    }

    /// A table value.
    pub(super) fn table(&mut self, value: &'a Value<'a>, path: String) -> Option<Section<'a>> {
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.wrong_type(value, &path, "a table");
        }
        found.map(|table| Section {
            table,
            path,
            span: value.span(),
        })
    }

    /// All tables of an array of tables, one table alone included.
    pub(super) fn tables(&mut self, section: &Section<'a>, names: &[&str]) -> Vec<Section<'a>> {
        let Some(value) = section.get(names) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(items) => {
                let items: Vec<&'a Value<'a>> = items.iter().collect();
                items
                    .into_iter()
                    .enumerate()
                    .filter_map(|(i, item)| self.table(item, section.at(&format!("{}[{i}]", names[0]))))
                    .collect()
            }
            _ => self.table(value, section.at(names[0])).into_iter().collect(),
        }
    }

    pub(super) fn wrong_type(&mut self, value: &Value<'_>, path: &str, wanted: &str) {
        let message = format!(
            "`{path}` is {} {}, not {wanted}",
            article(value.get_ref().type_str()),
            value.get_ref().type_str()
        );
        self.problem(
            &codes::BAD_VALUE,
            Some(&value.span()),
            path,
            message,
            format!("write {wanted}"),
        );
    }

    /// A string.
    pub(super) fn string(&mut self, section: &Section<'a>, names: &[&str]) -> Option<&'a str> {
        let value = section.get(names)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(value, &section.at(names[0]), "a string");
        }
        text
    }

    /// A list of strings; a single string counts as a list of one.
    pub(super) fn strings(&mut self, section: &Section<'a>, names: &[&str]) -> Vec<(&'a str, Range<usize>)> {
        let Some(value) = section.get(names) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::String(text) => vec![(text.as_ref(), value.span())],
            DeValue::Array(items) => {
                let mut found = Vec::new();
                for item in items {
                    match item.get_ref().as_str() {
                        Some(text) => found.push((text, item.span())),
                        None => self.wrong_type(item, &section.at(names[0]), "a list of strings"),
                    }
                }
                found
            }
            _ => {
                self.wrong_type(value, &section.at(names[0]), "a list of strings");
                Vec::new()
            }
        }
    }

    /// A boolean.
    pub(super) fn boolean(&mut self, section: &Section<'a>, names: &[&str]) -> Option<bool> {
        let value = section.get(names)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.wrong_type(value, &section.at(names[0]), "`true` or `false`");
        }
        found
    }

    /// A whole number from 1 to `most`.
    pub(super) fn count(&mut self, section: &Section<'a>, names: &[&str], most: u64) -> Option<u32> {
        let value = section.get(names)?;
        let path = section.at(names[0]);
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, &path, "a whole number");
            return None;
        };
        let parsed = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
        if (1..=i128::from(most)).contains(&parsed) {
            return Some(parsed as u32);
        }
        let shown: String = self
            .text
            .get(value.span())
            .unwrap_or("?")
            .chars()
            .take(40)
            .collect();
        self.problem(
            &codes::BAD_COUNT,
            Some(&value.span()),
            &path,
            format!("`{path}` is {shown}"),
            format!("write a whole number from 1 to {most}"),
        );
        None
    }

    /// A quantity: a string with a unit, or a bare number in base units; `hint` says what is implausible about a value.
    pub(super) fn quantity<T: Copy>(
        &mut self,
        section: &Section<'a>,
        names: &[&str],
        parse: fn(&str) -> Option<T>,
        example: &str,
        hint: impl Fn(T) -> Option<String>,
    ) -> Option<T> {
        let value = section.get(names)?;
        self.quantity_of(value, &section.at(names[0]), parse, example, hint)
    }

    /// The same for a value at hand.
    pub(super) fn quantity_of<T: Copy>(
        &mut self,
        value: &Value<'_>,
        path: &str,
        parse: fn(&str) -> Option<T>,
        example: &str,
        hint: impl Fn(T) -> Option<String>,
    ) -> Option<T> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => {
                self.wrong_type(value, path, &format!("a quantity such as {example}"));
                return None;
            }
        };
        let shown: String = text.chars().take(40).collect();
        let Some(parsed) = parse(text) else {
            let message = format!("`{path}` cannot be read: `{shown}`");
            self.problem(
                &codes::BAD_VALUE,
                Some(&value.span()),
                path,
                message,
                format!("write for example {example}"),
            );
            return None;
        };
        if let Some(hint) = hint(parsed) {
            let message = format!("`{path}` is implausible: `{shown}`");
            self.problem(&codes::IMPLAUSIBLE, Some(&value.span()), path, message, hint);
            return None;
        }
        Some(parsed)
    }

    /// A required key is absent.
    pub(super) fn missing(&mut self, section: &Section<'a>, key: &str, example: &str) {
        let place = if section.path.is_empty() {
            "the file".to_owned()
        } else {
            format!("`{}`", section.path)
        };
        self.problem(
            &codes::MISSING_KEY,
            Some(&section.span),
            &section.at(key),
            format!("{place} lacks `{key}`"),
            format!("add {example}"),
        );
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'i', 'o']) {
        "an"
    } else {
        "a"
    }
}
