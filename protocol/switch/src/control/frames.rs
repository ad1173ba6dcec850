//! The frames that [`Control`] writes: floods, death notices, answers and announcements.

use onepipe_base::{Frozen, Instance, Mono, Port, ProcessId, Psn, Timestamp, Transmit};
use onepipe_topology::PortRange;
use onepipe_wire::{
    Announce, Flood, FloodId, HEADER_LEN, Header, Link, LinkState, Opcode, Side, seal,
    seal_with_hops,
};

use super::Control;
use crate::aggregator::Aggregator;
use crate::announcer::Part;
use crate::clock::{Time, no_promise};
use crate::fence::DeathNotice;
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

impl Control {
    /// Returns the next frame for the controllers or of their floods.
    pub(crate) fn poll(
        &mut self,
        time: Time,
        view: View<'_>,
        stats: &mut Stats,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let Time { mono: now, reference } = time;
        loop {
            if let Some(notice) = self.fence.take_notice() {
                return write_death_notice(reference, notice, view, stats, slot);
            }
            if let Some(port) = self.controller_ports.take_unanswered() {
                let own = view.config.instance();
                let header = Header::hop_only(Opcode::Hello, own, None, no_promise(reference));
                return Some(Transmit { port, bytes: seal_with_hops(slot, header, 0, 0) });
            }
            let Some(outgoing) = self.flood.pop() else {
                return self.poll_announce(now, reference, view, stats, slot);
            };
            if let Some(transmit) = self.write_outgoing(reference, outgoing, view, stats, slot) {
                return Some(transmit);
            }
        }
    }

    /// Writes a flood, or the acknowledgement of one.
    fn write_outgoing(
        &self,
        reference: Timestamp,
        outgoing: Outgoing,
        view: View<'_>,
        stats: &mut Stats,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (port, opcode) = match outgoing {
            Outgoing::Flood(port) => (port, Opcode::Flood),
            Outgoing::FloodAck(port, _) => (port, Opcode::FloodAck),
        };
        let (own, promises) = (view.config.instance(), no_promise(reference));
        let header = Header::hop_only(opcode, own, view.peer_at(port), promises);
        let buf = slot.get_mut(HEADER_LEN..)?;
        let bytes = match outgoing {
            Outgoing::Flood(_) if !view.aggregator.is_live(port) => return None,
            Outgoing::Flood(_) => {
                let payload = self.flood.payload();
                buf.get_mut(..payload.len())?.copy_from_slice(payload);
                stats.floods_sent += 1;
                payload.len()
            }
            Outgoing::FloodAck(_, ack) => {
                let bytes = ack.write(buf)?;
                stats.flood_acks_sent += 1;
                bytes
            }
        };
        Some(Transmit { port, bytes: seal_with_hops(slot, header, bytes, 0) })
    }

    /// Writes the next part of an announcement to a controller with a path.
    fn poll_announce(
        &mut self,
        now: Mono,
        reference: Timestamp,
        view: View<'_>,
        stats: &mut Stats,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let length = slot.len().min(view.config.frame_len_max);
        let slot = &mut slot[..length];
        let total = u16::try_from(self.links(view).count()).unwrap_or(u16::MAX);
        loop {
            if !self.frozen.is_empty() {
                self.announcer.wake(now);
            }
            let part = self.announcer.part(now, self.controllers)?;
            let written = self.write_announce(reference, part, total, view, slot);
            let count = written.map_or(0, |(count, _)| count);
            debug_assert!(count <= total, "more links than there are");
            self.announcer.on_sent(count, total, self.controllers);
            if let Some((_, transmit)) = written {
                stats.announces_sent += 1;
                return Some(transmit);
            }
        }
    }

    fn write_announce(
        &self,
        reference: Timestamp,
        part: Part,
        total: u16,
        view: View<'_>,
        slot: &mut [u8],
    ) -> Option<(u16, Transmit)> {
        let next_hops = view.config.next_hops(view.config.route.next(part.to)?, None)?;
        let port = view.live_next_hop(next_hops, part.round);
        // A switch is not answered by the controllers, and so knows no tip of their log.
        let announce =
            Announce { generation: part.generation, first: part.first, total, tip: None };
        let links = self.links(view).skip(usize::from(part.first));
        let (count, bytes) = announce.write(slot.get_mut(HEADER_LEN..)?, links)?;
        let own = view.config.instance();
        let src = ProcessId(own.address.to_bits());
        let header = Header::new(Opcode::Announce, src, part.to, own.incarnation);
        let header = header.stamped(reference, no_promise(reference), Psn(part.round));
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
        let ports = view.config.ports();
        let up = ports
            .filter(move |port| view.aggregator.is_live(*port) && view.links.is_two_way(*port));
        let up = up.map(move |port| view.link(port, view.links.instance(port), LinkState::Up));
        frozen.chain(controller_ports).chain(up)
    }
}

/// Writes a death notice to a switch that was declared dead.
fn write_death_notice(
    reference: Timestamp,
    notice: DeathNotice,
    view: View<'_>,
    stats: &mut Stats,
    slot: &mut [u8],
) -> Option<Transmit> {
    let DeathNotice { port, instance } = notice;
    let (own, promises) = (view.config.instance(), no_promise(reference));
    let header = Header::hop_only(Opcode::Flood, own, view.peer_at(port), promises);
    let flood = Flood { id: FloodId::HOP_ONLY };
    let (_, bytes) = flood.write_freeze(slot.get_mut(HEADER_LEN..)?, core::iter::once(instance))?;
    stats.floods_sent += 1;
    Some(Transmit { port, bytes: seal_with_hops(slot, header, bytes, 0) })
}
