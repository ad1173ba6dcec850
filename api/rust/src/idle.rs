//! The idle strategy of a pipe.

use onepipe_transport_driver as driver;

/// What to do with the core when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Spins: the lowest latency, for a dedicated core.
    Spin,
    /// Yields the core after every poll.
    Yield,
    /// Polls for a few us, then blocks until there is something to do; where polling has not paid
    /// off lately, blocks at once. For shared machines.
    #[default]
    Backoff,
}

impl Idle {
    pub(crate) fn strategy(self) -> driver::Idle {
        match self {
            Self::Spin => driver::Idle::Spin,
            Self::Yield => driver::Idle::Yield,
            Self::Backoff => driver::Idle::ADAPTIVE,
        }
    }
}
