//! The protocols of transactions that are compared.

use serde::{Deserialize, Serialize};

/// A protocol of transactions over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// One scattering in the total order (`onepipe-transaction`).
    Onepipe,
    /// No concurrency control: each operation goes to its shard. The upper bound.
    NonTx,
    /// Optimistic, with locks and versions, in the way of FaRM.
    Farm,
    /// Two-phase locking and two-phase commit.
    TwoPhaseLocking,
    /// Optimistic concurrency control and two-phase commit.
    Optimistic,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 5] =
        [Self::Onepipe, Self::NonTx, Self::Farm, Self::TwoPhaseLocking, Self::Optimistic];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onepipe => "1Pipe",
            Self::NonTx => "NonTX",
            Self::Farm => "FaRM",
            Self::TwoPhaseLocking => "2PL",
            Self::Optimistic => "OCC",
        }
    }
}
