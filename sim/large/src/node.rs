//! All kinds of nodes as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_large::{Event, LargeEndpoint};
use onepipe_node::{Host, HostEvent};
use onepipe_switch::{Switch, SwitchEvent};

/// A host with a process, a switch, the controller with its network card, or an idle host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    Host(Host<Switch, LargeEndpoint>),
    Switch(Switch),
    Controller(Box<Controller>, Port),
    Idle,
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeEvent {
    Process(Event),
    Switch(SwitchEvent),
    Controller,
}

impl Node {
    /// Returns the process of a host, for commands.
    pub fn process_mut(&mut self) -> Option<&mut LargeEndpoint> {
        match self {
            Self::Host(host) => host.process_mut(Port(0)),
            _ => None,
        }
    }

    /// Returns the process of a host.
    pub fn process(&self) -> Option<&LargeEndpoint> {
        match self {
            Self::Host(host) => host.process(Port(0)),
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
                HostEvent::Process(_, event) => NodeEvent::Process(event),
                HostEvent::Switch(event) => NodeEvent::Switch(event),
            }),
            Self::Switch(switch) => switch.poll_event().map(NodeEvent::Switch),
            Self::Controller(controller, _) => {
                controller.poll_event().map(|_| NodeEvent::Controller)
            }
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
