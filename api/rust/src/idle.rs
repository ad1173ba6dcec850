//! What to do with the processor when there is nothing to do.

use onepipe_transport_driver as driver;

/// What to do with the processor when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Burns its core: the lowest latency, for a dedicated one.
    Spin,
    /// Offers the core to others after every look.
    Yield,
    /// Looks for some 10 us, then blocks until there is something to do. Civil on a shared
    /// machine.
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

    /// How many idle turns in a row never block; `None` if none ever does.
    pub(crate) fn turns_awake(self) -> Option<u32> {
        match self.strategy() {
            driver::Idle::Backoff { spins, yields } => Some(spins.saturating_add(yields)),
            _ => None,
        }
    }
}
