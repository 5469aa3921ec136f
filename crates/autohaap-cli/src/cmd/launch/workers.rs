//! Starts the processes of a run, shows their progress, and ends all of them when one is lost.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus as ChildStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use autohaap::error::{Problem, find_code, runtime as codes};
use autohaap::launch::{Rank, TrainingFile, ranks};
use autohaap::plan::Plan;
use serde_json::Value;

use super::folder::Run;
use super::{Meeting, note};
use crate::Failure;
use crate::args::Cli;

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);
/// Time for the others to end by themselves after one was lost.
const GRACE: Duration = Duration::from_secs(2);

/// How a run ended.
pub(super) enum Ended {
    /// All processes ended with success.
    Well,
    /// One did not.
    Lost(Lost),
}

/// The process that ended a run.
pub(super) struct Lost {
    /// Its rank.
    pub(super) rank: usize,
    /// What happened, for people.
    pub(super) what: String,
    /// Exit code to hand on.
    pub(super) exit_code: u8,
    /// Killed, crashed or hung, rather than refused its task with a code.
    pub(super) by_itself: bool,
    /// The problem that it reported.
    reported: Option<Problem>,
    /// Its log.
    log: String,
}

impl Lost {
    /// As a diagnostic.
    pub(super) fn problem(self, device: &str) -> Problem {
        self.reported.unwrap_or_else(|| {
            Problem::new(
                &codes::WORKER_LOST,
                format!("rank {} ({device})", self.rank),
                self.what,
            )
            .hint(format!(
                "its log is {}; `--resume` goes on from the last checkpoint, `--elastic` without the device",
                self.log
            ))
        })
    }
}

struct Worker {
    rank: usize,
    child: Child,
    ended: Option<ChildStatus>,
}

/// Runs all processes of this command to their end.
pub(super) fn run(
    cli: &Cli,
    plan: &Plan,
    file: &TrainingFile,
    run: &Run,
    python: &Path,
    meeting: &Meeting,
) -> Result<Ended, Failure> {
    let all = ranks(plan);
    let mut workers: Vec<Worker> = Vec::new();
    for (rank, place) in all.iter().enumerate() {
        if meeting.node.as_ref().is_some_and(|node| *node != place.node) {
            continue;
        }
        match start(rank, place, all.len(), file, run, python, meeting) {
            Ok(child) => workers.push(Worker {
                rank,
                child,
                ended: None,
            }),
            Err(error) => {
                end(&mut workers);
                return Err(error.into());
            }
        }
    }
    note(
        cli,
        &format!("{} processes; logs in {}", workers.len(), run.folder.display()),
    );
    let began = SystemTime::now();
    let hang = Duration::from_secs(file.run.hang_s);
    let start_limit = Duration::from_secs(file.run.timeout_s.max(60));
    let mut progress = Progress::new(cli, run, file.run.steps);
    let mut first: Option<(Instant, usize)> = None;
    loop {
        progress.show();
        for (w, worker) in workers.iter_mut().enumerate() {
            if worker.ended.is_none()
                && let Some(status) = worker.child.try_wait()?
            {
                worker.ended = Some(status);
                if !status.success() {
                    // Others fail because of the first one; a kill is never because of another.
                    first.get_or_insert((Instant::now(), w));
                }
            }
        }
        if workers.iter().all(|w| w.ended.is_some_and(|s| s.success())) {
            progress.show();
            return Ok(Ended::Well);
        }
        if let Some((since, _)) = first
            && (since.elapsed() > GRACE || workers.iter().all(|w| w.ended.is_some()))
        {
            let lost = culprit(&workers, first.map_or(0, |(_, w)| w), run);
            end(&mut workers);
            return Ok(Ended::Lost(lost));
        }
        if first.is_none()
            && let Some(rank) = hung(&workers, run, began, hang, start_limit)
        {
            end(&mut workers);
            return Ok(Ended::Lost(Lost {
                rank,
                what: format!("no progress for {} s", file.run.hang_s),
                exit_code: 124,
                by_itself: true,
                reported: None,
                log: log(run, rank),
            }));
        }
        std::thread::sleep(LOOK);
    }
}

fn log(run: &Run, rank: usize) -> String {
    run.folder.join(format!("rank-{rank}.log")).display().to_string()
}

fn start(
    rank: usize,
    place: &Rank,
    world: usize,
    file: &TrainingFile,
    run: &Run,
    python: &Path,
    meeting: &Meeting,
) -> std::io::Result<Child> {
    let log = File::create(run.folder.join(format!("rank-{rank}.log")))?;
    Command::new(python)
        .args(["-m", "autohaap.train"])
        .arg(run.folder.join("run.json"))
        .env("PYTHONPATH", &run.package)
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", place.index.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", &meeting.address)
        .env("MASTER_PORT", meeting.port.to_string())
        .env("OMP_NUM_THREADS", file.run.threads.to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Ends what still runs.
fn end(workers: &mut [Worker]) {
    for worker in workers {
        if worker.ended.is_none() {
            // Already gone is as good.
            let _ = worker.child.kill();
            worker.ended = worker.child.wait().ok();
        }
    }
}

/// The process whose end was the cause: killed ones first, then those that reported a problem, then the first.
fn culprit(workers: &[Worker], first: usize, run: &Run) -> Lost {
    let of = |w: &Worker| {
        let status = w.ended.unwrap_or_default();
        let code = status.code().or_else(|| status.signal().map(|s| 128 + s));
        let what = match status.signal() {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("ended with exit code {}", status.code().unwrap_or(1)),
        };
        let reported = reported(Path::new(&log(run, w.rank)));
        Lost {
            rank: w.rank,
            what,
            exit_code: code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1),
            by_itself: reported.is_none(),
            reported,
            log: log(run, w.rank),
        }
    };
    let killed = workers
        .iter()
        .find(|w| w.ended.is_some_and(|s| s.signal().is_some()));
    if let Some(worker) = killed {
        return of(worker);
    }
    let with_code = workers
        .iter()
        .filter(|w| w.ended.is_some_and(|s| !s.success()))
        .map(of)
        .find(|l| l.reported.is_some());
    with_code.unwrap_or_else(|| of(&workers[first]))
}

/// The coded problem in a log.
fn reported(log: &Path) -> Option<Problem> {
    let text = std::fs::read_to_string(log).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("autohaap-problem "))?;
    let record: Value = serde_json::from_str(line).ok()?;
    let word = |key: &str| {
        record
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let code = find_code(&word("code"))?;
    Some(Problem::new(code, word("path"), word("message")).hint(word("hint")))
}

/// The rank that has been still the longest, when none has moved for that long.
fn hung(workers: &[Worker], run: &Run, began: SystemTime, limit: Duration, start: Duration) -> Option<usize> {
    let beats: Vec<(SystemTime, usize)> = workers
        .iter()
        .filter(|w| w.ended.is_none())
        .map(|w| {
            let file = run.folder.join(format!("heartbeat-{}", w.rank));
            let beat = std::fs::metadata(file)
                .and_then(|m| m.modified())
                .unwrap_or(began);
            (beat, w.rank)
        })
        .collect();
    let newest = beats.iter().map(|(beat, _)| *beat).max()?;
    let still = SystemTime::now().duration_since(newest).unwrap_or_default();
    // A stopped process is the cause; else the one that stopped first.
    let stopped = workers
        .iter()
        .find(|w| w.ended.is_none() && is_stopped(w.child.id()));
    // Until the first sign of life the imports and the meeting of the ranks take their time.
    let limit = if newest == began { limit.max(start) } else { limit };
    if still <= limit {
        return None;
    }
    stopped
        .map(|w| w.rank)
        .or_else(|| beats.iter().min().map(|(_, rank)| *rank))
}

/// Whether the system holds a process still (Linux).
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Prints the steps that rank 0 has written.
struct Progress {
    quiet: bool,
    path: std::path::PathBuf,
    at: u64,
    steps: u64,
    shown: Option<Instant>,
}

impl Progress {
    fn new(cli: &Cli, run: &Run, steps: u64) -> Self {
        Self {
            quiet: cli.quiet,
            path: run.folder.join("steps.jsonl"),
            at: 0,
            steps,
            shown: None,
        }
    }

    fn show(&mut self) {
        let Ok(mut file) = File::open(&self.path) else {
            return;
        };
        if file.seek(SeekFrom::Start(self.at)).is_err() {
            return;
        }
        let mut last = None;
        let mut reader = BufReader::new(file);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
            self.at += line.len() as u64;
            last = serde_json::from_str::<Value>(&line).ok();
            line.clear();
        }
        let Some(record) = last else { return };
        let number = |key: &str| record.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let done = number("step") as u64 == self.steps;
        if self.quiet || (!done && self.shown.is_some_and(|s| s.elapsed() < Duration::from_secs(1))) {
            return;
        }
        self.shown = Some(Instant::now());
        anstream::eprintln!(
            "step {}/{}  loss {:.4}  {:.0} tokens/s  {:.3} s",
            number("step"),
            self.steps,
            number("loss"),
            number("tokens_per_s"),
            number("step_time_s")
        );
    }
}
