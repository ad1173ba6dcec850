//! Floods down the tree, and their acknowledgements up again.

use std::collections::BTreeSet;

use onepipe_base::{Address, Instance, Promises, Timestamp};
use onepipe_wire::{FloodAck, FloodKind, FloodView, HEADER_LEN, Header, Opcode, seal};

use super::node::Peer;
use super::{Fabric, FloodInProgress, Item};

impl Fabric {
    pub(super) fn on_flood(&mut self, node: usize, port: usize, payload: Vec<u8>) {
        let view = FloodView::parse(&payload).expect("written by a controller");
        let (id, kind) = (view.id, view.kind);
        let ack = FloodAck { id, kind };
        match &mut self.nodes[node].flood {
            Some(flood) if id < flood.id => return,
            Some(flood) if id == flood.id => {
                let is_done = flood.pending.is_empty() && !flood.is_broken;
                if port != flood.parent {
                    flood.pending.remove(&port);
                    self.send_ack(node, port, ack);
                    self.finish_flood(node);
                } else if is_done {
                    self.send_ack(node, port, ack);
                }
                return;
            }
            _ => {}
        }
        self.apply_flood(node, &payload);
        let pending: BTreeSet<usize> = (0..self.nodes[node].ports.len())
            .filter(|other| *other != port && self.nodes[node].is_up(*other))
            .filter(|other| matches!(self.nodes[node].ports[*other].peer, Peer::Node(..)))
            .collect();
        let pending = if self.nodes[node].is_process() { BTreeSet::new() } else { pending };
        self.nodes[node].flood = Some(FloodInProgress {
            id,
            kind,
            parent: port,
            payload,
            pending,
            is_broken: false,
            repeat_at: self.now,
        });
        self.retransmit_flood(node);
        self.finish_flood(node);
    }

    /// Does what a flood or a notice asks for.
    pub(super) fn apply_flood(&mut self, node: usize, payload: &[u8]) {
        let now = self.now;
        let view = FloodView::parse(payload).expect("written by a controller");
        let own = self.nodes[node].instance();
        match view.kind {
            FloodKind::Notice => {
                let failures: Vec<_> = view.failures(Timestamp::from_ns(now)).collect();
                let node = &mut self.nodes[node];
                if let Address::Process(process) = own.address {
                    let own = failures.iter().any(|known| known.covers(process, own.incarnation));
                    node.known.is_excluded |= own;
                }
                node.known.failures.extend(failures);
            }
            FloodKind::Resume => {
                for resolved in view.resolved().filter(|resolved| resolved.owner == own) {
                    for port_state in &mut self.nodes[node].ports {
                        port_state.frozen.retain(|frozen| frozen.number != resolved.number);
                    }
                    self.nodes[node].on_change(now);
                }
            }
            FloodKind::Freeze => {
                let dead: Vec<Instance> = view.dead().collect();
                self.nodes[node].dead.extend(&dead);
                for port in 0..self.nodes[node].ports.len() {
                    let port_state = &self.nodes[node].ports[port];
                    if port_state.instance.is_some_and(|instance| dead.contains(&instance)) {
                        self.nodes[node].freeze(now, port);
                        self.nodes[node].ports[port].instance = None;
                    }
                }
            }
        }
    }

    pub(super) fn retransmit_flood(&mut self, node: usize) {
        let now = self.now;
        let Some(flood) = &mut self.nodes[node].flood else { return };
        if flood.pending.is_empty() || now < flood.repeat_at {
            return;
        }
        flood.repeat_at = now + 20_000;
        let (pending, payload) = (flood.pending.clone(), flood.payload.clone());
        for port in pending {
            let Peer::Node(other, there) = self.nodes[node].ports[port].peer else { continue };
            if !self.nodes[node].is_up(port) || self.cut.contains(&(node, port)) {
                continue;
            }
            let payload = payload.clone();
            self.send(Item::Flood { node: other, port: there, payload });
        }
    }

    pub(super) fn on_flood_ack(&mut self, node: usize, port: usize, ack: FloodAck) {
        if let Some(flood) = &mut self.nodes[node].flood
            && (flood.id, flood.kind) == (ack.id, ack.kind)
        {
            flood.pending.remove(&port);
            self.finish_flood(node);
        }
    }

    pub(super) fn finish_flood(&mut self, node: usize) {
        let Some(flood) = &self.nodes[node].flood else { return };
        if flood.pending.is_empty() && !flood.is_broken {
            let ack = FloodAck { id: flood.id, kind: flood.kind };
            self.send_ack(node, flood.parent, ack);
        }
    }

    fn send_ack(&mut self, node: usize, port: usize, ack: FloodAck) {
        let own = self.nodes[node].instance();
        if self.nodes[node].known.is_excluded {
            // An excluded process has stopped; its link times out.
            return;
        }
        match self.nodes[node].ports[port].peer {
            Peer::Node(other, there) => {
                if !self.cut.contains(&(node, port)) {
                    self.send(Item::FloodAck { node: other, port: there, ack });
                }
            }
            Peer::Controller(_) if self.cut.contains(&(node, port)) => {}
            Peer::Controller(replica) => {
                let mut slot = vec![0; 200];
                let bytes = ack.write(&mut slot[HEADER_LEN..]).expect("fits");
                let now = Timestamp::from_ns(self.now);
                let echoed = self.nodes[node].ports[port].instance;
                let header = Header::hop_only(Opcode::FloodAck, own, echoed, Promises::both(now));
                let length = seal(&mut slot, header, bytes);
                slot.truncate(length);
                let link = self.link_of(replica, node);
                self.send(Item::OverLink { replica, link, bytes: slot });
            }
        }
    }
}
