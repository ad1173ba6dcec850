//! Processes in virtual time, each linked to each, on links with faults. Links do not reorder the
//! frames of messages, whose promises need that; those of bulk multicast they may.

use std::collections::BTreeMap;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Psn, ScatteringId, Timestamp,
};
use onepipe_endpoint::{Links, Message, SendFailed, Service};
use onepipe_large::{Config, Delivery, Event, LargeEndpoint, SendError};
use onepipe_wire::{Header, Opcode, header_unchecked, seal};

/// Payloads longer than this go by bulk multicast.
pub const LARGE: usize = 1_000;
const LATENCY_NS: u64 = 2_000;
/// Time per frame at a link.
const FRAME_NS: u64 = 500;
const TICK_NS: u64 = 1_000;
/// Interval of beacons on every link, which stand for promises in shared memory.
const BEACON_NS: u64 = 50_000;

/// Rates in 1/1000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub repetition: u64,
    /// Of frames of bulk multicast.
    pub reordering: u64,
}

/// Position of a message in the total order, and its payload.
type Delivered = ((Timestamp, ProcessId, u16), Vec<u8>);

pub struct Network {
    pub ends: Vec<Option<LargeEndpoint>>,
    pub now: u64,
    pub faults: Faults,
    /// Rate of frames with a wrong bit, in 1/1000.
    pub corruption: u64,
    pub delivered: Vec<Vec<Delivered>>,
    pub failed: Vec<Vec<SendFailed>>,
    /// Whether processes retain deliveries until [`Network::release_held`].
    pub holds: bool,
    held: Vec<Vec<Delivery>>,
    incarnations: Vec<u32>,
    configs: Vec<Config>,
    frames: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    /// Last arrival on each link.
    last: BTreeMap<(usize, usize), u64>,
    number: u64,
    beacons_at: u64,
    random: u64,
}

/// Returns a payload whose content depends on its number.
pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at * 31 + at / 251 + number * 7 + 1) as u8).collect()
}

impl Network {
    pub fn new(processes: u32, seed: u64, change: impl Fn(&mut Config)) -> Self {
        let config = |process| {
            let endpoint = onepipe_endpoint::Config::new(ProcessId(process), Incarnation(1));
            let endpoint = onepipe_endpoint::Config {
                links: Links::Mesh,
                processes_max: processes,
                link_timeout_ns: 2_000_000,
                give_up_after_ns: 20_000_000,
                ..endpoint
            };
            let mut config = Config {
                large_threshold_bytes: LARGE,
                object_len_max: 60_000,
                sent_bytes_max: 1 << 20,
                received_bytes_max: 1 << 20,
                // Longer than the timeout before the first sample of a group's round trip.
                dead_after_ns: 400_000_000,
                ..Config::new(endpoint)
            };
            change(&mut config);
            config.object_len_max = config.object_len_max.min(config.received_bytes_max);
            config
        };
        let configs: Vec<Config> = (0..processes).map(config).collect();
        let count = processes as usize;
        let end = |config: &Config| LargeEndpoint::new(config.clone()).expect("in range");
        Self {
            ends: configs.iter().map(|config| Some(end(config))).collect(),
            now: 1_000,
            faults: Faults::default(),
            corruption: 0,
            delivered: vec![vec![]; count],
            failed: vec![vec![]; count],
            holds: false,
            held: (0..count).map(|_| vec![]).collect(),
            incarnations: vec![1; count],
            configs,
            frames: BTreeMap::new(),
            last: BTreeMap::new(),
            number: 0,
            beacons_at: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end
    }

    fn time(&self) -> Now {
        Now { mono: Mono::from_ns(self.now), sync: Timestamp::from_ns((1 << 50) + self.now) }
    }

    pub fn end(&self, at: usize) -> &LargeEndpoint {
        self.ends[at].as_ref().expect("a live process")
    }

    pub fn act<T>(&mut self, at: usize, act: impl FnOnce(&mut LargeEndpoint) -> T) -> T {
        let result = act(self.ends[at].as_mut().expect("a live process"));
        self.drain(at);
        result
    }

    pub fn scatter(
        &mut self,
        service: Service,
        from: u32,
        to: &[u32],
        payload: &[u8],
    ) -> Result<ScatteringId, SendError> {
        let message = |to: &u32| Message { to: ProcessId(*to), payload };
        let messages: Vec<Message<'_>> = to.iter().map(message).collect();
        self.act(from as usize, |end| match service {
            Service::BestEffort => end.scatter(&messages),
            Service::Reliable => end.scatter_reliably(&messages),
        })
    }

    /// Sends a message past the machine for large payloads.
    pub fn send_raw(&mut self, from: usize, to: u32, payload: &[u8]) {
        let message = Message { to: ProcessId(to), payload };
        let sent = self.act(from, |end| end.endpoint_mut().scatter_reliably(&[message]));
        sent.expect("it fits");
    }

    pub fn crash(&mut self, at: usize) {
        self.ends[at] = None;
        self.held[at].clear();
    }

    /// Starts the next incarnation of a process.
    pub fn restart(&mut self, at: usize) {
        self.incarnations[at] += 1;
        let mut config = self.configs[at].clone();
        config.endpoint.incarnation = Incarnation(self.incarnations[at]);
        self.ends[at] = Some(LargeEndpoint::new(config).expect("in range"));
    }

    /// Releases what a process has retained.
    pub fn release_held(&mut self, at: usize) {
        for delivery in std::mem::take(&mut self.held[at]) {
            self.act(at, |end| end.release(delivery));
        }
    }

    fn drain(&mut self, at: usize) {
        let (now, mut slot) = (self.time(), [0; 1_472]);
        let Some(mut end) = self.ends[at].take() else { return };
        while let Some(event) = end.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    let order = (delivery.timestamp, delivery.from, delivery.index);
                    assert_eq!(end.payload(&delivery).len() as u64, delivery.bytes);
                    if self.holds {
                        self.delivered[at].push((order, end.payload(&delivery).to_vec()));
                        self.held[at].push(delivery);
                    } else {
                        self.delivered[at].push((order, end.take(delivery)));
                    }
                }
                Event::SendFailed(failed) => self.failed[at].push(failed),
                _ => {}
            }
        }
        while let Some(sent) = end.poll_transmit(now, &mut slot) {
            self.transmit(at, usize::from(sent.port.0), slot[..sent.bytes].to_vec());
        }
        end.check_invariants();
        self.ends[at] = Some(end);
    }

    fn transmit(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        if to >= self.ends.len() || self.below(1_000) < self.faults.loss {
            return;
        }
        if self.below(1_000) < self.corruption {
            let bit = self.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let opcode = header_unchecked(&bytes).and_then(|header| header.opcode().ok());
        let is_bulk = opcode.is_some_and(|opcode| opcode.is_bulk());
        let mut late_ns = 0;
        let copies = 1 + u64::from(self.below(1_000) < self.faults.repetition);
        if is_bulk && self.below(1_000) < self.faults.reordering {
            late_ns = self.below(50_000);
        }
        (0..copies).for_each(|_| self.queue(from, to, late_ns, bytes.clone()));
    }

    fn send_beacons(&mut self, from: usize) {
        let now = self.time();
        let Some(end) = &mut self.ends[from] else { return };
        end.handle_timeout(now);
        let Some(promises) = end.endpoint().promises() else { return };
        let incarnation = Incarnation(self.incarnations[from]);
        for to in (0..self.ends.len()).filter(|to| *to != from) {
            let (src, dst) = (ProcessId(from as u32), ProcessId(to as u32));
            let header = Header::new(Opcode::Beacon, src, dst, incarnation);
            let header = header.stamped(promises.barrier, promises, Psn::FIRST);
            let mut beacon = vec![0; 64];
            let bytes = seal(&mut beacon, header, 0);
            beacon.truncate(bytes);
            self.queue(from, to, 0, beacon);
        }
        self.drain(from);
    }

    /// Queues a frame behind those that are on the link already, and `late_ns` later.
    fn queue(&mut self, from: usize, to: usize, late_ns: u64, bytes: Vec<u8>) {
        let last = self.last.entry((from, to)).or_insert(0);
        *last = (self.now + LATENCY_NS).max(*last + FRAME_NS);
        self.number += 1;
        self.frames.insert((*last + late_ns, self.number), (from, to, bytes));
    }

    /// Advances time to the next frame or deadline.
    fn step(&mut self) {
        let timeouts = self.ends.iter().flatten().filter_map(Machine::poll_timeout);
        let timeout = timeouts.map(Mono::as_ns).min().map(|at| at.max(self.now + TICK_NS));
        let arrival = self.frames.first_key_value().map(|((at, _), _)| *at);
        let next = timeout.into_iter().chain(arrival).fold(self.beacons_at, u64::min);
        self.now = self.now.max(next);
        if self.now >= self.beacons_at {
            self.beacons_at = self.now + BEACON_NS;
            (0..self.ends.len()).for_each(|at| self.send_beacons(at));
        }
        let now = self.time();
        while let Some(entry) = self.frames.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let (from, to, mut bytes) = entry.remove();
            if let Some(end) = &mut self.ends[to] {
                end.handle_frame(now, Port(from as u16), &mut bytes);
                self.drain(to);
            }
        }
        for at in 0..self.ends.len() {
            let Some(end) = &mut self.ends[at] else { continue };
            if end.poll_timeout().is_some_and(|at| at <= now.mono) {
                end.handle_timeout(now);
                self.drain(at);
            }
        }
    }

    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until `is_over`, for this time at most. Returns whether it is.
    pub fn run_until(&mut self, ns: u64, is_over: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + ns;
        while !is_over(self) {
            if self.now >= end {
                return false;
            }
            self.step();
        }
        true
    }
}
