//! Ranges that hardware figures must lie in; outside, a unit was most likely mistaken.

use crate::units::{ByteRate, Bytes, FlopRate, GIB};

/// `None` if a device can have this memory (1 GiB to 1 TiB), else the likely unit.
pub(super) fn memory_hint(value: Bytes) -> Option<String> {
    let v = value.0;
    if (GIB..=1024.0 * GIB).contains(&v) {
        return None;
    }
    Some(match v {
        v if v <= 0.0 => "write a positive size, for example `\"80 GiB\"`".into(),
        v if v <= 1024.0 => format!("the likely unit is GiB: write `\"{v} GiB\"`"),
        v if v <= 1_048_576.0 => format!("the likely unit is MiB: write `\"{v} MiB\"`"),
        v if v < GIB => format!("the likely unit is KiB; {v} bytes are {:.3} GiB", v / GIB),
        _ => format!(
            "a device has 1 GiB to 1 TiB; {v:.3e} bytes are {:.0} GiB",
            v / GIB
        ),
    })
}

/// `None` if a link can have this bandwidth (0.001 GB/s to 10 TB/s), else the likely unit.
pub(super) fn rate_hint(value: ByteRate) -> Option<String> {
    let v = value.0;
    if (1e6..=1e13).contains(&v) {
        return None;
    }
    Some(match v {
        v if v <= 0.0 => "write a positive rate, for example `\"400 Gb/s\"` or `\"50 GB/s\"`".into(),
        v if v <= 1e4 => {
            format!("the likely unit is Gb/s or GB/s: write `\"{v} Gb/s\"` (bits) or `\"{v} GB/s\"` (bytes)")
        }
        v if v <= 1e5 => format!("the likely unit is Mb/s: write `\"{v} Mb/s\"`"),
        v if v < 1e6 => format!(
            "a link has 0.001 GB/s to 10 TB/s; {v:.3e} B/s are {:.4} GB/s",
            v / 1e9
        ),
        _ => format!(
            "a link has 0.001 GB/s to 10 TB/s; {v:.3e} B/s are {:.0} GB/s: bits instead of bytes?",
            v / 1e9
        ),
    })
}

/// `None` if a device can compute at this rate (0.1 TFLOPS to 100 PFLOPS), else the likely unit.
pub(super) fn flops_hint(value: FlopRate) -> Option<String> {
    let v = value.0;
    if (1e11..=1e17).contains(&v) {
        return None;
    }
    Some(if v <= 0.0 {
        "write a positive rate, for example `\"312 TFLOPS\"`".into()
    } else if v <= 1e5 {
        format!("the likely unit is TFLOPS: write `\"{v} TFLOPS\"`")
    } else {
        "a device computes at 0.1 TFLOPS to 100 PFLOPS".into()
    })
}
