//! The cluster file: `cluster.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use crate::cluster::assemble::{Description, LIMIT};
use crate::cluster::reader::{Reader, Section};
use crate::cluster::{Cluster, DeviceType, Provenance, Sourced, device_file, find_device, parse_bytes};
use crate::error::{Problems, cluster as codes, nearest};
use crate::units::Bytes;

const ROOT_KEYS: &[&str] = &[
    "schema",
    "name",
    "network",
    "nodes",
    "node",
    "devices",
    "device",
    "tiers",
    "tier",
    "domains",
    "domain",
    "bridges",
    "bridge",
    "reserved_memory",
    "exclude",
    "max_memory",
];

mod cards;
mod memory;
mod node;
mod topology;

/// The most devices, tiers, domains or bridges of a file.
const MOST_TABLES: usize = 1000;

/// State while one file is read.
struct File<'a> {
    reader: Reader<'a>,
    source: &'a str,
    out: Description,
    /// Devices defined in the file, by the name written there (lower case).
    defined: BTreeMap<String, DeviceType>,
    /// Names as written in nodes, with their canonical names.
    resolved: BTreeMap<String, String>,
    /// Where each tier, domain and bridge stands, by path.
    places: BTreeMap<String, Range<usize>>,
    /// Where the nodes from this index on stand.
    node_places: BTreeMap<usize, Range<usize>>,
}

/// The part of a path that has a place: `tiers[2]` of `tiers[2].parent`.
fn head(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Reads a cluster file; all problems are reported together, with their lines.
pub(super) fn read(text: &str, source: &str) -> Result<Cluster, Problems> {
    let mut reader = Reader::new(text, source);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            reader.problem(
                &codes::CLUSTER_SYNTAX,
                error.span().as_ref(),
                "",
                error.message(),
                "mend the line; `autohaap init` prints a template that parses",
            );
        }
        return Err(reader.finish());
    }
    let root = Section {
        table: document.get_ref(),
        path: String::new(),
        span: 0..0,
    };
    let mut file = File {
        reader,
        source,
        out: Description::default(),
        defined: BTreeMap::new(),
        resolved: BTreeMap::new(),
        places: BTreeMap::new(),
        node_places: BTreeMap::new(),
    };
    let cluster = file.root(&root);
    let sound = cluster.as_ref().filter(|_| file.reader.problems.is_empty());
    for problem in sound.map(Cluster::validate).unwrap_or_default().0 {
        let span = file.place(&problem.path);
        file.reader.problem(
            problem.code,
            span.as_ref(),
            &problem.path,
            problem.message,
            problem.hint,
        );
    }
    let problems = file.reader.finish();
    match cluster {
        Some(cluster) => problems.or(cluster),
        None => Err(problems),
    }
}

impl<'a> File<'a> {
    #[allow(
        clippy::result_large_err,
        reason = "a problem is made once, at the end of an input"
    )]
    fn root(&mut self, root: &Section<'a>) -> Option<Cluster> {
        self.reader.only(root, ROOT_KEYS);
        if let Some(schema) = self.reader.string(root, &["schema"])
            && schema != "autohaap/cluster@1"
        {
            let span = root.get(&["schema"]).map(Spanned::span);
            self.reader.problem(
                &codes::BAD_VALUE,
                span.as_ref(),
                "schema",
                format!("`{schema}` is not readable by this version"),
                "this version reads `autohaap/cluster@1`",
            );
        }
        self.out.name = self
            .reader
            .string(root, &["name"])
            .unwrap_or("cluster")
            .to_owned();
        if let Some(bytes) = self.reader.quantity(
            root,
            &["reserved_memory"],
            parse_bytes,
            "`\"2 GiB\"`",
            reserve_hint,
        ) {
            self.out.reserved_memory = Some(Sourced::with_source(bytes, Provenance::User, self.source));
        }
        self.devices(root);
        let network = root
            .get(&["network"])
            .and_then(|v| self.reader.table(v, "network".into()))
            .and_then(|section| {
                self.reader.only(
                    &section,
                    &["fabric", "nic", "nics", "nic_rate", "latency", "efficiency"],
                );
                self.cards(&section, None)
            });
        let mut spans = Vec::new();
        for section in self.reader.tables(root, &["nodes", "node"]) {
            if let Some(spec) = self.node(&section, network.as_ref()) {
                self.out.nodes.push(spec);
                spans.push(section.span.clone());
            }
        }
        let within = self.bounds(&spans);
        self.tiers(root);
        self.domains(root);
        self.bridges(root);
        self.memory_caps(root);
        if !within {
            return None;
        }
        if self.out.nodes.is_empty() {
            if self.reader.problems.is_empty() {
                self.reader.problem(
                    &codes::EMPTY_CLUSTER,
                    None,
                    "nodes",
                    "the file describes no node",
                    "add `[[nodes]]` with `name = \"n\"` and `devices = [{ type = \"A100-80G\", count = 8 }]`",
                );
            }
            return None;
        }
        let mut cluster = std::mem::take(&mut self.out).assemble();
        let index: BTreeMap<String, usize> = cluster
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| (n.name.clone(), i))
            .collect();
        for (address, span) in self.reader.strings(root, &["exclude"]) {
            let known = address.rsplit_once(':').and_then(|(name, at)| {
                let node = *index.get(name)?;
                let at: u32 = at.parse().ok()?;
                (at < cluster.nodes[node].devices()).then_some((node, at))
            });
            match known.map_or_else(|| cluster.parse_device(address), Ok) {
                Ok((node, index)) => cluster.nodes[node].excluded.push(index),
                Err(p) => self.reader.problem(
                    &codes::UNKNOWN_REFERENCE,
                    Some(&span),
                    "exclude",
                    p.message,
                    p.hint,
                ),
            }
        }
        for node in &mut cluster.nodes {
            node.excluded.sort_unstable();
            node.excluded.dedup();
        }
        Some(cluster)
    }

    /// Where a path of the expanded cluster stands in the file.
    fn place(&self, path: &str) -> Option<Range<usize>> {
        let head = head(path);
        if let Some(index) = head.strip_prefix("nodes[").and_then(|t| t.strip_suffix(']')) {
            let index: usize = index.parse().ok()?;
            return self
                .node_places
                .range(..=index)
                .next_back()
                .map(|(_, span)| span.clone());
        }
        self.places.get(head).cloned()
    }

    fn too_many(&mut self, span: &Range<usize>, path: &str, count: usize) {
        let message = format!("{count} tables under `{path}`");
        let hint = format!("at most {MOST_TABLES}");
        self.reader
            .problem(&codes::BAD_COUNT, Some(span), path, message, hint);
    }

    /// An array of tables that may not be long.
    fn few(&mut self, root: &Section<'a>, names: &[&str]) -> Vec<Section<'a>> {
        let found = self.reader.tables(root, names);
        if found.len() > MOST_TABLES {
            self.too_many(&found[MOST_TABLES].span, names[0], found.len());
            return Vec::new();
        }
        for (i, section) in found.iter().enumerate() {
            self.places
                .insert(format!("{}[{i}]", names[0]), section.span.clone());
        }
        if let Some(first) = found.first() {
            self.places.insert(names[0].to_owned(), first.span.clone());
        }
        found
    }

    /// Checks sizes before anything is expanded.
    fn bounds(&mut self, spans: &[Range<usize>]) -> bool {
        let (mut nodes, mut devices) = (0_u64, 0_u64);
        for (spec, span) in self.out.nodes.iter().zip(spans) {
            let own: u64 = spec.groups.iter().map(|g| u64::from(g.count)).sum();
            nodes += u64::from(spec.count);
            devices = devices.saturating_add(own.saturating_mul(u64::from(spec.count)));
            if nodes > LIMIT || devices > LIMIT {
                let message = format!(
                    "node `{}` makes the cluster larger than {LIMIT} devices",
                    spec.name
                );
                self.reader.problem(
                    &codes::BAD_COUNT,
                    Some(span),
                    "nodes",
                    message,
                    "describe a smaller cluster",
                );
                return false;
            }
        }
        let mut first = 0;
        for (spec, span) in self.out.nodes.iter().zip(spans) {
            self.node_places.insert(first, span.clone());
            first += spec.count as usize;
        }
        let mut seen = BTreeSet::new();
        for (spec, span) in self.out.nodes.iter().zip(spans) {
            for name in Description::names(spec) {
                if seen.contains(&name) {
                    let message = format!("two nodes are named `{name}`");
                    self.reader.problem(
                        &codes::DUPLICATE_NAME,
                        Some(span),
                        "nodes",
                        message,
                        "rename one of them",
                    );
                    break;
                }
                seen.insert(name);
            }
        }
        true
    }

    fn devices(&mut self, root: &Section<'a>) {
        let Some(value) = root.get(&["devices", "device"]) else {
            return;
        };
        let Some(table) = self.reader.table(value, "devices".into()) else {
            return;
        };
        if table.table.len() > MOST_TABLES {
            self.too_many(&table.span, "devices", table.table.len());
            return;
        }
        for (key, value) in table.table {
            let name = key.get_ref().as_ref();
            let Some(section) = self.reader.table(value, format!("devices.{name}")) else {
                continue;
            };
            let device =
                device_file::read(&mut self.reader, &section, name, self.source, &mut self.out.notes);
            if let Some(device) = device {
                if self.defined.values().any(|d| d.name == device.name) {
                    let message = format!("device `{}` is defined twice", device.name);
                    self.reader.problem(
                        &codes::DUPLICATE_NAME,
                        Some(&key.span()),
                        &section.path,
                        message,
                        "merge the two tables",
                    );
                }
                self.defined.insert(name.to_lowercase(), device);
            }
        }
    }

    /// Canonical name of a device as written in a node; problems are reported at `span`.
    fn device(&mut self, name: &str, span: &Range<usize>, path: &str) -> Option<String> {
        if let Some(known) = self.resolved.get(name) {
            return Some(known.clone());
        }
        let device = match self.defined.get(&name.trim().to_lowercase()) {
            Some(device) => device.clone(),
            None => match find_device(name) {
                Ok(found) => {
                    if let Some(note) = found.assumed
                        && !self.out.notes.contains(&note)
                    {
                        self.out.notes.push(note);
                    }
                    let own = self.defined.values().find(|d| d.name == found.device_type.name);
                    own.cloned().unwrap_or(found.device_type)
                }
                Err(mut problem) => {
                    if let Some(near) = nearest(name, self.defined.keys().map(String::as_str))
                        && strsim::damerau_levenshtein(near, &name.to_lowercase()) <= 3
                    {
                        problem.hint = format!("the file defines `{near}`; {}", problem.hint);
                    }
                    self.reader
                        .problem(problem.code, Some(span), path, problem.message, problem.hint);
                    return None;
                }
            },
        };
        let missing = device.missing_figures();
        if !missing.is_empty() {
            let message = format!("`{}` has no {}", device.name, missing.join(", "));
            let hint = format!("add {} under `[devices.\"{}\"]`", missing.join(", "), device.name);
            self.reader
                .problem(&codes::MISSING_FIGURES, Some(span), path, message, hint);
            return None;
        }
        let canonical = device.name.clone();
        self.out.device_types.entry(canonical.clone()).or_insert(device);
        self.resolved.insert(name.to_owned(), canonical.clone());
        Some(canonical)
    }
}

/// A reserve may be zero; else it is at least a megabyte.
fn reserve_hint(value: Bytes) -> Option<String> {
    if value.0 == 0.0 || (1e6..=1e12).contains(&value.0) {
        return None;
    }
    Some(if value.0 < 0.0 {
        "a reserve is not negative".into()
    } else if value.0 <= 1024.0 {
        format!("the likely unit is GiB: write `\"{} GiB\"`", value.0)
    } else {
        format!("the likely unit is MiB: write `\"{} MiB\"`", value.0)
    })
}
