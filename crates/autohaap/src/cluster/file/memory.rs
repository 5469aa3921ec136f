//! Memory caps.

use std::collections::BTreeMap;

use super::File;
use crate::cluster::plausible::memory_hint;
use crate::cluster::reader::Section;
use crate::cluster::{DeviceGroup, Provenance, Sourced, find_device, parse_bytes};
use crate::error::{cluster as codes, nearest};
use crate::units::Bytes;

impl<'a> File<'a> {
    /// Caps of one node: one size for all types, or a table by type or device index.
    pub(super) fn node_caps(
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

    pub(super) fn known_type(&self, word: &str) -> Option<String> {
        if let Some(device) = self.defined.get(&word.to_lowercase()) {
            return Some(device.name.clone());
        }
        find_device(word).ok().map(|m| m.device_type.name)
    }

    /// `max_memory` of the whole cluster, by type.
    pub(super) fn memory_caps(&mut self, root: &Section<'a>) {
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
