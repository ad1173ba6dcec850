//! A packet-level network.
