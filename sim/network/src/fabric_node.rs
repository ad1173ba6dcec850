//! The kinds of nodes of a fabric as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

/// A host, a switch, a host with nothing but the controller, or a host that does not take part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub enum FabricNode<H, S, C = NoMachine> {
    /// A host.
    Host(H),
    /// A switch.
    Switch(S),
    /// The controller, and the port of its network card.
    Controller(Box<C>, Port),
    /// A host that does not take part.
    Idle,
}

/// An event of a [`FabricNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricEvent<H, S, C> {
    /// Event of a host.
    Host(H),
    /// Event of a switch.
    Switch(S),
    /// Event of the controller.
    Controller(C),
}

/// The machine that a kind of node does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoMachine {}

impl<H, S, C> FabricNode<H, S, C> {
    /// Returns the machine of a host.
    pub fn host(&self) -> Option<&H> {
        match self {
            Self::Host(host) => Some(host),
            _ => None,
        }
    }

    /// Returns the machine of a host, for commands.
    pub fn host_mut(&mut self) -> Option<&mut H> {
        match self {
            Self::Host(host) => Some(host),
            _ => None,
        }
    }
}

impl<H: Machine, S: Machine, C: Machine> Machine for FabricNode<H, S, C> {
    type Event = FabricEvent<H::Event, S::Event, C::Event>;

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
    fn poll_event(&mut self) -> Option<Self::Event> {
        match self {
            Self::Host(host) => host.poll_event().map(FabricEvent::Host),
            Self::Switch(switch) => switch.poll_event().map(FabricEvent::Switch),
            Self::Controller(controller, _) => controller.poll_event().map(FabricEvent::Controller),
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

impl Machine for NoMachine {
    type Event = ();

    fn handle_frame(&mut self, _: Now, _: Port, _: &mut [u8]) -> Verdict {
        match *self {}
    }

    fn handle_timeout(&mut self, _: Now) {
        match *self {}
    }

    fn poll_transmit(&mut self, _: Now, _: &mut [u8]) -> Option<Transmit> {
        match *self {}
    }

    fn poll_event(&mut self) -> Option<()> {
        match *self {}
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match *self {}
    }
}
