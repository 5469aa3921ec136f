//! The one entry for both forms of a cluster description.

use crate::cluster::{Cluster, file, looks_like_shorthand, shorthand::Shorthand};
use crate::error::Problems;

/// Reads a cluster from a shorthand or from the text of a `cluster.toml`.
///
/// `source_name` is what messages call the text: a file name, or `--cluster`. What had to be assumed is in
/// [`Cluster::notes`]. All problems are reported together.
pub fn parse_cluster(text_or_shorthand: &str, source_name: &str) -> Result<Cluster, Problems> {
    let text = text_or_shorthand.trim_start_matches('\u{feff}');
    let trimmed = text.trim();
    let one_line = !trimmed.is_empty() && !trimmed.contains(['\n', '=']) && !trimmed.starts_with(['[', '#']);
    if looks_like_shorthand(text) || one_line {
        let cluster = Shorthand::new(trimmed, source_name).read()?;
        return cluster.validate().or(cluster);
    }
    file::read(text, source_name)
}
