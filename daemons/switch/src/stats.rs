//! What has happened.

/// Counters of the world around the switch machine, which has counters of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Neighbours that got a port.
    pub ports_given: u64,
    /// Ports taken back: their neighbour left, moved or was silent for long.
    pub ports_taken: u64,
    /// Times that the kernel said that a neighbour is not there; several for one death.
    pub neighbours_refused: u64,
    /// Trains from strangers that bore no whole frame.
    pub trains_foreign: u64,
    /// Trains from strangers for whom there was no port.
    pub trains_without_port: u64,
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
}
