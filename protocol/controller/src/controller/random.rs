//! Random announcements: every evaluation is compared with a reference evaluation of the whole
//! graph (`graph/reference.rs`). No real fabric behaves like this; the incremental state must be
//! right all the same.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId,
    Promises, Psn, SwitchId, Timestamp,
};
use onepipe_wire::{
    Announce, FloodAck, FloodView, Frame, HEADER_LEN, Header, Link, LinkState, Opcode, Side, seal,
};
use proptest::prelude::*;

use super::Controller;
use crate::{Config, Links, MemoryStore, PersistError, Recovery, Store};

/// Switches 0 and 1 are racks, 2 and 3 are above them, 4 is above these; processes 0 to 3 are below
/// the racks.
const SWITCHES: usize = 5;
const NODES: usize = SWITCHES + 4;
const WIRES: [(usize, usize); 10] =
    [(5, 0), (6, 0), (7, 1), (8, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)];
const CONTROLLER: ProcessId = ProcessId(60);

#[derive(Clone, Debug)]
enum Step {
    /// A node announces its wires (indices into `WIRES`) as up, frozen, or something else.
    Announce { node: usize, incarnation: u32, wires: Vec<(usize, u32, u8)>, has_controller: bool },
    /// Time advances by this many nanoseconds.
    Wait(u64),
    /// The store accepts all records, or does not answer.
    Persist(bool),
    /// All recipients acknowledge all notifications.
    AckAll,
    /// A process asks for a frame to be relayed.
    Relay(u32),
    /// Another replica takes over.
    TakeOver,
    /// The replica is deposed.
    Depose,
    /// The replica wins another campaign.
    Campaign,
}

fn any_step() -> impl Strategy<Value = Step> {
    let wires = prop::collection::vec((0..WIRES.len(), 1u32..4, 0u8..8), 0..12);
    prop_oneof![
        12 => (0..NODES, 1u32..4, wires, prop::bool::weighted(0.8)).prop_map(
            |(node, incarnation, wires, has_controller)| Step::Announce {
                node,
                incarnation: if incarnation == 3 { 2 } else { 1 },
                wires,
                has_controller
            }
        ),
        6 => prop_oneof![Just(10_000u64), Just(1_000_000), 0u64..200_000, Just(1_000_000_000)]
            .prop_map(Step::Wait),
        4 => prop::bool::weighted(0.8).prop_map(Step::Persist),
        3 => Just(Step::AckAll),
        2 => (0u32..4).prop_map(Step::Relay),
        1 => Just(Step::TakeOver),
        1 => Just(Step::Depose),
        2 => Just(Step::Campaign),
    ]
}

fn instance(node: usize, incarnation: u32) -> Instance {
    let address = match node.checked_sub(SWITCHES) {
        Some(process) => Address::Process(ProcessId(process as u32)),
        None => Address::Switch(SwitchId(node as u32)),
    };
    Instance { address, incarnation: Incarnation(incarnation) }
}

struct Environment {
    controller: Controller,
    config: Config,
    store: MemoryStore,
    ns: u64,
    generations: BTreeMap<Instance, u32>,
}

impl Environment {
    fn new(config: Config) -> Self {
        let controller = Controller::new(config.clone()).expect("a valid configuration");
        let (store, generations) = (MemoryStore::new(), BTreeMap::new());
        let mut env = Self { controller, config, store, ns: 1_000_000_000, generations };
        env.campaign();
        env
    }

    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(self.ns) }
    }

    fn campaign(&mut self) {
        self.store.expire_lease();
        let epoch = self
            .store
            .campaign(CONTROLLER)
            .expect("it responds")
            .expect("no other replica is active");
        let records = self.store.load().expect("it responds");
        self.controller.activate(self.now(), epoch, &records);
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Announce { node, incarnation, wires, has_controller } => {
                self.announce(*node, *incarnation, wires, *has_controller);
            }
            Step::Wait(ns) => {
                self.ns += ns;
                self.controller.handle_timeout(self.now());
            }
            Step::Persist(is_available) => self.persist(*is_available),
            Step::AckAll => self.ack_all(),
            Step::Relay(to) => self.relay(*to),
            Step::TakeOver => {
                // The new replica has not received the announcements sent to the previous one.
                self.controller =
                    Controller::new(self.config.clone()).expect("a valid configuration");
                self.campaign();
            }
            Step::Depose => self.controller.depose(self.now()),
            Step::Campaign => self.campaign(),
        }
    }

    fn announce(
        &mut self,
        node: usize,
        incarnation: u32,
        wires: &[(usize, u32, u8)],
        has_controller: bool,
    ) {
        let own = instance(node, incarnation);
        let far_end = |(lower, upper): (usize, usize)| match node {
            _ if node == lower => Some((upper, Side::Upper)),
            _ if node == upper => Some((lower, Side::Lower)),
            _ => None,
        };
        let generation = self.generations.entry(own).or_insert(0);
        *generation += 1;
        let generation = *generation;
        let mut links: Vec<Link> = Vec::new();
        let is_own = |wire: &(usize, u32, u8)| far_end(WIRES[wire.0]).is_some();
        for (wire, incarnation, kind) in wires.iter().copied().filter(is_own) {
            let (peer, side) = far_end(WIRES[wire]).expect("filtered");
            // Sometimes on a side where no link exists.
            let side = if kind == 7 { Side::Direct } else { side };
            let commit = Timestamp::from_ns(self.ns - 1_000 * u64::from(kind + incarnation as u8));
            let number = wire as u32 + 16 * incarnation;
            let state = match kind {
                0..=4 | 7 => LinkState::Up,
                _ => LinkState::Frozen { number, commit, cause: Cause::TimedOut },
            };
            let peer = Some(instance(peer, incarnation.min(2))).filter(|_| kind != 6 || wire > 2);
            links.push(Link { port: Port(wire as u16), side, instance: peer, state });
        }
        if has_controller && node < 2 {
            let (port, side, state) = (Port(90), Side::Lower, LinkState::Up);
            links.push(Link { port, side, instance: Some(self.config.own()), state });
        }
        let total = links.len() as u16;
        self.frame(own, Opcode::Announce, |buf| {
            let announce = Announce { generation, first: 0, total, tip: None };
            announce.write(buf, links.into_iter()).expect("fits").1
        });
    }

    fn frame(&mut self, from: Instance, opcode: Opcode, write: impl FnOnce(&mut [u8]) -> usize) {
        let mut slot = alloc::vec![0; 1_400];
        let bytes = write(&mut slot[HEADER_LEN..]);
        let src = ProcessId(from.address.to_bits());
        let header = match opcode.is_hop_only() {
            true => Header::hop_only(opcode, from, None, Promises::both(self.now().sync)),
            false => Header::new(opcode, src, CONTROLLER, from.incarnation),
        };
        let header = match opcode.is_hop_only() {
            true => header,
            false => header.stamped(self.now().sync, Promises::both(self.now().sync), Psn::FIRST),
        };
        let length = seal(&mut slot, header, bytes);
        self.controller.handle_frame(self.now(), Port(0), &mut slot[..length]);
    }

    fn persist(&mut self, is_available: bool) {
        self.store.set_available(is_available);
        while let Some((id, record)) = self.controller.poll_persist() {
            let epoch = self.controller.status().active.expect("only the active replica persists");
            let result = self.store.append(epoch, &record).map_err(PersistError::from);
            self.controller.handle_persisted(self.now(), id, result);
        }
        self.store.set_available(true);
    }

    fn ack_all(&mut self) {
        let mut slot = alloc::vec![0; 1_500];
        let mut acks = Vec::new();
        while let Some(transmit) = self.controller.poll_transmit(self.now(), &mut slot) {
            let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed above");
            let Ok(view) = FloodView::parse(frame.payload) else { continue };
            let ack = FloodAck { id: view.id, kind: view.kind };
            match frame.opcode {
                Opcode::Flood => acks.push((Opcode::FloodAck, 0, ack)),
                Opcode::Notice => acks.push((Opcode::Completed, frame.header.dst().0, ack)),
                _ => {}
            }
        }
        for (opcode, process, ack) in acks {
            let from = if opcode == Opcode::FloodAck { 0 } else { SWITCHES + process as usize };
            self.frame(instance(from, 1), opcode, |buf| ack.write(buf).expect("fits"));
        }
    }

    fn relay(&mut self, to: u32) {
        let from = instance(SWITCHES + (to as usize + 1) % 4, 1);
        let mut inner = [0; 100];
        let header = Header::new(Opcode::ReliableData, ProcessId(0), ProcessId(to), Incarnation(1));
        let sync = self.now().sync;
        let bytes = seal(&mut inner, header.stamped(sync, Promises::both(sync), Psn::FIRST), 40);
        self.frame(from, Opcode::Relay, |buf| {
            buf[..bytes].copy_from_slice(&inner[..bytes]);
            bytes
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    //= spec/failure.md#R21
    #[test]
    fn incremental_state_equals_reference_evaluation(
        steps in prop::collection::vec(any_step(), 1..120),
        is_flat: bool,
        is_mesh in prop::bool::weighted(0.2),
    ) {
        let controllers = Controllers { first: CONTROLLER, count: 1 };
        let config = Config {
            incarnation: Incarnation(1),
            links: if is_mesh { Links::Mesh(4) } else { Links::Uplink },
            recovery: if is_flat { Recovery::Flat } else { Recovery::Tree },
            // A failure is soon resolved and forgotten.
            notice_retention_ns: 1_000_000,
            ..Config::new(CONTROLLER, controllers)
        };
        let mut env = Environment::new(config);
        for step in &steps {
            env.apply(step);
            env.controller.evaluate(env.now());
            env.controller.check_invariants();
        }
    }
}
