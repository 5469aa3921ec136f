//! Quantities as users type them: `80 GB`, `400Gb`, `20 GB/s`, `5 us`, `312 TFLOPS`, `8x400Gb`.

use crate::units::{ByteRate, Bytes, FlopRate, GIB, Seconds};

/// Splits `12.5 GB/s` into its number and its unit; `None` without a finite number in front.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let mut end = 0;
    let bytes = text.as_bytes();
    while end < bytes.len() {
        let c = bytes[end];
        let exponent = (c == b'e' || c == b'E')
            && end > 0
            && bytes[end - 1].is_ascii_digit()
            && bytes
                .get(end + 1)
                .is_some_and(|n| n.is_ascii_digit() || *n == b'-' || *n == b'+');
        let sign = (c == b'-' || c == b'+') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        if c.is_ascii_digit() || c == b'.' || c == b'_' || exponent || sign {
            end += 1;
        } else {
            break;
        }
    }
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// A memory size: `80 GiB`, `80 GB`, `80G` (binary), `81920 MiB`; a bare number is bytes.
pub fn parse_bytes(text: &str) -> Option<Bytes> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" | "bytes" => 1.0,
        "KiB" => 1024.0,
        "MiB" | "M" => 1_048_576.0,
        "GiB" | "G" => GIB,
        "TiB" | "T" => GIB * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => match unit.to_ascii_lowercase().as_str() {
            "kib" => 1024.0,
            "mib" => 1_048_576.0,
            "gib" => GIB,
            "tib" => GIB * 1024.0,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return None,
        },
    };
    Some(Bytes(number * factor))
}

/// A rate: `400Gb`, `400 Gb/s`, `400Gbps`, `400 Gbit/s` count bits, `50 GB/s` counts bytes, `100G` counts bits as on
/// network cards; a bare number is bytes per second.
pub fn parse_rate(text: &str) -> Option<ByteRate> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Some(ByteRate(number));
    }
    let (prefix, rest) = unit.split_at(unit.char_indices().nth(1).map_or(unit.len(), |(i, _)| i));
    let (scale, rest) = match prefix {
        "k" | "K" => (1e3, rest),
        "m" | "M" => (1e6, rest),
        "g" | "G" => (1e9, rest),
        "t" | "T" => (1e12, rest),
        _ => (1.0, unit),
    };
    let (scale, rest) = match rest.strip_prefix('i') {
        Some(tail) if tail.starts_with('B') => (
            match prefix {
                "k" | "K" => 1024.0,
                "m" | "M" => 1_048_576.0,
                "t" | "T" => GIB * 1024.0,
                _ => GIB,
            },
            tail,
        ),
        _ => (scale, rest),
    };
    let bits = match rest {
        "B" | "B/s" | "Bps" => 1.0,
        "b" | "b/s" | "bps" | "bit" | "bits" | "bit/s" | "bits/s" => 8.0,
        "" if scale > 1.0 => 8.0,
        _ => return None,
    };
    Some(ByteRate(number * scale / bits))
}

/// A time: `5 us`, `1.5 ms`, `800 ns`, `2 s`; a bare number is seconds.
pub fn parse_seconds(text: &str) -> Option<Seconds> {
    let (number, unit) = split(text)?;
    let divisor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e3,
        "us" | "µs" | "μs" => 1e6,
        "ns" => 1e9,
        _ => return None,
    };
    Some(Seconds(number / divisor))
}

/// A compute rate: `312 TFLOPS`, `312 TFLOP/s`, `312T`, `1.2 PFLOPS`; a bare number is FLOP/s.
pub fn parse_flops(text: &str) -> Option<FlopRate> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let stem = ["flop/s", "flops/s", "flops", "flop"]
        .iter()
        .find_map(|tail| unit.strip_suffix(tail))
        .unwrap_or(&unit);
    let factor = match stem {
        "" => 1.0,
        "g" => 1e9,
        "t" | "tf" => 1e12,
        "p" | "pf" => 1e15,
        _ => return None,
    };
    Some(FlopRate(number * factor))
}

/// A share: `0.8` or `80 %`.
pub fn parse_share(text: &str) -> Option<f64> {
    match split(text)? {
        (number, "") => Some(number),
        (number, "%") => Some(number / 100.0),
        _ => None,
    }
}

/// Network cards of a node: `8x400Gb` or `100Gb`.
pub fn parse_cards(text: &str) -> Option<(u32, ByteRate)> {
    let text = text.trim();
    if let Some((count, rate)) = text.split_once(['x', 'X', '*']) {
        return Some((count.trim().parse().ok()?, parse_rate(rate)?));
    }
    Some((1, parse_rate(text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_are_told_apart() {
        assert_eq!(parse_rate("400Gb"), Some(ByteRate(50e9)));
        assert_eq!(parse_rate("400 Gbit/s"), Some(ByteRate(50e9)));
        assert_eq!(parse_rate("50 GB/s"), Some(ByteRate(50e9)));
        assert_eq!(parse_rate("1 GiB/s"), Some(ByteRate(GIB)));
        assert_eq!(parse_rate("100G"), Some(ByteRate(12.5e9)));
        assert_eq!(parse_rate("1e9"), Some(ByteRate(1e9)));
        assert_eq!(parse_rate("5 apples"), None);
        assert_eq!(parse_rate("5 é"), None);
        assert_eq!(parse_cards("8x400Gb"), Some((8, ByteRate(50e9))));
        assert_eq!(parse_cards("-1x400Gb"), None);
    }

    #[test]
    fn sizes_times_and_compute_rates() {
        assert_eq!(parse_bytes("80 GiB"), Some(Bytes::from_gib(80.0)));
        assert_eq!(parse_bytes("80 GB"), Some(Bytes(80e9)));
        assert_eq!(parse_bytes("81920 MiB"), Some(Bytes::from_gib(80.0)));
        assert_eq!(parse_seconds("5 us").map(|s| (s.0 * 1e9).round()), Some(5000.0));
        assert_eq!(parse_flops("312 TFLOPS"), Some(FlopRate(312e12)));
        assert_eq!(parse_flops("1.5 PFLOP/s"), Some(FlopRate(1.5e15)));
        assert_eq!(parse_share("80 %"), Some(0.8));
        assert_eq!(parse_bytes("nan"), None);
        assert_eq!(parse_bytes("inf"), None);
    }
}
