//! Time of an asymmetric 1F1B pipeline.
