//! Simulated runs and failure stories.
