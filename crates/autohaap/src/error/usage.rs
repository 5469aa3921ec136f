//! Codes E1xx: usage.

use super::Code;

/// All codes of this area.
pub static ALL: &[&Code] = &[];
