//! Counters of the switch daemon.

use std::net::SocketAddr;

use onepipe_base::ProcessId;

/// Counters of the transport and of fault injection; the switch machine has counters of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ports assigned to neighbours.
    pub ports_assigned: u64,
    /// Ports reclaimed: their neighbour left, moved or was idle for long.
    pub ports_reclaimed: u64,
    /// Reports of the kernel that a neighbour's socket is closed; several for one death.
    pub neighbours_refused: u64,
    /// Frames from unknown senders that are no valid frames.
    pub frames_foreign: u64,
    /// Answers to joiners and to addresses that were not admitted.
    pub join_answers: u64,
    /// Frames under another identity than was admitted at their port, or of a kind that the
    /// neighbour there does not send.
    pub frames_misattributed: u64,
    /// Requests for admission without a free port.
    pub batches_without_port: u64,
    /// The last sender without a free port, as each had an active neighbour.
    pub last_rejected: Option<SocketAddr>,
    /// The last process named in a dropped frame that is beyond [`crate::Config::processes_max`].
    pub process_out_of_range: Option<ProcessId>,
    /// Frames of a process to itself, which are not forwarded: they show where it is.
    pub frames_to_self: u64,
    /// Copies of frames with several receivers that were lost for want of memory.
    pub copies_lost: u64,
    /// Frames marked because the switch's receive queue was long.
    pub frames_marked: u64,
    /// Ordered frames that reached the daemon before the kernel's switch handled their link, and
    /// advertisements of addresses: they are dropped.
    pub frames_bypassed: u64,
    /// Frames lost by fault injection.
    pub faults_lost: u64,
    /// Frames duplicated by fault injection.
    pub faults_duplicated: u64,
    /// Frames with a bit flipped by fault injection.
    pub faults_corrupted: u64,
    /// Frames reordered by fault injection.
    pub faults_reordered: u64,
    /// With [`crate::Config::racks`]: frames of granted timeslots between racks that name no
    /// existing path. Their arbiter is configured for another fabric.
    pub frames_without_path: u64,
}
