//! Faults that a process injects into its log, which the comparison must detect.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A fault of every 10,000th entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Logs two messages in the wrong order.
    Order,
    /// Swaps the numbers of two messages, so that the process's own checks pass.
    Swap,
    /// Omits a message.
    Loss,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "order" => Ok(Self::Order),
            "swap" => Ok(Self::Swap),
            "loss" => Ok(Self::Loss),
            _ => Err("the faults are order, swap and loss".to_string()),
        }
    }
}
