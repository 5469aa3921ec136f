//! WHAT is trained: a model file becomes a chain of [`Atom`]s, the smallest pieces that a plan can place.
//!
//! An atom carries its architecture as plain numbers ([`Shape`]); [`Atom::parts`] expands it into weights, operators
//! and saved tensors. Cost, memory and checks know only these parts, never a model family.

mod atom;
mod parts;

pub use atom::*;
pub use parts::*;
