//! Wiring of the ports, tier by tier.

use onepipe_base::{HostId, Port, SwitchId};

use crate::graph::SwitchPorts;
use crate::{End, Node, PortCounts, Shape, Topology};

impl Topology {
    pub(crate) fn add_switches(&mut self, count: u32, tier: u8, lower: u32, upper: u32) {
        assert!(lower + upper <= u32::from(u16::MAX), "a shape is checked before it is laid out");
        let ports = PortCounts { lower: lower as u16, upper: upper as u16 };
        for _ in 0..count {
            let first = self.peers.len();
            let unlinked =
                End { node: Node::Switch(SwitchId(self.switches.len() as u32)), port: Port(0) };
            self.peers.resize(first + usize::from(ports.total()), unlinked);
            self.switches.push(SwitchPorts { first, ports, tier });
        }
    }

    pub(crate) fn link_hosts(&mut self) {
        for host in 0..self.hosts() {
            let card = End { node: Node::Host(HostId(host)), port: self.network_card() };
            let tor = self.peer(card).expect("every host has a ToR");
            self.set_peer(tor, card);
        }
    }

    /// Links every ToR to every spine of its pod.
    pub(crate) fn link_spines(&mut self) {
        let Shape { tors, hosts, spines, tor_links, .. } = self.shape;
        for tor in 0..self.shape.tor_count() {
            let (pod, tor_in_pod) = (tor / tors, tor % tors);
            for (spine, parallel) in pairs(spines, tor_links) {
                let id = self.shape.tor_count() + pod * spines + spine;
                let above = switch_end(id, tor_in_pod * tor_links + parallel);
                self.join(switch_end(tor, hosts + spine * tor_links + parallel), above);
            }
        }
    }

    /// Links every spine to every core of its plane.
    pub(crate) fn link_cores(&mut self) {
        let Shape { pods, tors, spines, tor_links, core_links, cores, .. } = self.shape;
        if cores == 0 {
            return;
        }
        let first_spine = self.shape.tor_count();
        let first_core = first_spine + pods * spines;
        let (plane_spines, plane_cores) = (self.shape.plane_spines(), self.shape.plane_cores());
        for (pod, spine) in pairs(pods, spines) {
            let (plane, lower_index) =
                (spine / plane_spines, pod * plane_spines + spine % plane_spines);
            for (core, parallel) in pairs(plane_cores, core_links) {
                let below = switch_end(
                    first_spine + pod * spines + spine,
                    tors * tor_links + core * core_links + parallel,
                );
                let id = first_core + plane * plane_cores + core;
                self.join(below, switch_end(id, lower_index * core_links + parallel));
            }
        }
    }

    fn join(&mut self, one: End, other: End) {
        self.set_peer(one, other);
        self.set_peer(other, one);
    }

    fn set_peer(&mut self, end: End, peer: End) {
        let Node::Switch(id) = end.node else { return };
        let switch = &self.switches[id.index()];
        assert!(end.port.0 < switch.ports.total(), "the layout stays within the ports it counted");
        self.peers[switch.first + end.port.index()] = peer;
    }
}

fn switch_end(id: u32, port: u32) -> End {
    End { node: Node::Switch(SwitchId(id)), port: Port(port as u16) }
}

fn pairs(outer: u32, inner: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..outer).flat_map(move |one| (0..inner).map(move |other| (one, other)))
}
