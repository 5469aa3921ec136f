//! `autohaap launch`: starts the runtime's processes, watches them, and goes on without a lost device if asked to.

mod folder;
mod measured;
mod workers;

use std::path::{Path, PathBuf};

use autohaap::error::{Problem, Problems, runtime as codes};
use autohaap::launch::{TrainingFile, ranks, refuse, scripts};
use autohaap::plan::{Plan, check};
use autohaap::replan::{Change, moves};
use autohaap::simulate::{Options, simulate};

use crate::args::{Cli, LaunchArgs};
use crate::{ExitStatus, Failure, cmd, input, output};

/// How often an elastic run goes on without a device.
const MOST_RESTARTS: usize = 8;

/// Where the processes of this command meet the others.
struct Meeting {
    /// Host name or address of rank 0.
    address: String,
    /// Port there.
    port: u16,
    /// Only this node's ranks.
    node: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(cli: &Cli, args: &LaunchArgs) -> Result<ExitStatus, Failure> {
    let mut plan = input::plan(&args.plan)?;
    let Some(train) = &cli.config else {
        return Err(
            Problem::new(&codes::TRAINING_FILE, "--config", "no training file was named")
                .hint("add `--config train.toml`; `autohaap explain E609` shows one")
                .into(),
        );
    };
    let name = train.display().to_string();
    let text = input::read(&name)?;
    let here = std::path::absolute(train)?;
    let file = TrainingFile::read(&text, &name, here.parent().unwrap_or(Path::new("/")))?;
    let mut problems = Problems(check(&plan));
    problems.extend(refuse(&plan));
    for (path, code) in [
        (&file.model.config, &codes::WEIGHTS),
        (&file.data.tokens, &codes::DATA),
    ] {
        if !path.is_file() {
            problems.push(
                Problem::new(code, path.display().to_string(), "no such file")
                    .hint("paths of a training file are relative to it"),
            );
        }
    }
    problems.or(())?;
    if let Some(folder) = &args.write_scripts {
        std::fs::create_dir_all(folder)?;
        let port = args
            .master
            .as_deref()
            .and_then(|m| m.rsplit_once(':')?.1.parse().ok());
        for script in scripts(
            &plan,
            &std::path::absolute(&args.plan)?.display().to_string(),
            &here.display().to_string(),
            port.unwrap_or(29500),
        ) {
            output::write_file(&folder.join(&script.name), &script.text)?;
            note(cli, &format!("wrote {}", folder.join(&script.name).display()));
        }
        return Ok(ExitStatus::Answer);
    }
    let python = python(args)?;
    let mut resume = args.resume || args.elastic;
    for attempt in 0.. {
        let meeting = meeting(args, &plan)?;
        let run = folder::write(
            &plan,
            &file,
            &attempt_name(attempt, &meeting),
            resume,
            args.virtual_scale,
        )?;
        let ended = workers::run(cli, &plan, &file, &run, &python, &meeting)?;
        let lost = match ended {
            workers::Ended::Well => {
                if meeting.node.is_none() {
                    measured::report(cli, &plan, &run, args.virtual_scale)?;
                }
                return Ok(ExitStatus::Answer);
            }
            workers::Ended::Lost(lost) => lost,
        };
        let device = ranks(&plan)
            .get(lost.rank)
            .map(|r| r.device.clone())
            .unwrap_or_default();
        if !(args.elastic && lost.by_itself && attempt < MOST_RESTARTS) {
            let code = lost.exit_code;
            crate::ui::problems(&lost.problem(&device).into(), cli.json());
            return Ok(ExitStatus::Child(code));
        }
        note(cli, &format!("{}: going on without {device}", lost.what));
        let change = Change {
            without: vec![device],
            ..Change::default()
        };
        let new = cmd::replan::search(&plan, &change, true)?;
        let moved = moves(&plan, &new);
        let bytes: f64 = moved.iter().map(|m| m.bytes.0).sum();
        note(
            cli,
            &format!(
                "new plan {}: {} devices, {} slices move, {:.1} MB of training state from the last checkpoint",
                new.id,
                ranks(&new).len(),
                moved.len(),
                bytes / 1e6
            ),
        );
        plan = new;
        resume = true;
    }
    Ok(ExitStatus::Negative)
}

/// The attempt's own folder: nodes that share a file system do not write into each other's.
fn attempt_name(attempt: usize, meeting: &Meeting) -> String {
    match &meeting.node {
        Some(node) => format!("attempt-{attempt}-{node}"),
        None => format!("attempt-{attempt}"),
    }
}

/// A line for people.
fn note(cli: &Cli, text: &str) {
    if !cli.quiet {
        anstream::eprintln!("{text}");
    }
}

/// Interpreter of the runtime, with a look at its torch.
fn python(args: &LaunchArgs) -> Result<PathBuf, Failure> {
    let python = args
        .python
        .clone()
        .or_else(|| std::env::var_os("AUTOHAAP_PYTHON").map(PathBuf::from))
        .unwrap_or_else(|| "python3".into());
    let name = python.display().to_string();
    let bad = |message: String| {
        Failure::from(
            Problem::new(&codes::ENVIRONMENT, &name, message).hint(format!(
                "name an interpreter that has it with `--python FILE`; `pip install torch=={} safetensors` in a virtual \
environment makes one",
                autohaap::launch::TORCH
            )),
        )
    };
    // The version's file is read without the seconds of an import.
    let question = "import importlib.metadata as m; print(m.version('torch'), end='')";
    let output = std::process::Command::new(&python)
        .args(["-c", question])
        .output()
        .map_err(|e| bad(format!("cannot run the interpreter: {e}")))?;
    if !output.status.success() {
        return Err(bad("the interpreter has no torch".into()));
    }
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let plain = version.split('+').next().unwrap_or_default();
    if plain != autohaap::launch::TORCH && !args.any_torch {
        return Err(bad(format!(
            "torch `{version}`, the runtime is tested with {}",
            autohaap::launch::TORCH
        )));
    }
    Ok(python)
}

/// Address and port of rank 0: given, or a free port of this machine.
fn meeting(args: &LaunchArgs, plan: &Plan) -> Result<Meeting, Failure> {
    let wrong = |message: String| {
        Failure::from(
            Problem::new(&codes::WORLD, "--master", message)
                .hint("name the host of rank 0 and a port, for example `--master node0:29500`"),
        )
    };
    let (address, port) = match &args.master {
        None if args.node.is_some() => return Err(wrong("`--node` needs `--master ADDR:PORT`".into())),
        None => ("127.0.0.1".to_owned(), 0),
        Some(master) => {
            let parsed = master
                .rsplit_once(':')
                .and_then(|(a, p)| Some((a.to_owned(), p.parse().ok()?)));
            parsed.ok_or_else(|| wrong(format!("`{master}` is no ADDR:PORT")))?
        }
    };
    if let Some(node) = &args.node
        && !ranks(plan).iter().any(|r| r.node == *node)
    {
        let mut names: Vec<String> = ranks(plan).into_iter().map(|r| r.node).collect();
        names.dedup();
        return Err(
            Problem::new(&codes::WORLD, "--node", format!("the plan uses no node `{node}`"))
                .hint(format!("its nodes are {}", names.join(", ")))
                .into(),
        );
    }
    let first = ranks(plan).first().map(|r| r.node.clone());
    let mut port = port;
    // The port is taken and given back: found busy before anything starts.
    if args.node.is_none() || args.node == first {
        match std::net::TcpListener::bind(("0.0.0.0", port)).and_then(|l| l.local_addr()) {
            Ok(bound) => port = bound.port(),
            Err(e) => {
                return Err(Problem::new(
                    &codes::PORT_IN_USE,
                    "--master",
                    format!("port `{port}` is not free: {e}"),
                )
                .hint("name another port, or leave `--master` out for a run on this machine")
                .into());
            }
        }
    }
    Ok(Meeting {
        address,
        port,
        node: args.node.clone(),
    })
}

/// The simulation that the run follows.
fn simulation(plan: &Plan) -> Result<autohaap::simulate::Simulation, Problems> {
    simulate(plan, &Options::default())
}
