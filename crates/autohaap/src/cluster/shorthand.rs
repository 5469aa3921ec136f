//! The shorthand: `2x8 A100-80G + 4x8 V100-32G @ ib:100Gb`.
//!
//! ```text
//! cluster = group { "+" group } [ "@" network ]
//! group   = NODES "x" DEVICES TYPE | NODES "x" "(" DEVICES TYPE { "+" DEVICES TYPE } ")"
//! network = FABRIC ":" [ CARDS "x" ] RATE
//! ```
//!
//! The rate is per network card and direction. Nodes are named n0, n1, ... in order.

use std::collections::BTreeMap;

use crate::cluster::assemble::{Cards, Description, LIMIT, NodeSpec, cards};
use crate::cluster::{Cluster, DeviceGroup, Network, Provenance, Sourced, find_device, parse_cards};
use crate::error::{Code, Problem, Problems, cluster as codes, nearest};

/// Whether a text is meant as a shorthand: one line that starts with `NODESx`.
pub fn looks_like_shorthand(text: &str) -> bool {
    let text = text.trim();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len()
        && !text.contains('\n')
        && !text.contains('=')
        && rest.trim_start().starts_with(['x', 'X', '×', '*'])
}

/// A piece of the text with its place.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Piece<'a> {
    fn slice(self, from: usize, to: usize) -> Self {
        Piece {
            text: &self.text[from..to],
            start: self.start + from,
        }
    }
    fn trim(self) -> Self {
        let lead = self.text.len() - self.text.trim_start().len();
        Piece {
            text: self.text.trim(),
            start: self.start + lead,
        }
    }
    /// Splits at `separator` outside parentheses.
    fn split(self, separator: char) -> Vec<Piece<'a>> {
        let (mut depth, mut from, mut pieces) = (0_i32, 0, Vec::new());
        for (i, c) in self.text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                c if c == separator && depth <= 0 => {
                    pieces.push(self.slice(from, i).trim());
                    from = i + c.len_utf8();
                }
                _ => {}
            }
        }
        pieces.push(self.slice(from, self.text.len()).trim());
        pieces
    }
}

/// Reads a shorthand and reports its problems with their columns.
pub(super) struct Shorthand<'a> {
    text: &'a str,
    source: &'a str,
    problems: Problems,
}

impl<'a> Shorthand<'a> {
    pub(super) fn new(text: &'a str, source: &'a str) -> Self {
        Self {
            text,
            source,
            problems: Problems::new(),
        }
    }

    fn problem(
        &mut self,
        code: &'static Code,
        at: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let at = at.min(self.text.len());
        let column = self.text.get(..at).map_or(1, |t| t.chars().count() + 1);
        let mut problem = Problem::new(code, self.source, message).hint(hint).at(1, column);
        problem.source_line = Some(self.text.to_owned());
        self.problems.push(problem);
    }

    pub(super) fn read(mut self) -> Result<Cluster, Problems> {
        let whole = Piece {
            text: self.text,
            start: 0,
        };
        let parts = whole.split('@');
        let mut description = Description {
            name: self.text.trim().to_owned(),
            ..Description::default()
        };
        let network = match parts.as_slice() {
            [_, network] => self.network(*network),
            [_, _, third, ..] => {
                self.problem(
                    &codes::SHORTHAND,
                    third.start,
                    "a second `@`",
                    "write the network once, at the end: `... @ ib:100Gb`",
                );
                None
            }
            _ => None,
        };
        let mut total = 0_u64;
        let mut number = 0_u64;
        for piece in parts[0].split('+') {
            let Some((nodes, groups)) = self.group(piece, &mut description) else {
                continue;
            };
            let devices: u64 = groups.iter().map(|g| u64::from(g.count)).sum();
            total = total.saturating_add(nodes.saturating_mul(devices));
            if total > LIMIT || nodes > LIMIT {
                let message = format!("`{}` makes the cluster larger than {LIMIT} devices", piece.text);
                self.problem(
                    &codes::BAD_COUNT,
                    piece.start,
                    message,
                    "describe a smaller cluster",
                );
                break;
            }
            description.nodes.push(NodeSpec {
                name: "n{}".to_owned(),
                count: nodes as u32,
                first: number as u32,
                groups,
                cards: network.clone(),
                speed_factor: Sourced::new(1.0, Provenance::Assumed),
                tier: String::new(),
                cross: None,
                memory_cap: BTreeMap::new(),
            });
            number += nodes;
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        Ok(description.assemble())
    }

    fn network(&mut self, piece: Piece<'_>) -> Option<Cards> {
        let example = "write FABRIC:RATE, for example `ib:100Gb`, `ib:8x400Gb`, `roce:4x200Gb` or `eth:25Gb`";
        if piece.text.contains('+') {
            self.problem(
                &codes::SHORTHAND,
                piece.start,
                "a group after the network",
                "put all groups before the `@`",
            );
            return None;
        }
        let Some((word, rate)) = piece.text.split_once(':') else {
            self.problem(
                &codes::SHORTHAND,
                piece.start,
                format!("`{}` is no network", piece.text),
                example,
            );
            return None;
        };
        let Some(network) = Network::parse(word) else {
            let near = nearest(word.trim(), Network::WORDS.iter().copied()).unwrap_or("ib");
            self.problem(
                &codes::SHORTHAND,
                piece.start,
                format!("unknown network `{}`", word.trim()),
                format!("the nearest is `{near}`; {example}"),
            );
            return None;
        };
        let at = piece.start + word.len() + 1;
        let Some((count, rate)) = parse_cards(rate) else {
            self.problem(
                &codes::SHORTHAND,
                at,
                format!("`{}` is no rate", rate.trim()),
                example,
            );
            return None;
        };
        if count == 0 || count > 1024 {
            self.problem(
                &codes::BAD_COUNT,
                at,
                format!("{count} network cards a node"),
                "a node has 1 to 1024 network cards",
            );
            return None;
        }
        if let Some(hint) = super::plausible::rate_hint(rate) {
            self.problem(
                &codes::IMPLAUSIBLE,
                at,
                format!("a network card of {:.3e} B/s", rate.0),
                hint,
            );
            return None;
        }
        Some(cards(network, count, rate, Provenance::User, None))
    }

    /// One group: nodes and device groups.
    fn group(&mut self, piece: Piece<'_>, description: &mut Description) -> Option<(u64, Vec<DeviceGroup>)> {
        let example = "write NODESxDEVICES TYPE, for example `2x8 A100-80G`, or `1x(2 RTX4090 + 2 RTX3080)`";
        if piece.text.is_empty() {
            self.problem(&codes::SHORTHAND, piece.start, "an empty group", example);
            return None;
        }
        let (nodes, rest) = self.number(piece, example)?;
        let rest = rest.trim();
        let Some(mark) = rest
            .text
            .chars()
            .next()
            .filter(|c| matches!(c, 'x' | 'X' | '×' | '*'))
        else {
            self.problem(
                &codes::SHORTHAND,
                rest.start,
                format!("`{}` lacks the `x` between nodes and devices", piece.text),
                example,
            );
            return None;
        };
        let rest = rest.slice(mark.len_utf8(), rest.text.len()).trim();
        let members = if let Some(inner) = rest.text.strip_prefix('(') {
            let Some(length) = inner.strip_suffix(')').map(str::len) else {
                self.problem(
                    &codes::SHORTHAND,
                    rest.start,
                    "the parenthesis is not closed at the end of the group",
                    example,
                );
                return None;
            };
            rest.slice(1, 1 + length).split('+')
        } else {
            vec![rest]
        };
        let mut groups: Vec<DeviceGroup> = Vec::new();
        let mut sound = true;
        for member in members {
            match self.member(member, description) {
                Some(group) => groups.push(group),
                None => sound = false,
            }
        }
        if nodes == 0 {
            self.problem(
                &codes::BAD_COUNT,
                piece.start,
                "0 nodes",
                "write the number of nodes before the `x`",
            );
            return None;
        }
        sound.then_some((nodes, groups))
    }

    /// `DEVICES TYPE`.
    fn member(&mut self, piece: Piece<'_>, description: &mut Description) -> Option<DeviceGroup> {
        let example = "write the number of devices and their type, for example `8 A100-80G`";
        let (count, rest) = self.number(piece, example)?;
        let rest = rest.trim();
        if rest.text.is_empty() {
            self.problem(
                &codes::SHORTHAND,
                rest.start,
                format!("`{}` lacks the device type", piece.text),
                example,
            );
            return None;
        }
        if count == 0 || count > LIMIT {
            self.problem(
                &codes::BAD_COUNT,
                piece.start,
                format!("{count} devices in a node"),
                "write at least one device",
            );
            return None;
        }
        match find_device(rest.text) {
            Ok(found) => {
                let missing = found.device_type.missing_figures();
                if !missing.is_empty() {
                    self.problem(
                        &codes::MISSING_FIGURES,
                        rest.start,
                        format!(
                            "`{}` has no published {}",
                            found.device_type.name,
                            missing.join(", ")
                        ),
                        format!(
                            "give them in a cluster file under `[devices.\"{}\"]`",
                            found.device_type.name
                        ),
                    );
                    return None;
                }
                if let Some(note) = found.assumed
                    && !description.notes.contains(&note)
                {
                    description.notes.push(note);
                }
                let name = found.device_type.name.clone();
                description
                    .device_types
                    .entry(name.clone())
                    .or_insert(found.device_type);
                Some(DeviceGroup {
                    device_type: name,
                    count: count as u32,
                })
            }
            Err(problem) => {
                self.problem(problem.code, rest.start, problem.message, problem.hint);
                None
            }
        }
    }

    /// A whole number in front; too many digits count as too large.
    fn number<'p>(&mut self, piece: Piece<'p>, example: &str) -> Option<(u64, Piece<'p>)> {
        let digits = piece.text.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            self.problem(
                &codes::SHORTHAND,
                piece.start,
                format!("`{}` does not start with a number", piece.text),
                example,
            );
            return None;
        }
        let number = piece.text[..digits].parse().unwrap_or(u64::MAX);
        Some((number, piece.slice(digits, piece.text.len())))
    }
}
