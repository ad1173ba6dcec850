//! The other ends of a process's links, and its dead links.

use alloc::vec::Vec;

use onepipe_base::{
    Address, Controllers, FrozenLinks, Instance, Mono, Neighbours, PeerUpdate, Port, ProcessId,
    Registers,
};
use onepipe_wire::{Header, Link, LinkState, Opcode, Resolved, Side};

use crate::Links;

/// Once the other end says that it hears this one, it is told every so many beacon intervals whom
/// this end hears (failure.md, "Who is on a link?").
const CONFIRMED_INTERVALS: u64 = 16;

/// What a frame has shown about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkEvent {
    /// Nothing special: go on with the frame.
    Good,
    /// Go on with the frame, but its promises count nowhere: it is not known who is at the other
    /// end, or the link is lost.
    NoPromise,
    /// Goodbye: hear the frame's promises, then report the link dead.
    Left,
    /// This life was there before and is dead, its register frozen (without controllers: dropped).
    /// Go on with the frame; the barrier may have risen.
    Restarted(Instance),
    /// The frame is of a life that is dead, or from before the link was lost: drop it whole.
    Refused,
    /// The link is dead, its register frozen (without controllers: dropped), as after a silence.
    /// Drop the frame; the barrier may have risen.
    Dead,
}

/// Who is at the other ends, and what their dead lives hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkMonitor {
    own: Instance,
    kind: Links,
    count: u16,
    controllers: Option<Controllers>,
    neighbours: Neighbours,
    frozen: FrozenLinks,
    /// By port, the life that a controller has declared dead there, heard or not.
    dead: Vec<Option<Instance>>,
    /// On a mesh, when each controller was last heard on its link.
    controllers_seen: Vec<Option<Mono>>,
    /// After this silence a controller's link is down, in ns. 0: never.
    controller_timeout_ns: u64,
    /// Something has changed that the registers alone do not show.
    has_changed: bool,
    /// When to say on an uplink whom this end hears, which nothing but a beacon says, and which the
    /// switch waits for (failure.md, "Who is on a link?").
    beacon_at: Option<Mono>,
    /// In ns. 0: there are no beacons.
    beacon_interval_ns: u64,
    /// There is news of it.
    wants_beacon: bool,
}

impl LinkMonitor {
    pub fn new(
        own: Instance,
        (kind, count): (Links, u16),
        controllers: Option<Controllers>,
        controller_timeout_ns: u64,
        beacon_interval_ns: u64,
    ) -> Self {
        let seen_len = match kind {
            Links::Uplink | Links::Overlay => 0,
            Links::Mesh => controllers.map_or(0, |controllers| controllers.count as usize),
        };
        Self {
            own,
            kind,
            count,
            controllers,
            neighbours: Neighbours::new(count),
            frozen: FrozenLinks::new(),
            dead: alloc::vec![None; usize::from(count)],
            controllers_seen: alloc::vec![None; seen_len],
            controller_timeout_ns,
            has_changed: false,
            beacon_at: None,
            beacon_interval_ns,
            wants_beacon: false,
        }
    }

    /// See [`super::ControlPlane::on_link_frame`].
    #[inline]
    pub fn on_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, header, opcode): (Port, &Header, Opcode),
    ) -> LinkEvent {
        let is_hop_only = opcode.is_hop_only();
        if self.kind == Links::Uplink && !is_hop_only {
            return self.on_switched_frame(port);
        }
        let Some(instance) = header.sender() else { return self.on_anonymous_frame(port, opcode) };
        let is_unfiltered = !is_hop_only && !opcode.is_control();
        if is_unfiltered
            && self.neighbours.is_up_with(port, instance)
            && !self.is_dead(port, instance)
        {
            // The frequent frame shows nothing new: of the life that is known and heard there.
            return LinkEvent::Good;
        }
        self.on_hello(registers, now, (port, header, opcode), instance)
    }

    /// A frame that may show something new of its link, from `instance`.
    #[inline(never)]
    fn on_hello(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, header, opcode): (Port, &Header, Opcode),
        instance: Instance,
    ) -> LinkEvent {
        if self.is_refused(registers, port, instance) {
            return LinkEvent::Refused;
        }
        let is_hop_only = opcode.is_hop_only();
        let before = self.peer_state(port);
        let update = if is_hop_only {
            self.neighbours.on_hello(port, instance, header.peer(), self.own)
        } else {
            // What may cross more than a link does not say whom its sender hears.
            self.neighbours.on_instance(port, instance)
        };
        match self.on_peer_update(registers, now, (port, instance), (before, update)) {
            LinkEvent::Good if opcode == Opcode::Leave => LinkEvent::Left,
            event => event,
        }
    }

    /// A frame has crossed the switch at the other end.
    #[inline]
    fn on_switched_frame(&self, port: Port) -> LinkEvent {
        match self.neighbours.instance(port) {
            Some(instance) if self.neighbours.is_up(port) && !self.is_dead(port, instance) => {
                LinkEvent::Good
            }
            None if self.controllers.is_none() => LinkEvent::Good,
            _ => LinkEvent::NoPromise,
        }
    }

    /// The other end does not say who it is. Where nothing freezes it is believed, unless one has
    /// said so before.
    #[cold]
    fn on_anonymous_frame(&self, port: Port, opcode: Opcode) -> LinkEvent {
        if self.controllers.is_some() || self.neighbours.instance(port).is_some() {
            LinkEvent::Refused
        } else if opcode == Opcode::Leave {
            LinkEvent::Left
        } else {
            LinkEvent::Good
        }
    }

    /// Whoever is on `port` has said that it is `instance`, on a link where frames do not say it.
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
        self.on_peer_update(registers, now, (port, instance), (before, update))
    }

    fn peer_state(&self, port: Port) -> (Option<Instance>, bool) {
        (self.neighbours.instance(port), self.neighbours.is_two_way(port))
    }

    fn on_peer_update(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, instance): (Port, Instance),
        (before, update): ((Option<Instance>, bool), PeerUpdate),
    ) -> LinkEvent {
        if before != self.peer_state(port) {
            self.has_changed = true;
            if self.beacon_interval_ns > 0 {
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
                self.freeze_or_remove(registers, port, Some(previous));
                LinkEvent::Restarted(previous)
            }
            PeerUpdate::OneWay => {
                self.freeze_or_remove(registers, port, Some(instance));
                LinkEvent::Dead
            }
            _ => LinkEvent::Good,
        }
    }

    /// Any sign of a controller on its own link keeps that link up.
    fn on_controller_seen(&mut self, now: Mono, port: Port) {
        if let Some(last_seen) =
            self.controller_index(port).and_then(|at| self.controllers_seen.get_mut(at))
        {
            self.has_changed |= last_seen.is_none();
            *last_seen = Some(now);
        }
    }

    fn controller_index(&self, port: Port) -> Option<usize> {
        let (process, controllers) = (ProcessId(u32::from(port.0)), self.controllers?);
        let index = process.0.wrapping_sub(controllers.first.0);
        controllers.contains(process).then_some(index as usize)
    }

    /// Nothing more comes from `port`. Answers whether it was up.
    pub fn on_link_down(&mut self, registers: &mut Registers, port: Port) -> bool {
        let instance = self.neighbours.instance(port);
        let controller =
            self.controller_index(port).and_then(|at| self.controllers_seen.get_mut(at));
        let was_controller = controller.is_some_and(|last_seen| last_seen.take().is_some());
        self.has_changed |= was_controller;
        self.neighbours.mark_lost(port);
        self.freeze_or_remove(registers, port, instance) || was_controller
    }

    /// `instance` on `port` is dead. Answers whether the link was live.
    fn freeze_or_remove(
        &mut self,
        registers: &mut Registers,
        port: Port,
        instance: Option<Instance>,
    ) -> bool {
        let was_live = match self.controllers {
            Some(_) => self.frozen.freeze(registers, port, instance),
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

    /// Whether promises may be heard on `port` that nothing but the world hands over. Those of
    /// controllers count nowhere.
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

    /// `instance` is declared dead: its link is frozen, and it is heard there no more. Answers whether
    /// a link was up.
    pub fn declare_dead(&mut self, registers: &mut Registers, instance: Instance) -> bool {
        let mut was_up = false;
        for port in (0..self.count).map(Port) {
            let known = self.neighbours.instance(port);
            let is_there = known.is_some_and(|known| known.address == instance.address)
                || (self.kind == Links::Mesh && instance.address == mesh_address(port));
            if !is_there || self.is_dead(port, instance) {
                continue;
            }
            self.dead[port.index()] = Some(instance);
            if known.is_none_or(|known| known.incarnation <= instance.incarnation) {
                was_up |= self.on_link_down(registers, port);
            }
        }
        was_up
    }

    /// Whether nothing that `instance` says on `port` may be heard: it is this end, is declared dead,
    /// or another one is alive there.
    #[inline]
    fn is_refused(&self, registers: &Registers, port: Port, instance: Instance) -> bool {
        let is_other =
            |known: Instance| known.address != instance.address && registers.is_live(port);
        instance.address == self.own.address
            || self.is_dead(port, instance)
            || self.neighbours.instance(port).is_some_and(is_other)
    }

    /// Looks for controllers that have fallen silent.
    pub fn on_timeout(&mut self, now: Mono) {
        if self.controller_timeout_ns == 0 {
            return;
        }
        for last_seen in &mut self.controllers_seen {
            if last_seen
                .take_if(|last_seen| now.since_ns(*last_seen) > self.controller_timeout_ns)
                .is_some()
            {
                self.has_changed = true;
            }
        }
    }

    /// When a controller will have fallen silent.
    pub fn deadline(&self) -> Option<Mono> {
        if self.controller_timeout_ns == 0 {
            return None;
        }
        let oldest = self.controllers_seen.iter().flatten().min()?;
        Some(oldest.after_ns(self.controller_timeout_ns + 1))
    }

    /// Takes what `resolved` names of this life's links out of the commit minimum. Answers whether
    /// there was such a one: a repeated resume finds nothing.
    pub fn resolve(&mut self, registers: &mut Registers, resolved: Resolved) -> bool {
        if resolved.owner != self.own {
            return false;
        }
        let found = self.frozen.resolve(registers, resolved.number).is_some();
        self.has_changed |= found;
        if found && self.beacon_interval_ns > 0 {
            // The switch tells commits again once it knows.
            (self.beacon_at, self.wants_beacon) = (Some(Mono::from_ns(0)), true);
        }
        found
    }

    /// Whether the switch at the other end of an uplink is known to hear this life. True of every
    /// other link, and where nothing freezes.
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.kind != Links::Uplink || self.controllers.is_none() || self.neighbours.is_two_way(port)
    }

    /// Who is heard on `port` now.
    pub fn peer(&self, registers: &Registers, port: Port) -> Option<Instance> {
        let is_controller = self
            .controller_index(port)
            .and_then(|at| self.controllers_seen.get(at).copied().flatten());
        let is_up = registers.is_live(port) || is_controller.is_some();
        if is_up { self.neighbours.instance(port) } else { None }
    }

    /// Whether a frame that speaks of its link may bear a wave: from a switch, or on a mesh from a
    /// controller.
    pub fn accepts_floods(&self, speaker: Option<Instance>) -> bool {
        match speaker.map(|instance| instance.address) {
            Some(Address::Switch(_)) => self.kind == Links::Uplink,
            Some(Address::Process(process)) => {
                self.controllers.is_some_and(|all| all.contains(process))
            }
            None => false,
        }
    }

    /// Whether a beacon is owed on the uplink now; puts the next one off.
    pub fn take_beacon(&mut self, now: Mono) -> bool {
        self.wants_beacon = false;
        let is_due = self.beacon_at.is_some_and(|at| at <= now);
        if is_due {
            let intervals = match self.neighbours.is_two_way(Port(0)) {
                true => CONFIRMED_INTERVALS,
                false => 1,
            };
            self.beacon_at = Some(now.after_ns(intervals * self.beacon_interval_ns));
        }
        is_due
    }

    pub fn wants_beacon(&self) -> bool {
        self.wants_beacon
    }

    /// When the next such beacon is owed.
    pub fn beacon_due(&self) -> Option<Mono> {
        self.beacon_at
    }

    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// What there is to announce: dead links, then live ones.
    pub fn announced<'a>(&'a self, registers: &'a Registers) -> impl Iterator<Item = Link> + 'a {
        let side = match self.kind {
            Links::Uplink | Links::Overlay => Side::Upper,
            Links::Mesh => Side::Direct,
        };
        let frozen = self.frozen.iter().map(move |frozen| {
            let state = LinkState::Frozen { number: frozen.number, commit: frozen.commit };
            Link { port: frozen.port, side, instance: frozen.instance, state }
        });
        let up = (0..self.count).filter_map(move |port| {
            let port = Port(port);
            let instance = self.peer(registers, port)?;
            // A mesh has no frames that would say so; it is up as long as it is heard.
            let is_two_way = self.kind == Links::Mesh || self.neighbours.is_two_way(port);
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

/// Who is behind a port of a mesh.
fn mesh_address(port: Port) -> Address {
    Address::Process(ProcessId(u32::from(port.0)))
}

#[cfg(test)]
mod tests;
