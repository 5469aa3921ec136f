//! What ranks do: compute actions of (virtual) stages and micro-batches, and the order in which each rank runs them.

use std::fmt;

/// Kind of compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Forward.
    Forward,
    /// Whole backward.
    Backward,
    /// Input gradient alone.
    InputGrad,
    /// Weight gradient alone.
    WeightGrad,
}

impl Work {
    /// The letter of schedule files: F, B, I or W.
    pub const fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::InputGrad => 'I',
            Self::WeightGrad => 'W',
        }
    }

    /// Whether the stage before needs what this work produces.
    pub const fn returns_gradient(self) -> bool {
        matches!(self, Self::Backward | Self::InputGrad)
    }

    /// Whether the micro-batch's weight gradient is complete afterwards.
    pub const fn ends_backward(self) -> bool {
        matches!(self, Self::Backward | Self::WeightGrad)
    }
}

/// One entry of a rank's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// Micro-batch, from 0.
    pub micro_batch: u32,
    /// Stage in chain order (a virtual stage where a rank holds several).
    pub stage: u16,
    /// What is computed.
    pub work: Work,
    /// Runs together with the next action of the list (`OVERLAP_F_B`).
    pub with_next: bool,
}

impl Action {
    /// An action on its own.
    pub const fn new(stage: usize, work: Work, micro_batch: u32) -> Self {
        Self {
            micro_batch,
            stage: stage as u16,
            work,
            with_next: false,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.work.letter(), self.micro_batch)
    }
}

/// The lists of all ranks of one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Micro-batches.
    pub micro_batches: u32,
    /// Rank that holds each stage, in chain order.
    pub rank_of: Vec<usize>,
    /// The last stage of a first chain where the stages are two chains one after the other (DualPipe's directions):
    /// nothing passes from it to the next stage.
    pub cut: Option<usize>,
    /// Actions of each rank.
    pub ranks: Vec<Vec<Action>>,
}

impl Order {
    /// Stages of the chain.
    pub fn num_stages(&self) -> usize {
        self.rank_of.len()
    }

    /// Actions in all.
    pub fn num_actions(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// Most forwards of each rank whose backward (weight gradient included) has not ended, counted in stages of the
    /// chain: the order alone decides it.
    pub fn peak_in_flight(&self) -> Vec<u32> {
        let live = |actions: &Vec<Action>| {
            let (mut now, mut peak) = (0_u32, 0_u32);
            for action in actions {
                if action.work == Work::Forward {
                    now += 1;
                    peak = peak.max(now);
                } else if action.work.ends_backward() {
                    now = now.saturating_sub(1);
                }
            }
            peak
        };
        self.ranks.iter().map(live).collect()
    }
}
