//! The endpoint as a driven machine.

use std::collections::VecDeque;

use onepipe_base::{
    Cause, Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, ScatteringId, Timestamp,
    Transmit, Verdict,
};
use onepipe_endpoint::{
    self as endpoint, Endpoint, Links, Message, OpenScattering, ProcessFailed, ProcessLeft,
    SendError, SendFailed,
};
use onepipe_transport_driver as driver;
use onepipe_transport_udp::Refusal;
use onepipe_wire::Service;

use crate::pipe_endpoint::{self, BufferedMessage, PipeEndpoint};
use crate::process_set::ProcessSet;
use crate::{Event, Link};

/// An endpoint that can be driven, and tracks lost links.
#[derive(Debug)]
pub(crate) struct Node {
    pipe_endpoint: PipeEndpoint,
    /// A deadline has expired or a link has gone down since `poll_transmit` last returned `None`.
    wants_poll: bool,
    /// Events are held back for now.
    holds_events: bool,
    /// Processes whose link was reported lost, and which have made no promise since.
    lost: ProcessSet,
    /// Dead processes that are not reported yet, each with an upper bound of the timestamps of its
    /// messages: a death is reported once the barrier has reached the bound.
    departed: VecDeque<(ProcessId, Option<Timestamp>)>,
    /// Number of messages handed back.
    undelivered: u64,
    /// The time of the last call that passed one.
    now: Option<Now>,
    /// Whether the controllers had registered this process when the last events were polled.
    was_registered: bool,
    /// The first barrier that this process has received.
    began: Option<Timestamp>,
    /// A refusal of the switch that is not reported yet.
    refused: Option<Refusal>,
    segment_loss: SegmentLoss,
}

/// Whether the shared memory is lost, and the application knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentLoss {
    Intact,
    Unreported,
    Reported,
}

/// An event of the node; a message is still in the receive buffer.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    Delivered(BufferedMessage),
    Undelivered(BufferedMessage),
    SendFailed(SendFailed),
    LinkLost(Link),
    /// Must be followed by [`Node::on_failure_handled`].
    ProcessFailed(ProcessFailed),
    ProcessLeft(ProcessLeft),
    Excluded(Timestamp),
    Recovered(Timestamp),
    Refused(Refusal),
    SegmentLost,
}

impl Node {
    pub(crate) fn new(pipe_endpoint: PipeEndpoint) -> Self {
        let lost = ProcessSet::empty(pipe_endpoint.endpoint().config().processes_max);
        // The endpoint announces itself at once.
        let departed = VecDeque::new();
        Self {
            pipe_endpoint,
            wants_poll: true,
            holds_events: false,
            lost,
            departed,
            undelivered: 0,
            now: None,
            was_registered: false,
            began: None,
            refused: None,
            segment_loss: SegmentLoss::Intact,
        }
    }

    #[inline]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.pipe_endpoint.endpoint()
    }

    /// The endpoint, for commands that do not concern messages.
    #[inline]
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.pipe_endpoint.endpoint_mut()
    }

    /// Submits a scattering.
    #[inline]
    pub(crate) fn scatter(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        self.pipe_endpoint.scatter(service, messages)
    }

    /// Cancels a reliable scattering.
    pub(crate) fn cancel(&mut self, scattering: ScatteringId) -> bool {
        self.pipe_endpoint.cancel(scattering)
    }

    /// The reliable scatterings without an outcome.
    pub(crate) fn open_scatterings(&self) -> Vec<OpenScattering> {
        self.pipe_endpoint.open_scatterings()
    }

    /// Reports that the switch does not admit this process any more.
    pub(crate) fn on_refused(&mut self, refusal: Refusal) {
        self.refused = Some(refusal);
        self.wants_poll = true;
    }

    /// Reports once that the shared memory is lost.
    pub(crate) fn on_segment_lost(&mut self) {
        if self.segment_loss == SegmentLoss::Intact {
            self.segment_loss = SegmentLoss::Unreported;
            self.wants_poll = true;
        }
    }

    /// Whether the application knows that the shared memory is lost: no further event comes.
    #[inline]
    pub(crate) fn has_reported_loss(&self) -> bool {
        self.segment_loss == SegmentLoss::Reported
    }

    /// Whether the outcomes of all submitted messages are known.
    pub(crate) fn is_drained(&self) -> bool {
        self.pipe_endpoint.is_drained()
    }

    /// Starts to leave.
    pub(crate) fn leave(&mut self) {
        self.pipe_endpoint.leave();
        self.wants_poll = true;
    }

    /// Ends a leave that takes too long: hands back what was received and cannot be delivered.
    pub(crate) fn hand_back(&mut self) {
        self.endpoint_mut().hand_back();
        self.wants_poll = true;
    }

    /// The number of messages that were handed back.
    pub(crate) fn undelivered(&self) -> u64 {
        self.undelivered
    }

    /// Starts or stops holding back events.
    pub(crate) fn hold_events(&mut self, holds_events: bool) {
        self.holds_events = holds_events;
    }

    /// Takes the link of a departed process down, unless it `is_back` already. Reports the process
    /// once if it `has_died`.
    pub(crate) fn unlink_departed(&mut self, process: ProcessId, has_died: bool, is_back: bool) {
        if !is_back {
            let cause = if has_died { Cause::Refused } else { Cause::Left };
            self.endpoint_mut().handle_link_down(Port(process.0 as u16), cause);
            self.wants_poll = true;
        }
        if has_died && !self.lost.contains(process) {
            // All processes share one clock: nothing it has stamped is above the present promise.
            let bound = self.endpoint().promises().map(|promises| promises.barrier);
            self.departed.push_back((process, bound));
        }
        self.lost.remove(process);
    }

    /// Hands out an event with its payload in place, and releases the payload.
    #[inline]
    pub(crate) fn deliver(&mut self, polled: NodeEvent, on_event: &mut impl FnMut(Event<&[u8]>)) {
        match polled {
            NodeEvent::Delivered(buffered) => {
                let payload = self.pipe_endpoint.payload(&buffered);
                on_event(Event::Message(buffered.received(payload)));
                self.pipe_endpoint.release(buffered);
            }
            NodeEvent::Undelivered(buffered) => {
                let payload = self.pipe_endpoint.payload(&buffered);
                on_event(Event::Undelivered(buffered.received(payload)));
                self.pipe_endpoint.release(buffered);
            }
            NodeEvent::SendFailed(failed) => on_event(Event::SendFailed(failed)),
            NodeEvent::LinkLost(link) => on_event(Event::LinkLost(link)),
            NodeEvent::ProcessFailed(failed) => on_event(Event::ProcessFailed(failed)),
            NodeEvent::ProcessLeft(left) => on_event(Event::ProcessLeft(left)),
            NodeEvent::Excluded(void_from) => on_event(Event::Excluded { void_from }),
            NodeEvent::Recovered(complete) => on_event(Event::Recovered(complete)),
            NodeEvent::Refused(refusal) => on_event(Event::refused(refusal)),
            NodeEvent::SegmentLost => on_event(Event::SegmentLost),
        }
    }

    /// Notes that the application has handled a [`NodeEvent::ProcessFailed`].
    pub(crate) fn on_failure_handled(&mut self) {
        self.endpoint_mut().on_failure_handled();
        self.wants_poll = true;
    }

    /// Returns whether an instance that failed or left at `at` was gone before this process joined.
    /// The controllers report such instances before they register a process, which discards late
    /// messages of these; they are nothing to the application, which knows none of them.
    fn is_past(&self, at: Timestamp) -> bool {
        !self.was_registered && self.began.is_none_or(|began| at < began)
    }

    fn is_mesh(&self) -> bool {
        self.endpoint().config().links == Links::Mesh
    }
}

impl Machine for Node {
    type Event = NodeEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.pipe_endpoint.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.wants_poll = true;
        self.now = Some(now);
        self.pipe_endpoint.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.now = Some(now);
        let transmit = self.pipe_endpoint.poll_transmit(now, slot);
        self.wants_poll &= transmit.is_some();
        transmit
    }

    #[inline]
    fn poll_event(&mut self) -> Option<NodeEvent> {
        if self.holds_events {
            return None;
        }
        let Some(polled) = self.pipe_endpoint.poll_event() else {
            if let Some(refusal) = self.refused.take() {
                return Some(NodeEvent::Refused(refusal));
            }
            if self.segment_loss == SegmentLoss::Unreported {
                self.segment_loss = SegmentLoss::Reported;
                return Some(NodeEvent::SegmentLost);
            }
            self.was_registered = self.endpoint().is_registered();
            let barrier = self.endpoint().barrier();
            self.began = self.began.or(barrier);
            let (process, _) = self.departed.pop_front_if(|(_, bound)| *bound <= barrier)?;
            return Some(NodeEvent::LinkLost(Link::Process(process)));
        };
        let event = match polled {
            pipe_endpoint::EndpointEvent::Delivered(buffered) => {
                return Some(NodeEvent::Delivered(buffered));
            }
            pipe_endpoint::EndpointEvent::Undelivered(buffered) => {
                self.undelivered += 1;
                return Some(NodeEvent::Undelivered(buffered));
            }
            pipe_endpoint::EndpointEvent::Other(event) => event,
        };
        match event {
            endpoint::Event::SendFailed(failed) => Some(NodeEvent::SendFailed(failed)),
            endpoint::Event::LinkLost(port) if self.is_mesh() => {
                let process = ProcessId(u32::from(port.0));
                self.lost.insert(process);
                Some(NodeEvent::LinkLost(Link::Process(process)))
            }
            endpoint::Event::LinkLost(_) => Some(NodeEvent::LinkLost(Link::Switch)),
            endpoint::Event::ProcessFailed(failed) if self.is_past(failed.at) => {
                self.on_failure_handled();
                self.poll_event()
            }
            endpoint::Event::ProcessFailed(failed) => Some(NodeEvent::ProcessFailed(failed)),
            endpoint::Event::ProcessLeft(left) if self.is_past(left.at) => self.poll_event(),
            endpoint::Event::ProcessLeft(left) => Some(NodeEvent::ProcessLeft(left)),
            endpoint::Event::Excluded(at) => {
                // The controllers know the outcome of what was received: request it at once.
                if let Some(now) = self.now {
                    self.endpoint_mut().recover(now);
                    self.wants_poll = true;
                }
                Some(NodeEvent::Excluded(at))
            }
            endpoint::Event::Recovered(complete) => Some(NodeEvent::Recovered(complete)),
            // The endpoint has no other events yet; the type is non-exhaustive.
            _ => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.pipe_endpoint.poll_timeout()
    }
}

impl driver::DrivenMachine for Node {
    #[inline]
    fn poll_events(
        &mut self,
        max: usize,
        on_event: &mut impl FnMut(&mut Self, NodeEvent),
    ) -> usize {
        let mut events = 0;
        while events < max && !self.holds_events {
            if let Some(delivery) = self.pipe_endpoint.poll_delivery() {
                on_event(self, NodeEvent::Delivered(BufferedMessage::Message(delivery)));
            } else if let Some(event) = self.poll_event() {
                on_event(self, event);
            } else {
                break;
            }
            events += 1;
        }
        events
    }

    #[inline]
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        self.lost.remove(ProcessId(u32::from(port.0)));
        self.endpoint_mut().handle_promises(now, port, promises);
    }

    fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        self.wants_poll = true;
        self.endpoint_mut().handle_peer(now, port, incarnation);
    }

    #[inline]
    fn oldest_open(&self) -> Option<Timestamp> {
        self.endpoint().oldest_open()
    }

    #[inline]
    fn promises(&self) -> Option<Promises> {
        self.endpoint().promises()
    }

    #[inline]
    fn wants_transmit(&self) -> bool {
        self.wants_poll || self.pipe_endpoint.wants_transmit()
    }

    /// In shared memory a rising promise does not wake a process.
    #[inline]
    fn is_awaiting_promises(&self) -> bool {
        self.is_mesh() && (self.endpoint().pending() > 0 || !self.departed.is_empty())
    }
}
