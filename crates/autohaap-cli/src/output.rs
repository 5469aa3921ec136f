//! Answers: to standard output, or to a file that is complete or absent.

use std::io::Write;
use std::path::Path;

use autohaap::error::{Problem, usage as codes};

use crate::Failure;

/// Writes to standard output; a closed pipe ends the command quietly.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// Refuses an output that is one of the inputs: an answer never replaces what it was made from.
pub(crate) fn keeps_inputs(output: Option<&Path>, inputs: &[&str]) -> Result<(), Failure> {
    let Some(target) = output.and_then(|p| p.canonicalize().ok()) else {
        return Ok(());
    };
    let folder_files = ["config.json", "params.json", "model.json"];
    for input in inputs {
        let path = Path::new(input);
        let same = |p: &Path| p.canonicalize().is_ok_and(|p| p == target);
        if same(path) || folder_files.iter().any(|f| same(&path.join(f))) {
            return Err(Problem::new(
                &codes::EXISTS,
                "--output",
                format!("`{}` is an input of this command", target.display()),
            )
            .hint("write the answer to another file")
            .into());
        }
    }
    Ok(())
}

/// Writes a file under a temporary name and renames it into place.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| {
        Failure::from(
            Problem::new(
                &codes::WRITE_FAILED,
                path.display().to_string(),
                format!("cannot write the file: {error}"),
            )
            .hint("check the folder, its permissions and the free space"),
        )
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| failed(&e))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.flush())
        .map_err(|e| failed(&e))?;
    file.persist(path).map_err(|e| failed(&e.error))?;
    Ok(())
}

/// An answer as JSON: one document, base units, stable keys.
pub(crate) fn print_json<T: serde::Serialize>(answer: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(answer).map_err(|e| {
        Failure::from(Problem::new(
            &codes::WRITE_FAILED,
            "stdout",
            format!("the answer is no JSON: {e}"),
        ))
    })?;
    print(&text)
}
