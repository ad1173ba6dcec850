//! Up to where the order of a group is settled (design: amcast.md, "Delivery safety").

use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::LogicalTime;

use crate::config::MEMBERS_MAX;
use crate::log::Log;

/// What one member knows of the clocks of its group in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clocks {
    /// Those of the members, by their places; 0: not heard of in this epoch.
    clocks: [LogicalTime; MEMBERS_MAX],
    /// The leader's clock and how many positions it had then: no later one has a timestamp at or
    /// below it. The last that was in order, and the last of all.
    seen: LogicalTime,
    ahead: (u64, LogicalTime),
}

impl Clocks {
    pub const NONE: Self = Self {
        clocks: [LogicalTime(0); MEMBERS_MAX],
        seen: LogicalTime(0),
        ahead: (0, LogicalTime(0)),
    };

    /// A member's clock, told in this epoch.
    pub fn hear(&mut self, place: usize, clock: LogicalTime) {
        if let Some(known) = self.clocks.get_mut(place) {
            *known = (*known).max(clock);
        }
    }

    /// The leader's clock when it had `count` positions.
    pub fn hear_leader(&mut self, count: u64, clock: LogicalTime) {
        self.ahead = self.ahead.max((count, clock));
    }

    /// Whether the leader has said that it has more positions than `end`.
    pub fn are_ahead_of(&self, end: u64) -> bool {
        self.ahead.0 > end
    }

    /// The barrier of a member that has `log`.
    pub fn barrier(&mut self, log: &Log, majority: usize) -> LogicalTime {
        if self.ahead.0 <= log.end() || makes(Mistake::GapsIgnored) {
            self.seen = self.seen.max(self.ahead.1);
        }
        let pending = match log.get(log.undecided()) {
            Some(entry) if !makes(Mistake::PendingForgotten) => {
                LogicalTime(entry.timestamp.0.saturating_sub(1))
            }
            _ => LogicalTime(u64::MAX),
        };
        let members = (2 * majority).saturating_sub(1).min(MEMBERS_MAX);
        let mut clocks = self.clocks;
        let clocks = &mut clocks[..members];
        clocks.sort_unstable_by(|one, other| other.cmp(one));
        let quorum = match clocks.get(majority - 1) {
            Some(clock) if !makes(Mistake::QuorumForgotten) => *clock,
            _ => LogicalTime(u64::MAX),
        };
        pending.min(self.seen).min(quorum)
    }
}
