//! The independent verifier: proves for any plan that it is complete and legal, whoever made it.
//!
//! It shares no code with search or cost and trusts no figure in the file. Each rule is one function named after it, each
//! violation carries the value found, the rule and the nearest legal values, and all violations are reported together.

mod batch;
mod degrees;
mod devices;
mod facts;
mod order;
mod prediction;
mod reach;
mod structure;
mod support;

pub(super) use batch::sequences_per_atom;
pub(super) use devices::unaccounted;
pub(super) use facts::{Facts, Span, StageFacts};
pub(super) use reach::sharing_atoms;

use std::collections::BTreeMap;

use super::Plan;
use super::limits::limits;
use crate::error::{Code, Problem};

/// One broken rule of a plan.
pub type Violation = Problem;

/// Violations of one rule that are listed one by one; further ones are counted.
const LISTED: usize = 20;

/// Every rule that the plan breaks, in reading order of the rules; empty for a legal plan.
pub fn check(plan: &Plan) -> Vec<Violation> {
    let too_large = limits(plan, "");
    if !too_large.is_empty() {
        return too_large.0;
    }
    let facts = Facts::new(plan);
    let mut found = Found::default();
    for rule in RULES {
        rule(&facts, &mut found);
    }
    support::digest(&facts, &mut found);
    found.finish()
}

/// The rules that concern pipelines and devices only: for many plans of one model and cluster, whose digests are known.
pub fn check_layout(plan: &Plan) -> Vec<Violation> {
    let facts = Facts::new(plan);
    let mut found = Found::default();
    for rule in RULES {
        rule(&facts, &mut found);
    }
    found.finish()
}

/// What is legal but seldom wise: tensor or expert groups across nodes, groups of mixed device types, long sequences.
pub fn advise(plan: &Plan) -> Vec<Problem> {
    if !limits(plan, "").is_empty() {
        return Vec::new();
    }
    let facts = Facts::new(plan);
    let mut found = Found::default();
    for rule in [
        support::long_sequence,
        reach::group_across_nodes,
        reach::mixed_group,
    ] {
        rule(&facts, &mut found);
    }
    found.finish()
}

type Rule = fn(&Facts<'_>, &mut Found);

/// Products before divisibility, structure before what rests on it.
const RULES: &[Rule] = &[
    structure::broken_model,
    structure::broken_cluster,
    structure::empty_part,
    support::training_setting,
    degrees::world_size,
    structure::atom_coverage,
    devices::no_such_device,
    devices::device_used_twice,
    devices::device_unaccounted,
    devices::replica_size,
    batch::rows,
    batch::global_batch,
    batch::gradient_weight,
    degrees::tp_degree,
    degrees::cp_degree,
    degrees::sequence_parallel,
    degrees::ep_degree,
    degrees::etp_degree,
    order::virtual_stage,
    order::schedule,
    order::in_flight,
    order::recompute_range,
    reach::group_domain,
    reach::gradient_domain,
    reach::no_bridge,
    support::precision,
    support::attention_kernel,
    prediction::memory,
    prediction::prediction_coverage,
    prediction::prediction_figures,
    prediction::bound,
];

/// Collects violations; a rule that fails everywhere is not repeated for ever.
#[derive(Default)]
pub(super) struct Found {
    problems: Vec<Problem>,
    counts: BTreeMap<&'static str, usize>,
}

impl Found {
    /// Records a violation, made only if it will be listed.
    fn push(&mut self, code: &'static Code, problem: impl FnOnce() -> Problem) {
        let count = self.counts.entry(code.id).or_default();
        *count += 1;
        if *count <= LISTED {
            let problem = problem();
            debug_assert_eq!(problem.code.id, code.id);
            self.problems.push(problem);
        }
    }

    fn finish(mut self) -> Vec<Problem> {
        for (id, count) in self.counts {
            let last = self.problems.iter().rposition(|p| p.code.id == id);
            if let (Some(last), true) = (last, count > LISTED) {
                let further = count - LISTED;
                let message = format!("{further} further violations of this rule");
                let problem = Problem::new(self.problems[last].code, "", message)
                    .hint("mend the listed ones and check again");
                self.problems.insert(last + 1, problem);
            }
        }
        self.problems
    }
}

/// Numbers in words, the first few of them.
fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let mut words: Vec<String> = items.into_iter().take(17).map(|i| i.to_string()).collect();
    if words.len() > 16 {
        words.truncate(16);
        words.push("...".to_owned());
    }
    words.join(", ")
}

/// `` atom `3` `` or `` atoms `3` to `7` `` for a half-open range.
fn atoms_in_words(start: usize, end: usize) -> String {
    if end == start + 1 {
        format!("atom `{start}`")
    } else {
        format!("atoms `{start}` to `{}`", end.saturating_sub(1))
    }
}
