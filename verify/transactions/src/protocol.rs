//! The protocols of transactions that are compared.

use onepipe_baselines::{FarmReads, Protocol as Rival};
use serde::{Deserialize, Serialize};

/// A protocol of transactions over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// One scattering in the total order (`onepipe-transaction`).
    Onepipe,
    /// No concurrency control: each operation goes to its shard. The upper bound.
    NonTx,
    /// The protocol of FaRM: optimistic, with locks and versions. Transactions that only read do so
    /// in one round, as the evaluation of 1Pipe describes it, which is not serializable.
    Farm,
    /// As `Farm`, but transactions that only read validate what they have read.
    FarmValidated,
    /// Two-phase locking and two-phase commit.
    TwoPhaseLocking,
    /// Optimistic concurrency control and two-phase commit.
    Optimistic,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 6] = [
        Self::Onepipe,
        Self::NonTx,
        Self::Farm,
        Self::FarmValidated,
        Self::TwoPhaseLocking,
        Self::Optimistic,
    ];

    /// Returns the rival; `None` for our own protocol.
    pub(crate) const fn rival(self) -> Option<Rival> {
        match self {
            Self::Onepipe => None,
            Self::NonTx => Some(Rival::NonTx),
            Self::Farm => Some(Rival::Farm(FarmReads::OneRound)),
            Self::FarmValidated => Some(Rival::Farm(FarmReads::Validated)),
            Self::TwoPhaseLocking => Some(Rival::TwoPhaseLocking),
            Self::Optimistic => Some(Rival::Optimistic),
        }
    }

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onepipe => "1Pipe",
            Self::NonTx => "NonTX",
            Self::Farm => "FaRM",
            Self::FarmValidated => "FaRM, validated",
            Self::TwoPhaseLocking => "2PL",
            Self::Optimistic => "OCC",
        }
    }
}
