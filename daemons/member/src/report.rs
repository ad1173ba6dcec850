//! What a member has done, for people and programs.

use onepipe_amcast::Member;
use serde::Serialize;

/// Counters and state of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Its process id.
    pub process: u32,
    /// Its group.
    pub group: u16,
    /// The epoch that it is in.
    pub epoch: u32,
    /// Whether it leads.
    pub is_leader: bool,
    /// Messages in its log that are not over yet.
    pub open: u64,
    /// Messages proposed here.
    pub proposed: u64,
    /// Messages whose final timestamp became known.
    pub decided: u64,
    /// Messages that clients were told are over.
    pub completed: u64,
    /// Clients told to wait.
    pub busy: u64,
    /// Packets of an epoch that is over, or not known here yet.
    pub other_epoch: u64,
    /// Proposals that came before others that were still missing.
    pub gaps: u64,
    /// Packets that said something again, asked for or by time.
    pub retransmitted: u64,
    /// Packets that were malformed, of somebody unknown, or for somebody else.
    pub foreign: u64,
    /// Packets that found no room to wait in.
    pub outbox_dropped: u64,
    /// Frames taken from the socket.
    pub frames_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Datagrams, each of up to 64 frames, as the kernel takes and gives them.
    pub gro_batches_received: u64,
    /// The same of what was sent.
    pub gso_batches_sent: u64,
}

impl Report {
    pub(crate) fn new(member: &Member, mesh: &onepipe_transport_amcast::Mesh) -> Self {
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
            other_epoch: stats.other_epoch,
            gaps: stats.gaps,
            retransmitted: stats.retransmitted,
            foreign: stats.foreign,
            outbox_dropped: member.outbox_dropped(),
            frames_received: udp.frames_received,
            frames_sent: udp.frames_sent,
            gro_batches_received: udp.gro_batches_received,
            gso_batches_sent: udp.gso_batches_sent,
        }
    }
}
