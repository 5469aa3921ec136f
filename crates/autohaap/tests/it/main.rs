//! Promises that hold across modules, one file each.

mod pipeline;
