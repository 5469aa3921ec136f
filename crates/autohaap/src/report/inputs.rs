//! Models and devices as read.

use super::{screen, table, table_lines, words};
use crate::cluster::{DeviceFigure, DeviceRow};
use crate::model::{AtomRun, ModelInput};

/// Kinds of atoms that are listed.
const RUNS: usize = 24;

/// A model: parameters and runs of equal atoms.
pub fn model_screen(input: &ModelInput) -> String {
    let s = input.summary();
    let mut lines = words::wrap(
        &format!(
            "{} ({}): {} parameters, {} active per token",
            words::elide(&s.name, 40),
            words::elide(&s.family, 20),
            words::whole(s.parameters_total),
            words::whole(s.parameters_active)
        ),
        "  ",
        2,
    );
    lines.extend(words::wrap(
        &format!(
            "  without embeddings {}; hidden {}, vocabulary {}, {} embedding{}{}",
            words::count(s.parameters_without_embeddings as f64),
            s.hidden,
            words::whole(s.vocab),
            if s.tied { "tied" } else { "untied" },
            s.max_seq_len
                .map_or_else(String::new, |n| format!(", made for {} tokens", words::whole(n))),
            if s.parameters_mtp > 0 {
                format!(", {} more in MTP blocks", words::count(s.parameters_mtp as f64))
            } else {
                String::new()
            }
        ),
        "  ",
        2,
    ));
    lines.push(String::new());
    let mut rows = table(
        &[
            "atoms",
            "kind",
            "parameters",
            "active",
            "forward FLOP/token",
            "activations/token",
        ],
        &[2, 3, 4, 5],
    );
    let kinds = kinds(&s.atoms);
    for (run, atoms) in kinds.iter().take(RUNS) {
        rows.add_row(vec![
            words::elide(&words::ranges(atoms), 24),
            format!("{} x {:?}", atoms.len(), run.kind).to_lowercase(),
            words::count(run.parameters as f64),
            words::count(run.parameters_active as f64),
            words::count(run.flops_forward_per_token.0),
            format!("{:.1} KiB", run.activation_bytes_per_token.0 / 1024.0),
        ]);
    }
    lines.extend(table_lines(&rows, ""));
    if kinds.len() > RUNS {
        lines.push(format!(
            "  ... and {} more kinds of atoms (--format json)",
            kinds.len() - RUNS
        ));
    }
    lines.push("  each figure is of one atom, at the full training length where it depends on it".into());
    lines.push(String::new());
    if !s.ignored_keys.is_empty() {
        lines.extend(words::list("keys not used", &s.ignored_keys, 4));
    }
    if !s.defaults.is_empty() {
        let words: Vec<String> = s
            .defaults
            .iter()
            .map(|d| format!("{} = {}", d.key, d.value))
            .collect();
        lines.extend(words::list("filled by default", &words, 4));
    }
    for note in s.notes.iter().take(8) {
        lines.extend(words::wrap(&format!("note: {note}"), "  ", 3));
    }
    if s.notes.len() > 8 {
        lines.push(format!(
            "  ... and {} more notes (--format json)",
            s.notes.len() - 8
        ));
    }
    screen(&lines)
}

/// Atoms of equal figures with their indices, in the order of the first: patterns are a line, not a line per layer.
fn kinds(runs: &[AtomRun]) -> Vec<(&AtomRun, Vec<u32>)> {
    let mut kinds: Vec<(&AtomRun, Vec<u32>)> = Vec::new();
    let mut index: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for run in runs {
        let key = format!(
            "{:?} {} {} {} {}",
            run.kind,
            run.parameters,
            run.parameters_active,
            run.flops_forward_per_token.0,
            run.activation_bytes_per_token.0
        );
        let slot = *index.entry(key).or_insert(kinds.len());
        if slot == kinds.len() {
            kinds.push((run, Vec::new()));
        }
        kinds[slot]
            .1
            .extend((run.first..run.first + run.count).map(|i| i as u32));
    }
    kinds
}

/// The catalogue: a line per device.
pub fn devices_screen(devices: &[DeviceRow]) -> String {
    let mut rows = table(
        &[
            "device", "vendor", "GiB", "memory", "sheet", "measured", "link", "bf16", "flash", "conf.",
        ],
        &[2, 3, 4, 5, 6],
    );
    let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}"));
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    for d in devices {
        rows.add_row(vec![
            words::elide(&d.name, 30),
            words::elide(&d.vendor, 12),
            d.memory_bytes
                .map_or_else(|| "-".to_owned(), |m| format!("{:.1}", m.gib())),
            number(d.memory_bandwidth_bytes_per_s.map(|b| b.0 / 1e9)),
            number(d.datasheet_flops.map(|f| f.0 / 1e12)),
            number(d.measured_flops.map(|f| f.0 / 1e12)),
            format!("{:.0}", d.link_bytes_per_s.0 / 1e9),
            yes(d.bf16),
            yes(d.flash_attention),
            d.confidence.clone(),
        ]);
    }
    let mut lines = table_lines(&rows, "");
    lines.push(String::new());
    lines.extend(words::wrap(
        &format!(
            "{}; memory and link in GB/s, sheet and measured in TFLOP/s of dense 16-bit products; \
             `autohaap devices NAME` shows the source of each figure",
            words::plural(devices.len(), "device")
        ),
        "  ",
        3,
    ));
    screen(&lines)
}

/// One device with the source of each figure.
pub fn device_screen(name: &str, figures: &[DeviceFigure], assumed: Option<&str>) -> String {
    let mut lines = vec![name.to_owned()];
    if let Some(assumed) = assumed {
        lines.extend(words::wrap(&format!("assumed: {assumed}"), "  ", 2));
    }
    let mut sources = Sources::default();
    lines.extend(sources.rows(figures));
    lines.extend(sources.lines());
    screen(&lines)
}

/// Documents and reasons behind figures, numbered in the order of their first use.
#[derive(Default)]
pub(super) struct Sources(Vec<String>);

impl Sources {
    /// One line per figure: value, provenance and the number of its source.
    pub(super) fn rows(&mut self, figures: &[DeviceFigure]) -> Vec<String> {
        let mut rows = table(&["figure", "value", "from", "source"], &[]);
        for f in figures {
            let source = if f.source.is_empty() {
                String::new()
            } else {
                let at = self.0.iter().position(|s| *s == f.source).unwrap_or_else(|| {
                    self.0.push(f.source.clone());
                    self.0.len() - 1
                });
                format!("[{}]", at + 1)
            };
            rows.add_row(vec![
                words::elide(&f.key, 34),
                words::elide(&f.text, 40),
                format!("{:?}", f.from).to_lowercase(),
                source,
            ]);
        }
        table_lines(&rows, "  ")
    }

    /// The list of sources.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(), "sources".to_owned()];
        for (i, source) in self.0.iter().enumerate() {
            lines.extend(words::wrap(&format!("  [{}] {source}", i + 1), "      ", 6));
        }
        lines
    }
}

/// Words in columns.
pub fn columns(words: &[&str], width: usize) -> String {
    let cell = words.iter().map(|w| w.len()).max().unwrap_or(1) + 2;
    let per_line = (width / cell).max(1);
    words
        .chunks(per_line)
        .map(|line| {
            line.iter()
                .map(|w| format!("{w:<cell$}"))
                .collect::<String>()
                .trim_end()
                .to_owned()
        })
        .collect::<Vec<_>>()
        .join("\n")
}
