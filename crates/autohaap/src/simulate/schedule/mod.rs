//! Schedules as data: every generator gives an [`Order`], the list of actions of each rank.
//!
//! | schedule | order |
//! |---|---|
//! | [`gpipe()`] | all forwards, then all backwards |
//! | [`one_f_one_b()`] | W forwards, then backward and forward alternately; free depths W (standard, eager, minimal) |
//! | [`interleaved()`], [`looped_bfs`] | several chunks a rank: groups of micro-batches per chunk (Megatron, torch), or chunk by chunk |
//! | [`zb_h1`], [`interleaved_zero_bubble`] | backward split; the weight gradient waits for idle time |
//! | [`zb_h2`] | the same with twice the micro-batches in flight: no idle time inside a rank's span |
//! | [`zb_v`] | two chunks a rank in a V, backward split |
//! | [`dual_pipe_v`], [`dual_pipe`] | two chunks a rank, in a V or in both directions, forward and backward overlapped |
//! | [`csv`] | any order, from and to torch's schedule files |

pub mod csv;
mod dual_pipe_v;
mod gpipe;
mod interleaved;
mod one_f_one_b;
mod zb_h2;
mod zb_v;

pub use dual_pipe_v::{dual_pipe, dual_pipe_v};
pub use gpipe::{Backwards, gpipe};
pub use interleaved::{interleaved, interleaved_zero_bubble, legal_group, looped_bfs, torch_group, zb_h1};
pub use one_f_one_b::{eager_depths, one_f_one_b};
pub use zb_h2::{zb_h2, zero_bubble};
pub use zb_v::zb_v;

/// The ranks of a chain whose chunks go round the ranks in order.
fn looped(num_ranks: usize, chunks: usize) -> Vec<usize> {
    (0..num_ranks * chunks).map(|s| s % num_ranks).collect()
}

/// The ranks of a chain that goes down the ranks and back up.
fn folded(num_ranks: usize) -> Vec<usize> {
    (0..num_ranks).chain((0..num_ranks).rev()).collect()
}
