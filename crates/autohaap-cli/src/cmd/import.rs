//! `autohaap import`: measurements of other tools to a profile.

use std::io::Read;

use autohaap::error::{Problem, nearest, usage as codes};
use autohaap::profile::import::{File, KINDS, Settings, import};

use crate::args::{Cli, ImportArgs};
use crate::{ExitStatus, Failure, input, output, ui};

/// Largest input file.
const LIMIT: u64 = 64 << 20;

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &ImportArgs) -> Result<ExitStatus, Failure> {
    let kind = KINDS.iter().find(|(name, _)| *name == args.kind).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|k| k.0).collect();
        let close = nearest(&args.kind, names.iter().copied());
        Problem::new(&codes::BAD_VALUE, "KIND", format!("`{}` is no kind", args.kind)).hint(match close {
            None => format!("write one of: {}", names.join(", ")),
            Some(close) => format!("did you mean {close}? the kinds are: {}", names.join(", ")),
        })
    })?;
    let model = args.model.as_deref().map(input::model).transpose()?;
    let files: Vec<File> = args
        .files
        .iter()
        .map(|name| bytes(name))
        .collect::<Result<_, _>>()?;
    let settings = Settings {
        model: model.as_ref().map(|m| &m.model),
        entry: args.entry.as_deref(),
        device: args.device.as_deref(),
        seq_len: args.seq,
        precision: input::precision(args.precision),
        ranks: args.ranks,
    };
    let folder = import(kind.1, &files, &settings)?;
    std::fs::create_dir_all(&args.output).map_err(|e| {
        Problem::new(
            &codes::WRITE_FAILED,
            args.output.display().to_string(),
            format!("cannot make the folder: {e}"),
        )
        .hint("check the path and its permissions")
    })?;
    for (name, text) in folder.write() {
        output::write_file(&args.output.join(name), &text)?;
    }
    let answer = serde_json::json!({
        "schema": "autohaap/import@1",
        "kind": args.kind,
        "layers": folder.layers.len(),
        "comm": folder.comm.len(),
        "model_hash": folder.manifest.model_hash,
    });
    if cli.json() {
        output::print_json(&answer)?;
    } else {
        output::print(&format!(
            "{} layer times and {} collective times of {} files\n",
            folder.layers.len(),
            folder.comm.len(),
            files.len()
        ))?;
        if !cli.quiet {
            ui::say(&format!(
                "wrote {}; use it with `autohaap plan --profile {0}`",
                args.output.display()
            ));
        }
    }
    Ok(ExitStatus::Answer)
}

fn bytes(name: &str) -> Result<File, Failure> {
    let failed = |what: String| Problem::new(&codes::READ_FAILED, name, what).hint("check the path");
    let mut bytes = Vec::new();
    std::fs::File::open(name)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(|e| failed(format!("cannot read the file: {e}")))?;
    if bytes.len() as u64 > LIMIT {
        return Err(failed("the file is larger than 64 MiB".into()).into());
    }
    Ok(File {
        name: name.to_owned(),
        bytes,
    })
}
