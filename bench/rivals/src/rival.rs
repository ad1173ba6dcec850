//! The composer: one member, or the sequencer.

use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Promises, Transmit, Verdict};
use onepipe_wire::{Frame, GroupSet, HEADER_LEN, Header, Opcode, seal};

use crate::context::OrderContext;
use crate::entry::Entry;
use crate::order::Order;
use crate::{Config, ConfigError, Links};

/// A member of the group, or its sequencer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rival {
    config: Config,
    order: Order,
    context: OrderContext,
    /// When to look at the connections, if anything waits there.
    tick_at: Option<Mono>,
    /// Nothing was called yet.
    is_new: bool,
    /// What a frame has brought, until the order has taken it.
    entries: Vec<Entry>,
    stats: Stats,
}

/// A message, in its place in the order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Whose it is.
    pub from: ProcessId,
    /// Its sequence number or logical time; 0 where nothing orders.
    pub number: u64,
    /// What was sent.
    pub payload: Bytes,
}

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames written.
    pub frames_sent: u64,
    /// Frames taken.
    pub frames_received: u64,
    /// Frames that made no sense, or were for somebody else.
    pub frames_dropped: u64,
    /// Messages of frames that were not the next ones of their connection, or made no sense.
    pub entries_refused: u64,
    /// Times that a connection began again from its first unacknowledged message.
    pub resent: u64,
}

/// Whom a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// One member.
    One(ProcessId),
    /// All members; where there are groups, all of these.
    All,
    /// All members of some groups, where there are groups.
    Groups(GroupSet),
}

impl To {
    pub(crate) fn is_within(self, members: u32) -> bool {
        match self {
            Self::One(to) => to.0 < members,
            Self::All => true,
            Self::Groups(_) => false,
        }
    }
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Too much waits: let something leave first.
    #[error("as many messages wait as may")]
    Full,
    /// Longer than a frame.
    #[error("{bytes} bytes are more than the {max} that fit a frame")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// No such member.
    #[error("there are {0} members, and it is for none of them")]
    UnknownMember(u32),
    /// The sequencer has nothing to say of its own.
    #[error("the sequencer says nothing of its own")]
    Sequencer,
}

impl Rival {
    /// A member that has said nothing yet.
    ///
    /// # Errors
    /// When the configuration does not make sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            order: Order::new(&config),
            context: OrderContext::new(&config),
            tick_at: None,
            is_new: true,
            entries: Vec::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// Sends `payload` to one member, or to all, this one included.
    ///
    /// # Errors
    /// When too much waits, it is too long, or there is no such member; then nothing has happened.
    pub fn send(&mut self, now: Now, to: To, payload: &[u8]) -> Result<(), SendError> {
        let (bytes, max) = (payload.len(), self.config.payload_len_max());
        if bytes > max {
            return Err(SendError::TooLong { bytes, max });
        }
        if !self.config.has(to) {
            return Err(SendError::UnknownMember(self.config.members));
        }
        if self.config.process.0 >= self.config.members {
            return Err(SendError::Sequencer);
        }
        if !self.has_space() {
            return Err(SendError::Full);
        }
        self.order.send(&mut self.context, to, Bytes::copy_from_slice(payload));
        self.advance(now.mono);
        Ok(())
    }

    /// Own messages that wait: for the token, or for their groups to say that they deliver them.
    pub fn open(&self) -> usize {
        self.order.waiting()
    }

    /// What has left for the node to which most has, and is not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.context.in_flight()
    }

    /// Whether a message would be taken.
    pub fn has_space(&self) -> bool {
        self.order.waiting() < self.config.pending_max && !self.context.is_full()
    }

    /// Whether everything that was sent here has come where it was for, as far as is known.
    pub fn is_drained(&self) -> bool {
        self.order.waiting() == 0 && self.context.is_drained()
    }

    /// What it was set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn on_frame(&mut self, now: Now, frame: &[u8]) -> Option<()> {
        let frame = Frame::parse(frame).ok()?;
        let is_ours = frame.opcode == Opcode::Foreign
            && frame.header.dst() == self.config.process
            && frame.header.src() != self.config.process;
        let from = frame.header.src();
        let bytes = Bytes::copy_from_slice(is_ours.then_some(frame.payload)?);
        let received = (frame.header.psn(), bytes);
        let result = self.context.read(now.mono, from, received, &mut self.entries)?;
        self.stats.frames_received += 1;
        self.stats.entries_refused += result.refused;
        for entry in self.entries.drain(..) {
            let is_valid = self.order.receive(&mut self.context, from, entry);
            self.stats.entries_refused += u64::from(!is_valid);
        }
        Some(())
    }

    fn advance(&mut self, now: Mono) {
        self.is_new = false;
        self.order.handle_time(&mut self.context, now);
        self.tick_at.get_or_insert(now.after_ns(self.config.tick_ns));
    }
}

impl Machine for Rival {
    type Event = Delivery;

    fn handle_frame(&mut self, now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        let result = self.on_frame(now, frame);
        self.advance(now.mono);
        match result {
            Some(()) => Verdict::Consumed,
            None => {
                self.stats.frames_dropped += 1;
                Verdict::Dropped
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.is_new = false;
        self.order.handle_time(&mut self.context, now.mono);
        if self.tick_at.is_some_and(|at| at <= now.mono) {
            let (resent, is_waiting) = self.context.tick(now.mono, self.config.resend_ns);
            self.stats.resent += resent;
            self.tick_at = is_waiting.then(|| now.mono.after_ns(self.config.tick_ns));
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let len = self.config.frame_len_max.min(slot.len());
        let (to, psn, bytes) = self.context.write(now.mono, &mut slot[HEADER_LEN..len])?;
        self.stats.frames_sent += 1;
        // It may be lost, and the last look have come before it.
        self.tick_at.get_or_insert(now.mono.after_ns(self.config.tick_ns));
        let Config { process, incarnation, .. } = self.config;
        let header = Header::new(Opcode::Foreign, process, to, incarnation);
        let header = header.stamped(now.sync, Promises::both(now.sync), psn);
        let port = match self.config.links {
            Links::Uplink => Port(0),
            Links::Mesh => Port(to.0 as u16),
        };
        Some(Transmit { port, bytes: seal(slot, header, bytes) })
    }

    fn poll_event(&mut self) -> Option<Delivery> {
        self.context.deliveries.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.is_new {
            return Some(Mono::from_ns(0));
        }
        Mono::earlier(self.order.due(), self.tick_at)
    }
}
