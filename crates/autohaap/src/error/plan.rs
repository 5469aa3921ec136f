//! Codes E4xx: plan.

use super::Code;

/// All codes of this area.
pub static ALL: &[&Code] = &[];
