//! A profile given to a cluster: layer times by device, collectives into the links inside nodes.

use super::folder::{Folder, LAYERS};
use crate::cluster::{Cluster, LayerProfile, LinkPoint, Precision, find_device};
use crate::error::{Problem, Problems, profile as codes};
use crate::model::Model;
use crate::units::{Bytes, Seconds};

/// What identifies a model's layers in a profile: its digest without its name.
pub fn model_hash(model: &Model) -> String {
    let mut bare = model.clone();
    bare.name.clear();
    bare.family.clear();
    bare.digest()
}

/// Adds a profile's figures to the cluster that a model is planned for or priced on.
///
/// # Errors
/// Another model or precision, unknown devices, nothing that concerns the model or the cluster.
pub fn attach(
    cluster: &mut Cluster,
    folder: &Folder,
    model: &Model,
    precision: Precision,
    name: &str,
) -> Result<(), Problems> {
    let mut problems = Problems::new();
    let other = |message: String, hint: &str| {
        Problem::new(&codes::OTHER, format!("{name}/manifest.json"), message).hint(hint)
    };
    if !folder.layers.is_empty() {
        let hash = model_hash(model);
        if folder.manifest.model_hash != hash {
            problems.push(other(
                format!(
                    "the profile is of model `{}` ({}), not of `{}` ({hash})",
                    folder.manifest.model_hash, folder.manifest.model, model.name
                ),
                "profile or import the layers of this model",
            ));
        }
        if folder.manifest.dtype != precision {
            problems.push(other(
                format!(
                    "the layers were measured in {}, training is in {}",
                    word(folder.manifest.dtype),
                    word(precision)
                ),
                "give the `--precision` of the profile",
            ));
        }
        let kinds: std::collections::BTreeSet<_> = model.atoms.iter().map(|a| a.kind).collect();
        if !folder.layers.iter().any(|row| kinds.contains(&row.layer_class)) {
            problems.push(
                Problem::new(
                    &codes::OTHER,
                    format!("{name}/{LAYERS}"),
                    "no layer class of the model has a row",
                )
                .hint("see the classes in `autohaap model`"),
            );
        }
    } else if folder.comm.is_empty() {
        problems.push(other("the profile has no rows".into(), "give it a `layers.csv`"));
    }
    let mut measured = Vec::new();
    for (device, layers) in folder.by_device(name)? {
        match resolve(cluster, device) {
            Ok(device) => measured.push(LayerProfile {
                device,
                includes_communication: folder.manifest.includes_communication,
                layers,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    let mut points = Vec::new();
    for row in &folder.comm {
        match resolve(cluster, &row.device) {
            Ok(device) => points.push((
                device.name,
                LinkPoint {
                    op: row.op,
                    ranks: row.n_ranks,
                    bytes: Bytes(row.bytes),
                    time_s: Seconds(row.time_s_median),
                },
            )),
            Err(problem) => problems.push(problem),
        }
    }
    problems.or(())?;
    cluster.measured = measured;
    for (name, device) in &mut cluster.device_types {
        let own: Vec<LinkPoint> = points
            .iter()
            .filter(|(of, _)| of == name)
            .map(|p| p.1.clone())
            .collect();
        // Measured points of an operation and group size replace those of the catalogue.
        device
            .intra
            .table
            .retain(|old| !own.iter().any(|new| (new.op, new.ranks) == (old.op, old.ranks)));
        if !own.is_empty() {
            device.intra.table.extend(own);
            device.intra.sort_table();
        }
    }
    cluster.validate().or(())
}

/// A device of the cluster, else of the catalogue.
fn resolve(cluster: &Cluster, name: &str) -> Result<crate::cluster::DeviceType, Problem> {
    if let Some(device) = cluster.device_types.get(name) {
        return Ok(device.clone());
    }
    let found = find_device(name)?.device_type;
    Ok(cluster.device_types.get(&found.name).cloned().unwrap_or(found))
}

fn word(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
        Precision::Fp8 => "fp8",
        Precision::Fp32 => "fp32",
    }
}
