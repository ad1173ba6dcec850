//! The frames that [`Control`] writes: floods, death notices, answers and announcements.

use onepipe_base::{Frozen, Instance, Port, ProcessId, Psn, Transmit};
use onepipe_topology::PortRange;
use onepipe_wire::{
    Announce, Flood, FloodId, HEADER_LEN, Header, Link, LinkState, Opcode, Side, seal,
    seal_with_hops,
};

use super::Control;
use crate::aggregator::Aggregator;
use crate::announcer::Part;
use crate::clock::{Time, no_promise};
use crate::flood::Outgoing;
use crate::links::Links;
use crate::{Config, Stats};

/// What frames show of a switch: its routes, and which links are live.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) aggregator: &'a Aggregator,
    pub(crate) links: &'a Links,
}

impl View<'_> {
    /// Returns the instance received on `port`, if the link is live: the one that beacons and
    /// floods name as peer.
    #[inline]
    pub(crate) fn peer_at(&self, port: Port) -> Option<Instance> {
        if self.aggregator.is_live(port) { self.links.instance(port) } else { None }
    }

    /// Returns the `nth` of `next_hops`, or the first live one after it; the `nth` if none is live.
    pub(crate) fn live_next_hop(&self, next_hops: PortRange, nth: u32) -> Port {
        let first = nth % u32::from(next_hops.count());
        let mut all = (0..u32::from(next_hops.count())).map(|step| next_hops.nth(first + step));
        all.find(|port| self.aggregator.is_live(*port)).unwrap_or_else(|| next_hops.nth(first))
    }

    fn link(&self, port: Port, instance: Option<Instance>, state: LinkState) -> Link {
        let side = if self.aggregator.is_upper(port) { Side::Upper } else { Side::Lower };
        Link { port, side, instance, state }
    }
}

/// The next frame: what it shows, and where it is written and counted.
pub(crate) struct Writer<'a> {
    pub(crate) time: Time,
    pub(crate) view: View<'a>,
    pub(crate) stats: &'a mut Stats,
    pub(crate) slot: &'a mut [u8],
}

impl Writer<'_> {
    /// Returns where the payload is written, if the slot has room for a header.
    fn payload(&mut self) -> Option<&mut [u8]> {
        self.slot.get_mut(HEADER_LEN..)
    }

    /// Completes a frame with `bytes` of payload from this switch to `peer` at `port`.
    fn hop_only(
        &mut self,
        opcode: Opcode,
        port: Port,
        peer: Option<Instance>,
        bytes: usize,
    ) -> Transmit {
        let (own, promises) = (self.view.config.instance(), no_promise(self.time.reference));
        let header = Header::hop_only(opcode, own, peer, promises);
        Transmit { port, bytes: seal_with_hops(self.slot, header, bytes, 0) }
    }
}

impl Control {
    /// Writes the next frame for the controllers or of their floods.
    pub(crate) fn poll(&mut self, mut writer: Writer<'_>) -> Option<Transmit> {
        loop {
            if let Some(notice) = self.fence.take_notice() {
                let flood = Flood { id: FloodId::HOP_ONLY };
                let dead = core::iter::once(notice.instance);
                let (_, bytes) = flood.write_freeze(writer.payload()?, dead)?;
                writer.stats.floods_sent += 1;
                let peer = writer.view.peer_at(notice.port);
                return Some(writer.hop_only(Opcode::Flood, notice.port, peer, bytes));
            }
            if let Some(port) = self.controller_ports.take_unanswered() {
                return Some(writer.hop_only(Opcode::Hello, port, None, 0));
            }
            let Some(outgoing) = self.flood.pop() else { return self.poll_announce(writer) };
            if let Some(transmit) = self.write_outgoing(outgoing, &mut writer) {
                return Some(transmit);
            }
        }
    }

    /// Writes a flood, or the acknowledgement of one.
    fn write_outgoing(&self, outgoing: Outgoing, writer: &mut Writer<'_>) -> Option<Transmit> {
        let (port, opcode, bytes) = match outgoing {
            Outgoing::Flood(port) if !writer.view.aggregator.is_live(port) => return None,
            Outgoing::Flood(port) => {
                let payload = self.flood.payload();
                writer.payload()?.get_mut(..payload.len())?.copy_from_slice(payload);
                writer.stats.floods_sent += 1;
                (port, Opcode::Flood, payload.len())
            }
            Outgoing::FloodAck(port, ack) => {
                let bytes = ack.write(writer.payload()?)?;
                writer.stats.flood_acks_sent += 1;
                (port, Opcode::FloodAck, bytes)
            }
        };
        Some(writer.hop_only(opcode, port, writer.view.peer_at(port), bytes))
    }

    /// Writes the next part of an announcement to a controller with a path.
    fn poll_announce(&mut self, mut writer: Writer<'_>) -> Option<Transmit> {
        let now = writer.time.mono;
        let total = u16::try_from(self.links(writer.view).count()).unwrap_or(u16::MAX);
        loop {
            if !self.frozen.is_empty() {
                self.announcer.wake(now);
            }
            let part = self.announcer.part(now, self.controllers)?;
            let written = self.write_announce(part, total, &mut writer);
            let count = written.map_or(0, |(count, _)| count);
            debug_assert!(count <= total, "more links than there are");
            self.announcer.on_sent(count, total, self.controllers);
            if let Some((_, transmit)) = written {
                writer.stats.announces_sent += 1;
                return Some(transmit);
            }
        }
    }

    /// Writes `part` of `total` links. Returns the number of links that fit.
    fn write_announce(
        &self,
        part: Part,
        total: u16,
        writer: &mut Writer<'_>,
    ) -> Option<(u16, Transmit)> {
        let Writer { time, view, slot, .. } = writer;
        let next_hops = view.config.next_hops(view.config.route.next(part.to)?, None)?;
        let port = view.live_next_hop(next_hops, part.round);
        // A switch is not answered by the controllers, and so knows no tip of their log.
        let announce =
            Announce { generation: part.generation, first: part.first, total, tip: None };
        let links = self.links(*view).skip(usize::from(part.first));
        let length = slot.len().min(view.config.frame_len_max);
        let slot = &mut slot[..length];
        let (count, bytes) = announce.write(slot.get_mut(HEADER_LEN..)?, links)?;
        let own = view.config.instance();
        let src = ProcessId(own.address.to_bits());
        let header = Header::new(Opcode::Announce, src, part.to, own.incarnation);
        let promises = no_promise(time.reference);
        let header = header.stamped(time.reference, promises, Psn(part.round));
        Some((count, Transmit { port, bytes: seal(slot, header, bytes) }))
    }

    /// Returns all announced links: the frozen ones, oldest first, controller ports, and two-way
    /// links.
    fn links<'a>(&'a self, view: View<'a>) -> impl Iterator<Item = Link> + 'a {
        let frozen = self.frozen.iter().map(move |frozen| {
            let Frozen { number, port, instance, commit, cause } = *frozen;
            view.link(port, instance, LinkState::Frozen { number, commit, cause })
        });
        let controller_ports = self.controller_ports.iter();
        let controller_ports = controller_ports
            .map(move |(port, instance)| view.link(port, Some(instance), LinkState::Up));
        let is_up =
            move |port: &Port| view.aggregator.is_live(*port) && view.links.is_two_way(*port);
        let up = view.config.ports().filter(is_up);
        let up = up.map(move |port| view.link(port, view.links.instance(port), LinkState::Up));
        frozen.chain(controller_ports).chain(up)
    }
}
