//! What-ifs: flags to options, and the spread of the step time under jitter.

use super::engine::execute;
use super::options::{Choice, Name, Options, SlowLink};
use super::program::{Jitter, Program};
use super::schedule::csv;
use crate::error::{Problem, Problems, simulate as codes};
use crate::units::Seconds;

fn bad(flag: &str, message: String, hint: &str) -> Problem {
    Problem::new(&codes::BAD_WHAT_IF, flag, message).hint(hint)
}

/// `NAME=1.8x` to its parts.
fn factor<'t>(flag: &str, text: &'t str) -> Result<(&'t str, f64), Problem> {
    let hint = "write for example `node0=1.8x`";
    let Some((name, value)) = text.rsplit_once('=') else {
        return Err(bad(flag, format!("`{text}` has no `=`"), hint));
    };
    let number: Option<f64> = value.trim().trim_end_matches(['x', 'X']).trim().parse().ok();
    match number.filter(|f| (0.01..=1000.0).contains(f)) {
        Some(number) if !name.trim().is_empty() => Ok((name.trim(), number)),
        _ => Err(bad(
            flag,
            format!("`{text}` is no name and factor between 0.01 and 1000"),
            hint,
        )),
    }
}

/// Adds `--slow NODE=FACTOR`.
///
/// # Errors
/// Text of another form.
pub fn slow_node(options: &mut Options, text: &str) -> Result<(), Problem> {
    let (name, factor) = factor("--slow", text)?;
    options.slow_nodes.push((name.to_owned(), factor));
    Ok(())
}

/// Adds `--slow-link NODE=FACTOR` or `PIPELINE.STAGE=FACTOR`.
///
/// # Errors
/// Text of another form.
pub fn slow_link(options: &mut Options, text: &str) -> Result<(), Problem> {
    let (name, factor) = factor("--slow-link", text)?;
    let boundary = name
        .split_once('.')
        .and_then(|(p, s)| Some(SlowLink::Boundary(p.parse().ok()?, s.parse().ok()?)));
    let link = boundary.unwrap_or_else(|| SlowLink::Node(name.to_owned()));
    options.slow_links.push((link, factor));
    Ok(())
}

/// Sets `--jitter 5%`.
///
/// # Errors
/// Text of another form.
pub fn jitter(options: &mut Options, text: &str, seed: u64) -> Result<(), Problem> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|p: f64| p / 100.0),
        None => text.parse(),
    };
    let share = share.ok().filter(|s| (0.0..=1.0).contains(s));
    let share = share.ok_or_else(|| {
        bad(
            "--jitter",
            format!("`{text}` is no share between 0 and 100 %"),
            "write for example `5%`",
        )
    })?;
    options.jitter = Some((share, seed));
    Ok(())
}

/// Sets `--depth +1`.
///
/// # Errors
/// Text of another form.
pub fn depth(options: &mut Options, text: &str) -> Result<(), Problem> {
    let number = text
        .trim()
        .trim_start_matches('+')
        .parse()
        .ok()
        .filter(|n| *n <= 1000);
    options.more_in_flight = number.ok_or_else(|| {
        bad(
            "--depth",
            format!("`{text}` is no number to add"),
            "write for example `+1`",
        )
    })?;
    Ok(())
}

/// Sets `--schedule NAME`; file names are for the caller to read and pass to [`schedule_text`].
///
/// # Errors
/// Unknown names.
pub fn schedule_name(options: &mut Options, name: &str) -> Result<(), Problem> {
    let names: Vec<&str> = Name::ALL.iter().map(|n| n.0).collect();
    let parsed = Name::parse(name).ok_or_else(|| {
        Problem::new(
            &codes::UNFIT_SCHEDULE,
            "--schedule",
            format!("no schedule is called `{name}`"),
        )
        .hint(format!(
            "one of {}, or a file that ends in .csv",
            names.join(", ")
        ))
    })?;
    options.schedule = Choice::Named(parsed);
    Ok(())
}

/// Sets the orders of schedule files, one for all pipelines or one each.
///
/// # Errors
/// As [`csv::read`].
pub fn schedule_text(options: &mut Options, files: &[(String, String)]) -> Result<(), Problems> {
    let mut orders = Vec::with_capacity(files.len());
    let mut problems = Problems::new();
    for (path, text) in files {
        match csv::read(text, path) {
            Ok(order) => orders.push(order),
            Err(found) => problems.0.extend(found.0),
        }
    }
    problems.or(())?;
    options.schedule = Choice::Orders(orders);
    Ok(())
}

/// Step times of several draws of the jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Draws.
    pub draws: usize,
    /// Mean.
    pub mean: Seconds,
    /// Least.
    pub least: Seconds,
    /// Value that 95 % of the draws stay below.
    pub p95: Seconds,
    /// Most.
    pub most: Seconds,
}

/// Draws the jitter `draws` times with following seeds; None without jitter.
///
/// # Errors
/// As [`execute`].
pub fn spread(program: &Program, draws: usize) -> Result<Option<Spread>, Problem> {
    let Some(jitter) = program.jitter else {
        return Ok(None);
    };
    let mut program = program.clone();
    let mut steps = Vec::with_capacity(draws);
    for draw in 0..draws.max(1) as u64 {
        program.jitter = Some(Jitter {
            seed: jitter.seed.wrapping_add(draw),
            ..jitter
        });
        steps.push(execute(&program, false)?.step);
    }
    steps.sort_by(f64::total_cmp);
    let at = |share: f64| Seconds(steps[((steps.len() - 1) as f64 * share).round() as usize]);
    Ok(Some(Spread {
        draws: steps.len(),
        mean: Seconds(steps.iter().sum::<f64>() / steps.len() as f64),
        least: at(0.0),
        p95: at(0.95),
        most: at(1.0),
    }))
}
