//! Invariants checked on histories.
