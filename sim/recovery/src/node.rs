//! One machine type for every node of the fabric.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::{Endpoint, Event};
use onepipe_node::{Host, HostEvent};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_wire::{Opcode, parse_header};

/// A host, a switch, or the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    /// A process behind its virtual switch.
    Host(Host<Switch, Endpoint>),
    /// A switch, and whether it drops announcements.
    Switch(Switch, bool),
    /// The controller alone, with the port of its NIC.
    Controller(Box<Controller>, Port),
    /// A host that does not take part.
    Idle,
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeEvent {
    Process(Event),
    Switch(SwitchEvent),
    Controller(onepipe_controller::Event),
}

impl Node {
    /// Returns the process of a host, if it runs.
    pub(crate) fn process(&self) -> Option<&Endpoint> {
        match self {
            Self::Host(host) => host.process(Port(0)),
            _ => None,
        }
    }

    /// Returns the process of a host for commands.
    pub(crate) fn process_mut(&mut self) -> Option<&mut Endpoint> {
        match self {
            Self::Host(host) => host.process_mut(Port(0)),
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
            Self::Switch(_, true) if is_announcement(frame) => Verdict::Dropped,
            Self::Switch(switch, _) => switch.handle_frame(now, port, frame),
            Self::Controller(controller, _) => controller.handle_frame(now, Port(0), frame),
            Self::Idle => Verdict::Dropped,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Switch(switch, _) => switch.handle_timeout(now),
            Self::Controller(controller, _) => controller.handle_timeout(now),
            Self::Idle => {}
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Switch(switch, _) => switch.poll_transmit(now, slot),
            Self::Controller(controller, nic_port) => {
                let transmit = controller.poll_transmit(now, slot)?;
                Some(Transmit { port: *nic_port, ..transmit })
            }
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<NodeEvent> {
        match self {
            Self::Host(host) => host.poll_event().map(|event| match event {
                HostEvent::Process(_, event) => NodeEvent::Process(event),
                HostEvent::Switch(event) => NodeEvent::Switch(event),
            }),
            Self::Switch(switch, _) => switch.poll_event().map(NodeEvent::Switch),
            Self::Controller(controller, _) => controller.poll_event().map(NodeEvent::Controller),
            Self::Idle => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Switch(switch, _) => switch.poll_timeout(),
            Self::Controller(controller, _) => controller.poll_timeout(),
            Self::Idle => None,
        }
    }
}

fn is_announcement(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::Announce)
}
