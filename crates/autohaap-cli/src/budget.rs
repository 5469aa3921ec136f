//! Clock, interrupt and progress of a search.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use autohaap::search::{Budget, Progress, StopReason};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Stops a search at a time limit or at the first Ctrl-C; shows a progress line on terminals.
pub(crate) struct Watch {
    began: Instant,
    limit: Option<Duration>,
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Watch {
    /// Starts the clock and listens for Ctrl-C; a second one ends the process.
    pub(crate) fn start(limit: Option<Duration>, progress: bool) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        // A handler can be set once per process; a second command in one process keeps the first.
        let _ = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        });
        let target = if progress {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            began: Instant::now(),
            limit,
            interrupted,
            bar,
        }
    }

    /// Removes the progress line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Budget for Watch {
    fn stop(&self) -> Option<StopReason> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some(StopReason::Interrupted);
        }
        self.limit
            .filter(|limit| self.began.elapsed() >= *limit)
            .map(|_| StopReason::TimeLimit)
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn progress(&self, event: &Progress) {
        let best = event
            .best
            .map_or_else(String::new, |s| format!(", best {s} a step"));
        let bound = event.bound.map_or_else(String::new, |s| format!(", bound {s}"));
        self.bar
            .set_message(format!("{}{best}{bound}, {} priced", event.phase, event.scored));
    }
}
