//! The endpoint as a driven machine.

mod memory;

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
use onepipe_wire::{MarkedMessage, Service};

use crate::memory::MemoryService;
use crate::pipe_endpoint::{self, BufferedMessage, PipeEndpoint};
use crate::process_set::ProcessSet;
use crate::{Event, Link};

/// An endpoint that can be driven, and tracks lost links.
#[derive(Debug)]
pub(crate) struct Node {
    pipe_endpoint: PipeEndpoint,
    memory: MemoryService,
    /// Departed processes that the memory's machines do not know of yet, with upper bounds of the
    /// timestamps of their messages.
    memory_departed: VecDeque<(ProcessId, Option<Timestamp>)>,
    /// Those of `memory_departed` that have started again since.
    memory_restarted: Vec<ProcessId>,
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

/// What became of the next event of the endpoint.
enum Step {
    Event(NodeEvent),
    /// The node has handled it: the application gets nothing.
    Handled,
    /// There is none.
    Drained,
}

impl Node {
    pub(crate) fn new(pipe_endpoint: PipeEndpoint, memory: MemoryService) -> Self {
        let lost = ProcessSet::empty(pipe_endpoint.endpoint().config().processes_max);
        // The endpoint announces itself at once.
        let departed = VecDeque::new();
        Self {
            pipe_endpoint,
            memory,
            memory_departed: VecDeque::new(),
            memory_restarted: Vec::new(),
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
        if messages.iter().any(|message| MarkedMessage::is_marked(message.payload)) {
            return self.scatter_escaped(service, messages);
        }
        self.pipe_endpoint.scatter(service, messages)
    }

    /// Cancels a reliable scattering of the application.
    pub(crate) fn cancel(&mut self, scattering: ScatteringId) -> bool {
        !self.memory.is_own(Service::Reliable, scattering) && self.pipe_endpoint.cancel(scattering)
    }

    /// The reliable scatterings of the application without an outcome.
    pub(crate) fn open_scatterings(&self) -> Vec<OpenScattering> {
        let mut open = self.pipe_endpoint.open_scatterings();
        open.retain(|open| !self.memory.is_own(Service::Reliable, open.scattering));
        open
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
        // All processes share one clock: nothing it has stamped is above the present promise.
        let bound = self.endpoint().promises().map(|promises| promises.barrier);
        self.memory_departed.push_back((process, bound));
        if has_died && !self.lost.contains(process) {
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
    /// Takes one event of the endpoint, or reports what the endpoint does not know.
    #[inline]
    fn poll_step(&mut self) -> Step {
        if self.holds_events {
            return Step::Drained;
        }
        let Some(polled) = self.pipe_endpoint.poll_event() else { return self.on_drained() };
        let event = match polled {
            pipe_endpoint::EndpointEvent::Delivered(buffered) => {
                return self.on_delivered(buffered);
            }
            pipe_endpoint::EndpointEvent::Undelivered(buffered) => {
                return self.on_undelivered(buffered);
            }
            pipe_endpoint::EndpointEvent::Other(event) => event,
        };
        match event {
            endpoint::Event::SendFailed(failed) if self.on_memory_send_failed(&failed) => {
                Step::Handled
            }
            endpoint::Event::SendFailed(failed) => Step::Event(NodeEvent::SendFailed(failed)),
            endpoint::Event::LinkLost(port) if self.is_mesh() => {
                let process = ProcessId(u32::from(port.0));
                self.lost.insert(process);
                Step::Event(NodeEvent::LinkLost(Link::Process(process)))
            }
            endpoint::Event::LinkLost(_) => Step::Event(NodeEvent::LinkLost(Link::Switch)),
            endpoint::Event::ProcessFailed(failed) if self.is_past(failed.at) => {
                self.on_failure_handled();
                Step::Handled
            }
            endpoint::Event::ProcessFailed(failed) => {
                self.memory.on_process_ended(failed.process, failed.at);
                Step::Event(NodeEvent::ProcessFailed(failed))
            }
            endpoint::Event::ProcessLeft(left) if self.is_past(left.at) => Step::Handled,
            endpoint::Event::ProcessLeft(left) => {
                self.memory.on_process_ended(left.process, left.at);
                Step::Event(NodeEvent::ProcessLeft(left))
            }
            endpoint::Event::Excluded(at) => {
                // The controllers know the outcome of what was received: request it at once.
                if let Some(now) = self.now {
                    self.endpoint_mut().recover(now);
                    self.wants_poll = true;
                }
                Step::Event(NodeEvent::Excluded(at))
            }
            endpoint::Event::Recovered(complete) => Step::Event(NodeEvent::Recovered(complete)),
            // The endpoint has no other events yet; the type is non-exhaustive.
            _ => Step::Drained,
        }
    }

    /// Reports what the endpoint does not know, when all its events were taken.
    fn on_drained(&mut self) -> Step {
        self.on_memory_drained();
        if let Some(refusal) = self.refused.take() {
            return Step::Event(NodeEvent::Refused(refusal));
        }
        if self.segment_loss == SegmentLoss::Unreported {
            self.segment_loss = SegmentLoss::Reported;
            return Step::Event(NodeEvent::SegmentLost);
        }
        self.was_registered = self.endpoint().is_registered();
        let barrier = self.endpoint().barrier();
        self.began = self.began.or(barrier);
        match self.departed.pop_front_if(|(_, bound)| *bound <= barrier) {
            Some((process, _)) => Step::Event(NodeEvent::LinkLost(Link::Process(process))),
            None => Step::Drained,
        }
    }
}

impl Machine for Node {
    type Event = NodeEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.now = Some(now);
        self.pipe_endpoint.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.wants_poll = true;
        self.now = Some(now);
        self.pipe_endpoint.handle_timeout(now);
        self.memory.handle_timeout(now.mono);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.now = Some(now);
        self.send_memory();
        let transmit = self.pipe_endpoint.poll_transmit(now, slot);
        self.wants_poll &= transmit.is_some();
        transmit
    }

    #[inline]
    fn poll_event(&mut self) -> Option<NodeEvent> {
        loop {
            match self.poll_step() {
                Step::Event(event) => return Some(event),
                Step::Handled => {}
                Step::Drained => return None,
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.pipe_endpoint.poll_timeout(), self.memory.poll_timeout())
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
            let step = match self.pipe_endpoint.poll_delivery().map(BufferedMessage::Message) {
                Some(buffered) if !self.is_marked(&buffered) => {
                    on_event(self, NodeEvent::Delivered(buffered));
                    events += 1;
                    continue;
                }
                Some(buffered) => self.on_marked(buffered),
                None => self.poll_step(),
            };
            match step {
                Step::Event(event) => on_event(self, event),
                Step::Handled => {}
                Step::Drained => break,
            }
            events += 1;
        }
        self.send_memory();
        events
    }

    #[inline]
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        self.now = Some(now);
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
        let is_waiting = self.endpoint().pending() > 0
            || !self.departed.is_empty()
            || !self.memory_departed.is_empty()
            || self.memory.awaited().is_some();
        self.is_mesh() && is_waiting
    }
}
