//! Benchmarks of the parts.
