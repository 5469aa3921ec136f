//! `train.toml`: what is trained on what, apart from the plan.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Problem, runtime as codes};

/// A training file. Paths are relative to it until [`TrainingFile::read`] has made them absolute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingFile {
    /// Architecture and first weights.
    pub model: ModelSection,
    /// Tokens.
    pub data: DataSection,
    /// Update rule.
    #[serde(default)]
    pub optimizer: OptimizerSection,
    /// Length and place of the run.
    pub run: RunSection,
}

/// `[model]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// The planned model's `config.json`.
    pub config: PathBuf,
    /// Folder with safetensors to start from; without it weights are drawn from `run.seed`.
    #[serde(default)]
    pub weights: Option<PathBuf>,
}

/// `[data]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// Token file.
    pub tokens: PathBuf,
    /// Seed of the order of sequences.
    #[serde(default)]
    pub seed: u64,
}

/// `[optimizer]`; AdamW or SGD as the plan says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSection {
    /// Peak learning rate.
    pub lr: f64,
    /// Decay of the moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0: no clipping.
    pub clip: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Whether the rate falls to a tenth along a cosine over the run.
    pub cosine: bool,
}

impl Default for OptimizerSection {
    fn default() -> Self {
        Self {
            lr: 3e-4,
            betas: [0.9, 0.95],
            eps: 1e-8,
            weight_decay: 0.1,
            clip: 1.0,
            warmup: 0,
            cosine: false,
        }
    }
}

/// `[run]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSection {
    /// Optimizer steps in all.
    pub steps: u64,
    /// Steps between checkpoints; 0: only at the end.
    #[serde(default)]
    pub checkpoint_every: u64,
    /// Folder of the run.
    #[serde(default = "folder")]
    pub folder: PathBuf,
    /// Seed of first weights and dropout.
    #[serde(default)]
    pub seed: u64,
    /// Number format in place of the plan's: fp32, fp64, bf16, fp16.
    #[serde(default)]
    pub precision: Option<String>,
    /// `gloo` (CPUs) or `nccl` (GPUs).
    #[serde(default = "gloo")]
    pub backend: String,
    /// Threads per process on CPUs.
    #[serde(default = "one")]
    pub threads: u32,
    /// Longest wait for other ranks, seconds.
    #[serde(default = "timeout")]
    pub timeout_s: u64,
    /// Seconds without progress after which a run counts as hung.
    #[serde(default = "hang")]
    pub hang_s: u64,
    /// Folder for an ordinary Hugging Face checkpoint at the end.
    #[serde(default)]
    pub export: Option<PathBuf>,
}

fn folder() -> PathBuf {
    "run".into()
}
fn gloo() -> String {
    "gloo".into()
}
fn one() -> u32 {
    1
}
fn timeout() -> u64 {
    300
}
fn hang() -> u64 {
    300
}

impl TrainingFile {
    /// Reads a training file that lies in `folder`.
    ///
    /// # Errors
    /// Text that is no training file, words and numbers out of range.
    pub fn read(text: &str, source_name: &str, folder: &Path) -> Result<Self, Problem> {
        let bad = |message: String| {
            Problem::new(&codes::TRAINING_FILE, source_name, message)
                .hint("`autohaap explain E609` shows an example with every key")
        };
        let mut file: Self = toml::from_str(text).map_err(|e| {
            let problem = bad(e.message().to_owned());
            match e.span() {
                Some(span) => {
                    let before = text.get(..span.start).unwrap_or_default();
                    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
                    problem.at(before.matches('\n').count() + 1, column)
                }
                None => problem,
            }
        })?;
        if !["gloo", "nccl"].contains(&file.run.backend.as_str()) {
            return Err(bad(format!(
                "backend `{}` is neither gloo nor nccl",
                file.run.backend
            )));
        }
        if let Some(precision) = &file.run.precision
            && !["fp32", "fp64", "bf16", "fp16"].contains(&precision.as_str())
        {
            return Err(bad(format!(
                "precision `{precision}` is not one of fp32, fp64, bf16, fp16"
            )));
        }
        if file.run.steps == 0 {
            return Err(bad("`run.steps` is 0".into()));
        }
        if !(file.optimizer.lr.is_finite() && file.optimizer.lr > 0.0) {
            return Err(bad(format!("`optimizer.lr` is {}", file.optimizer.lr)));
        }
        for path in [
            &mut file.model.config,
            &mut file.data.tokens,
            &mut file.run.folder,
        ] {
            *path = folder.join(&*path);
        }
        for path in [&mut file.model.weights, &mut file.run.export]
            .into_iter()
            .flatten()
        {
            *path = folder.join(&*path);
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_file_has_defaults_and_mistakes_have_a_place() {
        let text = "[model]\nconfig = \"config.json\"\n[data]\ntokens = \"t.bin\"\n[run]\nsteps = 5\n";
        let file = TrainingFile::read(text, "train.toml", Path::new("/there")).unwrap();
        assert_eq!(file.data.tokens, Path::new("/there/t.bin"));
        assert_eq!((file.run.backend.as_str(), file.run.threads), ("gloo", 1));
        let wrong = format!("{text}speed = 3\n");
        let problem = TrainingFile::read(&wrong, "train.toml", Path::new(".")).unwrap_err();
        assert_eq!((problem.code.id, problem.line), ("E609", Some(7)));
    }
}
