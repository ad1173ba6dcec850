//! The endpoint as the driver wants it.

use std::collections::VecDeque;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, ScatteringId, Timestamp, Transmit,
    Verdict,
};
use onepipe_endpoint::{
    self as endpoint, Endpoint, Links, Message, ProcessFailed, SendError, SendFailed,
};
use onepipe_transport_driver as driver;
use onepipe_wire::Service;

use crate::end::{self, End, Lying, Rules};
use crate::peers::Peers;
use crate::{Event, Link};

/// An endpoint that can be driven, and knows which links are lost.
#[derive(Debug)]
pub(crate) struct Node {
    end: End,
    /// A deadline has passed, or a link has gone, since it was last polled to the end.
    is_due: bool,
    /// Events stay inside for now.
    is_held: bool,
    /// Reported as lost, and not heard since.
    lost: Peers,
    /// To be reported behind everything that they may have sent, which is below this.
    gone: VecDeque<(ProcessId, Option<Timestamp>)>,
    /// As last seen.
    now: Option<Now>,
}

/// What the endpoint tells; a message still lies in its receive buffer.
#[derive(Debug)]
pub(crate) enum Told {
    Delivered(Lying),
    SendFailed(SendFailed),
    LinkLost(Link),
    /// To be followed by [`Node::on_failure_handled`].
    ProcessFailed(ProcessFailed),
    Excluded(Timestamp),
    Recovered(Timestamp),
}

impl Node {
    pub(crate) fn new(end: End) -> Self {
        let lost = Peers::none(end.endpoint().config().processes_max);
        // It has something to do at once: to announce itself.
        let gone = VecDeque::new();
        Self { end, is_due: true, is_held: false, lost, gone, now: None }
    }

    #[inline]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.end.endpoint()
    }

    /// For commands that have nothing to do with messages.
    #[inline]
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.end.endpoint_mut()
    }

    /// Submits a scattering.
    #[inline]
    pub(crate) fn scatter(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        self.end.scatter(service, messages)
    }

    /// What is refused at once.
    pub(crate) fn rules(&self) -> Rules {
        self.end.rules()
    }

    /// Whether the fate of everything submitted is known.
    pub(crate) fn is_drained(&self) -> bool {
        self.end.is_drained()
    }

    /// Keeps events inside from now on, or no longer.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// The kernel says that a process has gone: nobody waits for it, unless it `is_back` already.
    /// It is reported, once, if it `has_died`.
    pub(crate) fn part(&mut self, process: ProcessId, has_died: bool, is_back: bool) {
        if !is_back {
            self.endpoint_mut().handle_link_down(Port(process.0 as u16));
            self.is_due = true;
        }
        if has_died && !self.lost.contains(process) {
            // One clock for all: nothing that it has stamped is above what is promised now.
            let bound = self.endpoint().promises().map(|promises| promises.barrier);
            self.gone.push_back((process, bound));
        }
        self.lost.remove(process);
    }

    /// Shows an event where it lies and lets go of it.
    #[inline]
    pub(crate) fn show(&mut self, told: Told, on_event: &mut impl FnMut(Event<&[u8]>)) {
        match told {
            Told::Delivered(lying) => {
                let payload = self.end.payload(&lying);
                on_event(Event::Message(lying.received(payload)));
                self.end.release(lying);
            }
            Told::SendFailed(failed) => on_event(Event::SendFailed(failed)),
            Told::LinkLost(link) => on_event(Event::LinkLost(link)),
            Told::ProcessFailed(failed) => on_event(Event::ProcessFailed(failed)),
            Told::Excluded(at) => on_event(Event::Excluded(at)),
            Told::Recovered(complete) => on_event(Event::Recovered(complete)),
        }
    }

    /// The application is through with a [`Told::ProcessFailed`].
    pub(crate) fn on_failure_handled(&mut self) {
        self.endpoint_mut().on_failure_handled();
        self.is_due = true;
    }

    fn is_mesh(&self) -> bool {
        self.endpoint().config().links == Links::Mesh
    }
}

impl Machine for Node {
    type Event = Told;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.end.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.is_due = true;
        self.now = Some(now);
        self.end.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.now = Some(now);
        let transmit = self.end.poll_transmit(now, slot);
        self.is_due &= transmit.is_some();
        transmit
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Told> {
        if self.is_held {
            return None;
        }
        let Some(told) = self.end.poll_event() else {
            let barrier = self.endpoint().barrier();
            let (process, _) = self.gone.pop_front_if(|(_, bound)| *bound <= barrier)?;
            return Some(Told::LinkLost(Link::Process(process)));
        };
        let event = match told {
            end::Told::Delivered(lying) => return Some(Told::Delivered(lying)),
            end::Told::News(event) => event,
        };
        match event {
            endpoint::Event::SendFailed(failed) => Some(Told::SendFailed(failed)),
            endpoint::Event::LinkLost(port) if self.is_mesh() => {
                let process = ProcessId(u32::from(port.0));
                self.lost.insert(process);
                Some(Told::LinkLost(Link::Process(process)))
            }
            endpoint::Event::LinkLost(_) => Some(Told::LinkLost(Link::Switch)),
            endpoint::Event::ProcessFailed(failed) => Some(Told::ProcessFailed(failed)),
            endpoint::Event::Excluded(at) => {
                // What has been received has its fate everywhere: it is asked for at once.
                if let Some(now) = self.now {
                    self.endpoint_mut().recover(now);
                    self.is_due = true;
                }
                Some(Told::Excluded(at))
            }
            endpoint::Event::Recovered(complete) => Some(Told::Recovered(complete)),
            // The endpoint has no other events; the type may grow.
            _ => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.end.poll_timeout()
    }
}

impl driver::Pipe for Node {
    #[inline]
    fn hear(&mut self, now: Now, port: Port, promises: Promises) {
        self.lost.remove(ProcessId(u32::from(port.0)));
        self.endpoint_mut().handle_promises(now, port, promises);
    }

    fn meet(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        self.is_due = true;
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
        self.is_due || self.end.wants_transmit()
    }

    /// In shared memory nobody wakes a process because a promise has risen.
    #[inline]
    fn is_waiting(&self) -> bool {
        self.is_mesh() && (self.endpoint().pending() > 0 || !self.gone.is_empty())
    }
}
