//! A client: it asks the leaders of all groups that a message is for until all can deliver it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{
    AMCAST_OCTETS, Amcast, Frame, GROUPS_MAX, GroupId, GroupSet, HEADER_OCTETS, LogicalTime,
    MessageId, Opcode,
};

use crate::config::{Config, ConfigError};
use crate::flight::Flight;
use crate::outbox::{Parcel, Room, write_run};
use crate::patience::{Patience, Pause};

/// Octets that a client has on their way before it has heard how many there can be: as many as an
/// endpoint has.
const FLIGHT_FIRST_OCTETS: u64 = 64 << 10;

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmcastError {
    /// It is for no group.
    #[error("a message must be for one group at least")]
    NoGroup,
    /// There is no such group.
    #[error("there is no group {}", .0.0)]
    UnknownGroup(GroupId),
    /// It is for more groups than a message may be for.
    #[error("a message for {got} groups, where {limit} are the most")]
    TooManyGroups {
        /// How many.
        got: usize,
        /// How many there may be.
        limit: usize,
    },
    /// It does not fit a packet.
    #[error("a message of {got} octets, where {limit} are the most: one message is one packet")]
    TooLong {
        /// Its octets.
        got: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too many messages are open: the window is full until the oldest is over.
    #[error("{0} messages are open, and the oldest is not over: try again later")]
    WindowFull(u32),
    /// All numbers have been used: another client number is needed.
    #[error("all numbers of messages have been used")]
    Exhausted,
}

/// A message is over: all its groups can deliver it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Over {
    /// Which.
    pub id: MessageId,
    /// Its place in the order; nothing, if that was forgotten before it could be told.
    pub timestamp: Option<LogicalTime>,
}

/// What a client has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Messages begun.
    pub sent: u64,
    /// Messages over.
    pub over: u64,
    /// Times that a leader had no room.
    pub busy: u64,
    /// Requests sent again.
    pub repeated: u64,
    /// Packets that made no sense.
    pub foreign: u64,
}

/// An open message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    id: MessageId,
    groups: GroupSet,
    /// Groups that have not said that it is over.
    waiting: GroupSet,
    timestamp: Option<LogicalTime>,
    octets: u16,
    /// When it was sent for the first time.
    sent: Option<Mono>,
    /// Whether it was sent again since.
    is_repeated: bool,
    pause: Pause,
    /// When it is sent again; before it was sent it need not be.
    due: Option<Mono>,
    /// Groups that are to be told now, and how far in the members of the first.
    telling: GroupSet,
    /// Whether all their members are, for who leads may be another one than before.
    to_all: bool,
    told: usize,
    /// Whether it is among those that are to be told.
    is_queued: bool,
}

impl Open {
    /// What it takes on its way: with little else in it, its front.
    fn flight_octets(&self) -> u64 {
        (HEADER_OCTETS + AMCAST_OCTETS) as u64 + u64::from(self.octets)
    }
}

/// A client: it asks the leaders of all groups that a message is for until all can deliver it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    config: Config,
    number: u32,
    next: u32,
    /// A place for each open message: that of message `s` is also that of `s` + window.
    open: Vec<Option<Open>>,
    messages: Vec<u8>,
    /// Who leads each group, by its place, as far as known, and in which epoch.
    leaders: Vec<(u32, usize)>,
    /// What is over and not told yet, by its place, and these places in order.
    over: Vec<Option<Over>>,
    over_order: VecDeque<u32>,
    /// Places of messages that are to be told: first those that were told before.
    telling: VecDeque<u32>,
    flight: Flight,
    /// Nothing is due before.
    due: Option<Mono>,
    stats: ClientStats,
}

impl Client {
    /// A client that has sent nothing.
    ///
    /// # Errors
    /// When a setting makes no sense, or its process is no client.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let groups = &config.groups;
        let value = u64::from(config.process.0);
        let Some(number) = groups.clients.iter().position(|client| *client == config.process)
        else {
            return Err(ConfigError { name: "process", value });
        };
        let window = groups.window as usize;
        let patience = Patience::new(config.repeat_ns);
        let flight = (FLIGHT_FIRST_OCTETS, config.flight_octets);
        Ok(Self {
            number: number as u32,
            next: 0,
            open: vec![None; window],
            messages: vec![0; window * groups.message_octets_max()],
            leaders: vec![(0, 0); groups.groups.len().min(usize::from(GROUPS_MAX))],
            over: vec![None; window],
            over_order: VecDeque::with_capacity(window),
            telling: VecDeque::with_capacity(window),
            flight: Flight::new(flight, groups.frame_octets_max as u64, patience),
            due: None,
            stats: ClientStats::default(),
            config,
        })
    }

    /// Begins a message for `groups`: all their replicas deliver it, in one order, or none does.
    /// It is sent until it is over.
    ///
    /// # Errors
    /// When it is none that can be sent, or none that can be sent now.
    pub fn amcast(
        &mut self,
        now: Now,
        groups: GroupSet,
        message: &[u8],
    ) -> Result<MessageId, AmcastError> {
        let all = &self.config.groups;
        if groups.is_empty() {
            return Err(AmcastError::NoGroup);
        }
        if let Some(group) = groups.iter().find(|group| all.get(*group).is_none()) {
            return Err(AmcastError::UnknownGroup(group));
        }
        let (got, limit) = (groups.len(), all.message_groups_max);
        if got > limit {
            return Err(AmcastError::TooManyGroups { got, limit });
        }
        let (got, limit) = (message.len(), all.message_octets_max());
        if got > limit {
            return Err(AmcastError::TooLong { got, limit });
        }
        let Some(next) = self.next.checked_add(1) else { return Err(AmcastError::Exhausted) };
        let slot = (self.next % all.window) as usize;
        if self.open[slot].is_some() || self.over[slot].is_some() {
            return Err(AmcastError::WindowFull(all.window));
        }
        let id = MessageId { client: self.number, sequence: self.next };
        self.messages[slot * limit..slot * limit + got].copy_from_slice(message);
        self.open[slot] = Some(Open {
            id,
            groups,
            waiting: groups,
            timestamp: None,
            octets: got as u16,
            sent: None,
            is_repeated: false,
            pause: Pause::default(),
            due: None,
            telling: groups,
            to_all: false,
            told: 0,
            is_queued: true,
        });
        self.telling.push_back(slot as u32);
        // Whoever drives it looks after it by then, though it be only to send it.
        let due = now.mono.after_ns(self.config.repeat_ns);
        self.due = Mono::earlier(self.due, Some(due));
        self.next = next;
        self.stats.sent += 1;
        Ok(id)
    }

    /// How it is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Messages that are not over yet.
    pub fn open(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// Messages that were sent and are not over yet; the others wait here for their time to come.
    pub fn on_their_way(&self) -> usize {
        self.flight.messages()
    }

    /// What it has counted.
    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    /// Whether the message is under way: it was sent, and is not over.
    pub fn is_open(&self, id: MessageId) -> bool {
        let slot = (id.sequence % self.config.groups.window) as usize;
        self.open[slot].is_some_and(|open| open.id == id)
    }

    /// Whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        let first = self.telling.front().and_then(|at| self.open[*at as usize].as_ref());
        first.is_some_and(|open| self.may_leave(open))
    }

    fn may_leave(&self, open: &Open) -> bool {
        open.sent.is_some() || self.flight.has_room(open.flight_octets())
    }

    fn on_answer(&mut self, now: Now, opcode: Opcode, src: ProcessId, body: &Amcast) -> bool {
        let groups = &self.config.groups;
        let Some(place) = groups.member_place(body.group, src) else { return false };
        if !body.has(Amcast::MESSAGE) || body.id.client != self.number {
            return false;
        }
        let slot = (body.id.sequence % groups.window) as usize;
        let leader = &mut self.leaders[body.group.index()];
        if body.epoch >= leader.0 {
            *leader = (body.epoch, place);
        }
        let Some(open) = self.open[slot].as_mut().filter(|open| open.id == body.id) else {
            return true;
        };
        match opcode {
            Opcode::Deliver => {
                open.waiting = open.waiting.without(body.group);
                open.telling = open.telling.without(body.group);
                let known = (body.timestamp.0 > 0).then_some(body.timestamp);
                open.timestamp = open.timestamp.or(known);
                if open.waiting.is_empty() {
                    let (id, timestamp) = (open.id, open.timestamp);
                    if let Some(sent) = open.sent {
                        let took_ns = (!open.is_repeated).then(|| now.mono.since_ns(sent));
                        self.flight.on_over(open.flight_octets(), took_ns);
                    }
                    self.over[slot] = Some(Over { id, timestamp });
                    self.over_order.push_back(slot as u32);
                    // Its place may stand among those to be told until it is looked at: not twice.
                    if open.is_queued {
                        self.telling.retain(|other| *other != slot as u32);
                    }
                    self.open[slot] = None;
                    self.stats.over += 1;
                }
            }
            Opcode::Busy => {
                self.stats.busy += 1;
                open.due = Some(now.mono.after_ns(open.pause.next_ns(&self.flight.patience)));
            }
            _ => return false,
        }
        true
    }

    fn slot(&self, sequence: u32) -> usize {
        (sequence % self.config.groups.window) as usize
    }

    fn message(&self, sequence: u32) -> &[u8] {
        let slot = self.slot(sequence);
        let octets = self.open[slot].map_or(0, |open| open.octets);
        &self.messages[slot * self.config.groups.message_octets_max()..][..usize::from(octets)]
    }

    /// Whether the message at `at` may leave now; if it does so for the first time, notes that.
    fn may_be_told(&mut self, now: Now, at: usize) -> bool {
        let Some(open) = self.open[at].as_mut() else { return false };
        if open.sent.is_none() {
            if !self.flight.has_room(open.flight_octets()) {
                return false;
            }
            self.flight.on_sent(open.flight_octets());
            open.due = Some(now.mono.after_ns(open.pause.next_ns(&self.flight.patience)));
            open.sent = Some(now.mono);
            self.due = Mono::earlier(self.due, open.due);
        }
        true
    }

    /// How many of the next messages can go along in a frame of `octets` to `group`, for they are
    /// for the same groups and were told as many of them. Notes that they were told this one.
    fn take_along(
        &mut self,
        now: Now,
        (first, telling): (Open, GroupSet),
        group: GroupId,
        octets: usize,
    ) -> u8 {
        let mut room = Room::new(octets);
        if first.to_all || !room.take(first.octets.into()) {
            return 0;
        }
        for more in 0..u8::MAX {
            let Some(at) = self.telling.get(usize::from(more) + 1).map(|at| *at as usize) else {
                return more;
            };
            let Some(open) = self.open[at] else { return more };
            let is_next = first.id.sequence.checked_add(u32::from(more) + 1);
            let is_like = Some(open.id.sequence) == is_next
                && (open.groups, open.telling, open.to_all) == (first.groups, telling, false);
            if !is_like || !room.take(open.octets.into()) || !self.may_be_told(now, at) {
                return more;
            }
            if let Some(open) = &mut self.open[at] {
                open.telling = open.telling.without(group);
            }
        }
        u8::MAX
    }

    /// The next of the members that `open` is to be told to.
    fn next_told(
        config: &Config,
        leaders: &[(u32, usize)],
        open: &mut Open,
    ) -> Option<(GroupId, ProcessId)> {
        loop {
            let group = open.telling.iter().next()?;
            let members = &config.groups.get(group)?.members;
            if open.to_all && open.told < members.len() {
                open.told += 1;
                return Some((group, members[open.told - 1]));
            }
            open.telling = open.telling.without(group);
            open.told = 0;
            if !open.to_all {
                return Some((group, members[leaders[group.index()].1]));
            }
        }
    }
}

impl Machine for Client {
    type Event = Over;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_taken = false;
        if let Some(frame) = parsed {
            for packet in Amcast::packets(frame.opcode, frame.payload) {
                let (opcode, src) = (frame.opcode, frame.header.src());
                is_taken = packet.is_ok_and(|(body, _)| self.on_answer(now, opcode, src, &body));
                if !is_taken {
                    break;
                }
            }
        }
        self.stats.foreign += u64::from(!is_taken);
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_none_or(|due| due > now.mono) {
            return;
        }
        self.due = None;
        for (place, open) in self.open.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            if open.due.is_some_and(|due| due <= now.mono) {
                (open.telling, open.to_all, open.told) = (open.waiting, true, 0);
                open.due = Some(now.mono.after_ns(open.pause.next_ns(&self.flight.patience)));
                if !open.is_queued {
                    open.is_queued = true;
                    self.telling.push_front(place as u32);
                }
                open.is_repeated = true;
                self.flight.on_silence(now.mono);
                self.stats.repeated += 1;
            }
            self.due = Mono::earlier(self.due, open.due);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        while let Some(at) = self.telling.front().map(|at| *at as usize) {
            if !self.may_be_told(now, at) {
                return None;
            }
            let open = self.open[at].as_mut().expect("what is over is not among them");
            let telling = open.telling;
            let Some((group, to)) = Self::next_told(&self.config, &self.leaders, open) else {
                open.is_queued = false;
                self.telling.pop_front();
                continue;
            };
            let first = *open;
            let more = self.take_along(now, (first, telling), group, slot.len());
            let body = Amcast::new(group, self.leaders[group.index()].0).of(first.id, first.groups);
            let parcel =
                Parcel { to, opcode: Opcode::Start, body: Amcast { more, ..body }, message: None };
            let ends = (self.config.process, self.config.incarnation);
            let message = |nth: u8| self.message(first.id.sequence.wrapping_add(nth.into()));
            let octets = write_run(slot, now, ends, &parcel, message);
            return Some(Transmit { port: Port(0), octets });
        }
        None
    }

    fn poll_event(&mut self) -> Option<Over> {
        let slot = self.over_order.pop_front()?;
        self.over[slot as usize].take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
