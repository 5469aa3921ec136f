//! One-dimensional float64 arrays of NumPy's `.npy` format (versions 1 to 3).

use crate::error::{Problem, profile as codes};

/// Reads the numbers of a file.
///
/// # Errors
/// Anything that is not a complete little-endian float64 array of one dimension.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<Vec<f64>, Problem> {
    let bad = |what: &str| {
        Problem::new(&codes::IMPORT, name, what)
            .hint("save a one-dimensional float64 array: `numpy.save(\"times.npy\", times)`")
    };
    let rest = bytes
        .strip_prefix(b"\x93NUMPY")
        .ok_or_else(|| bad("this is no .npy file"))?;
    let (size, start) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        _ => return Err(bad("the version is unknown")),
    };
    let header = rest
        .get(start..start + size)
        .and_then(|h| std::str::from_utf8(h).ok())
        .ok_or_else(|| bad("the header ends early"))?;
    if !header.contains("'<f8'") {
        return Err(bad("the numbers are not little-endian float64"));
    }
    let shape = header
        .split_once("'shape':")
        .and_then(|(_, after)| after.split_once('('))
        .and_then(|(_, after)| after.split_once(')'))
        .map(|(shape, _)| shape)
        .ok_or_else(|| bad("the header names no shape"))?;
    let length = shape
        .trim()
        .trim_end_matches(',')
        .parse::<usize>()
        .map_err(|_| bad("the array is not one-dimensional"))?;
    let data = &rest[start + size..];
    if data.len() / 8 != length || data.len() % 8 != 0 {
        return Err(bad("the file does not hold the numbers of its shape"));
    }
    Ok(data
        .chunks_exact(8)
        .map(|c| f64::from_le_bytes(std::array::from_fn(|i| c[i])))
        .collect())
}
