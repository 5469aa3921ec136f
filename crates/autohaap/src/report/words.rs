//! Numbers, names and lines as people read them: nothing is wider than the screen, nothing is control code.

use std::collections::BTreeMap;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::WIDTH;

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

/// `1 stage`, `2 stages`.
pub(super) fn plural(number: usize, word: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {word}{s}")
}

/// Columns of a terminal that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The text without control characters: a name from a file must not move the cursor or break a line.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            // Marks of writing direction have no width and turn the rest of a line around.
            if c.is_control()
                || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// At most `columns` columns, the middle replaced by `...`: both ends of a name tell it from its neighbours.
pub(super) fn elide(text: &str, columns: usize) -> String {
    let text = clean(text);
    if width(&text) <= columns {
        return text;
    }
    let keep = columns.saturating_sub(3);
    let tail: String = {
        let mut taken: Vec<char> = within(text.chars().rev(), keep / 2);
        taken.reverse();
        taken.into_iter().collect()
    };
    let head: String = within(text.chars(), keep - width(&tail)).into_iter().collect();
    format!("{head}...{tail}")
}

/// At most `columns` columns, the end replaced by `...`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    let text = clean(text);
    if width(&text) <= columns {
        return text;
    }
    let head: String = within(text.chars(), columns.saturating_sub(3))
        .into_iter()
        .collect();
    format!("{}...", head.trim_end())
}

fn within(chars: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

/// Words in lines of the screen's width, at most `most` of them; later lines start with `indent`.
pub(super) fn wrap(text: &str, indent: &str, most: usize) -> Vec<String> {
    let text = glue(&clean(text));
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut lines: Vec<String> = Vec::new();
    let mut line = lead;
    let mut empty = true;
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let room = WIDTH.saturating_sub(if empty { width(&line) } else { width(&line) + 1 });
        if width(word) > room && !empty {
            if lines.len() + 1 == most {
                lines.push(format!("{}...", cut(&line, WIDTH - 3)));
                return unglue(lines);
            }
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += &elide(word, WIDTH.saturating_sub(width(&line)));
        empty = false;
    }
    lines.push(line);
    unglue(lines)
}

/// Binds units to their numbers: `18 %` does not break.
fn glue(text: &str) -> String {
    let mut glued = String::new();
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        glued += word;
        let number = word.ends_with(|c: char| c.is_ascii_digit());
        match words.peek() {
            Some(unit) => {
                let unit = unit.trim_end_matches([',', ';', ':', ')', '.']);
                let bound = number && matches!(unit, "%" | "s" | "ms" | "us" | "GiB" | "GB/s");
                glued.push(if bound { '\u{a0}' } else { ' ' });
            }
            None => break,
        }
    }
    glued
}

fn unglue(lines: Vec<String>) -> Vec<String> {
    lines
        .into_iter()
        .map(|line| line.replace('\u{a0}', " "))
        .collect()
}

/// `title: a, b, c` on at most `most` lines; what does not fit is counted.
pub(super) fn list(title: &str, items: &[String], most: usize) -> Vec<String> {
    let join = |shown: usize| {
        let rest = items.len() - shown;
        let mut text = format!("{title}: {}", items[..shown].join(", "));
        if rest > 0 {
            text += &format!(", ... and {rest} more (--format json)");
        }
        text
    };
    // Each item takes at least three columns, so more than this never fit.
    let mut shown = items.len().min(most * WIDTH / 3);
    while shown > 1 && wrap(&join(shown), "  ", usize::MAX).len() > most {
        shown -= 1;
    }
    wrap(&join(shown), "  ", most)
}

/// Devices as nodes and index ranges: `n0:0-3,5 n1:0-7`; long lists are shortened.
pub(super) fn devices<'d>(devices: impl Iterator<Item = &'d String>) -> String {
    let mut by_node: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices {
        let (node, index) = device.rsplit_once(':').unwrap_or((device, "0"));
        let index = index.parse().unwrap_or(0);
        let slot = *at.entry(node).or_insert(by_node.len());
        if slot == by_node.len() {
            by_node.push((node, Vec::new()));
        }
        by_node[slot].1.push(index);
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
        .map(|(text, nodes)| {
            let short = |node: &str| elide(node, 24);
            match nodes.as_slice() {
                [node] => format!("{}:{text}", short(node)),
                [first, .., last] if nodes.len() > 2 => format!("{}..{}:{text}", short(first), short(last)),
                nodes => format!(
                    "{}:{text}",
                    nodes.iter().map(|n| short(n)).collect::<Vec<_>>().join(",")
                ),
            }
        })
        .collect();
    words.join(" ")
}

/// Ascending numbers as ranges: `0-3,5`.
pub(super) fn ranges(sorted: &[u32]) -> String {
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

/// `16x A100-SXM-80GB + 8x H800` in at most `columns` columns: long names are shortened, not left out.
pub(super) fn counted(counts: &BTreeMap<String, usize>, columns: usize) -> String {
    let join = |each: usize| {
        let words: Vec<String> = counts
            .iter()
            .map(|(name, n)| format!("{n}x {}", elide(name, each)))
            .collect();
        words.join(" + ")
    };
    let longest = counts.keys().map(|n| width(n)).max().unwrap_or(0);
    (8..longest).rev().map(join).fold(join(longest), |kept, shorter| {
        if width(&kept) <= columns { kept } else { shorter }
    })
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

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(elide("a-very-long-name-0", 11), "a-ve...me-0");
        assert_eq!(elide("short", 11), "short");
        // Wide characters count twice, control characters are replaced.
        assert_eq!(width(&elide(&"模".repeat(80), 21)), 21);
        assert_eq!(elide("a\u{1b}[2J\nb", 20), "a?[2J?b");
    }

    #[test]
    fn lines_stay_within_the_screen() {
        let text = format!("  {} {}", "word ".repeat(60), "x".repeat(300));
        let lines = wrap(&text, "    ", usize::MAX);
        assert!(lines.len() > 3 && lines.iter().all(|l| width(l) <= WIDTH));
        assert!(lines[1].starts_with("    word"));
        let two = wrap(&text, "    ", 2);
        assert!(two.len() == 2 && two[1].ends_with("...") && width(&two[1]) <= WIDTH);
        let items: Vec<String> = (0..200).map(|i| format!("key_{i}")).collect();
        let lines = list("keys", &items, 2);
        assert!(
            lines.len() == 2 && lines[1].ends_with("more (--format json)"),
            "{lines:?}"
        );
    }

    #[test]
    fn counted_devices_shrink_to_their_column() {
        let counts = BTreeMap::from([("A100-SXM-80GB".to_owned(), 4), ("V100-SXM2-32GB".to_owned(), 12)]);
        assert_eq!(counted(&counts, 60), "4x A100-SXM-80GB + 12x V100-SXM2-32GB");
        assert!(width(&counted(&counts, 30)) <= 30);
    }
}
