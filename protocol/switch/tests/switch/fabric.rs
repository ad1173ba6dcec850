//! Whole fabrics of switches over FIFO links with random delays: no message arrives below a barrier
//! that its receiver was sent, and all barriers keep advancing. With chips, and with off-chip CPUs
//! that receive and send late.

use crate::harness;

use std::collections::{BTreeMap, VecDeque};

use harness::{Bytes, at, frame, ts};
use onepipe_base::{HostId, Machine, Port, Promises, Timestamp, Verdict};
use onepipe_switch::{Config, Form, Switch};
use onepipe_topology::{End, Node, Shape, Spread, Topology};
use onepipe_wire::{HEADER_LEN, Opcode, parse_header};
use proptest::prelude::*;

const STEP_NS: u64 = 50;
/// Until then a process may be a joiner that has not caught up; a slow clock does so by itself
/// here. With off-chip CPUs each switch receives the next one an interval later, once that one
/// advertises.
const START_NS: u64 = 30_000;
const START_OFF_CHIP_NS: u64 = 90_000;
const RUN_NS: u64 = 90_000;
const DELAY_NS_MAX: u64 = 1_500;
/// More than a crossing of the fabric takes: only the minimum keeps a slow clock in time.
const SKEW_NS_MAX: u64 = 20_000;
const INTERVAL_NS: u64 = 3_000;
/// Greatest delay between a chip and its CPU, one way.
const CPU_DELAY_NS_MAX: u64 = 4_000;

/// One process per host, at the host's network card: stamps with a skewed clock and promises its
/// last timestamp.
struct Sender {
    skew_ns: u64,
    barrier: Option<Timestamp>,
    received: u32,
}

struct Fabric {
    topology: Topology,
    form: Form,
    /// One-way delay between a chip and its CPU.
    cpu_delay_ns: u64,
    /// Frames on their way to the CPUs, by input, and from them, by output.
    cpu_queues: BTreeMap<(End, bool), VecDeque<(u64, Bytes)>>,
    switches: Vec<Switch>,
    senders: Vec<Sender>,
    links: BTreeMap<End, VecDeque<(u64, Bytes)>>,
    draw: u64,
    now: u64,
}

impl Fabric {
    fn new(shape: Shape, (form, cpu_delay_ns): (Form, u64), spread: Spread, seed: u64) -> Self {
        let topology = Topology::new(shape, 1).expect("small");
        let nodes = topology.nodes().filter_map(|node| match node {
            Node::Switch(id) => Some((id, topology.ports(node), topology.route(node))),
            _ => None,
        });
        let switches = nodes.map(|(switch, ports, route)| {
            let config = Config::new(ports.lower, ports.upper, route);
            Switch::new(Config { switch, spread, form, ..config }).expect("valid")
        });
        let switches = switches.collect();
        let mut fabric = Self {
            senders: Vec::new(),
            form,
            cpu_delay_ns,
            cpu_queues: BTreeMap::new(),
            switches,
            links: BTreeMap::new(),
            draw: seed,
            now: 0,
            topology,
        };
        for _ in 0..fabric.topology.hosts() {
            let skew_ns = fabric.random(SKEW_NS_MAX);
            fabric.senders.push(Sender { skew_ns, barrier: None, received: 0 });
        }
        fabric
    }

    fn start_ns(&self) -> u64 {
        if self.form == Form::Chip { START_NS } else { START_OFF_CHIP_NS }
    }

    /// Knuth's linear congruential generator: any fixed stream of numbers will do.
    fn random(&mut self, below: u64) -> u64 {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.draw >> 33) % below
    }

    fn send(&mut self, from: End, bytes: Bytes) {
        let to = self.topology.peer(from).expect("a port in use is linked");
        let arrives = self.now + 1 + self.random(DELAY_NS_MAX);
        let link = self.links.entry(to).or_default();
        let arrives = link.back().map_or(arrives, |(last, _)| arrives.max(*last));
        link.push_back((arrives, bytes));
    }

    fn run_senders(&mut self) {
        for host in 0..self.topology.hosts() {
            let stamp = ts(self.now + self.senders[host as usize].skew_ns);
            let dst = self.random(self.topology.hosts().into()) as u32;
            let is_instant = self.now.is_multiple_of(INTERVAL_NS);
            let sends = self.random(4) == 0 && dst != host;
            let card = End { node: Node::Host(HostId(host)), port: self.topology.network_card() };
            if sends {
                self.send(card, frame(Opcode::Data, host, dst, Promises::both(stamp)));
            }
            // A beacon next to a message only where the message promises nothing.
            if is_instant && (!sends || self.form == Form::OffChip) {
                self.send(card, frame(Opcode::Beacon, host, dst, Promises::both(stamp)));
            }
        }
    }

    fn arrive(&mut self, at_end: End, mut bytes: Bytes) {
        match at_end.node {
            Node::Switch(_) if self.form == Form::OffChip && is_beacon(&bytes) => {
                let queue = self.cpu_queues.entry((at_end, true)).or_default();
                queue.push_back((self.now + self.cpu_delay_ns, bytes));
            }
            Node::Switch(id) => {
                let switch = &mut self.switches[id.index()];
                match switch.handle_frame(at(self.now), at_end.port, &mut bytes) {
                    Verdict::Forward(port) => self.send(End { node: at_end.node, port }, bytes),
                    Verdict::Consumed => {}
                    Verdict::Dropped => panic!("{:?} at {at_end:?}", switch.stats()),
                    Verdict::Replicate(_) => unreachable!("no frame is shared"),
                }
            }
            Node::Host(id) => self.receive(id, &bytes),
            Node::Process(_) => unreachable!("hosts are the leaves of this fabric"),
        }
    }

    fn receive(&mut self, host: HostId, bytes: &Bytes) {
        let (header, opcode) = parse_header(bytes).expect("well-formed");
        let near = ts(self.now);
        let (message, promises) = (header.message_ts(near), header.promises(near).barrier);
        let start_ns = self.start_ns();
        let receiver = &mut self.senders[host.index()];
        if opcode == Opcode::Data {
            receiver.received += 1;
            let is_late = receiver.barrier.is_some_and(|barrier| message < barrier);
            assert!(!is_late || self.now < start_ns, "{message:?} below {:?}", receiver.barrier);
        }
        if self.form == Form::Chip || opcode == Opcode::Beacon {
            receiver.barrier = receiver.barrier.max(Some(promises));
        }
    }

    /// CPUs receive and send.
    fn run_cpus(&mut self) {
        let keys: Vec<(End, bool)> = self.cpu_queues.keys().copied().collect();
        for key @ (end, is_input) in keys {
            while let Some((_, mut bytes)) = self
                .cpu_queues
                .get_mut(&key)
                .and_then(|queue| queue.pop_front_if(|(due, _)| *due <= self.now))
            {
                let Node::Switch(id) = end.node else { unreachable!("only switches have a CPU") };
                if is_input {
                    let switch = &mut self.switches[id.index()];
                    let verdict = switch.handle_frame(at(self.now), end.port, &mut bytes);
                    assert_eq!(verdict, Verdict::Consumed);
                } else {
                    self.send(end, bytes);
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += STEP_NS;
        self.run_senders();
        let ends: Vec<End> = self.links.keys().copied().collect();
        for end in ends {
            while let Some((_, bytes)) = self
                .links
                .get_mut(&end)
                .and_then(|link| link.pop_front_if(|(arrives, _)| *arrives <= self.now))
            {
                self.arrive(end, bytes);
            }
        }
        self.run_cpus();
        for index in 0..self.switches.len() {
            let node = Node::Switch(onepipe_base::SwitchId(index as u32));
            let switch = &mut self.switches[index];
            if switch.poll_timeout().is_some_and(|due| due <= at(self.now).mono) {
                switch.handle_timeout(at(self.now));
            }
            let mut slot = [0; HEADER_LEN];
            while let Some(sent) = self.switches[index].poll_transmit(at(self.now), &mut slot) {
                let end = End { node, port: Port(sent.port.0) };
                if self.form == Form::OffChip {
                    let queue = self.cpu_queues.entry((end, false)).or_default();
                    queue.push_back((self.now + self.cpu_delay_ns, slot));
                } else {
                    self.send(end, slot);
                }
            }
        }
    }
}

fn is_beacon(bytes: &Bytes) -> bool {
    parse_header(bytes).expect("well-formed").1 == Opcode::Beacon
}

/// The shape, the form with its CPU delay, whether each packet takes its own path, and a seed.
fn inputs() -> impl Strategy<Value = (Shape, (Form, u64), bool, u64)> {
    let shapes = prop::sample::select(vec!["testbed", "star:5", "leaf-spine:3x2x3", "fat-tree:4"])
        .prop_map(|text| text.parse().expect("well-formed"));
    let forms = prop_oneof![
        Just((Form::Chip, 0)),
        (0..CPU_DELAY_NS_MAX).prop_map(|ns| (Form::OffChip, ns))
    ];
    (shapes, forms, any::<bool>(), any::<u64>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    //= spec/ordering.md#R7
    #[test]
    fn barriers_advance_and_no_message_is_late((shape, form, per_packet, seed) in inputs()) {
        let spread = if per_packet { Spread::PerPacket } else { Spread::PerFlow };
        let mut fabric = Fabric::new(shape, form, spread, seed);
        let end_ns = fabric.start_ns() + RUN_NS;
        while fabric.now < end_ns {
            fabric.step();
        }
        // Six hops, each a delay, a way to the CPU and back, and a beacon interval of waiting at
        // most.
        let lag_ns_max = 6 * (DELAY_NS_MAX + 2 * form.1 + INTERVAL_NS);
        for (host, sender) in fabric.senders.iter().enumerate() {
            let lag_ns = sender.barrier.map(|barrier| ts(fabric.now).since_ns(barrier));
            prop_assert!(lag_ns.is_some_and(|ns| ns < lag_ns_max), "host {}: {:?}", host, lag_ns);
            prop_assert!(sender.received > 50, "host {}: {} messages", host, sender.received);
        }
    }
}
