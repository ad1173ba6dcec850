//! What the controllers' frames have brought.

/// Counters, all since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ControlStats {
    /// Waves and notices of controllers that are not active any more.
    pub floods_stale: u64,
    /// Frames of the controllers' range that make no sense, or none to a process.
    pub frames_malformed: u64,
    /// Frames of the controllers' range from somebody who is no controller.
    pub frames_foreign: u64,
    /// Frames of dead lives, and from before their link was lost.
    pub frames_refused: u64,
    /// Welcomes of former lives of this process.
    pub announce_acks_stale: u64,
    /// Failures told to this process, as ranges of processes.
    pub failures_reported: u64,
    /// Dead links of this process that were resolved.
    pub links_resolved: u64,
    /// Links of this process whose other end a controller declared dead while they were up.
    pub links_declared_dead: u64,
}
