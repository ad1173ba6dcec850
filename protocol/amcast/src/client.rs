//! Client: sends a message to the leaders of its destination groups until all of them have
//! completed it.

mod invariants;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::RetransmitTimer;
use onepipe_wire::{
    AMCAST_LEN, Amcast, Frame, GROUPS_MAX, GroupId, GroupSet, LogicalTime, MessageId, Opcode,
    SHORT_HEADER_LEN,
};

use crate::config::{Config, ConfigError};
use crate::congestion::CongestionController;
use crate::outbox::{FrameSpace, Outgoing, write_run};

/// Initial congestion window in bytes; the same as that of an endpoint.
const WINDOW_INITIAL_BYTES: u64 = 64 << 10;

/// Reason why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmcastError {
    /// The destination is empty.
    #[error("cannot send: the message has no destination group")]
    NoGroup,
    /// The group does not exist.
    #[error("cannot send: there is no group {}", .0.0)]
    UnknownGroup(GroupId),
    /// The message has too many destination groups.
    #[error("cannot send to {got} groups: the limit is {limit} (message_groups_max)")]
    TooManyGroups {
        /// Number of groups.
        got: usize,
        /// Maximum number of groups.
        limit: usize,
    },
    /// The message does not fit a packet.
    #[error("cannot send {got} bytes: a message must fit one packet of {limit} bytes")]
    TooLong {
        /// Length of the message in bytes.
        got: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The window is full until the oldest open message is complete.
    #[error("cannot send: {0} messages are open and the window is full; try again later")]
    WindowFull(u32),
    /// All sequence numbers have been used: the process needs another client number.
    #[error("cannot send: the client has used all sequence numbers")]
    Exhausted,
}

/// Event of a client: a message is complete, that is, all its groups can deliver it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completed {
    /// The message.
    pub id: MessageId,
    /// Final timestamp; `None` if the groups had discarded it before they could report it.
    pub timestamp: Option<LogicalTime>,
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Messages accepted for sending.
    pub sent: u64,
    /// Messages completed.
    pub completed: u64,
    /// `Busy` replies of leaders.
    pub busy: u64,
    /// Retransmissions of messages.
    pub retransmitted: u64,
    /// Invalid packets.
    pub invalid: u64,
}

/// Open message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenMessage {
    id: MessageId,
    groups: GroupSet,
    /// Groups that have not completed the message.
    pending: GroupSet,
    timestamp: Option<LogicalTime>,
    bytes: u16,
    /// When it was first sent.
    sent: Option<Mono>,
    /// Whether it was retransmitted.
    is_retransmitted: bool,
    timer: RetransmitTimer,
    /// Retransmission deadline; `None` before the first transmission.
    due: Option<Mono>,
    /// Groups that the message is still to be sent to in this round.
    send_to: GroupSet,
    /// Whether it is sent to all members, because the leader may have changed.
    to_all: bool,
    /// Index of the next member of the first of these groups.
    next_member: usize,
    /// Whether the message is in the send queue.
    is_queued: bool,
}

impl OpenMessage {
    /// Returns the length of the message in flight, with the headers of a frame of its own.
    fn wire_len(&self) -> u64 {
        (SHORT_HEADER_LEN + AMCAST_LEN) as u64 + u64::from(self.bytes)
    }
}

/// Client of agreed multicast; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    config: Config,
    number: u32,
    next: u32,
    /// Ring of open messages: message `s` shares its slot with message `s` + window.
    open: Vec<Option<OpenMessage>>,
    messages: Vec<u8>,
    /// Epoch and index of the leader of each group, as far as known, by group index.
    leaders: Vec<(u32, usize)>,
    /// Completed messages that were not polled yet, by slot.
    completed: Vec<Option<Completed>>,
    /// Slots of completed messages in the order of completion.
    completed_order: VecDeque<u32>,
    /// Slots of messages to be sent; retransmissions come first.
    send_queue: VecDeque<u32>,
    congestion: CongestionController,
    /// Lower bound of all deadlines.
    due: Option<Mono>,
    stats: ClientStats,
}

impl Client {
    /// Creates a client that has sent nothing.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range or the process is not a client.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let groups = &config.groups;
        let value = u64::from(config.process.0);
        let Some(number) = groups.clients.iter().position(|client| *client == config.process)
        else {
            return Err(ConfigError { name: "process", value });
        };
        let window = groups.window as usize;
        let rtt = config.rtt();
        let frame_len = groups.frame_len_max as u64;
        let (first, window_max) = (WINDOW_INITIAL_BYTES, config.in_flight_bytes_max);
        Ok(Self {
            number: number as u32,
            next: 0,
            open: vec![None; window],
            messages: vec![0; window * groups.message_len_max()],
            leaders: vec![(0, 0); groups.groups.len().min(usize::from(GROUPS_MAX))],
            completed: vec![None; window],
            completed_order: VecDeque::with_capacity(window),
            send_queue: VecDeque::with_capacity(window),
            congestion: CongestionController::new(first, window_max, frame_len, rtt),
            due: None,
            stats: ClientStats::default(),
            config,
        })
    }

    //= spec/amcast.md#R34
    /// Starts a message to `groups`: either all their replicas deliver it, in a total order, or
    /// none does. The client retransmits the message until it is complete.
    ///
    /// # Errors
    /// [`AmcastError`] if the message is invalid or the window is full.
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
        let (got, limit) = (message.len(), all.message_len_max());
        if got > limit {
            return Err(AmcastError::TooLong { got, limit });
        }
        let Some(next) = self.next.checked_add(1) else { return Err(AmcastError::Exhausted) };
        let slot = (self.next % all.window) as usize;
        //= spec/amcast.md#R29
        if self.open[slot].is_some() || self.completed[slot].is_some() {
            return Err(AmcastError::WindowFull(all.window));
        }
        let id = MessageId { client: self.number, sequence: self.next };
        self.messages[slot * limit..slot * limit + got].copy_from_slice(message);
        debug_assert!(!self.send_queue.contains(&(slot as u32)), "the slot's last message is gone");
        self.open[slot] = Some(OpenMessage {
            id,
            groups,
            pending: groups,
            timestamp: None,
            bytes: got as u16,
            sent: None,
            is_retransmitted: false,
            timer: RetransmitTimer::default(),
            due: None,
            send_to: groups,
            to_all: false,
            next_member: 0,
            is_queued: true,
        });
        self.send_queue.push_back(slot as u32);
        // Make sure that the driver polls the client even if nothing else happens.
        let due = now.mono.after_ns(self.config.rto_min_ns);
        self.due = Mono::earlier(self.due, Some(due));
        self.next = next;
        self.stats.sent += 1;
        Ok(id)
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of messages that are not complete.
    pub fn open(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// Returns the number of messages that were sent and are not complete. Other open messages wait
    /// for the congestion window.
    pub fn in_flight(&self) -> usize {
        self.congestion.messages()
    }

    /// Returns the counters.
    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    /// Returns whether the message is open: accepted for sending and not complete.
    pub fn is_open(&self, id: MessageId) -> bool {
        let slot = (id.sequence % self.config.groups.window) as usize;
        self.open[slot].is_some_and(|open| open.id == id)
    }

    /// Returns whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        let first = self.send_queue.front().and_then(|at| self.open[*at as usize].as_ref());
        first.is_some_and(|open| self.can_send(open))
    }

    fn can_send(&self, open: &OpenMessage) -> bool {
        open.sent.is_some() || self.congestion.can_send(open.wire_len())
    }

    fn on_reply(&mut self, now: Now, opcode: Opcode, src: ProcessId, body: &Amcast) -> bool {
        let groups = &self.config.groups;
        let Some(index) = groups.member_index(body.group, src) else { return false };
        if !body.has(Amcast::MESSAGE) || body.id.client != self.number {
            return false;
        }
        let slot = (body.id.sequence % groups.window) as usize;
        let leader = &mut self.leaders[body.group.index()];
        if body.epoch >= leader.0 {
            *leader = (body.epoch, index);
        }
        let Some(open) = self.open[slot].as_mut().filter(|open| open.id == body.id) else {
            return true;
        };
        match opcode {
            Opcode::Deliver => {
                //= spec/amcast.md#R17
                open.pending = open.pending.without(body.group);
                open.send_to = open.send_to.without(body.group);
                let known = (body.timestamp.0 > 0).then_some(body.timestamp);
                open.timestamp = open.timestamp.or(known);
                if open.pending.is_empty() {
                    let (id, timestamp) = (open.id, open.timestamp);
                    if let Some(sent) = open.sent {
                        let rtt_ns = (!open.is_retransmitted).then(|| now.mono.since_ns(sent));
                        self.congestion.on_completed(open.wire_len(), rtt_ns);
                    }
                    debug_assert!(self.completed[slot].is_none(), "the slot was free");
                    debug_assert!(open.send_to.is_empty(), "nothing is sent any more");
                    self.completed[slot] = Some(Completed { id, timestamp });
                    self.completed_order.push_back(slot as u32);
                    // A stale entry in the send queue would be found by the slot's next message.
                    if open.is_queued {
                        self.send_queue.retain(|other| *other != slot as u32);
                    }
                    self.open[slot] = None;
                    self.stats.completed += 1;
                }
            }
            //= spec/amcast.md#R30
            Opcode::Busy => {
                self.stats.busy += 1;
                open.due =
                    Some(now.mono.after_ns(open.timer.next_timeout_ns(&self.congestion.rtt)));
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
        let bytes = self.open[slot].map_or(0, |open| open.bytes);
        &self.messages[slot * self.config.groups.message_len_max()..][..usize::from(bytes)]
    }

    /// Returns whether the message in slot `at` may be sent now, and records its first
    /// transmission.
    fn try_start(&mut self, now: Now, at: usize) -> bool {
        let Some(open) = self.open[at].as_mut() else { return false };
        if open.sent.is_none() {
            if !self.congestion.can_send(open.wire_len()) {
                return false;
            }
            self.congestion.on_sent(open.wire_len());
            open.due = Some(now.mono.after_ns(open.timer.next_timeout_ns(&self.congestion.rtt)));
            open.sent = Some(now.mono);
            self.due = Mono::earlier(self.due, open.due);
        }
        true
    }

    /// Coalesces further messages into a frame to `group` that holds `first`, as long as they have
    /// consecutive sequence numbers and the same groups left to send to. Returns how many.
    fn coalesce(
        &mut self,
        now: Now,
        first: OpenMessage,
        send_to: GroupSet,
        group: GroupId,
        bytes: usize,
    ) -> u8 {
        let mut space = FrameSpace::new(bytes);
        if first.to_all || !space.reserve(first.bytes.into()) {
            return 0;
        }
        for further in 0..u8::MAX {
            let Some(at) = self.send_queue.get(usize::from(further) + 1).map(|at| *at as usize)
            else {
                return further;
            };
            let Some(open) = self.open[at] else { return further };
            let is_next = first.id.sequence.checked_add(u32::from(further) + 1);
            let is_like = Some(open.id.sequence) == is_next
                && (open.groups, open.send_to, open.to_all) == (first.groups, send_to, false);
            if !is_like || !space.reserve(open.bytes.into()) || !self.try_start(now, at) {
                return further;
            }
            if let Some(open) = &mut self.open[at] {
                open.send_to = open.send_to.without(group);
            }
        }
        u8::MAX
    }

    //= spec/amcast.md#R1
    /// Returns the next member that `open` is to be sent to.
    fn next_recipient(
        config: &Config,
        leaders: &[(u32, usize)],
        open: &mut OpenMessage,
    ) -> Option<(GroupId, ProcessId)> {
        loop {
            let group = open.send_to.iter().next()?;
            let members = &config.groups.get(group)?.members;
            if open.to_all && open.next_member < members.len() {
                open.next_member += 1;
                return Some((group, members[open.next_member - 1]));
            }
            open.send_to = open.send_to.without(group);
            open.next_member = 0;
            if !open.to_all {
                return Some((group, members[leaders[group.index()].1]));
            }
        }
    }
}

impl Machine for Client {
    type Event = Completed;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_valid = false;
        if let Some(frame) = parsed {
            for packet in Amcast::packets(frame.opcode, frame.payload) {
                let (opcode, src) = (frame.opcode, frame.header.src());
                is_valid = packet.is_ok_and(|(body, _)| self.on_reply(now, opcode, src, &body));
                if !is_valid {
                    break;
                }
            }
        }
        self.stats.invalid += u64::from(!is_valid);
        debug_assert!(self.completed_order.len() <= self.completed.len(), "one a slot");
        if is_valid { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_none_or(|due| due > now.mono) {
            return;
        }
        self.due = None;
        for (index, open) in self.open.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            if open.due.is_some_and(|due| due <= now.mono) {
                //= spec/amcast.md#R1
                (open.send_to, open.to_all, open.next_member) = (open.pending, true, 0);
                open.due =
                    Some(now.mono.after_ns(open.timer.next_timeout_ns(&self.congestion.rtt)));
                if !open.is_queued {
                    open.is_queued = true;
                    self.send_queue.push_front(index as u32);
                }
                open.is_retransmitted = true;
                self.congestion.on_timeout(now.mono);
                self.stats.retransmitted += 1;
            }
            self.due = Mono::earlier(self.due, open.due);
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        while let Some(at) = self.send_queue.front().map(|at| *at as usize) {
            if !self.try_start(now, at) {
                return None;
            }
            let open =
                self.open[at].as_mut().expect("completed messages are not in the send queue");
            let send_to = open.send_to;
            let Some((group, to)) = Self::next_recipient(&self.config, &self.leaders, open) else {
                open.is_queued = false;
                self.send_queue.pop_front();
                continue;
            };
            let first = *open;
            let further = self.coalesce(now, first, send_to, group, slot.len());
            let body = Amcast::new(group, self.leaders[group.index()].0)
                .with_message(first.id, first.groups);
            let outgoing = Outgoing {
                to,
                opcode: Opcode::Start,
                body: Amcast { further, ..body },
                message: None,
            };
            let sender = self.config.own();
            let message = |nth: u8| self.message(first.id.sequence.wrapping_add(nth.into()));
            let bytes = write_run(slot, sender, &outgoing, message);
            return Some(Transmit { port: Port(0), bytes });
        }
        None
    }

    fn poll_event(&mut self) -> Option<Completed> {
        let slot = self.completed_order.pop_front()?;
        self.completed[slot as usize].take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
