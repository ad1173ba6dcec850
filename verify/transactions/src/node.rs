//! All kinds of nodes as one machine.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_traffic::RateLimited;
use onepipe_switch::Switch;

use crate::usage::Sent;

/// A process: the real endpoint, with a CPU of limited speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    id: ProcessId,
    limited: RateLimited<Endpoint>,
    /// The commit barrier below which every reliable message has been handed out.
    drained: Option<Timestamp>,
    sent: Sent,
    message_ns: u64,
}

impl Process {
    /// Creates a process whose CPU needs `message_ns` for each message that it sends, and `ack_ns`
    /// for an acknowledgement.
    pub fn new(id: ProcessId, endpoint: Endpoint, message_ns: u64, ack_ns: u64) -> Self {
        let limited = RateLimited::counting(endpoint, message_ns).with_ack_ns(ack_ns);
        Self { id, limited, drained: None, sent: Sent::default(), message_ns }
    }

    /// Returns what the process has sent.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.limited.machine
    }

    /// Returns the endpoint for commands.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.limited.machine
    }

    /// Returns the commit barrier below which every reliable message has been handed out: the one
    /// that was read before the endpoint had no more events.
    pub fn drained(&self) -> Option<Timestamp> {
        self.drained
    }
}

impl Machine for Process {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.limited.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.limited.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.limited.poll_transmit(now, slot)?;
        self.sent.on_frame(&slot[..transmit.bytes]);
        Some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        let barrier = self.endpoint().commit_barrier();
        let event = self.limited.poll_event();
        match &event {
            None => self.drained = self.drained.max(barrier),
            // A message to oneself leaves in no frame, and takes as much CPU time as any other.
            Some(Event::Delivered(delivery)) if delivery.from == self.id => {
                self.sent.local += 1;
                self.limited.charge_ns(self.message_ns);
            }
            Some(_) => {}
        }
        event
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.limited.poll_timeout()
    }
}

/// A host with processes, a switch, the controller with its network card, or an idle host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub enum Node {
    /// Processes behind a virtual switch.
    Host(Host<Switch, Process>),
    /// A switch.
    Switch(Switch),
    /// A host with the controller, and the port of its network card.
    Controller(Box<Controller>, Port),
    /// A host that does not take part.
    Idle,
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeEvent {
    /// Event of the process at this port.
    Process(Port, Event),
    /// Event of a switch or a controller.
    Other,
}

impl Node {
    /// Returns the process at a port of a host, if it runs.
    pub fn process(&self, port: Port) -> Option<&Process> {
        match self {
            Self::Host(host) => host.process(port),
            _ => None,
        }
    }

    /// Returns the endpoint of the process at a port of a host, for commands.
    pub fn endpoint_mut(&mut self, port: Port) -> Option<&mut Endpoint> {
        match self {
            Self::Host(host) => host.process_mut(port).map(Process::endpoint_mut),
            _ => None,
        }
    }
}

impl Machine for Node {
    type Event = NodeEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
            Self::Controller(controller, _) => controller.handle_frame(now, Port(0), frame),
            Self::Idle => Verdict::Dropped,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Switch(switch) => switch.handle_timeout(now),
            Self::Controller(controller, _) => controller.handle_timeout(now),
            Self::Idle => {}
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Switch(switch) => switch.poll_transmit(now, slot),
            Self::Controller(controller, card) => {
                let transmit = controller.poll_transmit(now, slot)?;
                Some(Transmit { port: *card, ..transmit })
            }
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<NodeEvent> {
        match self {
            Self::Host(host) => host.poll_event().map(|event| match event {
                HostEvent::Process(port, event) => NodeEvent::Process(port, event),
                HostEvent::Switch(_) => NodeEvent::Other,
            }),
            Self::Switch(switch) => switch.poll_event().map(|_| NodeEvent::Other),
            Self::Controller(controller, _) => controller.poll_event().map(|_| NodeEvent::Other),
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Switch(switch) => switch.poll_timeout(),
            Self::Controller(controller, _) => controller.poll_timeout(),
            Self::Idle => None,
        }
    }
}
