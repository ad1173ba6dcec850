//! Processes in a mesh with a scripted controller: complete failures, from link timeout to resume.
//! Deterministic; time advances only when the test says so.

use std::collections::BTreeMap;

use onepipe_base::{
    Address, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises,
    ScatteringId, Timestamp,
};
use onepipe_endpoint::{
    Config, Endpoint, Event, Links, Message, Outcome, ProcessFailed, SendFailed, Service,
};
use onepipe_wire::{Header, Opcode, parse_header, seal_with_hops};

use super::controller::ScriptedController;

/// What a link does with a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LinkAction {
    Pass,
    Drop,
    Duplicate,
    /// Delivers the frame this many ns late, behind others.
    Delay(u64),
}

/// Chooses the action for a frame by its source, destination and opcode. Beacons always pass.
pub type LinkPolicy = dyn FnMut(usize, usize, Opcode) -> LinkAction;

/// A message as delivered to a receiver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub timestamp: u64,
    pub from: u32,
    pub index: u16,
    pub tag: u64,
}

/// A submitted scattering.
pub struct Sent {
    pub from: usize,
    pub incarnation: u32,
    pub id: ScatteringId,
    pub to: Vec<u32>,
    pub tag: u64,
}

/// One incarnation of a process.
pub struct Node {
    pub end: Endpoint,
    pub incarnation: u32,
    pub is_dead: bool,
    pub started_ns: u64,
    pub log: Vec<Seen>,
    pub failed: Vec<SendFailed>,
    pub reported: Vec<ProcessFailed>,
    pub excluded: Option<Timestamp>,
    pub recovered: Option<Timestamp>,
    /// The application does not poll events, or does not return from its callbacks.
    pub is_stalled: bool,
    pub is_callback_stalled: bool,
    /// The process crashes after this many more frames other than beacons.
    pub crashes_after: Option<u32>,
    callbacks: u32,
    promised: Option<Promises>,
    barrier: Option<Timestamp>,
}

pub struct Mesh {
    pub ns: u64,
    pub nodes: Vec<Node>,
    pub controller: ScriptedController,
    pub sent: Vec<Sent>,
    /// Logs of previous incarnations: process, incarnation, log.
    pub past: Vec<(usize, u32, Vec<Seen>)>,
    pub policy: Box<LinkPolicy>,
    pub delay_ns: u64,
    tune: fn(&mut Config),
    in_flight: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    free_at: BTreeMap<(usize, usize), u64>,
    sequence: u64,
}

pub const ORIGIN_NS: u64 = 1 << 50;

fn node(process: u32, processes: u32, incarnation: u32, ns: u64, tune: fn(&mut Config)) -> Node {
    let mut config = Config {
        processes_max: processes + 1,
        links: Links::Mesh,
        controllers: Some(Controllers { first: ProcessId(processes), count: 1 }),
        ..Config::new(ProcessId(process), Incarnation(incarnation))
    };
    tune(&mut config);
    Node {
        end: Endpoint::new(config).expect("a valid configuration"),
        incarnation,
        is_dead: false,
        started_ns: ns,
        log: Vec::new(),
        failed: Vec::new(),
        reported: Vec::new(),
        excluded: None,
        recovered: None,
        is_stalled: false,
        is_callback_stalled: false,
        crashes_after: None,
        callbacks: 0,
        promised: None,
        barrier: None,
    }
}

impl Mesh {
    /// Creates `processes` processes with two-way links.
    pub fn new(processes: u32, tune: fn(&mut Config)) -> Self {
        let mut mesh = Self {
            ns: 1_000,
            nodes: (0..processes).map(|process| node(process, processes, 1, 0, tune)).collect(),
            controller: ScriptedController::new(processes),
            sent: Vec::new(),
            past: Vec::new(),
            policy: Box::new(|_, _, _| LinkAction::Pass),
            delay_ns: 1_000,
            tune,
            in_flight: BTreeMap::new(),
            free_at: BTreeMap::new(),
            sequence: 0,
        };
        mesh.run(100_000);
        mesh
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(ORIGIN_NS + self.ns) }
    }

    /// Submits a reliable scattering with messages of `bytes` bytes, the first 8 of which identify
    /// it.
    pub fn scatter(&mut self, from: usize, to: &[u32], bytes: usize) {
        let tag = self.sent.len() as u64;
        let mut payload = vec![tag as u8; bytes.max(8)];
        payload[..8].copy_from_slice(&tag.to_be_bytes());
        let messages: Vec<_> =
            to.iter().map(|to| Message { to: ProcessId(*to), payload: &payload }).collect();
        let node = &mut self.nodes[from];
        if let Ok(id) = node.end.scatter_reliably(&messages) {
            self.sent.push(Sent { from, incarnation: node.incarnation, id, to: to.to_vec(), tag });
        }
    }

    pub fn kill(&mut self, process: usize) {
        self.nodes[process].is_dead = true;
        self.controller.on_death(process, self.nodes[process].incarnation, self.ns);
    }

    /// Restarts the process with a new incarnation.
    pub fn restart(&mut self, process: usize) {
        if !self.nodes[process].is_dead {
            self.kill(process);
        }
        let incarnation = self.nodes[process].incarnation + 1;
        let fresh = node(process as u32, self.nodes.len() as u32, incarnation, self.ns, self.tune);
        let old = std::mem::replace(&mut self.nodes[process], fresh);
        self.past.push((process, old.incarnation, old.log));
    }

    /// Advances time by `ns` in steps of 500 ns.
    pub fn run(&mut self, ns: u64) {
        let until = self.ns + ns;
        while self.ns < until {
            self.ns += 500;
            self.step();
        }
    }

    /// Runs until every message is resolved and every failure is handled. Panics after `ns`.
    pub fn run_until_idle(&mut self, ns: u64) {
        let until = self.ns + ns;
        while self.ns < until {
            self.run(20_000);
            let live = || self.nodes.iter().filter(|node| !node.is_dead && node.excluded.is_none());
            let is_idle = live().all(|node| {
                let promises = node.end.promises().expect("the clock was read before");
                let commit = node.end.commit_barrier();
                node.end.is_drained()
                    && (node.end.pending() == 0 || node.is_stalled)
                    && promises.commit == promises.barrier
                    && commit.is_some_and(|commit| commit.as_ns() + 20_000 > ORIGIN_NS + self.ns)
            });
            if is_idle && self.controller.is_idle() {
                return;
            }
        }
        let promises: Vec<_> = self.nodes.iter().map(|node| node.end.commit_barrier()).collect();
        panic!("not idle: {promises:?} {}", self.controller.describe());
    }

    fn step(&mut self) {
        let controller = self.nodes.len();
        while let Some(entry) =
            self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.ns)
        {
            let (from, to, mut bytes) = entry.remove();
            if to == controller {
                self.controller.take(from, &bytes, Timestamp::from_ns(ORIGIN_NS + self.ns));
            } else if !self.nodes[to].is_dead {
                let now = self.now();
                self.nodes[to].end.handle_frame(now, Port(from as u16), &mut bytes);
                self.check(to);
            }
        }
        for at in 0..controller {
            if !self.nodes[at].is_dead {
                self.drive(at);
            }
        }
        let live: Vec<_> = (0..controller)
            .filter(|at| !self.nodes[*at].is_dead && self.nodes[*at].excluded.is_none())
            .map(|at| (at, self.nodes[at].incarnation, self.nodes[at].started_ns))
            .collect();
        let commits = live.iter().filter_map(|(at, ..)| self.nodes[*at].end.commit_barrier());
        let complete = commits.min().unwrap_or(Timestamp::from_ns(0));
        for (to, bytes) in self.controller.step(self.ns, &live, complete) {
            self.send(controller, to, bytes);
        }
    }

    fn drive(&mut self, at: usize) {
        let now = self.now();
        if self.nodes[at].end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.nodes[at].end.handle_timeout(now);
        }
        let mut slot = vec![0; self.nodes[at].end.config().frame_len_max];
        loop {
            let end = &mut self.nodes[at].end;
            let is_due = end.poll_timeout().is_some_and(|due| due <= now.mono);
            let is_hinted = end.wants_transmit() || is_due;
            let Some(transmit) = end.poll_transmit(now, &mut slot) else { break };
            assert!(is_hinted, "wants_transmit() was false before {:?}", parse_header(&slot));
            if let Some(left) = &mut self.nodes[at].crashes_after {
                if *left == 0 {
                    return self.kill(at);
                }
                *left -= 1;
            }
            self.send(at, transmit.port.index(), slot[..transmit.bytes].to_vec());
        }
        let next = self.nodes[at].end.poll_timeout();
        assert!(next.is_none_or(|due| due > now.mono), "due again at once: {next:?}");
        self.check(at);
        self.beacon(at);
        self.collect(at);
    }

    /// Sends a beacon to every peer, as on shared memory.
    fn beacon(&mut self, at: usize) {
        let node = &self.nodes[at];
        let promises = node.end.promises().expect("the clock was read before");
        let address = Address::Process(ProcessId(at as u32));
        let own = Instance { address, incarnation: Incarnation(node.incarnation) };
        for to in (0..self.nodes.len()).filter(|to| *to != at) {
            let mut bytes = vec![0; 64];
            let header = Header::hop_only(Opcode::Beacon, own, None, promises);
            let length = seal_with_hops(&mut bytes, header, 0, 1);
            bytes.truncate(length);
            let key = (self.arrival(at, to), self.sequence);
            self.sequence += 1;
            self.in_flight.insert(key, (at, to, bytes));
        }
    }

    fn arrival(&mut self, from: usize, to: usize) -> u64 {
        let free = self.free_at.entry((from, to)).or_default();
        *free = (*free).max(self.ns + self.delay_ns);
        *free
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let opcode = parse_header(&bytes).expect("sealed").1;
        let mut at = self.arrival(from, to);
        match (self.policy)(from, to, opcode) {
            LinkAction::Drop => return,
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

    /// Checks that promises and barriers never decrease and that buffers stay within their sizes.
    fn check(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let promises = node.end.promises();
        if let (Some(then), Some(now)) = (node.promised, promises) {
            assert!(now.barrier >= then.barrier, "the promise of {at} decreases");
            assert!(now.commit >= then.commit, "the commit promise of {at} decreases");
        }
        let barrier = node.end.commit_barrier();
        assert!(barrier >= node.barrier, "the commit barrier of {at} decreases");
        (node.promised, node.barrier) = (promises, barrier);
        let config = node.end.config();
        assert!(node.end.receive_buffer_bytes() <= 2 * config.receive_buffer_bytes_max as u64);
        assert!(node.end.send_buffer_bytes() <= 2 * config.send_buffer_bytes_max);
    }

    fn collect(&mut self, at: usize) {
        let now = self.now();
        let node = &mut self.nodes[at];
        while !node.is_stalled {
            match node.end.poll_event() {
                Some(Event::Delivered(delivery)) => {
                    let payload = node.end.payload(&delivery);
                    let tag = payload[..8].try_into().expect("a tag");
                    node.log.push(Seen {
                        timestamp: delivery.timestamp.as_ns(),
                        from: delivery.from.0,
                        index: delivery.index,
                        tag: u64::from_be_bytes(tag),
                    });
                    node.end.release(delivery);
                }
                Some(Event::SendFailed(failed)) => node.failed.push(failed),
                Some(Event::ProcessFailed(failed)) => {
                    node.reported.push(failed);
                    node.callbacks += 1;
                }
                Some(Event::Excluded(at)) => {
                    node.excluded = Some(at);
                    node.end.recover(now);
                }
                Some(Event::Recovered(complete)) => node.recovered = Some(complete),
                Some(_) => {}
                None => break,
            }
        }
        if !node.is_callback_stalled {
            for _ in 0..std::mem::take(&mut node.callbacks) {
                node.end.on_failure_handled();
            }
        }
    }

    /// Checks I1, I4, I6, I7 and I8. Orders ascend. Every scattering is delivered by all correct
    /// and recovered receivers or by none: by all if no receiver failed, by none if it is reported
    /// as lost. A failed sender's scattering is delivered only below its failure timestamp.
    pub fn check_all(&self) {
        let logs =
            self.nodes.iter().enumerate().map(|(at, node)| (at, node.incarnation, &node.log));
        let logs: Vec<_> = logs
            .chain(self.past.iter().map(|(at, incarnation, log)| (*at, *incarnation, log)))
            .collect();
        for (at, _, log) in &logs {
            for pair in log.windows(2) {
                let key = |seen: &Seen| (seen.timestamp, seen.from, seen.index);
                assert!(key(&pair[0]) < key(&pair[1]), "at {at} out of order: {pair:?}");
            }
        }
        let is_correct = |process: u32| {
            let node = &self.nodes[process as usize];
            node.incarnation == 1
                && !node.is_dead
                && (node.excluded.is_none() || node.recovered.is_some())
        };
        for sent in &self.sent {
            let has = |to: &&u32| self.nodes[**to as usize].log.iter().any(|s| s.tag == sent.tag);
            let correct: Vec<_> = sent.to.iter().filter(|to| is_correct(**to)).collect();
            let count = correct.iter().filter(|to| has(to)).count();
            let what = || format!("scattering {} of {} to {:?}", sent.tag, sent.from, sent.to);
            assert!(count == 0 || count == correct.len(), "{}: {count} have delivered it", what());
            let sender = &self.nodes[sent.from];
            if sender.incarnation == sent.incarnation && !sender.is_dead {
                let of_it = |failed: &&SendFailed| {
                    (failed.service, failed.scattering) == (Service::Reliable, sent.id)
                };
                let reports = sender.failed.iter().filter(of_it).count();
                assert!(reports == 0 || reports == sent.to.len(), "{}: {reports} reports", what());
                let is_lost =
                    sender.failed.iter().filter(of_it).any(|f| f.outcome == Outcome::Lost);
                assert!(!is_lost || count == 0, "{} is reported as lost but delivered", what());
                if sender.excluded.is_none() {
                    let is_nowhere = count == 0 && !correct.is_empty();
                    assert_eq!(is_lost, is_nowhere || reports > 0, "{}", what());
                }
            }
            let seen = logs.iter().flat_map(|(_, _, log)| log.iter()).find(|s| s.tag == sent.tag);
            if let Some(at) = self.controller.failed_at(sent.from, sent.incarnation)
                && let Some(seen) = seen
            {
                assert!(
                    seen.timestamp < at.as_ns(),
                    "{} is above its sender's failure timestamp",
                    what()
                );
            }
        }
    }
}
