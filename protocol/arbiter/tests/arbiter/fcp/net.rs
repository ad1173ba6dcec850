//! A small simulated network of clients and arbiters: every frame takes its time, and some suffer
//! faults drawn from a seed. Invariants are checked at every step.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_arbiter::{
    Arbiter, ArbiterConfig, ArbiterEvent, Client, ClientConfig, Core, FailoverConfig, Role,
    Timeslot,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_wire::{Fcp, FcpPart, Frame, Opcode};

pub const SLOT_NS: u64 = 1_250;
/// Start of both clocks of all nodes, without the skew of the synchronised one.
pub const OFFSET_NS: u64 = 1_125_900_000_000_000;

/// The generator SplitMix64.
#[derive(Clone)]
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }
}

/// Faults: one in this number of frames, none if 0.
#[derive(Clone, Copy, Default)]
pub struct Channel {
    pub lose: u64,
    pub repeat: u64,
    pub corrupt: u64,
    /// Maximum extra delay, ns.
    pub jitter_ns: u64,
    /// Of the duplicates, those that arrive this much later.
    pub stale_ns: u64,
}

/// Decides whether a frame is lost.
pub type DropFilter = Box<dyn FnMut(u64, ProcessId, ProcessId, &Frame<'_>) -> bool>;

pub struct TestNet {
    pub now: u64,
    /// How far all synchronised clocks have stepped.
    pub step_ns: i64,
    /// Clock offset of each endpoint.
    pub skew_ns: Vec<i64>,
    pub slot_ns: u64,
    pub clients: Vec<Client>,
    pub arbiters: Vec<Arbiter>,
    /// An arbiter that is down receives and sends nothing.
    pub is_down: Vec<bool>,
    pub draws: Draws,
    pub control: Channel,
    pub drop_filter: DropFilter,
    pub delay_ns: u64,
    in_flight: BTreeMap<(u64, u64), (ProcessId, Vec<u8>)>,
    sequence: u64,
    /// All timeslots ever granted, with their pairs.
    pub granted: BTreeMap<u64, Vec<(u32, u32)>>,
    /// The last timeslot that each arbiter has granted, and the first one of each takeover.
    pub last: Vec<u64>,
    pub starts: Vec<(usize, u64)>,
    /// Slot frames sent, by timeslot and source.
    pub sent: BTreeSet<(u64, u32)>,
    /// Packets received, by pair, in order.
    pub arrived: BTreeMap<(u32, u32), Vec<u32>>,
    pub numbers: BTreeMap<(u32, u32), u32>,
}

pub fn first_arbiter(nodes: u32) -> ProcessId {
    ProcessId(nodes)
}

pub fn client_config(process: u32, nodes: u32, arbiters: u32) -> ClientConfig {
    let arbiter = first_arbiter(nodes);
    let arbiters = (0..arbiters).map(|nth| ProcessId(arbiter.0 + nth)).collect();
    ClientConfig {
        arbiters,
        frame_len_max: 300,
        ..ClientConfig::new(ProcessId(process), nodes, arbiter, SLOT_NS)
    }
}

pub fn arbiter_config(nth: u32, nodes: u32, arbiters: u32) -> ArbiterConfig {
    let process = ProcessId(first_arbiter(nodes).0 + nth);
    let peers = (0..arbiters).filter(|peer| *peer != nth);
    let peers = peers.map(|peer| ProcessId(first_arbiter(nodes).0 + peer)).collect();
    let role = if nth == 0 { Role::Primary } else { Role::Secondary };
    let mut config = ArbiterConfig::new(process, Core::racks(nodes, nodes.div_ceil(2), 2), SLOT_NS);
    config.failover = FailoverConfig { role, peers, ..FailoverConfig::ALONE };
    config.allocator.batch_slots = 16;
    config
}

impl TestNet {
    pub fn new(nodes: u32, arbiters: u32, seed: u64) -> Self {
        let clients = (0..nodes).map(|process| client_config(process, nodes, arbiters));
        let arbiters = (0..arbiters).map(|nth| arbiter_config(nth, nodes, arbiters));
        Self::of(clients.collect(), arbiters.collect(), seed)
    }

    /// Creates a network with one arbiter and timeslots of this length.
    pub fn with_slots_of(slot_ns: u64, nodes: u32) -> Self {
        let arbiter = first_arbiter(nodes);
        let client = |process| ClientConfig::new(ProcessId(process), nodes, arbiter, slot_ns);
        let arbiter =
            ArbiterConfig::new(arbiter, Core::racks(nodes, nodes.div_ceil(2), 2), slot_ns);
        Self::of((0..nodes).map(client).collect(), vec![arbiter], 1)
    }

    pub fn of(clients: Vec<ClientConfig>, arbiters: Vec<ArbiterConfig>, seed: u64) -> Self {
        let slot_ns = clients[0].slot_ns;
        let arbiters: Vec<_> =
            arbiters.into_iter().map(|config| Arbiter::new(config).expect("right")).collect();
        let clients = clients.into_iter().map(|config| Client::new(config).expect("right"));
        Self {
            now: 0,
            step_ns: 0,
            skew_ns: vec![0; clients.len()],
            slot_ns,
            clients: clients.collect(),
            is_down: vec![false; arbiters.len()],
            last: vec![0; arbiters.len()],
            arbiters,
            draws: Draws(seed),
            control: Channel::default(),
            drop_filter: Box::new(|_, _, _, _| false),
            delay_ns: 5_000,
            in_flight: BTreeMap::new(),
            sequence: 0,
            granted: BTreeMap::new(),
            starts: Vec::new(),
            sent: BTreeSet::new(),
            arrived: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    pub fn nodes(&self) -> u32 {
        self.clients.len() as u32
    }

    pub fn at(&self) -> Now {
        Now {
            mono: Mono::from_ns(self.now),
            sync: Timestamp::from_ns((OFFSET_NS + self.now).wrapping_add_signed(self.step_ns)),
        }
    }

    fn at_client(&self, index: usize) -> Now {
        let Now { mono, sync } = self.at();
        let sync = sync.as_ns().wrapping_add_signed(self.skew_ns[index]);
        Now { mono, sync: Timestamp::from_ns(sync) }
    }

    pub fn timeslot(&self) -> u64 {
        (OFFSET_NS + self.now).wrapping_add_signed(self.step_ns) / self.slot_ns
    }

    /// Queues a packet from `src` to `dst`. Returns whether there was space.
    pub fn enqueue(&mut self, src: u32, dst: u32, bytes: usize) -> bool {
        let number = self.numbers.entry((src, dst)).or_default();
        let mut packet = vec![0; bytes.max(12)];
        packet[..4].copy_from_slice(&src.to_be_bytes());
        packet[4..8].copy_from_slice(&dst.to_be_bytes());
        packet[8..12].copy_from_slice(&number.to_be_bytes());
        let is_taken = self.clients[src as usize].enqueue(ProcessId(dst), &packet).is_ok();
        *number += u32::from(is_taken);
        self.flush_client(src as usize);
        is_taken
    }

    /// Advances time until `end`, or until no event is left.
    pub fn run_until(&mut self, end: u64) {
        loop {
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let clients = self.clients.iter().filter_map(Machine::poll_timeout);
            let alive = self.arbiters.iter().zip(&self.is_down).filter(|(_, is_down)| !**is_down);
            let arbiters = alive.filter_map(|(arbiter, _)| arbiter.poll_timeout());
            let due = clients.chain(arbiters).map(Mono::as_ns).chain(arrival).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.step();
        }
        self.now = end;
    }

    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now + ns);
    }

    fn step(&mut self) {
        let now = self.at();
        while let Some(entry) =
            self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let (to, mut frame) = entry.remove();
            let (index, first) = (to.index(), self.clients.len());
            if index < first {
                let now = self.at_client(index);
                self.clients[index].handle_frame(now, Port(0), &mut frame);
                self.note_packets(&frame);
                self.flush_client(index);
            } else if !self.is_down[index - first] {
                self.arbiters[index - first].handle_frame(now, Port(0), &mut frame);
                self.flush_arbiter(index - first);
            }
        }
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        for index in 0..self.clients.len() {
            if is_due(self.clients[index].poll_timeout()) {
                let now = self.at_client(index);
                self.clients[index].handle_timeout(now);
                self.flush_client(index);
            }
        }
        for index in 0..self.arbiters.len() {
            if !self.is_down[index] && is_due(self.arbiters[index].poll_timeout()) {
                self.arbiters[index].handle_timeout(now);
                self.flush_arbiter(index);
            }
        }
    }

    fn note_packets(&mut self, frame: &[u8]) {
        for packet in Client::packets(frame).into_iter().flatten() {
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().expect("four"));
            self.arrived.entry((word(0), word(4))).or_default().push(word(8));
        }
    }

    fn flush_client(&mut self, index: usize) {
        let (now, mut slot) = (self.at_client(index), vec![0; 2_000]);
        while let Some(transmit) = self.clients[index].poll_transmit(now, &mut slot) {
            self.send(ProcessId(index as u32), &slot[..transmit.bytes]);
        }
        while self.clients[index].poll_event().is_some() {}
        self.clients[index].check_invariants();
    }

    fn flush_arbiter(&mut self, index: usize) {
        let (now, mut slot) = (self.at(), vec![0; 2_000]);
        while let Some(transmit) = self.arbiters[index].poll_transmit(now, &mut slot) {
            self.note_grants(index, &slot[..transmit.bytes]);
            self.send(ProcessId((self.clients.len() + index) as u32), &slot[..transmit.bytes]);
        }
        self.arbiters[index].check_invariants();
        while let Some(event) = self.arbiters[index].poll_event() {
            if let ArbiterEvent::Primary(start) = event {
                self.starts.push((index, start.0));
            }
        }
    }

    /// Checks that every timeslot is a matching over the grants of all arbiters.
    fn note_grants(&mut self, index: usize, bytes: &[u8]) {
        let frame = Frame::parse(bytes).expect("sealed");
        if frame.opcode != Opcode::Fcp {
            return;
        }
        let src = frame.header.dst().0;
        for part in Fcp::parse(0, frame.payload).expect("well-formed").parts() {
            let FcpPart::Grants(grants) = part else { continue };
            for grant in grants.grants() {
                let (slot, dst) = (grants.base() + u64::from(grant.slot), u32::from(grant.dst));
                let pairs = self.granted.entry(slot).or_default();
                let is_free = |pair: &(u32, u32)| pair.0 != src && pair.1 != dst;
                assert!(pairs.iter().all(is_free), "{src} to {dst} beside {pairs:?}");
                pairs.push((src, dst));
                self.last[index] = self.last[index].max(slot);
            }
        }
    }

    fn send(&mut self, from: ProcessId, bytes: &[u8]) {
        let frame = Frame::parse(bytes).expect("sealed");
        assert_eq!(frame.header.src(), from);
        let (to, opcode) = (frame.header.dst(), frame.opcode);
        if opcode == Opcode::Slot {
            self.note_slot(from, to, frame.payload);
        }
        if (self.drop_filter)(self.now, from, to, &frame) {
            return;
        }
        let channel = if opcode == Opcode::Slot { Channel::default() } else { self.control };
        let mut bytes = bytes.to_vec();
        if channel.lose > 0 && self.draws.one_in(channel.lose) {
            return;
        }
        if channel.repeat > 0 && self.draws.one_in(channel.repeat) {
            let later = self.delay_ns + self.draws.below(channel.stale_ns);
            self.post(self.now + later, to, bytes.clone());
        }
        if channel.corrupt > 0 && self.draws.one_in(channel.corrupt) {
            bytes = self.corrupted(&bytes);
        }
        let at = self.now + self.delay_ns + self.draws.below(channel.jitter_ns);
        self.post(at, to, bytes);
    }

    /// Flips a bit of a control packet and renews the checks of its frame, so that only the check
    /// of the control packet can detect it.
    fn corrupted(&mut self, bytes: &[u8]) -> Vec<u8> {
        let frame = Frame::parse(bytes).expect("sealed");
        let (mut payload, header) = (frame.payload.to_vec(), frame.header);
        let bit = self.draws.below(payload.len() as u64 * 8) as usize;
        payload[bit / 8] ^= 1 << (bit % 8);
        let mut sealed = vec![0; onepipe_wire::SHORT_HEADER_LEN];
        sealed.extend_from_slice(&payload);
        onepipe_wire::seal(&mut sealed, header, payload.len());
        sealed
    }

    pub fn post(&mut self, at: u64, to: ProcessId, bytes: Vec<u8>) {
        self.sequence += 1;
        self.in_flight.insert((at, self.sequence), (to, bytes));
    }

    /// Checks that a packet leaves in a granted timeslot, once, and not much later.
    fn note_slot(&mut self, from: ProcessId, to: ProcessId, payload: &[u8]) {
        let (slot, _) = onepipe_wire::Slot::parse(payload).expect("well-formed");
        let present = self.timeslot();
        let late = (present as u32).wrapping_sub(slot.timeslot);
        assert!(late <= 16, "{late} timeslots late");
        let begun = present - u64::from(late);
        let pairs = self.granted.get(&begun).expect("the timeslot was granted");
        assert!(pairs.contains(&(from.0, to.0)), "{from:?} to {to:?} is none of {pairs:?}");
        assert!(self.sent.insert((begun, from.0)), "twice in a timeslot");
    }

    /// Asserts that all requests were granted and all queued packets have arrived.
    pub fn assert_quiet(&self) {
        for client in &self.clients {
            assert_eq!(client.backlog(), 0, "{:?}", client.stats());
            for dst in 0..self.nodes() {
                let (requested, granted) = client.totals(ProcessId(dst));
                assert_eq!(requested, granted, "{:?} to {dst}", client.config().process);
                let arbiter = client.arbiter().index() - self.clients.len();
                let comm = self.arbiters[arbiter].comm();
                let (demanded, advertised) = comm.totals(client.config().process.0, dst);
                assert_eq!(
                    (demanded, advertised),
                    (requested, granted),
                    "the arbiter knows the same"
                );
            }
        }
        for (arbiter, _) in self.arbiters.iter().zip(&self.is_down).filter(|(_, down)| !**down) {
            // A replaced arbiter drops what is in flight with its next batch.
            let wanted = arbiter.allocator().wanted();
            assert!(wanted == 0 || !arbiter.is_primary(), "{wanted} wanted");
            assert!((0..self.nodes()).all(|src| arbiter.comm().pending(src) == 0));
        }
    }

    /// Asserts that every packet has arrived once, and those of a pair in order.
    pub fn assert_all_arrived(&self) {
        for (pair, count) in &self.numbers {
            let arrived = self.arrived.get(pair).cloned().unwrap_or_default();
            assert!(
                arrived.iter().copied().eq(0..*count),
                "{pair:?}: {} of {count}",
                arrived.len()
            );
        }
    }

    /// Restarts a client as a new incarnation without state, when no frame of the previous one is
    /// in flight any more.
    pub fn restart_client(&mut self, index: u32) {
        let mut config = self.clients[index as usize].config().clone();
        config.incarnation = Incarnation(config.incarnation.0 + 1);
        self.clients[index as usize] = Client::new(config).expect("as before");
        let is_of_it =
            |bytes: &[u8]| Frame::parse(bytes).is_ok_and(|frame| frame.header.src().0 == index);
        self.in_flight.retain(|_, (_, bytes)| !is_of_it(bytes));
        self.numbers.retain(|(src, _), _| *src != index);
        self.arrived.retain(|(src, _), _| *src != index);
    }

    pub fn restart_arbiter(&mut self, index: usize) {
        let config = self.arbiters[index].config().clone();
        self.arbiters[index] = Arbiter::new(config).expect("as before");
        self.is_down[index] = false;
    }

    /// Returns the number of timeslots after `from` that were granted to `src`.
    pub fn granted_to(&self, src: u32, from: Timeslot) -> usize {
        let after = self.granted.range(from.0..);
        after.flat_map(|(_, pairs)| pairs).filter(|pair| pair.0 == src).count()
    }
}
