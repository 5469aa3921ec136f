//! `init`, `schema`, `explain`, `completions`, `man`: texts of reference.

use std::path::Path;

use autohaap::cluster::{INIT_KINDS, init_text};
use autohaap::error::{Problem, all_codes, find_code, nearest, usage as codes};
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ExplainArgs, InitArgs, SchemaArgs};
use crate::{ExitStatus, Failure, output, ui};

/// `autohaap init`.
pub(crate) fn init(cli: &Cli, args: &InitArgs) -> Result<ExitStatus, Failure> {
    let kinds: Vec<&str> = INIT_KINDS.to_vec();
    if !kinds.contains(&args.kind.as_str()) {
        return Err(Problem::new(
            &codes::BAD_VALUE,
            "init",
            format!("no template is named `{}`", args.kind),
        )
        .hint(format!("templates: {}", kinds.join(", ")))
        .into());
    }
    let text = init_text(&args.kind);
    if args.output == "-" {
        output::print(&text)?;
        return Ok(ExitStatus::Answer);
    }
    let path = Path::new(&args.output);
    if path.exists() && !args.force {
        return Err(
            Problem::new(&codes::EXISTS, args.output.clone(), "the file exists")
                .hint("give another name with `-o FILE`, or overwrite with `--force`")
                .into(),
        );
    }
    output::write_file(path, &text)?;
    if !cli.quiet {
        ui::say(&format!(
            "wrote {}; next: autohaap plan --model llama-3.1-8b --cluster {}",
            args.output, args.output
        ));
    }
    Ok(ExitStatus::Answer)
}

/// `autohaap schema`.
pub(crate) fn schema(args: &SchemaArgs) -> Result<ExitStatus, Failure> {
    if args.kind != "plan" {
        return Err(Problem::new(
            &codes::BAD_VALUE,
            "schema",
            format!("no schema is named `{}`", args.kind),
        )
        .hint("schemas: plan")
        .into());
    }
    output::print(autohaap::plan::PLAN_SCHEMA_TEXT)?;
    Ok(ExitStatus::Answer)
}

/// `autohaap explain`.
pub(crate) fn explain(cli: &Cli, args: &ExplainArgs) -> Result<ExitStatus, Failure> {
    let Some(wanted) = &args.code else {
        let all = all_codes();
        if cli.json() {
            let rows: Vec<_> = all
                .iter()
                .map(|c| serde_json::json!({ "code": c.id, "title": c.title }))
                .collect();
            output::print_json(&serde_json::json!({ "schema": "autohaap/codes@1", "codes": rows }))?;
        } else {
            let lines: Vec<String> = all.iter().map(|c| format!("{}  {}", c.id, c.title)).collect();
            output::print(&lines.join("\n"))?;
        }
        return Ok(ExitStatus::Answer);
    };
    let Some(code) = find_code(wanted) else {
        let all = all_codes();
        let near = nearest(wanted, all.iter().map(|c| c.id)).unwrap_or("E101");
        return Err(Problem::new(
            &codes::UNKNOWN_CODE,
            "explain",
            format!("no code is named `{wanted}`"),
        )
        .hint(format!(
            "did you mean `{near}`? `autohaap explain` lists all codes"
        ))
        .into());
    };
    if cli.json() {
        output::print_json(&serde_json::json!({
            "schema": "autohaap/code@1", "code": code.id, "title": code.title, "page": code.page,
        }))?;
    } else {
        output::print(&autohaap::report::page_screen(code))?;
    }
    Ok(ExitStatus::Answer)
}

/// `autohaap completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitStatus, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "autohaap", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitStatus::Answer)
}

/// `autohaap man`.
pub(crate) fn man() -> Result<ExitStatus, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut text)?;
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitStatus::Answer)
}
