//! Links that come, go, die and come back: the part of [`Switch`] that keeps them.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Address, Instance, Mono, Now, PeerUpdate, Port, ProcessId, Promises, Verdict};
use onepipe_topology::{Next, Route};
use onepipe_wire::{Flags, HOPS_MAX, Header, Opcode};

use crate::switch::drop_as;
use crate::{Switch, SwitchEvent};

/// Hop-only frames leave their sender with at most this many hops; with [`HOPS_MAX`] they are taken
/// for as fresh. In between they were passed on by a switch that sits between their sender and
/// this one: they teach the way, and say nothing of the link.
const HOPS_OF_LINK_MAX: u8 = 1;

/// What a frame is to its link, where dead links are frozen.
pub(crate) enum Recognised {
    /// Its promises are those of whoever is known to be at the other end.
    Heard,
    /// It is taken or passed on, but its promises count nowhere.
    Unheard,
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
        self.take_out(port, SwitchEvent::LinkLeft(port));
        self.halves.forget_told(port);
        self.neighbours.forget(port);
        self.unlink(port);
        if let Some(control) = &mut self.control {
            control.waves.on_gone(port);
            if control.seats.remove(port) {
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
    pub fn lose(&mut self, port: Port) {
        if port.index() < self.port_count() {
            self.take_out(port, SwitchEvent::LinkLost(port));
        }
    }

    /// Tells that the driver has slept until `now`, and what the neighbours have said meanwhile
    /// waits to be read: none of them is missed before half a link timeout has passed.
    pub fn excuse(&mut self, now: Now) {
        self.liveness.excuse(now.mono);
    }

    #[inline]
    pub(crate) fn on_heard(&mut self, now: Mono, port: Port, promises: Promises) {
        self.has_news = true;
        let is_new = self.halves.hear(now, port, promises);
        if !self.has_spoken() && !self.halves.is_upper(port) {
            // Who was told a commit promises no less.
            self.halves.presume_told(promises.commit);
        }
        if !self.caught_up.contains(port) {
            self.place(port, promises);
        }
        if is_new {
            self.on_come(now, port);
        }
    }

    /// As [`Switch::on_heard`] for a sign of life of a link that nothing feeds.
    #[cold]
    pub(crate) fn on_unfed(&mut self, now: Mono, port: Port, promises: Promises, holds: bool) {
        self.has_news = true;
        let held = holds.then_some(promises.commit);
        let is_new = self.halves.update_unfed(now, port, promises.barrier, held);
        if self.halves.promised(port).is_none() {
            // Who feeds it next is a newcomer.
            self.caught_up.remove(port);
        }
        if is_new {
            self.on_come(now, port);
        }
    }

    /// Whether who has promised this on `port` has caught up: with all that was told here, and,
    /// from below, with all that was told further up, as far as this switch's promises reach.
    fn place(&mut self, port: Port, promises: Promises) {
        if !self.halves.has_reached(port, promises) || self.halves.promised(port).is_none() {
            return;
        }
        if self.places_newcomers() && !self.halves.is_upper(port) {
            if !self.is_led || !self.is_counted_elsewhere(port) {
                return;
            }
            if self.leads_to_switch(port) {
                // Who sits behind that waits to be told.
                self.beacons.owe(port);
            }
        }
        self.caught_up.insert(port);
    }

    /// Whether all other switches count what this one tells them: then nothing that is told above
    /// them or below them lies above what a newcomer at `port` has promised.
    fn is_counted_elsewhere(&self, port: Port) -> bool {
        let mut others = (0..self.port_count() as u16).map(Port).filter(|other| *other != port);
        others.all(|other| {
            let is_switch = self.halves.is_upper(other) || self.leads_to_switch(other);
            !is_switch || self.halves.is_counted(other)
        })
    }

    /// Another switch has come at `port`: commits were told there that nobody below another port
    /// has promised.
    #[cold]
    fn place_anew(&mut self, port: Port) {
        for other in (0..self.config.lower_ports).map(Port).filter(|other| *other != port) {
            self.caught_up.remove(other);
        }
    }

    fn on_come(&mut self, now: Mono, port: Port) {
        self.linked.insert(port);
        self.is_led |= self.halves.is_upper(port);
        self.liveness.on_joined(now);
        self.halves.await_count(port);
        if self.places_newcomers() && (self.halves.is_upper(port) || self.leads_to_switch(port)) {
            self.place_anew(port);
        }
        self.notify(SwitchEvent::LinkJoined(port));
        if let Some(control) = &mut self.control {
            control.announcer.on_change();
            control.waves.on_joined(now, port);
        }
    }

    /// Whether another switch was last heard at `port`.
    pub(crate) fn leads_to_switch(&self, port: Port) -> bool {
        let instance = self.neighbours.instance(port);
        instance.is_some_and(|instance| matches!(instance.address, Address::Switch(_)))
    }

    /// Takes a link that may be live out of the barriers; where there are controllers, its commit
    /// is frozen.
    pub(crate) fn take_out(&mut self, port: Port, event: SwitchEvent) {
        if self.control.is_some() {
            let instance = self.neighbours.instance(port);
            self.neighbours.mark_lost(port);
            self.freeze(port, instance, event);
        } else if self.halves.remove(port) {
            self.on_taken_out(port, event);
        }
    }

    pub(crate) fn on_taken_out(&mut self, port: Port, event: SwitchEvent) {
        self.has_news = true;
        self.caught_up.remove(port);
        self.stats.links_lost += u64::from(matches!(event, SwitchEvent::LinkLost(_)));
        self.unlink(port);
        self.notify(event);
        // Whom nothing feeds any more need not wait for the instant to take this link out.
        for upper in (self.config.lower_ports..self.port_count() as u16).map(Port) {
            if !self.halves.is_fed(upper) {
                self.beacons.owe(upper);
            }
        }
    }

    /// A port that leads to nobody known gets no beacons.
    pub(crate) fn unlink(&mut self, port: Port) {
        if self.config.route.is_learned() && !self.halves.is_upper(port) {
            self.linked.remove(port);
        }
    }

    /// Freezes `port`, where `instance` was, if it is live.
    fn freeze(&mut self, port: Port, instance: Option<Instance>, event: SwitchEvent) {
        let control = self.control.as_ref();
        if let Some(commit) = control.and_then(|control| control.frozen.passed(port, instance)) {
            self.halves.presume_promised(port, commit);
        }
        if self.halves.holds_nothing(port) {
            // It was never fed, or what fed it is resolved.
            self.halves.remove(port);
            if let Some(control) = &mut self.control {
                control.announcer.on_change();
            }
            return self.on_taken_out(port, event);
        }
        let Some(commit) = self.halves.freeze(port) else { return };
        if makes(Mistake::DeadCommitDropped) {
            self.halves.hold(port, None);
        }
        if let Some(control) = &mut self.control {
            control.frozen.note(port, instance, commit);
            control.announcer.on_change();
        }
        self.stats.links_frozen += 1;
        self.on_taken_out(port, event);
        self.notify(SwitchEvent::LinkFrozen(port));
    }

    /// Who is heard on `port`, if anybody is: what its beacons and waves bear.
    pub(crate) fn echo(&self, port: Port) -> Option<Instance> {
        if self.halves.is_live(port) { self.neighbours.instance(port) } else { None }
    }

    /// What a frame is to its link (design: failure.md, "Who is on a link?"). Freezes what has died
    /// before the frame's promise can be heard.
    pub(crate) fn recognise(&mut self, port: Port, header: &Header, opcode: Opcode) -> Recognised {
        let (hops, is_of_link) = (header.hops(), opcode.is_hop_only());
        if is_of_link && (HOPS_OF_LINK_MAX + 1..HOPS_MAX).contains(&hops) {
            return Recognised::Unheard;
        }
        let is_from_there = is_of_link || (hops == HOPS_MAX && !self.halves.is_upper(port));
        if !is_from_there {
            return match self.neighbours.is_up(port) {
                true => Recognised::Heard,
                false => Recognised::Unheard,
            };
        }
        let speaker = header.sender().filter(|instance| self.may_be_at(port, *instance));
        let Some(instance) = speaker else {
            return Recognised::Refused(drop_as(&mut self.stats.dropped_misplaced));
        };
        let heard_us = self.neighbours.is_two_way(port);
        // A goodbye is heard whatever its sender hears.
        let heard = match is_of_link && opcode != Opcode::Leave {
            true => self.neighbours.on_hello(port, instance, header.peer(), self.config.instance()),
            false => self.neighbours.on_instance(port, instance),
        };
        if is_of_link && opcode != Opcode::Leave && heard != PeerUpdate::Stale {
            let is_held = header.has(Flags::PREVIOUS_HOLDS);
            if is_held { self.holders.insert(port) } else { self.holders.remove(port) }
        }
        if heard_us != self.neighbours.is_two_way(port)
            && let Some(control) = &mut self.control
        {
            control.announcer.on_change();
        }
        match heard {
            PeerUpdate::Same => Recognised::Heard,
            PeerUpdate::NewInstance(_) if makes(Mistake::RestartIgnored) => Recognised::Heard,
            PeerUpdate::NewInstance(former) => {
                if let Some(control) = &mut self.control {
                    control.waves.on_gone(port);
                }
                self.freeze(port, Some(former), SwitchEvent::LinkReborn(port));
                Recognised::Heard
            }
            PeerUpdate::Stale if self.neighbours.instance(port) != Some(instance) => {
                Recognised::Refused(drop_as(&mut self.stats.dropped_stale))
            }
            // It waits to be told that the link was lost.
            PeerUpdate::Stale => {
                self.linked.insert(port);
                Recognised::Unheard
            }
            PeerUpdate::OneWay => {
                self.freeze(port, Some(instance), SwitchEvent::LinkDeaf(port));
                self.linked.insert(port);
                self.beacons.owe(port);
                Recognised::Unheard
            }
        }
    }

    /// Whether `instance` can be at the other end of `port`. Who is alive there is replaced by a later
    /// life of its own only.
    fn may_be_at(&self, port: Port, instance: Instance) -> bool {
        let known = self.neighbours.instance(port);
        if known == Some(instance) {
            return true;
        }
        let fits = match instance.address {
            Address::Switch(switch) => switch != self.config.switch,
            Address::Process(process) => {
                !self.halves.is_upper(port)
                    && self.config.controllers.is_none_or(|range| !range.contains(process))
                    && self.may_sit(port, process)
            }
        };
        let is_other = known.is_some_and(|known| known.address != instance.address);
        fits && !(is_other && self.halves.is_live(port))
    }

    /// Whether the ways that are known allow `process` behind `port`.
    pub(crate) fn may_sit(&self, port: Port, process: ProcessId) -> bool {
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
        let upper = self.halves.is_upper(port);
        let fits = !upper
            && match &mut self.config.route {
                Route::Table(table) => table.learn(src, port),
                Route::Tree(_) => leads_to(self.config.route.next(src), port),
            };
        if !fits {
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        self.stats.joins_heard += 1;
        self.beacons.owe(port);
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
            return drop_as(&mut self.stats.dropped_misplaced);
        }
        if let Route::Table(table) = &mut self.config.route {
            table.forget(src, port);
        }
        self.stats.leaves_heard += 1;
        if let (Some(last), true) = (last, self.halves.is_live(port)) {
            self.halves.hear(now, port, last);
        }
        self.take_out(port, SwitchEvent::LinkLeft(port));
        if let Some(control) = &mut self.control {
            control.waves.on_gone(port);
        }
        Verdict::Consumed
    }
}

#[inline]
fn leads_to(next: Option<Next>, port: Port) -> bool {
    matches!(next, Some(Next::Down(ways)) if ways.contains(port))
}
