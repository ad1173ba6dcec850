//! Change of leader: promises, transfer of the log, and re-proposal of undecided positions.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, Now, ProcessId};
use onepipe_wire::{Amcast, LogicalTime, Opcode};

use super::{Member, MemberEvent, Role};
use crate::barrier::Clocks;
use crate::log::Entry;

impl Member {
    /// Timeouts of a log transfer after which a candidate chooses another source.
    const STALLS_MAX: u32 = 2;

    /// Starts an election with this member as the candidate for `epoch`. The caller must not
    /// appoint another leader for the same epoch. Returns `false` if the member has promised this
    /// epoch or a later one, or takes no part. [`MemberEvent::Leads`] reports success.
    pub fn lead(&mut self, now: Now, epoch: u32) -> bool {
        if epoch <= self.promised || !self.has_joined() || self.is_refused {
            return false;
        }
        self.promise(epoch, None);
        self.role = Role::Candidate;
        self.promises.fill(None);
        self.promises[self.index] = Some((u64::from(self.synced), self.log.end()));
        self.stalls = 0;
        self.timer.reset();
        self.due = Some(Mono::from_ns(now.mono.as_ns()));
        self.on_promises();
        self.advance(now);
        true
    }

    /// Handles a coordinator's probe (`WANTS_REPLY`) or appointment.
    pub(super) fn on_coordinator(&mut self, now: Now, src: ProcessId, body: &Amcast) -> bool {
        if !body.has(Amcast::WANTS_REPLY) {
            self.lead(now, body.epoch);
        }
        self.send(src, Opcode::AmcastPromise, self.status(), None);
        true
    }

    //= spec/amcast.md#R22
    /// Returns the member's status: its promise, the extent of its log, and whether it leads.
    fn status(&self) -> Amcast {
        let timestamp = LogicalTime(u64::from(self.synced));
        let own = self.new_packet();
        let is_follower = matches!(self.role, Role::Follower(_));
        let flags = own.flags | if is_follower { 0 } else { Amcast::LEADS };
        Amcast { timestamp, flags, position: self.log.first_undecided(), ..own }
    }

    //= spec/amcast.md#R22
    /// Promises `epoch`: packets of earlier epochs are rejected from now on.
    fn promise(&mut self, epoch: u32, leader: Option<usize>) {
        debug_assert!(epoch >= self.promised, "a promise is not revoked");
        if epoch > self.promised {
            self.promised = epoch;
            self.promised_to = None;
            self.transfer.cancel();
            //= spec/amcast.md#R4
            self.log.clear_buffered();
            (self.requested_until, self.request_len) = (0, Self::REQUEST_LEN);
            self.clocks = Clocks::NONE;
            self.accepted = 0;
            self.log_lens.fill(None);
        }
        self.role = Role::Follower(leader);
    }

    pub(super) fn on_new_leader(&mut self, member: usize, body: &Amcast) {
        if body.epoch < self.promised {
            self.stats.other_epoch += 1;
            return;
        }
        if body.has(Amcast::WANTS_REPLY) {
            if body.epoch > self.promised {
                self.promise(body.epoch, None);
            }
            //= spec/amcast.md#R22
            let is_follower = matches!(self.role, Role::Follower(_));
            if is_follower && *self.promised_to.get_or_insert(member) == member {
                self.send_to_member(member, Opcode::AmcastPromise, self.status());
            }
            return;
        }
        if body.epoch == self.promised && !matches!(self.role, Role::Follower(_)) {
            return;
        }
        self.promise(body.epoch, Some(member));
        if self.is_synced() {
            // The leader does not know yet that this member has the log.
            self.send_cumulative_ack(|other| other == member, 0);
        } else if self.transfer.from != Some(member) {
            self.start_transfer(member, body.count);
        }
    }

    pub(super) fn on_promise(&mut self, member: usize, body: &Amcast) {
        if body.epoch != self.promised {
            self.stats.other_epoch += 1;
            return;
        }
        // The source of the log is chosen once a majority has promised: later promises are ignored.
        if self.role == Role::Candidate && !self.has_promises() {
            self.promises[member] = Some((body.timestamp.0, body.count));
            //= spec/amcast.md#R25
            self.clock = self.clock.max(body.clock);
            self.on_promises();
        }
    }

    fn has_promises(&self) -> bool {
        self.promises.iter().flatten().count() >= self.majority() as usize
    }

    //= spec/amcast.md#R23
    /// With a majority of promises, chooses the log of the latest epoch; of these the longest one,
    /// and of several such logs the own one.
    fn on_promises(&mut self) {
        if !self.has_promises() {
            return;
        }
        let own = self.index;
        let given = self.promises.iter().enumerate();
        let given =
            given.filter_map(|(member, promise)| Some(((*promise)?, member == own, member)));
        let Some(((_, count), is_own, member)) = given.max() else { return };
        debug_assert_eq!(self.role, Role::Candidate, "only a candidate chooses a log");
        if is_own {
            self.start_leading();
        } else {
            self.start_transfer(member, count);
        }
    }

    //= spec/amcast.md#R23
    /// Handles a candidate's timeout. The source of the log may have failed since its promise: its
    /// promise is dropped after repeated timeouts, as any other majority will do.
    pub(super) fn retry_candidacy(&mut self) {
        self.stalls += 1;
        if let Some(member) = self.transfer.from.filter(|_| self.stalls > Self::STALLS_MAX) {
            self.promises[member] = None;
            self.transfer.cancel();
            self.stalls = 0;
        }
        self.request_promises();
        self.request_transfer();
    }

    /// Starts the transfer of the log of the member at index `member`, which has `count` positions.
    fn start_transfer(&mut self, member: usize, count: u64) {
        if !self.transfer.start(member, self.log.first_undecided(), count) {
            self.event = Some(MemberEvent::Behind);
        } else if self.transfer.is_complete() {
            self.install();
        } else {
            self.request_transfer();
        }
    }

    pub(super) fn request_transfer(&mut self) {
        let Some(member) = self.transfer.from else { return };
        let own = self.new_packet();
        let flags = own.flags | Amcast::FETCH;
        let body =
            Amcast { flags, position: self.transfer.next(), count: self.transfer.until(), ..own };
        self.send_to_member(member, Opcode::Gap, body);
    }

    pub(super) fn on_fetched(
        &mut self,
        member: usize,
        body: &Amcast,
        entry: Entry,
        message: &[u8],
    ) {
        if self.transfer.from != Some(member) || body.epoch != self.promised {
            return;
        }
        if self.transfer.push(body.position, entry, message) {
            self.timer.reset();
            self.stalls = 0;
            if self.transfer.is_complete() {
                self.install();
            } else if self.transfer.next().is_multiple_of(Self::REQUEST_LEN) {
                self.request_transfer();
            }
        }
    }

    //= spec/amcast.md#R24
    /// Installs the transferred log in place of the own undecided positions.
    fn install(&mut self) {
        debug_assert!(self.transfer.is_complete(), "a part of a log is no log");
        debug_assert!(!self.is_synced(), "the log of an epoch is installed once");
        while let Some(entry) = self.log.pop_undecided() {
            self.votes.clear_position(entry.id, self.log.end());
        }
        for position in self.log.end()..self.transfer.until() {
            let Some((entry, message)) = self.transfer.get(position) else { break };
            if !self.log.has_space() {
                // The barrier has not risen here while other members completed positions.
                self.event = Some(MemberEvent::Behind);
                self.transfer.cancel();
                return;
            }
            self.log.push(Entry { is_complete: false, ..entry }, message);
            self.clock = self.clock.max(entry.timestamp);
            self.bind_cell(position, entry.id, entry.groups);
        }
        let from = self.transfer.from.take();
        if self.role == Role::Candidate {
            self.start_leading();
        } else if let Some(leader) = from {
            self.synced = self.promised;
            self.clocks = Clocks::NONE;
            self.accepted = self.transfer.until().min(self.log.end());
            for position in self.log.first_undecided()..self.log.end() {
                self.accept(position, leader, self.synced);
            }
            self.send_cumulative_ack(|_| true, 0);
        }
    }

    //= spec/amcast.md#R25
    /// Takes over as leader: re-proposes undecided positions with their old timestamps.
    fn start_leading(&mut self) {
        debug_assert!(self.promised_to.is_none(), "no other candidate has this promise");
        debug_assert!(self.has_promises(), "a majority has promised");
        self.role = Role::Leader;
        self.synced = self.promised;
        self.clocks = Clocks::NONE;
        self.log_lens.fill(None);
        self.event = Some(MemberEvent::Leads(self.promised));
        self.timer.reset();
        self.announce_leadership();
        for position in self.log.first_undecided()..self.log.end() {
            if makes(Mistake::NewTimestamp) {
                self.clock = LogicalTime(self.clock.0 + 1);
                self.log.restamp(position, self.clock);
            }
            let Some(entry) = self.log.get(position).copied() else { continue };
            self.votes.vote(entry.id, self.voter(self.index), self.synced, entry.timestamp);
            self.send_proposal(position);
            self.on_votes(entry.id);
        }
    }

    /// Announces the leadership to members that have not reported the log of this epoch.
    pub(super) fn announce_leadership(&mut self) {
        let body = Amcast { position: self.log.first_undecided(), ..self.new_packet() };
        for member in 0..self.log_lens.len() {
            if self.log_lens[member].is_none() {
                self.send_to_member(member, Opcode::NewLeader, body);
            }
        }
    }

    /// Requests promises from the members that have not given one.
    fn request_promises(&mut self) {
        let own = self.new_packet();
        let body = Amcast { flags: own.flags | Amcast::WANTS_REPLY, ..own };
        for member in 0..self.promises.len() {
            if self.promises[member].is_none() {
                self.send_to_member(member, Opcode::NewLeader, body);
            }
        }
    }
}
