//! The software switch.
