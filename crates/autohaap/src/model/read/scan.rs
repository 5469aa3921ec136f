//! State-space and linear-attention mixers, reduced to projections, a scan of fixed FLOPs per token and small rest.

use super::fields::{Fields, limit};
use crate::error::model as codes;
use crate::model::Mixer;

/// A scan together with the parameters of its inner norms.
pub(super) struct Scan {
    pub(super) mixer: Mixer,
    pub(super) norm_parameters: u64,
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |p, f| p.saturating_mul(*f))
}

fn sum(terms: &[u64]) -> u64 {
    terms.iter().fold(0, |s, t| s.saturating_add(*t))
}

/// Mamba 2 (arXiv:2405.21060): z, x, B, C and dt in one projection; chunked scan.
pub(super) fn mamba2(f: &mut Fields<'_>, hidden: u64) -> Option<Scan> {
    let expand = f.count_or(&["mamba_expand", "expand"], 64, 2);
    let heads = f.required(&["mamba_num_heads", "mamba_n_heads"], limit::HEADS, "128")?;
    let dim = match f.value("mamba_d_head").or_else(|| f.value("mamba_head_dim")) {
        Some(v) if v.as_str() == Some("auto") => None,
        Some(v) => f.number("mamba_head_dim", &v, 1, limit::HEAD_DIM),
        None => None,
    };
    let inner_by_expand = product(&[expand, hidden]);
    let inner = match dim {
        Some(dim) => product(&[heads, dim]),
        None if !inner_by_expand.is_multiple_of(heads) => {
            f.problem(
                &codes::E208,
                "mamba_n_heads",
                format!("{heads} heads do not divide the inner width {inner_by_expand}"),
                "give mamba_d_head or a head count that divides it".to_owned(),
            );
            return None;
        }
        None => inner_by_expand,
    };
    let state = f.count_or(&["ssm_state_size", "mamba_d_state"], limit::HEAD_DIM, 128);
    let groups = f.count_or(&["n_groups", "mamba_n_groups"], limit::HEADS, 1);
    let kernel = f.count_or(&["conv_kernel", "mamba_d_conv"], 1024, 4);
    let chunk = f.count_or(&["chunk_size", "mamba_chunk_size"], 1 << 20, 256);
    let conv_bias = f.flag(&["use_conv_bias", "mamba_conv_bias"]).unwrap_or(true);
    let proj_bias = f.flag(&["mamba_proj_bias"]).unwrap_or(false);
    for key in [
        "head_dim",
        "time_step_rank",
        "mamba_ssm_cache_dtype",
        "use_mamba_kernels",
    ] {
        f.consume(key);
    }
    let bc = product(&[2, groups, state]);
    let conv_width = inner.saturating_add(bc);
    let in_width = sum(&[product(&[2, inner]), bc, heads]);
    let other = sum(&[
        product(&[conv_width, kernel]),
        if conv_bias { conv_width } else { 0 },
        product(&[3, heads]),
        if proj_bias {
            in_width.saturating_add(hidden)
        } else {
            0
        },
    ]);
    // Per token: C·Bᵀ and its product with x inside a causal chunk, then writing and reading the state.
    let flops = sum(&[
        product(&[chunk, state, groups]),
        product(&[chunk, inner]),
        product(&[4, inner, state]),
        product(&[2, kernel, conv_width]),
    ]);
    let states = product(&[inner, state]) / chunk;
    Some(Scan {
        mixer: Mixer::Scan {
            name: "mamba2".to_owned(),
            heads,
            in_width,
            out_width: inner,
            scan_flops_per_token: flops,
            saved_per_token: sum(&[conv_width, inner, states]),
            other_parameters: other,
        },
        norm_parameters: inner,
    })
}

/// Mamba (arXiv:2312.00752) with the inner norms of Jamba.
pub(super) fn mamba(f: &mut Fields<'_>, hidden: u64) -> Scan {
    let expand = f.count_or(&["mamba_expand", "expand"], 64, 2);
    let state = f.count_or(&["mamba_d_state", "state_size"], limit::HEAD_DIM, 16);
    let kernel = f.count_or(&["mamba_d_conv", "conv_kernel"], 1024, 4);
    let rank = match f.value("mamba_dt_rank") {
        Some(v) if v.as_str() != Some("auto") => f.number("mamba_dt_rank", &v, 1, limit::HIDDEN),
        _ => None,
    };
    let rank = rank.unwrap_or(hidden.div_ceil(16));
    let conv_bias = f.flag(&["mamba_conv_bias"]).unwrap_or(true);
    let proj_bias = f.flag(&["mamba_proj_bias"]).unwrap_or(false);
    let d = product(&[expand, hidden]);
    let x_width = sum(&[rank, product(&[2, state])]);
    let small = sum(&[product(&[d, x_width]), product(&[rank, d])]);
    let other = sum(&[
        small,
        product(&[d, kernel]),
        if conv_bias { d } else { 0 },
        d,
        product(&[d, state]),
        d,
        if proj_bias {
            sum(&[product(&[2, d]), hidden])
        } else {
            0
        },
    ]);
    Scan {
        mixer: Mixer::Scan {
            name: "mamba".to_owned(),
            heads: d,
            in_width: product(&[2, d]),
            out_width: d,
            scan_flops_per_token: sum(&[
                product(&[2, small]),
                product(&[9, d, state]),
                product(&[2, kernel, d]),
            ]),
            saved_per_token: sum(&[product(&[2, d]), x_width]),
            other_parameters: other,
        },
        norm_parameters: sum(&[rank, product(&[2, state])]),
    }
}

/// FLOPs per token of one head of a gated delta rule in chunks of 64 (arXiv:2412.06464, equations 8-10): three products
/// with the `dk x dv` state and the causal products inside a chunk.
fn delta_flops(key: u64, value: u64) -> u64 {
    const CHUNK: u64 = 64;
    sum(&[
        product(&[6, key, value]),
        product(&[3, CHUNK, key]),
        product(&[2, CHUNK, value]),
    ])
}

/// Gated delta rule (Qwen3-Next): q, k, v, z and the two gates in the projections.
pub(super) fn gated_delta(f: &mut Fields<'_>) -> Option<Scan> {
    let key_heads = f.required(&["linear_num_key_heads"], limit::HEADS, "16");
    let value_heads = f.required(&["linear_num_value_heads"], limit::HEADS, "32");
    let key_dim = f.required(&["linear_key_head_dim"], limit::HEAD_DIM, "128");
    let value_dim = f.required(&["linear_value_head_dim"], limit::HEAD_DIM, "128");
    let kernel = f.count_or(&["linear_conv_kernel_dim"], 1024, 4);
    let (kh, vh, dk, dv) = (key_heads?, value_heads?, key_dim?, value_dim?);
    let (keys, values) = (product(&[kh, dk]), product(&[vh, dv]));
    let conv_width = sum(&[product(&[2, keys]), values]);
    Some(Scan {
        mixer: Mixer::Scan {
            name: "gated-delta".to_owned(),
            heads: kh,
            in_width: sum(&[conv_width, values, product(&[2, vh])]),
            out_width: values,
            scan_flops_per_token: sum(&[
                product(&[vh, delta_flops(dk, dv)]),
                product(&[2, kernel, conv_width]),
            ]),
            saved_per_token: sum(&[conv_width, product(&[2, values]), product(&[values, dk]) / 64]),
            other_parameters: sum(&[product(&[conv_width, kernel]), product(&[2, vh])]),
        },
        norm_parameters: dv,
    })
}

/// Kimi delta attention: q, k, v, a decay of low rank, a write strength per head and an output gate.
pub(super) fn kimi_delta(f: &mut Fields<'_>) -> Option<Scan> {
    let heads = f.required(&["linear_attn_config.num_heads"], limit::HEADS, "32");
    let dim = f.required(&["linear_attn_config.head_dim"], limit::HEAD_DIM, "128");
    let kernel = f.count_or(&["linear_attn_config.short_conv_kernel_size"], 1024, 4);
    let full_rank = f
        .flag(&["linear_attn_config.use_full_rank_gate"])
        .unwrap_or(false);
    let (heads, dim) = (heads?, dim?);
    let width = product(&[heads, dim]);
    let gate = if full_rank { width } else { dim };
    let gate_up = if full_rank { 0 } else { product(&[dim, width]) };
    let decay_up = product(&[dim, width]);
    let conv = product(&[3, width, kernel]);
    Some(Scan {
        mixer: Mixer::Scan {
            name: "kimi-delta".to_owned(),
            heads,
            in_width: sum(&[product(&[3, width]), dim, heads, gate]),
            out_width: width,
            scan_flops_per_token: sum(&[
                product(&[heads, delta_flops(dim, dim)]),
                product(&[2, decay_up.saturating_add(gate_up)]),
                product(&[2, conv]),
            ]),
            saved_per_token: sum(&[product(&[6, width]), product(&[width, dim]) / 64]),
            other_parameters: sum(&[conv, decay_up, gate_up, heads, width]),
        },
        norm_parameters: dim,
    })
}

/// Gated short convolution (LFM2): three projections, a depthwise convolution, one output projection.
pub(super) fn short_conv(f: &mut Fields<'_>, hidden: u64) -> Scan {
    let kernel = f.count_or(&["conv_L_cache"], 1024, 3);
    Scan {
        mixer: Mixer::Scan {
            name: "short-conv".to_owned(),
            heads: hidden,
            in_width: product(&[3, hidden]),
            out_width: hidden,
            scan_flops_per_token: product(&[2, kernel, hidden]),
            saved_per_token: product(&[2, hidden]),
            other_parameters: product(&[kernel, hidden]),
        },
        norm_parameters: 0,
    }
}
