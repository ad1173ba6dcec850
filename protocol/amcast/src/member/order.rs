//! Normal case: proposals, acknowledgements, final timestamps and the barrier.

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::{Amcast, GroupSet, LogicalTime, MessageId, Opcode};

use super::{Member, Role};
use crate::log::Entry;
use crate::votes::{Cell, Voter};

/// Upper bound of clocks and counts; enough for a message each ns for a century. Packets with
/// larger values are invalid, and would make the next timestamp overflow.
const COUNTER_MAX: u64 = 1 << 62;

//= spec/amcast.md#R33
/// Returns whether all clocks and counts of a packet are in range.
fn is_in_range(body: &Amcast) -> bool {
    let times = [body.timestamp, body.clock, body.barrier].map(|time| time.0);
    times.into_iter().chain([body.position, body.count]).all(|number| number < COUNTER_MAX)
}

impl Member {
    //= spec/amcast.md#R33
    /// Handles a packet. Returns whether it was valid.
    pub(super) fn on_packet(
        &mut self,
        opcode: Opcode,
        src: ProcessId,
        body: &Amcast,
        message: &[u8],
    ) -> bool {
        let groups = &self.config.groups;
        if !is_in_range(body) {
            return false;
        }
        if body.has(Amcast::JOIN) {
            return opcode == Opcode::Gap && self.on_join(src, body);
        }
        if !self.has_joined() {
            return self.drop_early();
        }
        if body.has(Amcast::MESSAGE) {
            let is_known = groups.is_valid_destination(body.groups)
                && body.groups.contains(self.group)
                && body.groups.contains(body.group)
                && (body.id.client as usize) < groups.clients.len();
            if !is_known || message.len() > groups.message_len_max() {
                return false;
            }
        }
        if opcode == Opcode::Start {
            let is_client = groups.clients.get(body.id.client as usize) == Some(&src);
            let is_right = is_client && body.has(Amcast::MESSAGE) && body.group == self.group;
            if is_right {
                self.on_start(body, message);
            }
            return is_right;
        }
        let own = groups.get(self.group).expect("the member's own group exists");
        if let Some(replica) = own.replicas.iter().position(|replica| *replica == src) {
            if opcode == Opcode::Gap && body.group == self.group {
                self.on_replica_gap(replica, src, body);
                return true;
            }
            return false;
        }
        let Some(member) = groups.member_index(body.group, src) else { return false };
        let is_own = body.group == self.group;
        match opcode {
            Opcode::Prop if body.has(Amcast::MESSAGE) && is_own => {
                self.on_own_proposal(member, body, message);
            }
            Opcode::Prop if body.has(Amcast::MESSAGE) => {
                self.on_remote_proposal(member, body, message)
            }
            Opcode::AmcastAck => self.on_ack(member, body),
            Opcode::Gap if body.has(Amcast::MESSAGE) => self.on_message_gap(src, body),
            Opcode::Gap if is_own => self.on_log_gap(member, src, body),
            Opcode::AmcastPromise if is_own => self.on_promise(member, body),
            Opcode::NewLeader if is_own => self.on_new_leader(member, body),
            _ => return false,
        }
        true
    }

    //= spec/amcast.md#R11
    /// Returns whether the message is complete in this group.
    fn is_complete(&self, id: MessageId) -> bool {
        self.votes.get(id).is_some_and(|cell| {
            cell.id.sequence > id.sequence || (cell.id == id && self.is_cell_complete(cell))
        })
    }

    fn is_cell_complete(&self, cell: &Cell) -> bool {
        match cell.position {
            None => false,
            Some(position) if position < self.log.first_open() => true,
            Some(position) => self.log.get(position).is_none_or(|entry| entry.is_complete),
        }
    }

    /// Opens a vote cell for the message unless there is one. Returns whether there is one now.
    pub(super) fn open_cell(&mut self, id: MessageId, groups: GroupSet) -> bool {
        if let Some(cell) = self.votes.get(id) {
            if cell.id == id {
                return cell.groups == groups;
            }
            let is_older = cell.id.sequence < id.sequence;
            if !is_older || (cell.position.is_some() && !self.is_cell_complete(cell)) {
                return false;
            }
        }
        self.votes.open(Cell { id, groups, position: None });
        true
    }

    //= spec/amcast.md#R11
    fn on_start(&mut self, body: &Amcast, message: &[u8]) {
        let (id, client) = (body.id, self.config.groups.clients[body.id.client as usize]);
        if self.is_complete(id) && !makes(Mistake::ProposedTwice) {
            let known = self.votes.get(id).filter(|cell| cell.id == id);
            let position = known.and_then(|cell| cell.position);
            let decided = position.and_then(|position| self.log.get(position)?.decided);
            let timestamp = decided.unwrap_or_default();
            let reply = Amcast { timestamp, ..self.new_packet().with_message(id, body.groups) };
            self.send(client, Opcode::Deliver, reply, None);
            self.stats.retransmitted += 1;
            return;
        }
        if self.role != Role::Leader || !self.open_cell(id, body.groups) {
            return;
        }
        let is_new = self.votes.get(id).is_some_and(|cell| cell.position.is_none());
        if !is_new && !makes(Mistake::ProposedTwice) {
            return;
        }
        if self.open() >= self.config.busy_threshold {
            // Packets that arrived together with this one may have completed open messages.
            self.on_barrier();
        }
        //= spec/amcast.md#R30
        if self.open() >= self.config.busy_threshold || !self.has_space() {
            self.stats.busy += 1;
            let body = self.new_packet().with_message(id, body.groups);
            self.send(client, Opcode::Busy, body, None);
            return;
        }
        self.propose(id, body.groups, message);
    }

    /// Returns whether the log has space for another position, after releasing complete ones.
    fn has_space(&mut self) -> bool {
        if !self.log.has_space() {
            self.on_barrier();
        }
        self.log.has_space()
    }

    fn propose(&mut self, id: MessageId, groups: GroupSet, message: &[u8]) {
        if !self.has_space() {
            return;
        }
        //= spec/amcast.md#R2
        debug_assert_eq!(self.role, Role::Leader, "only the leader proposes");
        debug_assert!(self.is_synced(), "a leader has the log of its epoch");
        self.clock = LogicalTime(self.clock.0 + 1);
        debug_assert!(self.clock > self.barrier, "nothing is proposed below the barrier");
        let (position, timestamp) = (self.log.end(), self.clock);
        let last = position.checked_sub(1).and_then(|last| self.log.get(last));
        debug_assert!(last.is_none_or(|last| last.timestamp < timestamp), "timestamps ascend");
        self.log.push(Entry { id, groups, timestamp, decided: None, is_complete: false }, message);
        self.votes.set_position(id, position);
        self.votes.vote(id, self.voter(self.index), self.synced, timestamp);
        self.stats.proposed += 1;
        self.timer.reset();
        self.send_proposal(position);
        let own = self.config.groups.get(self.group).expect("the member's own group exists");
        if let Some(body) = self.proposal(position) {
            for replica in &own.replicas {
                self.outbox.push(*replica, Opcode::Prop, body, Some(position));
            }
        }
        self.on_votes(id);
    }

    /// Returns the proposal packet for a position of the log.
    pub(super) fn proposal(&self, position: u64) -> Option<Amcast> {
        let entry = self.log.get(position)?;
        let body = self.new_packet().with_message(entry.id, entry.groups);
        let flags = body.flags | entry.decided.map_or(0, |_| Amcast::DECIDED);
        let barrier = entry.decided.unwrap_or_default();
        Some(Amcast { flags, timestamp: entry.timestamp, barrier, position, ..body })
    }

    //= spec/amcast.md#R3
    //= spec/amcast.md#R18
    /// Sends a proposal to all members of all destination groups. Members of other groups get the
    /// message from their own leader: they are sent an acknowledgement without the message, and the
    /// message itself only if they do not answer.
    pub(super) fn send_proposal(&mut self, position: u64) {
        let Some(body) = self.proposal(position) else { return };
        self.send_to_members(self.group, Opcode::Prop, body, Some(position), |_| true);
        self.send_ack(position, body.groups.without(self.group), body.epoch);
    }

    /// Handles a proposal of the own group.
    fn on_own_proposal(&mut self, member: usize, body: &Amcast, message: &[u8]) {
        let decided = body.has(Amcast::DECIDED).then_some(body.barrier);
        let (id, groups, timestamp) = (body.id, body.groups, body.timestamp);
        let entry = Entry { id, groups, timestamp, decided, is_complete: false };
        if body.has(Amcast::FETCH) {
            self.on_fetched(member, body, entry, message);
        }
        if decided.is_some() {
            self.on_decided_entry(body, entry, message);
        }
        if body.has(Amcast::FETCH) {
            return;
        }
        let is_stale = makes(Mistake::StaleEpoch) && body.epoch < self.promised;
        let is_leaders = self.role == Role::Follower(Some(member)) && self.is_synced();
        if !is_stale && (!is_leaders || body.epoch != self.promised) {
            self.stats.other_epoch += 1;
            return;
        }
        //= spec/amcast.md#R5
        self.clock = self.clock.max(timestamp).max(body.clock);
        let is_next = body.position == self.log.end() && !self.is_cell_blocked(id);
        if is_next && self.has_space() {
            self.log.push(entry, message);
            self.bind_cell(body.position, id, groups);
            self.timer.reset();
            self.accept(body.position, member, body.epoch);
        } else if body.position < self.log.end() {
            // A retransmission: the acknowledgement may have been lost.
            let is_it = self.log.get(body.position).is_some_and(|entry| entry.id == id);
            if is_it && decided.is_none() {
                self.votes.vote(id, self.voter(member), body.epoch, timestamp);
                self.on_votes(id);
                if self.accepted() > body.position {
                    self.send_cumulative_ack(|other| other == member, 0);
                } else {
                    let vote = self.ack_packet(body.position, body.epoch);
                    self.send_to_member(member, Opcode::AmcastAck, vote);
                }
                self.stats.retransmitted += 1;
            }
        } else {
            self.stats.gaps += 1;
            if !is_stale && decided.is_none() {
                self.log.buffer(body.position, entry, message);
            }
            if self.requested_until <= self.log.end() {
                self.request_missing(member);
            }
        }
        if body.epoch == self.synced {
            self.clocks.on_clock(member, body.clock);
            self.clocks.on_leader_clock(body.count, body.clock);
        }
    }

    //= spec/amcast.md#R4
    /// Accepts buffered out-of-order proposals once all before them have arrived. If more is
    /// missing than the last request covered, requests the rest as soon as that has arrived.
    pub(super) fn accept_buffered(&mut self) {
        let Role::Follower(Some(leader)) = self.role else { return };
        if !self.is_synced() {
            return;
        }
        while let Some(entry) = self.log.next_buffered()
            && !self.is_cell_blocked(entry.id)
            && self.has_space()
        {
            let position = self.log.end();
            self.log.push_buffered();
            self.bind_cell(position, entry.id, entry.groups);
            self.timer.reset();
            self.accept(position, leader, self.promised);
        }
        if self.requested_until > 0 && self.log.end() >= self.requested_until {
            if self.clocks.is_leader_ahead_of(self.log.end()) {
                self.request_len = (2 * self.request_len).min(Self::REQUEST_LEN_MAX);
                self.request_missing(leader);
            } else {
                (self.requested_until, self.request_len) = (0, Self::REQUEST_LEN);
            }
        }
    }

    //= spec/amcast.md#R12
    /// Returns whether the cell that this message will occupy still belongs to an undecided message
    /// of the same client. The leader must know that message's outcome, as the client has moved on,
    /// so the outcome is requested from the leader. If the cell's votes were dropped and that
    /// leader failed, no member could decide the message.
    fn is_cell_blocked(&self, id: MessageId) -> bool {
        let cell = self.votes.get(id).filter(|cell| cell.id.sequence < id.sequence);
        cell.is_some_and(|cell| {
            let entry = cell.position.and_then(|position| self.log.get(position));
            entry.is_some_and(|entry| entry.id == cell.id && entry.decided.is_none())
        })
    }

    /// Binds the cell of a message to its position in the log.
    pub(super) fn bind_cell(&mut self, position: u64, id: MessageId, groups: GroupSet) {
        let is_complete = position < self.log.first_open()
            || self.log.get(position).is_some_and(|entry| entry.is_complete);
        match self.votes.get(id).copied() {
            Some(cell) if cell.id == id => self.votes.set_position(id, position),
            // A later message of the client has the cell, and this one is complete. If the cell
            // were given back to the complete message, a message between the two that arrives late
            // would be taken for a new one. A later message that is only known from votes, not from
            // the log, does not prove that this one is complete.
            Some(cell)
                if cell.id.sequence > id.sequence && (is_complete || cell.position.is_some()) => {}
            _ => self.votes.open(Cell { id, groups, position: Some(position) }),
        }
    }

    /// Handles a proposal of another group for a message that is for the own group, too.
    fn on_remote_proposal(&mut self, member: usize, body: &Amcast, message: &[u8]) {
        if !self.open_cell(body.id, body.groups) {
            return;
        }
        let (voter, clock) = (Voter { group: body.group, member }, self.clock);
        self.votes.vote(body.id, voter, body.epoch, body.timestamp);
        self.clock = self.clock.max(body.timestamp);
        let is_new = self.votes.get(body.id).is_some_and(|cell| cell.position.is_none());
        //= spec/amcast.md#R3
        if is_new && self.role == Role::Leader {
            self.propose(body.id, body.groups, message);
        } else if self.clock > clock {
            self.pending_acks = self.pending_acks.with(self.group);
        }
        if body.has(Amcast::DECIDED) {
            self.votes.set_agreed(body.id, body.group, body.timestamp);
        }
        self.on_votes(body.id);
    }

    /// Decides the message if its final timestamp follows from the votes.
    pub(super) fn on_votes(&mut self, id: MessageId) {
        let Some(cell) = self.votes.get(id).filter(|cell| cell.id == id) else { return };
        let Some(position) = cell.position else { return };
        //= spec/amcast.md#R10
        // A vote in an epoch whose log is not installed here may refer to another position.
        let is_here = self.is_synced() && self.votes.epoch(id, self.group) <= self.synced;
        let is_open = self.log.get(position).is_some_and(|entry| entry.decided.is_none());
        if !is_here || !is_open {
            return;
        }
        if let Some(decided) = self.votes.decided(&self.config.groups, cell) {
            self.on_decided(position, decided);
        }
    }

    fn on_decided(&mut self, position: u64, decided: LogicalTime) {
        debug_assert!(position < self.log.end(), "a decided position is in the log");
        self.clock = self.clock.max(decided);
        if !self.log.decide(position, decided) {
            return;
        }
        self.timer.reset();
        self.stats.decided += 1;
        self.raise_barrier();
        let Some(entry) = self.log.get(position) else { return };
        let (id, groups) = (entry.id, entry.groups);
        let body = self.barrier_packet().with_message(id, groups);
        let flags = body.flags | Amcast::DECIDED;
        let body = Amcast { flags, timestamp: decided, position, ..body };
        self.send_to_replicas(body);
    }

    /// Handles a decided position received from another member. A decision is permanent.
    fn on_decided_entry(&mut self, body: &Amcast, entry: Entry, message: &[u8]) {
        let Some(decided) = entry.decided else { return };
        let (position, open) = (body.position, Entry { decided: None, ..entry });
        // A member of a later epoch may have decided what the leader of this epoch has not.
        self.learned_epoch = self.learned_epoch.max(body.epoch);
        let is_here = |known: &Entry| known.is_same_proposal(&entry);
        //= spec/amcast.md#R26
        if self.role == Role::Leader
            && position >= self.log.first()
            && !self.log.get(position).is_some_and(is_here)
        {
            // Only the leader of a later epoch can have assigned this position, so this epoch is
            // over. Anything proposed now would follow a position that it has not proposed itself.
            self.role = Role::Follower(None);
        }
        if position == self.log.end() && self.has_space() {
            self.log.push(open, message);
            self.accepted += u64::from(position == self.accepted && body.epoch <= self.promised);
        } else if self.log.get(position).is_some_and(|known| !known.is_same_proposal(&entry)) {
            let Some(old) = self.log.replace(position, open, message) else { return };
            self.votes.clear_position(old.id, position);
        } else if self.log.get(position).is_none() {
            return;
        }
        self.clock = self.clock.max(entry.timestamp);
        self.bind_cell(position, entry.id, entry.groups);
        self.on_decided(position, decided);
    }

    //= spec/amcast.md#R15
    pub(super) fn barrier_packet(&self) -> Amcast {
        Amcast { barrier: self.barrier, count: self.log.first_undecided(), ..self.new_packet() }
    }

    pub(super) fn send_to_replicas(&mut self, body: Amcast) {
        debug_assert!(self.advertised <= self.barrier, "barriers never go back");
        self.advertised = self.barrier;
        let own = self.config.groups.get(self.group).expect("the member's own group exists");
        for replica in &own.replicas {
            self.outbox.push(*replica, Opcode::Deliver, body, None);
        }
    }

    fn raise_barrier(&mut self) {
        if !self.is_synced() {
            return;
        }
        self.clocks.on_clock(self.index, self.clock);
        if self.role == Role::Leader {
            self.clocks.on_leader_clock(self.log.end(), self.clock);
        }
        let majority = self.majority() as usize;
        let barrier = self.clocks.barrier(&self.log, majority);
        if cfg!(debug_assertions) && barrier > self.barrier {
            self.clocks.check_barrier(barrier, &self.log, majority);
        }
        self.barrier = self.barrier.max(barrier);
    }

    /// Completes the positions at or below the barrier, and reports them.
    pub(super) fn on_barrier(&mut self) {
        self.raise_barrier();
        let mut has_more = false;
        while let Some(position) = self.log.pop_complete(self.barrier) {
            has_more = true;
            debug_assert!(position < self.log.end(), "a complete position is in the log");
            self.timer.reset();
            let Some(entry) = self.log.get(position).copied() else { continue };
            let client = self.config.groups.clients.get(entry.id.client as usize).copied();
            //= spec/amcast.md#R17
            if let (Role::Leader, Some(client)) = (self.role, client) {
                let timestamp = entry.decided.unwrap_or_default();
                let body = self.new_packet().with_message(entry.id, entry.groups);
                let body = Amcast { timestamp, position, ..body };
                self.send(client, Opcode::Deliver, body, None);
                self.stats.completed += 1;
            }
        }
        // Otherwise the replicas have nothing new to deliver at the raised barrier.
        if has_more && self.barrier > self.advertised {
            self.send_to_replicas(self.barrier_packet());
        }
    }
}
