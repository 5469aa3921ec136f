//! Templates of a given plan, to start from.

use super::table::Table;
use super::template::{Template, TemplateStage};
use crate::plan::{Pipeline, Stage};

/// The pipelines of a plan as templates of this table's classes. A pipeline that the table cannot express (devices that are
/// gone or of several classes in one stage, unequal rows, virtual stages, another number of atoms) is left out; nothing
/// depends on the plan being legal or fitting here.
pub(super) fn templates(table: &Table<'_>, pipelines: &[Pipeline]) -> Vec<Template> {
    let expressed = |pipeline: &Pipeline| {
        let stages: Option<Vec<TemplateStage>> = pipeline
            .stages
            .iter()
            .map(|stage| self::stage(table, pipeline.micro_batch, stage))
            .collect();
        let stages = stages?;
        let num_atoms = table.space.setting.model.atoms.len();
        let mut next = 0;
        for stage in &stages {
            if stage.atoms.0 != next || stage.atoms.1 <= next {
                return None;
            }
            next = stage.atoms.1;
        }
        (next == num_atoms).then_some(Template {
            micro_batch: pipeline.micro_batch,
            stages,
        })
    };
    pipelines.iter().filter_map(expressed).collect()
}

fn stage(table: &Table<'_>, micro_batch: u32, stage: &Stage) -> Option<TemplateStage> {
    let space = table.space;
    let first = stage.replicas.first()?;
    let alike = |r: &crate::plan::Replica| (r.tp, r.cp, r.rows) == (first.tp, first.cp, first.rows);
    if stage.on_stage.is_some() || !stage.replicas.iter().all(alike) {
        return None;
    }
    // Devices that are gone do not matter as long as one of the stage is left to name the class.
    let mut devices = stage.replicas.iter().flat_map(|r| &r.devices);
    let class = devices.find_map(|device| {
        let (node, index) = space.setting.cluster.parse_device(device).ok()?;
        space.classes.iter().position(|c| {
            c.nodes
                .iter()
                .any(|&(n, first, count)| n == node && (first..first + count).contains(&index))
        })
    })?;
    let row = table.of_size(micro_batch).iter().find(|row| {
        let o = &row.option;
        (o.class, o.tp, o.cp, o.ep, o.replicas)
            == (class, first.tp, first.cp, stage.ep, stage.replicas.len() as u32)
    })?;
    Some(TemplateStage {
        row: row.clone(),
        atoms: (stage.atoms[0], stage.atoms[1]),
        depth: stage.in_flight.max(1),
    })
}
