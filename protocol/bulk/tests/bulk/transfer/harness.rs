//! Test harness: members of a group in virtual time, on links with configurable faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit};
use onepipe_bulk::{Config, Event, Gathered, Group, GroupId, Link, Member, Outcome};

/// Deterministic random generator (xorshift64*).
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end.max(1)
    }

    /// Returns `true` with this probability in 1/1000.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// Fault rates of links, in 1/1000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    pub corruption: u64,
}

/// Behaviour of a member's application, and the events it has received.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// Time from the announcement of an object until its memory is provided, in ns.
    pub memory_after_ns: u64,
    pub declines: bool,
    pub delivered: Vec<(u32, Vec<u8>)>,
    pub stable: BTreeMap<u32, Vec<u8>>,
    pub lost: Vec<u32>,
    pub failed: Vec<u32>,
    pub closed: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    Frame { to: usize, from: usize, bytes: Vec<u8> },
    Wake(usize),
    Memory { at: usize, object: u32, bytes: u64 },
}

pub struct Harness {
    pub groups: Vec<Option<Group>>,
    pub apps: Vec<Application>,
    pub now: u64,
    pub faults: Faults,
    pub rng: Rng,
    pub link: Link,
    /// Time per byte of each member's interface, in ns.
    pub byte_ns: Vec<u64>,
    pub latency_ns: u64,
    /// Time per byte of slow links, in ns.
    pub slow: BTreeMap<(usize, usize), u64>,
    /// Until when each member's interface and each slow link is busy.
    receive_free_at: Vec<u64>,
    slow_until: BTreeMap<(usize, usize), u64>,
    /// Further faults: may change a frame; `false` drops it.
    #[allow(clippy::type_complexity)]
    pub frame_fault: Box<dyn FnMut(u64, usize, usize, &mut Vec<u8>) -> bool>,
    free_at: Vec<u64>,
    wakes: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    /// Last arrival by link: FIFO links do not reorder.
    arrival: BTreeMap<(usize, usize), u64>,
    count: u64,
    /// Whether payloads are placed directly into objects.
    pub is_zero_copy: bool,
    /// Number of frames with pieces sent, and with first pieces of blocks.
    pub frames: u64,
    pub steps: u64,
}

/// Returns the configuration of a member of a group of `n`.
pub fn config(n: usize, own: usize, link: Link) -> Config {
    let member = |rank: usize| Member {
        process: ProcessId(100 + rank as u32),
        port: Port(rank as u16),
        link,
    };
    let members = (0..n).map(member).collect();
    Config {
        block_len: 1_000,
        piece_len: 300,
        frame_len_max: 700,
        ..Config::new(GroupId(7), members, own as u32, Incarnation(3))
    }
}

impl Harness {
    pub fn new(n: usize, link: Link, seed: u64, change: impl Fn(&mut Config)) -> Self {
        let group = |own| {
            let mut config = config(n, own, link);
            change(&mut config);
            Some(Group::new(config).expect("a group"))
        };
        let mut harness = Self {
            groups: (0..n).map(group).collect(),
            apps: vec![Application::default(); n],
            now: 1_000,
            faults: Faults::default(),
            rng: Rng::new(seed),
            link,
            byte_ns: vec![1; n],
            latency_ns: 5_000,
            slow: BTreeMap::new(),
            receive_free_at: vec![0; n],
            slow_until: BTreeMap::new(),
            frame_fault: Box::new(|_, _, _, _| true),
            free_at: vec![0; n],
            is_zero_copy: false,
            wakes: vec![u64::MAX; n],
            queue: BinaryHeap::new(),
            arrival: BTreeMap::new(),
            count: 0,
            frames: 0,
            steps: 0,
        };
        (0..n).for_each(|at| harness.drain(at));
        harness
    }

    pub fn group(&mut self, at: usize) -> &mut Group {
        self.groups[at].as_mut().expect("a live machine")
    }

    /// Runs a command on a member, and drains its output.
    pub fn act<T>(&mut self, at: usize, act: impl FnOnce(&mut Group) -> T) -> T {
        let done = act(self.group(at));
        self.drain(at);
        done
    }

    /// Stalls a member: its input is delayed for this time.
    pub fn stall(&mut self, at: usize, for_ns: u64) {
        self.receive_free_at[at] = self.now + for_ns;
    }

    pub fn kill(&mut self, at: usize) {
        self.groups[at] = None;
    }

    fn clock(&self) -> Now {
        Now { mono: Mono::from_ns(self.now), sync: Timestamp::from_ns((1 << 50) + self.now) }
    }

    fn push(&mut self, at: u64, what: SimEvent) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count, what)));
    }

    /// Drains the output of a member until its interface is busy.
    fn drain(&mut self, at: usize) {
        let now = self.clock();
        let mut slot = [0; 2_048];
        while let Some(group) = &mut self.groups[at] {
            while let Some(event) = group.poll_event() {
                let app = &mut self.apps[at];
                match event {
                    Event::Announced { object, .. } if app.declines => group.decline(object),
                    Event::Announced { object, bytes } => {
                        let answer = self.now + app.memory_after_ns;
                        self.count += 1;
                        let what = SimEvent::Memory { at, object, bytes };
                        self.queue.push(Reverse((answer, self.count, what)));
                    }
                    Event::Delivered { object } => {
                        let bytes = group.bytes(object).map(<[u8]>::to_vec);
                        app.delivered.push((object, bytes.unwrap_or_default()));
                    }
                    Event::Stable { object, memory } => {
                        assert!(app.stable.insert(object, memory).is_none());
                    }
                    Event::Lost { object } => app.lost.push(object),
                    Event::Failed(failure) => app.failed.push(failure.rank),
                    Event::Closed(outcome) => {
                        assert_eq!(app.closed.replace(outcome), None, "closed twice");
                    }
                    _ => unreachable!("an event of this version"),
                }
            }
            if self.free_at[at] > self.now {
                self.wake(at, self.free_at[at]);
                break;
            }
            let sent = match self.is_zero_copy {
                true => group.poll_gather(now, &mut slot),
                false => group.poll_transmit(now, &mut slot).map(Gathered::from),
            };
            let Some(sent) = sent else { break };
            self.frames += 1;
            let to = usize::from(sent.header.port.0);
            let bytes = [&slot[..sent.header.bytes], group.payload(&sent)].concat();
            let sent = Transmit { bytes: bytes.len(), ..sent.header };
            self.free_at[at] = self.now + sent.bytes as u64 * self.byte_ns[at];
            self.transmit(at, to, bytes);
        }
        let next = self.groups[at].as_ref().and_then(|group| group.poll_timeout());
        if let Some(next) = next {
            // While the interface is busy, the wake at its end covers earlier deadlines.
            self.wake(at, next.as_ns().max(self.now + 1).max(self.free_at[at]));
        }
    }

    fn wake(&mut self, at: usize, when: u64) {
        if when < self.wakes[at] {
            self.wakes[at] = when;
            self.push(when, SimEvent::Wake(at));
        }
    }

    fn transmit(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        let mut left = self.free_at[from];
        if let Some(byte_ns) = self.slow.get(&(from, to)) {
            let until = self.slow_until.entry((from, to)).or_insert(0);
            *until = left.max(*until) + bytes.len() as u64 * byte_ns;
            left = *until;
        }
        if !(self.frame_fault)(self.now, from, to, &mut bytes) {
            return;
        }
        let faults = self.faults;
        if self.rng.happens(faults.corruption) {
            let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // A member receives at the rate at which it sends, one frame after the other.
        let taken = &mut self.receive_free_at[to];
        let takes = bytes.len() as u64 * self.byte_ns[to];
        *taken = (left + self.latency_ns).max(*taken + takes);
        let mut arrives = *taken;
        if self.link == Link::Lossy {
            if self.rng.happens(faults.loss) {
                return;
            }
            if self.rng.happens(faults.reordering) {
                arrives += self.rng.below(20 * self.latency_ns);
            }
            if self.rng.happens(faults.duplication) {
                let later = arrives + self.rng.below(20 * self.latency_ns);
                self.push(later, SimEvent::Frame { to, from, bytes: bytes.clone() });
            }
        } else {
            let last = self.arrival.entry((from, to)).or_insert(0);
            arrives = arrives.max(*last + 1);
            *last = arrives;
        }
        self.push(arrives, SimEvent::Frame { to, from, bytes });
    }

    /// Processes one event. Returns `false` if there is none left.
    pub fn step(&mut self) -> bool {
        let Some(Reverse((at, _, what))) = self.queue.pop() else { return false };
        self.steps += 1;
        assert!(self.steps < 2_000_000, "time does not advance");
        self.now = self.now.max(at);
        let now = self.clock();
        match what {
            SimEvent::Frame { to, from, mut bytes } => {
                if let Some(group) = &mut self.groups[to] {
                    match self.is_zero_copy.then(|| group.begin_placement(&bytes)).flatten() {
                        None => _ = group.handle_frame(now, Port(from as u16), &mut bytes),
                        Some(placement) => {
                            let behind = &bytes[bytes.len() - placement.piece_len()..];
                            group
                                .placement_mut(&placement)
                                .expect("a complete object")
                                .copy_from_slice(behind);
                            group.handle_placed(now, Port(from as u16), &placement);
                        }
                    }
                    self.drain(to);
                }
            }
            SimEvent::Wake(member) => {
                if at >= self.wakes[member] {
                    self.wakes[member] = u64::MAX;
                    if let Some(group) = &mut self.groups[member] {
                        group.handle_timeout(now);
                        self.drain(member);
                    }
                }
            }
            SimEvent::Memory { at, object, bytes } => {
                if let Some(group) = &mut self.groups[at] {
                    let _ = group.provide(object, vec![0xee; bytes as usize]);
                    self.drain(at);
                }
            }
        }
        true
    }

    /// Runs until all live members are done, for this time at most.
    pub fn run(&mut self, for_ns: u64) -> bool {
        let is_done = self.run_until_done(for_ns);
        self.groups.iter().flatten().for_each(Group::check_invariants);
        is_done
    }

    fn run_until_done(&mut self, for_ns: u64) -> bool {
        let end = self.now + for_ns;
        while self.now < end {
            if self.groups.iter().flatten().all(Group::is_done) {
                return true;
            }
            if !self.step() {
                return false;
            }
        }
        false
    }

    /// Runs until `is_true` holds, for this time at most.
    pub fn run_until(&mut self, for_ns: u64, mut is_true: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + for_ns;
        while !is_true(self) {
            if self.now >= end || !self.step() {
                return false;
            }
        }
        true
    }
}

/// Returns the content of an object, which differs between objects.
pub fn object(number: u32, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number) + 77);
    (0..bytes).map(|_| rng.below(256) as u8).collect()
}

pub const SECOND: u64 = 1_000_000_000;
