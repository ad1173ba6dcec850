//! The part of [`Switch`] that works for the controllers: waves, greetings, announcements.

use alloc::vec::Vec;

use onepipe_base::{
    Address, Controllers, FrozenLinks, Instance, Mono, Port, ProcessId, Psn, Timestamp, Transmit,
    Verdict,
};
use onepipe_topology::{Next, PortRange, Route};
use onepipe_wire::{
    Announce, FloodAck, FloodId, FloodView, Frame, HEADER_LEN, HOPS_MAX, Header, Link, LinkState,
    Opcode, Side, Slot, seal, seal_with_hops,
};

use crate::announcer::{Announcer, Part};
use crate::clock::no_promise;
use crate::form::{Form, chip};
use crate::seats::{Greeted, Seats};
use crate::switch::{Passing, drop_as};
use crate::wave::{Arrived, Owed, Waves};
use crate::{Config, Switch, SwitchEvent};

/// Every so many beacon instants a link gets its beacon even if it is busy: who is confirmed has
/// no other reason to send one, and the other end may have missed those that bore its life.
const INSTANTS_A_REMINDER: u32 = 16;

/// What a switch keeps for the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Control {
    controllers: Controllers,
    pub(crate) frozen: FrozenLinks,
    pub(crate) seats: Seats,
    pub(crate) announcer: Announcer,
    pub(crate) waves: Waves,
    instants: u32,
    /// Lives that controllers have declared dead, one an address.
    pub(crate) dead: Vec<Instance>,
    /// A switch among them that was heard, where, and is to be told.
    pub(crate) condemned: Option<(Port, Instance)>,
}

impl Control {
    /// For the switch of `config`; `None` where there are no controllers.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let controllers = config.controllers?;
        let ports = config.lower_ports + config.upper_ports;
        let step_ns = 2 * config.beacon_interval_ns;
        let bytes_max = config.frame_len_max - HEADER_LEN;
        Some(Self {
            controllers,
            frozen: FrozenLinks::new(),
            seats: Seats::new(controllers.count as usize, config.link_timeout_ns),
            announcer: Announcer::new(
                config.instance().address,
                step_ns,
                config.announce_interval_ns,
            ),
            waves: Waves::new(ports, bytes_max, config.wave_interval_ns),
            instants: 0,
            dead: Vec::new(),
            condemned: None,
        })
    }

    /// When something is due, if anything is.
    pub(crate) fn due(&self) -> Option<Mono> {
        let repeats = Mono::earlier(self.waves.due(), self.announcer.due());
        Mono::earlier(repeats, self.seats.due())
    }
}

impl Switch {
    /// A frame that speaks of links, not of messages.
    #[cold]
    pub(crate) fn on_control(
        &mut self,
        now: Mono,
        reference: Timestamp,
        port: Port,
        frame: &mut [u8],
    ) -> Verdict {
        let Ok(parsed) = Frame::parse(frame) else {
            return drop_as(&mut self.stats.dropped_malformed);
        };
        let (header, opcode) = (*parsed.header, parsed.opcode);
        match opcode {
            Opcode::Flood => self.on_wave(now, port, &header, parsed.payload),
            Opcode::FloodAck => self.on_echo(port, &header, parsed.payload),
            Opcode::Hello => self.on_hello(now, port, &header),
            _ => {
                self.learn(port, header.src());
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
            return drop_as(&mut self.stats.dropped_unknown);
        };
        let Some(ways) = self.ways(next, Some(input)) else {
            return drop_as(&mut self.stats.dropped_back);
        };
        let output = if let Some(output) = labelled(ways, header, frame) {
            // Alive or not: that it is lost there is what the arbiter must hear of.
            output
        } else if header.opcode().is_ok_and(Opcode::is_path_pinned) {
            // It may count on its order, and on being spread as everything else is.
            self.choose(ways, Passing { src: header.src(), dst: header.dst(), psn: header.psn() })
        } else {
            // What is lost here is said again: each time it may go another way.
            self.live_of(ways, header.psn().0)
        };
        let is_untouched = self.config.form == Form::Beside;
        if !is_untouched && !chip::pass_control(frame, reference) {
            return drop_as(&mut self.stats.dropped_hops);
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    /// One of `ways`, the `nth` or the first live one behind it; the `nth` if none is live.
    fn live_of(&self, ways: PortRange, nth: u32) -> Port {
        let first = nth % u32::from(ways.count());
        let mut all = (0..u32::from(ways.count())).map(|step| ways.nth(first + step));
        all.find(|port| self.halves.is_live(*port)).unwrap_or_else(|| ways.nth(first))
    }

    fn on_wave(&mut self, now: Mono, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let own = self.config.instance();
        let ports = self.port_count() as u16;
        let Some(control) = &mut self.control else {
            return drop_as(&mut self.stats.dropped_unwanted);
        };
        if let Ok(view) = FloodView::parse(payload)
            && view.id == FloodId::HOP_ONLY
        {
            return self.on_aside(header, view);
        }
        // Only a switch that is heard here, or a controller that sits here, passes waves on.
        let is_switch = |instance: &Instance| matches!(instance.address, Address::Switch(_));
        let neighbour = match self.halves.is_live(from) {
            true => self.neighbours.instance(from).filter(is_switch),
            false => control.seats.instance(from),
        };
        if neighbour.is_none() || header.sender() != neighbour {
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        let bytes_max = self.config.frame_len_max - HEADER_LEN;
        let Some(view) = FloodView::parse(payload).ok().filter(|_| payload.len() <= bytes_max)
        else {
            return drop_as(&mut self.stats.dropped_malformed);
        };
        self.stats.waves_heard += 1;
        for instance in view.dead() {
            self.declare_dead(from, instance);
        }
        let Some(control) = &mut self.control else { return Verdict::Consumed };
        let others = (0..ports).map(Port).filter(|port| self.halves.is_live(*port));
        let arrived = control.waves.on_wave(now, from, (view.id, view.kind), payload, others);
        if arrived == Arrived::New {
            for resolved in view.resolved().filter(|resolved| resolved.owner == own) {
                self.resolve(resolved.number);
            }
        }
        Verdict::Consumed
    }

    /// A controller says that `instance` is dead, heard or not: its link is frozen, and it is heard
    /// here no more (design: failure.md, "What if a receiver cannot be reached, and has not
    /// failed?").
    fn declare_dead(&mut self, from: Port, instance: Instance) {
        let Some(control) = &mut self.control else { return };
        let is_same = |known: &Instance| known.address == instance.address;
        match control.dead.iter_mut().find(|known| is_same(known)) {
            Some(known) => known.incarnation = known.incarnation.max(instance.incarnation),
            None => control.dead.push(instance),
        }
        for port in (0..self.port_count() as u16).map(Port).filter(|port| *port != from) {
            let is_there = self
                .neighbours
                .instance(port)
                .is_some_and(|known| is_same(&known) && known.incarnation <= instance.incarnation);
            if is_there && self.halves.is_live(port) {
                self.take_out(port, SwitchEvent::LinkLost(port));
            }
        }
    }

    /// Whether a frame is of a life that was declared dead, straight from there.
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

    /// A controller says that nobody needs what the death `number` holds.
    fn resolve(&mut self, number: u32) {
        let taken = self.control.as_mut().and_then(|control| control.frozen.take(number));
        let Some((frozen, held)) = taken else { return };
        self.halves.hold(frozen.port, held);
        // Who is there now tells commits once it knows.
        self.beacons.owe(frozen.port);
        if let Some(control) = &mut self.control {
            control.announcer.on_change();
        }
        self.has_news = true;
        self.stats.links_resolved += 1;
        self.notify(SwitchEvent::LinkResolved(frozen.port));
    }

    fn on_echo(&mut self, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let Ok(echo) = FloodAck::parse(payload) else {
            return drop_as(&mut self.stats.dropped_malformed);
        };
        let is_neighbour =
            self.echo(from).is_some_and(|instance| header.sender() == Some(instance));
        let mut is_awaited = false;
        if let (Some(control), true) = (&mut self.control, is_neighbour) {
            is_awaited = control.waves.on_echo(from, echo);
        }
        if !is_awaited {
            return drop_as(&mut self.stats.dropped_unwanted);
        }
        self.stats.echoes_heard += 1;
        Verdict::Consumed
    }

    /// A controller says that it sits at `port`.
    fn on_hello(&mut self, now: Mono, port: Port, header: &Header) -> Verdict {
        let Some(control) = &mut self.control else {
            return drop_as(&mut self.stats.dropped_unwanted);
        };
        let speaker = header.sender();
        let Some(instance @ Instance { address: Address::Process(process), .. }) = speaker else {
            return drop_as(&mut self.stats.dropped_misplaced);
        };
        let is_upper = self.halves.is_upper(port);
        let may_sit = match &mut self.config.route {
            Route::Table(table) => !is_upper && table.learn(process, port),
            Route::Tree(_) => match self.config.route.next(process) {
                Some(Next::Down(ways)) => ways.contains(port),
                _ => false,
            },
        };
        if !control.controllers.contains(process) || !may_sit || self.halves.is_live(port) {
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        match control.seats.greet(now, port, instance) {
            Greeted::Refused => return drop_as(&mut self.stats.dropped_stale),
            Greeted::Again => {}
            Greeted::New => {
                control.announcer.on_change();
                self.notify(SwitchEvent::ControllerJoined(port));
            }
        }
        self.stats.hellos_heard += 1;
        Verdict::Consumed
    }

    /// What is due for the controllers at `now`; before the beacons of this instant are owed.
    pub(crate) fn on_control_timeout(&mut self, now: Mono) {
        let Some(control) = &mut self.control else { return };
        control.waves.on_timeout(now, |port| self.halves.is_live(port));
        if self.beacons.is_due(now) {
            control.instants = control.instants.wrapping_add(1);
            let reminds = control.instants.is_multiple_of(INSTANTS_A_REMINDER);
            for port in self.linked.iter() {
                if reminds || !self.neighbours.is_two_way(port) {
                    self.beacons.insist(port);
                }
            }
            // Who was lost and shows itself is told so; who does not is told no longer.
            for port in (0..if reminds { self.config.lower_ports } else { 0 }).map(Port) {
                if !self.halves.is_live(port) {
                    self.unlink(port);
                }
            }
        }
        while let Some(port) = self.control.as_mut().and_then(|all| all.seats.pop_silent(now)) {
            if let Some(control) = &mut self.control {
                control.announcer.on_change();
            }
            self.notify(SwitchEvent::ControllerLost(port));
        }
    }

    /// The next frame for the controllers or for their waves.
    pub(crate) fn poll_control(
        &mut self,
        now: Mono,
        reference: Timestamp,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        loop {
            if let Some((port, instance)) = self.control.as_mut()?.condemned.take() {
                return self.write_condemned(reference, port, instance, slot);
            }
            let owed = self.control.as_mut()?.waves.pop();
            let Some(owed) = owed else { return self.poll_announce(now, reference, slot) };
            if let Some(transmit) = self.write_owed(reference, owed, slot) {
                return Some(transmit);
            }
        }
    }

    /// Writes a wave, or an answer to one.
    fn write_owed(
        &mut self,
        reference: Timestamp,
        owed: Owed,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (own, nothing) = (self.config.instance(), no_promise(reference));
        let (port, opcode) = match owed {
            Owed::Flood(port) => (port, Opcode::Flood),
            Owed::FloodAck(port, _) => (port, Opcode::FloodAck),
        };
        let header = Header::hop_only(opcode, own, self.echo(port), nothing);
        let control = self.control.as_ref()?;
        let room = slot.get_mut(HEADER_LEN..)?;
        let bytes = match owed {
            Owed::Flood(_) if !self.halves.is_live(port) => return None,
            Owed::Flood(_) => {
                let payload = control.waves.payload();
                room.get_mut(..payload.len())?.copy_from_slice(payload);
                self.stats.waves_sent += 1;
                payload.len()
            }
            Owed::FloodAck(_, echo) => {
                let bytes = echo.write(room)?;
                self.stats.echoes_sent += 1;
                bytes
            }
        };
        Some(Transmit { port, bytes: seal_with_hops(slot, header, bytes, 0) })
    }

    /// The next part of what is announced to a controller to which there is a way.
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
        let ways = self.ways(self.config.route.next(part.to)?, None)?;
        let port = self.live_of(ways, part.round);
        let announce = Announce { generation: part.generation, first: part.first, total };
        let links = self.links().skip(usize::from(part.first));
        let (count, bytes) = announce.write(slot.get_mut(HEADER_LEN..)?, links)?;
        let own = self.config.instance();
        let src = ProcessId(own.address.to_bits());
        let header = Header::new(Opcode::Announce, src, part.to, own.incarnation);
        let header = header.stamped(reference, no_promise(reference), Psn(part.round));
        Some((count, Transmit { port, bytes: seal(slot, header, bytes) }))
    }

    /// All links that are announced: the dead ones, oldest first, and who is heard and hears.
    fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let control = self.control.as_ref();
        let frozen = control.into_iter().flat_map(|control| control.frozen.iter());
        let frozen = frozen.map(|frozen| {
            let state = LinkState::Frozen { number: frozen.number, commit: frozen.commit };
            self.link(frozen.port, frozen.instance, state)
        });
        let seats = control.into_iter().flat_map(|control| control.seats.iter());
        let seats = seats.map(|(port, instance)| self.link(port, Some(instance), LinkState::Up));
        let ports = (0..self.port_count() as u16).map(Port);
        let up =
            ports.filter(|port| self.halves.is_live(*port) && self.neighbours.is_two_way(*port));
        let up = up.map(|port| self.link(port, self.neighbours.instance(port), LinkState::Up));
        frozen.chain(seats).chain(up)
    }

    fn link(&self, port: Port, instance: Option<Instance>, state: LinkState) -> Link {
        let side = if self.halves.is_upper(port) { Side::Upper } else { Side::Lower };
        Link { port, side, instance, state }
    }
}

/// The one of several ways, up or in a bundle down, that the label of a frame in a granted timeslot
/// asks this switch to take (design: arbiter.md section 3).
fn labelled(ways: PortRange, header: &Header, frame: &[u8]) -> Option<Port> {
    if header.opcode() != Ok(Opcode::Slot) || ways.count() == 1 {
        return None;
    }
    let nth = HOPS_MAX.checked_sub(header.hops())?;
    Slot::next_link(frame.get(HEADER_LEN..)?, nth).map(|way| ways.nth(u32::from(way)))
}
