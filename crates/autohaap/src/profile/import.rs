//! Profiles of other tools, written in our format: one entry per kind, each from the format as its tool documents it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::folder::{CommRow, Folder, LayerRow, Manifest, Phase, SCHEMA};
use super::{model_hash, nccl, npy};
use crate::cluster::{Collective, MeasuredRecompute, Precision, find_device};
use crate::error::{Problem, Problems, profile as codes};
use crate::model::{AtomKind, Model};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sailor's layer times: `{model: {gpu: {micro-batch: {tp: {layer: [forward, backward, update]}}}}}`, seconds.
    SailorProfile,
    /// Sailor's links inside a node: `{gpu: {n: [[c2, c1, c0], peak]}}`.
    SailorLinks,
    /// Metis: `DeviceType.<TYPE>_tp<t>_bs<b>.json`, milliseconds of forward and backward together.
    MetisProfile,
    /// AMP: `<model>_<device>_<tp>.npy`, forward seconds of each slot at micro-batch 1.
    AmpNpy,
    /// FASOP: the same without empty slots.
    FasopNpy,
    /// Text of the nccl-tests.
    NcclTests,
}

/// All kinds with their names.
pub const KINDS: &[(&str, Kind)] = &[
    ("sailor-profile", Kind::SailorProfile),
    ("sailor-links", Kind::SailorLinks),
    ("metis-profile", Kind::MetisProfile),
    ("amp-npy", Kind::AmpNpy),
    ("fasop-npy", Kind::FasopNpy),
    ("nccl-tests", Kind::NcclTests),
];

/// What the files do not say.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// Model that was measured.
    pub model: Option<&'a Model>,
    /// Name of the model or device inside the files, if they hold several: only that entry of Sailor's model level.
    pub entry: Option<&'a str>,
    /// Device, where the files do not name one of the catalogue.
    pub device: Option<&'a str>,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Number format.
    pub precision: Precision,
    /// Ranks of the nccl-tests, where their text does not list them.
    pub ranks: Option<u32>,
}

/// A file by name.
#[derive(Debug, Clone)]
pub struct File {
    /// Path or name.
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

impl File {
    fn text(&self) -> Result<&str, Problem> {
        std::str::from_utf8(&self.bytes).map_err(|_| wrong(&self.name, "the file is not UTF-8 text"))
    }
    fn json(&self) -> Result<Value, Problem> {
        serde_json::from_str(self.text()?)
            .map_err(|e| wrong(&self.name, e.to_string()).at(e.line(), e.column()))
    }
    /// The file's name without folder and without the last extension.
    fn stem(&self) -> &str {
        let base = self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name);
        base.rsplit_once('.').map_or(base, |(stem, _)| stem)
    }
}

fn wrong(name: &str, what: impl Into<String>) -> Problem {
    Problem::new(&codes::IMPORT, name, what).hint("see `autohaap explain E564`")
}

/// Reads files of a kind into a profile.
///
/// # Errors
/// Files of another format, layers that are not the model's, times that are not above zero, devices nobody knows.
pub fn import(kind: Kind, files: &[File], settings: &Settings<'_>) -> Result<Folder, Problems> {
    let mut reading = Reading {
        settings,
        layers: Vec::new(),
        comm: Vec::new(),
    };
    let mut problems = Problems::new();
    for file in files {
        let read = match kind {
            Kind::SailorProfile => reading.sailor(file),
            Kind::SailorLinks => reading.sailor_links(file).map_err(Problems::from),
            Kind::MetisProfile => reading.metis(file).map_err(Problems::from),
            Kind::AmpNpy => reading.slots(file, true).map_err(Problems::from),
            Kind::FasopNpy => reading.slots(file, false).map_err(Problems::from),
            Kind::NcclTests => reading.nccl(file),
        };
        if let Err(found) = read {
            problems.extend(found);
        }
    }
    if problems.is_empty() && reading.layers.is_empty() && reading.comm.is_empty() {
        let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
        problems.push(wrong(&names.join(", "), "no measurement stands in it"));
    }
    let model = settings.model.filter(|_| !reading.layers.is_empty());
    let folder = Folder {
        manifest: Manifest {
            schema: SCHEMA.into(),
            dtype: settings.precision,
            model_hash: model.map(model_hash).unwrap_or_default(),
            // These tools time whole layers as they run and have no term for collectives inside a layer.
            includes_communication: true,
            model: model.map(|m| m.name.clone()).unwrap_or_default(),
            source: KINDS
                .iter()
                .find(|(_, k)| *k == kind)
                .map_or("", |(name, _)| name)
                .to_owned(),
            engine: String::new(),
            framework: String::new(),
            driver: String::new(),
            date: String::new(),
            clock_state: String::new(),
            n_repeats: None,
            flops_convention: String::new(),
        },
        layers: reading.layers,
        comm: reading.comm,
    };
    problems.or(())?;
    // What is written must be readable: the same checks as for any profile.
    Folder::read(&folder.write(), "import")
}

struct Reading<'a> {
    settings: &'a Settings<'a>,
    layers: Vec<LayerRow>,
    comm: Vec<CommRow>,
}

/// Where a list of layer times was taken.
struct Place<'p> {
    device: String,
    tp: u32,
    micro_batch: u32,
    provenance: &'p str,
    source: &'p str,
}

impl Reading<'_> {
    /// Canonical name of a device: the one given for all files, else as the file names it.
    fn device(&self, named: &str) -> Result<String, Problem> {
        let wanted = self.settings.device.unwrap_or(named);
        find_device(wanted).map(|m| m.device_type.name).map_err(|mut p| {
            if self.settings.device.is_none() {
                p.hint = format!("say which device `{named}` is: `--device NAME`");
            }
            p
        })
    }

    fn model(&self, file: &str) -> Result<&Model, Problem> {
        self.settings.model.ok_or_else(|| {
            wrong(file, "which model was measured is not said").hint("name it: `--model PATH|PRESET`")
        })
    }

    /// Adds the mean time of each layer class of the model; `times` has one entry per atom.
    fn add(&mut self, place: &Place<'_>, phase: Phase, times: &[f64]) -> Result<(), Problem> {
        let model = self.model(place.source)?;
        if times.len() != model.atoms.len() {
            return Err(wrong(
                place.source,
                format!(
                    "{} layers, the model `{}` has {} with embedding and head",
                    times.len(),
                    model.name,
                    model.atoms.len()
                ),
            )
            .hint("the file is of another model, or `--model` is"));
        }
        if let Some(i) = times.iter().position(|t| !(t.is_finite() && *t > 0.0)) {
            return Err(Problem::new(
                &codes::BAD_TIME,
                place.source,
                format!("layer {i} takes `{}` s", times[i]),
            )
            .hint("a missing time is left out, never zero"));
        }
        let mut classes: BTreeMap<AtomKind, Vec<f64>> = BTreeMap::new();
        for (atom, time) in model.atoms.iter().zip(times) {
            classes.entry(atom.kind).or_default().push(*time);
        }
        for (layer_class, mut times) in classes {
            times.sort_by(f64::total_cmp);
            // The mean: what a stage of such layers takes.
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            self.layers.push(LayerRow {
                device: place.device.clone(),
                layer_class,
                tp: place.tp,
                cp: 1,
                ep: 1,
                etp: 1,
                sp: false,
                micro_batch: place.micro_batch,
                seq_len: self.settings.seq_len,
                recompute: MeasuredRecompute::None,
                phase,
                time_s_median: mean,
                time_s_p10: None,
                time_s_p90: None,
                n: u32::try_from(times.len()).ok(),
                provenance: place.provenance.into(),
                source: place.source.into(),
            });
        }
        Ok(())
    }

    fn sailor(&mut self, file: &File) -> Result<(), Problems> {
        let json = file.json()?;
        let object = |v: &Value, what: &str| {
            v.as_object()
                .filter(|o| !o.is_empty())
                .cloned()
                .ok_or_else(|| wrong(&file.name, format!("`{what}` is no object with entries")))
        };
        let top = object(&json, "the file")?;
        // Either the planner's copy with models and devices, or one device's own file that begins at the micro-batch.
        let mut devices: Vec<(String, Value)> = Vec::new();
        if top.keys().all(|k| k.parse::<u32>().is_ok()) {
            let named = self.settings.device.ok_or_else(|| {
                wrong(&file.name, "the file names no device").hint("name it: `--device NAME`")
            })?;
            devices.push((named.to_owned(), json.clone()));
        } else {
            let names: Vec<&str> = top.keys().map(String::as_str).collect();
            let entry = match self.settings.entry {
                Some(entry) => top.get(entry),
                None if top.len() == 1 => top.values().next(),
                None => None,
            };
            let entry = entry.ok_or_else(|| {
                wrong(
                    &file.name,
                    format!("the file holds the models {}", names.join(", ")),
                )
                .hint("say which one: `--entry NAME`")
            })?;
            devices.extend(object(entry, "the model")?);
        }
        let number = |key: &str, what: &str| {
            key.parse::<u32>()
                .map_err(|_| wrong(&file.name, format!("`{key}` is no {what}")))
        };
        let mut problems = Problems::new();
        for (named, batches) in devices {
            let device = match self.device(&named) {
                Ok(device) => device,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            for (batch, degrees) in object(&batches, &named)? {
                for (tp, layers) in object(&degrees, "the micro-batch")? {
                    let mut times: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
                    for (layer, phases) in object(&layers, "the degree")? {
                        let phase = |i: usize| phases.get(i).and_then(Value::as_f64);
                        let (Some(forward), Some(backward)) = (phase(0), phase(1)) else {
                            return Err(wrong(
                                &file.name,
                                format!("layer `{layer}` is no list [forward, backward, update]"),
                            )
                            .into());
                        };
                        times.insert(number(&layer, "layer")?, [forward, backward]);
                    }
                    let place = Place {
                        device: device.clone(),
                        tp: number(&tp, "degree")?,
                        micro_batch: number(&batch, "micro-batch")?,
                        provenance: "imported",
                        source: &file.name,
                    };
                    for (i, phase) in [Phase::F, Phase::B].into_iter().enumerate() {
                        let times: Vec<f64> = times.values().map(|t| t[i]).collect();
                        self.add(&place, phase, &times)?;
                    }
                }
            }
        }
        problems.or(())
    }

    fn metis(&mut self, file: &File) -> Result<(), Problem> {
        // DeviceType.<TYPE>_tp<t>_bs<b>
        let parsed = file.stem().rsplit_once("_bs").and_then(|(rest, batch)| {
            let (device, tp) = rest.rsplit_once("_tp")?;
            let device = device.strip_prefix("DeviceType.").unwrap_or(device);
            Some((device, tp.parse::<u32>().ok()?, batch.parse::<u32>().ok()?))
        });
        let (named, tp, micro_batch) = parsed.ok_or_else(|| {
            wrong(&file.name, "the name says neither device, degree nor batch")
                .hint("Metis names its files `DeviceType.A100_tp1_bs1.json`")
        })?;
        let json = file.json()?;
        let times: Option<Vec<f64>> = json["execution_time"]["layer_compute_total_ms"]
            .as_array()
            .and_then(|list| list.iter().map(|t| Some(t.as_f64()? / 1e3)).collect());
        let times = times.ok_or_else(|| {
            wrong(
                &file.name,
                "`execution_time.layer_compute_total_ms` is no list of numbers",
            )
        })?;
        let place = Place {
            device: self.device(named)?,
            tp,
            micro_batch,
            provenance: "split",
            source: &file.name,
        };
        self.add(&place, Phase::FB, &times)
    }

    /// AMP's slots are embedding, nothing, blocks, nothing twice, head, nothing; FASOP's embedding, blocks, head.
    fn slots(&mut self, file: &File, gaps: bool) -> Result<(), Problem> {
        let parsed = file.stem().rsplit_once('_').and_then(|(rest, tp)| {
            let (_, device) = rest.rsplit_once('_')?;
            Some((device, tp.parse::<u32>().ok()?))
        });
        let (named, tp) = parsed.ok_or_else(|| {
            wrong(&file.name, "the name says neither device nor degree")
                .hint("the files are named `<model>_<device>_<tp>.npy`")
        })?;
        // AMP names the machines of a cloud.
        let named = match named {
            "P3" if gaps => "V100-SXM2-16GB",
            "G4" if gaps => "T4",
            other => other,
        };
        let slots = npy::read(&file.bytes, &file.name)?;
        let times = if gaps {
            let blocks = self.model(&file.name)?.atoms.len() - 2;
            if slots.len() != blocks + 6 {
                return Err(wrong(
                    &file.name,
                    format!(
                        "{} slots, a model of {blocks} blocks has {}",
                        slots.len(),
                        blocks + 6
                    ),
                ));
            }
            let mut times = vec![slots[0]];
            times.extend(&slots[2..2 + blocks]);
            times.push(slots[blocks + 4]);
            times
        } else {
            slots
        };
        let place = Place {
            device: self.device(named)?,
            tp,
            micro_batch: 1,
            provenance: "forward-only",
            source: &file.name,
        };
        self.add(&place, Phase::F, &times)
    }

    fn nccl(&mut self, file: &File) -> Result<(), Problems> {
        let named = self.settings.device.ok_or_else(|| {
            wrong(&file.name, "the text does not name the device").hint("name it: `--device NAME`")
        })?;
        let device = self.device(named)?;
        for point in nccl::read(file.text()?, &file.name, self.settings.ranks)? {
            self.comm.push(CommRow {
                device: device.clone(),
                op: point.op,
                bytes: point.bytes.0,
                n_ranks: point.ranks,
                time_s_median: point.time_s.0,
                provenance: "measured".into(),
                source: file.name.clone(),
            });
        }
        Ok(())
    }

    /// Sends between two devices at powers of two from 64 KiB to 1 GiB.
    fn sailor_links(&mut self, file: &File) -> Result<(), Problem> {
        let json = file.json()?;
        let devices = json
            .as_object()
            .ok_or_else(|| wrong(&file.name, "the file is no object of devices"))?;
        for (named, counts) in devices {
            let device = self.device(named)?;
            // Sends of one device to another: the entry of two devices, else of one.
            let entry = counts.get("2").or_else(|| counts.get("1")).ok_or_else(|| {
                wrong(
                    &file.name,
                    format!("`{named}` has no entry for one or two devices"),
                )
                .hint("a file of pairs between zones belongs into a cluster file, not into a profile")
            })?;
            let number = |v: &Value| v.as_f64().filter(|x| x.is_finite());
            let fit: Option<[f64; 3]> = (|| {
                let c = entry.get(0)?;
                Some([number(c.get(0)?)?, number(c.get(1)?)?, number(c.get(2)?)?])
            })();
            let (Some([c2, c1, c0]), Some(peak)) = (fit, entry.get(1).and_then(number)) else {
                return Err(wrong(
                    &file.name,
                    format!("`{named}` is no entry [[c2, c1, c0], peak]"),
                ));
            };
            let rate = |bytes: f64| {
                let y = (bytes / 1e6).log2();
                ((c2 * y + c1) * y + c0) * 1e9
            };
            let sizes: Vec<f64> = (16..=30).map(|k| f64::from(1_u32 << k)).collect();
            // The polynomial may fall below zero for small messages and above the peak for large ones.
            let least = sizes
                .iter()
                .map(|b| rate(*b))
                .filter(|r| *r > 0.0)
                .min_by(f64::total_cmp)
                .filter(|_| peak > 0.0)
                .ok_or_else(|| {
                    wrong(
                        &file.name,
                        format!("the rates of `{named}` are nowhere above zero"),
                    )
                })?;
            for bytes in sizes {
                self.comm.push(CommRow {
                    device: device.clone(),
                    op: Collective::PointToPoint,
                    bytes,
                    n_ranks: 2,
                    time_s_median: bytes / rate(bytes).max(least).min(peak),
                    provenance: "fitted-by-source".into(),
                    source: file.name.clone(),
                });
            }
        }
        Ok(())
    }
}
