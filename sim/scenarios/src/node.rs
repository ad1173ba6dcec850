//! One machine type for every node of a fabric.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_node::{Host, HostEvent};
use onepipe_switch::{Switch, SwitchEvent};

use crate::{HostedEvent, HostedMachine, Process, SimSwitch};

/// A host, a switch or a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub enum Node {
    /// Processes and controllers behind a virtual switch.
    Host(Host<SimSwitch, HostedMachine>),
    /// A switch.
    Switch(SimSwitch),
    /// A host with nothing but a controller, and the port of its NIC. No virtual switch stands
    /// between the controller and the NIC.
    Controller(Box<Controller>, Port),
}

impl Node {
    /// Returns the switch, that of a host if it is one.
    pub fn switch(&self) -> Option<&Switch> {
        match self {
            Self::Host(host) => Some(host.switch().switch()),
            Self::Switch(switch) => Some(switch.switch()),
            Self::Controller(..) => None,
        }
    }

    /// Returns the machine at a port of a host.
    pub fn hosted(&self, port: Port) -> Option<&HostedMachine> {
        match self {
            Self::Host(host) => host.process(port),
            Self::Switch(_) | Self::Controller(..) => None,
        }
    }

    /// Returns the process at a port of a host, if it runs.
    pub fn process(&self, port: Port) -> Option<&Process> {
        match self.hosted(port) {
            Some(HostedMachine::Process(process)) => Some(process),
            _ => None,
        }
    }

    /// Returns the process at a port of a host for commands.
    pub fn process_mut(&mut self, port: Port) -> Option<&mut Process> {
        let Self::Host(host) = self else { return None };
        match host.process_mut(port) {
            Some(HostedMachine::Process(process)) => Some(process),
            _ => None,
        }
    }

    /// Returns the controller at a port of a host for commands.
    pub fn controller_mut(&mut self, port: Port) -> Option<&mut Controller> {
        match self {
            Self::Controller(controller, _) => Some(controller),
            Self::Switch(_) => None,
            Self::Host(host) => match host.process_mut(port) {
                Some(HostedMachine::Controller(controller)) => Some(controller),
                _ => None,
            },
        }
    }

    /// Returns the controller at a port of a host.
    pub fn controller(&self, port: Port) -> Option<&Controller> {
        match self {
            Self::Controller(controller, _) => Some(controller),
            _ => match self.hosted(port) {
                Some(HostedMachine::Controller(controller)) => Some(controller),
                _ => None,
            },
        }
    }
}

impl Machine for Node {
    type Event = HostEvent<HostedEvent, SwitchEvent>;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
            Self::Controller(controller, _) => controller.handle_frame(now, Port(0), frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Switch(switch) => switch.handle_timeout(now),
            Self::Controller(controller, _) => controller.handle_timeout(now),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Switch(switch) => switch.poll_transmit(now, slot),
            Self::Controller(controller, nic_port) => {
                let transmit = controller.poll_transmit(now, slot)?;
                Some(Transmit { port: *nic_port, ..transmit })
            }
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Self::Event> {
        match self {
            Self::Host(host) => host.poll_event(),
            Self::Switch(switch) => switch.poll_event().map(HostEvent::Switch),
            Self::Controller(controller, _) => {
                let event = controller.poll_event().map(HostedEvent::Controller);
                event.map(|event| HostEvent::Process(Port(0), event))
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Switch(switch) => switch.poll_timeout(),
            Self::Controller(controller, _) => controller.poll_timeout(),
        }
    }
}
