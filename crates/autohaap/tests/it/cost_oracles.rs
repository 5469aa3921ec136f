//! Memory and time agree with published formulas, tools and measurements.

use autohaap::cluster::{Cluster, Precision};
use autohaap::cost::atom::{AtomCost, Setting, atom_cost};
use autohaap::cost::memory::{Boundary, Copies, stage_memory};
use autohaap::cost::reference::{
    LayerFormula, MegatronArguments, MegatronAttention, MegatronExperts, PlainLayer, layer_activations,
    megatron_activations, megatron_static,
};
use autohaap::model::{Model, preset};
use autohaap::plan::{AttentionKernel, MemoryItems, Pipeline, Recompute, RecomputeRange, Replica};
use autohaap::profile::Rates;
use autohaap::units::{Bytes, GIB};

use crate::cost_support::{Row, close, cluster, model, pipeline, predict, rows, shape, stage, training};

#[test]
fn layer_activations_of_the_published_table() {
    let rows = rows("act_mem_layer");
    assert_eq!(rows.len(), 11);
    for row in rows {
        let layer = PlainLayer {
            seq_len: row.number("s"),
            micro_batch: row.number("b"),
            hidden: row.number("h"),
            heads: row.number("a"),
            tp: row.number("t"),
        };
        let recomputed = row.inputs["recompute"] == "attention core";
        let formula = match row.inputs["variant"].as_str() {
            Some("tp") => LayerFormula::TensorParallel,
            Some("tpsp") => LayerFormula::SequenceParallel,
            Some("tpsp_sel") => LayerFormula::SequenceParallelSelective,
            None if recomputed => LayerFormula::LlmAnalysisSelective,
            None => LayerFormula::LlmAnalysis,
            Some(other) => panic!("{}: unknown variant {other}", row.id),
        };
        // Exact up to the rounding of the last bit of a double.
        close(layer_activations(formula, layer).0, row.value(), 1e-15);
    }
}

fn megatron(row: &Row) -> MegatronArguments {
    let flag = |key: &str| row.inputs[key].as_bool().expect("a flag");
    let attention = if row.inputs["multi_latent_attention"] == true {
        MegatronAttention::Latent {
            heads: row.number("num_attention_heads"),
            q_rank: row.number("q_lora_rank"),
            kv_rank: row.number("kv_lora_rank"),
            qk_dim: row.number("qk_head_dim"),
            rope_dim: row.number("qk_pos_emb_head_dim"),
            v_dim: row.number("v_head_dim"),
        }
    } else {
        MegatronAttention::Grouped {
            heads: row.number("num_attention_heads"),
            groups: row.number("num_query_groups"),
            head_dim: row.number("kv_channels"),
        }
    };
    let experts = row.inputs["num_experts"].as_u64().map(|experts| {
        assert_eq!(row.inputs["moe_layer_freq"], "first 3 dense, 58 MoE");
        MegatronExperts {
            layers: 58,
            experts,
            ffn: row.number("moe_ffn_hidden_size"),
            shared: row.number("moe_shared_expert_intermediate_size"),
        }
    });
    MegatronArguments {
        layers: row.number("num_layers"),
        hidden: row.number("hidden_size"),
        attention,
        ffn: row.number("ffn_hidden_size"),
        gated: flag("swiglu"),
        layer_norm: row.inputs["normalization"] == "LayerNorm",
        vocab: row.number("padded_vocab_size"),
        untied: flag("untie_embeddings_and_output_weights"),
        experts,
        tp: row.number("tensor_model_parallel_size"),
        pp: row.number("pipeline_model_parallel_size"),
        vpp: row.inputs["virtual_pipeline_model_parallel_size"].as_u64(),
        dp: row.number("data_parallel_size"),
        ep: row.number("expert_model_parallel_size"),
        etp: row.number("expert_tensor_parallel_size"),
        world_size: row.number("world_size"),
        distributed_optimizer: flag("use_distributed_optimizer"),
        seq_len: row.number("seq_length"),
        micro_batch: row.number("micro_batch_size"),
        micro_batches: row.inputs["num_microbatches"].as_u64(),
    }
}

#[test]
fn megatron_memory_report() {
    let statics = rows("static_mem");
    assert_eq!(statics.len(), 5);
    for row in statics {
        close(megatron_static(&megatron(&row)).0, row.value(), 1e-12);
    }
    let activations = rows("act_mem");
    assert_eq!(activations.len(), 4);
    for row in activations {
        close(megatron_activations(&megatron(&row)).0, row.value(), 1e-12);
    }
}

/// Llama-3-8B (the 3.1 file has the same sizes) with the padded vocabulary of the tool's run.
fn llama() -> Model {
    let text = preset("llama-3.1-8b")
        .expect("a preset")
        .replace("128256", "128384");
    let model = model(&text);
    assert_eq!(model.vocab, 128_384);
    // Both stages hold 16 layers and one vocabulary matrix; the last one also the final norm.
    assert_eq!(model.parameters_total(), 2 * 4_015_652_864 + 4096);
    model
}

/// Memory of both stages of 16 layers, no tensor parallelism, ZeRO-1 over four holders, by the product's own model.
fn two_stages() -> [MemoryItems; 2] {
    let model = llama();
    let cluster = cluster("1x8 A100-PCIe-80GB");
    let mut training = training();
    (training.seq_len, training.zero) = (4096, 1);
    let setting = Setting::new(&model, &cluster, &training);
    let costs: Vec<AtomCost> = (0..model.atoms.len())
        .map(|atom| atom_cost(&setting, atom, &shape(&cluster)))
        .collect();
    assert_eq!(costs.len(), 34);
    [(0, 2), (17, 1)].map(|(from, in_flight)| {
        stage_memory(
            &setting,
            &costs[from..from + 17],
            &[],
            in_flight,
            Copies { dense: 4, expert: 4 },
            Boundary {
                first: from == 0,
                last: from == 17,
                tp: 1,
                cp: 1,
                rows: 1,
            },
            Bytes::from_gib(79.0),
        )
    })
}

#[test]
fn simumax_memory_from_the_products_own_model() {
    let items = two_stages();
    let fixed = items.map(|m| (m.weights + m.gradients + m.optimizer).gib());
    let cached = [items[0].activations.gib() / 2.0, items[1].activations.gib()];
    // Context, reserve and transfer buffers are items of their own that the tool's peak does not hold.
    let peak = items.map(|m| (m.total - m.context - m.reserve - m.buffers).gib());
    let mut seen = 0;
    for row in rows("simumax") {
        seen += 1;
        match row.id.as_str() {
            // Iteration time: it rests on the tool's own efficiency tables.
            "O155" => {}
            "O156" => {
                // 5 % allowed; the product reaches a tenth of it on the first stage. On the last one the tool puts the
                // logits' gradient beside the probabilities; the product writes it over them, as measured runs do (the
                // group `sim` of the published rows).
                let tolerances = [0.005, 0.02];
                let wanted = row.expected.as_array().expect("two stages");
                for ((found, wanted), tolerance) in peak.iter().zip(wanted).zip(tolerances) {
                    let wanted = wanted.as_f64().expect("a number");
                    println!("{} {}: {found:.4} against {wanted}", row.id, row.quantity);
                    close(*found, wanted, tolerance);
                }
            }
            // Exact product behind it: 4,015,652,864 parameters of 9 bytes; the row has four decimals.
            "O157" => {
                close(fixed[0] * GIB, 4_015_652_864.0 * 9.0, 1e-12);
                close(fixed[1] * GIB, (4_015_652_864.0 + 4096.0) * 9.0, 1e-12);
                close(fixed[0], row.value(), 1e-4);
                close(fixed[1], row.value(), 1e-4);
            }
            "O158" => close(cached[0], row.value(), 1e-3),
            "O159" => close(cached[1], row.value(), 1e-3),
            // The tool's working set (8.7227 GiB) is a cached set and a little more, as in the product.
            "O160" => close(peak[0], row.value(), 5e-4),
            other => panic!("{other} is not covered"),
        }
    }
    assert_eq!(seen, 6);
}

#[test]
fn measured_products_within_the_published_tolerance() {
    let rows = rows("gemm_measured");
    assert_eq!(rows.len(), 7);
    let mut wrong = Vec::new();
    for row in rows {
        let name = match row.inputs["gpu"].as_str().expect("a GPU") {
            "a100_sxm" => "A100-SXM-80GB",
            "h100_sxm" => "H100-SXM",
            "h200_sxm" => "H200",
            "l40s" => "L40S",
            "b200_sxm" => "B200",
            other => panic!("{}: unknown GPU {other}", row.id),
        };
        let cluster = cluster(&format!("1x1 {name}"));
        let device = cluster.device_types.values().next().expect("one device");
        let rates = Rates::of(device, Precision::Bf16, 1.0);
        let [m, n, k] = ["m", "n", "k"].map(|key| row.number(key) as f64);
        let flops = 2.0 * m * n * k / (rates.gemm.0 * rates.gemm_share(m, n, k));
        let bytes = 2.0 * (m * k + k * n + m * n) / rates.memory.0;
        let found = rates.launch.0 + flops.max(bytes);
        let error = found / (row.value() / 1e3) - 1.0;
        println!("{} {name} {m}: {:+.1} %", row.id, 100.0 * error);
        if error.abs() > 0.15 {
            wrong.push((row.id, error));
        }
    }
    assert!(wrong.is_empty(), "outside 15 %: {wrong:?}");
}

fn gpt(layers: u64, hidden: u64, heads: u64) -> Model {
    model(&format!(
        r#"{{"num_layers":{layers},"hidden_size":{hidden},"num_attention_heads":{heads},"kv_channels":{},
        "num_query_groups":{heads},"ffn_hidden_size":{},"swiglu":false,"normalization":"LayerNorm",
        "padded_vocab_size":51200,"untie_embeddings_and_output_weights":false,"add_bias_linear":false}}"#,
        hidden / heads,
        4 * hidden,
    ))
}

/// The plan of a measured run: `pp` stages of equal layers, one node of eight devices each.
fn measured_plan(
    model: &Model,
    pp: usize,
    micro_batch: u32,
    micro_batches: u32,
    mode: Recompute,
) -> Pipeline {
    let layers = (model.atoms.len() - 2) / pp;
    let stages = (0..pp).map(|s| {
        let first = if s == 0 { 0 } else { 1 + s * layers };
        let last = if s + 1 == pp {
            model.atoms.len()
        } else {
            1 + (s + 1) * layers
        };
        let replica = Replica {
            devices: (0..8).map(|d| format!("n{s}:{d}")).collect(),
            tp: 8,
            cp: 1,
            rows: micro_batch,
        };
        let mut stage = stage([first, last], (pp - s) as u32, vec![replica]);
        stage.recompute = vec![RecomputeRange {
            atoms: [first.max(1), last.min(model.atoms.len() - 1)],
            mode,
        }];
        stage
    });
    pipeline(micro_batch, micro_batches, stages.collect())
}

#[test]
fn measured_iterations() {
    let rows = rows("measured_time");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let (pp, chunks) = (row.number("pp"), row.number("vpp"));
        let cluster: Cluster = cluster(&format!("{pp}x8 A100-SXM-80GB @ ib:8x200Gb"));
        let model = gpt(
            row.number("num_layers"),
            row.number("hidden_size"),
            row.number("num_attention_heads"),
        );
        let mut training = training();
        training.seq_len = row.number("seq_length");
        training.global_batch = row.number("global_batch");
        training.precision = Precision::Fp16;
        training.sequence_parallel = row.inputs["sequence_parallel"] == true;
        for device in cluster.device_types.keys() {
            training
                .attention
                .insert(device.clone(), AttentionKernel::Unfused);
        }
        let mode = if row.inputs["recompute"] == "full" {
            Recompute::Full
        } else {
            Recompute::Selective
        };
        let micro_batch = row.number("micro_batch") as u32;
        let micro_batches = (row.number("global_batch") / row.number("micro_batch")) as u32;
        let plan = measured_plan(&model, pp as usize, micro_batch, micro_batches, mode);
        let plain = predict(&model, &cluster, &training, &[plan]).step_time_s.0;
        // Interleaved schedules have no evaluator: the plain order's bubble (p-1)/m is replaced by (p-1)/(mv), which holds
        // for equal stages without link time.
        let bubble = |v: u64| 1.0 + (pp - 1) as f64 / (u64::from(micro_batches) * v) as f64;
        let found = plain * bubble(chunks) / bubble(1);
        println!(
            "{} {}: {found:.3} s ({plain:.3} s without interleaving) against {} s, {:+.1} %",
            row.id,
            row.inputs["model"],
            row.value(),
            100.0 * (found / row.value() - 1.0)
        );
        // Nothing is fitted to these rows: rates are the catalogue's measured product rate with the default shares.
        close(found, row.value(), 0.10);
    }
}
