//! One file per verb.

pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod devices;
pub(crate) mod estimate;
pub(crate) mod import;
pub(crate) mod launch;
pub(crate) mod model;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod replan;
pub(crate) mod report;
pub(crate) mod simulate;
pub(crate) mod validate;
