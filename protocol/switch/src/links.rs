//! The links of a switch: the node at the other end of each, and which outputs get beacons.

use onepipe_base::{Address, Instance, Neighbours, PeerUpdate, Port};
use onepipe_wire::{Flags, HOPS_MAX, Header};

use crate::Config;
use crate::port_set::PortSet;

/// Hop-only frames leave their sender with at most this hop count; a count of [`HOPS_MAX`] counts
/// as direct as well. In between they were relayed by a switch between their sender and this one:
/// such frames teach the route, and say nothing about the link.
const HOP_ONLY_HOPS_MAX: u8 = 1;

/// Returns whether a hop-only frame was not relayed.
pub(crate) const fn is_direct(hops: u8) -> bool {
    hops <= HOP_ONLY_HOPS_MAX || hops >= HOPS_MAX
}

/// What is known of the other end of each link. Which links take part in the barriers is up to the
/// registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Links {
    own: Instance,
    /// Number of ports, the first ones, that get beacons only while their peer is known: the lower
    /// ports of a table.
    learned_ports: u16,
    neighbours: Neighbours,
    /// Outputs that get beacons: all of a tree; of a table's lower ports the live ones, and those
    /// whose peer does not know yet that the link was lost.
    linked: PortSet,
    /// Outputs whose other end holds commits of a previous incarnation of this switch.
    previous_holds: PortSet,
    /// Links found dead in the check in progress; empty between calls.
    lost: PortSet,
}

impl Links {
    pub(crate) fn new(config: &Config) -> Self {
        let ports = config.port_count();
        let learned_ports = if config.route.is_learned() { config.lower_ports } else { 0 };
        let mut linked = PortSet::new(ports);
        (learned_ports..ports).for_each(|port| linked.insert(Port(port)));
        Self {
            own: config.instance(),
            learned_ports,
            neighbours: Neighbours::new(ports),
            linked,
            previous_holds: PortSet::new(ports),
            lost: PortSet::new(ports),
        }
    }

    /// Asserts what holds between any two calls, given which ports are live.
    pub(crate) fn check_invariants(&self, mut live: impl Iterator<Item = Port>) {
        [&self.linked, &self.previous_holds].into_iter().for_each(PortSet::check_invariants);
        assert!(self.lost.is_empty(), "links found dead are taken down at once");
        assert!(live.all(|port| self.linked.contains(port)), "a live port gets no beacons");
        let mut confirmed = self.linked.iter().filter(|port| self.is_confirmed(*port));
        assert!(confirmed.all(|port| self.instance(port).is_some()), "confirmed by nobody");
    }

    /// Returns the last known instance at `port`.
    pub(crate) fn instance(&self, port: Port) -> Option<Instance> {
        self.neighbours.instance(port)
    }

    /// Whether the last peer at `port` was a switch.
    pub(crate) fn is_switch_at(&self, port: Port) -> bool {
        let instance = self.instance(port);
        instance.is_some_and(|instance| matches!(instance.address, Address::Switch(_)))
    }

    /// Whether the peer at `port` is known, and neither end has lost the link.
    #[inline]
    pub(crate) fn is_up(&self, port: Port) -> bool {
        self.neighbours.is_up(port)
    }

    /// Whether the peer at `port` receives this switch.
    #[inline]
    pub(crate) fn is_two_way(&self, port: Port) -> bool {
        self.neighbours.is_two_way(port)
    }

    //= spec/failure.md#R14
    /// Whether the peer at `port` knows the incarnation of this switch, or a commit could raise the
    /// register of a previous incarnation there before a beacon explains it; and no such register
    /// holds commits.
    #[inline]
    pub(crate) fn is_confirmed(&self, port: Port) -> bool {
        self.is_two_way(port) && !self.previous_holds.contains(port)
    }

    /// Handles a hop-only frame of `instance` at `port`.
    pub(crate) fn on_hello(
        &mut self,
        port: Port,
        instance: Instance,
        header: &Header,
    ) -> PeerUpdate {
        let update = self.neighbours.on_hello(port, instance, header.peer(), self.own);
        if update != PeerUpdate::Stale {
            if header.has(Flags::PREVIOUS_HOLDS) {
                self.previous_holds.insert(port);
            } else {
                self.previous_holds.remove(port);
            }
        }
        update
    }

    /// Handles a frame of `instance` at `port` that does not say whom its sender receives.
    #[inline]
    pub(crate) fn on_instance(&mut self, port: Port, instance: Instance) -> PeerUpdate {
        self.neighbours.on_instance(port, instance)
    }

    /// Handles the loss of the link at `port`, of which its beacons inform the peer.
    pub(crate) fn mark_lost(&mut self, port: Port) {
        self.neighbours.mark_lost(port);
    }

    /// Forgets the peer at `port`, where another one may be connected from now on.
    pub(crate) fn forget(&mut self, port: Port) {
        self.neighbours.forget(port);
    }

    /// Returns the outputs that get beacons.
    #[inline]
    pub(crate) fn linked(&self) -> &PortSet {
        &self.linked
    }

    pub(crate) fn start_beacons(&mut self, port: Port) {
        self.linked.insert(port);
    }

    /// Stops beacons on a port without a known peer.
    pub(crate) fn stop_beacons(&mut self, port: Port) {
        if port.0 < self.learned_ports {
            self.linked.remove(port);
        }
    }

    /// Stops beacons on the port of a controller, which gets answers, unless there is another peer.
    pub(crate) fn on_controller(&mut self, port: Port) {
        if self.instance(port).is_none() {
            self.linked.remove(port);
        }
    }

    /// Notes that the link at `port` was found dead.
    pub(crate) fn on_found_dead(&mut self, port: Port) {
        self.lost.insert(port);
    }

    /// Takes the next link that was found dead.
    pub(crate) fn pop_dead(&mut self) -> Option<Port> {
        self.lost.pop()
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, Promises, SwitchId, Timestamp};
    use onepipe_topology::{ForwardingTable, Route};
    use onepipe_wire::Opcode;

    use super::*;

    const PEER: Instance =
        Instance { address: Address::Switch(SwitchId(9)), incarnation: Incarnation(1) };

    fn links() -> Links {
        Links::new(&Config::new(2, 1, Route::ForwardingTable(ForwardingTable::new(8, false))))
    }

    fn hello(peer: Option<Instance>, flags: u8) -> Header {
        let promises = Promises::both(Timestamp::from_ns(1));
        Header::hop_only(Opcode::Beacon, PEER, peer, promises).flagged(flags)
    }

    //= spec/failure.md#R14
    #[test]
    fn peer_that_holds_commits_of_a_predecessor_confirms_nothing() {
        let mut links = links();
        assert!(!links.is_switch_at(Port(2)));
        links.on_hello(Port(2), PEER, &hello(None, 0));
        assert!(links.is_up(Port(2)) && links.is_switch_at(Port(2)) && !links.is_two_way(Port(2)));
        let own = links.own;
        links.on_hello(Port(2), PEER, &hello(Some(own), Flags::PREVIOUS_HOLDS));
        assert!(links.is_two_way(Port(2)) && !links.is_confirmed(Port(2)));
        links.on_hello(Port(2), PEER, &hello(Some(own), 0));
        assert!(links.is_confirmed(Port(2)));
        links.check_invariants([Port(2)].into_iter());
        links.mark_lost(Port(2));
        assert!(!links.is_confirmed(Port(2)) && links.instance(Port(2)) == Some(PEER));
    }

    #[test]
    fn lower_ports_of_a_table_get_beacons_while_their_peer_is_known() {
        let mut links = links();
        let linked = |links: &Links| links.linked().iter().map(|port| port.0).sum::<u16>();
        assert_eq!(linked(&links), 2, "the upper port");
        links.start_beacons(Port(1));
        assert_eq!(linked(&links), 3);
        [1, 2].into_iter().for_each(|port| links.stop_beacons(Port(port)));
        assert_eq!(linked(&links), 2);
        links.on_controller(Port(2));
        assert_eq!(linked(&links), 0, "nothing but a controller is there");
    }
}
