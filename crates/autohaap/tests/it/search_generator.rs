//! Random tiny planning problems from named seeds, for the promises of the search.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use autohaap::cluster::{
    Cluster, DeviceGroup, DeviceType, Fabric, Node, Precision, Provenance, Sourced, parse_cluster,
};
use autohaap::model::{Atom, AtomKind, Block, Mixer, Mlp, Model, Moe, Shape};
use autohaap::plan::{AttentionKernel, EngineSemantics, Optimizer, PointToPointMode, Training};
use autohaap::search::{Budget, Method, Outcome, SearchOptions, StopReason, search};
use autohaap::units::{ByteRate, Bytes, FlopRate, Seconds};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Never stops, and its clock stands still.
pub(crate) struct Patient;

impl Budget for Patient {
    fn stop(&self) -> Option<StopReason> {
        None
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// Stops after so many questions: keeps brute force out of problems that are too large for it.
pub(crate) struct Counted {
    left: AtomicU64,
}

impl Counted {
    pub(crate) fn new(questions: u64) -> Self {
        Self {
            left: AtomicU64::new(questions),
        }
    }
    pub(crate) fn spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

impl Budget for Counted {
    fn stop(&self) -> Option<StopReason> {
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            Some(n.saturating_sub(1))
        });
        (before == Ok(0)).then_some(StopReason::TimeLimit)
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// A planning problem.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) seed: u64,
    pub(crate) model: Model,
    pub(crate) cluster: Cluster,
    pub(crate) training: Training,
    pub(crate) options: SearchOptions,
}

impl Instance {
    /// The answer of the search.
    pub(crate) fn solve(&self, method: Method, budget: &dyn Budget) -> Outcome {
        let options = SearchOptions {
            method,
            ..self.options.clone()
        };
        search(&self.model, &self.cluster, &self.training, &options, budget)
            .unwrap_or_else(|p| panic!("seed {}: {p}", self.seed))
    }

    /// One line for the message of a failed check.
    pub(crate) fn describe(&self) -> String {
        let nodes: Vec<String> = self
            .cluster
            .nodes
            .iter()
            .map(|n| {
                let memory = n.groups.first().map_or(0.0, |g| {
                    self.cluster.device_types[&g.device_type].memory.value.0 / 1e6
                });
                format!("{} ({memory:.0} MB, speed {})", n.shape(), n.speed_factor.value)
            })
            .collect();
        let kinds: Vec<AtomKind> = self.model.atoms.iter().map(|a| a.kind).collect();
        format!(
            "seed {}: {kinds:?} hidden {} tied {}, {}, batch {} seq {} zero {:?} sp {} {:?}",
            self.seed,
            self.model.hidden,
            self.model.tied,
            nodes.join(" | "),
            self.training.global_batch,
            self.training.seq_len,
            self.options.zero,
            self.training.sequence_parallel,
            self.training.engine_semantics.p2p,
        )
    }
}

struct Source(ChaCha8Rng);

impl Source {
    /// From `low` to `high`, both included.
    fn count(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.next_u64() % (high - low + 1)
    }
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
    fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.count(0, choices.len() as u64 - 1) as usize]
    }
    /// Log-uniform.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }
}

fn model(source: &mut Source, num_devices: u64) -> Model {
    let large = source.chance(0.5);
    let hidden = if large {
        source.pick(&[1024, 2048, 4096])
    } else {
        source.pick(&[64, 128, 256])
    };
    let vocab = hidden * source.pick(&[1, 4, 4, 40]);
    let tied = source.chance(0.3);
    // Fewer blocks where the number of plans grows with the devices.
    let num_blocks = source.count(1, if num_devices >= 4 { 3 } else { 4 });
    let heads = source.pick(&[2, 4]);
    let moe = source.chance(0.4);
    let experts = source.pick(&[2, 4]);
    let wide = source.chance(0.3);
    let block = |index: u64| {
        let routed = moe && (index == 0 || !wide);
        Block {
            hidden,
            mixer: Some(Mixer::Attention {
                heads,
                kv_heads: heads / 2,
                head_dim: hidden / heads,
                v_head_dim: hidden / heads,
                window: None,
                qkv_bias: 0,
                out_bias: 0,
                gated: false,
                shared_kv: false,
                other_parameters: 0,
            }),
            mlp: (!routed).then_some(Mlp {
                width: if wide && index % 2 == 1 {
                    8 * hidden
                } else {
                    3 * hidden
                },
                gated: true,
                bias: 0,
            }),
            moe: routed.then_some(Moe {
                experts,
                active: 1,
                width: 2 * hidden,
                gated: true,
                expert_bias: 0,
                shared_width: if wide { hidden } else { 0 },
                router_other: 0,
            }),
            norms: 2,
            norm_parameters: 2 * hidden,
        }
    };
    let mut atoms = vec![Atom {
        kind: AtomKind::Embedding,
        shape: Shape::Embedding {
            vocab,
            hidden,
            positions: 0,
            norm_parameters: 0,
        },
    }];
    for index in 0..num_blocks {
        let block = block(index);
        atoms.push(Atom {
            kind: if block.moe.is_some() {
                AtomKind::Moe
            } else {
                AtomKind::Dense
            },
            shape: Shape::Block(block),
        });
    }
    atoms.push(Atom {
        kind: AtomKind::Head,
        shape: Shape::Head {
            vocab,
            hidden,
            norm_parameters: hidden,
            bias: false,
            tied,
        },
    });
    Model {
        name: "random".into(),
        family: "random".into(),
        atoms,
        tied,
        hidden,
        vocab,
        max_seq_len: None,
        expert_load: source.pick(&[1.0, 1.2]),
    }
}

fn user<T>(value: T) -> Sourced<T> {
    Sourced::new(value, Provenance::User)
}

fn device(source: &mut Source, base: &DeviceType, name: &str, peak: f64, memory: f64) -> DeviceType {
    let mut device = base.clone();
    name.clone_into(&mut device.name);
    device.memory = user(Bytes(memory));
    device.memory_bandwidth = user(ByteRate(peak / source.between(60.0, 600.0)));
    device.datasheet_peak = BTreeMap::from([(Precision::Bf16, user(FlopRate(peak)))]);
    device.measured_peak = None;
    device.flash_attention = source.chance(0.6);
    device.intra.fabric = source.pick(&[Fabric::Switched, Fabric::Mesh, Fabric::Bus]);
    let rate = source.between(2e9, 4e11);
    device.intra.bandwidth = user(ByteRate(rate));
    device.intra.pair_bandwidth = user(ByteRate(rate));
    device.intra.latency = user(Seconds(source.between(1e-6, 2e-5)));
    device.intra.table.clear();
    device
}

/// A cluster of `num_devices` devices of one or two types in one to three nodes.
fn cluster(source: &mut Source, num_devices: u64, memory: f64) -> Cluster {
    let mut cluster = parse_cluster("1x1 A100-80G", "random").unwrap_or_else(|p| panic!("{p}"));
    let base = cluster.device_types.values().next().cloned();
    let base = base.unwrap_or_else(|| panic!("no device type"));
    let node = cluster.nodes[0].clone();
    let peak = source.between(5e12, 5e14);
    let own = memory * source.between(0.5, 2.0);
    let a = device(source, &base, "A", peak, own);
    let (slower, own) = (peak / source.between(1.0, 8.0), memory * source.between(0.5, 2.0));
    let b = device(source, &base, "B", slower, own);
    let num_types = source.count(1, 2);
    cluster.device_types = BTreeMap::from([("A".to_owned(), a)]);
    if num_types == 2 {
        cluster.device_types.insert("B".into(), b);
    }
    for domain in &mut cluster.domains {
        domain.device_types = cluster.device_types.keys().cloned().collect();
    }
    let nic = source.between(2e8, 5e10);
    let latency = source.between(2e-6, 5e-5);
    let cards = source.pick(&[1, 1, 2, 4]);
    let num_nodes = source.count(1, 3.min(num_devices));
    let mut counts = vec![num_devices / num_nodes; num_nodes as usize];
    counts[0] += num_devices % num_nodes;
    cluster.nodes = counts
        .iter()
        .enumerate()
        .map(|(i, &count)| {
            let count = count as u32;
            // One type a node, or both in one node.
            let groups = if num_types == 2 && num_nodes == 1 {
                vec![("A", count.div_ceil(2)), ("B", count / 2)]
            } else if num_types == 2 && i as u64 + 1 == num_nodes {
                vec![("B", count)]
            } else {
                vec![("A", count)]
            };
            let mut node = node.clone();
            node.name = format!("n{i}");
            node.groups = groups
                .into_iter()
                .filter(|g| g.1 > 0)
                .map(|(name, count)| DeviceGroup {
                    device_type: name.into(),
                    count,
                })
                .collect();
            node.speed_factor = user(1.0);
            node.nic_count = user(cards);
            node.nic.bandwidth = user(ByteRate(nic));
            node.nic.pair_bandwidth = user(ByteRate(nic));
            node.nic.latency = user(Seconds(latency));
            node
        })
        .collect();
    let used: Vec<String> = cluster.device_types.keys().cloned().collect();
    for name in used {
        let in_use = |n: &Node| n.groups.iter().any(|g| g.device_type == name);
        if !cluster.nodes.iter().any(in_use) {
            cluster.device_types.remove(&name);
            for domain in &mut cluster.domains {
                domain.device_types.retain(|t| *t != name);
            }
        }
    }
    cluster.reserved_memory = user(Bytes(0.0));
    cluster.name = "random".into();
    cluster
}

/// The instance of a seed.
pub(crate) fn instance(seed: u64) -> Instance {
    let mut source = Source(ChaCha8Rng::seed_from_u64(seed));
    let num_devices = source.pick(&[2, 3, 3, 4, 4, 4]);
    let model = model(&mut source, num_devices);
    let global_batch = source.count(1, 5);
    let seq_len = source.pick(&[64, 256, 1024]);
    // States of the whole model, and activations of one sequence, in shares of one device.
    let parameters = model.parameters_total() as f64 * if model.tied { 1.3 } else { 1.0 };
    let layers = model.atoms.len() as f64;
    let need = 18.0 * parameters
        + 40.0 * layers * seq_len as f64 * model.hidden as f64
        + model.vocab as f64 * seq_len as f64;
    let share = if source.chance(0.3) {
        source.between(1.5, 6.0)
    } else {
        source.between(0.25, 1.5)
    };
    let cluster = cluster(&mut source, num_devices, need * share);
    let zero = if source.chance(0.25) {
        vec![0, 1, 2, 3]
    } else {
        vec![source.pick(&[0, 1, 2, 3])]
    };
    let mut engine_semantics = EngineSemantics::default();
    engine_semantics.overlap.dp = source.chance(0.7);
    engine_semantics.overlap.tp = source.chance(0.2);
    if source.chance(0.15) {
        engine_semantics.p2p = PointToPointMode::Rendezvous;
    }
    let attention = cluster
        .device_types
        .values()
        .map(|d| {
            let kernel = if d.flash_attention {
                AttentionKernel::Flash
            } else {
                AttentionKernel::Unfused
            };
            (d.name.clone(), kernel)
        })
        .collect();
    let training = Training {
        seq_len,
        global_batch,
        precision: Precision::Bf16,
        optimizer: if source.chance(0.8) {
            Optimizer::Adam
        } else {
            Optimizer::Sgd
        },
        zero: zero[0],
        sequence_parallel: source.chance(0.7),
        attention,
        engine_semantics,
    };
    Instance {
        seed,
        model,
        cluster,
        training,
        options: SearchOptions {
            zero,
            max_micro_batch: 2,
            ..SearchOptions::default()
        },
    }
}
