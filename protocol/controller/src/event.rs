//! What a controller tells its world.

use onepipe_base::{Instance, Mono};

use crate::{Epoch, FailedInstance};

/// News for logs and metrics; only [`Event::Deposed`] and [`Event::Isolated`] ask for something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// This replica is active now.
    Active(Epoch),
    /// It is not any more: its epoch is over. The world may campaign again.
    Deposed(Epoch),
    /// An active replica hears nobody, or most of the fabric lives but has no path to it. The world
    /// may resign, so that another replica takes over.
    Isolated,
    /// A node takes part that was not known.
    Joined(Instance),
    /// A life has failed: decided and recorded.
    Failed {
        /// Who, and when.
        failed: FailedInstance,
        /// When it was first without a path, in this replica's time.
        suspected: Mono,
        /// When it was decided.
        decided: Mono,
    },
    /// Every correct process has done what these failures ask of it.
    Noticed {
        /// How many lives.
        instances: usize,
        /// When the first of them was decided.
        decided: Mono,
        /// When the news was sent.
        started_at: Mono,
        /// When all had answered.
        completed: Mono,
    },
    /// Frozen links hold nothing any more, as far as their owners have answered.
    Resumed {
        /// How many links.
        links: usize,
        /// When that was decided.
        started_at: Mono,
        /// When all had answered.
        completed: Mono,
    },
    /// A process gives no sign of life, and is declared failed.
    PingTimedOut(Instance),
    /// The store does not take records: recovery waits.
    StoreFailed,
}
