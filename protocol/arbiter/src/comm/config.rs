//! Configuration and counters of the arbiter's sessions.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_timeslots::check_setting;
use onepipe_wire::FcpParams;

use crate::ConfigError;
use crate::clock::SLOT_NS_MAX;
use crate::fcp::SessionTimes;

/// Configuration of the arbiter's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommConfig {
    /// The process id of the arbiter, which is not below `nodes`.
    pub process: ProcessId,
    /// The incarnation of the arbiter.
    pub incarnation: Incarnation,
    /// Number of endpoints, 2 to 4096: the processes below this number.
    pub nodes: u32,
    /// Length of a timeslot, ns; endpoints must have the same setting. Default 1.25 us, the time of
    /// a frame at 10 Gbit/s; overridden by that of an [`crate::ArbiterConfig`].
    pub slot_ns: u64,
    /// Maximum length of a frame with its header. Default 1472.
    pub frame_len_max: usize,
    /// Maximum number of requested timeslots per pair; more is capped. Default and maximum 16,384.
    pub demand_slots_max: u32,
    /// Minimum retransmission timeout, ns; longer than the interval of the endpoints' control
    /// packets, which carry the acknowledgements. Default 200 us; in an [`crate::ArbiterConfig`] at
    /// least twice that interval.
    pub retry_ns: u64,
    /// Time without packets after which an endpoint with pending timeslots or unacknowledged
    /// packets is given up, ns: it gets no grants and only rare resets until it sends a packet.
    /// Default 20 ms; in an [`crate::ArbiterConfig`] at least eight times the interval of the
    /// endpoints' control packets.
    pub idle_timeout_ns: u64,
    /// Interval of probes to an unreachable endpoint, ns. An endpoint with something to send does
    /// not wait for them. Default 4 s: with 4,096 unreachable endpoints a thousand probes are sent
    /// per second.
    pub probe_ns: u64,
    /// Minimum interval of resets that reject endpoints with other parameters, ns. Default 2 ms.
    pub reject_interval_ns: u64,
    /// Times of each session.
    pub session: SessionTimes,
    /// Whether grants of successive batches share a packet, up to 64 timeslots, while a third of
    /// the lead is left. Not useful where control packets queue behind others. Default true.
    pub coalesces_grants: bool,
}

impl CommConfig {
    /// Returns the defaults.
    pub const fn new(process: ProcessId, nodes: u32) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            nodes,
            slot_ns: 1_250,
            frame_len_max: 1_472,
            demand_slots_max: 1 << 14,
            retry_ns: SessionTimes::DEFAULT.rto_ns_min,
            idle_timeout_ns: 20_000_000,
            probe_ns: 4_000_000_000,
            reject_interval_ns: 2_000_000,
            session: SessionTimes::DEFAULT,
            coalesces_grants: true,
        }
    }

    /// Returns the settings that must equal those of the endpoints.
    pub(super) const fn params(&self) -> FcpParams {
        FcpParams { slot_ns: self.slot_ns as u32, nodes: self.nodes as u16 }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (frame, demand) = (self.frame_len_max as u32, self.demand_slots_max);
        check_setting((2..=4096).contains(&self.nodes), "nodes", self.nodes)?;
        check_setting((1..=SLOT_NS_MAX).contains(&self.slot_ns), "slot_ns", self.slot_ns)?;
        self.session.check()?;
        check_setting(self.process.0 >= self.nodes, "process", self.process.0)?;
        check_setting((256..=1 << 16).contains(&frame), "frame_len_max", frame)?;
        check_setting((1..=1 << 14).contains(&demand), "demand_slots_max", demand)
    }
}

/// Counters of the arbiter's sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommStats {
    /// Control packets accepted.
    pub received: u64,
    /// Control packets sent.
    pub sent: u64,
    /// Bytes of the control packets sent, with frame headers.
    pub sent_bytes: u64,
    /// Control packets sent that carry only an acknowledgement.
    pub sent_acks: u64,
    /// Timeslots requested.
    pub demanded: u64,
    /// Granted timeslots that were advertised, each counted once.
    pub advertised: u64,
    /// Granted timeslots that could not be advertised in time or had no path. Endpoints learn of
    /// them by totals only, and request others.
    pub wasted: u64,
    /// Packets out of step.
    pub bad: u64,
    /// Duplicate or ambiguous packets.
    pub duplicates: u64,
    /// Packets with an outdated reset.
    pub stale: u64,
    /// Resets sent.
    pub resets: u64,
    /// Resets of endpoints accepted.
    pub resets_accepted: u64,
    /// Totals that decreased, as packets were reordered.
    pub backwards: u64,
    /// Requested timeslots above the maximum of a pair.
    pub capped: u64,
    /// Requests for endpoints that do not exist.
    pub unknown_destinations: u64,
    /// Packets of endpoints that do not exist, as their number is not below `nodes`.
    pub unknown_sources: u64,
    /// Resets of endpoints that are configured with another timeslot length or number of endpoints.
    pub params_mismatch: u64,
    /// Frames that are not valid control packets.
    pub malformed: u64,
    /// Endpoints given up after the idle timeout with pending timeslots or acknowledgements.
    pub timed_out: u64,
    /// Requested timeslots rejected because the demand queue or the allocator was full; endpoints
    /// request them again.
    pub refused: u64,
}
