//! Delivery barrier of a group (`docs/design/amcast.md`, "Why the barrier is right").

use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::LogicalTime;

use crate::config::MEMBERS_MAX;
use crate::log::Log;

/// Clocks of the members of a group in one epoch, as known to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clocks {
    /// Clock by member index; 0 if none was received in this epoch.
    clocks: [LogicalTime; MEMBERS_MAX],
    /// Leader's clock at a point up to which the own log is complete: no later position has a
    /// timestamp at or below it.
    leader_clock: LogicalTime,
    /// Latest report of the leader: number of positions in its log, and its clock at that point.
    leader_latest: (u64, LogicalTime),
}

impl Clocks {
    pub const NONE: Self = Self {
        clocks: [LogicalTime(0); MEMBERS_MAX],
        leader_clock: LogicalTime(0),
        leader_latest: (0, LogicalTime(0)),
    };

    /// Handles a member's clock, received in this epoch.
    pub fn on_clock(&mut self, member: usize, clock: LogicalTime) {
        if let Some(known) = self.clocks.get_mut(member) {
            *known = (*known).max(clock);
        }
    }

    /// Handles the leader's clock, read when its log had `count` positions.
    pub fn on_leader_clock(&mut self, count: u64, clock: LogicalTime) {
        self.leader_latest = self.leader_latest.max((count, clock));
        debug_assert!(self.leader_latest.0 >= count, "reports of the leader never go back");
    }

    /// Returns whether the leader has reported more than `end` positions.
    pub fn is_leader_ahead_of(&self, end: u64) -> bool {
        self.leader_latest.0 > end
    }

    //= spec/amcast.md#R13
    /// Returns the barrier of a member with `log`: no message that this group decides later has a
    /// final timestamp at or below it. The barrier is the minimum of three bounds.
    pub fn barrier(&mut self, log: &Log, majority: usize) -> LogicalTime {
        // 1. The leader's clock, as far as no proposal before it is missing here.
        if self.leader_latest.0 <= log.end() || makes(Mistake::GapsIgnored) {
            self.leader_clock = self.leader_clock.max(self.leader_latest.1);
        }
        // 2. The first position without a final timestamp: that will not be below the group's own
        // timestamp.
        let pending = match log.get(log.first_undecided()) {
            Some(entry) if !makes(Mistake::PendingForgotten) => {
                LogicalTime(entry.timestamp.0.saturating_sub(1))
            }
            _ => LogicalTime(u64::MAX),
        };
        // 3. The highest clock that a majority has reached: one of these members has promised to
        // any later leader, which then proposes nothing at or below that clock.
        debug_assert!(majority > 0, "no clock is the clock of a majority");
        let members = (2 * majority).saturating_sub(1).min(MEMBERS_MAX);
        let mut clocks = self.clocks;
        let clocks = &mut clocks[..members];
        clocks.sort_unstable_by(|one, other| other.cmp(one));
        let quorum = match clocks.get(majority - 1) {
            Some(clock) if !makes(Mistake::QuorumForgotten) => *clock,
            _ => LogicalTime(u64::MAX),
        };
        pending.min(self.leader_clock).min(quorum)
    }

    /// Panics if a barrier is not covered by what members have reported: it lies below the first
    /// undecided position, and a majority has reached it.
    pub fn check_barrier(&self, barrier: LogicalTime, log: &Log, majority: usize) {
        if barrier == LogicalTime(0) {
            return;
        }
        let reached = self.clocks.iter().filter(|clock| **clock >= barrier).count();
        assert!(reached >= majority, "a majority has promised to propose nothing below");
        let is_above = log.get(log.first_undecided()).is_none_or(|entry| entry.timestamp > barrier);
        assert!(is_above, "an undecided message is delivered above the barrier");
        let (count, clock) = self.leader_latest;
        assert!(clock >= barrier, "the leader has promised it, too");
        assert!(count <= log.end() || clock > barrier || self.leader_clock >= barrier);
    }
}
