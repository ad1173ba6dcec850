//! Counters of the control plane.

/// Counters since the creation of the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ControlStats {
    /// Floods and notices of controllers that are no longer active.
    pub floods_stale: u64,
    /// Frames of the control plane that are malformed or not meant for a process.
    pub frames_malformed: u64,
    /// Frames of the control plane whose sender is not a controller.
    pub frames_foreign: u64,
    /// Frames of dead instances, and from before their link was lost.
    pub frames_refused: u64,
    /// AnnounceAcks for previous incarnations of this process.
    pub announce_acks_stale: u64,
    /// Failures reported to this process, as ranges of processes.
    pub failures_reported: u64,
    /// Frozen links of this process that were resolved.
    pub links_resolved: u64,
    /// Links of this process whose peer a controller declared dead while they were up.
    pub links_declared_dead: u64,
}
