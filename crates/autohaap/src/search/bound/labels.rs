//! Labels of the pricing that proves: suffixes of stages that stand for every template with that end.

use crate::cost::pipeline::FreeSuffix;
use crate::search::pricing::MAX_CLASSES;

/// A suffix at optimistic times, and what its devices cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    /// Price of the devices.
    pub(super) cost: f64,
    /// Times.
    pub(super) suffix: FreeSuffix,
    /// Group of rows of the front stage, which decides the link before it; `None`: no stage yet.
    pub(super) group: Option<u16>,
    /// Devices per class; of merged labels those of the cheapest.
    pub(super) used: [u16; MAX_CLASSES],
    /// Devices per class that every template it stands for takes at least.
    pub(super) least_used: [u16; MAX_CLASSES],
}

impl Label {
    /// No stage.
    pub(super) const EMPTY: Self = Self {
        cost: 0.0,
        suffix: FreeSuffix::EMPTY,
        group: None,
        used: [0; MAX_CLASSES],
        least_used: [0; MAX_CLASSES],
    };

    /// Lets the label stand for `other` too where it has the same or better times and cost.
    fn absorb(&mut self, other: &Self) {
        for (least, more) in self.least_used.iter_mut().zip(other.least_used) {
            *least = (*least).min(more);
        }
    }
}

/// What labels must share to be compared and merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// The group of the front stage.
    Groups,
    /// That and the devices taken.
    Devices,
}

impl Apart {
    /// Labels kept per position and set that is kept apart.
    fn keep(self) -> usize {
        match self {
            Self::Groups => 8,
            Self::Devices => 3,
        }
    }

    fn key(self, label: &Label) -> (Option<u16>, [u16; MAX_CLASSES]) {
        match self {
            Self::Groups => (label.group, [0; MAX_CLASSES]),
            Self::Devices => (label.group, label.used),
        }
    }
}

/// Drops dominated labels; where more than a few of one set remain, merges neighbours in cost into their component-wise
/// minimum, which stands for a template at least as good as either.
pub(super) fn merge(labels: &mut Vec<Label>, apart: Apart) {
    labels.sort_by(|a, b| {
        apart
            .key(a)
            .cmp(&apart.key(b))
            .then(a.cost.total_cmp(&b.cost))
            .then(a.suffix.step.total_cmp(&b.suffix.step))
    });
    let mut kept: Vec<Label> = Vec::with_capacity(labels.len().min(256));
    let mut rest = &labels[..];
    while let Some(first) = rest.first() {
        let group = rest.partition_point(|l| apart.key(l) == apart.key(first));
        let front_from = kept.len();
        for label in &rest[..group] {
            let better = kept[front_from..].iter_mut().find(|b| {
                b.suffix.span <= label.suffix.span
                    && b.suffix.step <= label.suffix.step
                    && b.suffix.round_trip <= label.suffix.round_trip
            });
            match better {
                Some(better) => better.absorb(label),
                None => kept.push(*label),
            }
        }
        shrink(&mut kept, front_from, apart.keep());
        rest = &rest[group..];
    }
    *labels = kept;
}

/// Merges the front that starts at `from` down to `keep` labels, each time the pair that gives away least.
fn shrink(labels: &mut Vec<Label>, from: usize, keep: usize) {
    while labels.len() - from > keep {
        let loss = |k: usize| {
            let (a, b) = (&labels[k], &labels[k + 1]);
            (b.cost - a.cost) / b.cost.max(1e-12) + (a.suffix.step - b.suffix.step) / a.suffix.step.max(1e-12)
        };
        let at = (from..labels.len() - 1)
            .min_by(|&x, &y| loss(x).total_cmp(&loss(y)))
            .unwrap_or(from);
        let second = labels.remove(at + 1);
        let first = &mut labels[at];
        first.suffix = first.suffix.least(&second.suffix);
        first.absorb(&second);
    }
}
