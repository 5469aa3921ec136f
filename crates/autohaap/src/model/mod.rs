//! WHAT is trained: a model file becomes a chain of [`Atom`]s, the smallest pieces that a plan can place.
//!
//! An atom carries its architecture as plain numbers ([`Shape`]); [`Atom::parts`] expands it into weights, operators
//! and saved tensors. Cost, memory and checks know only these parts, never a model family; families exist only inside
//! [`read`].

mod atom;
mod numbers;
mod parts;
mod presets;
pub mod read;
mod summary;

pub use atom::*;
pub use numbers::*;
pub use parts::*;
pub use presets::*;
pub use read::{ModelInput, parse};
pub use summary::*;
