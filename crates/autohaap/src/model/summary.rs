//! What `autohaap model --format json` prints.

use serde::Serialize;

use super::{Atom, AtomKind, Model, ModelInput};
use crate::units::{Bytes, Flops};

/// Sequence length of the figures where the model's maximum allows it.
pub const SUMMARY_SEQ_LEN: u64 = 4096;

/// The model in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelSummary {
    /// Always `autohaap/model@1`.
    pub schema: &'static str,
    /// Preset name or file stem.
    pub name: String,
    /// `model_type` as read, or the format's name.
    pub family: String,
    /// Parameters, MTP excluded.
    pub parameters_total: u64,
    /// Parameters touched per token, MTP excluded.
    pub parameters_active: u64,
    /// Parameters without the input embedding.
    pub parameters_without_embeddings: u64,
    /// Parameters of MTP blocks.
    pub parameters_mtp: u64,
    /// Whether embedding and head share a weight.
    pub tied: bool,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Vocabulary without padding.
    pub vocab: u64,
    /// Longest sequence the model was made for.
    pub max_seq_len: Option<u64>,
    /// Runs of equal atoms in chain order.
    pub atoms: Vec<AtomRun>,
    /// Keys of the file that were not used.
    pub ignored_keys: Vec<String>,
    /// Values filled in because the file does not say.
    pub defaults: Vec<DefaultValue>,
    /// Remarks on the reading.
    pub notes: Vec<String>,
}

/// Equal neighbours of the chain. Figures are of one atom.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtomRun {
    /// Kind.
    pub kind: AtomKind,
    /// Atoms in the run.
    pub count: usize,
    /// Parameters of one atom.
    pub parameters: u64,
    /// Parameters of one atom touched per token.
    pub parameters_active: u64,
    /// Forward FLOPs per token, causal core halved.
    pub flops_forward_per_token: Flops,
    /// Bytes per token kept for backward, unsharded.
    pub activation_bytes_per_token: Bytes,
    /// Bytes per token handed on.
    pub boundary_bytes_per_token: Bytes,
    /// Index of the first atom.
    pub first: usize,
}

/// A value that the file does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefaultValue {
    /// Key as the file would name it.
    pub key: String,
    /// Value used.
    pub value: String,
}

impl Model {
    /// The chain as runs of equal atoms: index of the first and number.
    pub fn runs(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (i, atom) in self.atoms.iter().enumerate() {
            match runs.last_mut() {
                Some((first, count)) if self.atoms[*first] == *atom => *count += 1,
                _ => runs.push((i, 1)),
            }
        }
        runs
    }

    /// The sequence length of the summary: 4096, or the model's maximum if that is shorter.
    pub fn summary_seq_len(&self) -> u64 {
        self.max_seq_len.unwrap_or(SUMMARY_SEQ_LEN).min(SUMMARY_SEQ_LEN)
    }

    /// The model in figures, with FLOPs at [`Model::summary_seq_len`]. What the reader remarked is added by
    /// [`ModelInput::summary`].
    pub fn summary(&self) -> ModelSummary {
        let seq_len = self.summary_seq_len();
        let run = |(first, count): (usize, usize)| {
            let atom: &Atom = &self.atoms[first];
            let numbers = atom.numbers(seq_len);
            AtomRun {
                kind: atom.kind,
                count,
                parameters: numbers.parameters,
                parameters_active: numbers.parameters_active,
                flops_forward_per_token: numbers.forward.total(),
                activation_bytes_per_token: numbers.activation_bytes_per_token,
                boundary_bytes_per_token: numbers.boundary_bytes_per_token,
                first,
            }
        };
        ModelSummary {
            schema: "autohaap/model@1",
            name: self.name.clone(),
            family: self.family.clone(),
            parameters_total: self.parameters_total(),
            parameters_active: self.parameters_active(),
            parameters_without_embeddings: self.parameters_without_embeddings(),
            parameters_mtp: self.parameters_mtp(),
            tied: self.tied,
            hidden: self.hidden,
            vocab: self.vocab,
            max_seq_len: self.max_seq_len,
            atoms: self.runs().into_iter().map(run).collect(),
            ignored_keys: Vec::new(),
            defaults: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl ModelInput {
    /// The model in figures together with everything the reader remarked.
    pub fn summary(&self) -> ModelSummary {
        ModelSummary {
            ignored_keys: self.ignored_keys.clone(),
            defaults: self
                .defaults
                .iter()
                .map(|(key, value)| DefaultValue {
                    key: key.clone(),
                    value: value.clone(),
                })
                .collect(),
            notes: self.notes.clone(),
            ..self.model.summary()
        }
    }
}
