//! (model, cluster, training, budget) to the best plan, its bound and what it was compared with.
//!
//! The search works on counts per device class, never on device ids. In the order of the flow:
//!
//! * [`space`]: which stage options exist (class, tp, cp, replicas, ep) and which micro-batch sizes;
//! * [`table`]: time and memory of any atom range under an option, from prefix sums (the *stage table*);
//! * [`template`]: one pipeline shape: times, least recompute that fits, micro-batches it finishes within a time;
//! * [`seeds`]: templates of regular structure to start from;
//! * [`pricing`]: for a time limit and prices per class, the templates that finish most per priced device;
//! * [`master`]: the LP over templates (its dual gives the prices) and the integer packing;
//! * [`placement`]: counts to device ids; [`assemble`]: a packing to pipelines and their exact price;
//! * [`polish`]: local moves on finalists with the exact price as judge;
//! * [`baselines`]: uniform plans and hand splits, always computed beside the answer;
//! * [`bound`]: proven lower bounds; [`lattice`]: exhaustive search for small clusters; [`brute`]: the oracle;
//! * [`tighten`]: the largest time that the bound refutes; [`ranking`]: candidates in order, finalists simulated;
//! * [`restriction`]: named spaces, what other planners can express, as rules over a plan;
//! * [`compare`]: device groups and losers; [`inputs`]: what can be searched at all; [`solve`]: one search over given
//!   counts; [`driver`]: the whole answer.

mod api;
mod assemble;
mod baselines;
mod bound;
mod brute;
mod compare;
mod driver;
#[cfg(test)]
mod honesty;
mod infeasible;
mod inputs;
mod lattice;
mod master;
mod placement;
mod polish;
mod pricing;
mod ranking;
mod restriction;
mod seeds;
mod solve;
mod space;
mod table;
mod template;
mod tighten;
mod warm;

pub use api::*;
pub use driver::search;
pub use inputs::batch_sizes;
pub use restriction::{Layers, NamedSpace, Replicas, Rules, SPACES};
