//! The machines behind the ports of a host: processes and controller replicas.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::Event;

use crate::Process;

/// A process or a controller replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "nearly all are processes, stored in place")]
pub enum HostedMachine {
    /// A process with its endpoint.
    Process(Process),
    /// A controller.
    Controller(Box<Controller>),
}

/// An event of a hosted machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostedEvent {
    /// Event of an endpoint.
    Process(Event),
    /// Event of a controller.
    Controller(onepipe_controller::Event),
}

impl Machine for HostedMachine {
    type Event = HostedEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Process(process) => process.handle_frame(now, port, frame),
            Self::Controller(controller) => controller.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Process(process) => process.handle_timeout(now),
            Self::Controller(controller) => controller.handle_timeout(now),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Process(process) => process.poll_transmit(now, slot),
            Self::Controller(controller) => controller.poll_transmit(now, slot),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<HostedEvent> {
        match self {
            Self::Process(process) => process.poll_event().map(HostedEvent::Process),
            Self::Controller(controller) => controller.poll_event().map(HostedEvent::Controller),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Process(process) => process.poll_timeout(),
            Self::Controller(controller) => controller.poll_timeout(),
        }
    }
}
