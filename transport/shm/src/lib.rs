//! Shared memory as a fabric.
