//! Simulated times per rank, for virtual devices whose compute and links take them by sleeping.

use serde_json::{Map, Value, json};

use super::ranks;
use crate::plan::Plan;
use crate::simulate::Simulation;
use crate::simulate::action::Work;

/// Times of every rank in seconds, in the form that the runtime reads.
pub fn virtual_times(plan: &Plan, simulation: &Simulation) -> Vec<Value> {
    let mut edges = Map::new();
    let mut key = 0;
    let chains = &simulation.program.chains;
    for (pipeline, chain) in plan.pipelines.iter().zip(chains) {
        for s in 0..pipeline.stages.len().saturating_sub(1) {
            let seconds =
                |list: &[crate::simulate::program::Transfer]| list.get(s).map_or(0.0, |t| t.seconds);
            edges.insert(key.to_string(), json!(seconds(&chain.forward)));
            edges.insert((key + 1).to_string(), json!(seconds(&chain.backward)));
            key += 2;
        }
    }
    let of = |device: &str| {
        for (p, pipeline) in plan.pipelines.iter().enumerate() {
            for (s, stage) in pipeline.stages.iter().enumerate() {
                if !stage
                    .replicas
                    .iter()
                    .any(|r| r.devices.iter().any(|d| d == device))
                {
                    continue;
                }
                let stages: Map<String, Value> = pipeline
                    .stages
                    .iter()
                    .enumerate()
                    .filter(|(v, virtual_stage)| *v == s || virtual_stage.on_stage == Some(s))
                    .filter_map(|(v, _)| {
                        let work = chains.get(p)?.stages.get(v)?;
                        let times = json!({
                            "F": work.seconds(Work::Forward), "B": work.seconds(Work::Backward),
                            "I": work.seconds(Work::InputGrad), "W": work.seconds(Work::WeightGrad),
                        });
                        Some((v.to_string(), times))
                    })
                    .collect();
                // From the last backward of the lane to the end of its optimizer.
                let lane = simulation
                    .timeline
                    .lanes
                    .iter()
                    .find(|l| l.pipeline == p && l.stages.iter().any(|(stage, _)| *stage == s));
                let tail = lane.map_or(0.0, |l| {
                    l.reductions.iter().map(|r| r.seconds().0).sum::<f64>() + l.optimizer.seconds().0
                });
                return json!({"stages": stages, "edges": edges, "tail": tail});
            }
        }
        Value::Null
    };
    ranks(plan).iter().map(|rank| of(&rank.device)).collect()
}
