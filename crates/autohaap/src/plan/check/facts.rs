//! The plan looked up once: devices, stages and what each atom asks of its degrees.

use rustc_hash::FxHashMap;

use crate::model::{Atom, AtomKind};
use crate::plan::{MAX_DEVICES, Pipeline, Plan, Replica, Stage};

/// A half-open range of atoms, cut to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) struct Span {
    /// First atom.
    pub(in crate::plan) start: usize,
    /// One past the last atom.
    pub(in crate::plan) end: usize,
}

impl Span {
    fn cut(atoms: [usize; 2], len: usize) -> Self {
        let start = atoms[0].min(len);
        Self {
            start,
            end: atoms[1].min(len).max(start),
        }
    }
}

/// Numbers that degrees must fit, of one run of equal atoms.
pub(in crate::plan) struct Needs {
    pub(in crate::plan) tp_divides: Vec<(&'static str, u64)>,
    pub(in crate::plan) kv_heads: u64,
    pub(in crate::plan) experts: u64,
    pub(in crate::plan) expert_width: u64,
}

/// One stage entry of one pipeline.
pub(in crate::plan) struct StageFacts<'a> {
    pub(in crate::plan) pipeline: usize,
    pub(in crate::plan) stage: usize,
    pub(in crate::plan) entry: &'a Stage,
    pub(in crate::plan) parent: &'a Pipeline,
    /// Its atoms, cut to the model.
    pub(in crate::plan) span: Span,
    /// Position in [`Facts::stages`] of the entry that owns the devices (itself, unless virtual).
    pub(in crate::plan) owner: usize,
    /// Devices of each replica; `None` where the address names nothing.
    pub(in crate::plan) devices: Vec<Vec<Option<usize>>>,
}

impl StageFacts<'_> {
    pub(in crate::plan) fn path(&self) -> String {
        format!("pipelines[{}].stages[{}]", self.pipeline, self.stage)
    }
    pub(in crate::plan) fn replica_path(&self, replica: usize) -> String {
        format!("{}.replicas[{replica}]", self.path())
    }
    /// All devices that exist, replica-major.
    pub(in crate::plan) fn known_devices(&self) -> impl Iterator<Item = usize> + '_ {
        self.devices.iter().flatten().filter_map(|d| *d)
    }
    /// tp x cp summed over the replicas.
    pub(in crate::plan) fn device_count(&self) -> u64 {
        self.entry
            .replicas
            .iter()
            .map(|r| u64::from(r.tp) * u64::from(r.cp))
            .fold(0, u64::saturating_add)
    }
    /// Sequences of the step that its replicas compute.
    pub(in crate::plan) fn sequences(&self) -> u128 {
        let rows: u128 = self.entry.replicas.iter().map(|r| u128::from(r.rows)).sum();
        rows * u128::from(self.parent.micro_batches)
    }
}

/// Devices by number: node after node, index after index.
pub(in crate::plan) struct DeviceMap<'a> {
    nodes: FxHashMap<&'a str, usize>,
    /// First device of each node; one more entry than nodes.
    first: Vec<usize>,
    names: Vec<&'a str>,
    /// Key of the device's type.
    types: Vec<&'a str>,
    /// Node of the device.
    node: Vec<usize>,
    excluded: Vec<bool>,
    domains: FxHashMap<&'a str, usize>,
}

impl<'a> DeviceMap<'a> {
    fn new(plan: &'a Plan) -> Self {
        let cluster = &plan.cluster.cluster;
        let mut map = Self {
            nodes: FxHashMap::default(),
            first: vec![0],
            names: Vec::new(),
            types: Vec::new(),
            node: Vec::new(),
            excluded: Vec::new(),
            domains: FxHashMap::default(),
        };
        for (number, node) in cluster.nodes.iter().enumerate() {
            map.nodes.entry(&node.name).or_insert(number);
            map.names.push(&node.name);
            let start = map.types.len();
            for group in &node.groups {
                // Larger clusters are refused before any rule runs.
                let room = MAX_DEVICES as usize - map.types.len().min(MAX_DEVICES as usize);
                for _ in 0..room.min(group.count as usize) {
                    map.types.push(&group.device_type);
                    map.node.push(number);
                    map.excluded.push(false);
                }
            }
            for index in &node.excluded {
                if let Some(flag) = map.excluded.get_mut(start + *index as usize) {
                    *flag = true;
                }
            }
            map.first.push(map.types.len());
        }
        for (number, domain) in cluster.domains.iter().enumerate() {
            for name in &domain.device_types {
                map.domains.entry(name).or_insert(number);
            }
        }
        map
    }

    /// Devices in all, excluded ones too.
    pub(in crate::plan) fn len(&self) -> usize {
        self.types.len()
    }
    /// The device of an address in canonical form.
    pub(in crate::plan) fn find(&self, address: &str) -> Option<usize> {
        let (name, index) = address.rsplit_once(':')?;
        let node = *self.nodes.get(name)?;
        let canonical =
            index == "0" || (!index.starts_with('0') && index.bytes().all(|b| b.is_ascii_digit()));
        let index: usize = index.parse().ok().filter(|_| canonical)?;
        let device = self.first[node].checked_add(index)?;
        (device < self.first[node + 1]).then_some(device)
    }
    /// Number and device count of a node by name.
    pub(in crate::plan) fn node(&self, name: &str) -> Option<(usize, usize)> {
        let node = *self.nodes.get(name)?;
        Some((node, self.first[node + 1] - self.first[node]))
    }
    pub(in crate::plan) fn node_names(&self) -> &[&'a str] {
        &self.names
    }
    pub(in crate::plan) fn address(&self, device: usize) -> String {
        let node = self.node[device];
        format!("{}:{}", self.names[node], device - self.first[node])
    }
    pub(in crate::plan) fn type_of(&self, device: usize) -> &'a str {
        self.types[device]
    }
    pub(in crate::plan) fn node_of(&self, device: usize) -> usize {
        self.node[device]
    }
    pub(in crate::plan) fn excluded(&self, device: usize) -> bool {
        self.excluded[device]
    }
    /// Index into the cluster's domains; `None` is an error of its own.
    pub(in crate::plan) fn domain_of(&self, device: usize) -> Option<usize> {
        self.domains.get(self.types[device]).copied()
    }
}

/// Everything that rules look up.
pub(in crate::plan) struct Facts<'a> {
    pub(in crate::plan) plan: &'a Plan,
    pub(in crate::plan) map: DeviceMap<'a>,
    /// Stage entries of all pipelines in order.
    pub(in crate::plan) stages: Vec<StageFacts<'a>>,
    /// How often each device is used by a replica.
    pub(in crate::plan) uses: Vec<u32>,
    /// Needs of the runs of equal atoms.
    needs: Vec<Needs>,
    /// Run of each atom.
    run_of: Vec<usize>,
    /// Blocks before each atom.
    blocks_before: Vec<usize>,
}

impl<'a> Facts<'a> {
    pub(in crate::plan) fn new(plan: &'a Plan) -> Self {
        let map = DeviceMap::new(plan);
        let atoms = &plan.model.model.atoms;
        let mut stages = Vec::new();
        let mut uses = vec![0_u32; map.len()];
        for (p, pipeline) in plan.pipelines.iter().enumerate() {
            let base = stages.len();
            for (s, entry) in pipeline.stages.iter().enumerate() {
                let find = |r: &Replica| r.devices.iter().map(|d| map.find(d)).collect::<Vec<_>>();
                let devices: Vec<Vec<Option<usize>>> = entry.replicas.iter().map(find).collect();
                for device in devices.iter().flatten().flatten() {
                    uses[*device] = uses[*device].saturating_add(1);
                }
                let owner = match entry.on_stage {
                    Some(j) if j < s && entry.replicas.is_empty() => base + j,
                    _ => base + s,
                };
                stages.push(StageFacts {
                    pipeline: p,
                    stage: s,
                    entry,
                    parent: pipeline,
                    span: Span::cut(entry.atoms, atoms.len()),
                    owner,
                    devices,
                });
            }
        }
        let (needs, run_of) = needs(atoms);
        let mut blocks_before = vec![0];
        for atom in atoms {
            let is_block = !matches!(atom.kind, AtomKind::Embedding | AtomKind::Head);
            blocks_before.push(blocks_before[blocks_before.len() - 1] + usize::from(is_block));
        }
        Self {
            plan,
            map,
            stages,
            uses,
            needs,
            run_of,
            blocks_before,
        }
    }

    /// Stage entries of one pipeline.
    pub(in crate::plan) fn stages_of(&self, pipeline: usize) -> &[StageFacts<'a>] {
        let start = self.stages.partition_point(|s| s.pipeline < pipeline);
        let end = self.stages.partition_point(|s| s.pipeline <= pipeline);
        &self.stages[start..end]
    }
    /// The entry that owns the devices of a stage.
    pub(in crate::plan) fn owner(&self, stage: &StageFacts<'_>) -> &StageFacts<'a> {
        &self.stages[stage.owner]
    }
    /// Needs of the atoms of a range, each run once.
    pub(in crate::plan) fn needs(&self, span: Span) -> &[Needs] {
        if span.start >= span.end {
            return &[];
        }
        &self.needs[self.run_of[span.start]..=self.run_of[span.end - 1]]
    }
    /// Decoder and MTP blocks in a range.
    pub(in crate::plan) fn blocks(&self, span: Span) -> usize {
        self.blocks_before[span.end] - self.blocks_before[span.start]
    }
    pub(in crate::plan) fn all_atoms(&self) -> Span {
        Span {
            start: 0,
            end: self.plan.model.model.atoms.len(),
        }
    }
    /// Device types in use, sorted.
    pub(in crate::plan) fn types_in_use(&self) -> Vec<&'a str> {
        let mut types: Vec<&str> = Vec::new();
        for (device, uses) in self.uses.iter().enumerate() {
            let name = self.map.type_of(device);
            if *uses > 0 && types.last() != Some(&name) {
                types.push(name);
            }
        }
        types.sort_unstable();
        types.dedup();
        types
    }
    /// Name of a domain.
    pub(in crate::plan) fn domain_name(&self, domain: usize) -> &'a str {
        &self.plan.cluster.cluster.domains[domain].name
    }
}

fn needs(atoms: &[Atom]) -> (Vec<Needs>, Vec<usize>) {
    let mut needs: Vec<Needs> = Vec::new();
    let mut run_of = Vec::with_capacity(atoms.len());
    for (i, atom) in atoms.iter().enumerate() {
        if i == 0 || atoms[i - 1] != *atom {
            let parts = atom.parts();
            needs.push(Needs {
                tp_divides: parts.tp_divides,
                kv_heads: parts.kv_heads,
                experts: parts.experts,
                expert_width: parts.expert_width,
            });
        }
        run_of.push(needs.len() - 1);
    }
    (needs, run_of)
}
