//! WHERE it is trained: devices, nodes, links and domains, every number with its provenance.
//!
//! A cluster comes from a shorthand (`2x8 A100-80G + 4x8 V100-32G @ ib:100Gb`) or a `cluster.toml`; both go through
//! [`parse_cluster`]. Devices come from the [`catalogue`] or are defined in the file. The search works on
//! [`Cluster::classes`]; times of communication come from [`Cluster::collective_time`] and [`Cluster::transfer_time`].

mod assemble;
mod catalogue;
mod classes;
mod defaults;
mod device_file;
mod file;
mod init;
mod link;
mod link_file;
mod measured;
mod names;
mod network;
mod parse;
mod plausible;
mod quantity;
mod reader;
mod shorthand;
mod table;
mod types;
mod validate;

pub use catalogue::{CatalogueEntry, catalogue, catalogue_entry, time_from_bus_bandwidth};
pub use classes::DeviceClass;
pub use defaults::Network;
pub use init::{INIT_KINDS, init_text};
pub use measured::*;
pub use names::{Match, find_device, nearest_devices};
pub use network::*;
pub use parse::parse_cluster;
pub use quantity::{parse_bytes, parse_cards, parse_flops, parse_rate, parse_seconds, parse_share};
pub use shorthand::looks_like_shorthand;
pub use table::{DeviceFigure, DeviceRow, device_detail, device_table};
pub use types::*;
