//! How an arbiter is set up, what it tells, and what it counts.

use onepipe_base::{Incarnation, ProcessId};

use crate::client::CONTROL_INTERVAL_SLOTS;
use crate::failover::FailoverConfig;
use crate::isolation::Fault;
use crate::{CommConfig, Config, ConfigError, Core, Fabric, FabricError, Timeslot};

/// How an [`crate::Arbiter`] is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArbiterConfig {
    /// Its ends of the control protocol.
    pub comm: CommConfig,
    /// Its allocator; of as many endpoints.
    pub allocator: Config,
    /// The fabric; of as many endpoints.
    pub core: Core,
    /// Length of a timeslot, ns.
    pub slot_ns: u64,
    /// A batch is given out so long before it begins, ns. Default 65 us (design: arbiter.md
    /// section 1).
    pub lead_ns: u64,
    /// How it takes over from others. Default alone.
    pub failover: FailoverConfig,
}

impl ArbiterConfig {
    /// The defaults, for endpoints in racks of `rack_nodes` with `paths` ways from each to each.
    pub const fn new(
        process: ProcessId,
        nodes: u32,
        (rack_nodes, paths): (u32, u32),
        slot_ns: u64,
    ) -> Self {
        let mut comm = CommConfig::new(process, nodes);
        // Endpoints that keep their pace are neither deaf nor silent.
        let control_interval_ns = slot_ns.saturating_mul(CONTROL_INTERVAL_SLOTS);
        comm.retry_ns = longer(comm.retry_ns, control_interval_ns.saturating_mul(2));
        comm.idle_timeout_ns = longer(comm.idle_timeout_ns, control_interval_ns.saturating_mul(8));
        Self {
            comm,
            allocator: Config::new(nodes),
            core: Core::Racks(Fabric { nodes, rack_nodes, paths, is_strict: false }),
            slot_ns,
            lead_ns: 65_000,
            failover: FailoverConfig::ALONE,
        }
    }
}

const fn longer(one: u64, other: u64) -> u64 {
    if one > other { one } else { other }
}

/// Why an arbiter cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ArbiterError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no such fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// What an arbiter tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArbiterEvent {
    /// It gives out timeslots from now on, from this one on.
    Primary(Timeslot),
    /// Another one does.
    Secondary,
    /// Another process has begun later with the same process id, and endpoints ask that one: this
    /// one says nothing more.
    Replaced {
        /// Which life the other one is.
        by: Incarnation,
    },
    /// This loses packets, and is avoided.
    Avoided(Fault),
    /// This is used again, to see whether it still loses packets.
    Retried(Fault),
}

/// What an arbiter has done since its beginning, beside [`crate::CommStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArbiterStats {
    /// Batches given out.
    pub batches: u64,
    /// Timeslots given out to pairs.
    pub granted: u64,
    /// Of these, the ones for which no path was left.
    pub unplaced: u64,
    /// Timeslots skipped, because the driver was late.
    pub skipped: u64,
    /// Times that demand was held back, because batches were late.
    pub held_back: u64,
    /// Timeslots that were asked for and not taken, because as many pairs wait as may.
    pub refused: u64,
    /// Frames that are none, or not for an arbiter, or not for one that is not the primary.
    pub dropped: u64,
    /// Packets that endpoints have reported as lost, by path.
    pub lost: u64,
    /// Times that a link, or a path, was found to lose packets, and avoided.
    pub faults: u64,
    /// Times that one was used again, to see whether it still does.
    pub retries: u64,
    /// Times that it has become the primary.
    pub takeovers: u64,
    /// Batches that were given out when they had begun already.
    pub late: u64,
    /// How long after its time the last batch was given out, ns: which part of the lead it took.
    pub lag_ns: u64,
    /// The most that this ever was, ns.
    pub lag_max_ns: u64,
}
