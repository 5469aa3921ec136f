//! WHERE it is trained: devices, nodes, links and domains, every number with its provenance.

mod network;
mod types;

pub use network::*;
pub use types::*;
