//! The cluster file: `cluster.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cluster::assemble::{Cards, Description, LIMIT, NodeSpec, cards};
use crate::cluster::device_file::{self, read_link, read_table};
use crate::cluster::plausible::{memory_hint, rate_hint};
use crate::cluster::reader::{Reader, Section, Value};
use crate::cluster::{
    Bridge, Cluster, DeviceGroup, DeviceType, Domain, Link, Network, Provenance, Sourced, Tier, find_device,
    parse_bytes, parse_rate, parse_seconds, parse_share,
};
use crate::error::{Problems, cluster as codes, nearest};
use crate::units::{ByteRate, Bytes, Seconds};

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
const NODE_KEYS: &[&str] = &[
    "name",
    "count",
    "devices",
    "groups",
    "nic",
    "nics",
    "nic_rate",
    "latency",
    "efficiency",
    "fabric",
    "speed_factor",
    "tier",
    "cross",
    "max_memory",
    "memory_cap",
    "link_table",
];

/// State while one file is read.
struct File<'a> {
    reader: Reader<'a>,
    source: &'a str,
    out: Description,
    /// Devices defined in the file, by the name written there (lower case).
    defined: BTreeMap<String, DeviceType>,
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
    };
    let cluster = file.root(&root);
    let File { reader, .. } = file;
    let mut problems = reader.finish();
    match cluster {
        Some(cluster) if problems.is_empty() => {
            problems.extend(cluster.validate());
            for problem in &mut problems.0 {
                problem.path = format!("{source}: {}", problem.path);
            }
            problems.or(cluster)
        }
        _ => Err(problems),
    }
}

impl<'a> File<'a> {
    fn root(&mut self, root: &Section<'a>) -> Option<Cluster> {
        self.reader.only(root, ROOT_KEYS);
        if let Some(schema) = self.reader.string(root, &["schema"]) {
            if schema != "autohaap/cluster@1" {
                let span = root.get(&["schema"]).map(Spanned::span);
                self.reader.problem(
                    &codes::BAD_VALUE,
                    span.as_ref(),
                    "schema",
                    format!("`{schema}` is not readable by this version"),
                    "this version reads `autohaap/cluster@1`",
                );
            }
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
        for (address, span) in self.reader.strings(root, &["exclude"]) {
            match cluster.parse_device(address) {
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
        let device = match self.defined.get(&name.trim().to_lowercase()) {
            Some(device) => device.clone(),
            None => match find_device(name) {
                Ok(found) => {
                    if let Some(note) = found.assumed {
                        if !self.out.notes.contains(&note) {
                            self.out.notes.push(note);
                        }
                    }
                    let own = self.defined.values().find(|d| d.name == found.device_type.name);
                    own.cloned().unwrap_or(found.device_type)
                }
                Err(mut problem) => {
                    if let Some(near) = nearest(name, self.defined.keys().map(String::as_str)) {
                        if strsim::damerau_levenshtein(near, &name.to_lowercase()) <= 3 {
                            problem.hint = format!("the file defines `{near}`; {}", problem.hint);
                        }
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
        let name = device.name.clone();
        self.out.device_types.entry(name.clone()).or_insert(device);
        Some(name)
    }

    fn node(&mut self, section: &Section<'a>, network: Option<&Cards>) -> Option<NodeSpec> {
        self.reader.only(section, NODE_KEYS);
        let name = self.reader.string(section, &["name"]);
        if section.get(&["name"]).is_none() {
            self.reader.missing(section, "name", "`name = \"gpu\"`");
        }
        if let Some(name) = name {
            self.check_name(name, section, "name", true);
        }
        let count = match section.get(&["count"]) {
            Some(_) => self.reader.count(section, &["count"], LIMIT),
            None => Some(1),
        };
        let groups = self.groups(section);
        let own = self.cards(section, network);
        let points = read_table(&mut self.reader, section);
        let cards = match (own.or_else(|| network.cloned()), points.is_empty()) {
            (Some(mut cards), false) => {
                cards.link.table = points;
                Some(cards)
            }
            (None, false) => {
                self.reader
                    .missing(section, "nic", "`nic = \"8x400Gb\"` beside the measured points");
                None
            }
            (cards, true) => cards,
        };
        let speed_factor = self
            .reader
            .quantity(section, &["speed_factor"], parse_share, "`0.5`", |v| {
                (v <= 0.0 || v > 10.0).then(|| {
                    "a speed factor is above 0 and at most 10; 1 = nominal, 0.5 = half as fast".to_owned()
                })
            });
        let tier = self.reader.string(section, &["tier"]).unwrap_or("").to_owned();
        let cross = self.cross(section);
        let memory_cap = self.node_caps(section, groups.as_deref().unwrap_or(&[]));
        Some(NodeSpec {
            name: name?.to_owned(),
            count: count?,
            first: 0,
            groups: groups?,
            cards,
            speed_factor: match speed_factor {
                Some(v) => Sourced::with_source(v, Provenance::User, self.source),
                None => Sourced::new(1.0, Provenance::Assumed),
            },
            tier,
            cross,
            memory_cap,
        })
    }

    /// Names go into host files, scripts and file names.
    fn check_name(&mut self, name: &str, section: &Section<'a>, key: &str, pattern: bool) {
        let bare = if pattern {
            name.replacen("{}", "0", 1)
        } else {
            name.to_owned()
        };
        let sound = !bare.is_empty()
            && bare.len() <= 253
            && !bare.starts_with(['-', '.'])
            && bare
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if !sound {
            let shown: String = name.chars().take(60).collect();
            let span = section.get(&[key]).map(Spanned::span);
            self.reader.problem(
                &codes::BAD_NAME,
                span.as_ref(),
                &section.at(key),
                format!("`{}` is no usable name", shown.escape_debug()),
                "use letters, digits, `.`, `_` and `-`",
            );
        }
    }

    fn groups(&mut self, section: &Section<'a>) -> Option<Vec<DeviceGroup>> {
        let Some(value) = section.get(&["devices", "groups"]) else {
            self.reader.missing(
                section,
                "devices",
                "`devices = [{ type = \"A100-80G\", count = 8 }]`",
            );
            return None;
        };
        let path = section.at("devices");
        let mut groups = Vec::new();
        let mut sound = true;
        let items: Vec<&'a Value<'a>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        for (i, item) in items.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            if let DeValue::String(text) = item.get_ref() {
                for part in text.split('+') {
                    let part = part.trim();
                    let digits = part.bytes().take_while(u8::is_ascii_digit).count();
                    let count = if digits == 0 {
                        0
                    } else {
                        part[..digits].parse::<u64>().unwrap_or(u64::MAX)
                    };
                    let rest = part[digits..].trim_start();
                    let name = rest
                        .strip_prefix(['x', '×'])
                        .filter(|r| r.starts_with(' '))
                        .unwrap_or(rest)
                        .trim();
                    if !(1..=LIMIT).contains(&count) || name.is_empty() {
                        let message = format!("`{part}` is no group of devices");
                        self.reader.problem(
                            &codes::BAD_VALUE,
                            Some(&item.span()),
                            &path,
                            message,
                            "write for example `\"8 A100-80G\"`",
                        );
                        sound = false;
                    } else if let Some(device_type) = self.device(name, &item.span(), &path) {
                        groups.push(DeviceGroup {
                            device_type,
                            count: count as u32,
                        });
                    } else {
                        sound = false;
                    }
                }
                continue;
            }
            let Some(group) = self.reader.table(item, path) else {
                sound = false;
                continue;
            };
            self.reader.only(&group, &["type", "device", "count"]);
            let count = match group.get(&["count"]) {
                Some(_) => self.reader.count(&group, &["count"], LIMIT),
                None => Some(1),
            };
            let span = group.get(&["type", "device"]).map_or(item.span(), Spanned::span);
            let name = self.reader.string(&group, &["type", "device"]);
            if group.get(&["type", "device"]).is_none() {
                self.reader.missing(&group, "type", "`type = \"A100-80G\"`");
            }
            match (name.and_then(|n| self.device(n, &span, &group.at("type"))), count) {
                (Some(device_type), Some(count)) => groups.push(DeviceGroup { device_type, count }),
                _ => sound = false,
            }
        }
        if groups.is_empty() && sound {
            self.reader.problem(
                &codes::EMPTY_CLUSTER,
                Some(&value.span()),
                &path,
                "the node has no devices",
                "list at least one device",
            );
            sound = false;
        }
        sound.then_some(groups)
    }

    /// Network cards: `nic = "8x400Gb"`, `nic = "ib:8x400Gb"`, `nic = { count, rate, ... }`, or `nics` and `nic_rate`; what is
    /// left out comes from `base`.
    fn cards(&mut self, section: &Section<'a>, base: Option<&Cards>) -> Option<Cards> {
        let mut network = self.fabric(section);
        let (mut count, mut rate) = (None, None);
        let mut detail: Option<Section<'a>> = None;
        match section.get(&["nic"]) {
            Some(value) if value.get_ref().is_table() => {
                if let Some(table) = self.reader.table(value, section.at("nic")) {
                    self.reader.only(
                        &table,
                        &["count", "rate", "bandwidth", "latency", "efficiency", "fabric"],
                    );
                    network = self.fabric(&table).or(network);
                    count = self.reader.count(&table, &["count"], 1024);
                    rate = self.reader.quantity(
                        &table,
                        &["rate", "bandwidth"],
                        parse_rate,
                        "`\"400 Gb/s\"`",
                        rate_hint,
                    );
                    detail = Some(table);
                }
            }
            Some(value) => {
                let path = section.at("nic");
                let text = value.get_ref().as_str().unwrap_or("");
                let (word, cards_text) = match text.split_once(':') {
                    Some((word, rest)) => (Some(word), rest),
                    None => (None, text),
                };
                if let Some(word) = word {
                    network = Network::parse(word);
                    if network.is_none() {
                        self.unknown_network(word, &value.span(), &path);
                    }
                }
                let cards_text = cards_text.trim();
                let (front, tail) = cards_text.split_once(['x', 'X', '*']).unwrap_or(("", cards_text));
                if !front.is_empty() {
                    count = front.trim().parse().ok().filter(|c| (1..=1024).contains(c));
                    if count.is_none() {
                        let message = format!("`{}` network cards", front.trim());
                        self.reader.problem(
                            &codes::BAD_COUNT,
                            Some(&value.span()),
                            &path,
                            message,
                            "a node has 1 to 1024 network cards",
                        );
                    }
                } else {
                    count = Some(1);
                }
                let rate_value = Spanned::new(
                    value.span(),
                    match value.get_ref() {
                        DeValue::String(_) => DeValue::String(tail.into()),
                        other => other.clone(),
                    },
                );
                rate = self.reader.quantity_of(
                    &rate_value,
                    &path,
                    parse_rate,
                    "`\"100Gb\"` or `\"8x400Gb\"`",
                    rate_hint,
                );
            }
            None => {}
        }
        let nics = self.reader.count(section, &["nics"], 1024);
        count = nics.or(count);
        let typed = self
            .reader
            .quantity(section, &["nic_rate"], parse_rate, "`\"400 Gb/s\"`", rate_hint);
        rate = typed.or(rate);
        let mut own = match (rate, base) {
            (Some(rate), _) => {
                let kind = network.unwrap_or(Network::InfiniBand);
                let mut own = cards(
                    kind,
                    count.unwrap_or(1),
                    rate,
                    Provenance::User,
                    Some(self.source.to_owned()),
                );
                if network.is_none() {
                    if let Some(base) = base {
                        own.link.latency = base.link.latency.clone();
                        own.link.efficiency = base.link.efficiency.clone();
                    }
                }
                own
            }
            (None, Some(base)) => {
                let mut own = base.clone();
                if let Some(count) = count {
                    own.count = Sourced::with_source(count, Provenance::User, self.source);
                }
                if let Some(kind) = network {
                    own.link.latency = kind.latency();
                    own.link.efficiency = kind.efficiency();
                }
                own
            }
            // `[network] fabric = ...` alone: a rate is needed in each node, or the device's typical network stays.
            (None, None) => {
                let kind = network?;
                let mut own = cards(
                    kind,
                    count.unwrap_or(1),
                    ByteRate(12.5e9),
                    Provenance::Assumed,
                    Some("100 Gb/s is assumed".into()),
                );
                own.count.from = if count.is_some() {
                    Provenance::User
                } else {
                    Provenance::Assumed
                };
                own
            }
        };
        for part in [Some(section.clone()), detail].into_iter().flatten() {
            if let Some(latency) = self.reader.quantity(
                &part,
                &["latency"],
                parse_seconds,
                "`\"5 us\"`",
                device_file::latency_hint,
            ) {
                own.link.latency = Sourced::with_source(latency, Provenance::User, self.source);
            }
            if let Some(share) = self.reader.quantity(
                &part,
                &["efficiency"],
                parse_share,
                "`0.8`",
                device_file::share_hint,
            ) {
                own.link.efficiency = Sourced::with_source(share, Provenance::User, self.source);
            }
        }
        Some(own)
    }

    fn fabric(&mut self, section: &Section<'a>) -> Option<Network> {
        let word = self.reader.string(section, &["fabric"])?;
        let network = Network::parse(word);
        if network.is_none() {
            let span = section.get(&["fabric"]).map_or(0..0, Spanned::span);
            self.unknown_network(word, &span, &section.at("fabric"));
        }
        network
    }

    fn unknown_network(&mut self, word: &str, span: &Range<usize>, path: &str) {
        let shown: String = word.chars().take(40).collect();
        let near = nearest(&shown, Network::WORDS.iter().copied()).unwrap_or("ib");
        let hint = format!("one of {}; the nearest is `{near}`", Network::WORDS.join(", "));
        self.reader.problem(
            &codes::BAD_VALUE,
            Some(span),
            path,
            format!("unknown network `{shown}`"),
            hint,
        );
    }

    fn cross(&mut self, section: &Section<'a>) -> Option<Link> {
        let value = section.get(&["cross"])?;
        let path = section.at("cross");
        let mut link = super::defaults::cross_link(ByteRate(super::defaults::HOST_LINK_GBPS * 1e9), true);
        if value.get_ref().is_table() {
            let table = self.reader.table(value, path)?;
            self.reader.only(
                &table,
                &["fabric", "bandwidth", "pair_bandwidth", "latency", "efficiency"],
            );
            read_link(&mut self.reader, &table, &mut link, self.source);
        } else {
            let rate = self
                .reader
                .quantity_of(value, &path, parse_rate, "`\"25 GB/s\"`", rate_hint)?;
            link.bandwidth = Sourced::with_source(rate, Provenance::User, self.source);
            link.pair_bandwidth = link.bandwidth.clone();
        }
        Some(link)
    }

    /// Caps of one node: one size for all types, or a table by type or device index.
    fn node_caps(
        &mut self,
        section: &Section<'a>,
        groups: &[DeviceGroup],
    ) -> BTreeMap<String, Sourced<Bytes>> {
        let mut caps = BTreeMap::new();
        let Some(value) = section.get(&["max_memory", "memory_cap"]) else {
            return caps;
        };
        let path = section.at("max_memory");
        if !value.get_ref().is_table() {
            if let Some(bytes) =
                self.reader
                    .quantity_of(value, &path, parse_bytes, "`\"70 GiB\"`", memory_hint)
            {
                for group in groups {
                    caps.insert(
                        group.device_type.clone(),
                        Sourced::with_source(bytes, Provenance::User, self.source),
                    );
                }
            }
            return caps;
        }
        let Some(table) = self.reader.table(value, path) else {
            return caps;
        };
        for (key, value) in table.table {
            let word = key.get_ref().as_ref();
            let Some(bytes) =
                self.reader
                    .quantity_of(value, &table.at(word), parse_bytes, "`\"70 GiB\"`", memory_hint)
            else {
                continue;
            };
            let device_type = match word.parse::<u32>() {
                Ok(index) => type_at(groups, index).map(str::to_owned),
                Err(_) => self
                    .known_type(word)
                    .filter(|t| groups.iter().any(|g| g.device_type == *t)),
            };
            let Some(device_type) = device_type else {
                let own: Vec<&str> = groups.iter().map(|g| g.device_type.as_str()).collect();
                let hint = format!("the node has {}", own.join(", "));
                self.reader.problem(
                    &codes::UNKNOWN_REFERENCE,
                    Some(&key.span()),
                    &table.path,
                    format!("the node has no device `{word}`"),
                    hint,
                );
                continue;
            };
            // Devices of one type share the tightest cap.
            let cap = Sourced::with_source(bytes, Provenance::User, self.source);
            let held = caps.entry(device_type).or_insert_with(|| cap.clone());
            if bytes.0 < held.value.0 {
                *held = cap;
            }
        }
        caps
    }

    fn known_type(&self, word: &str) -> Option<String> {
        if let Some(device) = self.defined.get(&word.to_lowercase()) {
            return Some(device.name.clone());
        }
        find_device(word).ok().map(|m| m.device_type.name)
    }

    /// `max_memory` of the whole cluster, by type.
    fn memory_caps(&mut self, root: &Section<'a>) {
        let Some(value) = root.get(&["max_memory"]) else {
            return;
        };
        let Some(table) = self.reader.table(value, "max_memory".into()) else {
            return;
        };
        for (key, value) in table.table {
            let word = key.get_ref().as_ref();
            let Some(bytes) =
                self.reader
                    .quantity_of(value, &table.at(word), parse_bytes, "`\"70 GiB\"`", memory_hint)
            else {
                continue;
            };
            let known = self
                .known_type(word)
                .filter(|t| self.out.device_types.contains_key(t));
            let Some(device_type) = known else {
                let hint = match nearest(word, self.out.device_types.keys().map(String::as_str)) {
                    Some(near) => format!("the nearest type in use is `{near}`"),
                    None => "name a device type of the cluster".to_owned(),
                };
                self.reader.problem(
                    &codes::UNKNOWN_REFERENCE,
                    Some(&key.span()),
                    "max_memory",
                    format!("no node has a device `{word}`"),
                    hint,
                );
                continue;
            };
            for node in &mut self.out.nodes {
                if node.groups.iter().any(|g| g.device_type == device_type) {
                    let cap = Sourced::with_source(bytes, Provenance::User, self.source);
                    node.memory_cap.entry(device_type.clone()).or_insert(cap);
                }
            }
        }
    }

    fn tiers(&mut self, root: &Section<'a>) {
        for section in self.reader.tables(root, &["tiers", "tier"]) {
            self.reader
                .only(&section, &["name", "parent", "uplink", "latency"]);
            let name = self.reader.string(&section, &["name"]);
            if section.get(&["name"]).is_none() {
                self.reader.missing(&section, "name", "`name = \"rack0\"`");
            }
            let uplink = self.reader.quantity(
                &section,
                &["uplink"],
                parse_rate,
                "`\"800 Gb/s\"`",
                |r: ByteRate| {
                    // Many links together: a thousand times the limit of one.
                    if r.0 > 1e13 && r.0 <= 1e16 {
                        None
                    } else {
                        rate_hint(r)
                    }
                },
            );
            if section.get(&["uplink"]).is_none() {
                self.reader.missing(&section, "uplink", "`uplink = \"800 Gb/s\"`");
            }
            let latency = self.reader.quantity(
                &section,
                &["latency"],
                parse_seconds,
                "`\"2 us\"`",
                device_file::latency_hint,
            );
            let parent = self.reader.string(&section, &["parent"]).unwrap_or("").to_owned();
            if let (Some(name), Some(uplink)) = (name, uplink) {
                self.check_name(name, &section, "name", false);
                self.out.tiers.push(Tier {
                    name: name.to_owned(),
                    parent,
                    uplink: Sourced::with_source(uplink, Provenance::User, self.source),
                    latency: match latency {
                        Some(l) => Sourced::with_source(l, Provenance::User, self.source),
                        None => Sourced::with_source(Seconds(1e-6), Provenance::Assumed, "one more switch"),
                    },
                });
            }
        }
    }

    fn domains(&mut self, root: &Section<'a>) {
        for section in self.reader.tables(root, &["domains", "domain"]) {
            self.reader.only(&section, &["name", "device_types"]);
            let name = self.reader.string(&section, &["name"]);
            if section.get(&["name"]).is_none() {
                self.reader.missing(&section, "name", "`name = \"nccl\"`");
            }
            if section.get(&["device_types"]).is_none() {
                self.reader
                    .missing(&section, "device_types", "`device_types = [\"A100-80G\"]`");
            }
            let mut device_types = Vec::new();
            for (word, span) in self.reader.strings(&section, &["device_types"]) {
                match self.known_type(word) {
                    Some(name) => device_types.push(name),
                    None => {
                        let near = nearest(word, self.out.device_types.keys().map(String::as_str))
                            .unwrap_or("?")
                            .to_owned();
                        let hint = format!("the nearest type in use is `{near}`");
                        self.reader.problem(
                            &codes::UNKNOWN_DEVICE,
                            Some(&span),
                            &section.at("device_types"),
                            format!("unknown device `{word}`"),
                            hint,
                        );
                    }
                }
            }
            if let Some(name) = name {
                self.out.domains.push(Domain {
                    name: name.to_owned(),
                    device_types,
                });
            }
        }
    }

    fn bridges(&mut self, root: &Section<'a>) {
        for section in self.reader.tables(root, &["bridges", "bridge"]) {
            self.reader.only(&section, &["between", "bandwidth", "latency"]);
            let between = self.reader.strings(&section, &["between"]);
            let bandwidth =
                self.reader
                    .quantity(&section, &["bandwidth"], parse_rate, "`\"20 GB/s\"`", rate_hint);
            if section.get(&["bandwidth"]).is_none() {
                self.reader
                    .missing(&section, "bandwidth", "`bandwidth = \"20 GB/s\"`");
            }
            let latency = self.reader.quantity(
                &section,
                &["latency"],
                parse_seconds,
                "`\"30 us\"`",
                device_file::latency_hint,
            );
            let [(a, _), (b, _)] = between.as_slice() else {
                self.reader.problem(
                    &codes::BAD_BRIDGE,
                    Some(&section.span),
                    &section.path,
                    "a bridge joins two domains",
                    "write `between = [\"nccl\", \"rccl\"]`",
                );
                continue;
            };
            let Some(bandwidth) = bandwidth else { continue };
            self.out.bridges.push(Bridge {
                between: [(*a).to_owned(), (*b).to_owned()],
                bandwidth: Sourced::with_source(bandwidth, Provenance::User, self.source),
                latency: match latency {
                    Some(l) => Sourced::with_source(l, Provenance::User, self.source),
                    None => Sourced::with_source(
                        Seconds(30e-6),
                        Provenance::Assumed,
                        "two copies through host memory",
                    ),
                },
            });
        }
    }
}

fn type_at(groups: &[DeviceGroup], index: u32) -> Option<&str> {
    let mut first = 0_u32;
    for group in groups {
        first = first.saturating_add(group.count);
        if index < first {
            return Some(&group.device_type);
        }
    }
    None
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
