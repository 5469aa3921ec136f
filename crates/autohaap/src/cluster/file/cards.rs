//! Network cards and the link between unlike devices of a node.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::File;
use crate::cluster::assemble::{Cards, cards};
use crate::cluster::link_file::{latency_hint, read_link, share_hint};
use crate::cluster::plausible::rate_hint;
use crate::cluster::reader::Section;
use crate::cluster::{Link, Network, Provenance, Sourced, parse_rate, parse_seconds, parse_share};
use crate::error::{cluster as codes, nearest};
use crate::units::ByteRate;

impl<'a> File<'a> {
    /// Network cards: `nic = "8x400Gb"`, `nic = "ib:8x400Gb"`, `nic = { count, rate, ... }`, or `nics` and `nic_rate`; what is
    /// left out comes from `base`.
    pub(super) fn cards(&mut self, section: &Section<'a>, base: Option<&Cards>) -> Option<Cards> {
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
                if front.is_empty() {
                    count = Some(1);
                } else {
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
                    Some(self.source),
                );
                if network.is_none()
                    && let Some(base) = base
                {
                    own.link.latency = base.link.latency.clone();
                    own.link.efficiency = base.link.efficiency.clone();
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
                    Some("100 Gb/s is assumed"),
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
            if let Some(latency) =
                self.reader
                    .quantity(&part, &["latency"], parse_seconds, "`\"5 us\"`", latency_hint)
            {
                own.link.latency = Sourced::with_source(latency, Provenance::User, self.source);
            }
            if let Some(share) =
                self.reader
                    .quantity(&part, &["efficiency"], parse_share, "`0.8`", share_hint)
            {
                own.link.efficiency = Sourced::with_source(share, Provenance::User, self.source);
            }
        }
        Some(own)
    }

    pub(super) fn fabric(&mut self, section: &Section<'a>) -> Option<Network> {
        let word = self.reader.string(section, &["fabric"])?;
        let network = Network::parse(word);
        if network.is_none() {
            let span = section.get(&["fabric"]).map_or(0..0, Spanned::span);
            self.unknown_network(word, &span, &section.at("fabric"));
        }
        network
    }

    pub(super) fn unknown_network(&mut self, word: &str, span: &Range<usize>, path: &str) {
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

    pub(super) fn cross(&mut self, section: &Section<'a>) -> Option<Link> {
        let value = section.get(&["cross"])?;
        let path = section.at("cross");
        let mut link = crate::cluster::defaults::cross_link(
            ByteRate(crate::cluster::defaults::HOST_LINK_GBPS * 1e9),
            true,
        );
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
}
