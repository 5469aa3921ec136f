//! Numbers and names as people read them.

use std::collections::BTreeMap;

/// A share as per cent.
pub(super) fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p.abs() < 9.95 {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// Parameters with a unit: `8.03 B`.
pub(super) fn count(number: f64) -> String {
    match number {
        n if n >= 1e12 => format!("{:.2} T", n / 1e12),
        n if n >= 1e9 => format!("{:.2} B", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// A whole number with separators.
pub(super) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// Devices as nodes and index ranges: `n0:0-3,5 n1:0-7`; long lists are shortened.
pub(super) fn devices<'d>(devices: impl Iterator<Item = &'d String>) -> String {
    let mut by_node: Vec<(&str, Vec<u32>)> = Vec::new();
    for device in devices {
        let (node, index) = device.rsplit_once(':').unwrap_or((device, "0"));
        let index = index.parse().unwrap_or(0);
        match by_node.iter_mut().find(|n| n.0 == node) {
            Some(n) => n.1.push(index),
            None => by_node.push((node, vec![index])),
        }
    }
    // Whole ranges of nodes with the same devices are written once.
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (node, mut indices) in by_node {
        indices.sort_unstable();
        let text = ranges(&indices);
        match groups.iter_mut().find(|g| g.0 == text) {
            Some(g) => g.1.push(node),
            None => groups.push((text, vec![node])),
        }
    }
    let words: Vec<String> = groups
        .iter()
        .map(|(text, nodes)| match nodes.as_slice() {
            [node] => format!("{node}:{text}"),
            [first, .., last] if nodes.len() > 2 => format!("{first}..{last}:{text}"),
            nodes => format!("{}:{text}", nodes.join(",")),
        })
        .collect();
    words.join(" ")
}

fn ranges(sorted: &[u32]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut i = 0;
    while i < sorted.len() {
        let start = sorted[i];
        while i + 1 < sorted.len() && sorted[i + 1] == sorted[i] + 1 {
            i += 1;
        }
        words.push(if sorted[i] == start {
            start.to_string()
        } else {
            format!("{start}-{}", sorted[i])
        });
        i += 1;
    }
    words.join(",")
}

/// `16x A100-SXM-80GB + 8x H800`.
pub(super) fn counted(counts: &BTreeMap<String, usize>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, n)| format!("{n}x {name}")).collect();
    words.join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_become_ranges() {
        let list: Vec<String> = ["n0:0", "n0:1", "n0:3", "n1:0", "n1:1", "n1:3"]
            .map(String::from)
            .to_vec();
        assert_eq!(devices(list.iter()), "n0,n1:0-1,3");
        assert_eq!(whole(8_030_261_248), "8,030,261,248");
    }
}
