//! Link state: the part of [`Switch`] that brings links up and takes them down.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Address, Cause, Instance, Mono, Now, PeerUpdate, Port, Promises, Verdict};
use onepipe_topology::Route;
use onepipe_wire::{HOPS_MAX, Header, Opcode};

use crate::control::Freeze;
use crate::links::is_direct;
use crate::stats::count_drop;
use crate::{Switch, SwitchEvent};

/// Whether the promises of a frame count for its link; determined only with controllers.
pub(super) enum LinkCheck {
    /// Its promises are those of the known peer.
    Accepted,
    /// The frame is consumed or forwarded, but its promises are ignored.
    Ignored,
    /// The frame is rejected.
    Refused(Verdict),
}

impl Switch {
    /// Handles the removal of the link at `port`, which may lead to another peer from now on: the
    /// promise of the port, its routes and what was advertised on it are forgotten. With
    /// controllers its commit is frozen, and `cause` is announced. Takes time in proportion to the
    /// route table.
    pub fn unplug(&mut self, port: Port, cause: Cause) {
        if port.0 >= self.config.port_count() {
            return;
        }
        self.take_down(port, cause, SwitchEvent::LinkLeft(port));
        self.aggregator.forget_advertised(port);
        self.links.forget(port);
        self.leavers.forget(port);
        self.demand.set_on_demand(port, false);
        self.demand.on_new_peer(port);
        debug_assert!(!self.aggregator.is_live(port), "an unplugged link counts");
        debug_assert!(self.aggregator.advertised(port).is_none(), "of another peer");
        debug_assert!(self.links.instance(port).is_none(), "of another peer");
        self.links.stop_beacons(port);
        if self.control.as_mut().is_some_and(|control| control.on_unplugged(port)) {
            self.notify(SwitchEvent::ControllerLost(port));
        }
        if let Route::ForwardingTable(table) = &mut self.config.route {
            table.forget_port(port);
        }
        self.debug_check();
    }

    /// Handles the certain loss of the link at `port`: it is dead without a timeout. A later frame
    /// brings it back.
    pub fn mark_link_lost(&mut self, port: Port) {
        if port.0 < self.config.port_count() {
            self.take_down(port, Cause::Refused, SwitchEvent::LinkLost(port));
            debug_assert!(!self.aggregator.is_live(port), "a lost link counts");
        }
        self.debug_check();
    }

    /// Handles promises of the live link at `port` that were counted elsewhere: its frames are
    /// forwarded by a form of this switch that knows nothing of timeouts, such as a program in the
    /// kernel. A link that is not live stays down.
    pub fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        let time = self.observe_time(now);
        if self.is_live(port) {
            self.on_promises(time.mono, port, promises);
        }
        self.debug_check();
    }

    /// Whether `port` takes part in the barriers.
    pub fn is_live(&self, port: Port) -> bool {
        port.0 < self.config.port_count() && self.aggregator.is_live(port)
    }

    /// Handles a stall of the driver that ended at `now`. Frames of the neighbours are yet to be
    /// read, so no link times out before a link timeout has passed.
    pub fn handle_stall(&mut self, now: Now) {
        if let Some(control) = &mut self.control {
            control.postpone(now.mono);
        }
        self.liveness.postpone(now.mono);
        self.demand.postpone(now.mono);
    }

    #[inline]
    pub(super) fn on_promises(&mut self, now: Mono, port: Port, promises: Promises) {
        self.beacons.on_update();
        self.demand.on_input(now, port, Some(promises));
        let is_new = self.aggregator.update(now, port, promises);
        if self.joiners.is_change_above(port, promises) {
            self.on_commit_from_above(port, promises);
        }
        if !self.start.is_advertising() && !self.aggregator.is_upper(port) {
            // A process that was sent a commit promises no less.
            self.aggregator.assume_advertised(promises.commit);
        }
        if !self.joiners.has_caught_up(port) {
            self.demand.on_joiner();
            self.check_caught_up(port, promises);
        }
        if is_new {
            self.on_link_up(now, port);
        }
    }

    //= spec/failure.md#R47
    /// Handles promises of an upper port that carry a commit again, or no longer do.
    #[cold]
    fn on_commit_from_above(&mut self, port: Port, promises: Promises) {
        let known = self.aggregator.promised(port);
        let is_overtaken = known.is_some_and(|known| promises.barrier < known.barrier);
        if !self.joiners.must_hold() || is_overtaken {
            // No joiner is held, or the frame was overtaken by a later one.
            return;
        }
        self.joiners.on_change_above(port, promises);
        if self.demand.is_on_demand() {
            // The nodes below must not learn of it only with the next heartbeat.
            for lower in self.config.lower().filter(|lower| self.joiners.has_caught_up(*lower)) {
                self.beacons.request(lower);
            }
        }
    }

    /// As [`Switch::on_promises`] for a beacon of an unfed link.
    #[cold]
    pub(super) fn on_unfed(
        &mut self,
        now: Mono,
        port: Port,
        promises: Promises,
        holds_commits: bool,
    ) {
        self.beacons.on_update();
        self.demand.on_input(now, port, None);
        self.on_stopped_behind(port, false);
        let held = holds_commits.then_some(promises.commit);
        let is_new = self.aggregator.update_unfed(now, port, promises.barrier, held);
        if self.aggregator.promised(port).is_none() {
            // No input feeds the port any more: the next instance that does is a joiner.
            self.joiners.forget(port);
        }
        if is_new {
            self.on_link_up(now, port);
        }
    }

    //= spec/failure.md#R73
    /// Handles what a beacon on `port` says: whether the commits that it promises do not rise. A
    /// process stops nothing.
    #[inline]
    pub(super) fn on_stopped_behind(&mut self, port: Port, is_stopped: bool) {
        let is_switch = || self.aggregator.is_upper(port) || self.links.is_switch_at(port);
        let is_stopped = is_stopped && self.control.is_some() && is_switch();
        if self.aggregator.set_stopped_behind(port, is_stopped) {
            self.request_all();
        }
    }

    //= spec/failure.md#R73
    /// Handles the death of a link, after which this switch may be cut off from the controllers,
    /// and a flood, which shows that it is not.
    pub(super) fn set_cut(&mut self, is_cut: bool) {
        if self.aggregator.set_cut(is_cut) {
            self.request_all();
        }
    }

    /// Requests a beacon on every link.
    #[cold]
    fn request_all(&mut self) {
        for port in self.links.linked().iter() {
            self.beacons.request(port);
        }
        self.beacons.on_update();
    }

    //= spec/failure.md#R14
    //= spec/failure.md#R36
    /// Marks `port` as caught up if its promises have reached every commit that this switch has
    /// advertised to the nodes that the port feeds and, for a lower port, if all other switches
    /// count what this switch advertises.
    fn check_caught_up(&mut self, port: Port, promises: Promises) {
        let is_held = self.joiners.is_held_below(port);
        if !self.aggregator.has_reached(port, promises)
            || self.aggregator.promised(port).is_none()
            || (is_held && !(self.joiners.is_uplink_ready() && self.is_counted_by_others(port)))
        {
            return;
        }
        self.joiners.on_caught_up(port);
        // A switch waits for this beacon before its joiners commit. On demand commits may be
        // advertised from now on: not only with the next heartbeat.
        if self.demand.is_on_demand() || (is_held && self.links.is_switch_at(port)) {
            self.beacons.request(port);
        }
    }

    /// Whether all other switches count what this one advertises: then no commit advertised above
    /// or below them lies above what a joiner at `port` has promised.
    fn is_counted_by_others(&self, port: Port) -> bool {
        let mut others = self.config.ports().filter(|other| *other != port);
        others.all(|other| {
            let is_switch = self.aggregator.is_upper(other) || self.links.is_switch_at(other);
            !is_switch || self.aggregator.is_counted_by_peer(other)
        })
    }

    fn on_link_up(&mut self, now: Mono, port: Port) {
        debug_assert!(self.aggregator.is_live(port), "port {} promises nothing", port.0);
        let is_upper = self.aggregator.is_upper(port);
        self.links.start_beacons(port);
        if is_upper {
            self.joiners.on_uplink_ready();
        }
        self.liveness.on_joined(now);
        self.demand.on_link_change();
        self.aggregator.await_peer_report(port);
        if self.joiners.must_hold() && (is_upper || self.links.is_switch_at(port)) {
            self.joiners.restart(port);
        }
        self.notify(SwitchEvent::LinkJoined(port));
        if let Some(control) = &mut self.control {
            control.on_link_up(now, port);
        }
    }

    /// Takes a link that may be live out of the barriers; with controllers, its commit is frozen.
    pub(super) fn take_down(&mut self, port: Port, cause: Cause, event: SwitchEvent) {
        if self.control.is_some() {
            let instance = self.links.instance(port);
            self.links.mark_lost(port);
            self.freeze(port, instance, cause, event);
        } else if self.aggregator.remove(port) {
            self.on_link_down(port, event);
        }
    }

    pub(super) fn on_link_down(&mut self, port: Port, event: SwitchEvent) {
        debug_assert!(!self.aggregator.is_live(port), "port {} counts", port.0);
        self.beacons.on_update();
        self.aggregator.set_stopped_behind(port, false);
        self.joiners.forget(port);
        self.demand.forget(port);
        self.demand.on_link_change();
        self.stats.links_lost += u64::from(matches!(event, SwitchEvent::LinkLost(_)));
        self.links.stop_beacons(port);
        self.notify(event);
        // Outputs that have become unfed need not wait for the next instant.
        for upper in self.config.ports().skip(usize::from(self.config.lower_ports)) {
            if !self.aggregator.is_fed(upper) {
                self.beacons.request(upper);
            }
        }
    }

    //= spec/failure.md#R13
    /// Freezes `port`, whose peer was `instance`, if it is live.
    fn freeze(&mut self, port: Port, instance: Option<Instance>, cause: Cause, event: SwitchEvent) {
        let Some(control) = &mut self.control else { return };
        let freeze = control.freeze(&mut self.aggregator, port, instance, cause);
        self.stats.links_frozen += u64::from(freeze == Freeze::Frozen);
        if freeze != Freeze::NotLive {
            self.on_link_down(port, event);
        }
        if freeze == Freeze::Frozen {
            self.set_cut(true);
            self.notify(SwitchEvent::LinkFrozen(port));
        }
    }

    //= spec/failure.md#R11
    //= spec/failure.md#R12
    /// Determines the relation of a frame to its link (`docs/design/failure.md`, "Who is on a
    /// link?"). Freezes what has died before the frame's promises can be applied.
    pub(super) fn check_link(
        &mut self,
        now: Mono,
        port: Port,
        header: &Header,
        opcode: Opcode,
    ) -> LinkCheck {
        let (hops, is_hop_only) = (header.hops(), opcode.is_hop_only());
        if is_hop_only && !is_direct(hops) {
            return LinkCheck::Ignored;
        }
        let is_from_peer = is_hop_only || (hops == HOPS_MAX && !self.aggregator.is_upper(port));
        if !is_from_peer {
            return match self.links.is_up(port) {
                true => LinkCheck::Accepted,
                false => LinkCheck::Ignored,
            };
        }
        let sender = header.sender().filter(|instance| self.is_plausible_at(port, *instance));
        let Some(instance) = sender else {
            return LinkCheck::Refused(count_drop(&mut self.stats.dropped_misplaced));
        };
        let was_two_way = self.links.is_two_way(port);
        // A Leave is accepted whether or not its sender receives this switch.
        let update = match is_hop_only && opcode != Opcode::Leave {
            true => self.links.on_hello(port, instance, header),
            false => self.links.on_instance(port, instance),
        };
        if was_two_way != self.links.is_two_way(port)
            && let Some(control) = &mut self.control
        {
            control.on_change();
        }
        match update {
            PeerUpdate::Same => LinkCheck::Accepted,
            PeerUpdate::NewInstance(previous) => {
                if !makes(Mistake::RestartIgnored) {
                    self.on_new_instance(port, previous);
                }
                debug_assert!(!self.aggregator.is_live(port), "promises of a previous instance");
                LinkCheck::Accepted
            }
            PeerUpdate::Stale if self.links.instance(port) != Some(instance) => {
                LinkCheck::Refused(count_drop(&mut self.stats.dropped_stale))
            }
            // The peer waits to learn that the link was lost.
            PeerUpdate::Stale => {
                self.await_agreement(now, port);
                LinkCheck::Ignored
            }
            PeerUpdate::OneWay => {
                let event = SwitchEvent::LinkOneWay(port);
                self.freeze(port, Some(instance), Cause::OneWay, event);
                self.await_agreement(now, port);
                self.beacons.request(port);
                LinkCheck::Ignored
            }
        }
    }

    /// Handles another instance at `port` than `previous`, which is dead.
    fn on_new_instance(&mut self, port: Port, previous: Instance) {
        self.demand.on_new_peer(port);
        if let Some(control) = &mut self.control {
            control.on_gone(port);
        }
        self.freeze(port, Some(previous), Cause::Superseded, SwitchEvent::LinkRestarted(port));
    }

    //= spec/ordering.md#R45
    /// Makes beacons leave at the fast interval, because the peer at `port` and this switch do not
    /// agree yet that the link was lost.
    fn await_agreement(&mut self, now: Mono, port: Port) {
        self.links.start_beacons(port);
        self.demand.on_disagreement(now);
        self.beacons.on_update();
    }

    //= spec/failure.md#R39
    /// Whether `instance` can be at the other end of `port`. A live peer is replaced only by a
    /// later incarnation of its own.
    fn is_plausible_at(&self, port: Port, instance: Instance) -> bool {
        let known = self.links.instance(port);
        if known == Some(instance) {
            return true;
        }
        let fits = match instance.address {
            Address::Switch(switch) => switch != self.config.switch,
            Address::Process(process) => {
                !self.aggregator.is_upper(port)
                    && !self.config.is_controller(process)
                    && self.config.is_routed_to(port, process)
            }
        };
        let is_other = known.is_some_and(|known| known.address != instance.address);
        fits && !(is_other && self.aggregator.is_live(port))
    }

    /// Learns the port of a process from any of its frames, unless a later incarnation of it is
    /// behind another link that is up. A process repeats its Join only until it has received
    /// something, so a switch that lost the Join, or restarted with an empty table, must not depend
    /// on another one. Beacons of other switches name no process and teach nothing.
    //= spec/failure.md#R12
    #[inline]
    pub(super) fn learn(&mut self, port: Port, header: &Header) {
        if let Route::ForwardingTable(table) = &self.config.route
            && let Some(later) = table.later(header.src(), header.incarnation())
            && later != port
            && self.aggregator.is_live(later)
        {
            return;
        }
        self.config.learn(port, header);
    }

    /// Handles the Join of a process behind `port`. The barrier is advertised to it at once, so
    /// that it can raise its timestamps: until then its low promise holds all others back.
    pub(super) fn on_join(&mut self, port: Port, header: &Header) -> Verdict {
        let src = header.src();
        let is_upper = self.aggregator.is_upper(port);
        let fits = !is_upper
            && match &self.config.route {
                Route::ForwardingTable(table) => table.contains(src),
                Route::Tree(_) => self.config.leads_to(src, port),
            };
        if !fits {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        // Of two controllers the driver of a switch lets one pass, which may be the earlier one.
        if self.config.is_controller(src) {
            self.config.learn(port, header)
        } else {
            self.learn(port, header)
        }
        self.stats.joins_received += 1;
        self.beacons.request(port);
        Verdict::Consumed
    }
}
