//! Acknowledgements: sent for accepted positions, received from other members.

use onepipe_wire::{Amcast, GroupId, GroupSet, Opcode};

use super::{Member, Role};

impl Member {
    /// Sends an acknowledgement of one position to `groups`.
    pub(super) fn acknowledge(&mut self, position: u64, groups: GroupSet, epoch: u32) {
        let body = self.vote_of(position, epoch);
        for group in groups.iter() {
            self.tell_members(group, Opcode::AmcastAck, body, None, |_| true);
        }
    }

    /// Sends another group a cumulative acknowledgement: this member has accepted the last position
    /// for that group and all before.
    pub(super) fn acknowledge_all(&mut self, group: GroupId) {
        let position = self.last_taken[group.index()];
        let entry = self.log.get(position).filter(|entry| entry.groups.contains(group));
        if entry.is_some() && self.is_in() && self.taken() > position {
            let vote = self.vote_of(position, self.promised);
            let body = Amcast { flags: vote.flags | Amcast::BEFORE, ..vote };
            self.tell_members(group, Opcode::AmcastAck, body, None, |_| true);
        }
    }

    pub(super) fn vote_of(&self, position: u64, epoch: u32) -> Amcast {
        let Some(entry) = self.log.get(position) else { return self.own() };
        let body = self.own().of(entry.id, entry.groups);
        Amcast { epoch, timestamp: entry.timestamp, position, ..body }
    }

    /// Accepts the proposal of the member at `leader`, and acknowledges it.
    pub(super) fn take(&mut self, position: u64, leader: usize, epoch: u32) {
        let Some(entry) = self.log.get(position).copied() else { return };
        for place in [leader, self.place] {
            self.votes.vote(entry.id, (self.group, place), (epoch, entry.timestamp));
        }
        if self.taken == position && epoch == self.promised {
            self.taken += 1;
        }
        if self.taken() > position {
            for group in entry.groups.iter() {
                self.reporting = self.reporting.with(group);
                self.last_taken[group.index()] = position;
            }
        } else {
            self.acknowledge(position, entry.groups, epoch);
        }
        for place in self.others_taken.by(self.group, position, epoch) {
            self.votes.vote(entry.id, (self.group, place), (epoch, entry.timestamp));
        }
        self.on_votes(entry.id);
    }

    /// Sends the own clock and the number of accepted positions to members of the own group.
    pub(super) fn report(&mut self, is_told: impl Fn(usize) -> bool, flags: u8) {
        if self.is_in() {
            let body = Amcast { flags, position: self.taken(), ..self.own() };
            self.tell_members(self.group, Opcode::AmcastAck, body, None, is_told);
        }
    }

    /// Handles a cumulative acknowledgement: a member has accepted all positions before `until`.
    fn on_taken(&mut self, (group, place): (GroupId, usize), (epoch, until): (u32, u64)) {
        let new = self.others_taken.hear(group, place, (epoch, until));
        if group == self.group {
            if epoch != self.promised || !self.is_in() {
                return;
            }
            for position in new.start.max(self.log.undecided())..new.end.min(self.log.end()) {
                let Some(entry) = self.log.get(position).copied() else { continue };
                if entry.decided.is_none() {
                    self.votes.vote(entry.id, (group, place), (epoch, entry.timestamp));
                    self.on_votes(entry.id);
                }
            }
            return;
        }
        let first = new.end.saturating_sub(self.others_taken.positions(group));
        for position in new.start.max(first)..new.end {
            let Some(id) = self.others_taken.at(group, position) else { continue };
            if self.votes.vote_at(id, (group, place), (epoch, position)) {
                self.on_votes(id);
            }
        }
    }

    pub(super) fn on_ack(&mut self, place: usize, body: &Amcast) {
        if body.group == self.group {
            // Raising the clock is always safe: later proposals only get later timestamps.
            self.clock = self.clock.max(body.clock);
            if body.epoch == self.promised && self.is_in() {
                self.clocks.hear(place, body.clock);
                if self.role == Role::Follower(Some(place)) {
                    self.clocks.hear_leader(body.count, body.clock);
                }
                let known = self.counts.get_mut(place);
                let known = known.filter(|count| count.is_none_or(|count| count < body.count));
                if let Some(count) = known {
                    *count = Some(body.count);
                    self.pause.reset();
                }
            } else {
                self.stats.other_epoch += 1;
            }
            if body.has(Amcast::ASKS) && !body.has(Amcast::MESSAGE) {
                self.report(|other| other == place, 0);
            }
        }
        let voter = (body.group, place);
        if !body.has(Amcast::MESSAGE) {
            self.on_taken(voter, (body.epoch, body.position));
        } else if body.has(Amcast::BEFORE) {
            self.on_taken(voter, (body.epoch, body.position.saturating_add(1)));
        }
        if body.has(Amcast::MESSAGE) && self.begin(body.id, body.groups) {
            self.votes.vote(body.id, voter, (body.epoch, body.timestamp));
            if body.group != self.group {
                self.on_elsewhere(body);
            }
            if body.has(Amcast::DECIDED) && body.group != self.group {
                self.votes.agree(body.id, body.group, body.timestamp);
            }
            self.on_votes(body.id);
        }
    }

    /// Records the position and timestamp that another group has assigned to a message.
    fn on_elsewhere(&mut self, body: &Amcast) {
        let (id, group) = (body.id, body.group);
        if body.timestamp > self.clock {
            self.clock = body.timestamp;
            self.reporting = self.reporting.with(self.group);
        }
        if self.votes.locate(id, group, body.epoch, body.position) {
            self.others_taken.place(group, body.position, id);
            for place in self.others_taken.by(group, body.position, body.epoch) {
                self.votes.vote_at(id, (group, place), (body.epoch, body.position));
            }
        }
    }
}
