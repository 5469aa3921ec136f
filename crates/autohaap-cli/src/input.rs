//! Reading what the user names: files, folders, presets, shorthands, standard input.

use std::io::Read;
use std::path::Path;

use autohaap::cluster::{self, Cluster, Precision};
use autohaap::error::{Problem, usage as codes};
use autohaap::model::{self, ModelInput};
use autohaap::plan::{Optimizer, Plan, PointToPointMode};
use autohaap::profile::folder::{self, Folder};

use crate::Failure;
use crate::args::{OptimizerArg, P2pArg, PrecisionArg};

/// Largest input file.
const LIMIT: u64 = 64 << 20;

/// Text of a file, or of standard input for `-`.
pub(crate) fn read(path: &str) -> Result<String, Failure> {
    let failed = |what: String| {
        Failure::from(
            Problem::new(&codes::READ_FAILED, path, what).hint("check the path; `-` reads standard input"),
        )
    };
    let mut text = String::new();
    if path == "-" {
        std::io::stdin()
            .take(LIMIT + 1)
            .read_to_string(&mut text)
            .map_err(|e| failed(format!("cannot read standard input: {e}")))?;
    } else {
        let file = std::fs::File::open(path).map_err(|e| failed(format!("cannot open the file: {e}")))?;
        file.take(LIMIT + 1)
            .read_to_string(&mut text)
            .map_err(|e| failed(format!("cannot read the file: {e}")))?;
    }
    if text.len() as u64 > LIMIT {
        return Err(failed("the file is larger than 64 MiB".into()));
    }
    Ok(text)
}

/// A profile: the texts of a folder's tables.
pub(crate) fn profile(folder: &Path) -> Result<Folder, Failure> {
    let name = folder.display().to_string();
    let failed = |e: std::io::Error| {
        Problem::new(&codes::READ_FAILED, &name, format!("cannot read the folder: {e}"))
            .hint("`autohaap import KIND FILE... -o DIR` writes a profile")
    };
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if file == folder::MANIFEST || Path::new(&file).extension().is_some_and(|e| e == "csv") {
            let text = read(&folder.join(&file).to_string_lossy())?;
            files.insert(file, text);
        }
    }
    Ok(Folder::read(&files, &name)?)
}

/// A model by path, folder, preset or standard input.
pub(crate) fn model(name: &str) -> Result<ModelInput, Failure> {
    if name == "-" {
        return Ok(model::parse(&read("-")?, "stdin")?);
    }
    let path = Path::new(name);
    if path.is_dir() {
        for file in ["config.json", "params.json", "model.json"] {
            let inside = path.join(file);
            if inside.is_file() {
                return model_file(&inside);
            }
        }
        return Err(
            Problem::new(&codes::READ_FAILED, name, "the folder holds no model file")
                .hint("a model folder has a `config.json` or `params.json`")
                .into(),
        );
    }
    if path.is_file() {
        return model_file(path);
    }
    // Before the presets, whose names are matched by their last part: `../llama` is not the preset `llama`.
    if looks_like_a_path(name) {
        return Err(Problem::new(
            &codes::READ_FAILED,
            name,
            format!("cannot open the file: there is no `{name}`"),
        )
        .hint("check the path; `autohaap model` lists the presets, which need no file")
        .into());
    }
    match model::preset(name) {
        Some(text) => {
            let id = model::preset_id(name).unwrap_or(name);
            let mut input = model::parse(text, id)?;
            id.clone_into(&mut input.model.name);
            Ok(input)
        }
        None => Err(model::unknown_preset(name).into()),
    }
}

/// Whether a name that is no file was meant as one. `owner/name` was not: it is a model's
/// public name.
fn looks_like_a_path(name: &str) -> bool {
    let path = Path::new(name);
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    name.starts_with(['.', '/', '~'])
        || name.ends_with('/')
        || name.contains('\\')
        || name.matches('/').count() > 1
        || ["json", "toml", "txt", "sh", "yaml", "yml", "py"].contains(&extension)
}

fn model_file(path: &Path) -> Result<ModelInput, Failure> {
    let text = read(&path.display().to_string())?;
    let mut input = model::parse(&text, &path.display().to_string())?;
    // A config.json says nothing about its own name: its folder does.
    let stem = path
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    if matches!(stem.as_str(), "config" | "params" | "model") {
        input.model.name = match path.parent().and_then(Path::file_name) {
            Some(folder) => folder.to_string_lossy().into_owned(),
            None => format!(
                "{} {:.1}B",
                input.model.family,
                input.model.parameters_total() as f64 / 1e9
            ),
        };
    }
    Ok(input)
}

/// A cluster by file, shorthand or standard input.
pub(crate) fn cluster(name: &str) -> Result<Cluster, Failure> {
    if name == "-" {
        return Ok(cluster::parse_cluster(&read("-")?, "stdin")?);
    }
    if Path::new(name).is_file() {
        return Ok(cluster::parse_cluster(&read(name)?, name)?);
    }
    if cluster::looks_like_shorthand(name) {
        return Ok(cluster::parse_cluster(name, "--cluster")?);
    }
    Err(Problem::new(&codes::READ_FAILED, name, format!("`{name}` is neither a file nor a cluster shorthand"))
        .hint("a shorthand is like \"2x8 A100-80G + 4x8 V100-32G @ ib:100Gb\"; `autohaap init` writes a cluster file")
        .into())
}

/// A plan file.
pub(crate) fn plan(name: &str) -> Result<Plan, Failure> {
    let text = read(name)?;
    Ok(Plan::from_json(&text, if name == "-" { "stdin" } else { name })?)
}

/// `2%` or `0.02` as a share in (0, 1).
pub(crate) fn share(text: &str) -> Result<f64, Failure> {
    let trimmed = text.trim();
    let value = match trimmed.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|p| p / 100.0),
        None => trimmed.parse::<f64>().ok(),
    };
    value.filter(|v| *v > 0.0 && *v < 1.0).ok_or_else(|| {
        Problem::new(&codes::BAD_VALUE, "--gap", format!("`{text}` is no share"))
            .hint("write `2%` or `0.02`: more than 0, less than 1")
            .into()
    })
}

/// `30s`, `2m`, `500ms` or plain seconds.
pub(crate) fn time(text: &str) -> Result<std::time::Duration, Failure> {
    let t = text.trim();
    let (number, unit) = t.split_at(t.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(t.len()));
    let scale = match unit.trim() {
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = number.trim().parse::<f64>().ok().zip(scale).map(|(n, k)| n * k);
    seconds
        .filter(|s| s.is_finite() && *s > 0.0 && *s <= 1e7)
        .map(std::time::Duration::from_secs_f64)
        .ok_or_else(|| {
            Problem::new(&codes::BAD_VALUE, "--time-limit", format!("`{text}` is no time"))
                .hint("write `30s`, `2m` or `500ms`")
                .into()
        })
}

/// The library's optimizer.
pub(crate) fn optimizer(arg: OptimizerArg) -> Optimizer {
    match arg {
        OptimizerArg::Adam => Optimizer::Adam,
        OptimizerArg::Sgd => Optimizer::Sgd,
    }
}

/// The library's boundary mode.
pub(crate) fn p2p(arg: P2pArg) -> PointToPointMode {
    match arg {
        P2pArg::Async => PointToPointMode::Async,
        P2pArg::Rendezvous => PointToPointMode::Rendezvous,
    }
}

/// The library's precision.
pub(crate) fn precision(arg: PrecisionArg) -> Precision {
    match arg {
        PrecisionArg::Bf16 => Precision::Bf16,
        PrecisionArg::Fp16 => Precision::Fp16,
        PrecisionArg::Fp8 => Precision::Fp8,
        PrecisionArg::Fp32 => Precision::Fp32,
    }
}
