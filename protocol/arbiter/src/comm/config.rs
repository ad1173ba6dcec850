//! How the arbiter's ends of the control protocol are set up, and what they count.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::FcpParams;

use crate::ConfigError;
use crate::config::{SLOT_NS_MAX, check};
use crate::fcp::RTO_MIN_NS;

/// How the arbiter's ends are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommConfig {
    /// The arbiter: its process id is none of its endpoints'.
    pub process: ProcessId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Endpoints: the processes below this number, 2 to 4096.
    pub nodes: u32,
    /// Length of a timeslot, ns, which an endpoint must be set up with, too. Default 1.25 us, what
    /// a frame takes at 10 Gbit/s; of an [`crate::ArbiterConfig`] its own.
    pub slot_ns: u64,
    /// Bytes of a frame, its header with it. Default 1472.
    pub frame_len_max: usize,
    /// Timeslots that a pair may be owed at a time; more is capped. Default 16,384, which is also
    /// the most.
    pub demand_slots_max: u32,
    /// What was told and not acknowledged for so long is told again, ns; longer than the pace of
    /// the endpoints' control packets, which acknowledge it. Default 200 us (design: arbiter.md
    /// section 4); of an [`crate::ArbiterConfig`] twice that pace at least.
    pub retry_ns: u64,
    /// An endpoint that is owed timeslots, or was told something, and has said nothing for so long
    /// is given none any more, and told nothing but now and then a reset, until it says something,
    /// ns. Default 20 ms; of an [`crate::ArbiterConfig`] eight times the
    /// pace of the endpoints' control packets at least.
    pub idle_timeout_ns: u64,
    /// Whether endpoints are told of as many batches at a time as have 64 timeslots together, if
    /// there is time: a third of the lead. Not where control packets wait for gaps between others.
    /// Default so.
    pub coalesces_grants: bool,
}

impl CommConfig {
    /// The defaults.
    pub const fn new(process: ProcessId, nodes: u32) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            nodes,
            slot_ns: 1_250,
            frame_len_max: 1_472,
            demand_slots_max: 1 << 14,
            retry_ns: RTO_MIN_NS,
            idle_timeout_ns: 20_000_000,
            coalesces_grants: true,
        }
    }

    /// What endpoints must be set up with alike.
    pub(super) const fn terms(&self) -> FcpParams {
        FcpParams { slot_ns: self.slot_ns as u32, nodes: self.nodes as u16 }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (frame, demand) = (self.frame_len_max as u32, self.demand_slots_max);
        check((2..=4096).contains(&self.nodes), "nodes", self.nodes)?;
        check((1..=SLOT_NS_MAX).contains(&self.slot_ns), "slot_ns", self.slot_ns)?;
        check(self.process.0 >= self.nodes, "process", self.process.0)?;
        check((256..=1 << 16).contains(&frame), "frame_len_max", frame)?;
        check((1..=1 << 14).contains(&demand), "demand_slots_max", demand)
    }
}

/// What it has done since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommStats {
    /// Control packets taken.
    pub received: u64,
    /// Control packets sent, and bytes of their frames.
    pub sent: u64,
    /// See above.
    pub sent_bytes: u64,
    /// Of the packets sent, those that say nothing but what was heard.
    pub sent_acks: u64,
    /// Timeslots demanded.
    pub demanded: u64,
    /// Timeslots told as granted, each once.
    pub advertised: u64,
    /// Timeslots granted that could not be told in time, or had no path: endpoints are told of
    /// them as totals only, and ask again.
    pub wasted: u64,
    /// Packets out of step.
    pub bad: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets with a reset that is too old, or not of this time.
    pub stale: u64,
    /// Resets begun here.
    pub resets: u64,
    /// Resets of endpoints taken over.
    pub resets_accepted: u64,
    /// PairTotals that had gone back: said before others that came earlier.
    pub backwards: u64,
    /// Timeslots wanted above what a pair may be owed.
    pub capped: u64,
    /// Requests for an endpoint that there is not.
    pub unknown_destinations: u64,
    /// Packets of endpoints that there are not: whose number is not below `nodes`.
    pub unknown_sources: u64,
    /// Resets of endpoints that are set up with another length of a timeslot, or number of
    /// endpoints, than this arbiter.
    pub terms_mismatch: u64,
    /// Frames that are no control packets.
    pub malformed: u64,
    /// Endpoints that fell silent while they were owed timeslots, or owed an acknowledgement.
    pub timed_out: u64,
    /// Timeslots that the allocator had no room for, or whose demand found none on its way to it:
    /// asked for again.
    pub refused: u64,
}
