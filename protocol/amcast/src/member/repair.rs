//! What was lost is asked for and said again.

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, LogicalTime, Opcode};

use super::{Member, MemberEvent, Role};

impl Member {
    /// Positions that are told at a time, if whoever asks says nothing else, and at most.
    pub(crate) const BURST: u64 = 32;
    pub(crate) const BURST_MAX: u64 = 512;
    /// Open messages that are looked after at a time, the oldest.
    const LOOKED_AFTER: u64 = 8;

    /// Somebody of the own group lacks positions.
    pub(super) fn on_log_gap(&mut self, place: usize, src: ProcessId, body: &Amcast) {
        if body.has(Amcast::BEHIND) {
            // What was asked for may have come since, from where it had waited.
            let lacks =
                if self.stage.from.is_some() { self.stage.next() } else { self.log.undecided() };
            if lacks < body.position {
                self.event = Some(MemberEvent::Behind);
            }
            return;
        }
        let is_present = body.epoch == self.promised;
        // The log as it was when the promise was given, or as the leader has it.
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

    /// What was asked for is no more.
    fn tell_behind(&mut self, to: ProcessId) {
        let (flags, position) = (Amcast::BEHIND, self.log.first());
        self.tell(to, Opcode::Gap, Amcast { flags, position, ..self.own() }, None);
    }

    /// How many positions are told to whom `body` comes from.
    fn told_at_a_time(body: &Amcast) -> u64 {
        match body.timestamp.0.saturating_sub(body.position) {
            0 => Self::BURST,
            wanted => wanted.min(Self::BURST_MAX),
        }
    }

    /// Somebody lacks acknowledgements of a message, or its final timestamp.
    pub(super) fn on_message_gap(&mut self, src: ProcessId, body: &Amcast) {
        let cell = self.votes.get(body.id).filter(|cell| cell.id == body.id);
        let position = cell.and_then(|cell| cell.position);
        // A leader that had told the client that it is over may have died with what it knew.
        let Some(position) = position.or_else(|| self.log.find(body.id)) else { return };
        let Some(entry) = self.log.get(position).copied() else { return };
        // Without the log of its epoch its clock and count mean nothing in that: a leader that took
        // them for an answer would not give it the log.
        let own = Amcast { epoch: self.synced, ..self.own().of(entry.id, entry.groups) };
        // Nor may the clock that has risen since it promised another epoch count in the one before:
        // the leader of the next one knows of the clock of the promise only.
        let clock = if self.is_in() { self.clock } else { LogicalTime(0) };
        let own = Amcast { clock, ..own };
        let vote = Amcast { timestamp: entry.timestamp, position, ..own };
        if entry.decided.is_some() {
            // So a majority has taken it, whoever asks.
            let flags = own.flags | Amcast::DECIDED;
            self.tell(src, Opcode::AmcastAck, Amcast { flags, ..vote }, None);
        } else if self.is_in() {
            self.tell(src, Opcode::AmcastAck, vote, None);
        }
        self.stats.repeated += 1;
    }

    /// A replica has everything before `body.position`; ASKS: its life `body.count` begins there,
    /// and a former one may have had more.
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
        // It may lack nothing but the barrier.
        let settled = self.settled();
        // Who begins waits for this: whatever is told it from now on is told this life.
        let (flags, position) = if begins { (Amcast::FETCH, body.count) } else { (0, 0) };
        self.tell(src, Opcode::Deliver, Amcast { flags, position, ..settled }, None);
    }

    /// Asks for what is missing at the end of the log.
    pub(super) fn ask_log(&mut self, place: usize) {
        let body = Amcast { position: self.log.undecided(), ..self.own() };
        // What is missing comes behind what is not decided: from there on, if there is much.
        let far = self.log.end() - self.log.undecided() >= Self::BURST;
        let early = self.log.first_early().unwrap_or(u64::MAX);
        let position = if far && early > self.log.end() { self.log.end() } else { body.position };
        self.asked_until = position.max(self.log.end()).saturating_add(self.burst).min(early);
        self.asked_until = self.asked_until.max(self.log.end() + 1);
        let timestamp = LogicalTime(self.asked_until);
        self.tell_place(place, Opcode::Gap, Amcast { position, timestamp, ..body });
    }

    /// Whether anything is missing, so that time will help.
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
        // Before there is anything, nobody needs to be heard.
        let end = self.log.end();
        let lacks = |(place, count): (usize, &Option<u64>)| {
            place != self.place && count.map_or(self.synced > 1 || end > 0, |count| count < end)
        };
        self.counts.iter().enumerate().any(lacks)
    }

    /// Some time has passed. What is open is looked after if nothing has become over in it: under
    /// load something always is open, and there is no harm in that.
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
        // The clocks of the others, and what they know of what is undecided here.
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
                // What was taken there may be lost with its leader, and then nobody there has the
                // message: so it goes with the question.
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
