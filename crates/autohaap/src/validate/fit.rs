//! Fitting the calibration: coordinate descent on the logarithms of few parameters, each held near its default.
//!
//! A parameter belongs to a device architecture, an engine or a network, never to a row or a model. The objective is the
//! sum of Huber losses of `ln(predicted / measured)` over calibration rows of step time, rows of a group weighted by
//! `1 / sqrt(rows)`, plus `(ln(value / default) / width)^2` for each parameter.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::case::{Case, Use};
use super::express::{Expressed, express};
use super::predict::{calibrated, in_unit, predict};
use super::quantity;
use crate::cluster::Precision;
use crate::profile::calibration::{Basis, Calibration, FittedKernels, FittedLink};
use crate::units::Seconds;

/// Loss is quadratic up to this logarithmic error, linear beyond.
const HUBER: f64 = 0.10;

/// What a parameter belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Device(String),
    Engine(String),
    Network(String),
}

/// Which figure of the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    Gemm,
    Expert,
    Attention,
    Memory,
    Fp8,
    Half,
    Elementwise,
    Host,
    Collective,
    Kernel,
    Routing,
    Efficiency,
    Latency,
    OverlapLoss,
}

impl Figure {
    /// Width of the prior in natural logarithms, and the legal range.
    fn prior(self) -> (f64, f64, f64) {
        match self {
            Self::Gemm => (0.2, 0.3, 1.4),
            Self::Expert => (0.4, 0.1, 1.6),
            Self::Attention => (0.15, 0.2, 1.8),
            Self::Memory => (0.2, 0.3, 1.15),
            Self::Fp8 => (0.2, 0.3, 1.2),
            Self::Half => (0.4, 8.0, 400.0),
            Self::Elementwise => (0.5, 0.5, 6.0),
            Self::Host => (1.2, 1e-6, 1e-3),
            Self::Collective => (1.6, 1e-6, 2e-3),
            Self::Kernel => (0.25, 0.5, 4.0),
            Self::Routing => (1.0, 0.5, 30.0),
            Self::Efficiency => (0.4, 0.02, 1.0),
            Self::Latency => (0.8, 1e-6, 1e-3),
            Self::OverlapLoss => (0.7, 0.02, 1.0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Parameter {
    owner: Owner,
    figure: Figure,
}

/// A row to fit on.
pub struct Sample {
    case: Case,
    row: Expressed,
    weight: f64,
}

impl Sample {
    /// Devices of the row's cluster.
    pub fn devices(&self) -> impl Iterator<Item = &crate::cluster::DeviceType> {
        self.row.cluster.device_types.values()
    }
}

/// Mean absolute logarithmic error of samples under a calibration.
pub fn remaining(samples: &[Sample], calibration: &Calibration) -> f64 {
    samples.iter().map(|s| miss(s, calibration).abs()).sum::<f64>() / samples.len().max(1) as f64
}

/// The step-time rows among cases that can be expressed, with weights.
pub fn samples(cases: &[Case], wanted: impl Fn(&Case) -> bool + Sync) -> Vec<Sample> {
    let mut all: Vec<Sample> = cases
        .par_iter()
        .filter(|c| c.used_for == Use::Calibration && wanted(c))
        .filter(|c| {
            quantity::of(c).is_ok_and(|q| q.kind() == "time") && c.number("value").is_some_and(|v| v > 0.0)
        })
        .filter_map(|c| {
            Some(Sample {
                case: c.clone(),
                row: express(c).ok()?,
                weight: 1.0,
            })
        })
        .collect();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for s in &all {
        *counts.entry(s.case.group.clone()).or_default() += 1.0;
    }
    for s in &mut all {
        s.weight = 1.0 / counts[&s.case.group].sqrt();
    }
    all
}

/// ln(predicted time / measured time).
fn miss(sample: &Sample, calibration: &Calibration) -> f64 {
    let row = calibrated(&sample.row, calibration);
    let value = predict(&row).and_then(|p| in_unit(&sample.case, &row, &p));
    let (Ok(value), Some(expected), Ok(quantity)) =
        (value, sample.case.number("value"), quantity::of(&sample.case))
    else {
        return 0.0;
    };
    let log = (value / expected).ln();
    if quantity.is_rate() { -log } else { log }
}

fn huber(x: f64) -> f64 {
    let x = x.abs();
    if x <= HUBER {
        x * x / (2.0 * HUBER)
    } else {
        x - HUBER / 2.0
    }
}

/// Parameters that the samples can say something about, with the samples of each.
fn parameters(samples: &[Sample]) -> BTreeMap<Parameter, Vec<usize>> {
    let mut map: BTreeMap<Parameter, Vec<usize>> = BTreeMap::new();
    for (i, sample) in samples.iter().enumerate() {
        let row = &sample.row;
        let mut owned: BTreeSet<Parameter> = BTreeSet::new();
        let mut add = |owner: Owner, figures: &[Figure]| {
            for &figure in figures {
                owned.insert(Parameter {
                    owner: owner.clone(),
                    figure,
                });
            }
        };
        for device in row.cluster.device_types.values() {
            let owner = Owner::Device(device_entry(device));
            add(owner.clone(), &[Figure::Gemm, Figure::Half, Figure::Memory]);
            if row.training.attention.is_empty() {
                add(owner.clone(), &[Figure::Attention]);
            }
            if row.training.precision == Precision::Fp8 {
                add(owner.clone(), &[Figure::Fp8]);
            }
            if !sample.case.text("moe").is_empty() {
                add(owner, &[Figure::Expert]);
            }
        }
        let engine = Owner::Engine(row.engine.id.clone());
        add(engine.clone(), &[Figure::Elementwise, Figure::Host]);
        if row.training.attention.is_empty() {
            add(engine.clone(), &[Figure::Kernel]);
        }
        if !sample.case.text("moe").is_empty() {
            add(engine.clone(), &[Figure::Routing]);
        }
        if row.tp > 1 || row.training.zero >= 2 || row.pipeline.stages.iter().any(|s| s.ep > 1) {
            add(engine.clone(), &[Figure::Collective]);
        }
        let overlap = row.training.engine_semantics.overlap;
        if overlap.tp || (overlap.dp && row.training.zero >= 2) {
            add(engine, &[Figure::OverlapLoss]);
        }
        if row.cluster.nodes.len() > 1 {
            add(
                Owner::Network(row.network.to_owned()),
                &[Figure::Efficiency, Figure::Latency],
            );
        }
        if let Some(inside) = row.inside {
            add(
                Owner::Network(inside.to_owned()),
                &[Figure::Efficiency, Figure::Latency],
            );
        }
        for parameter in owned {
            map.entry(parameter).or_default().push(i);
        }
    }
    // No figure exists for one row.
    map.retain(|_, rows| rows.len() > 1);
    map
}

/// Devices whose power limit or board sets them apart have an entry of their own, others share their architecture's.
fn device_entry(device: &crate::cluster::DeviceType) -> String {
    let apart = ["500W", "GH200", "T4", "TITAN", "RTX", "PCIe", "H20", "GB", "B300"];
    if apart.iter().any(|w| device.name.contains(w)) {
        device.name.clone()
    } else {
        device.architecture.clone()
    }
}

fn engine_of_owner(owner: &Owner) -> Option<&'static crate::engine::Engine> {
    match owner {
        Owner::Engine(id) => crate::engine::engines().iter().find(|e| e.id == *id),
        _ => None,
    }
}

/// Share of the nominal rate before any fit. Eight consumer cards on the buses of one host, staged through its memory, are
/// reported at about 1.5 GB/s effective of 15.75.
fn efficiency_prior(network: &str) -> f64 {
    if network == "campus-pcie" { 0.1 } else { 0.6 }
}

/// A parameter before any fit.
fn default_of(p: &Parameter) -> f64 {
    match p.figure {
        Figure::Gemm
        | Figure::Expert
        | Figure::Attention
        | Figure::Memory
        | Figure::Fp8
        | Figure::Routing => 1.0,
        Figure::Kernel => engine_of_owner(&p.owner).map_or(1.0, |e| e.kernels.attention),
        Figure::Half => 64.0,
        Figure::Elementwise => engine_of_owner(&p.owner).map_or(1.0, |e| e.kernels.elementwise),
        Figure::Host => engine_of_owner(&p.owner)
            .map(|e| e.kernels.host_s.0)
            .filter(|h| *h > 0.0)
            .unwrap_or(2e-5),
        Figure::Collective => 2e-5,
        Figure::Efficiency => match &p.owner {
            Owner::Network(name) => efficiency_prior(name),
            _ => 0.6,
        },
        Figure::Latency => 1e-5,
        Figure::OverlapLoss => 0.1,
    }
}

fn slot<'c>(calibration: &'c mut Calibration, p: &Parameter) -> &'c mut f64 {
    match &p.owner {
        Owner::Device(name) => {
            let curve = &mut calibration.devices.entry(name.clone()).or_default().curve;
            match p.figure {
                Figure::Expert => &mut curve.expert,
                Figure::Attention => &mut curve.attention,
                Figure::Memory => &mut curve.memory,
                Figure::Fp8 => &mut curve.fp8,
                Figure::Half => &mut curve.half,
                _ => &mut curve.gemm,
            }
        }
        Owner::Engine(id) => {
            let elementwise = default_of(&Parameter {
                owner: p.owner.clone(),
                figure: Figure::Elementwise,
            });
            let host = default_of(&Parameter {
                owner: p.owner.clone(),
                figure: Figure::Host,
            });
            let attention = default_of(&Parameter {
                owner: p.owner.clone(),
                figure: Figure::Kernel,
            });
            let kernels = calibration
                .engines
                .entry(id.clone())
                .or_insert_with(|| FittedKernels {
                    elementwise,
                    host_s: Seconds(host),
                    collective_s: Seconds(2e-5),
                    attention,
                    routing: 1.0,
                    overlap_loss: 0.1,
                    ..FittedKernels::default()
                });
            match p.figure {
                Figure::Host => &mut kernels.host_s.0,
                Figure::Collective => &mut kernels.collective_s.0,
                Figure::Kernel => &mut kernels.attention,
                Figure::Routing => &mut kernels.routing,
                Figure::OverlapLoss => &mut kernels.overlap_loss,
                _ => &mut kernels.elementwise,
            }
        }
        Owner::Network(name) => {
            let link = calibration
                .networks
                .entry(name.clone())
                .or_insert_with(|| FittedLink {
                    efficiency: efficiency_prior(name),
                    latency_s: Seconds(1e-5),
                    basis: Basis::default(),
                });
            match p.figure {
                Figure::Latency => &mut link.latency_s.0,
                _ => &mut link.efficiency,
            }
        }
    }
}

/// Fits `start` on samples; `rounds` passes over all parameters.
pub fn fit(samples: &[Sample], start: &Calibration, rounds: usize) -> Calibration {
    let parameters = parameters(samples);
    let mut best = start.clone();
    // Links that only their prior describes.
    for name in samples.iter().filter_map(|s| s.row.inside) {
        let _ = slot(
            &mut best,
            &Parameter {
                owner: Owner::Network(name.to_owned()),
                figure: Figure::Efficiency,
            },
        );
    }
    for p in parameters.keys() {
        let _ = slot(&mut best, p);
    }
    let mut misses: Vec<f64> = samples.par_iter().map(|s| miss(s, &best)).collect();
    let penalty = |p: &Parameter, value: f64| {
        let (mut width, ..) = p.figure.prior();
        // The host time of a family of engines is known from the member with the most rows.
        if p.figure == Figure::Host && engine_of_owner(&p.owner).is_some_and(|e| e.kernels.host_s.0 > 0.0) {
            width = 0.2;
        }
        0.02 * ((value / default_of(p)).ln() / width).powi(2)
    };
    let mut steps: BTreeMap<&Parameter, f64> = parameters
        .keys()
        .map(|p| {
            let wide = match p.figure {
                Figure::Host | Figure::Collective | Figure::Latency | Figure::Half | Figure::OverlapLoss => {
                    0.9
                }
                Figure::Routing | Figure::Efficiency => 0.5,
                _ => 0.2,
            };
            (p, wide)
        })
        .collect();
    for _ in 0..rounds {
        let mut open = false;
        for (p, rows) in &parameters {
            let step = steps.get(p).copied().unwrap_or(0.0);
            if step < 0.008 {
                continue;
            }
            open = true;
            let mut moved = false;
            let (_, low, high) = p.figure.prior();
            let now = *slot(&mut best, p);
            let score = |m: &[f64], value: f64| -> f64 {
                let loss: f64 = rows
                    .iter()
                    .zip(m)
                    .map(|(&i, x)| samples[i].weight * huber(*x))
                    .sum();
                loss + penalty(p, value)
            };
            let current: Vec<f64> = rows.iter().map(|&i| misses[i]).collect();
            let mut least = score(&current, now);
            for direction in [step, -step] {
                let mut value = now;
                for _ in 0..4 {
                    let next = (value * f64::exp(direction)).clamp(low, high);
                    if next == value {
                        break;
                    }
                    let mut trial = best.clone();
                    *slot(&mut trial, p) = next;
                    let tried: Vec<f64> = rows.par_iter().map(|&i| miss(&samples[i], &trial)).collect();
                    let s = score(&tried, next);
                    if s >= least - 1e-9 {
                        break;
                    }
                    (least, best, value, moved) = (s, trial, next, true);
                    for (&i, x) in rows.iter().zip(tried) {
                        misses[i] = x;
                    }
                }
            }
            if !moved {
                steps.insert(p, step * 0.4);
            }
        }
        if !open {
            break;
        }
    }
    basis(&mut best, &parameters, &misses);
    best
}

/// Writes rows and residual of every entry.
fn basis(calibration: &mut Calibration, parameters: &BTreeMap<Parameter, Vec<usize>>, misses: &[f64]) {
    let mut of: BTreeMap<&Owner, BTreeSet<usize>> = BTreeMap::new();
    for (p, rows) in parameters {
        of.entry(&p.owner).or_default().extend(rows);
    }
    for (owner, rows) in of {
        let residual = rows.iter().map(|&i| misses[i].abs()).sum::<f64>() / rows.len().max(1) as f64;
        let basis = Basis {
            rows: rows.len() as u32,
            residual: (residual * 1e4).round() / 1e4,
        };
        match owner {
            Owner::Device(name) => {
                if let Some(entry) = calibration.devices.get_mut(name) {
                    entry.basis = basis;
                }
            }
            Owner::Engine(name) => {
                if let Some(entry) = calibration.engines.get_mut(name) {
                    entry.basis = basis;
                }
            }
            Owner::Network(name) => {
                if let Some(entry) = calibration.networks.get_mut(name) {
                    entry.basis = basis;
                }
            }
        }
    }
}

/// How rows are held out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldOut {
    /// All rows of a model.
    Model,
    /// All rows of a run.
    Run,
    /// All rows with equal tensor-parallel degree and stages.
    Family,
}

impl HoldOut {
    fn key(self, case: &Case) -> String {
        match self {
            Self::Model => case.text("model").to_owned(),
            Self::Run => case.run(),
            Self::Family => format!("tp{} pp{}", case.text("tp"), case.text("pp")),
        }
    }
}

/// Errors of the step times of a group, each row predicted by a fit that has seen no row of its model, run or family. The
/// fit starts from nothing and may use the other rows of the group and the calibration rows of groups that share a device,
/// engine or network with it.
pub fn held_out(cases: &[Case], group: &str, by: HoldOut, rounds: usize) -> Vec<(String, f64)> {
    let mut opened: Vec<Case> = cases.to_vec();
    for case in &mut opened {
        if case.group == group && case.used_for == Use::Test {
            case.used_for = Use::Calibration;
        }
    }
    let all = samples(&opened, |_| true);
    let owners: BTreeMap<Owner, BTreeSet<usize>> =
        parameters(&all)
            .into_iter()
            .fold(BTreeMap::new(), |mut map, (p, rows)| {
                map.entry(p.owner).or_insert_with(BTreeSet::new).extend(rows);
                map
            });
    let touched: BTreeSet<usize> = owners
        .values()
        .filter(|rows| rows.iter().any(|&i| all[i].case.group == group))
        .flatten()
        .copied()
        .collect();
    let related: Vec<Sample> = all
        .into_iter()
        .enumerate()
        .filter(|(i, _)| touched.contains(i))
        .map(|(_, s)| s)
        .collect();
    let keys: BTreeSet<String> = related
        .iter()
        .filter(|s| s.case.group == group)
        .map(|s| by.key(&s.case))
        .collect();
    let mut errors = Vec::new();
    for key in keys {
        let (out, kept): (Vec<&Sample>, Vec<&Sample>) = related
            .iter()
            .partition(|s| s.case.group == group && by.key(&s.case) == key);
        let kept: Vec<Sample> = kept
            .into_iter()
            .map(|s| Sample {
                case: s.case.clone(),
                row: s.row.clone(),
                weight: s.weight,
            })
            .collect();
        let fitted = fit(&kept, &Calibration::default(), rounds);
        errors.extend(
            out.iter()
                .map(|s| (s.case.id.clone(), miss(s, &fitted).exp() - 1.0)),
        );
    }
    errors
}
