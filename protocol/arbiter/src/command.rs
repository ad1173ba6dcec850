//! Commands for the allocator, and its results.

use onepipe_isolation::Fault;

use crate::Timeslot;

/// A change of demand for the allocator; executed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Demand {
    /// Drops all demand of this endpoint: its session was reset.
    Forget(u32),
    /// Adds `slots` timeslots from `src` to `dst`.
    Want {
        /// The source.
        src: u32,
        /// The destination.
        dst: u32,
        /// Number of timeslots.
        slots: u32,
    },
}

/// Demand that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RefusedDemand {
    /// The source.
    pub src: u32,
    /// The destination.
    pub dst: u32,
    /// Number of timeslots.
    pub slots: u32,
}

/// A command for the allocator; executed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Adds or drops demand.
    Demand(Demand),
    /// Starts or stops avoiding a link or path, from the batch on that is closed next.
    Avoid {
        /// The link or path.
        fault: Fault,
        /// Whether it is avoided.
        is_avoided: bool,
    },
    /// Reports an overload: see [`crate::DemandTable::on_overload`].
    Overload,
    /// Closes the batch that begins at this timeslot: it counts all demand commanded before.
    Batch(Timeslot),
}

/// An allocated batch without its grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchSummary {
    /// The number of [`Command::Batch`] commands before this one.
    pub number: u64,
    /// Its first timeslot.
    pub start: Timeslot,
    /// Its length in timeslots.
    pub slots: u32,
    /// Number of packets granted.
    pub granted: u32,
    /// Granted packets without a path.
    pub without_path: u32,
    /// Timeslots requested and not granted.
    pub wanted: u64,
    /// Pairs that wait for them, without those whose flow is not renewed yet.
    pub pairs: u32,
}
