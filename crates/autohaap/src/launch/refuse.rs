//! What the runtime does not execute, found before anything starts.

use crate::cluster::Precision;
use crate::error::{Problem, Problems, runtime as codes};
use crate::model::{Mixer, Shape};
use crate::plan::{Plan, ScheduleKind};

/// Everything of a plan that the runtime does not execute; empty: it runs.
pub fn refuse(plan: &Plan) -> Problems {
    let mut problems = Problems::new();
    let mut no = |path: String, message: String, hint: &str| {
        problems.push(Problem::new(&codes::NOT_EXECUTED, path, message).hint(hint));
    };
    let training = &plan.training;
    if training.zero > 1 {
        no(
            "training.zero".into(),
            format!(
                "ZeRO `{}`: the runtime shards the optimizer (1), not gradients or weights",
                training.zero
            ),
            "plan with `--zero 1`",
        );
    }
    if training.precision == Precision::Fp8 {
        no(
            "training.precision".into(),
            "fp8 products are not executed".into(),
            "plan with `--precision bf16`",
        );
    }
    for (a, atom) in plan.model.model.atoms.iter().enumerate() {
        let path = format!("model.atoms[{a}]");
        match &atom.shape {
            Shape::Mtp { .. } => no(
                path,
                "multi-token prediction is not executed".into(),
                "leave the MTP blocks out",
            ),
            Shape::Block(block) => match &block.mixer {
                Some(Mixer::Attention { .. }) => {}
                _ => no(
                    path,
                    "only attention blocks are executed".into(),
                    "see `autohaap explain E602` for the families",
                ),
            },
            Shape::Embedding { .. } | Shape::Head { .. } => {}
        }
    }
    for (p, pipeline) in plan.pipelines.iter().enumerate() {
        if pipeline.schedule.kind == ScheduleKind::Csv {
            no(
                format!("pipelines[{p}].schedule"),
                "a schedule file of its own is not executed yet".into(),
                "name a schedule kind in the plan",
            );
        }
        for (s, stage) in pipeline.stages.iter().enumerate() {
            let path = |field: &str| format!("pipelines[{p}].stages[{s}].{field}");
            if stage.etp > 1 {
                no(
                    path("etp"),
                    format!("etp `{}`: an expert is not divided", stage.etp),
                    "use etp 1",
                );
            }
            for (r, replica) in stage.replicas.iter().enumerate() {
                if replica.cp > 1 {
                    no(
                        path(&format!("replicas[{r}].cp")),
                        format!("cp `{}`: context parallelism is not executed", replica.cp),
                        "use cp 1",
                    );
                }
                let routed = plan
                    .model
                    .model
                    .atoms
                    .get(stage.atoms[0]..stage.atoms[1])
                    .is_some_and(|atoms| {
                        atoms
                            .iter()
                            .any(|a| matches!(&a.shape, Shape::Block(b) if b.moe.is_some()))
                    });
                if routed && replica.tp > 1 && !training.seq_len.is_multiple_of(u64::from(replica.tp)) {
                    no(
                        path(&format!("replicas[{r}].tp")),
                        format!(
                            "tp `{}` does not divide the {} tokens that a stage with experts routes",
                            replica.tp, training.seq_len
                        ),
                        "use a sequence length that tp divides",
                    );
                }
            }
        }
    }
    problems
}
