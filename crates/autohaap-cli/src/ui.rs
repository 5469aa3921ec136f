//! Everything that reaches stderr: problems, usage errors, notes.

use std::ffi::OsString;
use std::io::Write;

use autohaap::error::{Problem, Problems, usage as codes};
use clap::CommandFactory;

use crate::ExitStatus;
use crate::args::{Cli, Color};

/// A line on stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Whether the arguments ask for JSON, known before they are parsed: the flag, else `AUTOHAAP_FORMAT`.
pub(crate) fn json_wanted(argv: &[OsString]) -> bool {
    let text: Vec<_> = argv
        .iter()
        .map(|a| a.to_string_lossy())
        .take_while(|a| a != "--")
        .collect();
    let value = text
        .iter()
        .enumerate()
        .find_map(|(i, a)| match a.strip_prefix("--format") {
            Some("") => Some(text.get(i + 1).map_or("", |v| v.as_ref())),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        });
    match value {
        Some(value) => value == "json",
        None => std::env::var_os("AUTOHAAP_FORMAT").is_some_and(|v| v == "json"),
    }
}

/// `--version --format json`.
pub(crate) fn version(argv: &[OsString], json: bool) -> Option<ExitStatus> {
    let asked = argv.iter().any(|a| a == "--version" || a == "-V");
    if !asked || !json {
        return None;
    }
    let answer = serde_json::json!({
        "schema": "autohaap/version@1",
        "version": env!("CARGO_PKG_VERSION"),
        "plan_schema": autohaap::plan::PLAN_SCHEMA,
        "devices": autohaap::cluster::catalogue().len(),
        "presets": autohaap::model::preset_ids().len(),
    });
    let _ = writeln!(anstream::stdout(), "{answer:#}");
    Some(ExitStatus::Answer)
}

/// Sets colour and logging.
pub(crate) fn logging(cli: &Cli) {
    match cli.color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => tracing::Level::ERROR,
        (false, 0) => tracing::Level::WARN,
        (false, 1) => tracing::Level::INFO,
        (false, _) => tracing::Level::DEBUG,
    };
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .try_init();
}

/// Prints the short help: no verb was given.
pub(crate) fn help(json: bool) -> ExitStatus {
    if json {
        let problem = Problem::new(&codes::BAD_USAGE, "command line", "no verb was given")
            .hint("`autohaap --help` lists the verbs");
        problems(&problem.into(), true);
        return ExitStatus::BadInput;
    }
    let _ = write!(anstream::stderr(), "{}", Cli::command().render_help());
    ExitStatus::BadInput
}

/// A usage error of the argument parser, or help and version, which are answers.
pub(crate) fn usage(error: &clap::Error, json: bool) -> ExitStatus {
    use clap::error::ErrorKind;
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = write!(anstream::stdout(), "{}", error.render().ansi());
        return ExitStatus::Answer;
    }
    let text = error.render().to_string();
    let (message, hint) = match text.split_once("\n\n") {
        Some((first, rest)) => (
            first.trim_start_matches("error: ").to_owned(),
            rest.trim().to_owned(),
        ),
        None => (
            text.trim_start_matches("error: ").trim().to_owned(),
            String::new(),
        ),
    };
    let problem = Problem::new(&codes::BAD_USAGE, "command line", message.replace('\n', " ")).hint(hint);
    problems(&problem.into(), json);
    ExitStatus::BadInput
}

/// Ctrl-C before any answer.
pub(crate) fn interrupted(json: bool) -> ExitStatus {
    if json {
        let problem = Problem::new(&codes::INTERRUPTED, "", "interrupted before any plan was found")
            .hint("let the search run until its progress line shows a best step");
        problems(&problem.into(), true);
    } else {
        say("interrupted before any plan was found");
    }
    ExitStatus::Interrupted
}

/// Problems on stderr: one JSON object, or each in the shape of a compiler message.
pub(crate) fn problems(problems: &Problems, json: bool) {
    if json {
        let errors = serde_json::json!({ "errors": problems.0 });
        let _ = writeln!(anstream::stderr(), "{errors}");
        return;
    }
    let mut stream = anstream::stderr();
    for (i, p) in problems.0.iter().enumerate() {
        if i > 0 {
            let _ = writeln!(stream);
        }
        let _ = write!(stream, "{}", render(p));
    }
}

/// One problem as text.
pub(crate) fn render(p: &Problem) -> String {
    let bold = anstream_style(true);
    let plain = anstream_style(false);
    let mut text = format!("{bold}error[{}]{plain}: {}\n", p.code.id, p.message);
    let place = match (p.line, p.column) {
        (Some(line), Some(column)) => format!("{}:{line}:{column}", p.path),
        (Some(line), None) => format!("{}:{line}", p.path),
        _ => p.path.clone(),
    };
    if !place.is_empty() {
        text += &format!("  at {place}\n");
    }
    if let (Some(line), Some(source)) = (p.line, &p.source_line) {
        text += &format!("{line:>4} | {source}\n");
    }
    if !p.hint.is_empty() {
        text += &format!("\nhint: {}\n", p.hint);
    }
    text
}

fn anstream_style(on: bool) -> &'static str {
    if on { "\u{1b}[1m" } else { "\u{1b}[0m" }
}
