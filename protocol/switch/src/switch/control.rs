//! The part of [`Switch`] that handles control frames and the timers of the controllers.

use onepipe_base::{Address, Cause, Instance, Mono, Port, Psn, Timestamp, Transmit, Verdict};
use onepipe_topology::{FlowKey, PortRange, Route, Spread};
use onepipe_wire::{
    FloodAck, FloodId, FloodView, Frame, HEADER_LEN, HOPS_MAX, Header, Opcode, SHORT_HEADER_LEN,
    Slot, pass_hop,
};

use crate::clock::Time;
use crate::control::{View, Writer};
use crate::controller_ports::Registration;
use crate::flood::Arrived;
use crate::form::Form;
use crate::stats::count_drop;
use crate::{Switch, SwitchEvent};

impl Switch {
    /// Handles a control frame, which concerns links, not messages.
    #[cold]
    pub(super) fn on_control(&mut self, time: Time, port: Port, frame: &mut [u8]) -> Verdict {
        let Time { mono: now, reference } = time;
        let Ok(parsed) = Frame::parse(frame) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let (header, opcode) = (parsed.header, parsed.opcode);
        match opcode {
            Opcode::Flood => self.on_flood(now, port, &header, parsed.payload),
            Opcode::FloodAck => self.on_flood_ack(port, &header, parsed.payload),
            Opcode::Hello => self.on_hello(now, port, &header),
            _ => {
                self.config.learn(port, &header);
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
        let Some(next_hops) = self.config.next_hops(next, Some(input)) else {
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
            self.view().live_next_hop(next_hops, u32::from(chosen.0 - next_hops.first().0))
        };
        let is_untouched = self.config.form == Form::OffChip;
        if !is_untouched && !pass_hop(frame, None) {
            return count_drop(&mut self.stats.dropped_hops);
        }
        self.stats.forwarded += 1;
        Verdict::Forward(output)
    }

    fn on_flood(&mut self, now: Mono, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let own = self.config.instance();
        let Some(control) = &mut self.control else {
            return count_drop(&mut self.stats.dropped_unexpected);
        };
        let view = FloodView::parse(payload).ok();
        if let Some(view) = view.filter(|view| view.id == FloodId::HOP_ONLY) {
            return self.on_death_notice(header, view);
        }
        // Only a live neighbour switch, or a controller at its port, may send floods.
        let is_switch = |instance: &Instance| matches!(instance.address, Address::Switch(_));
        let neighbour = match self.aggregator.is_live(from) {
            true => self.links.instance(from).filter(is_switch),
            false => control.controller_at(from),
        };
        if neighbour.is_none() || header.sender() != neighbour {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        let bytes_max = self.config.frame_len_max - HEADER_LEN;
        let Some(view) = view.filter(|_| payload.len() <= bytes_max) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        self.stats.floods_received += 1;
        for instance in view.dead() {
            self.declare_dead(from, instance);
        }
        let Some(control) = &mut self.control else { return Verdict::Consumed };
        let others = self.config.ports().filter(|port| self.aggregator.is_live(*port));
        let arrived = control.on_flood(now, from, &view, payload, others);
        if arrived == Arrived::New {
            self.set_cut(false);
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
        control.declare_dead(instance);
        for port in self.config.ports().filter(|port| *port != from) {
            let is_dead_peer = self.links.instance(port).is_some_and(|known| {
                known.address == instance.address && known.incarnation <= instance.incarnation
            });
            if is_dead_peer && self.aggregator.is_live(port) {
                self.take_down(port, Cause::Fenced, SwitchEvent::LinkLost(port));
            }
        }
    }

    /// Handles a controller's Resume of the death `number`.
    fn resolve(&mut self, number: u32) {
        let Some(control) = &mut self.control else { return };
        let Some(port) = control.resolve(&mut self.aggregator, number) else { return };
        // The current peer gets commits once it knows that the hold is gone.
        self.beacons.request(port);
        self.beacons.on_update();
        self.stats.links_resolved += 1;
        self.notify(SwitchEvent::LinkResolved(port));
    }

    fn on_flood_ack(&mut self, from: Port, header: &Header, payload: &[u8]) -> Verdict {
        let Ok(ack) = FloodAck::parse(payload) else {
            return count_drop(&mut self.stats.dropped_malformed);
        };
        let is_neighbour =
            self.view().peer_at(from).is_some_and(|instance| header.sender() == Some(instance));
        let control = self.control.as_mut().filter(|_| is_neighbour);
        if !control.is_some_and(|control| control.on_flood_ack(from, ack)) {
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
            Route::Tree(_) => self.config.leads_to(process, port),
        };
        if !self.config.is_controller(process) || !is_routed_to || self.aggregator.is_live(port) {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        let is_answered = self.config.heartbeat_interval_ns > 0;
        let registration = control.on_hello(now, port, instance, is_answered);
        if is_answered {
            // A port with nothing but a controller gets answers, and needs no beacons.
            self.links.on_controller(port);
        }
        match registration {
            Registration::Refused => return count_drop(&mut self.stats.dropped_stale),
            Registration::Duplicate => {}
            Registration::New => self.notify(SwitchEvent::ControllerJoined(port)),
        }
        self.stats.hellos_received += 1;
        Verdict::Consumed
    }

    //= spec/failure.md#R37
    /// Handles what is due for the controllers at `now`; runs before the beacons of this instant
    /// are requested.
    pub(super) fn on_control_timeout(&mut self, now: Mono) {
        let Some(control) = &mut self.control else { return };
        control.on_timeout(now, |port| self.aggregator.is_live(port));
        if self.beacons.is_due(now) {
            let is_reminder = control.on_instant();
            for port in self.links.linked().iter() {
                if is_reminder || !self.links.is_two_way(port) {
                    self.beacons.force_next(port);
                }
            }
            // A lost neighbour that still sends gets beacons that show it; a silent one gets
            // none any more.
            for port in self.config.lower().filter(|_| is_reminder) {
                if !self.aggregator.is_live(port) {
                    self.links.stop_beacons(port);
                }
            }
        }
        while let Some(port) = self.control.as_mut().and_then(|control| control.pop_expired(now)) {
            self.notify(SwitchEvent::ControllerLost(port));
        }
    }

    /// Returns what frames show of this switch.
    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View { config: &self.config, aggregator: &self.aggregator, links: &self.links }
    }

    /// Returns the next frame for the controllers or of their floods.
    pub(super) fn poll_control(&mut self, time: Time, slot: &mut [u8]) -> Option<Transmit> {
        let view = View { config: &self.config, aggregator: &self.aggregator, links: &self.links };
        self.control.as_mut()?.poll(Writer { time, view, stats: &mut self.stats, slot })
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
    Slot::next_link(frame.get(SHORT_HEADER_LEN..)?, nth)
        .map(|next_link| next_hops.nth(u32::from(next_link)))
}
