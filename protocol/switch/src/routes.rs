//! The routes of a switch, as configured and as learned since.

use onepipe_base::{Port, ProcessId};
use onepipe_topology::{NextHop, PortRange, Route};
use onepipe_wire::Header;

use crate::Config;

impl Config {
    //= spec/ordering.md#R9
    /// Returns the ports that lead on without leading back: not to where the frame came from, and
    /// not up again once it has descended. The switch's own frames have no input.
    #[inline]
    pub(crate) fn next_hops(&self, next: NextHop, input: Option<Port>) -> Option<PortRange> {
        match next {
            NextHop::Down(next_hops) => {
                (!input.is_some_and(|port| next_hops.contains(port))).then_some(next_hops)
            }
            NextHop::Up if self.upper_ports == 0 => None,
            NextHop::Up if input.is_some_and(|port| port.0 >= self.lower_ports) => None,
            NextHop::Up => Some(PortRange::new(Port(self.lower_ports), self.upper_ports)),
        }
    }

    /// Whether the route to `process` leads down through `port`.
    pub(crate) fn leads_to(&self, process: ProcessId, port: Port) -> bool {
        let next = self.route.next(process);
        matches!(next, Some(NextHop::Down(next_hops)) if next_hops.contains(port))
    }

    /// Whether the known routes allow `process` behind `port`.
    pub(crate) fn is_routed_to(&self, port: Port, process: ProcessId) -> bool {
        match self.route {
            Route::ForwardingTable(_) => true,
            Route::Tree(_) => self.leads_to(process, port),
        }
    }

    pub(crate) fn is_controller(&self, process: ProcessId) -> bool {
        self.controllers.is_some_and(|controllers| controllers.contains(process))
    }

    /// Learns the port of any incarnation. An excluded process needs the replies of controllers,
    /// and they are routed by process id; the next frame of a later incarnation takes the route
    /// back.
    pub(crate) fn learn(&mut self, port: Port, header: &Header) {
        if let Route::ForwardingTable(table) = &mut self.route
            && port.0 < self.lower_ports
        {
            table.learn(header.src(), header.incarnation(), port);
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, Promises, Psn, Timestamp};
    use onepipe_topology::ForwardingTable;
    use onepipe_wire::Opcode;

    use super::*;

    //= spec/ordering.md#R9
    #[test]
    fn frames_do_not_go_back_or_up_again() {
        let mut config = Config::new(2, 1, Route::ForwardingTable(ForwardingTable::new(8, true)));
        let (src, at) = (ProcessId(3), Timestamp::from_ns(1));
        let header = Header::new(Opcode::Data, src, ProcessId(4), Incarnation(1));
        let header = header.stamped(at, Promises::both(at), Psn::FIRST);
        config.learn(Port(2), &header);
        assert!(!config.leads_to(src, Port(2)), "nothing is learned from above");
        config.learn(Port(1), &header);
        assert!(config.leads_to(src, Port(1)) && !config.leads_to(src, Port(0)));
        let next_hops = |next, input| config.next_hops(next, Some(Port(input)));
        let (down, up) = (PortRange::new(Port(1), 1), PortRange::new(Port(2), 1));
        let downwards = [0, 1, 2].map(|input| next_hops(NextHop::Down(down), input));
        assert_eq!(downwards, [Some(down), None, Some(down)]);
        assert_eq!([0, 2].map(|input| next_hops(NextHop::Up, input)), [Some(up), None]);
    }
}
