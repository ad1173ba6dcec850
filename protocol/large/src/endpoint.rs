//! The machine: dispatches frames to the endpoint and the bulk groups.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_bulk::Groups;
use onepipe_endpoint::Endpoint;
use onepipe_wire::header_unchecked;

use crate::event::Storage;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::{Config, ConfigError, Delivery, Event, Stats};

/// An endpoint for payloads of any size. See the documentation of the crate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LargeEndpoint {
    pub(crate) config: Config,
    pub(crate) endpoint: Endpoint,
    pub(crate) groups: Groups,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// Events to report before those of the endpoint.
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    pub(crate) now: Mono,
    /// Buffer for the messages of a scattering.
    pub(crate) written: Vec<u8>,
    is_leaving: bool,
    /// Whether `poll_transmit` may return a frame although no frame arrived and no timer expired.
    pub(crate) has_work: bool,
}

impl LargeEndpoint {
    /// Returns an endpoint in its initial state.
    ///
    /// # Errors
    /// If a number of `config` is out of range.
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
            has_work: false,
            config,
        })
    }

    /// Returns the endpoint, for queries.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the endpoint, for commands about links, failures and recovery. Do not use it for
    /// scatterings and releases.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Returns the payload of a delivered message that is not released yet.
    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        match &delivery.storage {
            Storage::Message { delivery, skip } => &self.endpoint.payload(delivery)[*skip..],
            Storage::Object(group) => self.object(*group),
        }
    }

    /// Releases a message that the application has processed.
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        match delivery.storage {
            Storage::Message { delivery, .. } => self.endpoint.release(delivery),
            Storage::Object(group) => {
                self.release_object(group);
            }
        }
    }

    /// As [`LargeEndpoint::release`], and returns the payload. Does not copy a large payload that
    /// its group no longer needs.
    pub fn take(&mut self, delivery: Delivery) -> Vec<u8> {
        match delivery.storage {
            Storage::Message { delivery, skip } => {
                let payload = self.endpoint.payload(&delivery)[skip..].to_vec();
                self.endpoint.release(delivery);
                payload
            }
            Storage::Object(group) => {
                let arrival = self.incoming.arrivals.get(&group);
                let is_shared = arrival.is_some_and(|arrival| arrival.memory.is_none());
                let copy = is_shared.then(|| self.object(group).to_vec());
                let memory = self.release_object(group);
                memory.or(copy).unwrap_or_default()
            }
        }
    }

    /// Returns the bytes of large payloads in the send buffer and in the receive buffer.
    pub fn buffered_bytes(&self) -> (u64, u64) {
        (self.outgoing.bytes, self.incoming.bytes)
    }

    /// Returns whether the outcome of everything submitted is known.
    pub fn is_drained(&self) -> bool {
        self.outgoing.queue.is_empty() && self.endpoint.is_drained()
    }

    /// Leaves the fabric as [`Endpoint::leave`] does, once everything submitted is ordered or
    /// reported as failed.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.advance();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Returns whether a transmit poll may yield a frame before the next timeout. A hint, as
    /// [`Endpoint::wants_transmit`].
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.endpoint.wants_transmit() || self.groups.iter().next().is_some()
    }

    /// Returns the counters of large payloads since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether any large payload is in progress.
    #[inline]
    fn is_busy(&self) -> bool {
        !self.outgoing.queue.is_empty()
            || !self.incoming.arrivals.is_empty()
            || self.groups.iter().next().is_some()
            || !self.outgoing.withdrawn.is_empty()
            || self.is_leaving
    }

    /// Processes the events of all groups, and advances the scatterings.
    #[inline]
    pub(crate) fn process_groups_and_advance(&mut self) {
        if self.is_busy() {
            self.poll_groups();
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
        self.process_groups_and_advance();
        self.check_after_input();
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now.mono;
        self.endpoint.handle_timeout(now);
        self.groups.handle_timeout(now);
        self.drop_overdue();
        self.process_groups_and_advance();
        self.check_after_input();
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.now = now.mono;
        if let Some(sent) = self.endpoint.poll_transmit(now, slot) {
            return Some(sent);
        }
        let sent = self.groups.poll_transmit(now, slot);
        self.has_work &= sent.is_some();
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
        if self.has_work {
            return Some(self.now);
        }
        let parts_deadline =
            Mono::earlier(self.endpoint.poll_timeout(), self.groups.poll_timeout());
        Mono::earlier(parts_deadline, self.incoming.drop_at())
    }
}
