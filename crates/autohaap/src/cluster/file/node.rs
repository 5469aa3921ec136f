//! `[[nodes]]`: names, counts and device groups.

use toml::Spanned;
use toml::de::DeValue;

use super::File;
use crate::cluster::assemble::{Cards, LIMIT, NodeSpec};
use crate::cluster::link_file::read_table;
use crate::cluster::reader::{Section, Value};
use crate::cluster::{DeviceGroup, Provenance, Sourced, parse_share};
use crate::error::cluster as codes;

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

impl<'a> File<'a> {
    pub(super) fn node(&mut self, section: &Section<'a>, network: Option<&Cards>) -> Option<NodeSpec> {
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
    pub(super) fn check_name(&mut self, name: &str, section: &Section<'a>, key: &str, pattern: bool) {
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

    pub(super) fn groups(&mut self, section: &Section<'a>) -> Option<Vec<DeviceGroup>> {
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
}
