//! Random legal plans of tiny models, with what the simulator says of each, as files for the runtime's tests.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use autohaap::cluster::{Precision, parse_cluster};
use autohaap::model;
use autohaap::plan::{
    AttentionKernel, EngineSemantics, Optimizer, Pipeline, Plan, Recompute, RecomputeRange, Replica,
    Schedule, ScheduleKind, Stage, Training, check,
};
use autohaap::simulate::schedule::csv;
use autohaap::simulate::{Options, simulate};
use serde_json::{Value, json};

/// Devices of the node on which plans are drawn.
pub(super) const DEVICES: u32 = 8;
const SEQ_LEN: u64 = 8;

/// Seeded random numbers (SplitMix64).
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// From `low` to `high`, both included.
    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() % u64::from(high - low + 1)) as u32
    }
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.count(0, choices.len() as u32 - 1) as usize]
    }
    fn chance(&mut self, percent: u32) -> bool {
        self.count(1, 100) <= percent
    }
}

/// Tiny models of every executed family, by name, as `config.json`.
pub(super) fn configs() -> Vec<(&'static str, Value)> {
    let llama = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu",
        "rope_theta": 10000.0, "head_dim": 4, "initializer_range": 0.2
    });
    let with = |changes: Value| {
        let mut config = llama.clone();
        if let (Some(config), Some(changes)) = (config.as_object_mut(), changes.as_object()) {
            config.extend(changes.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        config
    };
    vec![
        ("llama", llama.clone()),
        ("llama-tied", with(json!({"tie_word_embeddings": true}))),
        (
            "qwen2-tied",
            with(
                json!({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true}),
            ),
        ),
        (
            "qwen3",
            with(json!({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})),
        ),
        (
            "mistral",
            with(
                json!({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 5}),
            ),
        ),
        (
            "gpt2",
            json!({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 16, "n_layer": 4, "n_head": 4,
                "n_positions": 64, "vocab_size": 50, "activation_function": "gelu_new", "attn_pdrop": 0.0,
                "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.2,
                "tie_word_embeddings": true}),
        ),
        (
            "mixtral",
            with(
                json!({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4,
                "num_experts_per_tok": 2, "sliding_window": null}),
            ),
        ),
        (
            "qwen2-moe",
            with(
                json!({"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4,
                "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 24,
                "decoder_sparse_step": 2, "norm_topk_prob": false, "mlp_only_layers": []}),
            ),
        ),
    ]
}

/// Splits `total` into `parts` positive numbers.
fn parts(source: &mut Source, total: u32, parts: u32) -> Vec<u32> {
    let mut cuts: Vec<u32> = Vec::new();
    while (cuts.len() as u32) < parts - 1 {
        let cut = source.count(1, total - 1);
        if !cuts.contains(&cut) {
            cuts.push(cut);
        }
    }
    cuts.sort_unstable();
    cuts.push(total);
    let mut last = 0;
    cuts.iter()
        .map(|cut| {
            let part = cut - last;
            last = *cut;
            part
        })
        .collect()
}

/// A pipeline on devices from `next` on; None: it needs more than there are.
fn pipeline(source: &mut Source, atoms: u32, moe: bool, next: &mut u32, limit: u32) -> Option<Pipeline> {
    use ScheduleKind::{DualpipeV, Gpipe, Interleaved, OneF1b, ZbH1, ZbH2, ZbV};
    let kind = source.pick(&[
        OneF1b,
        OneF1b,
        OneF1b,
        Gpipe,
        Interleaved,
        ZbH1,
        ZbH2,
        ZbV,
        DualpipeV,
    ]);
    let chunked = matches!(kind, Interleaved | ZbV | DualpipeV);
    let owners = if chunked { 2 } else { source.count(1, 3) };
    let micro_batch = source.pick(&[1, 2, 3, 4, 4]);
    let micro_batches = if chunked {
        2 * source.count(2, 3)
    } else {
        source.count(1, 4)
    };
    let mut stages = Vec::new();
    for _ in 0..owners {
        let num_replicas = if micro_batch > 1 { source.count(1, 2) } else { 1 };
        let rows = parts(source, micro_batch, num_replicas);
        let mut replicas = Vec::new();
        for rows in rows {
            let tp = source.pick(&[1, 1, 2, 2, 4]);
            if *next + tp > limit {
                return None;
            }
            replicas.push(Replica {
                devices: (*next..*next + tp).map(|d| format!("n0:{d}")).collect(),
                tp,
                cp: 1,
                rows,
            });
            *next += tp;
        }
        let devices: u32 = replicas.iter().map(|r| r.tp).sum();
        stages.push(Stage {
            atoms: [0, 0],
            in_flight: 1,
            recompute: Vec::new(),
            ep: if moe && devices.is_multiple_of(2) && source.chance(70) {
                2
            } else {
                1
            },
            etp: 1,
            replicas,
            on_stage: None,
        });
    }
    if chunked {
        for s in 0..2 {
            let on = if kind == Interleaved { s } else { 1 - s };
            stages.push(Stage {
                replicas: Vec::new(),
                on_stage: Some(on),
                ..stages[on].clone()
            });
        }
    }
    let num_stages = stages.len() as u32;
    let mut first = 0;
    for (s, (stage, count)) in stages
        .iter_mut()
        .zip(parts(source, atoms, num_stages))
        .enumerate()
    {
        let last = first + count as usize;
        stage.atoms = [first, last];
        // 1F1B: any depth at least that of the next stage would do; the textbook's, or one more.
        let left = num_stages - s as u32;
        stage.in_flight = match kind {
            Gpipe => micro_batches,
            OneF1b => (left + u32::from(source.chance(30))).min(micro_batches),
            _ => (2 * num_stages).min(micro_batches),
        };
        let mode = source.pick(&[Recompute::None, Recompute::Selective, Recompute::Full]);
        let (from, to) = (first.max(1), last.min(atoms as usize - 1));
        if mode != Recompute::None && from < to {
            let until = from + source.count(1, (to - from) as u32) as usize;
            stage.recompute.push(RecomputeRange {
                atoms: [from, until],
                mode,
            });
        }
        first = last;
    }
    Some(Pipeline {
        micro_batch,
        micro_batches,
        schedule: Schedule { kind, file: None },
        stages,
    })
}

/// A plan of a seed; None: the draw is not legal.
fn draw(seed: u64, config: &Value) -> Result<Option<Plan>> {
    let mut source = Source(seed);
    let input = model::parse(&config.to_string(), "config.json").map_err(|p| anyhow::anyhow!("{p}"))?;
    let model = input.model;
    let cluster =
        parse_cluster(&format!("1x{DEVICES} A100-80G"), "test").map_err(|p| anyhow::anyhow!("{p}"))?;
    let atoms = model.atoms.len() as u32;
    let moe = config.get("num_experts_per_tok").is_some();
    let (mut next, mut pipelines) = (0, Vec::new());
    let count = source.pick(&[1, 1, 2]);
    for p in 0..count {
        let limit = if p + 1 == count { DEVICES } else { DEVICES / 2 + 1 };
        match pipeline(&mut source, atoms, moe, &mut next, limit) {
            Some(pipeline) => pipelines.push(pipeline),
            None => return Ok(None),
        }
    }
    let global_batch = pipelines
        .iter()
        .map(|p| u64::from(p.micro_batch) * u64::from(p.micro_batches))
        .sum();
    let training = Training {
        seq_len: SEQ_LEN,
        global_batch,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adam,
        zero: u8::from(source.chance(50)),
        sequence_parallel: source.chance(50),
        attention: cluster
            .device_types
            .keys()
            .map(|name| (name.clone(), AttentionKernel::Flash))
            .collect(),
        engine_semantics: EngineSemantics::default(),
    };
    let idle = (next..DEVICES).map(|d| format!("n0:{d}")).collect::<Vec<_>>();
    let idle = if idle.is_empty() {
        Vec::new()
    } else {
        vec![autohaap::plan::Idle {
            devices: idle,
            reason: "not drawn".into(),
        }]
    };
    let plan = Plan::build(&model, &cluster, training, pipelines, idle);
    Ok(Some(plan))
}

/// What the plans together must contain and do not.
fn missing(plans: &[Plan]) -> Vec<String> {
    use ScheduleKind::{DualpipeV, Gpipe, Interleaved, OneF1b, ZbH1, ZbH2, ZbV};
    let any = |what: &dyn Fn(&Plan) -> bool| plans.iter().any(what);
    let stage = |what: &dyn Fn(&Stage) -> bool| {
        plans
            .iter()
            .flat_map(|p| &p.pipelines)
            .flat_map(|p| &p.stages)
            .any(what)
    };
    let mut found: Vec<(String, bool)> = vec![
        ("several pipelines".into(), any(&|p| p.pipelines.len() > 1)),
        ("tied ends".into(), any(&|p| p.model.model.tied)),
        ("ZeRO 1".into(), any(&|p| p.training.zero == 1)),
        ("no ZeRO".into(), any(&|p| p.training.zero == 0)),
        (
            "sequence parallelism".into(),
            any(&|p| p.training.sequence_parallel),
        ),
        (
            "rows 3:1".into(),
            stage(&|s| {
                let rows: Vec<u32> = s.replicas.iter().map(|r| r.rows).collect();
                rows == [3, 1] || rows == [1, 3]
            }),
        ),
        (
            "replicas of different tp".into(),
            stage(&|s| s.replicas.iter().any(|r| r.tp != s.replicas[0].tp)),
        ),
        ("ep 2".into(), stage(&|s| s.ep == 2)),
    ];
    for tp in [1, 2, 4] {
        found.push((
            format!("tp {tp}"),
            stage(&|s| s.replicas.iter().any(|r| r.tp == tp)),
        ));
    }
    for mode in [Recompute::Full, Recompute::Selective] {
        found.push((
            format!("{mode:?}"),
            stage(&|s| s.recompute.iter().any(|r| r.mode == mode)),
        ));
    }
    for kind in [OneF1b, Gpipe, Interleaved, ZbH1, ZbH2, ZbV, DualpipeV] {
        found.push((
            format!("{kind:?}"),
            any(&|p| p.pipelines.iter().any(|p| p.schedule.kind == kind)),
        ));
    }
    found
        .into_iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| name)
        .collect()
}

/// Writes `count` plans and their facts; the number of draws that were refused, by reason.
pub(super) fn write(folder: &Path, count: usize) -> Result<Vec<String>> {
    let configs = configs();
    for (name, config) in &configs {
        let at = folder.join(name);
        fs::create_dir_all(&at)?;
        fs::write(at.join("config.json"), serde_json::to_string_pretty(config)?)?;
    }
    let mut refused = Vec::new();
    let (mut cases, mut plans) = (Vec::new(), Vec::new());
    let mut seed = 0_u64;
    while cases.len() < count {
        seed += 1;
        if seed > 200 * count as u64 {
            bail!(
                "only {} legal plans: {:?}",
                cases.len(),
                refused.iter().take(10).collect::<Vec<_>>()
            );
        }
        let (name, config) = &configs[cases.len() % configs.len()];
        let Some(plan) = draw(seed, config)? else {
            continue;
        };
        let violations = check(&plan);
        if let Some(violation) = violations.first() {
            refused.push(format!("{}: {}", violation.code.id, violation.message));
            continue;
        }
        let simulation = match simulate(&plan, &Options::default()) {
            Ok(simulation) => simulation,
            Err(problems) => {
                refused.push(problems.to_string());
                continue;
            }
        };
        let file = format!("plan-{}.json", cases.len());
        fs::write(folder.join(&file), plan.to_json())?;
        plans.push(plan);
        let chains = &simulation.program.chains;
        cases.push(json!({
            "plan": file,
            "seed": seed,
            "model": name,
            "schedules": chains.iter().map(|c| csv::write(&c.order)).collect::<Vec<_>>(),
            "peak_in_flight": chains.iter().map(|c| c.order.peak_in_flight()).collect::<Vec<_>>(),
            // Elements of one micro-batch over each boundary: two bytes each.
            "forward_elements": chains.iter().map(|c| c.forward.iter().map(|t| t.bytes / 2.0).collect::<Vec<_>>()).collect::<Vec<_>>(),
            "backward_elements": chains.iter().map(|c| c.backward.iter().map(|t| t.bytes / 2.0).collect::<Vec<_>>()).collect::<Vec<_>>(),
        }));
    }
    let missing = missing(&plans);
    if !missing.is_empty() {
        bail!("no plan has {}", missing.join(", "));
    }
    fs::write(folder.join("cases.json"), serde_json::to_string_pretty(&cases)?)?;
    Ok(refused)
}
