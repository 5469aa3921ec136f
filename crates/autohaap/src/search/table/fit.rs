//! What of an atom range fits a device: peak memory, the least recompute, the deepest in-flight limits.

use crate::cost::memory;
use crate::search::space::Space;
use crate::units::Bytes;

use super::row::{Depths, Fit, Holders, RecomputeChoice, Row, Times};

impl Row {
    /// Peak memory of a device that holds atoms `a..b` with `in_flight` micro-batches.
    pub(crate) fn memory(
        &self,
        space: &Space<'_>,
        (a, b): (usize, usize),
        in_flight: u32,
        recompute: RecomputeChoice,
        holders: Holders,
    ) -> f64 {
        let recomputed = self.recomputed.max(a, a + recompute.full as usize);
        self.memory_of(space, (a, b), in_flight, recompute, recomputed, holders)
    }

    /// [`Row::memory`] with the largest recomputed atom given.
    fn memory_of(
        &self,
        space: &Space<'_>,
        (a, b): (usize, usize),
        in_flight: u32,
        recompute: RecomputeChoice,
        recomputed: f64,
        holders: Holders,
    ) -> f64 {
        let cut = a + recompute.full as usize;
        let sums = self.sums[b].since(&self.sums[a]);
        let head = self.sums[cut].saved_full - self.sums[a].saved_full;
        let (x, y) = (&self.sums[cut], &self.sums[b]);
        let rest = if recompute.selective {
            y.saved_selective - x.saved_selective
        } else {
            y.saved_none - x.saved_none
        };
        let peaks = memory::StagePeaks {
            working_set: Bytes(self.working_set.max(a, b)),
            logits: Bytes(self.logits.max(a, b)),
            held: Bytes(self.held.max(a, b)),
            recomputed: Bytes(recomputed),
            gathered: Bytes(self.gathered.max(a, b)),
        };
        memory::total(
            space.setting,
            &sums,
            head + rest,
            &peaks,
            &self.costs[a..b],
            in_flight,
            holders.copies(),
            self.boundary(space, a, b),
            self.limit,
        )
        .0
    }

    /// The least number of leading full atoms, the others selective, that may fit: what an atom takes while it is
    /// recomputed is left out, so that memory falls with every further one and bisection finds it. `None`: none fits.
    fn first_selective(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<u32> {
        if !self.full_saves_most {
            return Some(0);
        }
        let length = (range.1 - range.0) as u32;
        let may_fit = |full: u32| {
            let choice = RecomputeChoice {
                full,
                selective: true,
            };
            self.memory_of(space, range, in_flight, choice, 0.0, holders) <= self.limit.0
        };
        if !may_fit(length) {
            return None;
        }
        let (mut low, mut high) = (0, length);
        while low < high {
            let middle = u32::midpoint(low, high);
            if may_fit(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// The least recompute with which `in_flight` micro-batches fit, `None` if none does or the range is not allowed.
    pub(crate) fn fit(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        self.fit_in(&self.times, space, range, in_flight, holders)
    }

    /// The same with times not above those of any placement.
    pub(crate) fn least_fit(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        self.fit_in(self.least(), space, range, in_flight, holders)
    }

    fn fit_in(
        &self,
        times: &Times,
        space: &Space<'_>,
        range: (usize, usize),
        in_flight: u32,
        holders: Holders,
    ) -> Option<Fit> {
        if !self.allows(range) {
            return None;
        }
        let fits = |choice| self.memory(space, range, in_flight, choice, holders) <= self.limit.0;
        let none = RecomputeChoice::default();
        if fits(none) {
            return Some(times.with(range.0, range.1, none));
        }
        if !space.recompute {
            return None;
        }
        let length = (range.1 - range.0) as u32;
        let mut best: Option<Fit> = None;
        let mut offer = |full: u32, selective: bool| {
            let fit = times.with(range.0, range.1, RecomputeChoice { full, selective });
            if best.is_none_or(|kept| fit.backward < kept.backward) {
                best = Some(fit);
            }
        };
        if self.selective_helps {
            // A fully recomputed atom beside selective ones may take more memory than it saves: no bisection.
            let first = self.first_selective(space, range, in_flight, holders)?;
            let least = (first..=length).find(|&full| {
                fits(RecomputeChoice {
                    full,
                    selective: true,
                })
            });
            if let Some(full) = least {
                offer(full, true);
            }
        }
        // Without selective ones memory never rises with a further atom.
        let fitting = |full: u32| {
            fits(RecomputeChoice {
                full,
                selective: false,
            })
        };
        if length > 0 && fitting(length) {
            let (mut low, mut high) = (1, length);
            while low < high {
                let middle = u32::midpoint(low, high);
                if fitting(middle) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            offer(low, false);
        }
        best
    }

    /// The deepest in-flight limits up to `most` that fit.
    pub(crate) fn depths(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        most: u32,
        holders: Holders,
    ) -> Depths {
        if !self.allows(range) {
            return Depths::default();
        }
        let length = (range.1 - range.0) as u32;
        let choice = |full, selective| RecomputeChoice { full, selective };
        let plain = self.deepest_with(space, range, most, choice(0, false), holders);
        if plain == most {
            return Depths { plain, any: most };
        }
        if !space.recompute {
            return Depths { plain, any: plain };
        }
        let full = self.deepest_with(space, range, most, choice(length, false), holders);
        let mut any = plain.max(full);
        // Some atoms in full and the others selectively may go deeper than either alone.
        let mixed = |w: u32| {
            self.first_selective(space, range, w, holders)
                .is_some_and(|first| {
                    (first..length)
                        .any(|full| self.memory(space, range, w, choice(full, true), holders) <= self.limit.0)
                })
        };
        if self.selective_helps && any < most && mixed(any + 1) {
            let (mut low, mut high) = (any + 1, most);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if mixed(middle) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            any = low;
        }
        Depths { plain, any }
    }

    /// The deepest in-flight limit up to `most` that fits under one recompute choice; 0 if none does. Memory rises by the same
    /// amount with every further micro-batch, so two values of it give the limit up to rounding.
    fn deepest_with(
        &self,
        space: &Space<'_>,
        range: (usize, usize),
        most: u32,
        choice: RecomputeChoice,
        holders: Holders,
    ) -> u32 {
        let most = most.max(1);
        let memory = |w: u32| self.memory(space, range, w, choice, holders);
        let limit = self.limit.0;
        let all = memory(most);
        if all <= limit {
            return most;
        }
        let one = memory(1);
        if most == 1 || one > limit {
            return 0;
        }
        let each = (all - one) / f64::from(most - 1);
        let mut depth = (1 + ((limit - one) / each) as u32).min(most - 1);
        while depth > 1 && memory(depth) > limit {
            depth -= 1;
        }
        while depth + 1 < most && memory(depth + 1) <= limit {
            depth += 1;
        }
        depth
    }
}
