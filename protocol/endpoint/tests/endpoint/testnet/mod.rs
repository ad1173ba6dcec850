//! A minimal deterministic network: endpoints in a mesh of links with delay, loss and other faults.
//! Time advances only when the test says so.

// Each test file uses a part of the module.
#![allow(dead_code)]

use std::collections::BTreeMap;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message, Outcome, SendFailed, Service};

/// What a link does with a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LinkAction {
    Pass,
    Drop,
    Duplicate,
    /// Delivers the frame this many ns late, behind others.
    Delay(u64),
    Corrupt,
    MarkCongestion,
}

/// Chooses the action for a frame by its source, destination and contents.
pub type LinkPolicy = dyn FnMut(usize, usize, &[u8]) -> LinkAction;

/// A message as delivered to a receiver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub timestamp: u64,
    pub from: u32,
    pub index: u16,
    pub payload: Vec<u8>,
    pub is_unordered: bool,
}

pub struct TestNet {
    pub ns: u64,
    /// Offset of each process's clock from the true time, in ns.
    pub skew: Vec<i64>,
    pub ends: Vec<Endpoint>,
    /// Messages delivered by best effort, by the reliable service, and by both in order of
    /// delivery.
    pub logs: Vec<Vec<Seen>>,
    pub reliable_logs: Vec<Vec<Seen>>,
    pub merged_logs: Vec<Vec<Seen>>,
    pub failed: Vec<Vec<SendFailed>>,
    pub links_lost: Vec<Vec<Port>>,
    /// Applications that do not consume messages.
    pub is_stalled: Vec<bool>,
    pub is_dead: Vec<bool>,
    pub delay_ns: u64,
    in_flight: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    /// The earliest arrival of the next frame of a pair, which keeps links FIFO.
    free_at: BTreeMap<(usize, usize), u64>,
    sequence: u64,
    pub policy: Box<LinkPolicy>,
    pub frames: u64,
    scratch: Vec<u8>,
}

pub const ORIGIN_NS: u64 = 1 << 50;

pub fn config(process: u32, processes: u32) -> Config {
    Config {
        processes_max: processes,
        links: Links::Mesh,
        ..Config::new(ProcessId(process), Incarnation(1))
    }
}

impl TestNet {
    pub fn new(processes: u32, tune: impl Fn(&mut Config)) -> Self {
        let ends = (0..processes)
            .map(|process| {
                let mut config = config(process, processes);
                tune(&mut config);
                Endpoint::new(config).expect("a valid configuration")
            })
            .collect();
        let n = processes as usize;
        Self {
            ns: 1_000,
            skew: vec![0; n],
            ends,
            logs: vec![Vec::new(); n],
            reliable_logs: vec![Vec::new(); n],
            merged_logs: vec![Vec::new(); n],
            failed: vec![Vec::new(); n],
            links_lost: vec![Vec::new(); n],
            is_stalled: vec![false; n],
            is_dead: vec![false; n],
            delay_ns: 1_000,
            in_flight: BTreeMap::new(),
            free_at: BTreeMap::new(),
            sequence: 0,
            policy: Box::new(|_, _, _| LinkAction::Pass),
            frames: 0,
            scratch: vec![0; 65_536],
        }
    }

    pub fn now(&self, at: usize) -> Now {
        let sync = (ORIGIN_NS + self.ns).wrapping_add(self.skew[at] as u64);
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(sync) }
    }

    pub fn scatter(&mut self, from: usize, messages: &[(u32, &[u8])]) -> ScatteringId {
        let messages: Vec<_> =
            messages.iter().map(|(to, payload)| Message { to: ProcessId(*to), payload }).collect();
        self.ends[from].scatter(&messages).expect("the send buffer is large enough")
    }

    pub fn scatter_reliably(&mut self, from: usize, messages: &[(u32, &[u8])]) -> ScatteringId {
        let messages: Vec<_> =
            messages.iter().map(|(to, payload)| Message { to: ProcessId(*to), payload }).collect();
        self.ends[from].scatter_reliably(&messages).expect("the send buffer is large enough")
    }

    pub fn send_unordered(&mut self, from: usize, to: u32, payload: &[u8]) -> ScatteringId {
        let message = Message { to: ProcessId(to), payload };
        self.ends[from].send_unordered(message).expect("the send buffer is large enough")
    }

    /// Advances time by `ns`, in steps of at most 500 ns, or 15 us for long runs.
    pub fn run(&mut self, ns: u64) {
        let until = self.ns + ns;
        let step = (ns / 20_000).clamp(500, 15_000);
        while self.ns < until {
            self.ns = (self.ns + step).min(until);
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.ns {
                break;
            }
            let (from, to, mut bytes) = entry.remove();
            if !self.is_dead[to] {
                let now = self.now(to);
                self.ends[to].handle_frame(now, Port(from as u16), &mut bytes);
            }
        }
        for at in 0..self.ends.len() {
            if !self.is_dead[at] {
                self.drive(at);
            }
        }
    }

    fn drive(&mut self, at: usize) {
        let now = self.now(at);
        if self.ends[at].poll_timeout().is_some_and(|due| due <= now.mono) {
            self.ends[at].handle_timeout(now);
        }
        while let Some(transmit) = {
            let scratch = &mut self.scratch;
            self.ends[at].poll_transmit(now, scratch)
        } {
            let bytes = self.scratch[..transmit.bytes].to_vec();
            self.send(at, transmit.port.index(), bytes);
        }
        // A beacon to every peer, as on shared memory.
        let promises = self.ends[at].promises().expect("the clock was read before");
        for to in (0..self.ends.len()).filter(|to| *to != at) {
            let mut beacon = vec![0; 64];
            let header = onepipe_wire::Header::new(
                onepipe_wire::Opcode::Beacon,
                ProcessId(at as u32),
                ProcessId(to as u32),
                Incarnation(1),
            );
            let header = header.stamped(promises.barrier, promises, onepipe_base::Psn::FIRST);
            let bytes = onepipe_wire::seal(&mut beacon, header, 0);
            beacon.truncate(bytes);
            let key = (self.arrival(at, to), self.sequence);
            self.sequence += 1;
            self.in_flight.insert(key, (at, to, beacon));
        }
        self.collect(at);
    }

    fn arrival(&mut self, from: usize, to: usize) -> u64 {
        let free = self.free_at.entry((from, to)).or_default();
        *free = (*free).max(self.ns + self.delay_ns);
        *free
    }

    fn send(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        self.frames += 1;
        let policy = (self.policy)(from, to, &bytes);
        let mut at = self.arrival(from, to);
        match policy {
            LinkAction::Drop => return,
            LinkAction::Corrupt => {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
            }
            LinkAction::MarkCongestion => onepipe_wire::mark_congestion(&mut bytes),
            LinkAction::Delay(ns) => at += ns,
            LinkAction::Duplicate => {
                self.in_flight.insert((at, self.sequence), (from, to, bytes.clone()));
                self.sequence += 1;
            }
            LinkAction::Pass => {}
        }
        self.in_flight.insert((at, self.sequence), (from, to, bytes));
        self.sequence += 1;
    }

    fn collect(&mut self, at: usize) {
        while !self.is_stalled[at] {
            match self.ends[at].poll_event() {
                Some(Event::Delivered(delivery)) => {
                    let payload = self.ends[at].payload(&delivery).to_vec();
                    let seen = Seen {
                        timestamp: delivery.timestamp.as_ns(),
                        from: delivery.from.0,
                        index: delivery.index,
                        payload,
                        is_unordered: delivery.is_unordered,
                    };
                    match delivery.service {
                        Service::BestEffort => self.logs[at].push(seen.clone()),
                        Service::Reliable => self.reliable_logs[at].push(seen.clone()),
                    }
                    self.merged_logs[at].push(seen);
                    self.ends[at].release(delivery);
                }
                Some(Event::SendFailed(failed)) => self.failed[at].push(failed),
                Some(Event::LinkLost(port)) => self.links_lost[at].push(port),
                Some(_) | None => break,
            }
        }
    }

    /// Checks that every receiver's log ascends.
    pub fn check_order(&self) {
        for log in self.logs.iter().chain(&self.reliable_logs) {
            let ordered: Vec<_> = log.iter().filter(|seen| !seen.is_unordered).collect();
            for pair in ordered.windows(2) {
                let key = |seen: &Seen| (seen.timestamp, seen.from, seen.index);
                assert!(key(pair[0]) < key(pair[1]), "out of order: {:?}", &pair);
            }
        }
    }

    pub fn lost(&self, at: usize) -> usize {
        self.failed[at].iter().filter(|failed| failed.outcome == Outcome::Lost).count()
    }
}
