//! Codes E3xx: cluster.

use super::Code;

/// All codes of this area.
pub static ALL: &[&Code] = &[];
