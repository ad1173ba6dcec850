//! What an arbiter has done, for people and programs.

use onepipe_arbiter::Desk;
use serde::Serialize;

/// Counters and state of an arbiter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Its process id.
    pub process: u32,
    /// Whether it gives out timeslots.
    pub is_primary: bool,
    /// The highest epoch that it knows of.
    pub epoch: u32,
    /// Times that it has become the primary.
    pub takeovers: u64,
    /// Batches given out.
    pub batches: u64,
    /// Timeslots that endpoints have asked for.
    pub slots_demanded: u64,
    /// Timeslots given to pairs.
    pub slots_granted: u64,
    /// Timeslots that passed unused because the daemon was late.
    pub slots_skipped: u64,
    /// Timeslots that are wanted and not yet given.
    pub slots_waiting: u64,
    /// Pairs that wait for timeslots.
    pub pairs_waiting: u32,
    /// Control packets taken.
    pub packets_received: u64,
    /// Control packets sent.
    pub packets_sent: u64,
    /// Control packets that were out of step, stale or nonsense.
    pub packets_bad: u64,
    /// Frames that were none, or not for this arbiter, or came while it was not the primary.
    pub frames_dropped: u64,
    /// Packets that endpoints have reported as lost.
    pub packets_lost: u64,
}

impl Report {
    pub(crate) fn new(arbiter: &Desk) -> Self {
        let (stats, comm) = (arbiter.stats(), arbiter.comm_stats());
        let (slots_waiting, pairs_waiting) = arbiter.waiting();
        Self {
            process: arbiter.config().comm.process.0,
            is_primary: arbiter.is_primary(),
            epoch: arbiter.epoch(),
            takeovers: stats.takeovers,
            batches: stats.batches,
            slots_demanded: comm.demanded,
            slots_granted: stats.given,
            slots_skipped: stats.skipped,
            slots_waiting,
            pairs_waiting,
            packets_received: comm.received,
            packets_sent: comm.sent,
            packets_bad: comm.bad + comm.stale + comm.malformed + comm.unknown,
            frames_dropped: stats.dropped,
            packets_lost: stats.lost,
        }
    }
}
