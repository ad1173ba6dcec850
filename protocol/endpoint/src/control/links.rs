//! Monitors the links of a process: the peers at their other ends, and dead links.

use alloc::vec::Vec;

use onepipe_base::{
    Address, Cause, Controllers, Frozen, FrozenLinks, Instance, Mono, Neighbours, PeerUpdate, Port,
    ProcessId, Registers,
};
use onepipe_wire::{Frame, Link, LinkState, Opcode, Resolved, Side};

use crate::Links;

/// Interval between beacons on a two-way uplink, in beacon intervals: they confirm the link
/// (docs/design/failure.md, "Who is on a link?").
const CONFIRMED_INTERVALS: u64 = 16;

/// What a frame has shown about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkEvent {
    /// Nothing new: handle the frame.
    Good,
    /// Handle the frame but ignore its promises: the peer is unknown, or the link is lost.
    NoPromise,
    /// Leave: apply the frame's promises, then report the link as dead.
    Left,
    /// The previous instance at the other end is dead, and its register frozen (without
    /// controllers: removed). Handle the frame; the barrier may have risen.
    Restarted(Instance),
    /// The frame is from a dead instance, or from before the link was lost: drop it.
    Refused,
    /// The link is dead as after a timeout, and its register frozen (without controllers: removed).
    /// Drop the frame; the barrier may have risen.
    Dead,
}

/// The links of a process, and the intervals in which they are monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkConfig {
    pub kind: Links,
    pub count: u16,
    pub controllers: Option<Controllers>,
    /// Timeout of a controller's link, in ns. 0: never.
    pub controller_timeout_ns: u64,
    /// Beacon interval in ns. 0: there are no beacons.
    pub beacon_interval_ns: u64,
    /// Interval of heartbeats in ns, with beacons on demand.
    pub heartbeat_interval_ns: u64,
}

/// The peer at a port, as this end sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PeerState {
    instance: Option<Instance>,
    is_two_way: bool,
}

/// The peers at the other ends, and the links frozen for dead ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkMonitor {
    own: Instance,
    config: LinkConfig,
    neighbours: Neighbours,
    frozen: FrozenLinks,
    /// By port, the instance that a controller has declared dead there, seen or not.
    dead: Vec<Option<Instance>>,
    /// In a mesh, when each controller was last seen on its link.
    controllers_seen: Vec<Option<Mono>>,
    /// A change since the last announcement that the registers alone do not show.
    has_changed: bool,
    /// When to send the next beacon on an uplink. The switch waits for a beacon, because no other
    /// frame names the peer that this end sees (docs/design/failure.md, "Who is on a link?").
    beacon_at: Option<Mono>,
    /// The peer seen has changed since the last beacon.
    wants_beacon: bool,
}

impl LinkMonitor {
    pub fn new(own: Instance, config: LinkConfig) -> Self {
        let controller_count = match config.kind {
            Links::Uplink | Links::Overlay => 0,
            Links::Mesh => config.controllers.map_or(0, |controllers| controllers.count as usize),
        };
        Self {
            own,
            config,
            neighbours: Neighbours::new(config.count),
            frozen: FrozenLinks::new(),
            dead: alloc::vec![None; usize::from(config.count)],
            controllers_seen: alloc::vec![None; controller_count],
            has_changed: false,
            beacon_at: None,
            wants_beacon: false,
        }
    }

    /// See [`super::ControlPlane::on_link_frame`].
    #[inline]
    pub fn on_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        frame: &Frame<'_>,
    ) -> LinkEvent {
        let opcode = frame.opcode;
        let is_hop_only = opcode.is_hop_only();
        if self.config.kind == Links::Uplink && !is_hop_only {
            return self.on_switched_frame(port);
        }
        let Some(instance) = frame.header.sender() else {
            return self.on_anonymous_frame(port, opcode);
        };
        let is_message = !is_hop_only && !opcode.is_control();
        if is_message && self.neighbours.is_up_with(port, instance) && !self.is_dead(port, instance)
        {
            // The frequent case: a frame from the known peer of a two-way link.
            return LinkEvent::Good;
        }
        self.on_identified_frame(registers, now, port, frame, instance)
    }

    /// Handles a frame that may change the state of its link.
    #[inline(never)]
    fn on_identified_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        frame: &Frame<'_>,
        instance: Instance,
    ) -> LinkEvent {
        if self.is_refused(registers, port, instance) {
            return LinkEvent::Refused;
        }
        let before = self.peer_state(port);
        let update = if frame.opcode.is_hop_only() {
            self.neighbours.on_hello(port, instance, frame.header.peer(), self.own)
        } else {
            // A frame that may cross several links does not contain the peer that its sender sees.
            self.neighbours.on_instance(port, instance)
        };
        match self.on_peer_update(registers, now, port, instance, before, update) {
            LinkEvent::Good if frame.opcode == Opcode::Leave => LinkEvent::Left,
            event => event,
        }
    }

    /// Handles a frame that has crossed the switch at the other end.
    #[inline]
    fn on_switched_frame(&self, port: Port) -> LinkEvent {
        match self.neighbours.instance(port) {
            Some(instance) if self.neighbours.is_up(port) && !self.is_dead(port, instance) => {
                LinkEvent::Good
            }
            None if self.config.controllers.is_none() => LinkEvent::Good,
            _ => LinkEvent::NoPromise,
        }
    }

    /// Handles a frame whose sender does not identify itself. Accepted only without controllers and
    /// before any identified peer.
    #[cold]
    fn on_anonymous_frame(&self, port: Port, opcode: Opcode) -> LinkEvent {
        if self.config.controllers.is_some() || self.neighbours.instance(port).is_some() {
            LinkEvent::Refused
        } else if opcode == Opcode::Leave {
            LinkEvent::Left
        } else {
            LinkEvent::Good
        }
    }

    /// Handles the instance at `port`, where frames do not contain it.
    pub fn on_peer_instance(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
    ) -> LinkEvent {
        if self.is_refused(registers, port, instance) {
            return LinkEvent::Refused;
        }
        let before = self.peer_state(port);
        let update = self.neighbours.on_instance(port, instance);
        self.on_peer_update(registers, now, port, instance, before, update)
    }

    fn peer_state(&self, port: Port) -> PeerState {
        PeerState {
            instance: self.neighbours.instance(port),
            is_two_way: self.neighbours.is_two_way(port),
        }
    }

    //= spec/failure.md#R11
    //= spec/failure.md#R12
    fn on_peer_update(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
        before: PeerState,
        update: PeerUpdate,
    ) -> LinkEvent {
        if before != self.peer_state(port) {
            self.has_changed = true;
            if self.config.beacon_interval_ns > 0 {
                self.beacon_at = Some(now);
                self.wants_beacon = true;
            }
        }
        if update == PeerUpdate::Stale {
            return LinkEvent::Refused;
        }
        self.on_controller_seen(now, port);
        match update {
            PeerUpdate::NewInstance(previous) => {
                self.freeze_or_remove(registers, port, Some(previous), Cause::Superseded);
                LinkEvent::Restarted(previous)
            }
            PeerUpdate::OneWay => {
                self.freeze_or_remove(registers, port, Some(instance), Cause::OneWay);
                LinkEvent::Dead
            }
            _ => LinkEvent::Good,
        }
    }

    /// Any frame of a controller on its own link keeps that link up.
    fn on_controller_seen(&mut self, now: Mono, port: Port) {
        if let Some(last_seen) =
            self.controller_index(port).and_then(|index| self.controllers_seen.get_mut(index))
        {
            self.has_changed |= last_seen.is_none();
            *last_seen = Some(now);
        }
    }

    fn controller_index(&self, port: Port) -> Option<usize> {
        let (process, controllers) = (ProcessId(u32::from(port.0)), self.config.controllers?);
        let index = process.0.wrapping_sub(controllers.first.0);
        controllers.contains(process).then_some(index as usize)
    }

    /// Handles the loss of the link at `port`. Returns whether it was up.
    pub fn on_link_down(&mut self, registers: &mut Registers, port: Port, cause: Cause) -> bool {
        let instance = self.neighbours.instance(port);
        let controller =
            self.controller_index(port).and_then(|index| self.controllers_seen.get_mut(index));
        let was_controller = controller.is_some_and(|last_seen| last_seen.take().is_some());
        self.has_changed |= was_controller;
        self.neighbours.mark_lost(port);
        self.freeze_or_remove(registers, port, instance, cause) || was_controller
    }

    //= spec/failure.md#R13
    /// Freezes or removes the link to the dead `instance` at `port`. Returns whether it was live.
    fn freeze_or_remove(
        &mut self,
        registers: &mut Registers,
        port: Port,
        instance: Option<Instance>,
        cause: Cause,
    ) -> bool {
        let was_live = match self.config.controllers {
            Some(_) => self.frozen.freeze(registers, port, instance, cause),
            None => registers.remove(port),
        };
        self.has_changed |= was_live;
        was_live
    }

    #[inline]
    fn is_dead(&self, port: Port, instance: Instance) -> bool {
        self.dead.get(port.index()).copied().flatten().is_some_and(|dead| {
            dead.address == instance.address && instance.incarnation <= dead.incarnation
        })
    }

    //= spec/failure.md#R19
    /// Returns whether to accept promises that arrive on `port` without a frame. Those of
    /// controllers do not count.
    pub fn accepts_promises(&self, port: Port) -> bool {
        if self.controller_index(port).is_some() {
            return false;
        }
        let dead = self.dead.get(port.index()).copied().flatten();
        dead.is_none_or(|dead| {
            let known = self.neighbours.instance(port);
            known.is_some_and(|known| known.incarnation > dead.incarnation)
        })
    }

    //= spec/failure.md#R42
    /// Handles the declaration of `instance` as dead: freezes its link and ignores it from then on.
    /// Returns whether a link was up.
    pub fn declare_dead(&mut self, registers: &mut Registers, instance: Instance) -> bool {
        let mut was_up = false;
        for port in (0..self.config.count).map(Port) {
            let known = self.neighbours.instance(port);
            let is_there = known.is_some_and(|known| known.address == instance.address)
                || (self.config.kind == Links::Mesh && instance.address == mesh_address(port));
            if !is_there || self.is_dead(port, instance) {
                continue;
            }
            self.dead[port.index()] = Some(instance);
            if known.is_none_or(|known| known.incarnation <= instance.incarnation) {
                was_up |= self.on_link_down(registers, port, Cause::Fenced);
            }
        }
        was_up
    }

    //= spec/failure.md#R39
    /// Returns whether frames from `instance` on `port` are refused: the instance has this
    /// process's own address, is declared dead, or a different address is live there.
    #[inline]
    fn is_refused(&self, registers: &Registers, port: Port, instance: Instance) -> bool {
        let is_other =
            |known: Instance| known.address != instance.address && registers.is_live(port);
        instance.address == self.own.address
            || self.is_dead(port, instance)
            || self.neighbours.instance(port).is_some_and(is_other)
    }

    /// Checks that there is one state for each port, and that beacons have an interval.
    pub fn check_invariants(&self) {
        let LinkConfig { kind, count, controllers, beacon_interval_ns, .. } = self.config;
        assert_eq!(self.dead.len(), usize::from(count), "a port has a state");
        assert!(kind == Links::Mesh || count == 1, "an uplink is the only link");
        assert!(kind == Links::Mesh || self.controllers_seen.is_empty(), "no direct link");
        let has_beacons = beacon_interval_ns > 0;
        assert!(has_beacons || !self.wants_beacon, "beacons have an interval");
        assert!(has_beacons || self.beacon_at.is_none(), "beacons have an interval");
        assert!(controllers.is_some() || self.frozen.is_empty(), "controllers resolve links");
        assert!(self.frozen.iter().all(|frozen| frozen.port.0 < count), "a link has a port");
    }

    /// Takes down the links of controllers that timed out.
    pub fn on_timeout(&mut self, now: Mono) {
        if self.config.controller_timeout_ns == 0 {
            return;
        }
        for last_seen in &mut self.controllers_seen {
            if last_seen
                .take_if(|last_seen| now.since_ns(*last_seen) > self.config.controller_timeout_ns)
                .is_some()
            {
                self.has_changed = true;
            }
        }
    }

    /// Returns when the next controller times out.
    pub fn deadline(&self) -> Option<Mono> {
        if self.config.controller_timeout_ns == 0 {
            return None;
        }
        let oldest = self.controllers_seen.iter().flatten().min()?;
        Some(oldest.after_ns(self.config.controller_timeout_ns + 1))
    }

    /// Resolves the frozen link named by `resolved`, which then no longer bounds the commit
    /// barrier. Returns false if this process has no such link, as for a repeated resume.
    pub fn resolve(&mut self, registers: &mut Registers, resolved: Resolved) -> bool {
        if resolved.owner != self.own {
            return false;
        }
        let found = self.frozen.resolve(registers, resolved.number).is_some();
        self.has_changed |= found;
        if found && self.config.beacon_interval_ns > 0 {
            // The switch sends commit barriers again once a beacon reports that nothing is held.
            (self.beacon_at, self.wants_beacon) = (Some(Mono::from_ns(0)), true);
        }
        found
    }

    /// Returns whether the switch at the other end of an uplink is known to see this incarnation.
    /// Always true for other links and without controllers.
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.config.kind != Links::Uplink
            || self.config.controllers.is_none()
            || self.neighbours.is_two_way(port)
    }

    /// Returns the instance seen on `port` now.
    pub fn peer(&self, registers: &Registers, port: Port) -> Option<Instance> {
        let controller_last_seen = self
            .controller_index(port)
            .and_then(|index| self.controllers_seen.get(index).copied().flatten());
        let is_up = registers.is_live(port) || controller_last_seen.is_some();
        if is_up { self.neighbours.instance(port) } else { None }
    }

    /// Returns whether floods are accepted from the peer `sender`: from a switch, or in a mesh
    /// from a controller.
    pub fn accepts_floods(&self, sender: Option<Instance>) -> bool {
        match sender.map(|instance| instance.address) {
            Some(Address::Switch(_)) => self.config.kind == Links::Uplink,
            Some(Address::Process(process)) => {
                self.config.controllers.is_some_and(|all| all.contains(process))
            }
            None => false,
        }
    }

    //= spec/failure.md#R37
    /// Returns whether a beacon on the uplink is due now, and schedules the next one.
    pub fn take_beacon(&mut self, now: Mono) -> bool {
        self.wants_beacon = false;
        let is_due = self.beacon_at.is_some_and(|at| at <= now);
        if is_due {
            self.beacon_at = match self.neighbours.is_two_way(Port(0)) {
                // The heartbeats name the peer as well.
                true if self.config.heartbeat_interval_ns > 0 => None,
                true => Some(now.after_ns(CONFIRMED_INTERVALS * self.config.beacon_interval_ns)),
                false => Some(now.after_ns(self.config.beacon_interval_ns)),
            };
        }
        is_due
    }

    pub fn wants_beacon(&self) -> bool {
        self.wants_beacon
    }

    /// Returns when the next beacon on the uplink is due.
    pub fn beacon_due(&self) -> Option<Mono> {
        self.beacon_at
    }

    /// Returns whether frozen links wait for the controllers.
    pub fn has_frozen(&self) -> bool {
        self.frozen.iter().next().is_some()
    }

    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// Returns the links to announce: dead ones, then live ones.
    pub fn announced<'a>(&'a self, registers: &'a Registers) -> impl Iterator<Item = Link> + 'a {
        let side = match self.config.kind {
            Links::Uplink | Links::Overlay => Side::Upper,
            Links::Mesh => Side::Direct,
        };
        let frozen = self.frozen.iter().map(move |frozen| {
            let Frozen { number, port, instance, commit, cause } = *frozen;
            Link { port, side, instance, state: LinkState::Frozen { number, commit, cause } }
        });
        let up = (0..self.config.count).filter_map(move |port| {
            let port = Port(port);
            let instance = self.peer(registers, port)?;
            // Mesh frames do not contain the peer seen; a mesh link is up while frames arrive.
            let is_two_way = self.config.kind == Links::Mesh || self.neighbours.is_two_way(port);
            is_two_way.then_some(Link {
                port,
                side,
                instance: Some(instance),
                state: LinkState::Up,
            })
        });
        frozen.chain(up)
    }
}

/// Returns the address of the process at a port of a mesh.
fn mesh_address(port: Port) -> Address {
    Address::Process(ProcessId(u32::from(port.0)))
}

#[cfg(test)]
mod tests;
