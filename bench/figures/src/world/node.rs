//! The nodes of the testbed as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_bench_rivals::{Delivery, Rival};
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_arbiter::{ArbiterHost, Gated};
use onepipe_sim_traffic::{Either, SharedNic, Stack};
use onepipe_switch::Switch;

use super::paced::Paced;
use super::plain::Plain;

/// A host of 1Pipe.
pub(super) type Ours = Host<Switch, Paced<Endpoint>>;

/// A host or a switch, of 1Pipe or of a rival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(super) enum Node {
    Host(Ours),
    /// A host with unscheduled background flows.
    Shared(Box<SharedNic<Ours>>),
    /// A host with background flows that wait for their timeslots.
    Gated(Box<SharedNic<Ours, Gated<Stack>>>),
    /// A host with the arbiter that grants the timeslots.
    Arbiter(Box<SharedNic<Ours, ArbiterHost>>),
    Switch(Switch),
    RivalHost(Host<Plain, Paced<Rival>>),
    Plain(Plain),
    /// A host that does not take part.
    Idle,
}

impl Node {
    /// Returns the host of 1Pipe, if it is one.
    pub fn ours_mut(&mut self) -> Option<&mut Ours> {
        match self {
            Self::Host(host) => Some(host),
            Self::Shared(shared) => Some(&mut shared.machine),
            Self::Gated(shared) => Some(&mut shared.machine),
            Self::Arbiter(shared) => Some(&mut shared.machine),
            _ => None,
        }
    }

    /// Returns the TCP stack of the host, if it has one.
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
pub(super) enum Said {
    Ours(Port, Event),
    Rival(Port, Delivery),
    Nothing,
}

impl Machine for Node {
    type Event = Said;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Shared(shared) => shared.handle_frame(now, port, frame),
            Self::Gated(shared) => shared.handle_frame(now, port, frame),
            Self::Arbiter(shared) => shared.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
            Self::RivalHost(host) => host.handle_frame(now, port, frame),
            Self::Plain(plain) => plain.handle_frame(now, port, frame),
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
            Self::Plain(plain) => plain.handle_timeout(now),
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
            Self::Plain(plain) => plain.poll_transmit(now, slot),
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Said> {
        match self {
            Self::Host(host) => host.poll_event().map(of_ours),
            Self::Shared(shared) => shared.poll_event().map(of_either),
            Self::Gated(shared) => shared.poll_event().map(of_either),
            Self::Arbiter(shared) => shared.poll_event().map(of_either),
            Self::Switch(switch) => switch.poll_event().map(|_| Said::Nothing),
            Self::RivalHost(host) => host.poll_event().map(|said| match said {
                HostEvent::Process(port, delivery) => Said::Rival(port, delivery),
                HostEvent::Switch(()) => Said::Nothing,
            }),
            Self::Plain(_) | Self::Idle => None,
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
            Self::Plain(plain) => plain.poll_timeout(),
            Self::Idle => None,
        }
    }
}

fn of_either<S, G>(said: Either<HostEvent<Event, S>, G>) -> Said {
    match said {
        Either::Machine(said) => of_ours(said),
        Either::Guest(_) => Said::Nothing,
    }
}

fn of_ours<S>(said: HostEvent<Event, S>) -> Said {
    match said {
        HostEvent::Process(port, event) => Said::Ours(port, event),
        HostEvent::Switch(_) => Said::Nothing,
    }
}
