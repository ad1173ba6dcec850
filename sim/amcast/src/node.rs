//! Node of the network: a host or a switch, as one machine.

use onepipe_amcast::{Client, Completed, Coordinator, Member, MemberEvent, Replica, ReplicaEvent};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_rivals::{Delivery, Rival};
use onepipe_wire::header_unchecked;

use crate::switch::SwitchNode;

/// Process on a host.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum HostRole {
    Client(Client),
    Replica(Replica),
    Coordinator(Coordinator),
    Rival(Rival),
    None,
}

/// A host with its process, or a switch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    Host {
        role: HostRole,
        nic: Port,
        /// Process whose frames are dropped.
        ignored: Option<ProcessId>,
    },
    Switch(SwitchNode),
}

/// Event of a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeEvent {
    Member(ProcessId, MemberEvent),
    Completed(Completed),
    Replica(ReplicaEvent),
    Decided,
    Rival(Delivery),
}

/// Evaluates an expression for the machine of a node.
macro_rules! dispatch {
    ($node:expr, $machine:ident => $call:expr, none => $none:expr) => {
        match $node {
            Node::Switch($machine) => $call,
            Node::Host { role: HostRole::Client($machine), .. } => $call,
            Node::Host { role: HostRole::Replica($machine), .. } => $call,
            Node::Host { role: HostRole::Coordinator($machine), .. } => $call,
            Node::Host { role: HostRole::Rival($machine), .. } => $call,
            Node::Host { role: HostRole::None, .. } => $none,
        }
    };
}

impl Node {
    /// Returns the number of open messages of a client.
    pub fn open(&self) -> usize {
        match self {
            Self::Host { role: HostRole::Client(client), .. } => client.open(),
            Self::Host { role: HostRole::Rival(rival), .. } => rival.open(),
            _ => 0,
        }
    }

    /// Checks the invariants of the machines, see [`Client::check_invariants`].
    pub fn check_invariants(&self) {
        match self {
            Self::Switch(switch) => switch.members().iter().for_each(Member::check_invariants),
            Self::Host { role, .. } => match role {
                HostRole::Client(client) => client.check_invariants(),
                HostRole::Replica(replica) => replica.check_invariants(),
                HostRole::Coordinator(coordinator) => coordinator.check_invariants(),
                HostRole::Rival(rival) => rival.check_invariants(),
                HostRole::None => {}
            },
        }
    }
}

impl Machine for Node {
    type Event = NodeEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if let Node::Host { ignored: Some(src), .. } = self
            && header_unchecked(frame).is_some_and(|header| header.src() == *src)
        {
            return Verdict::Dropped;
        }
        dispatch!(self, machine => machine.handle_frame(now, port, frame), none => Verdict::Dropped)
    }

    fn handle_timeout(&mut self, now: Now) {
        dispatch!(self, machine => machine.handle_timeout(now), none => {});
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let sent = dispatch!(self, machine => machine.poll_transmit(now, slot), none => None)?;
        match self {
            Node::Switch(_) => Some(sent),
            Node::Host { nic, .. } => Some(Transmit { port: *nic, ..sent }),
        }
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        match self {
            Node::Switch(switch) => {
                let (process, event) = switch.poll_event()?;
                Some(NodeEvent::Member(process, event))
            }
            Node::Host { role, .. } => match role {
                HostRole::Client(client) => client.poll_event().map(NodeEvent::Completed),
                HostRole::Replica(replica) => replica.poll_event().map(NodeEvent::Replica),
                HostRole::Coordinator(coordinator) => {
                    coordinator.poll_event().map(|_| NodeEvent::Decided)
                }
                HostRole::Rival(rival) => rival.poll_event().map(NodeEvent::Rival),
                HostRole::None => None,
            },
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        dispatch!(self, machine => machine.poll_timeout(), none => None)
    }
}
