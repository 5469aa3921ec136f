//! Codes E5xx: search.

use super::Code;

/// All codes of this area.
pub static ALL: &[&Code] = &[];
