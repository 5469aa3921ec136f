//! Models known by name: the files of `data/models`, built in.

use crate::error::{Problem, model as codes};

/// Text of a preset's model file, found by a forgiving name: letter case, `_`, `-`, `.`, spaces and a leading
/// `organisation/` do not matter.
pub fn preset(id: &str) -> Option<&'static str> {
    find(id).map(|(_, text)| text)
}

/// The spelling of a preset's id as listed.
pub fn preset_id(id: &str) -> Option<&'static str> {
    find(id).map(|(id, _)| id)
}

/// All ids in alphabetical order.
pub fn preset_ids() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    PRESETS.iter().map(|(id, _)| *id)
}

/// The problem of a name that is no preset, with the nearest ids.
pub fn unknown_preset(id: &str) -> Problem {
    let shown: String = id.chars().take(80).collect();
    let wanted = plain(&shown);
    let mut near: Vec<(usize, &str)> = preset_ids()
        .map(|id| (strsim::damerau_levenshtein(&wanted, &plain(id)), id))
        .collect();
    near.sort_unstable();
    let names: Vec<String> = near.iter().take(3).map(|(_, id)| format!("`{id}`")).collect();
    Problem::new(
        &codes::E212,
        shown.clone(),
        format!("no file and no preset is named `{shown}`"),
    )
    .hint(format!("nearest presets: {}", names.join(", ")))
}

fn find(id: &str) -> Option<(&'static str, &'static str)> {
    let last = id.rsplit('/').next().unwrap_or(id);
    let wanted = plain(last);
    PRESETS.iter().copied().find(|(id, _)| plain(id) == wanted)
}

/// Letters and digits only, in lower case.
fn plain(id: &str) -> String {
    id.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

macro_rules! presets {
    ($($id:literal),* $(,)?) => {
        &[$(($id, include_str!(concat!("../../../../data/models/", $id, ".json")))),*]
    };
}

static PRESETS: &[(&str, &str)] = presets![
    "bloom-176b",
    "command-r-35b",
    "deepseek-moe-16b",
    "deepseek-v2",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "ernie-4.5-21b-a3b",
    "falcon-40b",
    "falcon-7b",
    "gemma-2-9b",
    "gemma-2b",
    "gemma-3-1b",
    "gemma-4-26b-a4b",
    "gemma-7b",
    "glm-130b",
    "glm-4-9b",
    "glm-4.5-air-106b",
    "glm-5",
    "gpt-j-6b",
    "gpt-neox-20b",
    "gpt-oss-120b",
    "gpt-oss-20b",
    "gpt2",
    "gpt2-medium",
    "gpt2-xl",
    "gpt3-175b",
    "granite-4.0-h-small",
    "internlm2-7b",
    "kimi-k2",
    "kimi-k3",
    "ling-1t",
    "llama-2-13b",
    "llama-2-70b",
    "llama-2-7b",
    "llama-3.1-405b",
    "llama-3.1-70b",
    "llama-3.1-8b",
    "llama-3.2-1b",
    "llama-3.3-nemotron-super-49b",
    "llama-4-maverick",
    "llama-4-scout",
    "megatron-turing-530b",
    "mimo-v2-flash",
    "minicpm-2b",
    "minicpm-moe-8x2b",
    "minimax-m2.5",
    "minimax-m3",
    "ministral-3-3b",
    "mistral-7b-v0.1",
    "mistral-7b-v0.3",
    "mixtral-8x7b",
    "mpt-7b",
    "nemotron-3-nano-30b-a3b",
    "nemotron-h-56b",
    "olmo-2-13b",
    "olmo-2-32b",
    "olmo-2-7b",
    "olmo-7b",
    "olmoe-1b-7b",
    "openpangu-ultra-moe-718b",
    "orion-14b",
    "palm-540b",
    "phi-2",
    "phi-3.5-mini",
    "phi-3.5-moe",
    "phi-4-mini",
    "qwen1-1.8b",
    "qwen2-0.5b",
    "qwen2-7b",
    "qwen2.5-1.5b",
    "qwen2.5-14b",
    "qwen2.5-32b",
    "qwen2.5-3b",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
    "qwen3-32b",
    "qwen3-8b",
    "qwen3-next-80b-a3b",
    "qwen3.5-397b-a17b",
    "smollm2-1.7b",
    "smollm2-360m",
    "stablelm-2-1.6b",
    "starcoder2-7b",
    "step-3.7-flash",
    "tinyllama-1.1b",
    "yi-34b",
    "yi-6b",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_forgiving_and_distinct() {
        assert_eq!(preset_id("Llama_3.1-8B"), Some("llama-3.1-8b"));
        assert_eq!(preset_id("Qwen/Qwen3-30B-A3B"), Some("qwen3-30b-a3b"));
        for id in preset_ids() {
            assert_eq!(preset_id(id), Some(id));
        }
        assert!(preset("llama-3.1-9b").is_none());
        assert!(unknown_preset("llama-3.1-9b").hint.contains("`llama-3.1-8b`"));
    }
}
