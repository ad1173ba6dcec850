//! Events of a controller.

use onepipe_base::{Instance, Mono};

use onepipe_wire::DecisionTip;

use crate::{Epoch, FailedInstance};

/// Events for logs and metrics; only [`Event::Deposed`], [`Event::Isolated`] and
/// [`Event::StoreOutdated`] require a reaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// This replica has become active.
    Active(Epoch),
    /// This replica's epoch is over. The caller may campaign again.
    Deposed(Epoch),
    /// An active replica receives no frames, or most of the fabric is alive but has no path to it.
    /// The caller may resign, so that another replica takes over.
    Isolated,
    /// A node has connected for the first time.
    Joined(Instance),
    /// The failure of an instance, or its graceful leave, is decided and recorded: see
    /// [`FailedInstance::cause`].
    Failed {
        /// The instance and its failure timestamp.
        failed: FailedInstance,
        /// When the instance first lost its path to the controller, in this replica's time.
        suspected: Mono,
        /// When the failure was decided.
        decided: Mono,
        /// The node that reported the cause; `None` if this replica found it itself, or took the
        /// decision over from another one.
        reporter: Option<Instance>,
    },
    /// All correct processes have completed these failures.
    Noticed {
        /// Number of failed instances.
        instances: usize,
        /// When the first of these failures was decided.
        decided: Mono,
        /// When the notice was sent.
        started_at: Mono,
        /// When the last acknowledgement arrived.
        completed: Mono,
    },
    /// Frozen links were released, as far as their owners have acknowledged.
    Resumed {
        /// Number of links.
        links: usize,
        /// When the Resume was sent.
        started_at: Mono,
        /// When the last acknowledgement arrived.
        completed: Mono,
    },
    /// A process did not answer a ping in time and is declared dead.
    PingTimedOut(Instance),
    /// The store does not accept records; recovery waits.
    StoreFailed,
    /// A process knows more than the log from which this replica decides, so it has stopped to
    /// decide and is not active any more. The caller asks the store whether the epoch is over
    /// ([`crate::Store::renew`]). If it is not, the store went back in time, or is not that of this
    /// fabric: no replica may use it.
    StoreOutdated {
        /// The epoch that this replica was given.
        epoch: Epoch,
        /// The end of the log that the process knows.
        known: DecisionTip,
    },
}
