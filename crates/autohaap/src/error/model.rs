//! Codes E2xx: model.

use super::Code;

/// All codes of this area.
pub static ALL: &[&Code] = &[];
