//! Loss recovery: requests for missing positions, and retransmission.

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, LogicalTime, Opcode};

use super::{Member, MemberEvent, Role};

impl Member {
    /// Number of positions that are retransmitted on a request: by default, and at most.
    pub(crate) const BURST: u64 = 32;
    pub(crate) const BURST_MAX: u64 = 512;
    /// Number of undecided messages, oldest first, that are retransmitted on a timeout.
    const LOOKED_AFTER: u64 = 8;

    /// Handles a request of a member of the own group for positions of the log.
    pub(super) fn on_log_gap(&mut self, place: usize, src: ProcessId, body: &Amcast) {
        if body.has(Amcast::BEHIND) {
            // The requested positions may have arrived from another member meanwhile.
            let lacks =
                if self.stage.from.is_some() { self.stage.next() } else { self.log.undecided() };
            if lacks < body.position {
                self.event = Some(MemberEvent::Behind);
            }
            return;
        }
        let is_present = body.epoch == self.promised;
        // A follower may serve its log only as it was when it gave its promise.
        let is_fetch = body.has(Amcast::FETCH) && is_present;
        let is_fetch = is_fetch && matches!(self.role, Role::Leader | Role::Follower(None));
        if body.has(Amcast::FETCH) && !is_fetch {
            self.stats.other_epoch += 1;
            return;
        }
        if body.position < self.log.first() {
            self.tell_behind(src);
            return;
        }
        let is_leaders = self.role == Role::Leader && is_present;
        let until = if is_fetch { self.log.end().min(body.count) } else { self.log.end() };
        let aligned = Self::BURST - body.position % Self::BURST;
        let burst = if is_fetch { aligned } else { Self::told_at_a_time(body) };
        for position in body.position..until.min(body.position.saturating_add(burst)) {
            let Some(mut proposal) = self.proposal(position) else { continue };
            let is_decided = proposal.has(Amcast::DECIDED);
            if is_fetch {
                proposal.flags |= Amcast::FETCH;
            } else if !is_decided && (!is_leaders || position < body.count) {
                continue;
            }
            let is_told = |other| other == place;
            self.tell_members(self.group, Opcode::Prop, proposal, Some(position), is_told);
            self.stats.repeated += 1;
        }
    }

    /// Reports that the requested positions are not retained any more.
    fn tell_behind(&mut self, to: ProcessId) {
        let (flags, position) = (Amcast::BEHIND, self.log.first());
        self.tell(to, Opcode::Gap, Amcast { flags, position, ..self.own() }, None);
    }

    /// Returns how many positions the sender of `body` has requested.
    fn told_at_a_time(body: &Amcast) -> u64 {
        match body.timestamp.0.saturating_sub(body.position) {
            0 => Self::BURST,
            wanted => wanted.min(Self::BURST_MAX),
        }
    }

    /// Handles a request for acknowledgements of a message, or for its final timestamp.
    pub(super) fn on_message_gap(&mut self, src: ProcessId, body: &Amcast) {
        let cell = self.votes.get(body.id).filter(|cell| cell.id == body.id);
        let position = cell.and_then(|cell| cell.position);
        // The cell may be gone: the leader that has reported the message as complete may have
        // failed with all it knew, so look the message up in the log.
        let Some(position) = position.or_else(|| self.log.find(body.id)) else { return };
        let Some(entry) = self.log.get(position).copied() else { return };
        // Without the log of the present epoch, the count means nothing in that epoch: the leader
        // would take it for an acknowledgement and not send its log. Answer for the synced epoch.
        let own = Amcast { epoch: self.synced, ..self.own().of(entry.id, entry.groups) };
        // A clock raised since the promise of the next epoch must not count in the previous one:
        // the next leader only knows the clock that was reported with the promise.
        let clock = if self.is_in() { self.clock } else { LogicalTime(0) };
        let own = Amcast { clock, ..own };
        let vote = Amcast { timestamp: entry.timestamp, position, ..own };
        if entry.decided.is_some() {
            // Decided, so a majority has accepted the timestamp.
            let flags = own.flags | Amcast::DECIDED;
            self.tell(src, Opcode::AmcastAck, Amcast { flags, ..vote }, None);
        } else if self.is_in() {
            self.tell(src, Opcode::AmcastAck, vote, None);
        }
        self.stats.repeated += 1;
    }

    /// Handles a replica's report that it has everything before `body.position`. With `ASKS`, its
    /// incarnation `body.count` starts there, and a previous incarnation may have had more.
    pub(super) fn on_replica_gap(&mut self, replica: usize, src: ProcessId, body: &Amcast) {
        let begins = body.has(Amcast::ASKS);
        if self.wanted[replica] < body.position || begins {
            self.wanted[replica] = body.position.min(self.log.end());
            self.pause.reset();
        }
        if body.position < self.log.first() {
            self.tell_behind(src);
            return;
        }
        let from = body.position.min(self.log.undecided());
        let until = self.log.undecided().min(from + Self::told_at_a_time(body));
        for position in from..until {
            let Some(proposal) = self.proposal(position) else { continue };
            self.tell(src, Opcode::Prop, proposal, Some(position));
            self.stats.repeated += 1;
        }
        // The replica may lack nothing but the barrier.
        let settled = self.settled();
        // A starting replica waits for this answer, which echoes its incarnation: everything sent
        // later is sent to that incarnation.
        let (flags, position) = if begins { (Amcast::FETCH, body.count) } else { (0, 0) };
        self.tell(src, Opcode::Deliver, Amcast { flags, position, ..settled }, None);
    }

    /// Requests the positions that are missing at the end of the log.
    pub(super) fn ask_log(&mut self, place: usize) {
        let body = Amcast { position: self.log.undecided(), ..self.own() };
        // Few missing positions: ask from the first undecided one, as its decision may be missing
        // too. Many: only from the end of the log.
        let far = self.log.end() - self.log.undecided() >= Self::BURST;
        let early = self.log.first_early().unwrap_or(u64::MAX);
        let position = if far && early > self.log.end() { self.log.end() } else { body.position };
        self.asked_until = position.max(self.log.end()).saturating_add(self.burst).min(early);
        self.asked_until = self.asked_until.max(self.log.end() + 1);
        let timestamp = LogicalTime(self.asked_until);
        self.tell_place(place, Opcode::Gap, Amcast { position, timestamp, ..body });
    }

    /// Returns whether anything is outstanding, so that the timer must run.
    pub(super) fn is_unsettled(&self) -> bool {
        let has_open = self.log.undone() < self.log.end();
        let others = match self.role {
            Role::Candidate => true,
            Role::Leader => self.others_lack(),
            Role::Follower(_) => {
                self.stage.from.is_some()
                    || (self.is_in() && self.clocks.are_ahead_of(self.log.end()))
            }
        };
        has_open || others || self.wanted.iter().any(|wanted| *wanted < self.log.undecided())
    }

    fn others_lack(&self) -> bool {
        // Before the first proposal of the first epoch no report is needed.
        let end = self.log.end();
        let lacks = |(place, count): (usize, &Option<u64>)| {
            place != self.place && count.map_or(self.synced > 1 || end > 0, |count| count < end)
        };
        self.counts.iter().enumerate().any(lacks)
    }

    /// Handles a timeout. Without progress since the last one, retransmits what is open. With
    /// progress, there is nothing to repair: under load some message is always open.
    pub(super) fn on_due(&mut self) {
        let before = core::mem::replace(&mut self.undone_before, self.log.undone());
        let is_moving = before != self.log.undone();
        if is_moving {
            self.pause.reset();
        } else {
            self.stats.repeated += 1;
            self.patience.forget_timed();
        }
        match self.role {
            Role::Candidate => self.look_after_candidacy(),
            Role::Leader => {
                self.announce();
                let end = self.log.end();
                let counts = core::mem::take(&mut self.counts);
                let lacks = |place: usize| counts[place].is_none_or(|count| count < end);
                self.report(lacks, Amcast::ASKS);
                self.counts = counts;
            }
            Role::Follower(leader) => {
                self.ask_stage();
                if let Some(leader) = leader.filter(|_| self.is_in() && !is_moving) {
                    self.burst = Self::BURST;
                    self.ask_log(leader);
                }
            }
        }
        if is_moving {
            return;
        }
        if self.log.undone() < self.log.end() {
            self.look_after_open();
        }
        for replica in 0..self.wanted.len() {
            if self.wanted[replica] < self.log.undecided() {
                let own = self.config.groups.get(self.group).expect("it is a member of it");
                let (to, flags) = (own.replicas[replica], Amcast::ASKS);
                self.tell(to, Opcode::Deliver, Amcast { flags, ..self.settled() }, None);
            }
        }
    }

    fn look_after_open(&mut self) {
        // Request the other members' clocks, and what they know of positions undecided here.
        self.report(|_| true, Amcast::ASKS);
        if self.log.undecided() < self.log.end() {
            let body = Amcast { position: self.log.undecided(), ..self.own() };
            self.tell_members(self.group, Opcode::Gap, body, None, |_| true);
        }
        let from = self.log.undecided();
        for position in from..self.log.end().min(from + Self::LOOKED_AFTER) {
            let Some(proposal) = self.proposal(position) else { continue };
            if proposal.has(Amcast::DECIDED) {
                continue;
            }
            for group in proposal.groups.iter() {
                let by = self.votes.by(proposal.id, group);
                let is_agreed = self.votes.is_agreed(&self.config.groups, proposal.id, group);
                if is_agreed {
                    continue;
                }
                let is_own = group == self.group;
                let has_not = |place: usize| by >> place & 1 == 0;
                // The position may be lost in the other group together with its leader, so that no
                // member has the message: send it along.
                if self.role == Role::Leader {
                    let is_told = |place| !is_own || has_not(place);
                    self.tell_members(group, Opcode::Prop, proposal, Some(position), is_told);
                }
                if self.role != Role::Leader || !is_own {
                    let body = self.own().of(proposal.id, proposal.groups);
                    self.tell_members(group, Opcode::Gap, body, None, has_not);
                }
            }
        }
    }
}
