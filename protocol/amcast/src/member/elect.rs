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
    /// epoch or a later one. [`MemberEvent::Leads`] reports success.
    pub fn lead(&mut self, now: Now, epoch: u32) -> bool {
        if epoch <= self.promised {
            return false;
        }
        self.follow(epoch, None);
        self.role = Role::Candidate;
        self.promises.fill(None);
        self.promises[self.place] = Some((u64::from(self.synced), self.log.end()));
        self.stalls = 0;
        self.pause.reset();
        self.due = Some(Mono::from_ns(now.mono.as_ns()));
        self.on_promises();
        self.settle(now);
        true
    }

    /// Handles a coordinator's probe (`ASKS`) or appointment.
    pub(super) fn on_coordinator(&mut self, now: Now, src: ProcessId, body: &Amcast) -> bool {
        if !body.has(Amcast::ASKS) {
            self.lead(now, body.epoch);
        }
        self.tell(src, Opcode::AmcastPromise, self.standing(), None);
        true
    }

    /// Returns the member's status: its promise and the extent of its log.
    fn standing(&self) -> Amcast {
        let timestamp = LogicalTime(u64::from(self.synced));
        Amcast { timestamp, position: self.log.undecided(), ..self.own() }
    }

    /// Promises `epoch`: packets of earlier epochs are rejected from now on.
    fn follow(&mut self, epoch: u32, leader: Option<usize>) {
        if epoch > self.promised {
            self.promised = epoch;
            self.stage.cancel();
            self.log.forget_early();
            (self.asked_until, self.burst) = (0, Self::BURST);
            self.clocks = Clocks::NONE;
            self.taken = 0;
            self.counts.fill(None);
        }
        self.role = Role::Follower(leader);
    }

    pub(super) fn on_new_leader(&mut self, place: usize, body: &Amcast) {
        if body.epoch < self.promised {
            self.stats.other_epoch += 1;
            return;
        }
        if body.has(Amcast::ASKS) {
            if body.epoch > self.promised {
                self.follow(body.epoch, None);
            }
            if matches!(self.role, Role::Follower(_)) {
                self.tell_place(place, Opcode::AmcastPromise, self.standing());
            }
            return;
        }
        if body.epoch == self.promised && !matches!(self.role, Role::Follower(_)) {
            return;
        }
        self.follow(body.epoch, Some(place));
        if self.is_in() {
            // The leader does not know yet that this member has the log.
            self.report(|other| other == place, 0);
        } else if self.stage.from != Some(place) {
            self.fetch(place, body.count);
        }
    }

    pub(super) fn on_promise(&mut self, place: usize, body: &Amcast) {
        if body.epoch != self.promised {
            self.stats.other_epoch += 1;
            return;
        }
        // The source of the log is chosen once a majority has promised: later promises are ignored.
        if self.role == Role::Candidate && !self.has_promises() {
            self.promises[place] = Some((body.timestamp.0, body.count));
            self.clock = self.clock.max(body.clock);
            self.on_promises();
        }
    }

    fn has_promises(&self) -> bool {
        self.promises.iter().flatten().count() >= self.majority() as usize
    }

    /// With a majority of promises, chooses the log of the latest epoch; of these the longest one,
    /// and of several such logs the own one.
    fn on_promises(&mut self) {
        if !self.has_promises() {
            return;
        }
        let own = self.place;
        let given = self.promises.iter().enumerate();
        let given = given.filter_map(|(place, promise)| Some(((*promise)?, place == own, place)));
        let Some(((_, count), is_own, place)) = given.max() else { return };
        if is_own {
            self.begin_to_lead();
        } else {
            self.fetch(place, count);
        }
    }

    /// Handles a candidate's timeout. The source of the log may have failed since its promise: its
    /// promise is dropped after repeated timeouts, as any other majority will do.
    pub(super) fn look_after_candidacy(&mut self) {
        self.stalls += 1;
        if let Some(place) = self.stage.from.filter(|_| self.stalls > Self::STALLS_MAX) {
            self.promises[place] = None;
            self.stage.cancel();
            self.stalls = 0;
        }
        self.ask_promises();
        self.ask_stage();
    }

    /// Starts the transfer of the log of the member at `place`, which has `count` positions.
    fn fetch(&mut self, place: usize, count: u64) {
        if !self.stage.begin(place, self.log.undecided(), count) {
            self.event = Some(MemberEvent::Behind);
        } else if self.stage.is_whole() {
            self.install();
        } else {
            self.ask_stage();
        }
    }

    pub(super) fn ask_stage(&mut self) {
        let Some(place) = self.stage.from else { return };
        let own = self.own();
        let flags = own.flags | Amcast::FETCH;
        let body = Amcast { flags, position: self.stage.next(), count: self.stage.until(), ..own };
        self.tell_place(place, Opcode::Gap, body);
    }

    pub(super) fn on_fetched(&mut self, place: usize, body: &Amcast, entry: Entry, message: &[u8]) {
        if self.stage.from != Some(place) || body.epoch != self.promised {
            return;
        }
        if self.stage.push(body.position, entry, message) {
            self.pause.reset();
            self.stalls = 0;
            if self.stage.is_whole() {
                self.install();
            } else if self.stage.next().is_multiple_of(Self::BURST) {
                self.ask_stage();
            }
        }
    }

    /// Installs the transferred log in place of the own undecided positions.
    fn install(&mut self) {
        while let Some(entry) = self.log.pop_undecided() {
            self.votes.displace(entry.id, self.log.end());
        }
        for position in self.log.end()..self.stage.until() {
            let Some((entry, message)) = self.stage.get(position) else { break };
            if !self.log.has_room() {
                // The barrier has not risen here while other members completed positions.
                self.event = Some(MemberEvent::Behind);
                self.stage.cancel();
                return;
            }
            self.log.push(Entry { is_done: false, ..entry }, message);
            self.clock = self.clock.max(entry.timestamp);
            self.bind(position, entry.id, entry.groups);
        }
        let from = self.stage.from.take();
        if self.role == Role::Candidate {
            self.begin_to_lead();
        } else if let Some(leader) = from {
            self.synced = self.promised;
            self.clocks = Clocks::NONE;
            self.taken = self.stage.until().min(self.log.end());
            for position in self.log.undecided()..self.log.end() {
                self.take(position, leader, self.synced);
            }
            self.report(|_| true, 0);
        }
    }

    /// Takes over as leader: re-proposes undecided positions with their old timestamps.
    fn begin_to_lead(&mut self) {
        self.role = Role::Leader;
        self.synced = self.promised;
        self.clocks = Clocks::NONE;
        self.counts.fill(None);
        self.event = Some(MemberEvent::Leads(self.promised));
        self.pause.reset();
        self.announce();
        for position in self.log.undecided()..self.log.end() {
            if makes(Mistake::NewTimestamp) {
                self.clock = LogicalTime(self.clock.0 + 1);
                self.log.restamp(position, self.clock);
            }
            let Some(entry) = self.log.get(position).copied() else { continue };
            let voter = (self.group, self.place);
            self.votes.vote(entry.id, voter, (self.synced, entry.timestamp));
            self.send_proposal(position);
            self.on_votes(entry.id);
        }
    }

    /// Announces the leadership to members that have not reported the log of this epoch.
    pub(super) fn announce(&mut self) {
        let body = Amcast { position: self.log.undecided(), ..self.own() };
        for place in 0..self.counts.len() {
            if self.counts[place].is_none() {
                self.tell_place(place, Opcode::NewLeader, body);
            }
        }
    }

    /// Requests promises from the members that have not given one.
    fn ask_promises(&mut self) {
        let own = self.own();
        let body = Amcast { flags: own.flags | Amcast::ASKS, ..own };
        for place in 0..self.promises.len() {
            if self.promises[place].is_none() {
                self.tell_place(place, Opcode::NewLeader, body);
            }
        }
    }
}
