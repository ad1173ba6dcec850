//! The normal case: proposals, acknowledgements, final timestamps, barriers.

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};
use onepipe_wire::{Amcast, GroupSet, LogicalTime, MessageId, Opcode};

use super::{Member, Role};
use crate::log::Entry;
use crate::votes::Cell;

/// No clock and no count comes here: a message each ns for a century. What says more is no
/// member's, and would make the next timestamp overflow.
const NUMBERS_MAX: u64 = 1 << 62;

/// Whether a clock or a count is one that there can be.
fn has_real_numbers(body: &Amcast) -> bool {
    let times = [body.timestamp, body.clock, body.barrier].map(|time| time.0);
    times.into_iter().chain([body.position, body.count]).all(|number| number < NUMBERS_MAX)
}

impl Member {
    /// Takes a packet. Answers whether it made sense.
    pub(super) fn on_packet(
        &mut self,
        opcode: Opcode,
        src: ProcessId,
        body: &Amcast,
        message: &[u8],
    ) -> bool {
        let groups = &self.config.groups;
        if !has_real_numbers(body) {
            return false;
        }
        if body.has(Amcast::MESSAGE) {
            let is_known = groups.can_be_for(body.groups)
                && body.groups.contains(self.group)
                && body.groups.contains(body.group)
                && (body.id.client as usize) < groups.clients.len();
            if !is_known || message.len() > groups.message_octets_max() {
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
        let own = groups.get(self.group).expect("it is a member of it");
        if let Some(replica) = own.replicas.iter().position(|replica| *replica == src) {
            if opcode == Opcode::Gap && body.group == self.group {
                self.on_replica_gap(replica, src, body);
                return true;
            }
            return false;
        }
        let Some(place) = groups.member_place(body.group, src) else { return false };
        let is_own = body.group == self.group;
        match opcode {
            Opcode::Prop if body.has(Amcast::MESSAGE) && is_own => {
                self.on_own_prop(place, body, message);
            }
            Opcode::Prop if body.has(Amcast::MESSAGE) => self.on_other_prop(place, body, message),
            Opcode::AmcastAck => self.on_ack(place, body),
            Opcode::Gap if body.has(Amcast::MESSAGE) => self.on_message_gap(src, body),
            Opcode::Gap if is_own => self.on_log_gap(place, src, body),
            Opcode::AmcastPromise if is_own => self.on_promise(place, body),
            Opcode::NewLeader if is_own => self.on_new_leader(place, body),
            _ => return false,
        }
        true
    }

    /// Whether nobody waits for the message here any more.
    fn is_over(&self, id: MessageId) -> bool {
        self.votes.get(id).is_some_and(|cell| {
            cell.id.sequence > id.sequence || (cell.id == id && self.is_cell_over(cell))
        })
    }

    fn is_cell_over(&self, cell: &Cell) -> bool {
        match cell.position {
            None => false,
            Some(position) if position < self.log.undone() => true,
            Some(position) => self.log.get(position).is_none_or(|entry| entry.is_done),
        }
    }

    /// Makes a cell for the message, if there is none. Answers whether there is one now.
    pub(super) fn begin(&mut self, id: MessageId, groups: GroupSet) -> bool {
        if let Some(cell) = self.votes.get(id) {
            if cell.id == id {
                return cell.groups == groups;
            }
            let is_older = cell.id.sequence < id.sequence;
            if !is_older || (cell.position.is_some() && !self.is_cell_over(cell)) {
                return false;
            }
        }
        self.votes.begin(Cell { id, groups, position: None });
        true
    }

    fn on_start(&mut self, body: &Amcast, message: &[u8]) {
        let (id, client) = (body.id, self.config.groups.clients[body.id.client as usize]);
        if self.is_over(id) && !makes(Mistake::ProposedTwice) {
            let known = self.votes.get(id).filter(|cell| cell.id == id);
            let position = known.and_then(|cell| cell.position);
            let decided = position.and_then(|position| self.log.get(position)?.decided);
            let timestamp = decided.unwrap_or_default();
            let told = Amcast { timestamp, ..self.own().of(id, body.groups) };
            self.tell(client, Opcode::Deliver, told, None);
            self.stats.repeated += 1;
            return;
        }
        if self.role != Role::Leader || !self.begin(id, body.groups) {
            return;
        }
        let is_new = self.votes.get(id).is_some_and(|cell| cell.position.is_none());
        if !is_new && !makes(Mistake::ProposedTwice) {
            return;
        }
        if self.open() >= self.config.busy_from {
            // Some of it may be over by what has come together with this.
            self.on_settled();
        }
        if self.open() >= self.config.busy_from || !self.has_room() {
            self.stats.busy += 1;
            let body = self.own().of(id, body.groups);
            self.tell(client, Opcode::Busy, body, None);
            return;
        }
        self.propose(id, body.groups, message);
    }

    /// Whether the log has room for another position, once all that is over is out of it.
    fn has_room(&mut self) -> bool {
        if !self.log.has_room() {
            self.on_settled();
        }
        self.log.has_room()
    }

    fn propose(&mut self, id: MessageId, groups: GroupSet, message: &[u8]) {
        if !self.has_room() {
            return;
        }
        self.clock = LogicalTime(self.clock.0 + 1);
        let (position, timestamp) = (self.log.end(), self.clock);
        self.log.push(Entry { id, groups, timestamp, decided: None, is_done: false }, message);
        self.votes.place(id, position);
        self.votes.vote(id, (self.group, self.place), (self.synced, timestamp));
        self.stats.proposed += 1;
        self.pause.reset();
        self.send_proposal(position);
        let own = self.config.groups.get(self.group).expect("it is a member of it");
        if let Some(body) = self.proposal(position) {
            for replica in &own.replicas {
                self.outbox.push(*replica, Opcode::Prop, body, Some(position));
            }
        }
        self.on_votes(id);
    }

    /// What stands at the position, as it is told others.
    pub(super) fn proposal(&self, position: u64) -> Option<Amcast> {
        let entry = self.log.get(position)?;
        let body = self.own().of(entry.id, entry.groups);
        let flags = body.flags | entry.decided.map_or(0, |_| Amcast::DECIDED);
        let barrier = entry.decided.unwrap_or_default();
        Some(Amcast { flags, timestamp: entry.timestamp, barrier, position, ..body })
    }

    /// To all members of all groups that it is for. Those of other groups have the message from
    /// their own leader: they are told its timestamp, and the message only if they do not answer.
    pub(super) fn send_proposal(&mut self, position: u64) {
        let Some(body) = self.proposal(position) else { return };
        self.tell_members(self.group, Opcode::Prop, body, Some(position), |_| true);
        self.acknowledge(position, body.groups.without(self.group), body.epoch);
    }

    /// A proposal of the own group.
    fn on_own_prop(&mut self, place: usize, body: &Amcast, message: &[u8]) {
        let decided = body.has(Amcast::DECIDED).then_some(body.barrier);
        let (id, groups, timestamp) = (body.id, body.groups, body.timestamp);
        let entry = Entry { id, groups, timestamp, decided, is_done: false };
        if body.has(Amcast::FETCH) {
            self.on_fetched(place, body, entry, message);
        }
        if decided.is_some() {
            self.on_decided_entry(body, entry, message);
        }
        if body.has(Amcast::FETCH) {
            return;
        }
        let is_stale = makes(Mistake::StaleEpoch) && body.epoch < self.promised;
        let is_leaders = self.role == Role::Follower(Some(place)) && self.is_in();
        if !is_stale && (!is_leaders || body.epoch != self.promised) {
            self.stats.other_epoch += 1;
            return;
        }
        self.clock = self.clock.max(timestamp).max(body.clock);
        let is_next = body.position == self.log.end() && !self.is_held_up(id);
        if is_next && self.has_room() {
            self.log.push(entry, message);
            self.bind(body.position, id, groups);
            self.pause.reset();
            self.take(body.position, place, body.epoch);
        } else if body.position < self.log.end() {
            // Said again: perhaps the acknowledgement was lost.
            let is_it = self.log.get(body.position).is_some_and(|entry| entry.id == id);
            if is_it && decided.is_none() {
                self.votes.vote(id, (self.group, place), (body.epoch, timestamp));
                self.on_votes(id);
                if self.taken() > body.position {
                    self.report(|other| other == place, 0);
                } else {
                    let vote = self.vote_of(body.position, body.epoch);
                    self.tell_place(place, Opcode::AmcastAck, vote);
                }
                self.stats.repeated += 1;
            }
        } else {
            self.stats.gaps += 1;
            if !is_stale && decided.is_none() {
                self.log.put_early(body.position, entry, message);
            }
            if self.asked_until <= self.log.end() {
                self.ask_log(place);
            }
        }
        if body.epoch == self.synced {
            self.clocks.hear(place, body.clock);
            self.clocks.hear_leader(body.count, body.clock);
        }
    }

    /// What came early is taken once all before it is here; and if more is missing than was asked
    /// for, the rest is asked for as soon as that has come.
    pub(super) fn catch_up(&mut self) {
        let Role::Follower(Some(leader)) = self.role else { return };
        if !self.is_in() {
            return;
        }
        while let Some(entry) = self.log.next_early()
            && !self.is_held_up(entry.id)
            && self.has_room()
        {
            let position = self.log.end();
            self.log.push_early();
            self.bind(position, entry.id, entry.groups);
            self.pause.reset();
            self.take(position, leader, self.promised);
        }
        if self.asked_until > 0 && self.log.end() >= self.asked_until {
            if self.clocks.are_ahead_of(self.log.end()) {
                self.burst = (2 * self.burst).min(Self::BURST_MAX);
                self.ask_log(leader);
            } else {
                (self.asked_until, self.burst) = (0, Self::BURST);
            }
        }
    }

    /// Whether the client's message before, whose cell this one is to get, is not decided here yet.
    /// The leader knows what has become of it, else the client had not gone on: it is asked. Were
    /// its votes forgotten, nobody could decide it once that leader is dead.
    fn is_held_up(&self, id: MessageId) -> bool {
        let cell = self.votes.get(id).filter(|cell| cell.id.sequence < id.sequence);
        cell.is_some_and(|cell| {
            let entry = cell.position.and_then(|position| self.log.get(position));
            entry.is_some_and(|entry| entry.id == cell.id && entry.decided.is_none())
        })
    }

    /// The cell of a message that is in the log now.
    pub(super) fn bind(&mut self, position: u64, id: MessageId, groups: GroupSet) {
        let is_over = position < self.log.undone()
            || self.log.get(position).is_some_and(|entry| entry.is_done);
        match self.votes.get(id).copied() {
            Some(cell) if cell.id == id => self.votes.place(id, position),
            // It is over here; its votes are of no interest. A later one that is in the log says
            // so, too; of one that is only heard of it is not known. Were the cell given back to
            // what is over, one in between that comes late would be taken for a new one.
            Some(cell)
                if cell.id.sequence > id.sequence && (is_over || cell.position.is_some()) => {}
            _ => self.votes.begin(Cell { id, groups, position: Some(position) }),
        }
    }

    /// A proposal of another group for a message that is for the own one, too.
    fn on_other_prop(&mut self, place: usize, body: &Amcast, message: &[u8]) {
        if !self.begin(body.id, body.groups) {
            return;
        }
        let (voter, clock) = ((body.group, place), self.clock);
        self.votes.vote(body.id, voter, (body.epoch, body.timestamp));
        self.clock = self.clock.max(body.timestamp);
        let is_new = self.votes.get(body.id).is_some_and(|cell| cell.position.is_none());
        if is_new && self.role == Role::Leader {
            self.propose(body.id, body.groups, message);
        } else if self.clock > clock {
            self.reporting = self.reporting.with(self.group);
        }
        if body.has(Amcast::DECIDED) {
            self.votes.agree(body.id, body.group, body.timestamp);
        }
        self.on_votes(body.id);
    }

    /// Whether the message's final timestamp is known now.
    pub(super) fn on_votes(&mut self, id: MessageId) {
        let Some(cell) = self.votes.get(id).filter(|cell| cell.id == id) else { return };
        let Some(position) = cell.position else { return };
        // What is agreed in an epoch whose log it does not have may stand elsewhere in that.
        let is_here = self.is_in() && self.votes.epoch(id, self.group) <= self.synced;
        let is_open = self.log.get(position).is_some_and(|entry| entry.decided.is_none());
        if !is_here || !is_open {
            return;
        }
        if let Some(decided) = self.votes.decided(&self.config.groups, cell) {
            self.on_decided(position, decided);
        }
    }

    fn on_decided(&mut self, position: u64, decided: LogicalTime) {
        self.clock = self.clock.max(decided);
        if !self.log.decide(position, decided) {
            return;
        }
        self.pause.reset();
        self.stats.decided += 1;
        self.raise_barrier();
        let Some(entry) = self.log.get(position) else { return };
        let (id, groups) = (entry.id, entry.groups);
        let body = self.settled().of(id, groups);
        let flags = body.flags | Amcast::DECIDED;
        let body = Amcast { flags, timestamp: decided, position, ..body };
        self.tell_replicas(body);
    }

    /// A position that is decided, from another member: it stands there for ever.
    fn on_decided_entry(&mut self, body: &Amcast, entry: Entry, message: &[u8]) {
        let Some(decided) = entry.decided else { return };
        let (position, open) = (body.position, Entry { decided: None, ..entry });
        // Who is in a later epoch may have decided what the leader of this one has not.
        self.later = self.later.max(body.epoch);
        let is_here = |known: &Entry| known.is_like(&entry);
        if self.role == Role::Leader
            && position >= self.log.first()
            && !self.log.get(position).is_some_and(is_here)
        {
            // Nobody but the leader of a later epoch can have put it there: this one is over. What
            // it would propose now stood behind what it has not proposed itself.
            self.role = Role::Follower(None);
        }
        if position == self.log.end() && self.has_room() {
            self.log.push(open, message);
            self.taken += u64::from(position == self.taken && body.epoch <= self.promised);
        } else if self.log.get(position).is_some_and(|known| !known.is_like(&entry)) {
            let Some(old) = self.log.replace(position, open, message) else { return };
            self.votes.displace(old.id, position);
        } else if self.log.get(position).is_none() {
            return;
        }
        self.clock = self.clock.max(entry.timestamp);
        self.bind(position, entry.id, entry.groups);
        self.on_decided(position, decided);
    }

    pub(super) fn settled(&self) -> Amcast {
        Amcast { barrier: self.barrier, count: self.log.undecided(), ..self.own() }
    }

    pub(super) fn tell_replicas(&mut self, body: Amcast) {
        self.told = self.barrier;
        let own = self.config.groups.get(self.group).expect("it is a member of it");
        for replica in &own.replicas {
            self.outbox.push(*replica, Opcode::Deliver, body, None);
        }
    }

    fn raise_barrier(&mut self) {
        if !self.is_in() {
            return;
        }
        self.clocks.hear(self.place, self.clock);
        if self.role == Role::Leader {
            self.clocks.hear_leader(self.log.end(), self.clock);
        }
        let barrier = self.clocks.barrier(&self.log, self.majority() as usize);
        self.barrier = self.barrier.max(barrier);
    }

    /// What follows from a barrier that may have risen.
    pub(super) fn on_settled(&mut self) {
        self.raise_barrier();
        let mut has_more = false;
        while let Some(position) = self.log.pop_done(self.barrier) {
            has_more = true;
            self.pause.reset();
            let Some(entry) = self.log.get(position).copied() else { continue };
            let client = self.config.groups.clients.get(entry.id.client as usize).copied();
            if let (Role::Leader, Some(client)) = (self.role, client) {
                let timestamp = entry.decided.unwrap_or_default();
                let body = self.own().of(entry.id, entry.groups);
                let body = Amcast { timestamp, position, ..body };
                self.tell(client, Opcode::Deliver, body, None);
                self.stats.over += 1;
            }
        }
        // Else they have nothing to deliver at the new one.
        if has_more && self.barrier > self.told {
            self.tell_replicas(self.settled());
        }
    }
}
