//! Acknowledgements: sent for accepted positions, received from other members.

use onepipe_wire::{Amcast, GroupId, GroupSet, Opcode};

use super::{Member, Role};
use crate::votes::Voter;

impl Member {
    /// Sends an acknowledgement of one position to `groups`.
    pub(super) fn send_ack(&mut self, position: u64, groups: GroupSet, epoch: u32) {
        let body = self.ack_packet(position, epoch);
        for group in groups.iter() {
            self.send_to_members(group, Opcode::AmcastAck, body, None, |_| true);
        }
    }

    //= spec/amcast.md#R6
    /// Sends another group a cumulative acknowledgement: this member has accepted the last position
    /// for that group and all before.
    pub(super) fn send_group_ack(&mut self, group: GroupId) {
        let position = self.last_accepted[group.index()];
        let entry = self.log.get(position).filter(|entry| entry.groups.contains(group));
        if entry.is_some() && self.is_synced() && self.accepted() > position {
            debug_assert!(position < self.log.end(), "what is accepted is in the log");
            let vote = self.ack_packet(position, self.promised);
            let body = Amcast { flags: vote.flags | Amcast::BEFORE, ..vote };
            self.send_to_members(group, Opcode::AmcastAck, body, None, |_| true);
        }
    }

    /// Returns the member at an index of the own group, as a voter.
    pub(super) fn voter(&self, member: usize) -> Voter {
        Voter { group: self.group, member }
    }

    pub(super) fn ack_packet(&self, position: u64, epoch: u32) -> Amcast {
        let Some(entry) = self.log.get(position) else { return self.new_packet() };
        let body = self.new_packet().with_message(entry.id, entry.groups);
        Amcast { epoch, timestamp: entry.timestamp, position, ..body }
    }

    /// Accepts the proposal of the member at `leader`, and acknowledges it.
    pub(super) fn accept(&mut self, position: u64, leader: usize, epoch: u32) {
        debug_assert_eq!(epoch, self.promised, "proposals of earlier epochs are not accepted");
        debug_assert!(self.is_synced(), "a vote is for a position of the epoch's log");
        let Some(entry) = self.log.get(position).copied() else { return };
        for member in [leader, self.index] {
            self.votes.vote(entry.id, self.voter(member), epoch, entry.timestamp);
        }
        if self.accepted == position && epoch == self.promised {
            self.accepted += 1;
        }
        if self.accepted() > position {
            for group in entry.groups.iter() {
                self.pending_acks = self.pending_acks.with(group);
                self.last_accepted[group.index()] = position;
            }
        } else {
            self.send_ack(position, entry.groups, epoch);
        }
        for member in self.ack_table.acked_by(self.group, position, epoch) {
            self.votes.vote(entry.id, self.voter(member), epoch, entry.timestamp);
        }
        self.on_votes(entry.id);
    }

    //= spec/amcast.md#R6
    /// Sends the own clock and the number of accepted positions to members of the own group.
    pub(super) fn send_cumulative_ack(&mut self, is_recipient: impl Fn(usize) -> bool, flags: u8) {
        if self.is_synced() {
            let body = Amcast { flags, position: self.accepted(), ..self.new_packet() };
            self.send_to_members(self.group, Opcode::AmcastAck, body, None, is_recipient);
        }
    }

    /// Handles a cumulative acknowledgement: a member has accepted all positions before `until`.
    fn on_accepted(&mut self, voter: Voter, epoch: u32, until: u64) {
        let group = voter.group;
        let new = self.ack_table.on_ack(group, voter.member, epoch, until);
        if group == self.group {
            if epoch != self.promised || !self.is_synced() {
                return;
            }
            for position in new.start.max(self.log.first_undecided())..new.end.min(self.log.end()) {
                let Some(entry) = self.log.get(position).copied() else { continue };
                if entry.decided.is_none() {
                    self.votes.vote(entry.id, voter, epoch, entry.timestamp);
                    self.on_votes(entry.id);
                }
            }
            return;
        }
        let first = new.end.saturating_sub(self.ack_table.capacity(group));
        for position in new.start.max(first)..new.end {
            let Some(id) = self.ack_table.message_at(group, position) else { continue };
            if self.votes.vote_at_position(id, voter, epoch, position) {
                self.on_votes(id);
            }
        }
    }

    pub(super) fn on_ack(&mut self, member: usize, body: &Amcast) {
        if body.group == self.group {
            // Raising the clock is always safe: later proposals only get later timestamps.
            self.clock = self.clock.max(body.clock);
            //= spec/amcast.md#R14
            if body.epoch == self.promised && self.is_synced() {
                self.clocks.on_clock(member, body.clock);
                if self.role == Role::Follower(Some(member)) {
                    self.clocks.on_leader_clock(body.count, body.clock);
                }
                let known = self.log_lens.get_mut(member);
                let known = known.filter(|count| count.is_none_or(|count| count < body.count));
                if let Some(count) = known {
                    *count = Some(body.count);
                    self.timer.reset();
                }
            } else {
                self.stats.other_epoch += 1;
            }
            if body.has(Amcast::WANTS_REPLY) && !body.has(Amcast::MESSAGE) {
                self.send_cumulative_ack(|other| other == member, 0);
            }
        }
        let voter = Voter { group: body.group, member };
        if !body.has(Amcast::MESSAGE) {
            self.on_accepted(voter, body.epoch, body.position);
        } else if body.has(Amcast::BEFORE) {
            self.on_accepted(voter, body.epoch, body.position.saturating_add(1));
        }
        if body.has(Amcast::MESSAGE) && self.open_cell(body.id, body.groups) {
            self.votes.vote(body.id, voter, body.epoch, body.timestamp);
            if body.group != self.group {
                self.on_remote_position(body);
            }
            if body.has(Amcast::DECIDED) && body.group != self.group {
                self.votes.set_agreed(body.id, body.group, body.timestamp);
            }
            self.on_votes(body.id);
        }
    }

    /// Records the position and timestamp that another group has assigned to a message.
    fn on_remote_position(&mut self, body: &Amcast) {
        let (id, group) = (body.id, body.group);
        //= spec/amcast.md#R5
        if body.timestamp > self.clock {
            self.clock = body.timestamp;
            self.pending_acks = self.pending_acks.with(self.group);
        }
        if self.votes.set_remote_position(id, group, body.epoch, body.position) {
            self.ack_table.set_message(group, body.position, id);
            for member in self.ack_table.acked_by(group, body.position, body.epoch) {
                let voter = Voter { group, member };
                self.votes.vote_at_position(id, voter, body.epoch, body.position);
            }
        }
    }
}
