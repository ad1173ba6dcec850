//! Invariants of a member, and of two members of one group. No input may break the first: whatever
//! other processes send, the state of this one does not contradict itself.

use super::{Member, Role};

impl Member {
    /// In debug builds, checks what each input may have broken.
    #[inline]
    pub(super) fn check_after_input(&self) {
        if cfg!(debug_assertions) {
            self.check_counts();
        }
    }

    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the positions of the log and in the window of all clients.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.check_counts();
        self.log.check_invariants();
        let is_at = |position, id| self.log.get(position).is_none_or(|entry| entry.id == id);
        self.votes.check_invariants(&self.config.groups, is_at);
        self.transfer.check_invariants();
        self.outbox.check_invariants();
        assert!(self.clock >= self.log.latest(), "a clock passes what the member has accepted");
        let members = self.log_lens.len();
        assert_eq!(self.promises.len(), members, "each member may promise");
        assert!(self.index < members, "the member is one of its group");
        assert_eq!(self.known_by >> members, 0, "only members know an incarnation");
        assert_eq!(self.known_by >> self.index & 1, 1, "a member knows itself");
        let lens = Self::REQUEST_LEN..=Self::REQUEST_LEN_MAX;
        assert!(lens.contains(&self.request_len), "requests are bounded");
        let groups = self.config.groups.groups.len();
        assert_eq!(self.last_accepted.len(), groups, "a position for each group");
        assert!(self.pending_acks.iter().all(|group| group.index() < groups), "groups exist");
    }

    /// Checks the epochs and the extent of the log.
    fn check_counts(&self) {
        self.log.check_counts();
        assert!(self.synced <= self.promised, "a log is of an epoch that was promised");
        assert!(self.accepted <= self.log.end(), "what is accepted is in the log");
        assert!(self.advertised <= self.barrier, "no barrier is sent before it is reached");
        match self.role {
            Role::Leader => {
                assert!(self.is_synced(), "a leader has the log of its epoch");
                assert!(self.transfer.from.is_none(), "and transfers no other one");
            }
            Role::Candidate => {
                assert!(!self.is_synced(), "a candidate is of a later epoch");
                assert!(self.promises[self.index].is_some(), "and promises to itself");
            }
            Role::Follower(leader) => {
                assert!(leader.is_none_or(|leader| leader < self.log_lens.len()), "of the group");
            }
        }
        assert!(!self.is_refused || self.due.is_none(), "a refused member has stopped");
    }

    /// Checks that two members of one group agree: on the positions that both have decided, and on
    /// the proposals of an epoch whose log both have. For tests and simulations, in which no member
    /// lies.
    ///
    /// # Panics
    /// If they differ: a bug of this crate, or a member that lies.
    pub fn check_agreement(&self, other: &Self) {
        assert_eq!(self.group, other.group, "members of one group");
        let has_epoch = |member: &Self| member.learned_epoch <= member.synced;
        let is_same_epoch = self.synced == other.synced && has_epoch(self) && has_epoch(other);
        let both_lead = self.is_leader() && other.is_leader() && self.index != other.index;
        assert!(!both_lead || self.promised != other.promised, "an epoch has one leader");
        let (first, end) = (self.log.first().max(other.log.first()), self.log.end());
        for position in first..end.min(other.log.end()) {
            let (Some(own), Some(their)) = (self.log.get(position), other.log.get(position)) else {
                continue;
            };
            if let (Some(own_final), Some(their_final)) = (own.decided, their.decided) {
                assert_eq!(own.id, their.id, "position {position} has one message");
                assert_eq!(own.timestamp, their.timestamp, "with one timestamp of the group");
                assert_eq!(own_final, their_final, "and one final timestamp");
            }
            let is_same = own.is_same_proposal(their);
            assert!(is_same || !is_same_epoch, "proposals of an epoch agree at {position}");
        }
    }
}
