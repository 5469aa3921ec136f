//! What is aimed at and what was reached, per group and kind: `data/published/goals.toml`.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

const TABLE: &str = include_str!("../../../../data/published/goals.toml");

/// Goal and recorded tolerance of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Prefix of the rows.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Mean error aimed at.
    pub mape: Option<f64>,
    /// Largest error aimed at.
    pub max: Option<f64>,
    /// Mean error that must not be exceeded: what was reached when it was recorded, and a margin.
    pub tolerance: Option<f64>,
    /// Mean error with the row's model left out of the fit, as recorded.
    pub held_out: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    goal: Vec<Goal>,
}

/// All goals.
pub fn goals() -> &'static [Goal] {
    static PARSED: OnceLock<Vec<Goal>> = OnceLock::new();
    PARSED.get_or_init(|| {
        toml::from_str::<Table>(TABLE)
            .expect("the compiled-in goals parse")
            .goal
    })
}

/// The goal of a group and kind.
pub fn find(group: &str, kind: &str) -> Option<&'static Goal> {
    goals().iter().find(|g| g.group == group && g.kind == kind)
}
