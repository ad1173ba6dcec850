//! A member or the sequencer: combines the order method with the connections.

use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_wire::{Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

use crate::context::OrderContext;
use crate::entry::Entry;
use crate::message::{Delivery, To};
use crate::order::Order;
use crate::{Config, ConfigError, Links};

/// Member of the group, or its sequencer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rival {
    config: Config,
    order: Order,
    context: OrderContext,
    /// When the connections are checked for acknowledgements and retransmissions.
    tick_at: Option<Mono>,
    /// Whether no method has been called yet.
    is_new: bool,
    /// Buffer for the entries of a frame.
    entries: Vec<Entry>,
    stats: Stats,
}

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Frames that were invalid or addressed to another process.
    pub frames_dropped: u64,
    /// Entries that were out of order or invalid.
    pub entries_refused: u64,
    /// Retransmissions: restarts of a connection from its first unacknowledged entry.
    pub resent: u64,
}

/// Reason why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A queue is full: try again later.
    #[error("cannot send: a queue is full (pending_max)")]
    Full,
    /// The message does not fit a frame.
    #[error("cannot send {bytes} bytes: at most {max} fit a frame")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// Maximum length.
        max: usize,
    },
    /// The destination does not exist.
    #[error("cannot send: the destination is not among the {0} members")]
    UnknownMember(u32),
    /// The sequencer cannot send messages of its own.
    #[error("cannot send: the sequencer has no messages of its own")]
    Sequencer,
}

impl Rival {
    /// Creates a member.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid.
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

    /// Sends `payload` to one member, or to all including this one.
    ///
    /// # Errors
    /// [`SendError`]; then the message was not sent.
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

    /// Returns the number of own messages that wait for the token, or for delivery by their groups.
    pub fn open(&self) -> usize {
        self.order.waiting()
    }

    /// Returns the number of entries in flight to the node with the most.
    pub fn in_flight(&self) -> usize {
        self.context.in_flight()
    }

    /// Returns whether a message would be accepted now.
    pub fn has_space(&self) -> bool {
        self.order.waiting() < self.config.pending_max && !self.context.is_full()
    }

    /// Returns whether all messages sent have been acknowledged.
    pub fn is_drained(&self) -> bool {
        self.order.waiting() == 0 && self.context.is_drained()
    }

    /// Checks that the state does not contradict itself. For tests and simulations: takes time
    /// linear in the messages in flight.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.context.check_invariants();
        self.order.check_invariants();
        assert!(self.entries.is_empty(), "the entries of a frame are processed at once");
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
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
        let (psn, entries) = (frame.header.psn(), &mut self.entries);
        let result = self.context.read(now.mono, from, psn, bytes, entries)?;
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
            if cfg!(debug_assertions) {
                self.check_invariants();
            }
            let (resent, is_waiting) = self.context.tick(now.mono, self.config.resend_ns);
            self.stats.resent += resent;
            self.tick_at = is_waiting.then(|| now.mono.after_ns(self.config.tick_ns));
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let len = self.config.frame_len_max.min(slot.len());
        let buffer = &mut slot[SHORT_HEADER_LEN..len];
        let written = match self.context.write(now.mono, buffer) {
            None if self.order.on_all_sent(&mut self.context) => {
                self.context.write(now.mono, buffer)
            }
            written => written,
        };
        let (to, psn, bytes) = written?;
        self.stats.frames_sent += 1;
        // The frame may be lost, so the connections must be checked again.
        self.tick_at.get_or_insert(now.mono.after_ns(self.config.tick_ns));
        let Config { process, incarnation, .. } = self.config;
        let header = Header::new(Opcode::Foreign, process, to, incarnation).with_psn(psn);
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
