//! Endpoints, a tree of aggregators, and a network in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, ScatteringId, Timestamp, Verdict,
};
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Links, Message};
use onepipe_switch::{Config as SwitchConfig, Eager, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Service, parse_header, rewrite_promises};

/// A multiple of the beacon interval.
const ORIGIN_NS: u64 = 1_125_900_000_000_000;
const BEACON_INTERVAL_NS: u64 = 20_000;
/// Maximum clock error in ns: more than the delay of any path.
const SKEW_NS: u64 = 1_000_000;
/// The last process joins at about this time, in ns.
const JOINS_UNTIL_NS: u64 = 8_000_000;
/// One in this many messages is lost; one in `DUPLICATE` arrives twice.
const LOSS: u64 = 10;
const DUPLICATE: u64 = 20;
/// One in this many frames of the tree is lost.
const TREE_LOSS: u64 = 20;
/// How far ahead a premature process promises commits, in ns.
const PREMATURE_NS: u64 = 500_000;
/// Parent of each aggregator: the first is the root.
const PARENTS: [Option<usize>; 4] = [None, Some(0), Some(0), Some(1)];
/// Aggregator of each process: leaves, an inner one, and the root.
const ATTACHMENTS: [usize; 8] = [2, 3, 2, 3, 3, 1, 0, 2];
const SWITCHES: usize = PARENTS.len();
const SWITCH_PORTS: u16 = 8;

/// A delivered message.
pub struct Received {
    pub service: Service,
    /// `(timestamp, from, index)`.
    pub key: (u64, u32, u16),
    /// The scattering that the payload names.
    pub number: u32,
}

/// A scattering, with the failures reported to its sender.
pub struct Sent {
    pub service: Service,
    pub number: u32,
    pub messages: Vec<u32>,
    /// `(to, index)`.
    pub failed: Vec<(u32, u16)>,
}

enum Node {
    Switch(Box<Switch>),
    Endpoint(Box<Endpoint>),
}

enum NetEvent {
    Arrive { port: Port, bytes: Vec<u8>, sent: u64 },
    Wake,
}

pub struct TestNet {
    nodes: Vec<Node>,
    /// By node: clock error, and start time.
    skews: Vec<i64>,
    start_ns: Vec<u64>,
    /// By node: the next wake-up.
    wake_at: Vec<u64>,
    /// The other end of each port of the tree.
    links: BTreeMap<(usize, u16), (usize, u16)>,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: BTreeMap<u64, NetEvent>,
    sequence: u64,
    now: u64,
    random: u64,
    is_premature: bool,
    /// By pair of processes: when the last arrived message was sent.
    last: BTreeMap<(u32, u32), u64>,
    /// Messages that arrived after a later one.
    pub overtaken: usize,
    pub logs: BTreeMap<u32, Vec<Received>>,
    pub sent_scatterings: BTreeMap<(u32, Service, ScatteringId), Sent>,
}

impl TestNet {
    /// If `is_premature`, the first process promises commits of the near future.
    pub fn new(seed: u64, is_premature: bool) -> Self {
        let mut network = Self {
            nodes: Vec::new(),
            skews: Vec::new(),
            start_ns: Vec::new(),
            wake_at: Vec::new(),
            links: BTreeMap::new(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            now: 0,
            random: seed,
            is_premature,
            last: BTreeMap::new(),
            overtaken: 0,
            logs: BTreeMap::new(),
            sent_scatterings: BTreeMap::new(),
        };
        let mut next_port = [0; SWITCHES];
        let mut connect = |network: &mut Self, node: usize, port: u16, parent: usize| {
            let lower = next_port[parent];
            next_port[parent] += 1;
            network.links.insert((node, port), (parent, lower));
            network.links.insert((parent, lower), (node, port));
        };
        for (number, parent) in PARENTS.into_iter().enumerate() {
            let route = Route::ForwardingTable(ForwardingTable::new(16, parent.is_some()));
            let config = SwitchConfig {
                beacon_interval_ns: BEACON_INTERVAL_NS,
                eager_beacons: Eager::Never,
                link_timeout_ns: 0,
                holds_joiners: true,
                ..SwitchConfig::new(SWITCH_PORTS, u16::from(parent.is_some()), route)
            };
            let switch = Switch::new(config).expect("the numbers are in range");
            network.add(Node::Switch(Box::new(switch)), 0);
            if let Some(parent) = parent {
                connect(&mut network, number, SWITCH_PORTS, parent);
            }
        }
        for (number, attachment) in ATTACHMENTS.into_iter().enumerate() {
            let process = ProcessId(number as u32);
            let config = EndpointConfig {
                links: Links::Overlay,
                processes_max: 16,
                beacon_interval_ns: BEACON_INTERVAL_NS,
                link_timeout_ns: 0,
                reorder_packets: 0,
                probe_timeout_min_ns: 300_000,
                probes_max: 100,
                ..EndpointConfig::new(process, Incarnation(1))
            };
            let endpoint = Endpoint::new(config).expect("the numbers are in range");
            let start_ns = network.below(JOINS_UNTIL_NS) * u64::from(number > 1);
            let node = network.add(Node::Endpoint(Box::new(endpoint)), start_ns);
            connect(&mut network, node, 0, attachment);
            network.logs.insert(process.0, Vec::new());
        }
        network
    }

    fn add(&mut self, node: Node, start_ns: u64) -> usize {
        let number = self.nodes.len();
        self.nodes.push(node);
        let skew = self.below(2 * SKEW_NS) as i64 - SKEW_NS as i64;
        self.skews.push(skew);
        self.start_ns.push(start_ns);
        self.wake_at.push(start_ns);
        self.push(start_ns, number, NetEvent::Wake);
        number
    }

    /// Returns a random number below `limit` (SplitMix64).
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }

    fn push(&mut self, at: u64, node: usize, net_event: NetEvent) {
        self.sequence += 1;
        self.events.insert(self.sequence, net_event);
        self.queue.push(Reverse((at, self.sequence, node)));
    }

    fn clock(&self, node: usize) -> Now {
        let sync = (ORIGIN_NS + self.now).saturating_add_signed(self.skews[node]);
        Now { mono: Mono::from_ns(self.now + 1), sync: Timestamp::from_ns(sync) }
    }

    /// Runs until `end`; running processes send messages if `sends`.
    pub fn run(&mut self, end: u64, sends: bool) {
        let mut send_at = self.now;
        while let Some(Reverse((at, key, node))) = self.queue.pop() {
            if at > end {
                self.queue.push(Reverse((at, key, node)));
                break;
            }
            self.now = self.now.max(at);
            if sends && self.now >= send_at {
                send_at = self.now + 10_000;
                self.send_random();
            }
            let net_event = self.events.remove(&key).expect("pushed with it");
            self.step(node, net_event);
        }
        self.now = end;
    }

    fn step(&mut self, node: usize, net_event: NetEvent) {
        let now = self.clock(node);
        match net_event {
            _ if self.now < self.start_ns[node] => return,
            NetEvent::Arrive { port, mut bytes, sent } => {
                self.note_arrival(port, &bytes, sent);
                let verdict = match &mut self.nodes[node] {
                    Node::Switch(switch) => switch.handle_frame(now, port, &mut bytes),
                    Node::Endpoint(end) => end.handle_frame(now, port, &mut bytes),
                };
                if let Verdict::Forward(port) = verdict {
                    self.send(node, port, bytes);
                }
            }
            NetEvent::Wake => {
                self.wake_at[node] = u64::MAX;
                if self.due(node).is_some_and(|due| due <= now.mono) {
                    match &mut self.nodes[node] {
                        Node::Switch(switch) => switch.handle_timeout(now),
                        Node::Endpoint(end) => end.handle_timeout(now),
                    }
                }
            }
        }
        self.drain(node);
        if let Some(due) = self.due(node) {
            let at = due.as_ns().saturating_sub(1).max(self.now + 1);
            if at < self.wake_at[node] {
                self.wake_at[node] = at;
                self.push(at, node, NetEvent::Wake);
            }
        }
    }

    fn note_arrival(&mut self, port: Port, bytes: &[u8], sent: u64) {
        let Ok((header, opcode)) = parse_header(bytes) else { return };
        if opcode.service().is_some() && port == Port(1) {
            let last = self.last.entry((header.src().0, header.dst().0)).or_default();
            self.overtaken += usize::from(*last > sent);
            *last = sent.max(*last);
        }
    }

    fn due(&self, node: usize) -> Option<Mono> {
        match &self.nodes[node] {
            Node::Switch(switch) => switch.poll_timeout(),
            Node::Endpoint(end) => end.poll_timeout(),
        }
    }

    fn drain(&mut self, node: usize) {
        let now = self.clock(node);
        let mut slot = [0; 1472];
        loop {
            let sent = match &mut self.nodes[node] {
                Node::Switch(switch) => switch.poll_transmit(now, &mut slot),
                Node::Endpoint(end) => end.poll_transmit(now, &mut slot),
            };
            let Some(sent) = sent else { break };
            self.send(node, sent.port, slot[..sent.bytes].to_vec());
        }
        self.take_events(node);
    }

    fn take_events(&mut self, node: usize) {
        let Node::Endpoint(end) = &mut self.nodes[node] else {
            while let Node::Switch(switch) = &mut self.nodes[node]
                && switch.poll_event().is_some()
            {}
            return;
        };
        let process = (node - SWITCHES) as u32;
        while let Some(event) = end.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    let name = end.payload(&delivery).try_into().expect("four bytes");
                    let key = (delivery.timestamp.as_ns(), delivery.from.0, delivery.index);
                    let (service, number) = (delivery.service, u32::from_be_bytes(name));
                    let log = self.logs.get_mut(&process).expect("there from the start");
                    log.push(Received { service, key, number });
                    end.release(delivery);
                }
                Event::SendFailed(failed) => {
                    let key = (process, failed.service, failed.scattering);
                    let sent_scatterings =
                        self.sent_scatterings.get_mut(&key).expect("it was said");
                    sent_scatterings.failed.push((failed.to.0, failed.index));
                }
                other => panic!("nobody dies: {other:?}"),
            }
        }
    }

    /// Sends a frame: through the tree on one path, directly on one of several.
    fn send(&mut self, node: usize, port: Port, mut bytes: Vec<u8>) {
        let sent = self.now;
        if self.is_premature && (node, port) == (SWITCHES, Port(0)) {
            let clock = self.clock(node).sync;
            let promised = parse_header(&bytes).expect("it seals what it sends").0.promises(clock);
            let commit = promised.commit.wrapping_add_ns(PREMATURE_NS);
            rewrite_promises(&mut bytes, Promises { commit, ..promised });
        }
        if let Some((to, port)) = self.links.get(&(node, port.0)).copied() {
            if self.below(TREE_LOSS) > 0 {
                let at = sent + 1_000 + self.below(4_000);
                self.push(at, to, NetEvent::Arrive { port: Port(port), bytes, sent });
            }
            return;
        }
        let (header, opcode) = parse_header(&bytes).expect("it seals what it sends");
        assert!(port == Port(1) && opcode.service().is_some(), "{opcode:?} past the tree");
        let to = SWITCHES + header.dst().index();
        let copies = u64::from(self.below(LOSS) > 0) + u64::from(self.below(DUPLICATE) == 0);
        for _ in 0..copies {
            // One of four paths, with queueing.
            let path_ns = [3_000, 10_000, 40_000, 150_000][self.below(4) as usize];
            let at = sent + path_ns + self.below(path_ns);
            self.push(at, to, NetEvent::Arrive { port, bytes: bytes.clone(), sent });
        }
    }

    /// Lets a random running process scatter to random running processes.
    fn send_random(&mut self) {
        let started: Vec<u32> = (0..ATTACHMENTS.len() as u32)
            .filter(|process| self.start_ns[SWITCHES + *process as usize] < self.now)
            .collect();
        if started.is_empty() {
            return;
        }
        let from = started[self.below(started.len() as u64) as usize];
        let messages: Vec<u32> = started.into_iter().filter(|_| self.below(3) > 0).collect();
        let service = match self.below(3) {
            0 => Service::BestEffort,
            _ => Service::Reliable,
        };
        let number = self.sent_scatterings.len() as u32;
        let payload = number.to_be_bytes();
        let all: Vec<_> =
            messages.iter().map(|to| Message { to: ProcessId(*to), payload: &payload }).collect();
        let Node::Endpoint(end) = &mut self.nodes[SWITCHES + from as usize] else {
            unreachable!("behind the switches there are processes only")
        };
        let sent = match service {
            Service::BestEffort => end.scatter(&all),
            Service::Reliable => end.scatter_reliably(&all),
        };
        if let Ok(id) = sent {
            let sent_scatterings = Sent { service, number, messages, failed: Vec::new() };
            self.sent_scatterings.insert((from, service, id), sent_scatterings);
            self.push(self.now, SWITCHES + from as usize, NetEvent::Wake);
        }
    }
}
