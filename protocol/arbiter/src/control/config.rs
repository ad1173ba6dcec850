//! Configuration, events and counters of an arbiter.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_isolation::Fault;

use crate::client::CONTROL_INTERVAL_SLOTS;
use crate::failover::FailoverConfig;
use crate::{CommConfig, Config, ConfigError, Core, FabricError, Timeslot};

/// Configuration of an [`crate::Arbiter`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArbiterConfig {
    /// The sessions with endpoints.
    pub comm: CommConfig,
    /// The allocator, for the same number of endpoints.
    pub allocator: Config,
    /// The fabric, for the same number of endpoints.
    pub core: Core,
    /// Length of a timeslot, ns.
    pub slot_ns: u64,
    /// How long before it begins a batch is allocated, ns. Default 65 us.
    pub lead_ns: u64,
    /// Election of the primary. Default a single arbiter.
    pub failover: FailoverConfig,
    /// Fault isolation.
    pub isolation: onepipe_isolation::Config,
}

impl ArbiterConfig {
    /// Returns the defaults for the endpoints of a fabric.
    pub const fn new(process: ProcessId, core: Core, slot_ns: u64) -> Self {
        let nodes = core.nodes();
        let mut comm = CommConfig::new(process, nodes);
        // Timeouts exceed the interval of the endpoints' control packets.
        let control_interval_ns = slot_ns.saturating_mul(CONTROL_INTERVAL_SLOTS);
        comm.retry_ns = longer(comm.retry_ns, control_interval_ns.saturating_mul(2));
        comm.idle_timeout_ns = longer(comm.idle_timeout_ns, control_interval_ns.saturating_mul(8));
        Self {
            comm,
            allocator: Config::new(nodes),
            core,
            slot_ns,
            lead_ns: 65_000,
            failover: FailoverConfig::ALONE,
            isolation: onepipe_isolation::Config::DEFAULT,
        }
    }
}

const fn longer(one: u64, other: u64) -> u64 {
    if one > other { one } else { other }
}

/// Why an arbiter cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ArbiterError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The fabric is invalid.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// An event of an arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArbiterEvent {
    /// This arbiter grants timeslots, from this one on.
    Primary(Timeslot),
    /// Another arbiter is the primary.
    Secondary,
    /// A later incarnation of this process id exists, and endpoints use that one. This arbiter
    /// sends nothing more.
    Replaced {
        /// The other incarnation.
        by: Incarnation,
    },
    /// A link or path loses packets, and is avoided.
    Avoided(Fault),
    /// A link or path is used again, to find out whether it still loses packets.
    Retried(Fault),
}

/// Counters of an arbiter, beside [`crate::CommStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArbiterStats {
    /// Batches allocated.
    pub batches: u64,
    /// Timeslots granted.
    pub granted: u64,
    /// Granted timeslots without a path.
    pub without_path: u64,
    /// Timeslots skipped because the driver was late.
    pub skipped: u64,
    /// Times that new flows were held back because of an overload.
    pub held_back: u64,
    /// Requested timeslots that were rejected because the maximum number of pairs was waiting.
    pub refused: u64,
    /// Frames that are invalid, of another opcode or destination, or for a primary while this
    /// arbiter is a secondary.
    pub dropped: u64,
    /// Misbehaviour: watchdogs of other processes than arbiters and endpoints, about a process that
    /// is no configured arbiter, or with an epoch or an incarnation that cannot be yet; included in
    /// `dropped`.
    pub claims_refused: u64,
    /// Lost packets that endpoints reported with a path.
    pub lost: u64,
    /// Times that a link or path was found to lose packets, and avoided.
    pub faults: u64,
    /// Times that an avoided link or path was used again, to test whether it still loses packets.
    pub retries: u64,
    /// Times that this arbiter became the primary.
    pub takeovers: u64,
    /// Batches that were allocated after they had begun.
    pub late: u64,
    /// Delay of the last batch after its due time, ns.
    pub lag_ns: u64,
    /// Maximum of that delay, ns.
    pub lag_max_ns: u64,
}
