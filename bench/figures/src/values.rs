//! Measured values.

use std::collections::BTreeMap;

/// Measured values by name.
pub type Values = BTreeMap<String, f64>;
