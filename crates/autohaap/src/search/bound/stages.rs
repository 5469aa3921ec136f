//! Optimistic stage times of atom ranges, worked out once for all times, prices and micro-batch counts.

use std::sync::{Arc, OnceLock};

use crate::search::space::Space;
use crate::search::table::{Holders, Row};

/// In-flight limits up to `deepest` that need at least this stage time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// Largest depth of the segment; `u32::MAX` where none is looked up.
    pub(super) deepest: u32,
    /// Forward seconds.
    pub(super) forward: f64,
    /// Backward seconds, recompute that the shallowest depth of the segment needs included.
    pub(super) backward: f64,
}

/// Deepest in-flight limit that is looked up; beyond it any depth is allowed.
const LOOKED_UP: u32 = 64;

/// What a stage of one row over one atom range takes at best.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// The curve of depth against time in steps: every depth lies in a segment whose time it cannot beat. The first segment is what
    /// fits without recompute. Empty if nothing fits.
    pub(super) segments: Vec<Segment>,
    /// Seconds of the optimizer step.
    pub(super) tail: f64,
}

/// All ranges of one row, filled as they are asked for.
pub(super) struct Stages {
    /// The row.
    pub(super) row: Arc<Row>,
    /// Rows that share the links to and from their stages.
    pub(super) group: u16,
    holders: Holders,
    num_atoms: usize,
    cells: Vec<OnceLock<Box<Stage>>>,
}

impl Stages {
    /// No range looked up yet.
    pub(super) fn new(row: Arc<Row>, group: u16, holders: Holders, num_atoms: usize) -> Self {
        let mut cells = Vec::new();
        cells.resize_with(num_atoms * num_atoms, OnceLock::new);
        Self {
            row,
            group,
            holders,
            num_atoms,
            cells,
        }
    }

    /// The stage of atoms `start..end`.
    pub(super) fn of(&self, space: &Space<'_>, start: usize, end: usize) -> &Stage {
        self.cells[start * self.num_atoms + end - 1].get_or_init(|| {
            Box::new(Stage {
                segments: segments(space, &self.row, (start, end), self.holders),
                tail: self.row.optimizer(space, start, end, self.holders),
            })
        })
    }
}

fn segments(space: &Space<'_>, row: &Row, range: (usize, usize), holders: Holders) -> Vec<Segment> {
    let depths = row.depths(space, range, LOOKED_UP, holders);
    let mut segments = Vec::new();
    let mut from = 1;
    while from <= depths.any {
        let Some(fit) = row.least_fit(space, range, from, holders) else {
            break;
        };
        let to = if from <= depths.plain {
            depths.plain
        } else {
            (2 * from).min(depths.any)
        };
        segments.push(Segment {
            deepest: if to >= LOOKED_UP { u32::MAX } else { to },
            forward: fit.forward,
            backward: fit.backward,
        });
        from = to + 1;
    }
    segments
}
