//! Submission: invitations, transfers, and finally descriptors.

use alloc::vec::Vec;

use onepipe_base::{ProcessId, ScatteringId};
use onepipe_endpoint::{FailureReason, Message, Outcome, SendFailed, Service};
use onepipe_wire::LargeControl;

use crate::config::block_len;
use crate::incoming::Arrival;
use crate::outgoing::{Purpose, Scattering, bytes_of, put_message};
use crate::{Event, LargeEndpoint, SendError};

/// Layout of a group number: 20 bits of sender, 12 of incarnation, 32 of counter.
const SENDER_SHIFT: u32 = 44;
const INCARNATION_SHIFT: u32 = 32;
const _: () = assert!(INCARNATION_SHIFT == u32::BITS, "the counter fills the lowest bits");
const _: () = assert!(SENDER_SHIFT > INCARNATION_SHIFT, "an incarnation has bits");

/// Returns whether the number of `group` names `sender`.
pub(crate) fn is_group_of(group: u64, sender: ProcessId) -> bool {
    group >> SENDER_SHIFT == u64::from(sender.0)
}

impl LargeEndpoint {
    /// Submits a scattering of the best-effort service, as [`onepipe_endpoint::Endpoint::scatter`],
    /// with payloads of any size. Copies the payloads. Scatterings are numbered from 0 in the order
    /// of submission, per service, independently of the endpoint's own ids.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the scattering is accepted then.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        match self.is_plain(messages) {
            true => {
                let id = self.endpoint.scatter(messages)?;
                Ok(self.outgoing.map_new_id(Service::BestEffort, id))
            }
            false => self.submit(Service::BestEffort, messages),
        }
    }

    /// Submits a message without an order, as [`onepipe_endpoint::Endpoint::send_unordered`]. A
    /// payload that does not fit one message of the endpoint is sent in order.
    ///
    /// # Errors
    /// [`SendError`]; the message is not accepted then.
    #[inline]
    pub fn send_unordered(&mut self, message: Message<'_>) -> Result<ScatteringId, SendError> {
        match self.is_plain(&[message]) {
            true => {
                let id = self.endpoint.send_unordered(message)?;
                Ok(self.outgoing.map_new_id(Service::BestEffort, id))
            }
            false => self.submit(Service::BestEffort, &[message]),
        }
    }

    /// Submits a reliable scattering, as [`onepipe_endpoint::Endpoint::scatter_reliably`], with
    /// payloads of any size: all correct receivers deliver it, or none does.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the scattering is accepted then.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        match self.is_plain(messages) {
            true => {
                let id = self.endpoint.scatter_reliably(messages)?;
                Ok(self.outgoing.map_new_id(Service::Reliable, id))
            }
            false => self.submit(Service::Reliable, messages),
        }
    }

    /// Returns whether a scattering can be passed to the endpoint unchanged.
    #[inline]
    fn is_plain(&self, messages: &[Message<'_>]) -> bool {
        let is_plain = |message: &Message<'_>| {
            message.payload.len() <= self.config.large_threshold_bytes
                && !LargeControl::is_control(message.payload)
        };
        !self.is_leaving() && messages.iter().all(is_plain)
    }

    #[cold]
    fn submit(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        if self.is_leaving() {
            return Err(onepipe_endpoint::SendError::Left.into());
        }
        let large_threshold_bytes = self.config.large_threshold_bytes;
        let is_large = |message: &Message<'_>| message.payload.len() > large_threshold_bytes;
        if !messages.iter().any(is_large) {
            let id = self.submit_escaped(service, messages)?;
            return Ok(self.outgoing.map_new_id(service, id));
        }
        self.check(messages)?;
        let id = self.outgoing.next_id(service);
        let group = self.next_group();
        let own = self.config.endpoint.process;
        let scattering = Scattering::new(service, id, messages, large_threshold_bytes, own, group);
        self.outgoing.groups = self.outgoing.groups.wrapping_add(scattering.objects.len() as u32);
        self.outgoing.bytes += scattering.bytes;
        self.outgoing.queue.push_back(scattering);
        self.advance();
        Ok(id)
    }

    /// Checks a scattering with large payloads against the limits and the free send buffer.
    fn check(&self, messages: &[Message<'_>]) -> Result<(), SendError> {
        self.config.check_scattering(messages)?;
        if !self.endpoint.is_member() {
            return Err(onepipe_endpoint::SendError::Excluded.into());
        }
        let need = bytes_of(messages);
        debug_assert!(self.outgoing.bytes <= self.config.sent_bytes_max, "the buffer is bounded");
        let free = self.config.sent_bytes_max - self.outgoing.bytes;
        if need > free { Err(SendError::Full { need, free }) } else { Ok(()) }
    }

    /// Submits a scattering of small messages, some of which must be escaped.
    fn submit_escaped(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, onepipe_endpoint::SendError> {
        let mut written = Vec::new();
        let mut parts = Vec::with_capacity(messages.len());
        for message in messages {
            let from = written.len();
            put_message(message.payload, |part| written.extend_from_slice(part));
            parts.push((message.to, from, written.len()));
        }
        self.scatter_written(service, &written, &parts)
    }

    /// Submits a scattering whose messages are ranges of `written`. `parts` holds the receiver,
    /// start and end of each message.
    fn scatter_written(
        &mut self,
        service: Service,
        written: &[u8],
        parts: &[(ProcessId, usize, usize)],
    ) -> Result<ScatteringId, onepipe_endpoint::SendError> {
        let message = |(to, from, end): &(ProcessId, usize, usize)| Message {
            to: *to,
            payload: &written[*from..*end],
        };
        let messages: Vec<Message<'_>> = parts.iter().map(message).collect();
        match service {
            Service::BestEffort => self.endpoint.scatter(&messages),
            Service::Reliable => self.endpoint.scatter_reliably(&messages),
        }
    }

    fn next_group(&self) -> u64 {
        let endpoint = &self.config.endpoint;
        let incarnation =
            u64::from(endpoint.incarnation.0) & ((1 << (SENDER_SHIFT - INCARNATION_SHIFT)) - 1);
        let sender = u64::from(endpoint.process.0);
        sender << SENDER_SHIFT | incarnation << INCARNATION_SHIFT | u64::from(self.outgoing.groups)
    }

    /// Advances all scatterings as far as possible, in the order of submission. A scattering is
    /// started if its payloads do not exceed the limit of payloads in flight, or if none is in
    /// flight: otherwise one with more payloads than the limit could never start.
    pub(crate) fn advance(&mut self) {
        while let Some((service, group, to)) = self.outgoing.withdrawn.front().copied() {
            if self.withdraw(service, group, to).is_err() {
                break;
            }
            self.outgoing.withdrawn.pop_front();
        }
        let mut at = 0;
        while at < self.outgoing.queue.len() {
            let scattering = &self.outgoing.queue[at];
            let result = if scattering.is_whole() {
                self.order(at)
            } else if scattering.is_started {
                self.invite(at)
            } else {
                let in_flight = self.outgoing.in_flight();
                let total = in_flight + scattering.objects.len();
                if in_flight > 0 && total > self.config.objects_max {
                    break;
                }
                self.outgoing.queue[at].is_started = true;
                self.invite(at)
            };
            match result {
                Ok(Step::Done) => {}
                Ok(Step::Waiting) => at += 1,
                // Retried when transmissions have freed buffer space.
                Err(onepipe_endpoint::SendError::BufferFull { .. }) => break,
                Err(_) => self.abort(at),
            }
        }
        if self.is_leaving() && self.outgoing.queue.is_empty() {
            self.endpoint.leave();
        }
    }

    /// Sends the invitations of a scattering that are not sent yet.
    fn invite(&mut self, at: usize) -> Result<Step, onepipe_endpoint::SendError> {
        let own = self.config.endpoint.process;
        for number in 0..self.outgoing.queue[at].objects.len() {
            let scattering = &mut self.outgoing.queue[at];
            let service = scattering.service;
            let object = &mut scattering.objects[number];
            if object.is_invited {
                continue;
            }
            let descriptor = object.descriptor;
            if object.receivers.is_empty() {
                // This process is the only receiver.
                (object.is_invited, object.is_whole) = (true, true);
                let memory = core::mem::take(&mut object.memory);
                self.insert_own_object(own, service, descriptor, memory);
                continue;
            }
            let mut written = core::mem::take(&mut self.written);
            written.clear();
            let members: Vec<ProcessId> =
                core::iter::once(own).chain(object.receivers.iter().copied()).collect();
            let (block_len, piece_len) = (block_len(descriptor.bytes), self.config.piece_len());
            let invited = members.iter().copied();
            LargeControl::write_invitation(descriptor, block_len, piece_len, invited, |part| {
                written.extend_from_slice(part);
            });
            // Include this process: all members start when they deliver the invitation.
            let invitations = members.iter().map(|to| (*to, 0, written.len())).collect::<Vec<_>>();
            let result = self.scatter_written(service, &written, &invitations);
            self.written = written;
            let id = result?;
            self.outgoing.track(service, id, Purpose::Invitation(descriptor.group));
            debug_assert!(self.outgoing.queue[at].is_started, "a payload in flight is counted");
            self.outgoing.queue[at].objects[number].is_invited = true;
            self.stats.objects_sent += 1;
        }
        match self.outgoing.queue[at].is_whole() {
            true => self.order(at),
            false => Ok(Step::Waiting),
        }
    }

    /// Sends the descriptors of a scattering whose payloads have reached all receivers.
    fn order(&mut self, at: usize) -> Result<Step, onepipe_endpoint::SendError> {
        let mut written = core::mem::take(&mut self.written);
        written.clear();
        let scattering = &self.outgoing.queue[at];
        debug_assert!(scattering.is_whole(), "bulk first, order last");
        let service = scattering.service;
        let messages = scattering.write(&mut written);
        let result = self.scatter_written(service, &written, &messages);
        self.written = written;
        let id = result?;
        let Some(scattering) = self.outgoing.remove(at) else { return Ok(Step::Done) };
        let objects = (0..scattering.parts.len()).map(|index| scattering.object_at(index));
        self.outgoing.track(service, id, Purpose::Descriptors(scattering.id, objects.collect()));
        for object in &scattering.objects {
            self.stats.objects_ordered += 1;
            self.close_group(object.descriptor.group);
        }
        Ok(Step::Done)
    }

    /// Gives up a scattering that cannot reach all its receivers: nothing of it is ordered.
    pub(crate) fn abort(&mut self, at: usize) {
        let Some(scattering) = self.outgoing.remove(at) else { return };
        for (index, part) in scattering.parts.iter().enumerate() {
            self.events.push_back(Event::SendFailed(SendFailed {
                service: scattering.service,
                scattering: scattering.id,
                index: index as u16,
                to: part.to,
                timestamp: None,
                outcome: Outcome::Lost,
                reason: FailureReason::ReceiverFailed,
            }));
        }
        for object in &scattering.objects {
            self.stats.objects_failed += 1;
            // Receivers of the payload detect that the root has left, and drop it.
            self.leave_group(object.descriptor.group);
            self.forget(object.descriptor.group);
        }
    }

    /// Stores an own payload of which this process is a receiver.
    pub(crate) fn insert_own_object(
        &mut self,
        own: ProcessId,
        service: Service,
        descriptor: onepipe_wire::LargeObject,
        memory: Vec<u8>,
    ) {
        debug_assert_eq!(memory.len() as u64, descriptor.bytes, "all of the payload");
        let mut arrival = Arrival::new(own, service, descriptor);
        (arrival.is_whole, arrival.has_memory, arrival.memory) = (true, true, Some(memory));
        self.incoming.bytes += descriptor.bytes;
        self.incoming.arrivals.insert(descriptor.group, arrival);
    }

    fn withdraw(
        &mut self,
        service: Service,
        group: u64,
        to: ProcessId,
    ) -> Result<(), onepipe_endpoint::SendError> {
        if to == self.config.endpoint.process {
            self.forget(group);
            return Ok(());
        }
        let mut written = Vec::new();
        LargeControl::write_withdrawn(group, |part| written.extend_from_slice(part));
        match self.scatter_written(service, &written, &[(to, 0, written.len())]) {
            Ok(id) => {
                self.outgoing.track(service, id, Purpose::Withdrawal(group));
                Ok(())
            }
            Err(full @ onepipe_endpoint::SendError::BufferFull { .. }) => Err(full),
            // This process has left: nothing needs to be withdrawn.
            Err(_) => Ok(()),
        }
    }
}

/// Progress of a scattering.
pub(crate) enum Step {
    /// All descriptors are sent.
    Done,
    /// Payloads are in flight.
    Waiting,
}
