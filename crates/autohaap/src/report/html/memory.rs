//! Memory bars: each device against its own limit, equal devices once.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Page;
use super::shape::Shapes;
use crate::plan::{DevicePrediction, Grade, MemoryItems};
use crate::report::words;
use crate::units::Bytes;

/// Rows shown at most; the fullest ones.
const MOST_ROWS: usize = 48;

#[derive(Serialize)]
pub(super) struct View {
    rows: Vec<Row>,
    items: Vec<&'static str>,
    hidden: usize,
}

#[derive(Serialize)]
struct Row {
    devices: String,
    count: usize,
    device_type: String,
    colour: usize,
    grade: &'static str,
    mark: &'static str,
    total_gib: String,
    limit_gib: String,
    share: String,
    /// Position of the limit, per cent of the widest.
    limit_at: String,
    /// (number of the item, width in per cent of the widest, GiB).
    parts: Vec<(usize, String, String)>,
}

const ITEMS: [&str; 9] = [
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "working set",
    "logits",
    "buffers",
    "context",
    "reserve",
];

fn items(m: &MemoryItems) -> [Bytes; 9] {
    [
        m.weights,
        m.gradients,
        m.optimizer,
        m.activations,
        m.working_set,
        m.logits,
        m.buffers,
        m.context,
        m.reserve,
    ]
}

pub(super) fn view(page: &Page<'_>, shapes: &Shapes<'_>) -> View {
    let mut groups: Vec<(&DevicePrediction, Vec<&String>)> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for device in &page.prediction.devices {
        // Equal to 0.1 % counts as equal: layers of one size, different boundary buffers.
        let key = items(&device.memory_bytes)
            .iter()
            .fold(device.device_type.clone(), |text, b| {
                text + &format!("|{:.0}", b.0 / (0.001 * device.memory_bytes.limit.0).max(1.0))
            });
        let at = *index.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(g) => g.1.push(&device.device),
            None => groups.push((device, vec![&device.device])),
        }
    }
    let share = |d: &DevicePrediction| d.memory_bytes.total / d.memory_bytes.limit;
    if groups.len() > MOST_ROWS {
        groups.sort_by(|a, b| share(b.0).total_cmp(&share(a.0)));
    }
    let hidden: usize = groups.iter().skip(MOST_ROWS).map(|g| g.1.len()).sum();
    groups.truncate(MOST_ROWS);
    let widest = groups
        .iter()
        .map(|(d, _)| d.memory_bytes.limit.0.max(d.memory_bytes.total.0))
        .fold(1.0, f64::max);
    let rows = groups
        .iter()
        .map(|(d, names)| {
            let m = &d.memory_bytes;
            Row {
                devices: words::devices(names.iter().copied()),
                count: names.len(),
                device_type: d.device_type.clone(),
                colour: shapes.colour(&d.device_type),
                grade: match d.grade {
                    Grade::Safe => "safe",
                    Grade::Tight => "tight",
                    Grade::Over => "over",
                },
                mark: match d.grade {
                    Grade::Safe => "",
                    Grade::Tight => "tight",
                    Grade::Over => "OVER its limit",
                },
                total_gib: format!("{:.1}", m.total.gib()),
                limit_gib: format!("{:.1}", m.limit.gib()),
                share: words::percent(share(d)),
                limit_at: format!("{:.3}", 100.0 * m.limit.0 / widest),
                parts: items(m)
                    .iter()
                    .enumerate()
                    .filter(|(_, b)| b.0 > 0.0)
                    .map(|(i, b)| {
                        (
                            i,
                            format!("{:.3}", 100.0 * b.0 / widest),
                            format!("{:.2}", b.gib()),
                        )
                    })
                    .collect(),
            }
        })
        .collect();
    View {
        rows,
        items: ITEMS.to_vec(),
        hidden,
    }
}
