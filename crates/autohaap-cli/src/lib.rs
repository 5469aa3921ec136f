//! Command line of `autohaap`: reads files and flags, calls the library, prints the answer. No domain logic lives here.

mod args;
mod budget;
mod cmd;
mod config;
mod input;
mod output;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use autohaap::error::Problems;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// An answer.
    Answer,
    /// A well-formed question with a negative answer.
    Negative,
    /// Bad usage or bad input.
    BadInput,
    /// Interrupted without any answer.
    Interrupted,
    /// A process of a run ended with this code.
    Child(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Answer => Self::from(0),
            ExitStatus::Negative => Self::from(1),
            ExitStatus::BadInput => Self::from(2),
            ExitStatus::Interrupted => Self::from(130),
            ExitStatus::Child(code) => Self::from(code),
        }
    }
}

/// Why a command has no answer.
pub(crate) enum Failure {
    /// Problems of the input, shown together.
    Problems(Problems),
    /// Standard output was closed by the reader.
    BrokenPipe,
    /// Ctrl-C before any answer.
    Interrupted,
}

/// Keeps the problems of an input, so that those of the next one are reported with them.
///
/// # Errors
/// What is no problem of an input, at once.
pub(crate) fn gather<T>(
    problems: &mut Problems,
    result: Result<T, impl Into<Failure>>,
) -> Result<Option<T>, Failure> {
    match result.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Problems(more)) => {
            problems.extend(more);
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Problems(problems)
    }
}

impl From<autohaap::error::Problem> for Failure {
    fn from(problem: autohaap::error::Problem) -> Self {
        Self::Problems(problem.into())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Problems(
            autohaap::error::Problem::new(
                &autohaap::error::usage::WRITE_FAILED,
                "stdout",
                format!("writing failed: {error}"),
            )
            .hint("check the disk and the reader of the pipe")
            .into(),
        )
    }
}

/// Runs the command with these arguments (the program's name first).
pub fn run(argv: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let json = ui::json_wanted(&argv);
    if let Some(status) = ui::version(&argv, json) {
        return status;
    }
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(error) => return ui::usage(&error, json),
    };
    ui::logging(&cli);
    let json = cli.json();
    let result = match &cli.command {
        Some(Command::Plan(a)) => cmd::plan::run(&cli, a),
        Some(Command::Estimate(a)) => cmd::estimate::run(&cli, a),
        Some(Command::Simulate(a)) => cmd::simulate::run(&cli, a),
        Some(Command::Launch(a)) => cmd::launch::run(&cli, a),
        Some(Command::Replan(a)) => cmd::replan::run(&cli, a),
        Some(Command::Compare(a)) => cmd::compare::run(&cli, a),
        Some(Command::Check(a)) => cmd::check::run(&cli, a),
        Some(Command::Report(a)) => cmd::report::run(&cli, a),
        Some(Command::Model(a)) => cmd::model::run(&cli, a),
        Some(Command::Devices(a)) => cmd::devices::run(&cli, a),
        Some(Command::Validate(a)) => cmd::validate::run(&cli, a),
        Some(Command::Calibrate(a)) => cmd::validate::calibrate(&cli, a),
        Some(Command::Import(a)) => cmd::import::run(&cli, a),
        Some(Command::Init(a)) => cmd::reference::init(&cli, a),
        Some(Command::Schema(a)) => cmd::reference::schema(a),
        Some(Command::Explain(a)) => cmd::reference::explain(&cli, a),
        Some(Command::Completions(a)) => cmd::reference::completions(a),
        Some(Command::Man) => cmd::reference::man(),
        None if cli.show_settings => config::show(&cli),
        None => return ui::help(json),
    };
    match result {
        Ok(status) => status,
        Err(Failure::BrokenPipe) => ExitStatus::Answer,
        Err(Failure::Interrupted) => ui::interrupted(json),
        Err(Failure::Problems(problems)) => {
            ui::problems(&problems, json);
            ExitStatus::BadInput
        }
    }
}
