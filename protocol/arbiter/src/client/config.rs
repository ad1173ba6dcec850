//! Configuration of an endpoint of scheduled transfer, and its errors.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, ProcessId};
use onepipe_timeslots::check_setting;
use onepipe_wire::{ANY_LINK, FcpParams, NO_PATH, SHORT_HEADER_LEN, SLOT_HEADER_LEN};

use crate::clock::SLOT_NS_MAX;
use crate::fcp::SessionTimes;
use crate::{BATCH_SLOTS_MAX, ConfigError};

/// Bytes of the length field before each packet in a slot frame.
pub(crate) const LENGTH_BYTES: usize = 2;

/// How a path is encoded as a label: which switches choose a link, and among how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Number of switches before the first one that chooses: 0 if the endpoint's link leads to it.
    pub first: u8,
    /// Upper links of that switch; 0 if switches ignore labels. Path `p` takes link `p % uplinks`
    /// there, and link `p / uplinks` at the next switch up.
    pub uplinks: u8,
    /// Endpoints per pod; a path between them does not leave the pod. 0: one pod.
    pub pod_nodes: u32,
    /// Parallel links between a ToR switch and the next switch. Packets arrive through the link of
    /// the same number as that through which they left.
    pub parallel_links: u8,
    /// Parallel links between the switches above those.
    pub core_parallel_links: u8,
}

impl Labels {
    /// No labels: switches choose the links, as for other frames.
    pub const NONE: Self = Self::new(0, 0);

    /// Creates labels for a fabric without parallel links and pods.
    pub const fn new(first: u8, uplinks: u8) -> Self {
        Self { first, uplinks, pod_nodes: 0, parallel_links: 1, core_parallel_links: 1 }
    }

    //= spec/arbiter.md#R19
    pub(crate) fn label(self, path: u8, src: u32, dst: u32) -> [u8; 4] {
        let mut label = [ANY_LINK; 4];
        if path == NO_PATH || self.uplinks == 0 {
            return label;
        }
        let (parallel_links, core_parallel_links) =
            (self.parallel_links.max(1), self.core_parallel_links.max(1));
        let (up, above) = (path % self.uplinks, path / self.uplinks);
        let is_within = match (src.checked_div(self.pod_nodes), dst.checked_div(self.pod_nodes)) {
            (Some(from), Some(to)) => from == to,
            _ => above == 0,
        };
        let bytes = if is_within {
            [up, up % parallel_links, ANY_LINK, ANY_LINK]
        } else {
            // Down from the core to the spine of the same number as that on the way up.
            let spine = (up / parallel_links)
                .wrapping_mul(core_parallel_links)
                .wrapping_add(above % core_parallel_links);
            [up, above, spine, up % parallel_links]
        };
        let first = usize::from(self.first);
        label.iter_mut().skip(first).zip(bytes).for_each(|(byte, path)| *byte = path);
        label
    }
}

/// Configuration of a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The process id of this endpoint, below `nodes`.
    pub process: ProcessId,
    /// The incarnation of this endpoint.
    pub incarnation: Incarnation,
    /// Number of endpoints of the arbiter: the processes below this number.
    pub nodes: u32,
    /// The arbiters in the order in which they are asked. An arbiter that does not answer is
    /// followed by the next one, cyclically.
    pub arbiters: Vec<ProcessId>,
    /// Length of a timeslot, ns: the time of a frame of `frame_len_max` on the endpoint's link.
    pub slot_ns: u64,
    /// Maximum length of a frame with its header. Default 1472: a datagram on Ethernet.
    pub frame_len_max: usize,
    /// Timeslots' worth of packets that may wait for one destination. Default 256.
    pub queue_slots_max: u32,
    /// Timeslots' worth of packets that may wait in total. Default 1024.
    pub slots_max: u32,
    /// Maximum delay, in timeslots, at which a grant is still used. Default 16.
    pub late_slots_max: u32,
    /// Maximum number of timeslots before its begin at which a grant is accepted. Default 64 plus
    /// 130 us, twice the default lead of an arbiter.
    pub ahead_slots_max: u32,
    /// Mean interval of control packets, ns; bursts of up to four are allowed. Default 64
    /// timeslots.
    pub control_interval_ns: u64,
    /// How switches learn the path. Default [`Labels::NONE`].
    pub labels: Labels,
    /// Times of the session with the arbiter.
    pub session: SessionTimes,
    /// Maximum interval between unanswered resets, ns. Default 2 ms.
    pub reset_ns_max: u64,
    /// Interval at which totals are repeated while they are not granted, ns: the arbiter may have
    /// had no space for the demand, or its grant was lost. Default 5 ms.
    pub refresh_ns: u64,
    /// Interval of keepalives, ns. A replaced switch learns from them where the endpoint is
    /// attached. Default 1 s.
    pub keepalive_ns: u64,
    /// Minimum interval of loss reports, ns. Default 200 us.
    pub loss_report_ns: u64,
    /// Maximum reordering delay of slot frames, ns: about a few full queues. Default 100 us.
    pub reorder_ns: u64,
}

/// Mean interval of control packets in timeslots, which keeps them near 0.3 % of the traffic
/// (`docs/design/arbiter.md`, "What are the bytes of control packets for?").
pub(crate) const CONTROL_INTERVAL_SLOTS: u64 = 64;
/// Maximum burst of control packets.
pub(crate) const CONTROL_BURST: u64 = 4;

impl ClientConfig {
    /// The longest lead of an arbiter, ns, whose grants are accepted after
    /// [`ClientConfig::take_long_leads`]: twice the 2 ms of the daemon, as a process may be
    /// preempted for milliseconds on a machine with few cores.
    pub const LEAD_NS_MAX: u64 = 4_000_000;

    /// Accepts grants of arbiters with a lead of up to [`ClientConfig::LEAD_NS_MAX`] and two of the
    /// longest batches. Grants beyond that are rejected, and requested again.
    pub fn take_long_leads(&mut self) {
        let slots = 2 * u64::from(BATCH_SLOTS_MAX) + Self::LEAD_NS_MAX / self.slot_ns.max(1);
        self.ahead_slots_max = slots.min(1 << 16) as u32;
    }

    /// Returns the defaults.
    pub fn new(process: ProcessId, nodes: u32, arbiter: ProcessId, slot_ns: u64) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            nodes,
            arbiters: alloc::vec![arbiter],
            slot_ns,
            frame_len_max: 1_472,
            queue_slots_max: 256,
            slots_max: 1_024,
            late_slots_max: 16,
            ahead_slots_max: 64 + (130_000 / slot_ns.max(1)) as u32,
            control_interval_ns: CONTROL_INTERVAL_SLOTS * slot_ns,
            labels: Labels::NONE,
            session: SessionTimes::DEFAULT,
            reset_ns_max: 2_000_000,
            refresh_ns: 5_000_000,
            keepalive_ns: 1_000_000_000,
            loss_report_ns: 200_000,
            reorder_ns: 100_000,
        }
    }

    /// Returns the capacity of a timeslot: packets, each with two bytes for its length.
    pub const fn slot_payload_max(&self) -> usize {
        self.frame_len_max - SHORT_HEADER_LEN - SLOT_HEADER_LEN
    }

    /// Returns the settings that must equal those of the arbiters.
    pub(crate) const fn params(&self) -> FcpParams {
        FcpParams { slot_ns: self.slot_ns as u32, nodes: self.nodes as u16 }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let frame = self.frame_len_max as u32;
        check_setting((2..=1 << 15).contains(&self.nodes), "nodes", self.nodes)?;
        self.session.check()?;
        check_setting(self.process.0 < self.nodes, "process", self.process.0)?;
        check_setting(
            (1..=8).contains(&self.arbiters.len()),
            "arbiters",
            self.arbiters.len() as u32,
        )?;
        check_setting((1..=SLOT_NS_MAX).contains(&self.slot_ns), "slot_ns", self.slot_ns)?;
        check_setting((256..=1 << 16).contains(&frame), "frame_len_max", frame)?;
        check_setting(
            (1..=1 << 14).contains(&self.queue_slots_max),
            "queue_slots_max",
            self.queue_slots_max,
        )?;
        check_setting((1..=1 << 20).contains(&self.slots_max), "slots_max", self.slots_max)?;
        check_setting(self.late_slots_max <= 1 << 12, "late_slots_max", self.late_slots_max)?;
        check_setting(
            (1..=1 << 16).contains(&self.ahead_slots_max),
            "ahead_slots_max",
            self.ahead_slots_max,
        )
    }
}

/// An arbiter and an endpoint are configured with different timeslots or numbers of endpoints, so
/// that nothing is ever granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "arbiter {} has timeslots of {} ns and {} endpoints, and this endpoint was set up for {} ns and {}",
    .arbiter.0, .theirs.slot_ns, .theirs.nodes, .own.slot_ns, .own.nodes
)]
pub struct ParamsMismatch {
    /// The arbiter.
    pub arbiter: ProcessId,
    /// The arbiter's settings.
    pub theirs: FcpParams,
    /// The endpoint's settings.
    pub own: FcpParams,
}

/// Why a packet was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The queue of the destination, or that of all, is full.
    #[error("the queue is full (queue_slots_max per destination, slots_max in total)")]
    Full,
    /// The packet does not fit into a timeslot.
    #[error("{bytes} bytes do not fit into the {limit} of a timeslot")]
    TooLong {
        /// Length of the packet.
        bytes: usize,
        /// [`ClientConfig::slot_payload_max`], without the length field.
        limit: usize,
    },
    /// The destination does not exist, or is this endpoint.
    #[error("process {} is not another endpoint", .0.0)]
    Unknown(ProcessId),
}

#[cfg(test)]
mod tests {
    use super::*;

    //= spec/arbiter.md#R19
    #[test]
    fn label_names_each_link_through_parallel_links() {
        // The testbed of 1Pipe: pods of 16, 2 spines a pod, all bundles of four.
        let labels = Labels {
            first: 0,
            uplinks: 8,
            pod_nodes: 16,
            parallel_links: 4,
            core_parallel_links: 4,
        };
        // Up by link 6, which is the second spine's third; there by link 3 to the first core.
        assert_eq!(labels.label(6 + 8 * 3, 0, 17), [6, 3, 4 + 3, 2]);
        assert_eq!(labels.label(6, 0, 9), [6, 2, ANY_LINK, ANY_LINK], "within the pod");
        assert_eq!(labels.label(NO_PATH, 0, 1), [ANY_LINK; 4]);
        assert_eq!(Labels::NONE.label(3, 0, 17), [ANY_LINK; 4]);
        let tree = Labels::new(1, 4);
        assert_eq!(tree.label(2 + 4 * 3, 0, 17)[..3], [ANY_LINK, 2, 3]);
    }

    #[test]
    fn long_leads_cover_the_maximum_lead_and_two_batches() {
        for (slot_ns, slots) in [(1_250, 3_200 + 128), (100_000, 40 + 128), (10, 1 << 16)] {
            let mut config = ClientConfig::new(ProcessId(0), 8, ProcessId(9), slot_ns);
            config.take_long_leads();
            assert_eq!(config.ahead_slots_max, slots, "{slot_ns} ns");
        }
    }
}
