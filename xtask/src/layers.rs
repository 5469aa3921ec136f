//! The module order of the library: a module uses earlier layers only.
//!
//! Paths are found in the token stream (comments and strings do not count): `crate::x`, `crate::{x, y}`, and `super::`
//! chains that reach the crate root, from inline modules too.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Layers from the floor up. Modules of one layer stand side by side and do not use each other.
/// `error` is used by all and uses `units` only.
const LAYERS: &[&[&str]] = &[
    &["units"],
    &["error"],
    &["model"],
    &["cluster"],
    &["profile"],
    &["plan"],
    &["engine"],
    &["cost"],
    &["simulate"],
    &["search"],
    &["validate", "replan", "size", "export", "launch"],
    &["report"],
];

/// One forbidden use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackEdge {
    file: PathBuf,
    line: usize,
    from: String,
    to: String,
}

impl fmt::Display for BackEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, from, to } = self;
        let why = match (layer(from), layer(to)) {
            (None, _) => format!("`{from}` is not in the layer table of xtask/src/layers.rs"),
            (_, None) => format!("`crate::{to}` is not a module of the layer table"),
            _ => format!("`{from}` uses `{to}`, which is not an earlier module"),
        };
        write!(f, "{}:{line}: {why}", file.display())
    }
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let source = root.join("crates/autohaap/src");
    let (files, edges) = check(&source)?;
    if edges.is_empty() {
        println!("layers: {files} files, no back-edge");
        return Ok(());
    }
    for edge in &edges {
        println!("{edge}");
    }
    bail!("{} back-edges; order: {}", edges.len(), order());
}

fn order() -> String {
    let names: Vec<String> = LAYERS.iter().map(|l| l.join("|")).collect();
    names.join(" < ")
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&module))
}

fn allowed(from: &str, to: &str) -> bool {
    match (layer(from), layer(to)) {
        (Some(a), Some(b)) => from == to || b < a,
        _ => false,
    }
}

/// All files below `source` and their back-edges, in path order.
fn check(source: &Path) -> Result<(usize, Vec<BackEdge>)> {
    let mut files = Vec::new();
    collect(source, &mut files)?;
    files.sort();
    let mut edges = Vec::new();
    for file in &files {
        let path = module_path(file.strip_prefix(source)?);
        let Some(from) = path.first() else { continue };
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (line, to) in uses(&path, &text) {
            if !allowed(from, &to) {
                edges.push(BackEdge {
                    file: file.clone(),
                    line,
                    from: from.clone(),
                    to,
                });
            }
        }
    }
    Ok((files.len(), edges))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// `cost/atom.rs` is `[cost, atom]`, `cost/mod.rs` is `[cost]`, `lib.rs` is the root.
fn module_path(relative: &Path) -> Vec<String> {
    let mut path: Vec<String> = relative
        .with_extension("")
        .components()
        .map(|c| c.as_os_str().to_string_lossy().into_owned())
        .collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// Top-level modules that the text of module `path` names, with the line.
fn uses(path: &[String], text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut found = Vec::new();
    let mut braces = 0_usize;
    let mut inline: Vec<usize> = Vec::new(); // brace depth inside each open inline module
    let mut i = 0;
    while i < tokens.len() {
        match word(i) {
            "{" => {
                braces += 1;
                if i >= 2 && word(i - 2) == "mod" {
                    inline.push(braces);
                }
            }
            "}" => {
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
                braces = braces.saturating_sub(1);
            }
            "crate" if word(i + 1) == "::" => roots(&tokens, i + 2, &mut found),
            "super" if i == 0 || word(i - 1) != "::" => {
                let mut ups = 0;
                let mut next = i;
                while word(next) == "super" && word(next + 1) == "::" {
                    ups += 1;
                    next += 2;
                }
                if ups > 0 && ups >= path.len() + inline.len() {
                    roots(&tokens, next, &mut found);
                }
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// First names of the path or group that starts at token `at`; macros (`name!`) and globs do not count.
fn roots(tokens: &[Token], at: usize, found: &mut Vec<(usize, String)>) {
    let Some(first) = tokens.get(at) else { return };
    if first.text != "{" {
        let is_macro = tokens.get(at + 1).is_some_and(|t| t.text == "!");
        if first.is_word() && !is_macro {
            found.push((first.line, first.text.clone()));
        }
        return;
    }
    let mut depth = 0_usize;
    let mut expect_name = false;
    for token in &tokens[at..] {
        match token.text.as_str() {
            "{" => {
                depth += 1;
                expect_name = depth == 1;
            }
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
            "," if depth == 1 => expect_name = true,
            _ if depth == 1 && expect_name => {
                if token.is_word() && token.text != "self" {
                    found.push((token.line, token.text.clone()));
                }
                expect_name = false;
            }
            _ => {}
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
}

impl Token {
    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Words, `::` and single punctuation characters; comments, strings and character literals are left out.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut i = 0;
    while i < chars.len() {
        let start = i;
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            while i < chars.len() {
                if at(i) == '/' && at(i + 1) == '*' {
                    depth += 1;
                    i += 2;
                } else if at(i) == '*' && at(i + 1) == '/' {
                    depth -= 1;
                    i += 2;
                    if depth == 0 {
                        break;
                    }
                } else {
                    i += 1;
                }
            }
        } else if c == '"' {
            i = skip_string(&chars, i);
        } else if c == '\'' {
            // A lifetime is a quote and a word without a closing quote.
            if at(i + 1) == '\\' {
                i += 3;
                while i < chars.len() && chars[i] != '\'' {
                    i += 1;
                }
                i += 1;
            } else if at(i + 2) == '\'' {
                i += 3;
            } else {
                i += 1;
            }
        } else if c.is_alphabetic() || c == '_' {
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            let word: String = chars[start..i].iter().collect();
            let raw = matches!(word.as_str(), "r" | "br" | "cr");
            if raw && (at(i) == '"' || at(i) == '#' && matches!(at(i + 1), '"' | '#')) {
                i = skip_raw_string(&chars, i);
            } else {
                tokens.push(Token { line, text: word });
            }
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push(Token {
                line,
                text: "::".into(),
            });
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(Token { line, text: c.into() });
            }
            i += 1;
        }
        i = i.min(chars.len());
        line += chars[start..i].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// The position after the string literal that opens at `i`.
fn skip_string(chars: &[char], mut i: usize) -> usize {
    i += 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// The position after the raw string whose hashes or quote start at `i`.
fn skip_raw_string(chars: &[char], mut i: usize) -> usize {
    let mut hashes = 0;
    while chars.get(i) == Some(&'#') {
        hashes += 1;
        i += 1;
    }
    i += 1;
    while i < chars.len() {
        if chars[i] == '"' && (1..=hashes).all(|k| chars.get(i + k) == Some(&'#')) {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &[&str], text: &str) -> Vec<(usize, String)> {
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        uses(&path, text)
    }

    #[test]
    fn library_has_no_back_edge() {
        let source = crate::root().unwrap().join("crates/autohaap/src");
        let (files, edges) = check(&source).unwrap();
        assert!(files > 10, "only {files} files found below {}", source.display());
        let lines: Vec<String> = edges.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "back-edges:\n{}", lines.join("\n"));
    }

    #[test]
    fn order_allows_earlier_modules_only() {
        assert!(allowed("cost", "plan"));
        assert!(allowed("plan", "plan"));
        assert!(!allowed("plan", "cost"));
        assert!(allowed("error", "units"));
        assert!(!allowed("error", "model"));
        assert!(!allowed("units", "error"));
        assert!(
            !allowed("launch", "export"),
            "modules of one layer stand side by side"
        );
        assert!(!allowed("cost", "Plan"), "root re-exports hide the module");
    }

    #[test]
    fn finds_plain_and_grouped_paths() {
        let text = "use crate::plan::Plan;\nuse crate::{\n  model::{Atom, search},\n  search,\n};\nfn f() { crate::cost::g() }";
        let expected = [(1, "plan"), (3, "model"), (4, "search"), (6, "cost")];
        assert_eq!(named(&["cost"], text), expected.map(|(l, m)| (l, m.to_string())));
    }

    #[test]
    fn finds_super_chains_that_reach_the_root() {
        assert_eq!(
            named(&["cost"], "use super::search::Budget;"),
            [(1, "search".into())]
        );
        assert_eq!(named(&["cost", "atom"], "use super::price::X;"), []);
        assert_eq!(
            named(&["cost", "atom"], "use super::super::plan::X;"),
            [(1, "plan".into())]
        );
        let inline = "mod tests {\n use super::x;\n use super::super::search::y;\n}\nuse super::plan::z;";
        assert_eq!(
            named(&["cost"], inline),
            [(3, "search".into()), (5, "plan".into())]
        );
    }

    #[test]
    fn leaves_out_comments_strings_and_macros() {
        let text = "//! [`crate::search`]\n/* crate::search /* nested */ */\nlet a = \"crate::search\\\"\";\n\
                    let b = r#\"crate::search \"quoted\" \"#; let c: &'static str = x; let d = '\"';\n\
                    crate::quantity!(X); let e = '\\''; crate::units::f();";
        assert_eq!(named(&["cost"], text), [(5, "units".into())]);
    }

    #[test]
    fn module_paths_follow_the_files() {
        assert_eq!(module_path(Path::new("cost/atom.rs")), ["cost", "atom"]);
        assert_eq!(module_path(Path::new("cost/mod.rs")), ["cost"]);
        assert_eq!(module_path(Path::new("units.rs")), ["units"]);
        assert!(module_path(Path::new("lib.rs")).is_empty());
    }
}
