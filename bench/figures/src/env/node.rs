//! The nodes of the testbed as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::{Host, HostEvent};
use onepipe_rivals::{Delivery, Rival};
use onepipe_sim_arbiter::{ArbiterHost, Gated};
use onepipe_sim_traffic::{Either, RateLimited, SharedNic, Stack};
use onepipe_switch::Switch;

use super::plain::PlainSwitch;

/// A host of 1Pipe.
pub(super) type OnepipeHost = Host<Switch, RateLimited<Endpoint>>;

/// A host or a switch, of 1Pipe or of a rival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(super) enum Node {
    Host(OnepipeHost),
    /// A host with unscheduled background flows.
    Shared(Box<SharedNic<OnepipeHost>>),
    /// A host with background flows that wait for their timeslots.
    Gated(Box<SharedNic<OnepipeHost, Gated<Stack>>>),
    /// A host with the arbiter that grants the timeslots.
    Arbiter(Box<SharedNic<OnepipeHost, ArbiterHost>>),
    Switch(Switch),
    RivalHost(Host<PlainSwitch, RateLimited<Rival>>),
    PlainSwitch(PlainSwitch),
    /// A host that does not take part.
    Idle,
}

impl Node {
    /// Returns the 1Pipe host, if the node is one.
    pub fn onepipe_mut(&mut self) -> Option<&mut OnepipeHost> {
        match self {
            Self::Host(host) => Some(host),
            Self::Shared(shared) => Some(&mut shared.machine),
            Self::Gated(shared) => Some(&mut shared.machine),
            Self::Arbiter(shared) => Some(&mut shared.machine),
            _ => None,
        }
    }

    /// Returns the TCP stack of the background flows, if the node has one.
    pub fn stack_mut(&mut self) -> Option<&mut Stack> {
        match self {
            Self::Shared(shared) => Some(&mut shared.guest),
            Self::Gated(shared) => Some(&mut shared.guest.source),
            _ => None,
        }
    }

    /// Returns the bytes that the host's flows have received.
    pub fn flows_bytes(&self) -> u64 {
        let stack = match self {
            Self::Shared(shared) => &shared.guest,
            Self::Gated(shared) => &shared.guest.source,
            _ => return 0,
        };
        stack.stats().bytes_received
    }
}

/// An event of a process, with its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NodeEvent {
    Onepipe(Port, Event),
    Rival(Port, Delivery),
    Nothing,
}

impl Machine for Node {
    type Event = NodeEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Shared(shared) => shared.handle_frame(now, port, frame),
            Self::Gated(shared) => shared.handle_frame(now, port, frame),
            Self::Arbiter(shared) => shared.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
            Self::RivalHost(host) => host.handle_frame(now, port, frame),
            Self::PlainSwitch(plain) => plain.handle_frame(now, port, frame),
            Self::Idle => Verdict::Dropped,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Shared(shared) => shared.handle_timeout(now),
            Self::Gated(shared) => shared.handle_timeout(now),
            Self::Arbiter(shared) => shared.handle_timeout(now),
            Self::Switch(switch) => switch.handle_timeout(now),
            Self::RivalHost(host) => host.handle_timeout(now),
            Self::PlainSwitch(plain) => plain.handle_timeout(now),
            Self::Idle => {}
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Shared(shared) => shared.poll_transmit(now, slot),
            Self::Gated(shared) => shared.poll_transmit(now, slot),
            Self::Arbiter(shared) => shared.poll_transmit(now, slot),
            Self::Switch(switch) => switch.poll_transmit(now, slot),
            Self::RivalHost(host) => host.poll_transmit(now, slot),
            Self::PlainSwitch(plain) => plain.poll_transmit(now, slot),
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<NodeEvent> {
        match self {
            Self::Host(host) => host.poll_event().map(onepipe_event),
            Self::Shared(shared) => shared.poll_event().map(shared_event),
            Self::Gated(shared) => shared.poll_event().map(shared_event),
            Self::Arbiter(shared) => shared.poll_event().map(shared_event),
            Self::Switch(switch) => switch.poll_event().map(|_| NodeEvent::Nothing),
            Self::RivalHost(host) => host.poll_event().map(|event| match event {
                HostEvent::Process(port, delivery) => NodeEvent::Rival(port, delivery),
                HostEvent::Switch(()) => NodeEvent::Nothing,
            }),
            Self::PlainSwitch(_) | Self::Idle => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Shared(shared) => shared.poll_timeout(),
            Self::Gated(shared) => shared.poll_timeout(),
            Self::Arbiter(shared) => shared.poll_timeout(),
            Self::Switch(switch) => switch.poll_timeout(),
            Self::RivalHost(host) => host.poll_timeout(),
            Self::PlainSwitch(plain) => plain.poll_timeout(),
            Self::Idle => None,
        }
    }
}

fn shared_event<S, G>(event: Either<HostEvent<Event, S>, G>) -> NodeEvent {
    match event {
        Either::Machine(event) => onepipe_event(event),
        Either::Guest(_) => NodeEvent::Nothing,
    }
}

fn onepipe_event<S>(event: HostEvent<Event, S>) -> NodeEvent {
    match event {
        HostEvent::Process(port, event) => NodeEvent::Onepipe(port, event),
        HostEvent::Switch(_) => NodeEvent::Nothing,
    }
}
