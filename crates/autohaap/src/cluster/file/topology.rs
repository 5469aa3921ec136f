//! Tiers, domains and bridges.

use super::File;
use crate::cluster::link_file::latency_hint;
use crate::cluster::plausible::rate_hint;
use crate::cluster::reader::Section;
use crate::cluster::{Bridge, Domain, Provenance, Sourced, Tier, parse_rate, parse_seconds};
use crate::error::{cluster as codes, nearest};
use crate::units::{ByteRate, Seconds};

impl<'a> File<'a> {
    pub(super) fn tiers(&mut self, root: &Section<'a>) {
        for section in self.few(root, &["tiers", "tier"]) {
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
            let latency =
                self.reader
                    .quantity(&section, &["latency"], parse_seconds, "`\"2 us\"`", latency_hint);
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

    pub(super) fn domains(&mut self, root: &Section<'a>) {
        for section in self.few(root, &["domains", "domain"]) {
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
                if let Some(name) = self.known_type(word) {
                    device_types.push(name);
                } else {
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
            if let Some(name) = name {
                self.out.domains.push(Domain {
                    name: name.to_owned(),
                    device_types,
                });
            }
        }
    }

    pub(super) fn bridges(&mut self, root: &Section<'a>) {
        for section in self.few(root, &["bridges", "bridge"]) {
            self.reader.only(&section, &["between", "bandwidth", "latency"]);
            let between = self.reader.strings(&section, &["between"]);
            let bandwidth =
                self.reader
                    .quantity(&section, &["bandwidth"], parse_rate, "`\"20 GB/s\"`", rate_hint);
            if section.get(&["bandwidth"]).is_none() {
                self.reader
                    .missing(&section, "bandwidth", "`bandwidth = \"20 GB/s\"`");
            }
            let latency =
                self.reader
                    .quantity(&section, &["latency"], parse_seconds, "`\"30 us\"`", latency_hint);
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
