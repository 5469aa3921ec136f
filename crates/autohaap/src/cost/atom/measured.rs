//! Times of a profile, resolved: measured -> interpolated -> scaled -> transferred.
//!
//! A measured time `t` at a setting `x` gives the factor `t / model(x)`. The time at a setting `y` is `model(y)` times the
//! factor: that of the setting itself (measured), the linear interpolation of two factors along micro-batch or sequence
//! length (interpolated), the factor of the nearest setting (scaled), or that of another device (transferred). An entry that
//! equals the model's own time therefore changes nothing at any setting, and measured times come back exactly.

use super::{AtomCost, Origin, PhaseTime, ReplicaShape, Unit};
use crate::cluster::{LayerProfile, LayerSetting, LayerTimes, MeasuredRecompute};
use crate::model::AtomKind;
use crate::plan::AttentionKernel;
use crate::profile::{Rates, Step};
use crate::units::Seconds;

/// What a profile says about an atom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    /// Measured over modelled time of forward, input gradient and weight gradient.
    pub(super) factors: [f64; 3],
    /// Step of the ladder.
    origin: Origin,
    /// Whether the factors hold for the collectives inside the layer too.
    with_communication: bool,
}

impl Resolved {
    /// Sets the origin, and the collectives where the measurement contains them.
    pub(super) fn finish(&self, cost: &mut AtomCost) {
        cost.origin = Some(self.origin);
        if self.with_communication {
            let scaled = |phase: &mut PhaseTime, factor: f64| {
                for item in [&mut phase.tp, &mut phase.cp, &mut phase.ep] {
                    *item = Seconds(item.0 * factor);
                }
            };
            scaled(&mut cost.forward, self.factors[0]);
            scaled(&mut cost.input_grad, self.factors[1]);
            cost.recompute_full = cost.forward;
        }
    }
}

/// One usable entry of a profile.
#[derive(Clone, Copy)]
struct Entry<'p> {
    profile: &'p LayerProfile,
    times: &'p LayerTimes,
}

impl Unit<'_> {
    /// The factors of an atom of this kind, by the ladder; `None` where no profile has anything for it.
    pub(super) fn resolve(&self, kind: AtomKind) -> Option<Resolved> {
        let profiles = &self.setting.cluster.measured;
        if profiles.is_empty() {
            return None;
        }
        let own = |p: &&LayerProfile| p.device.name == self.shape.device_type;
        let here: Vec<Entry<'_>> = profiles
            .iter()
            .filter(own)
            .flat_map(|p| self.entries(p, kind))
            .collect();
        if let Some(resolved) = self.among(&here) {
            return Some(resolved);
        }
        // Other devices: those of the same architecture first, then in the order of the profile.
        let architecture = self
            .setting
            .cluster
            .device_types
            .get(&self.shape.device_type)
            .map(|d| d.architecture.as_str());
        let mut others: Vec<&LayerProfile> = profiles.iter().filter(|p| !own(p)).collect();
        others.sort_by_key(|p| Some(p.device.architecture.as_str()) != architecture);
        others.into_iter().find_map(|p| {
            let mut resolved = self.among(&self.entries(p, kind))?;
            let on_device = match resolved.origin.step {
                Step::Measured => 0.0,
                _ => resolved.origin.sigma,
            };
            resolved.origin = Origin {
                step: Step::Transferred,
                sigma: Step::Transferred.sigma().hypot(on_device),
            };
            resolved.with_communication = false;
            Some(resolved)
        })
    }

    /// Entries of a layer class. Times that contain collectives hold for their own degrees, or for any if there was nothing
    /// to communicate.
    fn entries<'p>(&self, profile: &'p LayerProfile, kind: AtomKind) -> Vec<Entry<'p>> {
        let own = profile.device.name == self.shape.device_type;
        profile
            .layers
            .iter()
            .filter(|t| t.at.layer_class == kind)
            .filter(|t| {
                let alone = t.at.tp == 1 && t.at.cp == 1 && t.at.ep == 1;
                !profile.includes_communication || alone || (own && self.degrees_match(&t.at))
            })
            .map(|times| Entry { profile, times })
            .collect()
    }

    fn degrees_match(&self, at: &LayerSetting) -> bool {
        let s = self.shape;
        // Splitting activations means nothing without a group to split them over.
        let sp = at.tp == 1 || at.sp == self.setting.training.sequence_parallel;
        sp && (at.tp, at.cp, at.ep, at.etp) == (s.tp, s.cp, s.ep, s.etp)
    }

    /// The best step of the ladder that a device's entries allow.
    fn among(&self, entries: &[Entry<'_>]) -> Option<Resolved> {
        let (rows, seq) = (f64::from(self.shape.rows), self.seq);
        let place = |e: &Entry<'_>| (f64::from(e.times.at.micro_batch), e.times.at.seq_len as f64);
        let same: Vec<Entry<'_>> = entries
            .iter()
            .filter(|e| self.degrees_match(&e.times.at))
            .copied()
            .collect();
        // Several recompute modes at one setting: the least, which the sorted order puts first.
        let exact = same.iter().find(|e| place(e) == (rows, seq));
        if let Some(resolved) = exact.and_then(|e| self.from(e, Step::Measured)) {
            return Some(resolved);
        }
        for axis in [0, 1] {
            let on_line = |e: &&Entry<'_>| {
                let (r, s) = place(e);
                if axis == 0 { s == seq } else { r == rows }
            };
            let value = |e: &Entry<'_>| if axis == 0 { place(e).0 } else { place(e).1 };
            let target = if axis == 0 { rows } else { seq };
            let line = || same.iter().filter(on_line);
            let below = line().filter(|e| value(e) < target).max_by(|a, b| {
                value(a)
                    .total_cmp(&value(b))
                    .then_with(|| b.times.at.cmp(&a.times.at))
            });
            let above = line().filter(|e| value(e) > target).min_by(|a, b| {
                value(a)
                    .total_cmp(&value(b))
                    .then_with(|| a.times.at.cmp(&b.times.at))
            });
            if let (Some(low), Some(high)) = (below, above)
                && let (Some(a), Some(b)) = (
                    self.from(low, Step::Interpolated),
                    self.from(high, Step::Interpolated),
                )
            {
                let share = (target - value(low)) / (value(high) - value(low));
                return Some(Resolved {
                    factors: std::array::from_fn(|i| a.factors[i] + share * (b.factors[i] - a.factors[i])),
                    ..a
                });
            }
        }
        // Nearest in doublings of anything; a change of degree counts before one of tokens.
        let far = |e: &Entry<'_>| {
            let at = &e.times.at;
            let s = self.shape;
            let doublings = |a: f64, b: f64| (a / b).log2().abs();
            let degree: f64 = [(at.tp, s.tp), (at.cp, s.cp), (at.ep, s.ep), (at.etp, s.etp)]
                .iter()
                .map(|&(a, b)| doublings(f64::from(a), f64::from(b)))
                .sum();
            let (r, q) = place(e);
            4.0 * degree + doublings(r, rows) + doublings(q, seq)
        };
        let mut by_distance: Vec<&Entry<'_>> = entries.iter().collect();
        by_distance.sort_by(|a, b| {
            far(a)
                .total_cmp(&far(b))
                .then_with(|| a.times.at.cmp(&b.times.at))
        });
        by_distance.into_iter().find_map(|e| self.from(e, Step::Scaled))
    }

    /// Factors of one entry: its times over those of the model at its setting, on its device.
    fn from(&self, entry: &Entry<'_>, step: Step) -> Option<Resolved> {
        let at = &entry.times.at;
        let device = &entry.profile.device;
        let training = self.setting.training;
        let shape = ReplicaShape {
            device_type: device.name.clone(),
            speed_factor: 1.0,
            tp: at.tp,
            cp: at.cp,
            ep: at.ep,
            etp: at.etp,
            rows: at.micro_batch,
            ..self.shape.clone()
        };
        let there = Unit {
            rates: Rates::of(device, training.precision, 1.0),
            seq: at.seq_len as f64,
            measured: [1.0; 3],
            tokens: f64::from(at.micro_batch) * at.seq_len as f64 / f64::from(at.cp),
            tp: f64::from(at.tp),
            sequence: if at.sp { f64::from(at.tp) } else { 1.0 },
            flash: training
                .attention
                .get(&device.name)
                .map_or(device.flash_attention, |k| *k == AttentionKernel::Flash),
            shape: &shape,
            setting: self.setting,
            parts: self.parts,
            element: self.element,
        };
        let mut model = AtomCost::default();
        there.times(&mut model);
        let with_communication = entry.profile.includes_communication && self.degrees_match(at);
        let time = |phase: &PhaseTime| {
            if with_communication {
                phase.total().0
            } else {
                phase.compute.0
            }
        };
        let forward = time(&model.forward);
        let input = time(&model.input_grad)
            + match at.recompute {
                MeasuredRecompute::None => 0.0,
                MeasuredRecompute::Selective => time(&model.recompute_selective),
                MeasuredRecompute::Full => forward,
            };
        let weight = time(&model.weight_grad);
        let factors = factors(entry.times, forward, input, weight)?;
        Some(Resolved {
            factors,
            origin: Origin {
                step,
                sigma: step.sigma().max(entry.times.sigma),
            },
            with_communication,
        })
    }
}

/// Measured over modelled times of forward, input gradient and weight gradient. Phases that were measured together share
/// one factor, a phase that was not measured takes that of the others, and a weight gradient that the model has none of
/// counts with the input gradient: no measured second is lost.
fn factors(times: &LayerTimes, forward: f64, input: f64, weight: f64) -> Option<[f64; 3]> {
    let ratio = |measured: f64, modelled: f64| {
        let factor = measured / modelled;
        (factor.is_finite() && factor > 0.0).then_some(factor)
    };
    let ahead = match times.forward_s {
        Some(t) => Some(ratio(t.0, forward)?),
        None => None,
    };
    let back = match (times.backward_s, times.weight_grad_s) {
        (Some(b), Some(w)) if weight > 0.0 => Some([ratio(b.0, input)?, ratio(w.0, weight)?]),
        (Some(b), w) => {
            let factor = ratio(b.0 + w.map_or(0.0, |w| w.0), input + weight)?;
            Some([factor, factor])
        }
        (None, _) => None,
    };
    match (ahead, back, times.forward_backward_s) {
        (Some(f), Some([i, w]), _) => Some([f, i, w]),
        (Some(f), None, Some(both)) => {
            let rest = ratio(both.0 - f * forward, input + weight)?;
            Some([f, rest, rest])
        }
        (_, _, Some(both)) => {
            let factor = ratio(both.0, forward + input + weight)?;
            Some([factor; 3])
        }
        (Some(f), None, None) => Some([f; 3]),
        (None, Some([i, w]), None) => Some([i, i, w]),
        (None, None, None) => None,
    }
}
