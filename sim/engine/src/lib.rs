//! Virtual time, one seed, one history.
