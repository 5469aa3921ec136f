//! Making a plan from its parts: records, figures, digests.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    AtomFigures, ClusterRecord, Idle, ModelRecord, PLAN_SCHEMA, Pipeline, Plan, ProfileEntry, ProfileRecord,
    Training,
};
use crate::cluster::Cluster;
use crate::model::Model;

impl Plan {
    /// A plan without prediction and search record: embeds model and cluster with their digests and derives the figures.
    pub fn build(
        model: &Model,
        cluster: &Cluster,
        training: Training,
        pipelines: Vec<Pipeline>,
        idle: Vec<Idle>,
    ) -> Self {
        let mut plan = Self {
            schema: PLAN_SCHEMA.to_owned(),
            created_by: concat!("autohaap ", env!("CARGO_PKG_VERSION")).to_owned(),
            name: format!("{} on {}", model.name, cluster.name),
            id: String::new(),
            model: ModelRecord::new(model.clone(), training.seq_len),
            cluster: ClusterRecord::new(cluster.clone()),
            training,
            profile: ProfileRecord::default(),
            pipelines,
            idle,
            prediction: None,
            search: None,
            alternatives: None,
        };
        plan.id = plan.new_id();
        plan
    }

    /// Digest of pipelines, idle devices, model, cluster and training: equal plans have equal identifiers.
    pub fn new_id(&self) -> String {
        digest_of(&(
            &self.training,
            &self.model.digest,
            &self.cluster.digest,
            &self.pipelines,
            self.idle.iter().map(|i| &i.devices).collect::<Vec<_>>(),
        ))
    }
}

impl ModelRecord {
    /// A record with digest and figures at a sequence length.
    pub fn new(model: Model, seq_len: u64) -> Self {
        Self {
            digest: model.digest(),
            figures: figures(&model, seq_len),
            model,
        }
    }
}

impl ClusterRecord {
    /// A record with its digest.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            digest: cluster.digest(),
            cluster,
        }
    }
}

impl ProfileRecord {
    /// A record of the entries that a prediction used, with their digest.
    pub fn from_entries(entries: Vec<ProfileEntry>) -> Self {
        let mut record = Self {
            digest: String::new(),
            entries,
        };
        record.digest = record.contents_digest();
        record
    }

    /// Digest of the entries; empty for none.
    pub fn contents_digest(&self) -> String {
        if self.entries.is_empty() {
            String::new()
        } else {
            digest_of(&self.entries)
        }
    }
}

/// Figures of every atom at a sequence length; identical neighbours are derived once.
pub(super) fn figures(model: &Model, seq_len: u64) -> Vec<AtomFigures> {
    let mut figures: Vec<AtomFigures> = Vec::with_capacity(model.atoms.len());
    for (i, atom) in model.atoms.iter().enumerate() {
        if let Some(last) = figures.last().filter(|_| model.atoms[i - 1] == *atom) {
            figures.push(last.clone());
            continue;
        }
        let numbers = atom.numbers(seq_len);
        figures.push(AtomFigures {
            parameters: numbers.parameters,
            parameters_active: numbers.parameters_active,
            flops_forward_per_token: numbers.forward.total().get(),
            flops_weight_grad_per_token: numbers.weight_grad.total().get(),
            flops_input_grad_per_token: numbers.input_grad.total().get(),
            boundary_bytes_per_token: numbers.boundary_bytes_per_token.get(),
            activation_bytes_per_token: numbers.activation_bytes_per_token.get(),
        });
    }
    figures
}

/// First 16 hexadecimal digits of the SHA-256 of the value's JSON with sorted keys.
fn digest_of<T: serde::Serialize>(value: &T) -> String {
    let mut text = String::new();
    canonical(&serde_json::to_value(value).unwrap_or_default(), &mut text);
    let hash = Sha256::digest(text.as_bytes());
    let mut hex = String::with_capacity(16);
    for byte in hash.iter().take(8) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}
