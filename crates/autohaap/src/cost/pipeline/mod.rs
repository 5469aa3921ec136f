//! Time of an asymmetric 1F1B pipeline: closed forms, exact event order, lower bounds.
//!
//! Stage `s` runs `W_s` forwards (its *depth*, the micro-batches it holds at most), then one backward and one
//! forward alternately, then the backwards left; `W_s` is the warm-up count plus one and may differ freely from
//! the textbook `p - s`. Sends cost the sender nothing and links have no queue, except in [`rendezvous()`].
//!
//! | question | answer | cost |
//! |---|---|---|
//! | steady rate, depths for a rate, estimate | [`steady_period`], [`minimal_depths`], [`closed_form_step`] | O(p) |
//! | bound while stages are chosen one by one | [`Suffix`] | O(1) a stage |
//! | exact times | [`makespan`], [`run`] | O(p m), less once the regime repeats |
//! | exact times of blocking exchanges | [`rendezvous()`] | O(p m) |
//!
//! A stage may not hold more than the stage before it: stage `s` would wait for a backward that stage `s + 1`
//! withholds until it has received a forward which stage `s` withholds in turn. Times of such depths are
//! infinite; [`executable_depths`] lowers them to the nearest ones that run.
//!
//! All times are plain `f64` in seconds, because these functions are the innermost loop of the search.

mod bound;
mod closed;
mod event;
mod rendezvous;

pub use bound::{Depth, FreeSuffix, Suffix, best_depth};
pub use closed::{
    Critical, closed_form_step, critical_cycle, gpipe_makespan, lower_bound, minimal_depths,
    rendezvous_period, steady_period,
};
pub use event::{Run, Scratch, StageRun, gpipe, makespan, makespan_unabridged, run};
pub use rendezvous::{rendezvous, rendezvous_makespan};

/// Times of one stage for one micro-batch, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageTime {
    /// Forward.
    pub forward: f64,
    /// Backward, recomputation included.
    pub backward: f64,
    /// Transfer of the activations to the next stage; 0 on the last stage.
    pub link_forward: f64,
    /// Transfer of the gradients from the next stage; 0 on the last stage.
    pub link_backward: f64,
}

impl StageTime {
    /// Forward plus backward.
    pub fn compute(&self) -> f64 {
        self.forward + self.backward
    }

    /// Both directions of the link to the next stage.
    pub fn links(&self) -> f64 {
        self.link_forward + self.link_backward
    }
}

/// The textbook depths `p - s`.
pub fn standard_depths(num_stages: usize) -> Vec<u32> {
    (1..=num_stages as u32).rev().collect()
}

/// Lowers every depth to that of the stage before it: the deepest order within `in_flight` that does not deadlock.
pub fn executable_depths(in_flight: &mut [u32]) {
    let mut above = u32::MAX;
    for depth in in_flight {
        *depth = (*depth).clamp(1, above);
        above = *depth;
    }
}

/// The larger of two numbers as one machine instruction; `f64::max` spends three on NaN, which never occurs here.
#[inline(always)]
#[expect(clippy::inline_always, reason = "two instructions in the innermost loop")]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}
