//! What devices and settings allow: precision, kernels, ranges, digests.

use super::{Facts, Found};
use crate::cluster::Precision;
use crate::error::{Problem, nearest, plan as codes};
use crate::plan::AttentionKernel;

/// Settings are in range.
pub(super) fn training_setting(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::TRAINING_SETTING;
    let training = &facts.plan.training;
    let mut wrong = |field: &str, message: String, hint: &str| {
        found.push(code, || {
            Problem::new(code, format!("training.{field}"), message).hint(hint)
        });
    };
    if training.zero > 3 {
        wrong(
            "zero",
            format!("ZeRO level is `{}`", training.zero),
            "legal levels: 0, 1, 2, 3",
        );
    }
    if training.seq_len == 0 {
        wrong(
            "seq_len",
            "sequence length is `0`".into(),
            "at least 1 token, for example 4096",
        );
    }
    if training.global_batch == 0 {
        wrong(
            "global_batch",
            "global batch is `0`".into(),
            "at least 1 sequence",
        );
    }
}

fn word(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
        Precision::Fp8 => "fp8",
        Precision::Fp32 => "fp32",
    }
}

/// Every device type in use supports the precision.
pub(super) fn precision(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::PRECISION;
    let wanted = facts.plan.training.precision;
    let known = &facts.plan.cluster.cluster.device_types;
    let used: Vec<(&str, _)> = facts
        .types_in_use()
        .into_iter()
        .filter_map(|name| known.get(name).map(|d| (name, d)))
        .collect();
    for (name, device) in &used {
        if device.supports(wanted) {
            continue;
        }
        found.push(code, || {
            let common = [Precision::Bf16, Precision::Fp16, Precision::Fp32]
                .into_iter()
                .filter(|p| used.iter().all(|(_, d)| d.supports(*p)))
                .map(word);
            let common = super::list(common);
            let hint = if common.is_empty() {
                format!("no precision runs on all device types in use; leave `{name}` idle")
            } else {
                format!("all device types in use support {common}; or leave `{name}` idle")
            };
            let message = format!("`{name}` does not support `{}`", word(wanted));
            Problem::new(code, "training.precision", message).hint(hint)
        });
    }
}

/// Flash attention only where a kernel exists; the map names known types.
pub(super) fn attention_kernel(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::ATTENTION_KERNEL;
    let known = &facts.plan.cluster.cluster.device_types;
    let used = facts.types_in_use();
    for (name, kernel) in &facts.plan.training.attention {
        let path = || format!("training.attention.{name}");
        match known.get(name) {
            None => found.push(code, || {
                let near = nearest(name, known.keys().map(String::as_str)).unwrap_or("none");
                let message = format!("`attention` names `{name}`, which the cluster does not have");
                Problem::new(code, path(), message).hint(format!("the nearest type of the plan is `{near}`"))
            }),
            Some(device) => {
                let flash = *kernel == AttentionKernel::Flash;
                if flash && !device.flash_attention && used.contains(&name.as_str()) {
                    found.push(code, || {
                        let message = format!("`{name}` has no `flash` attention kernel");
                        Problem::new(code, path(), message)
                            .hint("set `unfused`, or leave the device type idle")
                    });
                }
            }
        }
    }
}

/// Digests fit the contents.
pub(super) fn digest(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::DIGEST;
    let plan = facts.plan;
    let mut compare = |path: &str, given: &str, contents: String| {
        if given != contents {
            found.push(code, || {
                let message = format!("digest `{given}` does not match the contents");
                Problem::new(code, path, message).hint(format!(
                    "the contents have `{contents}`: plan again, or set it if the edit was meant"
                ))
            });
        }
    };
    compare("model.digest", &plan.model.digest, plan.model.model.digest());
    compare(
        "cluster.digest",
        &plan.cluster.digest,
        plan.cluster.cluster.digest(),
    );
    if !plan.profile.digest.is_empty() {
        compare(
            "profile.digest",
            &plan.profile.digest,
            plan.profile.contents_digest(),
        );
    }
}

/// Advice: the sequence is not longer than the model was made for.
pub(super) fn long_sequence(facts: &Facts<'_>, found: &mut Found) {
    let code = &codes::LONG_SEQUENCE;
    let seq_len = facts.plan.training.seq_len;
    if let Some(most) = facts.plan.model.model.max_seq_len.filter(|most| *most < seq_len) {
        found.push(code, || {
            let message = format!("sequences of `{seq_len}` tokens, the model was made for {most}");
            Problem::new(code, "training.seq_len", message).hint(format!("at most {most}"))
        });
    }
}
