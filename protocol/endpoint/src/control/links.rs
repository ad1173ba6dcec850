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
pub(crate) enum LinkNews {
    /// Nothing special: go on with the frame.
    Good,
    /// Go on with the frame, but its promises count nowhere: it is not known who is at the other
    /// end, or the link is lost.
    Unheard,
    /// Goodbye: hear the frame's promises, then report the link dead.
    Left,
    /// This life was there before and is dead, its register frozen (without controllers: dropped).
    /// Go on with the frame; the barrier may have risen.
    Reborn(Instance),
    /// The frame is of a life that is dead, or from before the link was lost: drop it whole.
    Refused,
    /// The link is dead, its register frozen (without controllers: dropped), as after a silence.
    /// Drop the frame; the barrier may have risen.
    Dead,
}

/// Who is at the other ends, and what their dead lives hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnLinks {
    own: Instance,
    kind: Links,
    count: u16,
    controllers: Option<Controllers>,
    neighbours: Neighbours,
    frozen: FrozenLinks,
    /// By port, the life that a controller has declared dead there, heard or not.
    dead: Vec<Option<Instance>>,
    /// On a mesh, when each controller was last heard on its link.
    heard: Vec<Option<Mono>>,
    /// After this silence a controller's link is down, in ns. 0: never.
    silence_ns: u64,
    /// Something has changed that the registers alone do not show.
    has_changed: bool,
    /// When to say on an uplink whom this end hears, which nothing but a beacon says, and which the
    /// switch waits for (failure.md, "Who is on a link?").
    beacon_at: Option<Mono>,
    /// In ns. 0: there are no beacons.
    beacon_interval_ns: u64,
    /// There is news of it.
    owes_beacon: bool,
}

impl OwnLinks {
    pub fn new(
        own: Instance,
        (kind, count): (Links, u16),
        controllers: Option<Controllers>,
        silence_ns: u64,
        beacon_interval_ns: u64,
    ) -> Self {
        let replicas = match kind {
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
            heard: alloc::vec![None; replicas],
            silence_ns,
            has_changed: false,
            beacon_at: None,
            beacon_interval_ns,
            owes_beacon: false,
        }
    }

    /// See [`super::Control::on_link_frame`].
    #[inline]
    pub fn on_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, header, opcode): (Port, &Header, Opcode),
    ) -> LinkNews {
        let speaks_of_link = opcode.is_hop_only();
        if self.kind == Links::Uplink && !speaks_of_link {
            return self.on_passed(port);
        }
        let Some(instance) = header.sender() else { return self.on_nobody(port, opcode) };
        let is_plain = !speaks_of_link && !opcode.is_control();
        if is_plain && self.neighbours.is_up_with(port, instance) && !self.is_dead(port, instance) {
            // The frequent frame shows nothing new: of the life that is known and heard there.
            return LinkNews::Good;
        }
        self.on_telling_frame(registers, now, (port, header, opcode), instance)
    }

    /// A frame that may show something new of its link, from `instance`.
    #[inline(never)]
    fn on_telling_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, header, opcode): (Port, &Header, Opcode),
        instance: Instance,
    ) -> LinkNews {
        if self.is_refused(registers, port, instance) {
            return LinkNews::Refused;
        }
        let speaks_of_link = opcode.is_hop_only();
        let before = self.end(port);
        let heard = if speaks_of_link {
            self.neighbours.on_hello(port, instance, header.peer(), self.own)
        } else {
            // What may cross more than a link does not say whom its sender hears.
            self.neighbours.on_instance(port, instance)
        };
        match self.on_heard(registers, now, (port, instance), (before, heard)) {
            LinkNews::Good if opcode == Opcode::Leave => LinkNews::Left,
            news => news,
        }
    }

    /// A frame has crossed the switch at the other end.
    #[inline]
    fn on_passed(&self, port: Port) -> LinkNews {
        match self.neighbours.instance(port) {
            Some(instance) if self.neighbours.is_up(port) && !self.is_dead(port, instance) => {
                LinkNews::Good
            }
            None if self.controllers.is_none() => LinkNews::Good,
            _ => LinkNews::Unheard,
        }
    }

    /// The other end does not say who it is. Where nothing freezes it is believed, unless one has
    /// said so before.
    #[cold]
    fn on_nobody(&self, port: Port, opcode: Opcode) -> LinkNews {
        if self.controllers.is_some() || self.neighbours.instance(port).is_some() {
            LinkNews::Refused
        } else if opcode == Opcode::Leave {
            LinkNews::Left
        } else {
            LinkNews::Good
        }
    }

    /// Whoever is on `port` has said that it is `instance`, on a link where frames do not say it.
    pub fn on_peer(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
    ) -> LinkNews {
        if self.is_refused(registers, port, instance) {
            return LinkNews::Refused;
        }
        let before = self.end(port);
        let heard = self.neighbours.on_instance(port, instance);
        self.on_heard(registers, now, (port, instance), (before, heard))
    }

    fn end(&self, port: Port) -> (Option<Instance>, bool) {
        (self.neighbours.instance(port), self.neighbours.is_two_way(port))
    }

    fn on_heard(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        (port, instance): (Port, Instance),
        (before, heard): ((Option<Instance>, bool), PeerUpdate),
    ) -> LinkNews {
        if before != self.end(port) {
            self.has_changed = true;
            if self.beacon_interval_ns > 0 {
                self.beacon_at = Some(now);
                self.owes_beacon = true;
            }
        }
        if heard == PeerUpdate::Stale {
            return LinkNews::Refused;
        }
        self.on_controller(now, port);
        match heard {
            PeerUpdate::NewInstance(former) => {
                self.bury(registers, port, Some(former));
                LinkNews::Reborn(former)
            }
            PeerUpdate::OneWay => {
                self.bury(registers, port, Some(instance));
                LinkNews::Dead
            }
            _ => LinkNews::Good,
        }
    }

    /// Any sign of a controller on its own link keeps that link up.
    fn on_controller(&mut self, now: Mono, port: Port) {
        if let Some(heard) = self.replica(port).and_then(|at| self.heard.get_mut(at)) {
            self.has_changed |= heard.is_none();
            *heard = Some(now);
        }
    }

    fn replica(&self, port: Port) -> Option<usize> {
        let (process, controllers) = (ProcessId(u32::from(port.0)), self.controllers?);
        let place = process.0.wrapping_sub(controllers.first.0);
        controllers.contains(process).then_some(place as usize)
    }

    /// Nothing more comes from `port`. Answers whether it was up.
    pub fn on_silence(&mut self, registers: &mut Registers, port: Port) -> bool {
        let instance = self.neighbours.instance(port);
        let controller = self.replica(port).and_then(|at| self.heard.get_mut(at));
        let was_controller = controller.is_some_and(|heard| heard.take().is_some());
        self.has_changed |= was_controller;
        self.neighbours.mark_lost(port);
        self.bury(registers, port, instance) || was_controller
    }

    /// `instance` on `port` is dead. Answers whether the link was live.
    fn bury(&mut self, registers: &mut Registers, port: Port, instance: Option<Instance>) -> bool {
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
    pub fn may_hear(&self, port: Port) -> bool {
        if self.replica(port).is_some() {
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
                || (self.kind == Links::Mesh && instance.address == peer(port));
            if !is_there || self.is_dead(port, instance) {
                continue;
            }
            self.dead[port.index()] = Some(instance);
            if known.is_none_or(|known| known.incarnation <= instance.incarnation) {
                was_up |= self.on_silence(registers, port);
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
        if self.silence_ns == 0 {
            return;
        }
        for heard in &mut self.heard {
            if heard.take_if(|heard| now.since_ns(*heard) > self.silence_ns).is_some() {
                self.has_changed = true;
            }
        }
    }

    /// When a controller will have fallen silent.
    pub fn deadline(&self) -> Option<Mono> {
        if self.silence_ns == 0 {
            return None;
        }
        let oldest = self.heard.iter().flatten().min()?;
        Some(oldest.after_ns(self.silence_ns + 1))
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
            (self.beacon_at, self.owes_beacon) = (Some(Mono::from_ns(0)), true);
        }
        found
    }

    /// Whether the switch at the other end of an uplink is known to hear this life. True of every
    /// other link, and where nothing freezes.
    #[inline]
    pub fn is_echoed(&self, port: Port) -> bool {
        self.kind != Links::Uplink || self.controllers.is_none() || self.neighbours.is_two_way(port)
    }

    /// Who is heard on `port` now.
    pub fn echo(&self, registers: &Registers, port: Port) -> Option<Instance> {
        let is_controller = self.replica(port).and_then(|at| self.heard.get(at).copied().flatten());
        let is_up = registers.is_live(port) || is_controller.is_some();
        if is_up { self.neighbours.instance(port) } else { None }
    }

    /// Whether a frame that speaks of its link may bear a wave: from a switch, or on a mesh from a
    /// controller.
    pub fn may_bear_waves(&self, speaker: Option<Instance>) -> bool {
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
        self.owes_beacon = false;
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

    pub fn owes_beacon(&self) -> bool {
        self.owes_beacon
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
            let instance = self.echo(registers, port)?;
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
fn peer(port: Port) -> Address {
    Address::Process(ProcessId(u32::from(port.0)))
}

#[cfg(test)]
mod tests;
