//! Which pipelines are equal, and the colour of each device type.

use std::collections::BTreeMap;

use crate::plan::{Pipeline, Plan, Recompute, Stage};

/// Distinct pipelines, in order of their first occurrence, and device types in use.
pub(super) struct Shapes<'p> {
    plan: &'p Plan,
    /// (index of the first pipeline, indices of all equal ones).
    pub(super) groups: Vec<(usize, Vec<usize>)>,
    colours: BTreeMap<&'p str, usize>,
}

impl<'p> Shapes<'p> {
    pub(super) fn of(plan: &'p Plan) -> Self {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (i, pipeline) in plan.pipelines.iter().enumerate() {
            let group = *found.entry(signature(plan, pipeline)).or_insert(groups.len());
            match groups.get_mut(group) {
                Some(g) => g.1.push(i),
                None => groups.push((i, vec![i])),
            }
        }
        // Colours follow the order of the cluster's nodes, so that the same cluster has the same colours in every report.
        let mut colours: BTreeMap<&str, usize> = BTreeMap::new();
        for group in plan.cluster.cluster.nodes.iter().flat_map(|n| &n.groups) {
            let next = colours.len();
            colours.entry(&group.device_type).or_insert(next);
        }
        Self {
            plan,
            groups,
            colours,
        }
    }

    /// Number of the colour of a device type, 0 to 7; beyond, colours repeat (names are always written too).
    pub(super) fn colour(&self, device_type: &str) -> usize {
        self.colours.get(device_type).copied().unwrap_or(0) % 8
    }

    /// Device types with their colours, in colour order.
    pub(super) fn legend(&self) -> Vec<(&'p str, usize)> {
        let mut all: Vec<(&str, usize)> = self.colours.iter().map(|(name, c)| (*name, *c)).collect();
        all.sort_by_key(|x| x.1);
        all.iter().map(|(name, c)| (*name, c % 8)).collect()
    }

    /// Device type of a stage's first device; stages of mixed types show it.
    pub(super) fn type_of(&self, stage: &Stage) -> &'p str {
        stage
            .replicas
            .first()
            .and_then(|r| r.devices.first())
            .map_or("?", |d| self.device_type(d))
    }

    pub(super) fn device_type(&self, device: &str) -> &'p str {
        let cluster = &self.plan.cluster.cluster;
        cluster
            .parse_device(device)
            .ok()
            .and_then(|(node, index)| cluster.device_type_at(node, index))
            .unwrap_or("?")
    }
}

/// Everything of a pipeline but its devices' names and its number of micro-batches.
fn signature(plan: &Plan, pipeline: &Pipeline) -> String {
    let cluster = &plan.cluster.cluster;
    let mut text = format!("{}|{:?}", pipeline.micro_batch, pipeline.schedule);
    for stage in &pipeline.stages {
        text += &format!(
            "|{:?} {} {} {} {:?} {:?}",
            stage.atoms, stage.in_flight, stage.ep, stage.etp, stage.recompute, stage.on_stage
        );
        for replica in &stage.replicas {
            let types: Vec<Option<&str>> = replica
                .devices
                .iter()
                .map(|d| {
                    let (node, index) = cluster.parse_device(d).ok()?;
                    cluster.device_type_at(node, index)
                })
                .collect();
            text += &format!(" {}.{}.{} {types:?}", replica.tp, replica.cp, replica.rows);
        }
    }
    text
}

/// Recompute of a stage in words: `none`, `full 4 of 9`.
pub(super) fn recompute_words(stage: &Stage) -> String {
    let of = |mode: Recompute| -> usize {
        stage
            .recompute
            .iter()
            .filter(|r| r.mode == mode)
            .map(|r| r.atoms[1].saturating_sub(r.atoms[0]))
            .sum()
    };
    let atoms = stage.atoms[1].saturating_sub(stage.atoms[0]);
    match (of(Recompute::Full), of(Recompute::Selective)) {
        (0, 0) => "none".into(),
        (full, 0) => format!("full on {full} of {atoms}"),
        (0, selective) => format!("selective on {selective} of {atoms}"),
        (full, selective) => format!("full on {full}, selective on {selective} of {atoms}"),
    }
}
