//! Promises that hold across modules, one file each.

mod model;
mod model_hostile;
mod model_oracles;
