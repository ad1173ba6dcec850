//! Links that come, go, die and come back: the part of [`Switch`] that keeps them.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Address, Instance, Mono, Now, PeerUpdate, Port, ProcessId, Promises, Verdict};
use onepipe_topology::{Next, Route};
use onepipe_wire::{Flags, HOPS_MAX, Header, Opcode};

use crate::switch::count_drop;
use crate::{Switch, SwitchEvent};

/// Hop-only frames leave their sender with at most this many hops; with [`HOPS_MAX`] they are taken
/// for as fresh. In between they were passed on by a switch that sits between their sender and
/// this one: they teach the way, and say nothing of the link.
const HOP_ONLY_HOPS_MAX: u8 = 1;

/// What a frame is to its link, where dead links are frozen.
pub(crate) enum LinkCheck {
    /// Its promises are those of whoever is known to be at the other end.
    Accepted,
    /// It is taken or passed on, but its promises count nowhere.
    Ignored,
    /// It is of no use.
    Refused(Verdict),
}

impl Switch {
    /// Tells that `port` leads to nobody any more, and may lead to somebody else from now on: its
    /// promise, its route and what it was told are forgotten. Where there are controllers its
    /// commit is frozen. Takes time in proportion to the route table.
    pub fn unplug(&mut self, port: Port) {
        if port.index() >= self.port_count() {
            return;
        }
        self.take_down(port, SwitchEvent::LinkLeft(port));
        self.aggregator.forget_advertised(port);
        self.neighbours.forget(port);
        self.stop_beacons(port);
        if let Some(control) = &mut self.control {
            control.flood.on_gone(port);
            if control.controller_ports.remove(port) {
                control.announcer.on_change();
                self.notify(SwitchEvent::ControllerLost(port));
            }
        }
        if let Route::Table(table) = &mut self.config.route {
            table.forget_port(port);
        }
    }

    /// Tells that nobody answers at `port`, as the world knows for certain: the link is dead, and
    /// waits for no timeout. Whoever is heard there again brings it back.
    pub fn mark_link_lost(&mut self, port: Port) {
        if port.index() < self.port_count() {
            self.take_down(port, SwitchEvent::LinkLost(port));
        }
    }

    /// Tells that the driver has slept until `now`, and what the neighbours have said meanwhile
    /// waits to be read: none of them is missed before half a link timeout has passed.
    pub fn handle_stall(&mut self, now: Now) {
        self.liveness.postpone(now.mono);
    }

    #[inline]
    pub(crate) fn on_promises(&mut self, now: Mono, port: Port, promises: Promises) {
        self.has_update = true;
        let is_new = self.aggregator.update(now, port, promises);
        if !self.is_advertising() && !self.aggregator.is_upper(port) {
            // Who was told a commit promises no less.
            self.aggregator.assume_advertised(promises.commit);
        }
        if !self.caught_up.contains(port) {
            self.check_caught_up(port, promises);
        }
        if is_new {
            self.on_link_up(now, port);
        }
    }

    /// As [`Switch::on_promises`] for a sign of life of a link that nothing feeds.
    #[cold]
    pub(crate) fn on_unfed(&mut self, now: Mono, port: Port, promises: Promises, holds: bool) {
        self.has_update = true;
        let held = holds.then_some(promises.commit);
        let is_new = self.aggregator.update_unfed(now, port, promises.barrier, held);
        if self.aggregator.promised(port).is_none() {
            // Who feeds it next is a newcomer.
            self.caught_up.remove(port);
        }
        if is_new {
            self.on_link_up(now, port);
        }
    }

    /// Whether who has promised this on `port` has caught up: with all that was told here, and,
    /// from below, with all that was told further up, as far as this switch's promises reach.
    fn check_caught_up(&mut self, port: Port, promises: Promises) {
        if !self.aggregator.has_reached(port, promises) || self.aggregator.promised(port).is_none()
        {
            return;
        }
        if self.must_hold_joiners() && !self.aggregator.is_upper(port) {
            if !self.is_uplink_ready || !self.is_counted_elsewhere(port) {
                return;
            }
            if self.is_switch_at(port) {
                // Who sits behind that waits to be told.
                self.beacons.request(port);
            }
        }
        self.caught_up.insert(port);
    }

    /// Whether all other switches count what this one tells them: then nothing that is told above
    /// them or below them lies above what a newcomer at `port` has promised.
    fn is_counted_elsewhere(&self, port: Port) -> bool {
        let mut others = (0..self.port_count() as u16).map(Port).filter(|other| *other != port);
        others.all(|other| {
            let is_switch = self.aggregator.is_upper(other) || self.is_switch_at(other);
            !is_switch || self.aggregator.is_counted(other)
        })
    }

    /// Another switch has come at `port`: commits were told there that nobody below another port
    /// has promised.
    #[cold]
    fn recheck_joiners(&mut self, port: Port) {
        for other in (0..self.config.lower_ports).map(Port).filter(|other| *other != port) {
            self.caught_up.remove(other);
        }
    }

    fn on_link_up(&mut self, now: Mono, port: Port) {
        self.linked.insert(port);
        self.is_uplink_ready |= self.aggregator.is_upper(port);
        self.liveness.on_joined(now);
        self.aggregator.await_counted(port);
        if self.must_hold_joiners() && (self.aggregator.is_upper(port) || self.is_switch_at(port)) {
            self.recheck_joiners(port);
        }
        self.notify(SwitchEvent::LinkJoined(port));
        if let Some(control) = &mut self.control {
            control.announcer.on_change();
            control.flood.on_joined(now, port);
        }
    }

    /// Whether another switch was last heard at `port`.
    pub(crate) fn is_switch_at(&self, port: Port) -> bool {
        let instance = self.neighbours.instance(port);
        instance.is_some_and(|instance| matches!(instance.address, Address::Switch(_)))
    }

    /// Takes a link that may be live out of the barriers; where there are controllers, its commit
    /// is frozen.
    pub(crate) fn take_down(&mut self, port: Port, event: SwitchEvent) {
        if self.control.is_some() {
            let instance = self.neighbours.instance(port);
            self.neighbours.mark_lost(port);
            self.freeze(port, instance, event);
        } else if self.aggregator.remove(port) {
            self.on_link_down(port, event);
        }
    }

    pub(crate) fn on_link_down(&mut self, port: Port, event: SwitchEvent) {
        self.has_update = true;
        self.caught_up.remove(port);
        self.stats.links_lost += u64::from(matches!(event, SwitchEvent::LinkLost(_)));
        self.stop_beacons(port);
        self.notify(event);
        // Whom nothing feeds any more need not wait for the instant to take this link out.
        for upper in (self.config.lower_ports..self.port_count() as u16).map(Port) {
            if !self.aggregator.is_fed(upper) {
                self.beacons.request(upper);
            }
        }
    }

    /// A port that leads to nobody known gets no beacons.
    pub(crate) fn stop_beacons(&mut self, port: Port) {
        if self.config.route.is_learned() && !self.aggregator.is_upper(port) {
            self.linked.remove(port);
        }
    }

    /// Freezes `port`, where `instance` was, if it is live.
    fn freeze(&mut self, port: Port, instance: Option<Instance>, event: SwitchEvent) {
        let control = self.control.as_ref();
        if let Some(commit) = control.and_then(|control| control.frozen.passed(port, instance)) {
            self.aggregator.assume_promised(port, commit);
        }
        if self.aggregator.holds_nothing(port) {
            // It was never fed, or what fed it is resolved.
            self.aggregator.remove(port);
            if let Some(control) = &mut self.control {
                control.announcer.on_change();
            }
            return self.on_link_down(port, event);
        }
        let Some(commit) = self.aggregator.freeze(port) else { return };
        if makes(Mistake::DeadCommitDropped) {
            self.aggregator.hold(port, None);
        }
        if let Some(control) = &mut self.control {
            control.frozen.note(port, instance, commit);
            control.announcer.on_change();
        }
        self.stats.links_frozen += 1;
        self.on_link_down(port, event);
        self.notify(SwitchEvent::LinkFrozen(port));
    }

    /// Who is heard on `port`, if anybody is: what its beacons and waves bear.
    pub(crate) fn peer_at(&self, port: Port) -> Option<Instance> {
        if self.aggregator.is_live(port) { self.neighbours.instance(port) } else { None }
    }

    /// What a frame is to its link (design: failure.md, "Who is on a link?"). Freezes what has died
    /// before the frame's promise can be heard.
    pub(crate) fn check_link(&mut self, port: Port, header: &Header, opcode: Opcode) -> LinkCheck {
        let (hops, is_of_link) = (header.hops(), opcode.is_hop_only());
        if is_of_link && (HOP_ONLY_HOPS_MAX + 1..HOPS_MAX).contains(&hops) {
            return LinkCheck::Ignored;
        }
        let is_from_there = is_of_link || (hops == HOPS_MAX && !self.aggregator.is_upper(port));
        if !is_from_there {
            return match self.neighbours.is_up(port) {
                true => LinkCheck::Accepted,
                false => LinkCheck::Ignored,
            };
        }
        let speaker = header.sender().filter(|instance| self.is_plausible_at(port, *instance));
        let Some(instance) = speaker else {
            return LinkCheck::Refused(count_drop(&mut self.stats.dropped_misplaced));
        };
        let was_two_way = self.neighbours.is_two_way(port);
        // A goodbye is heard whatever its sender hears.
        let update = match is_of_link && opcode != Opcode::Leave {
            true => self.neighbours.on_hello(port, instance, header.peer(), self.config.instance()),
            false => self.neighbours.on_instance(port, instance),
        };
        if is_of_link && opcode != Opcode::Leave && update != PeerUpdate::Stale {
            let is_held = header.has(Flags::PREVIOUS_HOLDS);
            if is_held {
                self.previous_holds.insert(port)
            } else {
                self.previous_holds.remove(port)
            }
        }
        if was_two_way != self.neighbours.is_two_way(port)
            && let Some(control) = &mut self.control
        {
            control.announcer.on_change();
        }
        match update {
            PeerUpdate::Same => LinkCheck::Accepted,
            PeerUpdate::NewInstance(_) if makes(Mistake::RestartIgnored) => LinkCheck::Accepted,
            PeerUpdate::NewInstance(previous) => {
                if let Some(control) = &mut self.control {
                    control.flood.on_gone(port);
                }
                self.freeze(port, Some(previous), SwitchEvent::LinkRestarted(port));
                LinkCheck::Accepted
            }
            PeerUpdate::Stale if self.neighbours.instance(port) != Some(instance) => {
                LinkCheck::Refused(count_drop(&mut self.stats.dropped_stale))
            }
            // It waits to be told that the link was lost.
            PeerUpdate::Stale => {
                self.linked.insert(port);
                LinkCheck::Ignored
            }
            PeerUpdate::OneWay => {
                self.freeze(port, Some(instance), SwitchEvent::LinkOneWay(port));
                self.linked.insert(port);
                self.beacons.request(port);
                LinkCheck::Ignored
            }
        }
    }

    /// Whether `instance` can be at the other end of `port`. Who is alive there is replaced by a later
    /// life of its own only.
    fn is_plausible_at(&self, port: Port, instance: Instance) -> bool {
        let known = self.neighbours.instance(port);
        if known == Some(instance) {
            return true;
        }
        let fits = match instance.address {
            Address::Switch(switch) => switch != self.config.switch,
            Address::Process(process) => {
                !self.aggregator.is_upper(port)
                    && self.config.controllers.is_none_or(|range| !range.contains(process))
                    && self.is_routed_to(port, process)
            }
        };
        let is_other = known.is_some_and(|known| known.address != instance.address);
        fits && !(is_other && self.aggregator.is_live(port))
    }

    /// Whether the ways that are known allow `process` behind `port`.
    pub(crate) fn is_routed_to(&self, port: Port, process: ProcessId) -> bool {
        match self.config.route {
            Route::Table(_) => true,
            Route::Tree(_) => leads_to(self.config.route.next(process), port),
        }
    }

    /// Any frame shows where its sender sits. A process repeats its join only until it has heard
    /// something, so a switch that lost the join, or restarted with an empty table, must not depend
    /// on another one. The beacons of other switches bear no process and teach nothing.
    #[inline]
    pub(crate) fn learn(&mut self, port: Port, src: ProcessId) {
        if let Route::Table(table) = &mut self.config.route
            && port.0 < self.config.lower_ports
        {
            table.learn(src, port);
        }
    }

    /// A process says that it sits behind `port`. It is told the barrier at once, so that it can
    /// lift its floor: until then its old promise holds everybody.
    pub(crate) fn on_join(&mut self, port: Port, src: ProcessId) -> Verdict {
        let upper = self.aggregator.is_upper(port);
        let fits = !upper
            && match &mut self.config.route {
                Route::Table(table) => table.learn(src, port),
                Route::Tree(_) => leads_to(self.config.route.next(src), port),
            };
        if !fits {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        self.stats.joins_received += 1;
        self.beacons.request(port);
        Verdict::Consumed
    }

    /// A process takes its leave: its link waits for no timeout. `last` is what it promised with
    /// its goodbye: what it has settled before it left shall lie below the commit that is frozen.
    pub(crate) fn on_leave(
        &mut self,
        now: Mono,
        port: Port,
        src: ProcessId,
        last: Option<Promises>,
    ) -> Verdict {
        let sits_there = leads_to(self.config.route.next(src), port);
        if !sits_there {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        if let Route::Table(table) = &mut self.config.route {
            table.forget(src, port);
        }
        self.stats.leaves_received += 1;
        if let (Some(last), true) = (last, self.aggregator.is_live(port)) {
            self.aggregator.update(now, port, last);
        }
        self.take_down(port, SwitchEvent::LinkLeft(port));
        if let Some(control) = &mut self.control {
            control.flood.on_gone(port);
        }
        Verdict::Consumed
    }
}

#[inline]
fn leads_to(next: Option<Next>, port: Port) -> bool {
    matches!(next, Some(Next::Down(next_hops)) if next_hops.contains(port))
}
