//! The part of [`Switch`] that serves the controllers: floods, Hello frames, announcements.

use alloc::vec::Vec;

use onepipe_base::{
    Address, Cause, Controllers, Frozen, FrozenLinks, Instance, Mono, Port, ProcessId, Psn,
    Timestamp, Transmit, Verdict,
};
use onepipe_topology::{FlowKey, NextHop, PortRange, Route, Spread};
use onepipe_wire::{
    Announce, FloodAck, FloodId, FloodView, Frame, HEADER_LEN, HOPS_MAX, Header, Link, LinkState,
    Opcode, Side, Slot, seal, seal_with_hops,
};

use crate::announcer::{Announcer, Part};
use crate::clock::no_promise;
use crate::controller_ports::{ControllerPorts, Registration};
use crate::flood::{Arrived, FloodState, Outgoing};
use crate::form::{Form, chip};
use crate::stats::count_drop;
use crate::{Config, Switch, SwitchEvent};

/// Number of beacon instants between two beacons of a busy link. A confirmed link has no other
/// reason for a beacon, and the other end may have missed the earlier ones that confirmed it.
const REMINDER_INSTANTS: u32 = 16;

/// State kept for the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Control {
    controllers: Controllers,
    pub(crate) frozen: FrozenLinks,
    pub(crate) controller_ports: ControllerPorts,
    pub(crate) announcer: Announcer,
    pub(crate) flood: FloodState,
    /// Number of beacon instants since the start.
    instants: u32,
    /// Instances that controllers have declared dead, one per address.
    pub(crate) dead: Vec<Instance>,
    /// A declared-dead switch that was received, with its port; it is to be notified.
    pub(crate) death_notice: Option<(Port, Instance)>,
}

impl Control {
    /// Creates the state for the switch of `config`; `None` without controllers.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let controllers = config.controllers?;
        let ports = config.lower_ports + config.upper_ports;
        let step_ns = 2 * config.beacon_interval_ns;
        let bytes_max = config.frame_len_max - HEADER_LEN;
        Some(Self {
            controllers,
            frozen: FrozenLinks::new(),
            controller_ports: ControllerPorts::new(
                controllers.count as usize,
                config.link_timeout_ns,
                config.idle_timeout_ns(),
            ),
            announcer: Announcer::new(
                config.instance().address,
                step_ns,
                config.announce_interval_ns,
                // A round has a frame for each controller: at rest one per heartbeat.
                config.heartbeat_interval_ns.saturating_mul(controllers.count.into()),
            ),
            flood: FloodState::new(ports, bytes_max, config.flood_interval_ns),
            instants: 0,
            dead: Vec::new(),
            death_notice: None,
        })
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        self.announcer.check_invariants(self.controllers);
        for (index, dead) in self.dead.iter().enumerate() {
            assert!(self.dead[..index].iter().all(|other| other.address != dead.address));
        }
    }

    /// Returns when something is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        let repeats = Mono::earlier(self.flood.due(), self.announcer.due());
        Mono::earlier(repeats, self.controller_ports.due())
    }
}

impl Switch {
    /// Handles a control frame, which concerns links, not messages.
    #[cold]
    pub(crate) fn on_control(
        &mut self,
        now: Mono,
        reference: Timestamp,
        port: Port,
        frame: &mut [u8],
    ) -> Verdict {
        let Ok(parsed) = Frame::parse(frame) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let (header, opcode) = (*parsed.header, parsed.opcode);
        match opcode {
            Opcode::Flood => self.on_flood(now, port, &header, parsed.payload),
            Opcode::FloodAck => self.on_flood_ack(port, &header, parsed.payload),
            Opcode::Hello => self.on_hello(now, port, &header),
            _ => {
                self.learn_any(port, &header);
                self.on_passing_control(reference, port, &header, frame)
            }
        }
    }

    fn on_passing_control(
        &mut self,
        reference: Timestamp,
        input: Port,
        header: &Header,
        frame: &mut [u8],
    ) -> Verdict {
        let Some(next) = self.config.route.next(header.dst()) else {
            return count_drop(&mut self.stats.dropped_unknown);
        };
        let Some(next_hops) = self.next_hops(next, Some(input)) else {
            return count_drop(&mut self.stats.dropped_back);
        };
        let output = if let Some(output) = labelled(next_hops, header, frame) {
            // Even if it is dead: the arbiter must learn that frames are lost there.
            output
        } else if header.opcode().is_ok_and(Opcode::is_path_pinned) {
            // The frame may depend on its order, and spreads like all others.
            self.choose(
                next_hops,
                FlowKey { src: header.src(), dst: header.dst(), psn: header.psn() },
            )
        } else {
            //= spec/failure.md#R67
            // A lost frame is sent again, and takes another path some time.
            let entropy = Psn(header.psn().0 ^ reference.as_ns() as u32);
            let flow = FlowKey { src: header.src(), dst: header.dst(), psn: entropy };
            let chosen = Spread::PerPacket.choose(next_hops, self.config.switch.0, flow);
            self.live_next_hop(next_hops, u32::from(chosen.0 - next_hops.first().0))
        };
        let is_untouched = self.config.form == Form::OffChip;
        if !is_untouched && !chip::pass_control(frame, reference) {
            return count_drop(&mut self.stats.dropped_hops);
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    /// Returns the `nth` of `next_hops`, or the first live one after it; the `nth` if none is live.
    fn live_next_hop(&self, next_hops: PortRange, nth: u32) -> Port {
        let first = nth % u32::from(next_hops.count());
        let mut all = (0..u32::from(next_hops.count())).map(|step| next_hops.nth(first + step));
        all.find(|port| self.aggregator.is_live(*port)).unwrap_or_else(|| next_hops.nth(first))
    }

    fn on_flood(&mut self, now: Mono, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let own = self.config.instance();
        let Some(control) = &mut self.control else {
            return count_drop(&mut self.stats.dropped_unexpected);
        };
        if let Ok(view) = FloodView::parse(payload)
            && view.id == FloodId::HOP_ONLY
        {
            return self.on_death_notice(header, view);
        }
        // Only a live neighbour switch, or a controller at its port, may send floods.
        let is_switch = |instance: &Instance| matches!(instance.address, Address::Switch(_));
        let neighbour = match self.aggregator.is_live(from) {
            true => self.links.instance(from).filter(is_switch),
            false => control.controller_ports.instance(from),
        };
        if neighbour.is_none() || header.sender() != neighbour {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        let bytes_max = self.config.frame_len_max - HEADER_LEN;
        let Some(view) = FloodView::parse(payload).ok().filter(|_| payload.len() <= bytes_max)
        else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        self.stats.floods_received += 1;
        for instance in view.dead() {
            self.declare_dead(from, instance);
        }
        let Some(control) = &mut self.control else { return Verdict::Consumed };
        let others = self.config.ports().filter(|port| self.aggregator.is_live(*port));
        control.announcer.wake(now);
        let arrived = control.flood.on_flood(now, from, view.id, view.kind, payload, others);
        if arrived == Arrived::New {
            for resolved in view.resolved().filter(|resolved| resolved.owner == own) {
                self.resolve(resolved.number);
            }
        }
        Verdict::Consumed
    }

    //= spec/failure.md#R42
    /// Handles a controller's declaration that `instance` is dead, even if it is still received:
    /// its link is frozen, and its frames are ignored from now on (`docs/design/failure.md`, "What
    /// if a receiver cannot be reached, and has not failed?").
    fn declare_dead(&mut self, from: Port, instance: Instance) {
        let Some(control) = &mut self.control else { return };
        let is_same_address = |known: &Instance| known.address == instance.address;
        match control.dead.iter_mut().find(|known| is_same_address(known)) {
            Some(known) => known.incarnation = known.incarnation.max(instance.incarnation),
            None => control.dead.push(instance),
        }
        for port in self.config.ports().filter(|port| *port != from) {
            let is_dead_peer = self.links.instance(port).is_some_and(|known| {
                is_same_address(&known) && known.incarnation <= instance.incarnation
            });
            if is_dead_peer && self.aggregator.is_live(port) {
                self.take_down(port, Cause::Fenced, SwitchEvent::LinkLost(port));
            }
        }
    }

    /// Whether a frame comes directly from an instance that was declared dead.
    #[inline]
    pub(crate) fn is_declared_dead(&self, header: &Header, opcode: Opcode) -> bool {
        let dead = self.control.as_ref().map_or(&[][..], |control| &control.dead);
        if dead.is_empty() || !(opcode.is_hop_only() || header.hops() == HOPS_MAX) {
            return false;
        }
        header.sender().is_some_and(|instance| {
            dead.iter().any(|known| {
                known.address == instance.address && instance.incarnation <= known.incarnation
            })
        })
    }

    //= spec/failure.md#R13
    /// Handles a controller's Resume: what the death `number` holds is released.
    fn resolve(&mut self, number: u32) {
        let taken = self.control.as_mut().and_then(|control| control.frozen.take(number));
        let Some((frozen, held)) = taken else { return };
        self.aggregator.hold(frozen.port, held);
        debug_assert_eq!(self.aggregator.is_held(frozen.port), held.is_some());
        // The current peer gets commits once it knows that the hold is gone.
        self.beacons.request(frozen.port);
        if let Some(control) = &mut self.control {
            control.announcer.on_change();
        }
        self.beacons.on_update();
        self.stats.links_resolved += 1;
        self.notify(SwitchEvent::LinkResolved(frozen.port));
    }

    fn on_flood_ack(&mut self, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let Ok(ack) = FloodAck::parse(payload) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let is_neighbour =
            self.peer_at(from).is_some_and(|instance| header.sender() == Some(instance));
        let mut is_awaited = false;
        if let (Some(control), true) = (&mut self.control, is_neighbour) {
            is_awaited = control.flood.on_flood_ack(from, ack);
        }
        if !is_awaited {
            return count_drop(&mut self.stats.dropped_unexpected);
        }
        self.stats.flood_acks_received += 1;
        Verdict::Consumed
    }

    /// Handles the Hello of a controller at `port`.
    fn on_hello(&mut self, now: Mono, port: Port, header: &Header) -> Verdict {
        let Some(control) = &mut self.control else {
            return count_drop(&mut self.stats.dropped_unexpected);
        };
        let speaker = header.sender();
        let Some(instance @ Instance { address: Address::Process(process), .. }) = speaker else {
            return count_drop(&mut self.stats.dropped_misplaced);
        };
        let is_upper = self.aggregator.is_upper(port);
        let is_routed_to = match &mut self.config.route {
            Route::ForwardingTable(table) => {
                !is_upper && table.learn(process, instance.incarnation, port)
            }
            Route::Tree(_) => match self.config.route.next(process) {
                Some(NextHop::Down(next_hops)) => next_hops.contains(port),
                _ => false,
            },
        };
        if !control.controllers.contains(process) || !is_routed_to || self.aggregator.is_live(port)
        {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        let registration = control.controller_ports.register(now, port, instance);
        if self.config.heartbeat_interval_ns > 0 {
            control.controller_ports.request_answer(port);
            // A port with nothing but a controller gets answers, and needs no beacons.
            self.links.on_controller(port);
        }
        match registration {
            Registration::Refused => return count_drop(&mut self.stats.dropped_stale),
            Registration::Duplicate => {}
            Registration::New => {
                control.announcer.on_change();
                self.notify(SwitchEvent::ControllerJoined(port));
            }
        }
        self.stats.hellos_received += 1;
        Verdict::Consumed
    }

    //= spec/failure.md#R37
    /// Handles what is due for the controllers at `now`; runs before the beacons of this instant
    /// are requested.
    pub(crate) fn on_control_timeout(&mut self, now: Mono) {
        let Some(control) = &mut self.control else { return };
        control.flood.on_timeout(now, |port| self.aggregator.is_live(port));
        if self.beacons.is_due(now) {
            control.instants = control.instants.wrapping_add(1);
            let is_reminder = control.instants.is_multiple_of(REMINDER_INSTANTS);
            for port in self.links.linked().iter() {
                if is_reminder || !self.links.is_two_way(port) {
                    self.beacons.force_next(port);
                }
            }
            // A lost neighbour that still sends gets beacons that show it; a silent one gets
            // none any more.
            for port in (0..if is_reminder { self.config.lower_ports } else { 0 }).map(Port) {
                if !self.aggregator.is_live(port) {
                    self.links.stop_beacons(port);
                }
            }
        }
        while let Some(port) =
            self.control.as_mut().and_then(|control| control.controller_ports.pop_expired(now))
        {
            if let Some(control) = &mut self.control {
                control.announcer.on_change();
            }
            self.notify(SwitchEvent::ControllerLost(port));
        }
    }

    /// Returns the next frame for the controllers or of their floods.
    pub(crate) fn poll_control(
        &mut self,
        now: Mono,
        reference: Timestamp,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        loop {
            if let Some((port, instance)) = self.control.as_mut()?.death_notice.take() {
                return self.write_death_notice(reference, port, instance, slot);
            }
            if let Some(port) = self.control.as_mut()?.controller_ports.take_unanswered() {
                let own = self.config.instance();
                let header = Header::hop_only(Opcode::Hello, own, None, no_promise(reference));
                return Some(Transmit { port, bytes: seal_with_hops(slot, header, 0, 0) });
            }
            let outgoing = self.control.as_mut()?.flood.pop();
            let Some(outgoing) = outgoing else { return self.poll_announce(now, reference, slot) };
            if let Some(transmit) = self.write_outgoing(reference, outgoing, slot) {
                return Some(transmit);
            }
        }
    }

    /// Writes a flood, or the acknowledgement of one.
    fn write_outgoing(
        &mut self,
        reference: Timestamp,
        outgoing: Outgoing,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (own, promises) = (self.config.instance(), no_promise(reference));
        let (port, opcode) = match outgoing {
            Outgoing::Flood(port) => (port, Opcode::Flood),
            Outgoing::FloodAck(port, _) => (port, Opcode::FloodAck),
        };
        let header = Header::hop_only(opcode, own, self.peer_at(port), promises);
        let control = self.control.as_ref()?;
        let buf = slot.get_mut(HEADER_LEN..)?;
        let bytes = match outgoing {
            Outgoing::Flood(_) if !self.aggregator.is_live(port) => return None,
            Outgoing::Flood(_) => {
                let payload = control.flood.payload();
                buf.get_mut(..payload.len())?.copy_from_slice(payload);
                self.stats.floods_sent += 1;
                payload.len()
            }
            Outgoing::FloodAck(_, ack) => {
                let bytes = ack.write(buf)?;
                self.stats.flood_acks_sent += 1;
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
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let length = slot.len().min(self.config.frame_len_max);
        let slot = &mut slot[..length];
        let total = u16::try_from(self.links().count()).unwrap_or(u16::MAX);
        loop {
            let control = self.control.as_mut()?;
            if control.frozen.iter().next().is_some() {
                control.announcer.wake(now);
            }
            let (controllers, part) =
                (control.controllers, control.announcer.part(now, control.controllers)?);
            let written = self.write_announce(reference, part, total, slot);
            let count = written.map_or(0, |(count, _)| count);
            self.control.as_mut()?.announcer.on_sent(count, total, controllers);
            if let Some((_, transmit)) = written {
                self.stats.announces_sent += 1;
                return Some(transmit);
            }
        }
    }

    fn write_announce(
        &self,
        reference: Timestamp,
        part: Part,
        total: u16,
        slot: &mut [u8],
    ) -> Option<(u16, Transmit)> {
        let next_hops = self.next_hops(self.config.route.next(part.to)?, None)?;
        let port = self.live_next_hop(next_hops, part.round);
        // A switch is not answered by the controllers, and so knows no tip of their log.
        let announce =
            Announce { generation: part.generation, first: part.first, total, tip: None };
        let links = self.links().skip(usize::from(part.first));
        let (count, bytes) = announce.write(slot.get_mut(HEADER_LEN..)?, links)?;
        let own = self.config.instance();
        let src = ProcessId(own.address.to_bits());
        let header = Header::new(Opcode::Announce, src, part.to, own.incarnation);
        let header = header.stamped(reference, no_promise(reference), Psn(part.round));
        Some((count, Transmit { port, bytes: seal(slot, header, bytes) }))
    }

    /// Returns all announced links: the frozen ones, oldest first, controller ports, and two-way
    /// links.
    fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let control = self.control.as_ref();
        let frozen = control.into_iter().flat_map(|control| control.frozen.iter());
        let frozen = frozen.map(|frozen| {
            let Frozen { number, port, instance, commit, cause } = *frozen;
            let state = LinkState::Frozen { number, commit, cause };
            self.link(port, instance, state)
        });
        let controller_ports =
            control.into_iter().flat_map(|control| control.controller_ports.iter());
        let controller_ports =
            controller_ports.map(|(port, instance)| self.link(port, Some(instance), LinkState::Up));
        let up = self
            .config
            .ports()
            .filter(|port| self.aggregator.is_live(*port) && self.links.is_two_way(*port));
        let up = up.map(|port| self.link(port, self.links.instance(port), LinkState::Up));
        frozen.chain(controller_ports).chain(up)
    }

    fn link(&self, port: Port, instance: Option<Instance>, state: LinkState) -> Link {
        let side = if self.aggregator.is_upper(port) { Side::Upper } else { Side::Lower };
        Link { port, side, instance, state }
    }
}

/// Returns the next hop, among several up or in a bundle down, that the label of a frame in a
/// granted timeslot selects for this switch (`docs/design/arbiter.md`, "Why must a switch obey a
/// label though it knows that the link is dead?").
fn labelled(next_hops: PortRange, header: &Header, frame: &[u8]) -> Option<Port> {
    if header.opcode() != Ok(Opcode::Slot) || next_hops.count() == 1 {
        return None;
    }
    let nth = HOPS_MAX.checked_sub(header.hops())?;
    Slot::next_link(frame.get(HEADER_LEN..)?, nth)
        .map(|next_link| next_hops.nth(u32::from(next_link)))
}
