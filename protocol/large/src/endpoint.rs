//! The machine: who gets which frame, and who is asked for one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_bulk::Groups;
use onepipe_endpoint::Endpoint;
use onepipe_wire::header_unchecked;

use crate::event::Held;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::{Config, ConfigError, Delivery, Event, Stats};

/// One process's end of the pipe, for payloads of any size. See the crate's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LargeEndpoint {
    pub(crate) config: Config,
    pub(crate) endpoint: Endpoint,
    pub(crate) groups: Groups,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// What is to be told before anything else.
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    pub(crate) now: Mono,
    /// Notes and scatterings as they are written.
    pub(crate) written: Vec<u8>,
    is_leaving: bool,
    /// There may be something to send that no frame and no timer has brought about.
    pub(crate) is_restless: bool,
}

impl LargeEndpoint {
    /// One that has heard and said nothing yet.
    ///
    /// # Errors
    /// When a number of `config` is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            endpoint: Endpoint::new(config.endpoint.clone())?,
            groups: Groups::new(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            events: VecDeque::new(),
            stats: Stats::default(),
            now: Mono::from_ns(0),
            written: Vec::new(),
            is_leaving: false,
            is_restless: false,
            config,
        })
    }

    /// The endpoint, for questions.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The endpoint, for commands that have nothing to do with scatterings: links that are heard
    /// or lost, failures handled, recovery. Scatterings and releases go past it.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The payload of a delivered message, until it is released.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        match &delivery.held {
            Held::Message { delivery, skip } => &self.endpoint.payload(delivery)[*skip..],
            Held::Object(group) => self.object(*group),
        }
    }

    /// The application is through with a message.
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        match delivery.held {
            Held::Message { delivery, .. } => self.endpoint.release(delivery),
            Held::Object(group) => {
                self.release_object(group);
            }
        }
    }

    /// As [`LargeEndpoint::release`], and answers the payload. A large one is not copied when
    /// nobody else needs it any more.
    pub fn take(&mut self, delivery: Delivery) -> Vec<u8> {
        match delivery.held {
            Held::Message { delivery, skip } => {
                let payload = self.endpoint.payload(&delivery)[skip..].to_vec();
                self.endpoint.release(delivery);
                payload
            }
            Held::Object(group) => {
                let arrival = self.incoming.arrivals.get(&group);
                let is_shared = arrival.is_some_and(|arrival| arrival.memory.is_none());
                let copy = is_shared.then(|| self.object(group).to_vec());
                let memory = self.release_object(group);
                memory.or(copy).unwrap_or_default()
            }
        }
    }

    /// Bytes of large payloads that wait for their place in the order: of ours, and of others'.
    pub fn large_bytes(&self) -> (u64, u64) {
        (self.outgoing.bytes, self.incoming.bytes)
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_drained(&self) -> bool {
        self.outgoing.queue.is_empty() && self.endpoint.is_drained()
    }

    /// Leaves the fabric as [`Endpoint::leave`] does, once everything submitted has its place in
    /// the order or was reported.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.advance();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether a transmit poll may yield something before the next timeout. A hint, as
    /// [`Endpoint::wants_transmit`].
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.endpoint.wants_transmit() || self.groups.iter().next().is_some()
    }

    /// Counters of large payloads since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether there is anything large to look after.
    #[inline]
    fn is_busy(&self) -> bool {
        !self.outgoing.queue.is_empty()
            || !self.incoming.arrivals.is_empty()
            || self.groups.iter().next().is_some()
            || !self.outgoing.withdrawn.is_empty()
            || self.is_leaving
    }

    /// Draws the conclusions of whatever has happened.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.is_busy() {
            self.hear_groups();
            self.advance();
        }
    }
}

impl Machine for LargeEndpoint {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.now = now.mono;
        let opcode = header_unchecked(frame).and_then(|header| header.opcode().ok());
        let is_bulk = opcode.is_some_and(|opcode| opcode.is_bulk());
        let verdict = match is_bulk {
            true => self.groups.handle_frame(now, port, frame),
            false => self.endpoint.handle_frame(now, port, frame),
        };
        self.settle();
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now.mono;
        self.endpoint.handle_timeout(now);
        self.groups.handle_timeout(now);
        self.drop_overdue();
        self.settle();
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.now = now.mono;
        if let Some(sent) = self.endpoint.poll_transmit(now, slot) {
            return Some(sent);
        }
        let sent = self.groups.poll_transmit(now, slot);
        self.is_restless &= sent.is_some();
        sent
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(event) = self.endpoint.poll_event() else {
                self.on_drained();
                return self.events.pop_front();
            };
            if let Some(event) = self.on_event(event) {
                return Some(event);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.is_restless {
            return Some(self.now);
        }
        let of_parts = Mono::earlier(self.endpoint.poll_timeout(), self.groups.poll_timeout());
        Mono::earlier(of_parts, self.incoming.drop_at())
    }
}
