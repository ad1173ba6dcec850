//! Status report of a member.

use onepipe_amcast::Member;
use serde::Serialize;

/// Counters and state of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Process id.
    pub process: u32,
    /// Group that the member belongs to.
    pub group: u16,
    /// Epoch of the member.
    pub epoch: u32,
    /// Whether the member leads its group.
    pub is_leader: bool,
    /// Messages in the log that are not complete.
    pub open: u64,
    /// Messages proposed.
    pub proposed: u64,
    /// Messages whose final timestamp became known.
    pub decided: u64,
    /// Messages reported to their clients as complete.
    pub completed: u64,
    /// Messages refused with `Busy`.
    pub busy: u64,
    /// Packets of other members that had restarted with an empty memory.
    pub reincarnated: u64,
    /// Packets received before the group had acknowledged this incarnation.
    pub early: u64,
    /// Packets of a past epoch, or of one that the member has not entered yet.
    pub other_epoch: u64,
    /// Packets of an epoch that no election can have led to yet.
    pub epochs_ahead: u64,
    /// Proposals received out of order.
    pub gaps: u64,
    /// Packets retransmitted, on request or by a timeout.
    pub retransmitted: u64,
    /// Packets that were malformed, from an unknown process, or addressed to another process.
    pub invalid: u64,
    /// Frames dropped because they came from another address than that of their sender.
    pub frames_misattributed: u64,
    /// Packets dropped because the outbox was full.
    pub outbox_dropped: u64,
    /// Times that the member was off its core.
    pub pauses: u64,
    /// Longest of them, in ns.
    pub pause_max_ns: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Batches of up to 64 frames received from the kernel (GRO).
    pub gro_batches_received: u64,
    /// Batches of up to 64 frames sent to the kernel (GSO).
    pub gso_batches_sent: u64,
}

impl Report {
    pub(crate) fn new(
        member: &Member,
        mesh: &onepipe_transport_amcast::Mesh,
        duty: &onepipe_transport_driver::Duty,
    ) -> Self {
        let (stats, udp) = (member.stats(), mesh.stats());
        Self {
            process: member.config().process.0,
            group: member.group().0,
            epoch: member.epoch(),
            is_leader: member.is_leader(),
            open: member.open(),
            proposed: stats.proposed,
            decided: stats.decided,
            completed: stats.completed,
            busy: stats.busy,
            reincarnated: stats.reincarnated,
            early: stats.early,
            other_epoch: stats.other_epoch,
            epochs_ahead: stats.epochs_ahead,
            gaps: stats.gaps,
            retransmitted: stats.retransmitted,
            invalid: stats.invalid,
            frames_misattributed: mesh.frames_misattributed(),
            outbox_dropped: member.outbox_dropped(),
            pauses: duty.pause_count,
            pause_max_ns: duty.pause_max_ns,
            frames_received: udp.frames_received,
            frames_sent: udp.frames_sent,
            gro_batches_received: udp.gro_batches_received,
            gso_batches_sent: udp.gso_batches_sent,
        }
    }
}
