//! The start of a member: it announces its incarnation, and is acknowledged or refused.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{Amcast, Opcode};

use super::{Member, MemberEvent};
use crate::incarnations::refusal;

impl Member {
    //= spec/amcast.md#R36
    /// Returns whether the member takes part: it need not announce its incarnation, or a majority
    /// of its group, itself included, has acknowledged that.
    pub fn has_joined(&self) -> bool {
        !self.config.announces || self.known_by.count_ones() >= self.majority()
    }

    /// Returns whether every other member of the group has acknowledged this incarnation.
    pub fn is_known_by_all(&self) -> bool {
        self.known_by.count_ones() as usize == self.promises.len()
    }

    /// Returns whether the member has still to announce its incarnation.
    pub(super) fn is_announcing(&self) -> bool {
        self.config.announces && !self.is_known_by_all()
    }

    //= spec/amcast.md#R36
    /// Announces the own incarnation to the members that have not acknowledged it.
    pub(super) fn announce_incarnation(&mut self) {
        if self.is_announcing() {
            let known_by = self.known_by;
            let body = self.join_packet(Amcast::WANTS_REPLY, self.config.incarnation.0.into());
            let has_not = |member: usize| known_by >> member & 1 == 0;
            self.send_to_members(self.group, Opcode::Gap, body, None, has_not);
        }
    }

    //= spec/amcast.md#R36
    /// Counts a packet that arrived before the member has joined. Returns that it was valid.
    pub(super) fn drop_early(&mut self) -> bool {
        self.stats.early += 1;
        true
    }

    //= spec/amcast.md#R37
    /// Counts a packet of an epoch that cannot be. Returns that it was not valid.
    pub(super) fn drop_ahead(&mut self) -> bool {
        self.stats.epochs_ahead += 1;
        false
    }

    fn join_packet(&self, flags: u8, count: u64) -> Amcast {
        Amcast { flags: Amcast::JOIN | flags, count, ..Amcast::new(self.group, 0) }
    }

    //= spec/amcast.md#R35
    /// Refuses a member whose first incarnation was another one.
    pub(super) fn refuse(&mut self, member: ProcessId, incarnation: Incarnation) {
        self.stats.reincarnated += 1;
        self.send(member, Opcode::Gap, refusal(self.group, incarnation), None);
    }

    /// Handles an announcement, an acknowledgement of the own one, or a refusal. Returns whether
    /// the packet was valid.
    pub(super) fn on_join(&mut self, src: ProcessId, body: &Amcast) -> bool {
        let groups = &self.config.groups;
        let is_own = body.count == u64::from(self.config.incarnation.0);
        if body.has(Amcast::BEHIND) {
            let is_member = groups.groups.iter().any(|group| group.members.contains(&src));
            let is_known = is_member || self.config.coordinators.contains(&src);
            if is_known && is_own {
                self.stop();
            }
            return is_known;
        }
        let Some(member) = groups.member_index(body.group, src) else { return false };
        if body.group != self.group {
            return false;
        }
        if body.has(Amcast::WANTS_REPLY) {
            self.send(src, Opcode::Gap, self.join_packet(0, body.count), None);
        } else if is_own {
            debug_assert!(member < self.log_lens.len(), "the group has the member");
            self.known_by |= 1 << member;
            self.timer.reset();
        }
        true
    }

    //= spec/amcast.md#R35
    /// Stops for ever: this incarnation has lost what an earlier one had promised.
    fn stop(&mut self) {
        self.is_refused = true;
        self.due = None;
        self.event = Some(MemberEvent::Refused);
    }
}
