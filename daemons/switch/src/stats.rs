//! What has happened.

use std::net::SocketAddr;

use onepipe_base::ProcessId;

/// Counters of the world around the switch machine, which has counters of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Neighbours that got a port.
    pub ports_assigned: u64,
    /// Ports taken back: their neighbour left, moved or was silent for long.
    pub ports_reclaimed: u64,
    /// Times that the kernel said that a neighbour is not there; several for one death.
    pub neighbours_refused: u64,
    /// Trains from strangers that bore no whole frame.
    pub batches_foreign: u64,
    /// Trains from strangers for whom there was no port.
    pub batches_without_port: u64,
    /// The last stranger for whom there was no port, as each has a neighbour that is heard.
    pub last_rejected: Option<SocketAddr>,
    /// The last process that was named in a frame that was dropped, and is beyond
    /// [`crate::Config::processes_max`].
    pub process_out_of_range: Option<ProcessId>,
    /// Frames of a process to itself, which go no further: it says where it is.
    pub frames_to_self: u64,
    /// Frames marked because the switch's own queue was long.
    pub frames_marked: u64,
    /// Frames lost on purpose.
    pub faults_lost: u64,
    /// Frames sent twice on purpose.
    pub faults_duplicated: u64,
    /// Frames in which a bit was flipped on purpose.
    pub faults_corrupted: u64,
    /// Frames that were overtaken on purpose.
    pub faults_reordered: u64,
    /// With [`crate::Config::racks`]: frames of granted timeslots from one rack to another that
    /// name no path there is. Their arbiter is set up for another fabric.
    pub frames_without_path: u64,
}
