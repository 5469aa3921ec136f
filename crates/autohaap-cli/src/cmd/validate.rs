//! `autohaap validate` and `autohaap calibrate`: predictions against measurements, and figures fitted on them.

use autohaap::profile::calibration::{self, Calibration};
use autohaap::validate::{self, Report, case, fit, oracle, screen};

use crate::args::{CalibrateArgs, Cli, ValidateArgs};
use crate::{ExitStatus, Failure, input, output};

/// Passes of a fit over its parameters.
const ROUNDS: usize = 16;

/// Runs `validate`.
pub(crate) fn run(cli: &Cli, args: &ValidateArgs) -> Result<ExitStatus, Failure> {
    let known = validate::published_cases()?;
    let fitted;
    let calibration = match &args.calibration {
        None => calibration::builtin(),
        Some(path) => {
            fitted = read_calibration(path)?;
            &fitted
        }
    };
    let (groups, rows) = match &args.cases {
        None if args.oracles.is_some() => (Vec::new(), Vec::new()),
        None => validate::compare(&known, &known, calibration),
        Some(path) => {
            let cases = case::read_cases(&input::read(path)?, path)?;
            validate::compare(&cases, &known, calibration)
        }
    };
    let oracles = match (&args.oracles, &args.cases) {
        (None, Some(_)) => Vec::new(),
        (None, None) => oracle::check(oracle::PUBLISHED, "oracles.csv")?,
        (Some(path), _) => oracle::check(&input::read(path)?, path)?,
    };
    let report = Report { groups, rows, oracles };
    if cli.json() {
        let mut answer = serde_json::to_value(&report).unwrap_or_default();
        if let Some(map) = answer.as_object_mut() {
            map.insert("schema".into(), "autohaap/validate@1".into());
            map.insert("ok".into(), report.holds().into());
        }
        output::print_json(&answer)?;
    } else {
        output::print(&screen::screen(&report))?;
    }
    Ok(if report.holds() {
        ExitStatus::Answer
    } else {
        ExitStatus::Negative
    })
}

fn read_calibration(path: &str) -> Result<Calibration, Failure> {
    toml::from_str(&input::read(path)?).map_err(|e| {
        autohaap::error::Problem::new(
            &autohaap::error::validate::CALIBRATION_FILE,
            path,
            e.message().to_owned(),
        )
        .hint("`autohaap calibrate -o FILE` writes such files")
        .into()
    })
}

/// Runs `calibrate`.
pub(crate) fn calibrate(cli: &Cli, args: &CalibrateArgs) -> Result<ExitStatus, Failure> {
    let cases = validate::published_cases()?;
    let samples = fit::samples(&cases, |_| true);
    let start = match &args.start {
        None => calibration::builtin().clone(),
        Some(path) => read_calibration(path)?,
    };
    let fitted = fit::fit(&samples, &start, ROUNDS);
    let _ = cli;
    let text = format!(
        "# Fitted figures: written by `autohaap calibrate --published`, read by the profile.\n\n{}",
        toml::to_string(&fitted).unwrap_or_default()
    );
    match &args.output {
        Some(path) => output::write_file(path, &text)?,
        None => output::print(&text)?,
    }
    Ok(ExitStatus::Answer)
}
