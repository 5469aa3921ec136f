//! The profile on disk: `manifest.json` and one CSV file per table, units in the names, unknown keys and columns refused.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cluster::{Collective, LayerSetting, LayerTimes, MeasuredRecompute, Precision, check_layer_times};
use crate::error::{Problem, Problems, profile as codes};
use crate::model::AtomKind;
use crate::units::Seconds;

/// Name and version of the format.
pub const SCHEMA: &str = "autohaap/profile@1";

/// Files of a profile; `manifest.json` must be there, tables without a file are empty.
pub const MANIFEST: &str = "manifest.json";
/// Times of layers.
pub const LAYERS: &str = "layers.csv";
/// Times of collectives.
pub const COMM: &str = "comm.csv";

/// Half the distance of the 10th and 90th percentile of a normal distribution, in standard deviations.
const TENTH: f64 = 1.2816;

/// What was measured, with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Number format of the layers.
    pub dtype: Precision,
    /// Model whose layers were measured ([`super::model_hash`]); empty if only links were.
    pub model_hash: String,
    /// Whether layer times contain the collectives inside the layer.
    pub includes_communication: bool,
    /// Name of the model, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Engine and its commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub engine: String,
    /// Framework and its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub framework: String,
    /// Driver version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Day of the measurement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub date: String,
    /// Locked or free clocks, power cap.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub clock_state: String,
    /// Repetitions behind a median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_repeats: Option<u32>,
    /// How FLOPs were counted, where the source gives rates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub flops_convention: String,
}

/// A phase of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Forward.
    F,
    /// Backward; the input gradient where a row `W` stands beside it.
    B,
    /// Weight gradient.
    W,
    /// Forward and backward together.
    FB,
}

/// A row of `layers.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRow {
    /// Device, by any name that `autohaap devices` knows.
    pub device: String,
    /// Class of the layer: embedding, dense, moe, scan, mtp, head.
    pub layer_class: AtomKind,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    #[serde(default = "one")]
    pub cp: u32,
    /// Expert parallelism.
    #[serde(default = "one")]
    pub ep: u32,
    /// Expert tensor parallelism.
    #[serde(default = "one")]
    pub etp: u32,
    /// Sequence parallelism.
    #[serde(default)]
    pub sp: bool,
    /// Sequences of the micro-batch.
    pub micro_batch: u32,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// What the backward pass computes again: none, selective, full.
    #[serde(default = "nothing")]
    pub recompute: MeasuredRecompute,
    /// Phase.
    pub phase: Phase,
    /// Median of the repetitions.
    pub time_s_median: f64,
    /// Tenth percentile.
    #[serde(default)]
    pub time_s_p10: Option<f64>,
    /// Ninetieth percentile.
    #[serde(default)]
    pub time_s_p90: Option<f64>,
    /// Repetitions.
    #[serde(default)]
    pub n: Option<u32>,
    /// How the row came about: `measured` (default) or a word of an importer.
    #[serde(default)]
    pub provenance: String,
    /// File or run the row comes from.
    #[serde(default)]
    pub source: String,
}

/// A row of `comm.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommRow {
    /// Device at both ends.
    pub device: String,
    /// Operation.
    pub op: Collective,
    /// Message bytes (the full tensor of an all-reduce, the gathered one of an all-gather).
    pub bytes: f64,
    /// Ranks, all in one node.
    pub n_ranks: u32,
    /// Median time of one call.
    pub time_s_median: f64,
    /// How the row came about.
    #[serde(default)]
    pub provenance: String,
    /// File or run the row comes from.
    #[serde(default)]
    pub source: String,
}

fn one() -> u32 {
    1
}

fn nothing() -> MeasuredRecompute {
    MeasuredRecompute::None
}

/// A profile as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Folder {
    /// What was measured.
    pub manifest: Manifest,
    /// Times of layers.
    pub layers: Vec<LayerRow>,
    /// Times of collectives inside a node.
    pub comm: Vec<CommRow>,
}

impl Folder {
    /// Reads the texts of a folder's files, by file name.
    ///
    /// # Errors
    /// A missing or wrong manifest, unknown files or columns, times that are not above zero, settings given twice: all together.
    pub fn read(files: &BTreeMap<String, String>, name: &str) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        for file in files.keys() {
            if ![MANIFEST, LAYERS, COMM].contains(&file.as_str()) {
                problems.push(
                    Problem::new(&codes::TABLE, format!("{name}/{file}"), "no table has this name")
                        .hint(format!("tables are `{LAYERS}` and `{COMM}`")),
                );
            }
        }
        let manifest = manifest(files.get(MANIFEST), name);
        let empty = String::new();
        let text = |file: &str| files.get(file).unwrap_or(&empty);
        let layers: Vec<LayerRow> = table(text(LAYERS), &format!("{name}/{LAYERS}"), &mut problems);
        let comm: Vec<CommRow> = table(text(COMM), &format!("{name}/{COMM}"), &mut problems);
        for (i, row) in comm.iter().enumerate() {
            let fine = |x: f64| x.is_finite() && x > 0.0;
            if !fine(row.bytes) || !fine(row.time_s_median) || row.n_ranks < 2 {
                problems.push(
                    Problem::new(
                        &codes::BAD_TIME,
                        format!("{name}/{COMM}"),
                        "a collective needs bytes and a time above zero and two ranks or more",
                    )
                    .at(i + 2, 1),
                );
            }
        }
        let manifest = match manifest {
            Ok(manifest) => Some(manifest),
            Err(found) => {
                problems.push(found);
                None
            }
        };
        let folder = manifest.map(|manifest| Self {
            manifest,
            layers,
            comm,
        });
        if let Some(folder) = &folder
            && let Err(found) = folder.by_device(name)
        {
            problems.extend(found);
        }
        match folder {
            Some(folder) if problems.is_empty() => Ok(folder),
            _ => Err(problems),
        }
    }

    /// The texts of the folder's files.
    pub fn write(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let manifest = serde_json::to_string_pretty(&self.manifest).unwrap_or_default();
        files.insert(MANIFEST.to_owned(), manifest + "\n");
        for (name, text) in [(LAYERS, csv_text(&self.layers)), (COMM, csv_text(&self.comm))] {
            if !text.is_empty() {
                files.insert(name.to_owned(), text);
            }
        }
        files
    }

    /// The layer times of each device as named in the table, phases of a setting put together, in ascending order.
    ///
    /// # Errors
    /// Times that are not above zero, a phase given twice, a weight gradient alone.
    pub fn by_device(&self, name: &str) -> Result<BTreeMap<&str, Vec<LayerTimes>>, Problems> {
        let mut problems = Problems::new();
        let mut devices: BTreeMap<&str, BTreeMap<LayerSetting, LayerTimes>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let path = format!("{name}/{LAYERS}");
        for (i, row) in self.layers.iter().enumerate() {
            let at = LayerSetting {
                layer_class: row.layer_class,
                tp: row.tp,
                cp: row.cp,
                ep: row.ep,
                etp: row.etp,
                sp: row.sp,
                recompute: row.recompute,
                seq_len: row.seq_len,
                micro_batch: row.micro_batch,
            };
            if !seen.insert((row.device.as_str(), at.clone(), row.phase)) {
                problems.push(
                    Problem::new(&codes::TABLE, &path, "a setting and phase stands here twice")
                        .hint("keep one row, with the median of all repetitions")
                        .at(i + 2, 1),
                );
            }
            let spread = match (row.time_s_p10, row.time_s_p90) {
                (Some(low), Some(high)) => {
                    if !(low <= row.time_s_median && row.time_s_median <= high && low > 0.0) {
                        problems.push(
                            Problem::new(
                                &codes::BAD_TIME,
                                &path,
                                "the percentiles do not enclose the median",
                            )
                            .at(i + 2, 1),
                        );
                    }
                    (high - low) / (2.0 * TENTH * row.time_s_median)
                }
                _ => 0.0,
            };
            let entry = devices
                .entry(&row.device)
                .or_default()
                .entry(at.clone())
                .or_insert_with(|| LayerTimes::new(at, super::Step::Measured.sigma()));
            entry.sigma = entry.sigma.max(spread.min(1.0));
            let place = match row.phase {
                Phase::F => &mut entry.forward_s,
                Phase::B => &mut entry.backward_s,
                Phase::W => &mut entry.weight_grad_s,
                Phase::FB => &mut entry.forward_backward_s,
            };
            *place = Some(Seconds(row.time_s_median));
        }
        let devices: BTreeMap<&str, Vec<LayerTimes>> = devices
            .into_iter()
            .map(|(device, settings)| (device, settings.into_values().collect()))
            .collect();
        for (device, layers) in &devices {
            problems.extend(check_layer_times(layers, &format!("{path}: {device}")));
        }
        problems.or(devices)
    }
}

fn manifest(text: Option<&String>, name: &str) -> Result<Manifest, Problem> {
    let path = format!("{name}/{MANIFEST}");
    let text = text.ok_or_else(|| {
        Problem::new(&codes::MANIFEST, &path, "the folder has no manifest")
            .hint("`autohaap import KIND FILE... -o DIR` writes a profile")
    })?;
    let manifest: Manifest = serde_json::from_str(text).map_err(|e| {
        Problem::new(&codes::MANIFEST, &path, e.to_string())
            .hint("see `autohaap explain E560`")
            .at(e.line(), e.column())
    })?;
    if manifest.schema != SCHEMA {
        return Err(Problem::new(
            &codes::MANIFEST,
            &path,
            format!("the schema is `{}`", manifest.schema),
        )
        .hint(format!("this version reads `{SCHEMA}`")));
    }
    Ok(manifest)
}

/// Rows of a table; one problem per line that cannot be read, at most ten.
fn table<T: serde::de::DeserializeOwned>(text: &str, path: &str, problems: &mut Problems) -> Vec<T> {
    let mut rows = Vec::new();
    let mut bad = 0;
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    for (i, row) in reader.deserialize().enumerate() {
        match row {
            Ok(row) => rows.push(row),
            Err(e) => {
                bad += 1;
                if bad <= 10 {
                    let message = match e.kind() {
                        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
                        _ => e.to_string(),
                    };
                    problems.push(
                        Problem::new(&codes::TABLE, path, message)
                            .hint("see `autohaap explain E561`")
                            .at(i + 2, 1),
                    );
                }
            }
        }
    }
    rows
}

fn csv_text<T: Serialize>(rows: &[T]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        if writer.serialize(row).is_err() {
            return String::new();
        }
    }
    writer
        .into_inner()
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default()
}
