//! `autohaap validate` and `autohaap calibrate`: predictions against measurements, and figures fitted on them.

use autohaap::profile::calibration::{self, Calibration};
use autohaap::validate::{self, Report, case, express, fit, oracle, own, screen};

use crate::args::{ByArg, CalibrateArgs, Cli, ValidateArgs};
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
        None => {
            let (mut groups, rows) = validate::compare(&known, &known, calibration);
            validate::without_calibration(&mut groups, &known);
            (groups, rows)
        }
        Some(path) => {
            let cases = case::read_cases(&input::read(path)?, path)?;
            let (mut groups, rows) = validate::compare(&cases, &known, calibration);
            validate::without_calibration(&mut groups, &cases);
            (groups, rows)
        }
    };
    let oracles = match (&args.oracles, &args.cases) {
        (None, Some(_)) => Vec::new(),
        (None, None) => oracle::check(oracle::PUBLISHED, "oracles.csv")?,
        (Some(path), _) => oracle::check(&input::read(path)?, path)?,
    };
    let report = Report {
        groups,
        rows,
        oracles,
    };
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
    if let Some(group) = &args.held_out {
        return held_out(cli, group, args.by);
    }
    let text = if args.published {
        let start = match &args.start {
            None => calibration::builtin().clone(),
            Some(path) => read_calibration(path)?,
        };
        let samples = fit::samples(&validate::published_cases()?, |_| true);
        let fitted = fit::fit(&samples, &start, ROUNDS);
        format!(
            "# Fitted figures: written by `autohaap calibrate --published`, read by the profile.\n\n{}",
            toml::to_string(&fitted).unwrap_or_default()
        )
    } else {
        measured(args)?
    };
    match &args.output {
        Some(path) => output::write_file(path, &text)?,
        None => output::print(&text)?,
    }
    Ok(ExitStatus::Answer)
}

/// A part of a cluster file from the user's own measurements.
fn measured(args: &CalibrateArgs) -> Result<String, Failure> {
    let mut points = Vec::new();
    let mut cases = Vec::new();
    for file in &args.files {
        match own::read(&input::read(file)?, file, args.ranks)? {
            own::Measured::Link(more) => points.extend(more),
            own::Measured::Steps(more) => cases.extend(more),
        }
    }
    let nothing = |message: &str, hint: &str| {
        autohaap::error::Problem::new(
            &autohaap::error::validate::NOTHING_TO_FIT,
            args.files.join(", "),
            message.to_owned(),
        )
        .hint(hint)
    };
    let mut text = String::from("# Part of a cluster file, written by `autohaap calibrate`.\n\n");
    if cases.is_empty() && points.is_empty() {
        return Err(nothing(
            "no measurement is given",
            "pass nccl-tests output or a CSV of step times",
        )
        .into());
    }
    let samples = fit::samples(&cases, |_| true);
    if !cases.is_empty() && samples.is_empty() {
        let reason = cases
            .iter()
            .find_map(|c| express::express(c).err())
            .unwrap_or_else(|| "no row holds a step time".into());
        return Err(nothing(&reason, "see the columns of `data/published/*/cases.csv`").into());
    }
    let fitted = (!samples.is_empty()).then(|| fit::fit(&samples, calibration::builtin(), ROUNDS));
    let mut devices: Vec<autohaap::cluster::DeviceType> = Vec::new();
    if let Some(name) = &args.device {
        devices.push(autohaap::cluster::find_device(name)?.device_type);
    }
    for device in samples.iter().flat_map(fit::Sample::devices) {
        if !devices.iter().any(|d| d.name == device.name) {
            devices.push(device.clone());
        }
    }
    if devices.is_empty() {
        return Err(nothing(
            "the device is not named",
            "say which device it was: `--device A100-SXM-80GB`",
        )
        .into());
    }
    for device in &devices {
        let own_link = args.device.is_none() || args.device.as_ref().is_some_and(|_| device == &devices[0]);
        let link: &[autohaap::cluster::LinkPoint] = if own_link { &points } else { &[] };
        text += &own::fragment(device, fitted.as_ref(), link);
        if let Some(f) = fitted.as_ref() {
            let basis = fit::remaining(&samples, f);
            text += &format!(
                "# {} step times, mean error left {:.1} %\n",
                samples.len(),
                100.0 * basis
            );
        }
        text.push('\n');
    }
    Ok(text)
}

/// Errors of a group with each model, run or plan family left out of the fit.
fn held_out(cli: &Cli, group: &str, by: ByArg) -> Result<ExitStatus, Failure> {
    let by = match by {
        ByArg::Model => fit::HoldOut::Model,
        ByArg::Run => fit::HoldOut::Run,
        ByArg::Family => fit::HoldOut::Family,
    };
    let errors = fit::held_out(&validate::published_cases()?, group, by, ROUNDS);
    let sizes: Vec<f64> = errors.iter().map(|(_, e)| e.abs()).collect();
    let mape = validate::statistics::mean_absolute(&sizes);
    let max = sizes.iter().copied().fold(0.0, f64::max);
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/held-out@1", "group": group, "n": errors.len(), "mape": mape, "max": max,
            "rows": errors.iter().map(|(id, e)| serde_json::json!({ "id": id, "error": e })).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut text = format!(
            "{group}: {} step times, each predicted by a fit without its kind: mean {:.1} %, max {:.1} %\n",
            errors.len(),
            100.0 * mape,
            100.0 * max
        );
        for (id, error) in &errors {
            text += &format!("  {id:<12} {:+.1} %\n", 100.0 * error);
        }
        output::print(&text)?;
    }
    Ok(ExitStatus::Answer)
}
