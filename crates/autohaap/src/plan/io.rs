//! Reading and writing plan files.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::limits::{MAX_PLAN_BYTES, limits};
use super::locate::{locate, source_line};
use super::{PLAN_SCHEMA, Plan, build};
use crate::cluster::Cluster;
use crate::error::{Code, Problem, Problems, nearest, plan as codes};
use crate::model::Model;

/// The fields that say what a file is; all others are skipped.
#[derive(Deserialize)]
struct FileHead {
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    created_by: Option<Value>,
    #[serde(default)]
    feasible: Option<Value>,
    #[serde(default)]
    pipelines: Option<IgnoredAny>,
}

impl Plan {
    /// Reads a plan file. `source_name` is what messages call the text. Figures per atom are derived again.
    pub fn from_json(text: &str, source_name: &str) -> Result<Self, Problems> {
        if text.len() > MAX_PLAN_BYTES {
            let message = format!(
                "`{}` bytes of text, at most {MAX_PLAN_BYTES} are read",
                text.len()
            );
            return Err(Problem::new(&codes::PLAN_TOO_LARGE, source_name, message).into());
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let reader = Reader { text, source_name };
        reader.known_schema()?;
        let mut plan = reader.plan()?;
        limits(&plan, source_name).or(())?;
        plan.model.figures = build::figures(&plan.model.model, plan.training.seq_len);
        Ok(plan)
    }

    /// The plan file as text: deterministic, and equal after saving, loading and saving again.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

struct Reader<'a> {
    text: &'a str,
    source_name: &'a str,
}

impl Reader<'_> {
    fn problem(&self, code: &'static Code, path: &str, message: impl Into<String>) -> Problem {
        let path = match path {
            "" | "." => self.source_name.to_owned(),
            path => format!("{}: {path}", self.source_name),
        };
        Problem::new(code, path, message)
    }

    /// Adds line, column and the source line.
    fn placed(&self, mut problem: Problem, place: Option<(usize, usize)>) -> Problem {
        if let Some((line, column)) = place.filter(|p| p.0 > 0) {
            problem = problem.at(line, column);
            problem.source_line = source_line(self.text, line);
        }
        problem
    }

    /// Refuses what is no JSON and what is no plan of this version, by name.
    fn known_schema(&self) -> Result<(), Problems> {
        let head: FileHead = serde_json::from_str(self.text).map_err(|e| self.unreadable(&e))?;
        match refusal(&head) {
            None => Ok(()),
            Some((message, hint)) => {
                let problem = self
                    .problem(&codes::PLAN_SCHEMA_VERSION, "schema", message)
                    .hint(hint);
                Err(self.placed(problem, locate(self.text, "schema")).into())
            }
        }
    }

    fn unreadable(&self, error: &serde_json::Error) -> Problem {
        let place = Some((error.line(), error.column()));
        let (code, hint) = if error.is_data() {
            (&codes::PLAN_SCHEMA_VERSION, "a plan file is one JSON object")
        } else {
            (&codes::PLAN_SYNTAX, "mend the line, or write the plan again")
        };
        self.placed(self.problem(code, "", words(error)).hint(hint), place)
    }

    fn plan(&self) -> Result<Plan, Problems> {
        let mut deserializer = serde_json::Deserializer::from_str(self.text);
        let plan = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
            let path = e.path().to_string();
            let inner = e.inner();
            let refined = matches!(path.as_str(), "model" | "cluster")
                .then(|| self.inside_record(&path))
                .flatten();
            refined.unwrap_or_else(|| self.field(&path, &words(inner), Some((inner.line(), inner.column()))))
        })?;
        Ok(plan)
    }

    /// Model and cluster records are read in one piece; finds the field inside that does not fit.
    fn inside_record(&self, record: &str) -> Option<Problem> {
        let mut file: Value = serde_json::from_str(self.text).ok()?;
        let value = file.get_mut(record)?.take();
        let Value::Object(mut members) = value else {
            return None;
        };
        if !matches!(members.remove("digest"), Some(Value::String(_))) {
            return None;
        }
        let error = if record == "model" {
            if let Some(figures) = members.remove("figures") {
                let figures = serde_path_to_error::deserialize::<_, Vec<super::AtomFigures>>(figures);
                if let Err(e) = figures {
                    return Some(self.refined(&format!("{record}.figures"), &e));
                }
            }
            serde_path_to_error::deserialize::<_, Model>(Value::Object(members)).err()
        } else {
            serde_path_to_error::deserialize::<_, Cluster>(Value::Object(members)).err()
        };
        error.map(|e| self.refined(record, &e))
    }

    fn refined(&self, record: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
        let inner = error.path().to_string();
        let path = match inner.as_str() {
            "." => record.to_owned(),
            index if index.starts_with('[') => format!("{record}{index}"),
            field => format!("{record}.{field}"),
        };
        self.field(&path, &words(error.inner()), locate(self.text, &path))
    }

    fn field(&self, path: &str, message: &str, place: Option<(usize, usize)>) -> Problem {
        let mut quoted = message.split('`').skip(1).step_by(2);
        let hint = if message.starts_with("unknown") {
            let given = quoted.next().unwrap_or_default().to_owned();
            nearest(&given, quoted).map(|n| format!("the nearest name is `{n}`"))
        } else if message.starts_with("missing field") {
            quoted
                .next()
                .map(|n| format!("add `{n}`; `autohaap schema plan` prints all fields"))
        } else {
            None
        };
        let hint =
            hint.unwrap_or_else(|| "`autohaap schema plan` prints all fields and their types".to_owned());
        let problem = self.problem(&codes::PLAN_FIELD, path, message).hint(hint);
        self.placed(problem, place)
    }
}

/// Why a file is not read, and what would be.
fn refusal(head: &FileHead) -> Option<(String, String)> {
    let wanted = format!("a plan file starts with `\"schema\": \"{PLAN_SCHEMA}\"`");
    let schema = match &head.schema {
        Some(Value::String(schema)) => schema.as_str(),
        Some(other) => {
            return Some((
                format!("`schema` is `{}`, not a text", short(&other.to_string())),
                wanted,
            ));
        }
        None => return Some(("the file names no `schema`".to_owned(), wanted)),
    };
    if head.feasible == Some(Value::Bool(false)) && head.pipelines.is_none() {
        return Some((
            "this is the answer of a search that found no plan".to_owned(),
            "relax what its `relaxations` name and run `autohaap plan` again".to_owned(),
        ));
    }
    if schema == PLAN_SCHEMA {
        return None;
    }
    let version = |s: &str| s.rsplit_once('@').and_then(|(_, v)| v.parse::<u64>().ok());
    let kind = |s: &str| s.split('@').next().unwrap_or(s).to_owned();
    let (own, given) = (version(PLAN_SCHEMA), version(schema));
    if kind(schema) != kind(PLAN_SCHEMA) || given <= own {
        return Some((format!("unknown schema `{}`", short(schema)), wanted));
    }
    let by = match &head.created_by {
        Some(Value::String(by)) if !by.is_empty() => format!(" (written by `{}`)", short(by)),
        _ => String::new(),
    };
    Some((
        format!("schema `{}` is newer than `{PLAN_SCHEMA}`{by}", short(schema)),
        "use the release that wrote the file, or plan again with this one".to_owned(),
    ))
}

/// The message of a JSON error without its position.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" at line ") {
        Some(end) if error.line() > 0 => &text[..end],
        _ => &text,
    };
    short(text)
}

/// At most 400 characters of a text that came from a file.
fn short(text: &str) -> String {
    if text.chars().count() <= 400 {
        return text.to_owned();
    }
    text.chars().take(400).chain("...".chars()).collect()
}
