//! The kinds of nodes, as one machine.

use onepipe_amcast::{Client, Coordinator, MemberEvent, Over, Replica, ReplicaEvent};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_bench_rivals::{Delivery, Rival};
use onepipe_wire::header_unchecked;

use crate::element::Element;

/// Who sits on a host.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Occupant {
    Client(Client),
    Replica(Replica),
    Coordinator(Coordinator),
    Rival(Rival),
    Nobody,
}

/// A host with whoever sits there, or a switch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    Host {
        occupant: Occupant,
        card: Port,
        /// Whom it does not hear.
        deaf_to: Option<ProcessId>,
    },
    Switch(Element),
}

/// What a node says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Member(ProcessId, MemberEvent),
    Over(Over),
    Replica(ReplicaEvent),
    Decided,
    Rival(Delivery),
}

/// Calls the machine, whichever it is.
macro_rules! whoever {
    ($node:expr, $machine:ident => $call:expr, nobody => $nobody:expr) => {
        match $node {
            Node::Switch($machine) => $call,
            Node::Host { occupant: Occupant::Client($machine), .. } => $call,
            Node::Host { occupant: Occupant::Replica($machine), .. } => $call,
            Node::Host { occupant: Occupant::Coordinator($machine), .. } => $call,
            Node::Host { occupant: Occupant::Rival($machine), .. } => $call,
            Node::Host { occupant: Occupant::Nobody, .. } => $nobody,
        }
    };
}

impl Node {
    /// Messages of a client that are not over.
    pub fn open(&self) -> usize {
        match self {
            Self::Host { occupant: Occupant::Client(client), .. } => client.open(),
            Self::Host { occupant: Occupant::Rival(rival), .. } => rival.open(),
            _ => 0,
        }
    }
}

impl Machine for Node {
    type Event = Said;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if let Node::Host { deaf_to: Some(whom), .. } = self
            && header_unchecked(frame).is_some_and(|header| header.src() == *whom)
        {
            return Verdict::Dropped;
        }
        whoever!(self, machine => machine.handle_frame(now, port, frame), nobody => Verdict::Dropped)
    }

    fn handle_timeout(&mut self, now: Now) {
        whoever!(self, machine => machine.handle_timeout(now), nobody => {});
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let sent = whoever!(self, machine => machine.poll_transmit(now, slot), nobody => None)?;
        match self {
            Node::Switch(_) => Some(sent),
            Node::Host { card, .. } => Some(Transmit { port: *card, ..sent }),
        }
    }

    fn poll_event(&mut self) -> Option<Said> {
        match self {
            Node::Switch(element) => {
                let (process, event) = element.poll_event()?;
                Some(Said::Member(process, event))
            }
            Node::Host { occupant, .. } => match occupant {
                Occupant::Client(client) => client.poll_event().map(Said::Over),
                Occupant::Replica(replica) => replica.poll_event().map(Said::Replica),
                Occupant::Coordinator(coordinator) => {
                    coordinator.poll_event().map(|_| Said::Decided)
                }
                Occupant::Rival(rival) => rival.poll_event().map(Said::Rival),
                Occupant::Nobody => None,
            },
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        whoever!(self, machine => machine.poll_timeout(), nobody => None)
    }
}
