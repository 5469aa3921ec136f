//! Finds the place of a field path such as `pipelines[0].stages[1].atoms` in the text of a JSON file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// One step of a field path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if !key.is_empty() {
            steps.push(Step::Key(key));
        }
        while let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = after;
        }
    }
    Some(steps)
}

/// Line and column (1-based) of the value at `path`, or of its nearest parent that exists in the text.
pub fn locate(text: &str, path: &str) -> Option<(usize, usize)> {
    let mut here = text.trim_start();
    for step in steps(path)? {
        let next = match step {
            Step::Key(key) => serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(here)
                .ok()
                .and_then(|members| members.get(key).map(|v| v.get())),
            Step::Index(index) => serde_json::from_str::<Vec<&RawValue>>(here)
                .ok()
                .and_then(|items| items.get(index).map(|v| v.get())),
        };
        match next {
            Some(value) => here = value,
            None => break,
        }
    }
    let offset = (here.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let before = text.get(..offset)?;
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    Some((line, column))
}

/// A line of the text (1-based), cut to a printable length.
pub(super) fn source_line(text: &str, line: usize) -> Option<String> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    Some(line.chars().take(160).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_lines() {
        let text = "{\n  \"a\": [1,\n    {\"b\": true}]\n}";
        assert_eq!(locate(text, "a"), Some((2, 8)));
        assert_eq!(locate(text, "a[1].b"), Some((3, 11)));
        assert_eq!(locate(text, "a[1].c"), Some((3, 5)), "nearest parent");
        assert_eq!(locate(text, "a[x]"), None);
    }
}
