//! Invariants of a client. No input may break them.

use onepipe_wire::GroupId;

use super::{Client, OpenMessage};

impl Client {
    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the window.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        for (slot, open) in self.open.iter().enumerate() {
            let completed = &self.completed[slot];
            assert!(open.is_none() || completed.is_none(), "a slot is of one message");
            let turns = self.completed_order.iter().filter(|at| **at as usize == slot).count();
            assert_eq!(turns, usize::from(completed.is_some()), "a completion is reported once");
            let turns = self.send_queue.iter().filter(|at| **at as usize == slot).count();
            let Some(open) = open else {
                assert_eq!(turns, 0, "only open messages are sent");
                continue;
            };
            assert_eq!(turns, usize::from(open.is_queued), "a message is queued once");
            assert_eq!(self.slot(open.id.sequence), slot, "a message has one slot");
            assert_eq!(open.id.client, self.number, "messages are of this client");
            assert!(!open.pending.is_empty(), "an open message is not complete");
            let is_pending = |group: GroupId| open.pending.contains(group);
            assert!(open.send_to.iter().all(is_pending), "complete groups get nothing");
            let is_its = |group: GroupId| open.groups.contains(group);
            assert!(open.pending.iter().all(is_its), "destinations only");
            assert!(open.sent.is_some() || open.is_queued, "a message is sent at last");
        }
        let sent = self.open.iter().flatten().filter(|open| open.sent.is_some());
        self.congestion.check_invariants(sent.map(OpenMessage::wire_len));
        for (leader, group) in self.leaders.iter().zip(&self.config.groups.groups) {
            assert!(leader.1 < group.members.len(), "a leader is a member");
        }
    }
}
