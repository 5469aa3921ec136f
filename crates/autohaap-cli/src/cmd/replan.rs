//! `autohaap replan`: a new plan after a change of the cluster, and what moves.

use autohaap::plan::Plan;
use autohaap::replan::{Change, changed, moves};
use autohaap::search::{Outcome, SearchOptions, search as find};
use autohaap::simulate;
use serde_json::json;

use crate::args::{Cli, ReplanArgs};
use crate::budget::Watch;
use crate::{ExitStatus, Failure, input, output};

/// Largest micro-batch tried, as in `plan`.
const MAX_MICRO_BATCH: u32 = 8;
/// Lines of moves that the screen shows.
const SHOWN: usize = 12;

/// The best plan of the old plan's model and training on the changed cluster.
pub(crate) fn search(plan: &Plan, change: &Change, quick: bool) -> Result<Plan, Failure> {
    let cluster = changed(plan, change)?;
    let options = SearchOptions {
        zero: vec![plan.training.zero],
        // Work should go on: the shapes of the old plan are tried first.
        start: plan.pipelines.clone(),
        quick,
        max_micro_batch: MAX_MICRO_BATCH,
        ..SearchOptions::default()
    };
    let watch = Watch::start(None, false);
    let outcome = find(&plan.model.model, &cluster, &plan.training, &options, &watch);
    watch.finish();
    match outcome? {
        Outcome::Found(mut new) => {
            new.alternatives = None;
            simulate::record(&mut new)?;
            Ok(*new)
        }
        // A quick search that finds nothing has proven nothing: only a whole one may say so.
        Outcome::Infeasible(_) if quick => search(plan, change, false),
        Outcome::Infeasible(none) => Err(autohaap::error::Problem::new(
            &autohaap::error::runtime::BAD_REPLAN,
            "cluster",
            format!("no plan fits what is left: {}", none.reasons.join("; ")),
        )
        .hint(none.relaxations.join("; "))
        .into()),
    }
}

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &ReplanArgs) -> Result<ExitStatus, Failure> {
    let old = input::plan(&args.plan)?;
    let change = Change {
        without: args.without.clone(),
        slow: args.slow.clone(),
        add: args.add.clone(),
    };
    output::keeps_inputs(args.output.as_deref(), &[&args.plan])?;
    let began = std::time::Instant::now();
    let new = search(&old, &change, !args.thorough)?;
    let moved = moves(&old, &new);
    let wall = began.elapsed().as_secs_f64();
    if let Some(path) = &args.output {
        output::write_file(path, &new.to_json())?;
    }
    let total: f64 = moved.iter().map(|m| m.bytes.0).sum();
    let step = |plan: &Plan| plan.prediction.as_ref().map(|p| p.step_time_s);
    if cli.json() {
        output::print_json(&json!({
            "schema": "autohaap/replan@1",
            "plan": new,
            "moves": moved,
            "bytes": total,
            "old_step_time_s": step(&old),
            "step_time_s": step(&new),
            "wall_s": wall,
        }))?;
        return Ok(ExitStatus::Answer);
    }
    let time = |plan: &Plan| step(plan).map_or("unknown".to_owned(), |s| s.to_string());
    let mut text = format!(
        "step {} -> {}, found in {wall:.2} s\n{} slices of training state move, {:.2} GiB\n",
        time(&old),
        time(&new),
        moved.len(),
        total / f64::from(1 << 30),
    );
    for m in moved.iter().take(SHOWN) {
        text.push_str(&format!(
            "  atom {:>3} {:<24} [{:.3}, {:.3}) {:>10.2} MiB  {} -> {}\n",
            m.atom,
            m.weight,
            m.share[0],
            m.share[1],
            m.bytes.0 / f64::from(1 << 20),
            m.from.as_deref().unwrap_or("checkpoint"),
            m.to
        ));
    }
    if moved.len() > SHOWN {
        text.push_str(&format!(
            "  ... and {} more (`--format json` lists all)\n",
            moved.len() - SHOWN
        ));
    }
    if let Some(path) = &args.output {
        text.push_str(&format!(
            "wrote {0}; `autohaap launch {0} --config train.toml --resume` goes on under it\n",
            path.display()
        ));
    }
    output::print(&text)?;
    Ok(ExitStatus::Answer)
}
