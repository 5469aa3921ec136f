//! Models and devices as read.

use super::{table, words};
use crate::cluster::{DeviceFigure, DeviceRow};
use crate::model::ModelInput;

/// A model: parameters and runs of equal atoms.
pub fn model_screen(input: &ModelInput) -> String {
    let s = input.summary();
    let mut lines = vec![
        format!(
            "{} ({}): {} parameters, {} active per token",
            s.name,
            s.family,
            words::whole(s.parameters_total),
            words::whole(s.parameters_active)
        ),
        format!(
            "  hidden {}, vocabulary {}, {} embedding{}{}",
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
    ];
    let mut rows = table(&[
        "atoms",
        "kind",
        "parameters",
        "active",
        "forward FLOP/token",
        "activations/token",
    ]);
    for run in s.atoms.iter().take(24) {
        let range = if run.count == 1 {
            run.first.to_string()
        } else {
            format!("{}-{}", run.first, run.first + run.count - 1)
        };
        rows.add_row(vec![
            range,
            format!("{} x {:?}", run.count, run.kind).to_lowercase(),
            words::count(run.parameters as f64),
            words::count(run.parameters_active as f64),
            words::count(run.flops_forward_per_token.0),
            format!("{:.1} KiB", run.activation_bytes_per_token.0 / 1024.0),
        ]);
    }
    lines.push(rows.to_string());
    if s.atoms.len() > 24 {
        lines.push(format!(
            "  ... and {} more runs (--format json lists all)",
            s.atoms.len() - 24
        ));
    }
    if !s.ignored_keys.is_empty() {
        lines.push(format!("keys not used: {}", s.ignored_keys.join(", ")));
    }
    if !s.defaults.is_empty() {
        let words: Vec<String> = s
            .defaults
            .iter()
            .map(|d| format!("{} = {}", d.key, d.value))
            .collect();
        lines.push(format!("filled by default: {}", words.join(", ")));
    }
    lines.extend(s.notes.iter().map(|n| format!("note: {n}")));
    lines.join("\n")
}

/// The catalogue.
pub fn devices_screen(devices: &[DeviceRow]) -> String {
    let mut rows = table(&[
        "device",
        "vendor",
        "GiB",
        "memory GB/s",
        "sheet TF",
        "measured TF",
        "link GB/s",
        "conf.",
    ]);
    let giga = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}"));
    for d in devices {
        rows.add_row(vec![
            d.name.clone(),
            d.vendor.clone(),
            d.memory_bytes
                .map_or_else(|| "-".to_owned(), |m| format!("{:.1}", m.gib())),
            giga(d.memory_bandwidth_bytes_per_s.map(|b| b.0 / 1e9)),
            giga(d.datasheet_flops.map(|f| f.0 / 1e12)),
            giga(d.measured_flops.map(|f| f.0 / 1e12)),
            format!("{:.0}", d.link_bytes_per_s.0 / 1e9),
            d.confidence.clone(),
        ]);
    }
    format!(
        "{rows}\n{} devices; `autohaap devices NAME` shows the source of each figure",
        devices.len()
    )
}

/// One device with the source of each figure.
pub fn device_screen(name: &str, figures: &[DeviceFigure], assumed: Option<&str>) -> String {
    let mut rows = table(&["figure", "value", "from", "source"]);
    for f in figures {
        rows.add_row(vec![
            f.key.clone(),
            f.text.clone(),
            format!("{:?}", f.from).to_lowercase(),
            f.source.clone(),
        ]);
    }
    let note = assumed.map_or_else(String::new, |a| format!("\nassumed: {a}"));
    format!("{name}{note}\n{rows}")
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
