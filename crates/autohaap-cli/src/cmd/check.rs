//! `autohaap check`: proves a plan legal, or lists every violation.

use autohaap::cost::atom::Setting;
use autohaap::cost::price::{Cache, price};
use autohaap::error::{Problem, usage as codes};
use autohaap::plan::{Grade, Plan, advise, check, conservation};
use autohaap::report;

use crate::args::{CheckArgs, Cli};
use crate::{ExitStatus, Failure, input, output};

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &CheckArgs) -> Result<ExitStatus, Failure> {
    if let Some(engine) = &args.engine {
        return Err(Problem::new(
            &codes::NOT_AVAILABLE,
            "--engine",
            format!("`{engine}` is not available"),
        )
        .hint("this version checks no engine limits; leave the flag out")
        .into());
    }
    let mut plan = input::plan(&args.plan)?;
    if cli.anonymize {
        plan = plan.anonymized();
    }
    let mut violations = check(&plan);
    violations.extend(predicted(&plan, violations.is_empty()));
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/check@1",
            "ok": violations.is_empty(),
            "violations": violations,
            "advice": advise(&plan),
            "conservation": conservation(&plan),
        }))?;
    } else {
        output::print(&report::check_screen(&plan, &violations, &advise(&plan)))?;
    }
    Ok(if violations.is_empty() {
        ExitStatus::Answer
    } else {
        ExitStatus::Negative
    })
}

/// Violations that only a fresh prediction shows: memory over the limit, plans that cannot be priced.
fn predicted(plan: &Plan, legal: bool) -> Vec<Problem> {
    let setting = Setting::new(&plan.model.model, &plan.cluster.cluster, &plan.training);
    match price(&setting, &plan.pipelines, &mut Cache::default()) {
        Ok((prediction, _)) => prediction
            .devices
            .iter()
            .filter(|d| d.grade == Grade::Over)
            .map(|d| {
                let m = &d.memory_bytes;
                Problem::new(
                    &autohaap::error::cost::OVER_MEMORY,
                    format!("devices `{}`", d.device),
                    format!(
                        "{} ({}) needs {:.1} GiB of {:.1} GiB",
                        d.device,
                        d.device_type,
                        m.total.gib(),
                        m.limit.gib()
                    ),
                )
                .hint("fewer layers, a smaller in-flight limit, more recompute or a higher ZeRO level on its stage")
            })
            .collect(),
        // What makes a plan unpriceable is already listed, in more detail, where other rules are broken.
        Err(problems) if legal => problems.0,
        Err(_) => Vec::new(),
    }
}
