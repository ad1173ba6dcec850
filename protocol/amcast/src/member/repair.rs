//! Loss recovery: requests for missing positions, and retransmission.

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, LogicalTime, Opcode};

use super::{Member, MemberEvent, Role};

impl Member {
    /// Number of positions that are retransmitted on a request: by default, and at most.
    pub(crate) const REQUEST_LEN: u64 = 32;
    pub(crate) const REQUEST_LEN_MAX: u64 = 512;
    /// Number of undecided messages, oldest first, that are retransmitted on a timeout.
    const RETRANSMIT_MAX: u64 = 8;

    /// Handles a request of a member of the own group for positions of the log.
    pub(super) fn on_log_gap(&mut self, member: usize, src: ProcessId, body: &Amcast) {
        if body.has(Amcast::BEHIND) {
            // The requested positions may have arrived from another member meanwhile.
            let lacks = if self.transfer.from.is_some() {
                self.transfer.next()
            } else {
                self.log.first_undecided()
            };
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
            self.send_behind(src);
            return;
        }
        let is_leaders = self.role == Role::Leader && is_present;
        let until = if is_fetch { self.log.end().min(body.count) } else { self.log.end() };
        let aligned = Self::REQUEST_LEN - body.position % Self::REQUEST_LEN;
        let request_len = if is_fetch { aligned } else { Self::requested_len(body) };
        for position in body.position..until.min(body.position.saturating_add(request_len)) {
            let Some(mut proposal) = self.proposal(position) else { continue };
            let is_decided = proposal.has(Amcast::DECIDED);
            if is_fetch {
                proposal.flags |= Amcast::FETCH;
            } else if !is_decided && (!is_leaders || position < body.count) {
                continue;
            }
            let is_recipient = |other| other == member;
            self.send_to_members(self.group, Opcode::Prop, proposal, Some(position), is_recipient);
            self.stats.retransmitted += 1;
        }
    }

    //= spec/amcast.md#R31
    /// Reports that the requested positions are not retained any more.
    fn send_behind(&mut self, to: ProcessId) {
        let (flags, position) = (Amcast::BEHIND, self.log.first());
        self.send(to, Opcode::Gap, Amcast { flags, position, ..self.new_packet() }, None);
    }

    /// Returns how many positions the sender of `body` has requested.
    fn requested_len(body: &Amcast) -> u64 {
        match body.timestamp.0.saturating_sub(body.position) {
            0 => Self::REQUEST_LEN,
            wanted => wanted.min(Self::REQUEST_LEN_MAX),
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
        //= spec/amcast.md#R14
        // Without the log of the present epoch, the count means nothing in that epoch: the leader
        // would take it for an acknowledgement and not send its log. Answer for the synced epoch.
        let own =
            Amcast { epoch: self.synced, ..self.new_packet().with_message(entry.id, entry.groups) };
        //= spec/amcast.md#R14
        // A clock raised since the promise of the next epoch must not count in the previous one:
        // the next leader only knows the clock that was reported with the promise.
        let clock = if self.is_synced() { self.clock } else { LogicalTime(0) };
        let own = Amcast { clock, ..own };
        let vote = Amcast { timestamp: entry.timestamp, position, ..own };
        if entry.decided.is_some() {
            // Decided, so a majority has accepted the timestamp.
            let flags = own.flags | Amcast::DECIDED;
            self.send(src, Opcode::AmcastAck, Amcast { flags, ..vote }, None);
        } else if self.is_synced() {
            self.send(src, Opcode::AmcastAck, vote, None);
        }
        self.stats.retransmitted += 1;
    }

    /// Handles a replica's report that it has everything before `body.position`. With
    /// `WANTS_REPLY`, its incarnation `body.count` starts there, and a previous incarnation
    /// may have had more.
    pub(super) fn on_replica_gap(&mut self, replica: usize, src: ProcessId, body: &Amcast) {
        let begins = body.has(Amcast::WANTS_REPLY);
        if self.replica_next[replica] < body.position || begins {
            self.replica_next[replica] = body.position.min(self.log.end());
            self.timer.reset();
        }
        if body.position < self.log.first() {
            self.send_behind(src);
            return;
        }
        let from = body.position.min(self.log.first_undecided());
        let until = self.log.first_undecided().min(from + Self::requested_len(body));
        debug_assert!(from <= until, "replicas get decided positions");
        for position in from..until {
            let Some(proposal) = self.proposal(position) else { continue };
            self.send(src, Opcode::Prop, proposal, Some(position));
            self.stats.retransmitted += 1;
        }
        // The replica may lack nothing but the barrier.
        let barrier = self.barrier_packet();
        // A starting replica waits for this answer, which echoes its incarnation: everything sent
        // later is sent to that incarnation.
        let (flags, position) = if begins { (Amcast::FETCH, body.count) } else { (0, 0) };
        self.send(src, Opcode::Deliver, Amcast { flags, position, ..barrier }, None);
    }

    //= spec/amcast.md#R28
    /// Requests the positions that are missing at the end of the log.
    pub(super) fn request_missing(&mut self, member: usize) {
        let body = Amcast { position: self.log.first_undecided(), ..self.new_packet() };
        // Few missing positions: ask from the first undecided one, as its decision may be missing
        // too. Many: only from the end of the log.
        let far = self.log.end() - self.log.first_undecided() >= Self::REQUEST_LEN;
        let early = self.log.first_buffered().unwrap_or(u64::MAX);
        let position = if far && early > self.log.end() { self.log.end() } else { body.position };
        self.requested_until =
            position.max(self.log.end()).saturating_add(self.request_len).min(early);
        self.requested_until = self.requested_until.max(self.log.end() + 1);
        debug_assert!(position < self.requested_until, "a request is for a position at least");
        let timestamp = LogicalTime(self.requested_until);
        self.send_to_member(member, Opcode::Gap, Amcast { position, timestamp, ..body });
    }

    /// Returns whether anything is outstanding, so that the timer must run.
    pub(super) fn needs_timer(&self) -> bool {
        let has_open = self.log.first_open() < self.log.end();
        let others = match self.role {
            Role::Candidate => true,
            Role::Leader => self.followers_lag(),
            Role::Follower(_) => {
                self.transfer.from.is_some()
                    || (self.is_synced() && self.clocks.is_leader_ahead_of(self.log.end()))
            }
        };
        has_open
            || others
            || self.is_announcing()
            || self.replica_next.iter().any(|wanted| *wanted < self.log.first_undecided())
    }

    fn followers_lag(&self) -> bool {
        // Before the first proposal of the first epoch no report is needed.
        let end = self.log.end();
        let lacks = |(member, count): (usize, &Option<u64>)| {
            member != self.index && count.map_or(self.synced > 1 || end > 0, |count| count < end)
        };
        self.log_lens.iter().enumerate().any(lacks)
    }

    /// Handles a timeout. Without progress since the last one, retransmits what is open. With
    /// progress, there is nothing to repair: under load some message is always open.
    pub(super) fn on_timeout(&mut self) {
        let before = core::mem::replace(&mut self.first_open_before, self.log.first_open());
        let is_moving = before != self.log.first_open();
        if is_moving {
            self.timer.reset();
        } else {
            self.stats.retransmitted += 1;
            self.rtt.discard_sample();
        }
        match self.role {
            Role::Candidate => self.retry_candidacy(),
            Role::Leader => {
                self.announce_leadership();
                let end = self.log.end();
                let counts = core::mem::take(&mut self.log_lens);
                let lacks = |member: usize| counts[member].is_none_or(|count| count < end);
                self.send_cumulative_ack(lacks, Amcast::WANTS_REPLY);
                self.log_lens = counts;
            }
            Role::Follower(leader) => {
                self.request_transfer();
                if let Some(leader) = leader.filter(|_| self.is_synced() && !is_moving) {
                    self.request_len = Self::REQUEST_LEN;
                    self.request_missing(leader);
                }
            }
        }
        if is_moving {
            return;
        }
        if self.log.first_open() < self.log.end() {
            self.retransmit_open();
        }
        for replica in 0..self.replica_next.len() {
            if self.replica_next[replica] < self.log.first_undecided() {
                let own =
                    self.config.groups.get(self.group).expect("the member's own group exists");
                let (to, flags) = (own.replicas[replica], Amcast::WANTS_REPLY);
                self.send(to, Opcode::Deliver, Amcast { flags, ..self.barrier_packet() }, None);
            }
        }
    }

    fn retransmit_open(&mut self) {
        // Request the other members' clocks, and what they know of positions undecided here.
        self.send_cumulative_ack(|_| true, Amcast::WANTS_REPLY);
        if self.log.first_undecided() < self.log.end() {
            let body = Amcast { position: self.log.first_undecided(), ..self.new_packet() };
            self.send_to_members(self.group, Opcode::Gap, body, None, |_| true);
        }
        let from = self.log.first_undecided();
        for position in from..self.log.end().min(from + Self::RETRANSMIT_MAX) {
            let Some(proposal) = self.proposal(position) else { continue };
            if proposal.has(Amcast::DECIDED) {
                continue;
            }
            for group in proposal.groups.iter() {
                let voters = self.votes.voters(proposal.id, group);
                let is_agreed = self.votes.is_agreed(&self.config.groups, proposal.id, group);
                if is_agreed {
                    continue;
                }
                let is_own = group == self.group;
                let has_not = |member: usize| voters >> member & 1 == 0;
                // The position may be lost in the other group together with its leader, so that no
                // member has the message: send it along.
                if self.role == Role::Leader {
                    //= spec/amcast.md#R3
                    let is_recipient = |member| !is_own || has_not(member);
                    self.send_to_members(
                        group,
                        Opcode::Prop,
                        proposal,
                        Some(position),
                        is_recipient,
                    );
                }
                if self.role != Role::Leader || !is_own {
                    let body = self.new_packet().with_message(proposal.id, proposal.groups);
                    self.send_to_members(group, Opcode::Gap, body, None, has_not);
                }
            }
        }
    }
}
