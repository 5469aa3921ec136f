//! Sequences: rows make the micro-batch, micro-batches the global batch, and every token counts alike.

use super::{Facts, Found, atoms_in_words};
use crate::error::{Problem, plan as codes};
use crate::plan::uniform::even_cut;

/// Rows of the replicas add up to the micro-batch, each at least 1.
pub(super) fn rows(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::ROWS;
    for stage in &facts.stages {
        let replicas = &stage.entry.replicas;
        if replicas.is_empty() {
            continue;
        }
        let wanted = u64::from(stage.parent.micro_batch);
        let fitting = if wanted >= replicas.len() as u64 {
            let even: Vec<String> = even_cut(wanted as usize, replicas.len())
                .iter()
                .take(9)
                .map(usize::to_string)
                .collect();
            format!("rows {} add up to {wanted}", even.join("/"))
        } else {
            format!(
                "a micro-batch of {wanted} feeds at most {wanted} replicas; raise `micro_batch` to {}",
                replicas.len()
            )
        };
        let zero = replicas.iter().position(|r| r.rows == 0);
        if let Some(r) = zero {
            found.push(code, || {
                let message = "a replica computes `0` rows, at least 1 is needed";
                Problem::new(code, format!("{}.rows", stage.replica_path(r)), message).hint(fitting.clone())
            });
        }
        let sum: u64 = replicas.iter().map(|r| u64::from(r.rows)).sum();
        if sum != wanted {
            found.push(code, || {
                let words = super::list(replicas.iter().map(|r| r.rows)).replace(", ", " + ");
                let message = format!("rows {words} add up to `{sum}`, the micro-batch is {wanted}");
                Problem::new(code, format!("{}.replicas", stage.path()), message)
                    .hint(format!("{fitting}, or set `micro_batch` to {sum}"))
            });
        }
    }
}

/// Micro-batches of all pipelines add up to the global batch.
pub(super) fn global_batch(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GLOBAL_BATCH;
    let pipelines = &facts.plan.pipelines;
    for (i, pipeline) in pipelines.iter().enumerate() {
        let counts = [
            ("micro_batch", pipeline.micro_batch),
            ("micro_batches", pipeline.micro_batches),
        ];
        for (name, _) in counts.into_iter().filter(|c| c.1 == 0) {
            found.push(code, || {
                Problem::new(code, format!("pipelines[{i}].{name}"), format!("`{name}` is `0`"))
                    .hint("at least 1; delete a pipeline that computes nothing")
            });
        }
    }
    let sum: u128 = pipelines
        .iter()
        .map(|p| u128::from(p.micro_batch) * u128::from(p.micro_batches))
        .sum();
    let wanted = u128::from(facts.plan.training.global_batch);
    if sum == wanted || pipelines.is_empty() {
        return;
    }
    found.push(code, || {
        let terms = super::list(
            pipelines
                .iter()
                .map(|p| format!("{} x {}", p.micro_batches, p.micro_batch)),
        );
        let message = format!(
            "micro-batches {} add up to `{sum}` sequences, the global batch is {wanted}",
            terms.replace(", ", " + ")
        );
        let fitting = pipelines.iter().enumerate().find_map(|(i, p)| {
            let each = u128::from(p.micro_batch);
            let own = each * u128::from(p.micro_batches);
            let left = (wanted + own).checked_sub(sum).filter(|l| *l > 0 && each > 0)?;
            (left % each == 0).then(|| format!("`micro_batches` of pipeline {i} to {}", left / each))
        });
        let hint = match fitting {
            Some(fitting) => format!("set {fitting}, or `global_batch` to {sum}"),
            None => format!("set `global_batch` to {sum}"),
        };
        Problem::new(code, "pipelines", message).hint(hint)
    });
}

/// For every atom, the shares of all its holders in the gradient add up to 1.
pub(super) fn gradient_weight(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::GRADIENT_WEIGHT;
    let wanted = u128::from(facts.plan.training.global_batch);
    for (start, end, sum) in sequences_per_atom(facts) {
        if sum == wanted {
            continue;
        }
        found.push(code, || {
            let what = atoms_in_words(start, end);
            let message = format!(
                "{what}: all holders together compute `{sum}` of {wanted} sequences, weight {sum}/{wanted}"
            );
            Problem::new(code, "pipelines", message).hint(
                "the weights of the holders of an atom add up to 1: mend rows, micro-batches or atom ranges",
            )
        });
    }
}

/// Runs of atoms with the number of sequences that their holders compute: (first, one past the last, sequences).
pub(in crate::plan) fn sequences_per_atom(facts: &Facts<'_>) -> Vec<(usize, usize, u128)> {
    let atoms = facts.all_atoms().end;
    let mut added = vec![0_u128; atoms + 1];
    let mut removed = vec![0_u128; atoms + 1];
    for stage in &facts.stages {
        let sequences = facts.owner(stage).sequences();
        added[stage.span.start] += sequences;
        removed[stage.span.end] += sequences;
    }
    let mut runs: Vec<(usize, usize, u128)> = Vec::new();
    let mut sum = 0;
    for atom in 0..atoms {
        sum = sum + added[atom] - removed[atom];
        match runs.last_mut() {
            Some(run) if run.2 == sum => run.1 = atom + 1,
            _ => runs.push((atom, atom + 1, sum)),
        }
    }
    runs
}
