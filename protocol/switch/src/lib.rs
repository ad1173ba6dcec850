//! Barrier aggregation in the network.
