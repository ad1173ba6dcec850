//! A switch that only forwards.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Psn, Transmit, Verdict};
use onepipe_topology::{FlowKey, NextHop, PortCounts, PortRange, Route, Spread};
use onepipe_wire::{Opcode, SHORT_HEADER_LEN, Slot, parse_header};

/// The tier of the switches right above the hosts (`Topology::tier`).
const TOR: u8 = 2;

/// Forwards every frame, and spreads flows over equal-cost links. A slot frame leaves by the upper
/// link that its label names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forwarder {
    route: Route,
    ports: PortCounts,
    salt: u32,
    /// Number of switches that a frame from below has passed.
    nth: u8,
}

impl Forwarder {
    /// Creates a switch with the routes and the tier of a node of the topology. `salt` differs
    /// between switches.
    pub const fn new(route: Route, ports: PortCounts, tier: u8, salt: u32) -> Self {
        Self { route, ports, salt, nth: tier.saturating_sub(TOR) }
    }

    /// Returns the egress port of a frame; `None` if the destination is unknown.
    #[inline]
    pub fn port(&self, src: ProcessId, dst: ProcessId, psn: Psn) -> Option<Port> {
        let ports = match self.route.next(dst)? {
            NextHop::Down(ports) => ports,
            NextHop::Up => PortRange::new(Port(self.ports.lower), self.ports.upper),
        };
        Some(Spread::PerFlow.choose(ports, self.salt, FlowKey { src, dst, psn }))
    }
}

impl Machine for Forwarder {
    type Event = ();

    #[inline]
    fn handle_frame(&mut self, _now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, opcode)) = parse_header(frame) else { return Verdict::Dropped };
        if opcode == Opcode::Slot
            && self.route.next(header.dst()) == Some(NextHop::Up)
            && let Some(path) =
                frame.get(SHORT_HEADER_LEN..).and_then(|payload| Slot::next_link(payload, self.nth))
        {
            let uplinks = PortRange::new(Port(self.ports.lower), self.ports.upper);
            return Verdict::Forward(uplinks.nth(path.into()));
        }
        let port = self.port(header.src(), header.dst(), header.psn());
        port.map_or(Verdict::Dropped, Verdict::Forward)
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_transmit(&mut self, _now: Now, _slot: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}
