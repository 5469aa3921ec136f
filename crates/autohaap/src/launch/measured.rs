//! What a run measured: the step, the work of each replica, and the profile that makes them figures of the planner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ranks;
use crate::cluster::MeasuredRecompute;
use crate::cost::atom::{AtomCost, PhaseTime, Setting};
use crate::cost::price::{Cache, MemberDetail, detail};
use crate::error::{Problem, Problems, runtime as codes};
use crate::plan::{Plan, Recompute, Stage};
use crate::profile::folder::{Folder, LayerRow, Manifest, Phase, SCHEMA as PROFILE};
use crate::profile::model_hash;
use crate::simulate::{Simulation, expanded};
use crate::units::Seconds;

/// Name and version of the format.
pub const MEASURED: &str = "autohaap/measured@1";

/// Measured times of a run under a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// [`MEASURED`].
    pub schema: String,
    /// `id` of the plan.
    pub plan: String,
    /// What the ranks ran on; `virtual` where devices were stand-ins that slept.
    pub hardware: Vec<String>,
    /// Mean of the steps after the first two, which warm up.
    pub step_time_s: Seconds,
    /// What the simulation said.
    pub predicted_step_time_s: Seconds,
    /// Work of a micro-batch, by pipeline, stage and replica.
    pub stages: Vec<StageTimes>,
}

/// Mean times of a micro-batch on one replica; its slowest device counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageTimes {
    /// Pipeline index.
    pub pipeline: usize,
    /// Stage index.
    pub stage: usize,
    /// Replica index.
    pub replica: usize,
    /// Forward.
    pub forward_s: Seconds,
    /// Backward: recompute, input gradient, weight gradient.
    pub backward_s: Seconds,
    /// Predicted forward of the stage.
    pub predicted_forward_s: Seconds,
    /// Predicted backward of the stage.
    pub predicted_backward_s: Seconds,
}

/// Sum of seconds and count of each kind of work of each stage on a rank: `(stage, 'F' | 'B' | 'I' | 'W')`.
pub type Spans = BTreeMap<(usize, char), (f64, u32)>;

impl Measured {
    /// Puts the spans of all ranks beside the simulation. `scale` is the slow-down of virtual devices, 1 for real ones.
    pub fn new(
        plan: &Plan,
        simulation: &Simulation,
        hardware: Vec<String>,
        step_time: f64,
        spans: &[Spans],
        scale: f64,
    ) -> Self {
        let all = ranks(plan);
        let mut stages = Vec::new();
        for (p, pipeline) in plan.pipelines.iter().enumerate() {
            for (s, stage) in pipeline.stages.iter().enumerate() {
                let planned = simulation.program.chains.get(p).and_then(|c| c.stages.get(s));
                let (f, b) = planned.map_or((0.0, 0.0), |w| (w.forward, w.backward));
                for (r, replica) in owner(&pipeline.stages, stage).replicas.iter().enumerate() {
                    let (mut forward, mut backward) = (0.0_f64, 0.0_f64);
                    for device in &replica.devices {
                        let rank = all.iter().position(|rank| rank.device == *device);
                        let Some(times) = rank.and_then(|rank| spans.get(rank)) else {
                            continue;
                        };
                        let mean = |kind| {
                            times
                                .get(&(s, kind))
                                .map_or(0.0, |(sum, n)| sum / f64::from((*n).max(1)))
                        };
                        forward = forward.max(mean('F'));
                        backward = backward.max(mean('B') + mean('I') + mean('W'));
                    }
                    stages.push(StageTimes {
                        pipeline: p,
                        stage: s,
                        replica: r,
                        forward_s: Seconds(forward / scale),
                        backward_s: Seconds(backward / scale),
                        predicted_forward_s: Seconds(f),
                        predicted_backward_s: Seconds(b),
                    });
                }
            }
        }
        Self {
            schema: MEASURED.into(),
            plan: plan.id.clone(),
            hardware,
            step_time_s: Seconds(step_time / scale),
            predicted_step_time_s: simulation.timeline.step_time,
            stages,
        }
    }

    /// Reads the text of a `measured.json`.
    ///
    /// # Errors
    /// Text that is no such file, another plan's file, stages that the plan does not have, times that are not finite.
    pub fn read(text: &str, name: &str, plan: &Plan) -> Result<Self, Problems> {
        let bad = |message: String| Problem::new(&codes::MEASURED, name, message);
        let measured: Self = serde_json::from_str(text).map_err(|e| {
            bad(e.to_string())
                .hint("`autohaap launch` writes `measured.json` into the folder of an attempt")
                .at(e.line(), e.column())
        })?;
        let mut problems = Problems::new();
        if measured.schema != MEASURED {
            problems.push(
                bad(format!("the schema is `{}`", measured.schema))
                    .hint(format!("this version reads `{MEASURED}`")),
            );
        }
        if measured.plan != plan.id {
            problems.push(
                bad(format!(
                    "the run was of plan `{}`, the plan is `{}`",
                    measured.plan, plan.id
                ))
                .hint("give the `plan.json` of the same attempt"),
            );
        }
        for (i, row) in measured.stages.iter().enumerate() {
            let stages = plan.pipelines.get(row.pipeline).map(|p| &p.stages);
            let known = stages.and_then(|list| Some(owner(list, list.get(row.stage)?)));
            if known.is_none_or(|stage| row.replica >= stage.replicas.len()) {
                problems.push(bad(format!(
                    "stages[{i}]: the plan has no replica {} of stage {} of pipeline {}",
                    row.replica, row.stage, row.pipeline
                )));
            }
        }
        let times = measured
            .stages
            .iter()
            .flat_map(|s| {
                [
                    s.forward_s,
                    s.backward_s,
                    s.predicted_forward_s,
                    s.predicted_backward_s,
                ]
            })
            .chain([measured.step_time_s, measured.predicted_step_time_s]);
        if times.into_iter().any(|t| !t.0.is_finite() || t.0 < 0.0) {
            problems.push(bad("a time is not a finite number of seconds".into()));
        }
        problems.or(measured)
    }
}

/// The stage that owns the devices of a virtual one.
fn owner<'s>(stages: &'s [Stage], stage: &'s Stage) -> &'s Stage {
    stage.on_stage.and_then(|o| stages.get(o)).unwrap_or(stage)
}

/// The measured times as a profile that `plan --profile` and `estimate --profile` take.
///
/// A replica's time is shared out over its layers in the proportions of the model, since a run measures stages; rows of one
/// setting are joined to their median. Times are those of a node of speed factor 1.
///
/// # Errors
/// A plan that cannot be priced.
pub fn profile(plan: &Plan, measured: &Measured) -> Result<Folder, Problems> {
    let (model, cluster) = (&plan.model.model, &plan.cluster.cluster);
    let mut plain = cluster.clone();
    plain.measured.clear();
    let setting = Setting::new(model, &plain, &plan.training);
    let detail = detail(&setting, &expanded(&plan.pipelines), &mut Cache::default())?;
    let mut samples: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for row in &measured.stages {
        let stage = &plan.pipelines[row.pipeline].stages[row.stage];
        let members = &detail.pipelines[row.pipeline].stages[row.stage].members;
        for member in members.iter().filter(|m| m.replica == row.replica) {
            let modes = modes(stage);
            let [a, b] = stage.atoms;
            let costs = &member.costs[a..b];
            for (phase, time, part) in [
                (
                    Phase::F,
                    row.forward_s.0,
                    forward as fn(&AtomCost, Recompute) -> f64,
                ),
                (
                    Phase::B,
                    row.backward_s.0,
                    backward as fn(&AtomCost, Recompute) -> f64,
                ),
            ] {
                let whole: f64 = costs.iter().zip(&modes).map(|(c, m)| part(c, *m)).sum();
                if time <= 0.0 || whole <= 0.0 {
                    continue;
                }
                let factor = time * member.shape.speed_factor / whole;
                for ((cost, mode), atom) in costs.iter().zip(&modes).zip(a..) {
                    let seconds = part(cost, *mode) * factor;
                    if seconds > 0.0 {
                        let key = Key::of(plan, member, atom, *mode, phase);
                        samples.entry(key).or_default().push(seconds);
                    }
                }
            }
        }
    }
    let layers = samples
        .into_iter()
        .map(|(key, mut times)| {
            times.sort_unstable_by(f64::total_cmp);
            let median = f64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2]);
            key.row(plan, median, times.len() as u32)
        })
        .collect();
    Ok(Folder {
        manifest: Manifest {
            schema: PROFILE.into(),
            dtype: plan.training.precision,
            model_hash: model_hash(model),
            includes_communication: true,
            model: model.name.clone(),
            source: format!(
                "run of plan {} on {}",
                measured.plan,
                measured.hardware.join(", ")
            ),
            engine: "autohaap launch".into(),
            framework: format!("torch {}", super::TORCH),
            driver: String::new(),
            date: String::new(),
            clock_state: String::new(),
            n_repeats: None,
            flops_convention: String::new(),
        },
        layers,
        comm: Vec::new(),
    })
}

fn phase(time: &PhaseTime) -> f64 {
    time.total().0
}

fn forward(cost: &AtomCost, _: Recompute) -> f64 {
    phase(&cost.forward)
}

fn backward(cost: &AtomCost, mode: Recompute) -> f64 {
    let again = match mode {
        Recompute::None => 0.0,
        Recompute::Selective => phase(&cost.recompute_selective),
        Recompute::Full => phase(&cost.recompute_full),
    };
    phase(&cost.input_grad) + phase(&cost.weight_grad) + again
}

/// Recompute of each atom of a stage.
fn modes(stage: &Stage) -> Vec<Recompute> {
    let [a, b] = stage.atoms;
    let of = |atom| {
        let range = stage
            .recompute
            .iter()
            .find(|r| (r.atoms[0]..r.atoms[1]).contains(&atom));
        range.map_or(Recompute::None, |r| r.mode)
    };
    (a..b).map(of).collect()
}

/// A setting of a layer and a phase, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    device: String,
    layer_class: crate::model::AtomKind,
    degrees: [u32; 4],
    micro_batch: u32,
    recompute: MeasuredRecompute,
    phase: Phase,
}

impl Key {
    fn of(plan: &Plan, member: &MemberDetail, atom: usize, mode: Recompute, phase: Phase) -> Self {
        let shape = &member.shape;
        Self {
            device: shape.device_type.clone(),
            layer_class: plan.model.model.atoms[atom].kind,
            degrees: [shape.tp, shape.cp, shape.ep, shape.etp],
            micro_batch: shape.rows,
            recompute: match mode {
                Recompute::None => MeasuredRecompute::None,
                Recompute::Selective => MeasuredRecompute::Selective,
                Recompute::Full => MeasuredRecompute::Full,
            },
            phase,
        }
    }

    fn row(self, plan: &Plan, seconds: f64, n: u32) -> LayerRow {
        let [tp, cp, ep, etp] = self.degrees;
        LayerRow {
            device: self.device,
            layer_class: self.layer_class,
            tp,
            cp,
            ep,
            etp,
            sp: plan.training.sequence_parallel && tp > 1,
            micro_batch: self.micro_batch,
            seq_len: plan.training.seq_len,
            recompute: self.recompute,
            phase: self.phase,
            time_s_median: seconds,
            time_s_p10: None,
            time_s_p90: None,
            n: Some(n),
            provenance: "stage of a run, by the model's proportions".into(),
            source: plan.id.clone(),
        }
    }
}
