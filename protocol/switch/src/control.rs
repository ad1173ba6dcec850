//! What a switch does for the controllers: frozen links, floods, announcements, fences.

mod frames;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Cause, Controllers, Frozen, FrozenLinks, Instance, Mono, Port};
use onepipe_wire::{FloodAck, FloodView, HEADER_LEN, HOPS_MAX, Header, Opcode};

use crate::Config;
use crate::aggregator::Aggregator;
use crate::announcer::Announcer;
use crate::controller_ports::{ControllerPorts, Registration};
use crate::fence::Fence;
use crate::flood::{Arrived, FloodState};
pub(crate) use frames::{View, Writer};

/// Number of beacon instants between two beacons of a busy link. A confirmed link has no other
/// reason for a beacon, and the other end may have missed the earlier ones that confirmed it.
const REMINDER_INSTANTS: u32 = 16;

/// What has become of a link that is to be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freeze {
    /// The link was not live.
    NotLive,
    /// The link is down, and had promised no commit.
    Empty,
    /// The link is down, and its commit is held.
    Frozen,
}

/// The state for the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Control {
    controllers: Controllers,
    frozen: FrozenLinks,
    controller_ports: ControllerPorts,
    announcer: Announcer,
    flood: FloodState,
    fence: Fence,
    /// Number of beacon instants since the start.
    instants: u32,
}

impl Control {
    /// Creates the state for the switch of `config`; `None` without controllers.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let controllers = config.controllers?;
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
            flood: FloodState::new(config.port_count(), bytes_max, config.flood_interval_ns),
            fence: Fence::default(),
            instants: 0,
        })
    }

    /// Asserts what holds between any two calls: what `aggregator` holds on `ports` is frozen.
    pub(crate) fn check_invariants(
        &self,
        mut ports: impl Iterator<Item = Port>,
        aggregator: &Aggregator,
    ) {
        let is_held = |port| aggregator.is_held(port);
        self.flood.check_invariants();
        self.controller_ports.check_invariants();
        self.announcer.check_invariants(self.controllers);
        self.fence.check_invariants();
        for (index, frozen) in self.frozen.iter().enumerate() {
            let mut before = self.frozen.iter().take(index);
            let is_other = before.all(|other| {
                other.number != frozen.number
                    && (other.port, other.instance) != (frozen.port, frozen.instance)
            });
            assert!(is_other, "one death of {:?} has two numbers", frozen.instance);
            assert!(is_held(frozen.port), "port {} holds nothing", frozen.port.0);
        }
        let is_frozen = |port| self.frozen.iter().any(|frozen| frozen.port == port);
        assert!(ports.all(|port| !is_held(port) || is_frozen(port)), "held, but not frozen");
    }

    /// Returns when something is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        let repeats = Mono::earlier(self.flood.due(), self.announcer.due());
        Mono::earlier(repeats, self.controller_ports.due())
    }

    /// Handles a stall of the driver: see [`ControllerPorts::postpone`].
    pub(crate) fn postpone(&mut self, now: Mono) {
        self.controller_ports.postpone(now);
    }

    /// Notes that a link has changed.
    pub(crate) fn on_change(&mut self) {
        self.announcer.on_change();
    }

    /// Handles a link that has come up.
    pub(crate) fn on_link_up(&mut self, now: Mono, port: Port) {
        self.announcer.on_change();
        self.flood.on_joined(now, port);
    }

    /// Handles the permanent loss of the instance at `port`.
    pub(crate) fn on_gone(&mut self, port: Port) {
        self.flood.on_gone(port);
    }

    /// Handles the removal of the link at `port`. Returns whether a controller was there.
    pub(crate) fn on_unplugged(&mut self, port: Port) -> bool {
        self.on_gone(port);
        let is_controller = self.controller_ports.remove(port);
        if is_controller {
            self.on_change();
        }
        is_controller
    }

    //= spec/failure.md#R13
    /// Takes `port`, whose peer was `instance`, out of the barriers if it is live, and freezes its
    /// commit.
    pub(crate) fn freeze(
        &mut self,
        aggregator: &mut Aggregator,
        port: Port,
        instance: Option<Instance>,
        cause: Cause,
    ) -> Freeze {
        if let Some(commit) = self.frozen.promised_before(port, instance) {
            aggregator.assume_promised(port, commit);
        }
        if aggregator.promises_no_commit(port) {
            // The port was never fed, or the failure of what fed it is resolved.
            aggregator.remove(port);
            self.on_change();
            return Freeze::Empty;
        }
        let Some(commit) = aggregator.freeze(port) else { return Freeze::NotLive };
        debug_assert!(aggregator.is_held(port), "port {} holds nothing", port.0);
        if makes(Mistake::DeadCommitDropped) {
            aggregator.hold(port, None);
        }
        self.frozen.record(port, instance, commit, cause);
        self.on_change();
        Freeze::Frozen
    }

    /// Returns the link that was frozen last.
    pub(crate) fn last_frozen(&self) -> Option<Frozen> {
        self.frozen.iter().last().copied()
    }

    //= spec/failure.md#R13
    /// Handles a controller's Resume: what the death `number` holds is released. Returns its port.
    pub(crate) fn resolve(&mut self, aggregator: &mut Aggregator, number: u32) -> Option<Port> {
        let (Frozen { port, .. }, held) = self.frozen.take(number)?;
        aggregator.hold(port, held);
        debug_assert_eq!(aggregator.is_held(port), held.is_some());
        self.on_change();
        Some(port)
    }

    /// Handles a controller's declaration that `instance` is dead.
    pub(crate) fn declare_dead(&mut self, instance: Instance) {
        self.fence.declare(instance);
    }

    /// Whether a frame comes directly from an instance that was declared dead.
    #[inline]
    pub(crate) fn is_declared_dead(&self, header: &Header, opcode: Opcode) -> bool {
        if self.fence.is_empty() || !(opcode.is_hop_only() || header.hops() == HOPS_MAX) {
            return false;
        }
        header.sender().is_some_and(|instance| self.fence.contains(instance))
    }

    /// Handles a beacon of an instance that was declared dead.
    pub(crate) fn on_declared_dead(&mut self, port: Port, instance: Instance) {
        self.fence.on_received(port, instance);
    }

    /// Returns the controller at `port`.
    pub(crate) fn controller_at(&self, port: Port) -> Option<Instance> {
        self.controller_ports.instance(port)
    }

    /// Handles the Hello of a controller at `port`, which is answered if `is_answered`.
    pub(crate) fn on_hello(
        &mut self,
        now: Mono,
        port: Port,
        instance: Instance,
        is_answered: bool,
    ) -> Registration {
        let registration = self.controller_ports.register(now, port, instance);
        if is_answered {
            self.controller_ports.request_answer(port);
        }
        if registration == Registration::New {
            self.on_change();
        }
        registration
    }

    /// Handles a flood received at `from`; `others` are the links to pass it on.
    pub(crate) fn on_flood(
        &mut self,
        now: Mono,
        from: Port,
        view: &FloodView<'_>,
        payload: &[u8],
        others: impl Iterator<Item = Port>,
    ) -> Arrived {
        self.announcer.wake(now);
        self.flood.on_flood(now, from, view.id, view.kind, payload, others)
    }

    /// Handles the acknowledgement of all nodes behind `from`. Returns whether it was outstanding.
    pub(crate) fn on_flood_ack(&mut self, from: Port, ack: FloodAck) -> bool {
        self.flood.on_flood_ack(from, ack)
    }

    /// Schedules retransmissions of the flood.
    pub(crate) fn on_timeout(&mut self, now: Mono, is_live: impl Fn(Port) -> bool) {
        self.flood.on_timeout(now, is_live);
    }

    /// Handles a beacon instant. Returns whether busy links carry a beacon as well.
    pub(crate) fn on_instant(&mut self) -> bool {
        self.instants = self.instants.wrapping_add(1);
        self.instants.is_multiple_of(REMINDER_INSTANTS)
    }

    /// Removes and returns the port of a controller that has timed out.
    pub(crate) fn pop_expired(&mut self, now: Mono) -> Option<Port> {
        let port = self.controller_ports.pop_expired(now)?;
        self.on_change();
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Address, Incarnation, ProcessId, Promises, Timestamp};
    use onepipe_topology::{ForwardingTable, Route};

    use super::*;

    fn control() -> Control {
        let route = Route::ForwardingTable(ForwardingTable::new(8, false));
        let controllers = Some(Controllers { first: ProcessId(60), count: 1 });
        let config = Config { controllers, ..Config::new(2, 0, route) };
        Control::new(&config).expect("there is a controller")
    }

    fn process(id: u32) -> Instance {
        Instance { address: Address::Process(ProcessId(id)), incarnation: Incarnation(1) }
    }

    //= spec/failure.md#R13
    #[test]
    fn port_is_held_until_all_its_deaths_are_resolved() {
        let (mut control, mut aggregator) = (control(), Aggregator::new(2, 0));
        let ports = || [Port(0), Port(1)].into_iter();
        let mut freeze = |control: &mut Control, id, commit| {
            let promises = Promises::both(Timestamp::from_ns(commit));
            aggregator.update(Mono::from_ns(0), Port(1), promises);
            control.freeze(&mut aggregator, Port(1), Some(process(id)), Cause::Left)
        };
        assert_eq!([1, 2].map(|id| freeze(&mut control, id, 5)), [Freeze::Frozen; 2]);
        let again = control.freeze(&mut aggregator, Port(1), Some(process(2)), Cause::Left);
        assert_eq!(again, Freeze::NotLive);
        assert_eq!(control.last_frozen().map(|frozen| frozen.number), Some(2));
        for (number, is_held) in [(1, true), (2, false)] {
            assert_eq!(control.resolve(&mut aggregator, number), Some(Port(1)));
            assert_eq!(aggregator.is_held(Port(1)), is_held);
            control.check_invariants(ports(), &aggregator);
        }
        assert_eq!(control.resolve(&mut aggregator, 2), None, "resolved already");
    }

    #[test]
    fn unplugged_controller_is_gone() {
        let mut control = control();
        assert_eq!(control.controller_at(Port(1)), None);
        let now = Mono::from_ns(0);
        assert_eq!(control.on_hello(now, Port(1), process(60), false), Registration::New);
        assert_eq!(control.controller_at(Port(1)), Some(process(60)));
        assert!(!control.on_unplugged(Port(0)) && control.on_unplugged(Port(1)));
        assert_eq!((control.controller_at(Port(1)), control.pop_expired(now)), (None, None));
    }
}
