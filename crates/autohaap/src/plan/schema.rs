//! The JSON schema of plan files.

/// The committed schema of `autohaap/plan@1`, as `autohaap schema plan` prints it.
pub const PLAN_SCHEMA_TEXT: &str = include_str!("../../../../schemas/plan.schema.json");

/// The schema generated from the types; equals [`PLAN_SCHEMA_TEXT`] in a released tree.
#[cfg(feature = "schema")]
pub fn schema_json() -> String {
    let schema = schemars::schema_for!(super::Plan);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
