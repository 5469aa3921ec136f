//! The text of a model file before and beside JSON: bare `NaN` and `Infinity`, limits, and the line of a key.

use crate::error::{Problem, Problems, model as codes};

/// Largest file that is read.
pub const MAX_INPUT_BYTES: usize = 32 << 20;
/// Most values in one file; a real configuration has a few thousand.
const MAX_VALUES: usize = 1_000_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 100;
/// What stands for a bare `NaN` or `Infinity` after [`tame`].
pub(super) const NON_FINITE: &str = "!";

/// Replaces bare `NaN`, `Infinity` and `-Infinity` outside strings by a text of the same length, so that Python's JSON
/// dialect parses with all lines and columns kept, and refuses texts that would cost too much to parse.
pub(super) fn tame(text: &str, source: &str) -> Result<String, Problems> {
    let refuse =
        |what: String, hint: &str| Problems::from(Problem::new(&codes::E211, source, what).hint(hint));
    if text.len() > MAX_INPUT_BYTES {
        return Err(refuse(
            format!(
                "file has {} bytes; at most {MAX_INPUT_BYTES} are read",
                text.len()
            ),
            "give the model's config.json, not its weights",
        ));
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut i, mut depth, mut values) = (0, 0, 0_usize, 0_usize);
    let mut in_string = false;
    while i < bytes.len() {
        let b = bytes[i];
        if in_string {
            match b {
                b'\\' => i += 1,
                b'"' => in_string = false,
                _ => {}
            }
            i += 1;
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(refuse(
                        format!("nesting is deeper than {MAX_DEPTH} levels"),
                        "model files need about five levels",
                    ));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => {
                values += 1;
                if values > MAX_VALUES {
                    return Err(refuse(
                        format!("file has more than {MAX_VALUES} values"),
                        "give the model's config.json, not an index or a tokenizer file",
                    ));
                }
            }
            b'N' | b'I' | b'-' => {
                let rest = &bytes[i..];
                if let Some(word) = [&b"NaN"[..], b"Infinity", b"-Infinity"]
                    .into_iter()
                    .find(|w| rest.starts_with(w))
                {
                    out.push_str(&text[copied..i]);
                    out.push_str("\"!\"");
                    out.extend(std::iter::repeat_n(' ', word.len() - 3));
                    i += word.len();
                    copied = i;
                    continue;
                }
            }
            _ => {}
        }
        i += 1;
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Where a key stands.
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) source_line: String,
}

/// Finds keys in the source text.
#[derive(Clone, Copy)]
pub(super) struct Locator<'a> {
    text: &'a str,
    arguments: bool,
}

impl<'a> Locator<'a> {
    /// For JSON.
    pub(super) fn json(text: &'a str) -> Self {
        Self {
            text,
            arguments: false,
        }
    }

    /// For `--key value` lists.
    pub(super) fn arguments(text: &'a str) -> Self {
        Self {
            text,
            arguments: true,
        }
    }

    /// Whether the text is an argument list.
    pub(super) fn is_arguments(&self) -> bool {
        self.arguments
    }

    /// The place of the last key of a dotted path, looked for after each of its parents.
    pub(super) fn find(&self, path: &str) -> Option<Place> {
        let mut from = 0;
        let mut found = None;
        for part in path.split('.') {
            let key = part.split('[').next().unwrap_or(part);
            if key.is_empty() {
                continue;
            }
            let at = self.key_after(key, from)?;
            found = Some(at);
            from = at + 1;
        }
        found.map(|at| self.place(at))
    }

    fn key_after(&self, key: &str, from: usize) -> Option<usize> {
        let needle = if self.arguments {
            format!("--{}", key.replace('_', "-"))
        } else {
            format!("\"{key}\"")
        };
        let mut start = from;
        while let Some(offset) = self.text.get(start..)?.find(&needle) {
            let at = start + offset;
            let rest = &self.text[at + needle.len()..];
            let next = rest.chars().next();
            let whole = if self.arguments {
                next.is_none_or(|c| c.is_whitespace() || c == '=')
            } else {
                rest.trim_start().starts_with(':')
            };
            if whole {
                return Some(at);
            }
            start = at + needle.len();
        }
        None
    }

    fn place(&self, at: usize) -> Place {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line_end = self.text[at..].find('\n').map_or(self.text.len(), |i| at + i);
        Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            source_line: clip(&self.text[line_start..line_end]),
        }
    }
}

/// A source line of at most 160 characters.
pub(super) fn clip(line: &str) -> String {
    let line = line.trim_end();
    if line.chars().count() > 160 {
        let head: String = line.chars().take(157).collect();
        format!("{head}...")
    } else {
        line.to_owned()
    }
}
