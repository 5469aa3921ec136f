//! Promises that cross module borders.

mod cluster;
mod cluster_devices;
mod cluster_file;
mod cluster_hostile;
mod cluster_network;
