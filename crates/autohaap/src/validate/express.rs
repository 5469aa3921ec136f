//! A row as model, cluster and plan.

use super::case::{Case, leading};
use super::machine::{self, Machine};
use super::shape;
use crate::cluster::{Cluster, Precision};
use crate::engine::{Engine, engine_of};
use crate::model::{AtomKind, Model};
use crate::plan::uniform::even_cut;
use crate::plan::{
    AttentionKernel, Optimizer, Pipeline, Recompute, RecomputeRange, Replica, Schedule, ScheduleKind, Stage,
    Training,
};

/// Order of work of a row, as far as it departs from 1F1B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// 1F1B, or no pipeline.
    Plain,
    /// Interleaved with this many chunks a device.
    Interleaved(u32),
    /// Zero bubble within the memory of 1F1B.
    ZeroBubble1p,
    /// Zero bubble with twice its memory.
    ZeroBubble2p,
    /// The hand-made zero bubble order with up to twice its memory.
    ZeroBubbleH2,
    /// Half or a third of the memory of 1F1B.
    VShaped,
}

/// A row that can be predicted.
#[derive(Debug, Clone)]
pub struct Expressed {
    /// The model.
    pub model: Model,
    /// The cluster.
    pub cluster: Cluster,
    /// Training settings.
    pub training: Training,
    /// The plan: one pipeline whose stages hold all replicas.
    pub pipeline: Pipeline,
    /// Order of work.
    pub order: Order,
    /// The engine.
    pub engine: &'static Engine,
    /// Fitted entry of its network.
    pub network: &'static str,
    /// Fitted entry of the links inside its nodes.
    pub inside: Option<&'static str>,
    /// Devices in use.
    pub devices: u32,
    /// TP, data-parallel ways.
    pub tp: u32,
    /// Data-parallel ways.
    pub dp: u32,
    /// Element-wise traffic beyond the engine's: 2 where its kernels run eagerly instead of compiled.
    pub elementwise: f64,
    /// What the row does not state.
    pub assumed: Vec<String>,
}

impl Expressed {
    /// Stages.
    pub fn stages(&self) -> u32 {
        self.pipeline.stages.len() as u32
    }
    /// Chunks of a device.
    pub fn chunks(&self) -> u32 {
        match self.order {
            Order::Interleaved(v) => v,
            _ => 1,
        }
    }
    /// Whether every layer is recomputed.
    pub fn full_recompute(&self) -> bool {
        self.pipeline.stages[0]
            .recompute
            .iter()
            .any(|r| r.mode == Recompute::Full)
    }
}

fn precision(text: &str) -> Result<Precision, String> {
    let text = text.to_ascii_lowercase();
    Ok(if text.contains("nvfp4") {
        return Err("4-bit products have no rate in the catalogue".into());
    } else if text.contains("fp8") || text.contains("float8") {
        Precision::Fp8
    } else if text.starts_with("fp32 (profiles") {
        // Weights are kept in four bytes; the measured rates exceed the fp32 peak of the devices.
        Precision::Fp16
    } else if text.starts_with("fp32") {
        Precision::Fp32
    } else if text.starts_with("fp16") {
        Precision::Fp16
    } else {
        Precision::Bf16
    })
}

fn zero(text: &str) -> u8 {
    let has = |word: &str| text.contains(word);
    if has("no reshard after forward") {
        // Gathered once a step and reduced once: the optimizer's state is what stays divided.
        1
    } else if has("ZeRO-2") {
        2
    } else if has("ZeRO-3") || has("FSDP") {
        3
    } else {
        u8::from(has("ZeRO-1") || (has("distributed optimizer") && !has("only for")))
    }
}

fn order(case: &Case, chunks: u64, pp: u64, layers: u64) -> Order {
    match case.text("schedule") {
        s if s.starts_with("ZB-1p") || s.starts_with("ZB-H1") => Order::ZeroBubble1p,
        s if s.starts_with("ZB-H2") => Order::ZeroBubbleH2,
        s if s.starts_with("ZB-2p") || s.starts_with("zb") => Order::ZeroBubble2p,
        s if s.starts_with("v-") => Order::VShaped,
        "1F1B-I" => Order::Interleaved(((layers + 2) / pp).max(1) as u32),
        _ if chunks > 1 => Order::Interleaved(chunks as u32),
        // The least number of chunks that interleaves.
        s if s.starts_with("interleaved") && pp > 1 => Order::Interleaved(2),
        _ => Order::Plain,
    }
}

/// Boundaries between stages as atom indices, first 0, last the number of atoms.
fn cuts(case: &Case, model: &Model, pp: usize) -> Result<Vec<usize>, String> {
    let atoms = model.atoms.len();
    let blocks = atoms - 2;
    let stated: Vec<usize> = case
        .text("stage_layers")
        .split('/')
        .map_while(|t| leading(t).map(|n| n as usize))
        .collect();
    let sum: usize = stated.iter().sum();
    let mut ends = Vec::with_capacity(pp);
    let mut done = 0;
    if stated.len() == pp && sum > 0 {
        for layers in stated {
            done += layers;
            ends.push(if sum == blocks {
                done + 1
            } else if sum == atoms {
                done
            } else if sum == blocks + 6 {
                // Cast, embedding and transpose before the layers; transpose, norm and head after them.
                match done {
                    0 | 1 => 0,
                    2 | 3 => 1,
                    d => (d - 3).min(blocks) + 1,
                }
            } else {
                return Err(format!(
                    "{sum} modules are neither the {blocks} layers nor a known list of modules"
                ));
            });
        }
    } else {
        // Ends of one layer less where only that makes the stages even: the embedding and the head count as layers.
        let with_ends = !blocks.is_multiple_of(pp) && (blocks + 2).is_multiple_of(pp);
        let counts = if with_ends {
            vec![(blocks + 2) / pp; pp]
        } else {
            even_cut(blocks, pp)
        };
        for layers in counts {
            done += layers;
            ends.push(if with_ends { done } else { done + 1 });
        }
    }
    let mut all = vec![0];
    all.extend(ends);
    all[pp] = atoms;
    if all.windows(2).any(|w| w[0] >= w[1]) {
        return Err("a stage holds helper modules only, which no plan can name".into());
    }
    Ok(all)
}

/// Turns a row into a plan.
///
/// # Errors
/// A sentence on why the row cannot be expressed.
pub fn express(case: &Case) -> Result<Expressed, String> {
    let mut assumed = Vec::new();
    if case.count("tp").is_none() || case.count("pp").is_none() {
        return Err("the source does not publish the plan".into());
    }
    let model = shape::model(case, &mut assumed)?;
    let engine = engine(case);
    let Machine {
        cluster,
        network,
        inside,
    } = machine::machine(case, &mut assumed)?;
    let gpus = case.count("gpus").unwrap_or(1);
    let one = |column: &str| case.count(column).unwrap_or(1).max(1);
    let (tp, pp, cp, ep) = (one("tp"), one("pp"), one("cp"), one("ep"));
    let dp = case.count("dp").unwrap_or(gpus / (tp * pp * cp).max(1)).max(1);
    if tp * pp * cp * dp != gpus {
        return Err(format!(
            "tp {tp} x pp {pp} x cp {cp} x dp {dp} is not {gpus} devices"
        ));
    }
    let seq = case.count("seq").or_else(|| {
        assumed.push("sequences of 4,096".into());
        Some(4096)
    });
    let seq = seq.unwrap_or(4096);
    let local = case.text("mbs").starts_with("local batch");
    let mbs = if local {
        // The engine's default: as many micro-batches as stages.
        assumed.push("as many micro-batches as stages".into());
        leading(case.text("mbs").trim_start_matches("local batch ")).map(|batch| (batch / pp).max(1))
    } else {
        case.count("mbs")
    };
    let gbs = case.count("gbs");
    let (mbs, gbs) = match (mbs, gbs) {
        (None, None) => return Err("neither micro-batch nor global batch is stated".into()),
        (Some(m), Some(g)) => (m, g),
        (Some(m), None) => {
            assumed.push("eight micro-batches a step".into());
            (m, m * dp * 8)
        }
        (None, Some(g)) => {
            assumed.push("micro-batches of one sequence".into());
            (1, g)
        }
    };
    let micro_batches = gbs / (mbs * dp).max(1);
    if mbs == 0 || micro_batches == 0 || micro_batches > 1_000_000 {
        return Err(format!(
            "a global batch of {gbs} is less than {dp} micro-batches of {mbs}"
        ));
    }
    let cuts = cuts(case, &model, pp as usize)?;
    let addresses: Vec<String> = cluster
        .nodes
        .iter()
        .flat_map(|n| (0..n.devices()).map(move |i| format!("{}:{i}", n.name)))
        .collect();
    let order = order(case, one("vpp"), pp, model.atoms.len() as u64 - 2);
    let mode = recompute(case, &mut assumed);
    let has = |words: &[&str]| words.iter().any(|w| case.text("recompute").contains(w));
    // Per-operator checkpointing keeps every other product and attention, about two fifths of what layers save;
    // checkpointing of the experts alone about half. Whole layers stand for these parts.
    let kept: &[usize] = match () {
        () if has(&["selective AC", "SAC"]) => &[1, 3],
        () if has(&["moe"]) => &[1, 3, 5],
        () => &[],
    };
    let kept = |layer: usize| match kept.len() {
        2 => kept.contains(&(layer % 5)),
        3 => kept.contains(&(layer % 6)),
        _ => false,
    };
    let mut stages = Vec::with_capacity(pp as usize);
    for (s, window) in cuts.windows(2).enumerate() {
        let replicas = (0..dp)
            .map(|d| {
                let first = (s as u64 * dp + d) * cp * tp;
                Replica {
                    devices: addresses[first as usize..(first + cp * tp) as usize].to_vec(),
                    tp: tp as u32,
                    cp: cp as u32,
                    rows: mbs as u32,
                }
            })
            .collect();
        let depth = pp - s as u64;
        let blocks: Vec<usize> = (window[0]..window[1])
            .filter(|&a| !matches!(model.atoms[a].kind, AtomKind::Embedding | AtomKind::Head))
            .collect();
        let recompute = match (mode, blocks.first(), blocks.last()) {
            (Recompute::None, ..) | (_, None, _) | (_, _, None) => Vec::new(),
            (Recompute::Full, Some(a), Some(b)) if kept(1) => (*a..=*b)
                .filter(|i| !kept(i - a))
                .map(|i| RecomputeRange {
                    atoms: [i, i + 1],
                    mode: Recompute::Full,
                })
                .collect(),
            (mode, Some(a), Some(b)) => vec![RecomputeRange {
                atoms: [*a, b + 1],
                mode,
            }],
        };
        let experts = model.atoms[window[0]..window[1]]
            .iter()
            .any(|a| a.kind == AtomKind::Moe);
        stages.push(Stage {
            atoms: [window[0], window[1]],
            in_flight: depth.min(micro_batches) as u32,
            recompute,
            ep: if experts { ep as u32 } else { 1 },
            etp: 1,
            replicas,
            on_stage: None,
        });
    }
    let kernel = if engine.flash && !case.text("stage_devices").contains("RTX") {
        None
    } else {
        Some(AttentionKernel::Unfused)
    };
    let mut semantics = engine.semantics();
    if engine.id.starts_with("torchtitan") {
        semantics.overlap.tp = case.text("notes").contains("async TP");
    }
    if case.text("precision").contains("z0 + own ZeRO-1") {
        // "The additional memory usage is 4 bytes x params": an accumulator beside the two-byte gradients.
        semantics.kernels.gradient_bytes = 6.0;
    }
    let training = Training {
        seq_len: seq,
        global_batch: micro_batches * mbs * dp,
        precision: precision(case.text("precision"))?,
        optimizer: Optimizer::Adam,
        zero: match zero(case.text("shard")) {
            // The benchmark's scripts use the distributed optimizer where gradients are accumulated by Megatron core.
            0 if case.text("shard") == "not checked" && case.text("framework").contains("core_v0.6.0") => 1,
            // With pipelines, weights stay gathered over the micro-batches of a step.
            z if z >= 2 && pp > 1 => 1,
            z => z,
        },
        sequence_parallel: sequence_parallel(case),
        attention: kernel
            .into_iter()
            .flat_map(|k| cluster.device_types.keys().map(move |d| (d.clone(), k)))
            .collect(),
        engine_semantics: semantics,
    };
    let mut row = Expressed {
        pipeline: Pipeline {
            micro_batch: (mbs * dp) as u32,
            micro_batches: micro_batches as u32,
            schedule: Schedule {
                kind: ScheduleKind::OneF1b,
                file: None,
            },
            stages,
        },
        model,
        cluster,
        training,
        order,
        engine,
        network,
        inside,
        devices: gpus as u32,
        tp: tp as u32,
        dp: dp as u32,
        elementwise: if case.text("precision").contains("eager") {
            2.0
        } else {
            1.0
        },
        assumed,
    };
    recompute_for_room(case, &mut row);
    Ok(row)
}

/// Where everything that is not an activation is divided over the devices and the row says nothing about recompute, a run
/// that took place without room for its activations must have recomputed them.
fn recompute_for_room(case: &Case, row: &mut Expressed) {
    let text = case.text("recompute");
    if row.training.zero < 2 || !(text.is_empty() || text.starts_with("not stated")) || text.contains("none")
    {
        return;
    }
    if super::predict::predict(row).is_ok_and(|p| p.allocated > p.limit) {
        for stage in &mut row.pipeline.stages {
            let blocks: Vec<usize> = (stage.atoms[0]..stage.atoms[1])
                .filter(|&a| !matches!(row.model.atoms[a].kind, AtomKind::Embedding | AtomKind::Head))
                .collect();
            if let (Some(a), Some(b)) = (blocks.first(), blocks.last()) {
                stage.recompute = vec![RecomputeRange {
                    atoms: [*a, b + 1],
                    mode: Recompute::Full,
                }];
            }
        }
        row.assumed.retain(|a| a != "no recompute");
        row.assumed
            .push("full recompute, since the run has no room without it".into());
    }
}

/// The engine of a row; Megatron-LM before its core library is an engine of its own.
fn engine(case: &Case) -> &'static Engine {
    let framework = case.text("framework");
    let name = if framework == "Megatron-LM" {
        "Megatron-LM@2021"
    } else if case.text("stage_devices").contains("xTP") {
        // Consumer cards without access to each other's memory.
        "Sailor staged"
    } else {
        framework
    };
    // A release of one framework is another engine where its implementation changed.
    let released;
    let name = match case.text("source_detail").split("container ").nth(1) {
        Some(release) => {
            released = format!("{name} {release}");
            &released
        }
        None => name,
    };
    engine_of(name)
        .or_else(|| engine_of("Megatron"))
        .unwrap_or(&crate::engine::engines()[0])
}

fn sequence_parallel(case: &Case) -> bool {
    match case.text("seq_parallel") {
        t if t.starts_with("yes") => true,
        t if t.starts_with("no") => false,
        _ => case.count("tp").unwrap_or(1) > 1 && !case.text("framework").contains("DeepSpeed"),
    }
}

fn recompute(case: &Case, assumed: &mut Vec<String>) -> Recompute {
    let text = case.text("recompute");
    if text.starts_with("full")
        || text.contains("selective AC")
        || text.contains("SAC")
        || text.contains("moe")
    {
        Recompute::Full
    } else if text.starts_with("selective(attn)") || text.contains("recompute-activations") {
        Recompute::Selective
    } else if text.is_empty() && case.text("framework") == "Megatron-LM" {
        assumed.push("full recompute, as the engine's examples of that time".into());
        Recompute::Full
    } else if text.starts_with("DeepSpeed default") {
        assumed.push("checkpointed activations".into());
        Recompute::Full
    } else {
        if text.starts_with("not stated") || text.is_empty() {
            assumed.push("no recompute".into());
        }
        Recompute::None
    }
}
