//! Links and measured points in a cluster file.

use crate::cluster::plausible::rate_hint;
use crate::cluster::reader::{Reader, Section};
use crate::cluster::{
    Collective, Fabric, Link, LinkPoint, Provenance, Sourced, parse_bytes, parse_rate, parse_seconds,
    parse_share, time_from_bus_bandwidth,
};
use crate::error::{cluster as codes, nearest};
use crate::units::Seconds;

/// Efficiencies lie in (0, 1].
pub(super) fn share_hint(value: f64) -> Option<String> {
    if value > 0.0 && value <= 1.0 {
        return None;
    }
    Some(if value > 1.0 && value <= 100.0 {
        format!("an efficiency is at most 1; for percent write `\"{value} %\"`")
    } else {
        "an efficiency is above 0 and at most 1".into()
    })
}

/// Latencies lie in [0, 1 s).
pub(super) fn latency_hint(value: Seconds) -> Option<String> {
    if (0.0..1.0).contains(&value.0) {
        return None;
    }
    Some(if value.0 < 0.0 {
        "a latency is not negative".into()
    } else {
        format!("the likely unit is us: write `\"{} us\"`", value.0)
    })
}

/// Reads the keys of a link into `link`; a changed bandwidth makes measured points of the base invalid.
pub(super) fn read_link<'a>(reader: &mut Reader<'a>, section: &Section<'a>, link: &mut Link, source: &str) {
    if let Some(word) = reader.string(section, &["fabric"]) {
        match word {
            "switched" => link.fabric = Fabric::Switched,
            "mesh" => link.fabric = Fabric::Mesh,
            "bus" => link.fabric = Fabric::Bus,
            other => {
                let near = nearest(other, ["switched", "mesh", "bus"]).unwrap_or("switched");
                let span = section.get(&["fabric"]).map(toml::Spanned::span);
                reader.problem(
                    &codes::BAD_VALUE,
                    span.as_ref(),
                    &section.at("fabric"),
                    format!("unknown fabric `{other}`"),
                    format!("write `switched`, `mesh` or `bus`; the nearest is `{near}`"),
                );
            }
        }
        link.table.clear();
    }
    let pair = reader.quantity(
        section,
        &["pair_bandwidth"],
        parse_rate,
        "`\"64 GB/s\"`",
        rate_hint,
    );
    if let Some(rate) = reader.quantity(
        section,
        &["bandwidth", "rate"],
        parse_rate,
        "`\"300 GB/s\"`",
        rate_hint,
    ) {
        link.bandwidth = Sourced::with_source(rate, Provenance::User, source);
        if pair.is_none() {
            let share = if link.fabric == Fabric::Mesh {
                1.0 / 7.0
            } else {
                1.0
            };
            link.pair_bandwidth = Sourced::with_source(
                rate * share,
                Provenance::Assumed,
                "derived from the bandwidth of the device",
            );
        }
        link.table.clear();
    }
    if let Some(rate) = pair {
        link.pair_bandwidth = Sourced::with_source(rate, Provenance::User, source);
        link.table.clear();
    }
    if let Some(latency) = reader.quantity(section, &["latency"], parse_seconds, "`\"5 us\"`", latency_hint) {
        link.latency = Sourced::with_source(latency, Provenance::User, source);
    }
    if let Some(share) = reader.quantity(
        section,
        &["efficiency"],
        parse_share,
        "`0.8` or `\"80 %\"`",
        share_hint,
    ) {
        link.efficiency = Sourced::with_source(share, Provenance::User, source);
        link.table.clear();
    }
}

/// Reads `link_table = [{op, ranks, bytes, time | bus_bandwidth}, ...]` and checks that sizes and times rise together.
pub(super) fn read_table<'a>(reader: &mut Reader<'a>, section: &Section<'a>) -> Vec<LinkPoint> {
    let mut points: Vec<(LinkPoint, std::ops::Range<usize>)> = Vec::new();
    for row in reader.tables(section, &["link_table"]) {
        reader.only(&row, &["op", "ranks", "bytes", "time", "bus_bandwidth"]);
        let op = match reader.string(&row, &["op"]) {
            Some("all-reduce" | "all_reduce") => Some(Collective::AllReduce),
            Some("all-gather" | "all_gather") => Some(Collective::AllGather),
            Some("reduce-scatter" | "reduce_scatter") => Some(Collective::ReduceScatter),
            Some("all-to-all" | "alltoall" | "all_to_all") => Some(Collective::AllToAll),
            Some("point-to-point" | "sendrecv" | "p2p") => Some(Collective::PointToPoint),
            Some(other) => {
                let words = [
                    "all-reduce",
                    "all-gather",
                    "reduce-scatter",
                    "all-to-all",
                    "point-to-point",
                ];
                let near = nearest(other, words).unwrap_or("all-reduce");
                let hint = format!("one of {}; the nearest is `{near}`", words.join(", "));
                reader.problem(
                    &codes::BAD_VALUE,
                    Some(&row.span),
                    &row.at("op"),
                    format!("unknown operation `{other}`"),
                    hint,
                );
                None
            }
            None => {
                reader.missing(&row, "op", "`op = \"all-reduce\"`");
                None
            }
        };
        let ranks = match row.get(&["ranks"]) {
            Some(_) => reader
                .count(&row, &["ranks"], crate::cluster::assemble::LIMIT)
                .map(|r| r.max(2)),
            None => Some(2).filter(|_| op == Some(Collective::PointToPoint)),
        };
        if ranks.is_none() && row.get(&["ranks"]).is_none() {
            reader.missing(&row, "ranks", "`ranks = 8`");
        }
        let bytes = reader.quantity(&row, &["bytes"], parse_bytes, "`\"512 MiB\"`", |b| positive(b.0));
        let time = reader.quantity(&row, &["time"], parse_seconds, "`\"60 us\"`", |t| positive(t.0));
        let bus = reader.quantity(&row, &["bus_bandwidth"], parse_rate, "`\"220 GB/s\"`", rate_hint);
        if row.get(&["bytes"]).is_none() {
            reader.missing(&row, "bytes", "`bytes = \"512 MiB\"`");
        }
        if row.get(&["time"]).is_none() && row.get(&["bus_bandwidth"]).is_none() {
            reader.missing(
                &row,
                "time",
                "`time = \"60 us\"` or `bus_bandwidth = \"220 GB/s\"`",
            );
        }
        if let (Some(op), Some(ranks), Some(bytes)) = (op, ranks, bytes) {
            let time = time.or_else(|| bus.map(|b| time_from_bus_bandwidth(op, ranks, bytes, b)));
            if let Some(time_s) = time {
                points.push((
                    LinkPoint {
                        op,
                        ranks,
                        bytes,
                        time_s,
                    },
                    row.span.clone(),
                ));
            }
        }
    }
    points.sort_by(|a, b| {
        (a.0.op, a.0.ranks)
            .cmp(&(b.0.op, b.0.ranks))
            .then(a.0.bytes.0.total_cmp(&b.0.bytes.0))
    });
    for pair in points.windows(2) {
        let (a, b) = (&pair[0].0, &pair[1].0);
        if (a.op, a.ranks) == (b.op, b.ranks) && (a.bytes.0 >= b.bytes.0 || a.time_s.0 > b.time_s.0) {
            let message = format!(
                "{:.0} bytes take {} and {:.0} bytes take {}",
                a.bytes.0, a.time_s, b.bytes.0, b.time_s
            );
            reader.problem(
                &codes::BAD_TABLE,
                Some(&pair[1].1),
                &section.at("link_table"),
                message,
                "keep one point a size; times must not fall as sizes rise",
            );
        }
    }
    points.into_iter().map(|p| p.0).collect()
}

fn positive(v: f64) -> Option<String> {
    (v <= 0.0 || v > 1e18).then(|| "write a positive value".to_owned())
}
