//! What the engine executes: chains of stages with their orders and times, transfers and reductions over shared pools.

use super::action::{Action, Order, Work};
use crate::plan::PointToPointMode;

/// Times of one stage for one micro-batch, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageWork {
    /// Forward.
    pub forward: f64,
    /// Whole backward.
    pub backward: f64,
    /// Input gradient with recompute, where the backward is split.
    pub input_grad: f64,
    /// Weight gradient, where the backward is split.
    pub weight_grad: f64,
}

impl StageWork {
    /// Seconds of one kind of work.
    pub fn seconds(&self, work: Work) -> f64 {
        match work {
            Work::Forward => self.forward,
            Work::Backward => self.backward,
            Work::InputGrad => self.input_grad,
            Work::WeightGrad => self.weight_grad,
        }
    }
}

/// A transfer or reduction on idle links, and what it takes of shared pools meanwhile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transfer {
    /// Seconds when nothing else runs.
    pub seconds: f64,
    /// Bytes in all.
    pub bytes: f64,
    /// (pool, share of its capacity that this transfer uses at full speed).
    pub uses: Vec<(u32, f64)>,
}

/// Something that transfers share: a node's network cards in one direction, a tier's uplink, a host bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// For people: `node-a out`.
    pub name: String,
    /// Node, if it is one's.
    pub node: Option<usize>,
}

/// One pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Order of work.
    pub order: Order,
    /// Times of each stage.
    pub stages: Vec<StageWork>,
    /// Transfer from each stage to the next; none between chunks of one rank.
    pub forward: Vec<Transfer>,
    /// Transfer of the gradient back from the next stage.
    pub backward: Vec<Transfer>,
    /// Optimizer of each rank, after its reductions.
    pub optimizer: Vec<f64>,
}

/// A holder of reduced gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holder {
    /// Chain.
    pub chain: usize,
    /// Stage of the chain.
    pub stage: usize,
    /// Share of the stage's last backward that is still to run when these gradients are ready.
    pub remaining: f64,
}

/// A gradient reduction; each rank runs its reductions one after the other in the order of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Reduction {
    /// Atoms; empty for a tied embedding.
    pub atoms: [usize; 2],
    /// Holders.
    pub holders: Vec<Holder>,
    /// Time and use of pools.
    pub transfer: Transfer,
}

/// Random variation of compute times, the same for the same seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// Relative standard deviation.
    pub sigma: f64,
    /// Seed.
    pub seed: u64,
}

/// Everything the engine executes.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Pipelines.
    pub chains: Vec<Chain>,
    /// Shared pools.
    pub pools: Vec<Pool>,
    /// Reductions, in the order in which every rank runs its own.
    pub reductions: Vec<Reduction>,
    /// Whether transfers block both ends.
    pub p2p: PointToPointMode,
    /// Time of an overlapped pair over the sum of its two parts.
    pub pair_factor: f64,
    /// Variation of compute times.
    pub jitter: Option<Jitter>,
}

impl Program {
    /// A program of chains alone: no pools, no reductions.
    pub fn of_chains(chains: Vec<Chain>, p2p: PointToPointMode) -> Self {
        Self {
            chains,
            pools: Vec::new(),
            reductions: Vec::new(),
            p2p,
            pair_factor: 1.0,
            jitter: None,
        }
    }

    /// Seconds of an action on its own.
    pub fn seconds(&self, chain: usize, action: Action) -> f64 {
        let seconds = self.chains[chain].stages[usize::from(action.stage)].seconds(action.work);
        match self.jitter {
            None => seconds,
            Some(jitter) => seconds * jitter.factor(chain, action),
        }
    }
}

impl Jitter {
    /// A log-normal factor with mean 1 that depends on the action alone.
    fn factor(self, chain: usize, action: Action) -> f64 {
        let key = (chain as u64) << 52
            ^ u64::from(action.stage) << 36
            ^ (action.work as u64) << 32
            ^ u64::from(action.micro_batch);
        let unit = |n: u64| (mix(self.seed ^ mix(key ^ n << 60)) >> 11) as f64 / (1_u64 << 53) as f64;
        // Box-Muller.
        let normal = (-2.0 * (1.0 - unit(1)).ln()).sqrt() * (std::f64::consts::TAU * unit(2)).cos();
        let spread = (1.0 + self.sigma * self.sigma).ln();
        (normal * spread.sqrt() - 0.5 * spread).exp()
    }
}

/// SplitMix64's finaliser.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
