//! `autohaap report`: one self-contained HTML page about a plan.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::plan::Plan;
use autohaap::report::{Page, html_page};
use autohaap::simulate::{self, simulate};

use crate::args::{Cli, ReportArgs};
use crate::{ExitStatus, Failure, input, output, ui};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &ReportArgs) -> Result<ExitStatus, Failure> {
    output::keeps_inputs(Some(&args.output), &[&args.plan])?;
    let mut plan = input::plan(&args.plan)?;
    if cli.anonymize {
        plan = plan.anonymized();
    }
    let page = page(&mut plan)?;
    if args.output.as_os_str() == "-" {
        output::print(&page)?;
    } else {
        output::write_file(&args.output, &page)?;
        if !cli.quiet {
            ui::say(&format!(
                "wrote {}, {:.0} kB; open it in any browser",
                args.output.display(),
                page.len() as f64 / 1e3
            ));
        }
    }
    Ok(ExitStatus::Answer)
}

/// The page of a plan, priced afresh: what a file says of its time is not believed.
pub(crate) fn page(plan: &mut Plan) -> Result<String, Failure> {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    let (mut prediction, _) = price(&setting, &plan.pipelines, &mut Cache::default())?;
    if let Some(old) = &plan.prediction {
        prediction.bound_s = old.bound_s;
        prediction.bound_space.clone_from(&old.bound_space);
        prediction.gap = prediction
            .bound_s
            .map(|b| ((prediction.step_time_s.0 - b.0) / prediction.step_time_s.0).max(0.0));
    }
    plan.prediction = Some(prediction.clone());
    let simulation = simulate(plan, &simulate::Options::default())?;
    let commands = ["check", "estimate", "simulate"].map(|verb| format!("autohaap {verb} plan.json"));
    Ok(html_page(&Page {
        plan,
        prediction: &prediction,
        timeline: Some(&simulation.timeline),
        commands: &commands,
        notes: &[],
    })?)
}
