//! A model of the fabric: messages are delivered in one order, each process lags behind by its own
//! time, scatterings and replies are lost, processes fail.

#![allow(dead_code, reason = "each test uses a part")]

pub mod check;
pub mod registers;

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, Client, ClientOptions, Committed, Finished, Kind, OutgoingScattering,
    Placement, ReadMode, Record, Replica, ReplicaOptions, TransactionId,
};
use registers::Registers;

const SHARDS: u16 = 3;
const REPLICAS: u16 = 2;
const CLIENTS: u32 = 3;
/// Processes 0 to 5 are replicas, 6 to 8 clients.
const FIRST_CLIENT: u32 = (SHARDS * REPLICAS) as u32;
/// A process has received all below the clock less its lag, at most this.
const LAG_MAX_NS: u64 = 400;
const TIMEOUT_NS: u64 = 2_000;

/// Returns the options of a client. Timeouts that follow response times may be shorter
/// than [`TIMEOUT_NS`].
fn client_options(faults: &Faults) -> ClientOptions {
    ClientOptions {
        is_durable: faults.is_durable,
        timeout_ns: TIMEOUT_NS,
        timeout_min_ns: LAG_MAX_NS,
        ..ClientOptions::default()
    }
}

/// A pseudo-random sequence (xorshift64*).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn placement() -> Placement {
    Placement::consecutive(0, SHARDS, REPLICAS).expect("two replicas of each shard")
}

/// When a transaction was submitted, and what it does.
type Started = (u64, Kind, Vec<(u16, Vec<u8>)>);

/// What a replica has written to its disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// A state of its own, or one that it has taken over from another replica: the number of its
    /// last record, the position of that, and the bytes.
    pub image: Option<(u64, (Timestamp, ProcessId), Vec<u8>)>,
    /// What it has executed since.
    pub records: Vec<Record>,
    /// The image and this many records are certainly on the disk. `None`: not even the image.
    pub stored: Option<usize>,
    /// An image of the replica's own that does not count yet: others may need the records before.
    pub next_image: Option<(u64, (Timestamp, ProcessId), Vec<u8>)>,
}

impl Disk {
    /// Whether the write at a timestamp is certainly on the disk.
    fn has(&self, at: Timestamp) -> bool {
        let Some(stored) = self.stored else { return false };
        self.image.as_ref().is_some_and(|(_, (last, _), _)| at <= *last)
            || self.records[..stored].iter().any(|record| record.at == at)
    }

    /// Whether all that was executed up to a timestamp is certainly on the disk.
    fn has_all_until(&self, at: Timestamp) -> bool {
        self.stored.is_some_and(|stored| self.records[stored..].iter().all(|one| one.at > at))
    }

    /// Makes the next image count if all others have stored what it holds, by `is_stored`. Returns
    /// its last timestamp.
    fn install(&mut self, is_stored: impl FnOnce(Timestamp) -> bool) -> Option<Timestamp> {
        let next = self.next_image.take_if(|(_, (at, _), _)| is_stored(*at))?;
        let count = self.records.partition_point(|record| record.number <= next.0);
        self.records.drain(..count);
        self.stored = self.stored.map(|stored| stored.saturating_sub(count));
        let at = next.1.0;
        self.image = Some(next);
        Some(at)
    }
}

/// A message in flight.
struct Message {
    timestamp: u64,
    from: ProcessId,
    to: ProcessId,
    is_reliable: bool,
    payload: Vec<u8>,
}

/// A transaction as its client saw it.
#[derive(Debug)]
pub struct Observed {
    pub client: usize,
    pub kind: Kind,
    pub parts: Vec<(u16, Vec<u8>)>,
    pub invoked: u64,
    pub completed: u64,
    pub committed: Committed,
}

/// What goes wrong, in percent of the scatterings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A scattering is recalled and reported (reliable), or lost at one receiver (best effort).
    pub lost: u64,
    /// A reply is lost, and the replica does not know.
    pub reply_lost: u64,
    /// A reliable scattering that was delivered is reported as failed all the same: its outcome is
    /// unknown to the client.
    pub unknown: u64,
    /// One replica of each of the first two shards fails half-way.
    pub fails: bool,
    /// The failed replicas return without their state, and a client that knows of nothing starts.
    pub returns: bool,
    /// Replicas store what they execute.
    pub is_durable: bool,
}

pub struct Fabric {
    random: Random,
    /// When replicas take snapshots: a sequence of its own.
    snapshot_random: Random,
    faults: Faults,
    clock: u64,
    last_stamp: u64,
    messages: BTreeMap<(u64, u32, u64), Message>,
    sequence: u64,
    pub replicas: BTreeMap<ProcessId, Replica<Registers>>,
    pub disks: BTreeMap<ProcessId, Disk>,
    /// The request of each write that a durable replica has executed, by position.
    pub executed: BTreeMap<(Timestamp, ProcessId), Vec<u8>>,
    /// The disks, and how many transactions were observed, when the power failed.
    pub power_loss: Option<(BTreeMap<ProcessId, Disk>, usize)>,
    /// Violations that were found while the model ran.
    pub violations: Vec<String>,
    clients: Vec<Client>,
    /// What is added to the index of a client in [`Observed::client`], so that it differs from
    /// those of the clients that it has replaced.
    generations: [usize; CLIENTS as usize],
    lags: BTreeMap<ProcessId, u64>,
    failed: BTreeSet<ProcessId>,
    /// Which processes have failed, and when.
    ended: Vec<(ProcessId, Timestamp)>,
    /// Which have started again.
    pub returned: BTreeSet<ProcessId>,
    started: BTreeMap<(usize, TransactionId), Started>,
    pub observed: Vec<Observed>,
    /// When a sender is notified of a failed scattering, and of which.
    reports: Vec<(u64, ProcessId, bool, ScatteringId)>,
}

impl Fabric {
    pub fn new(seed: u64, faults: Faults) -> Self {
        let options = ReplicaOptions { is_durable: faults.is_durable };
        let replica = |process: u32| {
            let shard = (process / u32::from(REPLICAS)) as u16;
            let replica = Replica::new(shard, Registers::default(), options);
            (ProcessId(process), replica.with_placement(ProcessId(process), placement()))
        };
        let client = |_| {
            let options = client_options(&faults);
            Client::new(7, placement(), options)
        };
        Self {
            random: Random::new(seed),
            snapshot_random: Random::new(seed ^ 0x5a),
            faults,
            clock: 1_000_000,
            last_stamp: 0,
            messages: BTreeMap::new(),
            sequence: 0,
            replicas: (0..FIRST_CLIENT).map(replica).collect(),
            disks: BTreeMap::new(),
            executed: BTreeMap::new(),
            power_loss: None,
            violations: Vec::new(),
            clients: (0..CLIENTS).map(client).collect(),
            generations: [0; CLIENTS as usize],
            lags: BTreeMap::new(),
            failed: BTreeSet::new(),
            ended: Vec::new(),
            returned: BTreeSet::new(),
            started: BTreeMap::new(),
            observed: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// Submits random transactions for `steps` steps, then lets all end.
    pub fn run(&mut self, steps: u64) {
        for step in 0..steps {
            if self.random.percent(30) {
                self.submit();
            }
            if self.faults.fails && step == steps / 3 {
                self.fail(ProcessId(0));
                self.fail(ProcessId(3));
            }
            if self.faults.fails && self.faults.returns && step == steps / 2 {
                self.start_again(ProcessId(0));
                self.start_again(ProcessId(3));
            }
            if self.faults.returns && (step == steps / 2 + 1 || step == steps / 2 + 8) {
                self.start_client();
            }
            self.step();
            if step == steps - 10 {
                let runs = |process: &ProcessId| self.replicas.contains_key(process);
                let disks = self.disks.iter().filter(|(process, _)| runs(process));
                let disks = disks.map(|(process, disk)| (*process, disk.clone())).collect();
                self.power_loss = Some((disks, self.observed.len()));
            }
        }
        for _ in 0..1_000_000 {
            let is_done = self.clients.iter().all(|client| client.unfinished() == 0);
            if is_done && self.replicas.values().all(Replica::is_serving) {
                break;
            }
            self.step();
        }
        let open: Vec<usize> = self.clients.iter().map(Client::unfinished).collect();
        assert_eq!(open, [0; CLIENTS as usize], "all transactions end");
        // All replicas catch up.
        self.clock += 10 * LAG_MAX_NS;
        self.lags.clear();
        self.deliver();
    }

    fn submit(&mut self) {
        let client = self.random.below(u64::from(CLIENTS)) as usize;
        let kind = match self.random.below(4) {
            0 => Kind::Read(ReadMode::Strict),
            1 => Kind::Read(ReadMode::Snapshot),
            _ => Kind::Write,
        };
        let mut parts = Vec::new();
        let first = self.random.below(u64::from(SHARDS)) as u16;
        for shard in first..SHARDS {
            let register = self.random.below(2) as u8;
            let added = if kind == Kind::Write { self.random.below(200) as u8 + 1 } else { 0 };
            parts.push((shard, vec![register, added]));
        }
        let submitted = self.clients[client].submit(kind, parts.clone());
        let id = submitted.expect("few are unfinished");
        self.started.insert((client, id), (self.clock, kind, parts));
    }

    fn step(&mut self) {
        self.clock += 1 + self.random.below(60);
        for client in 0..self.clients.len() {
            let now = Mono::from_ns(self.clock);
            self.clients[client].handle_timeout(now);
            let barrier = self.barrier(ProcessId(FIRST_CLIENT + client as u32));
            while let Some(scattering) =
                self.clients[client].poll_scattering(now, Some(Timestamp::from_ns(barrier)))
            {
                if self.random.percent(5) {
                    self.clients[client].on_refused(&scattering);
                    break;
                }
                self.send(client, &scattering);
            }
        }
        let due: Vec<_> = self.reports.extract_if(.., |report| report.0 <= self.clock).collect();
        for (_, sender, is_reliable, id) in due {
            if let Some(replica) = self.replicas.get_mut(&sender) {
                replica.on_send_failed(id);
            } else if let Some(client) = sender.0.checked_sub(FIRST_CLIENT) {
                self.clients[client as usize].on_send_failed(is_reliable, id);
            }
        }
        self.send_of_replicas();
        self.deliver();
        self.finish();
    }

    /// Sends what replicas have for each other.
    fn send_of_replicas(&mut self) {
        let processes: Vec<ProcessId> = self.replicas.keys().copied().collect();
        for process in processes {
            let now = Mono::from_ns(self.clock);
            loop {
                let replica = self.replicas.get_mut(&process).expect("a replica");
                replica.handle_timeout(now);
                let Some(scattering) = replica.poll_scattering(now) else { break };
                if self.random.percent(5) {
                    let replica = self.replicas.get_mut(&process).expect("a replica");
                    replica.on_scattering_refused(scattering);
                    break;
                }
                self.sequence += 1;
                let id = ScatteringId(self.sequence);
                let replica = self.replicas.get_mut(&process).expect("a replica");
                replica.on_scattering_submitted(&scattering, id);
                self.transmit(process, id, scattering.is_reliable, &scattering.messages);
            }
        }
    }

    fn stamp(&mut self) -> u64 {
        self.last_stamp = (self.last_stamp + 1).max(self.clock);
        self.clock = self.last_stamp;
        self.last_stamp
    }

    fn send(&mut self, client: usize, scattering: &OutgoingScattering) {
        self.sequence += 1;
        let id = ScatteringId(self.sequence);
        self.clients[client].on_submitted(scattering, id);
        let from = ProcessId(FIRST_CLIENT + client as u32);
        self.transmit(from, id, scattering.is_reliable, &scattering.messages);
    }

    fn transmit(
        &mut self,
        from: ProcessId,
        id: ScatteringId,
        is_reliable: bool,
        messages: &[(ProcessId, Vec<u8>)],
    ) {
        let timestamp = self.stamp();
        let is_lost = self.random.percent(self.faults.lost)
            || messages.iter().any(|(to, _)| self.failed.contains(to));
        if is_lost {
            self.reports.push((self.clock + 300, from, is_reliable, id));
            if is_reliable {
                return;
            }
        } else if is_reliable && self.random.percent(self.faults.unknown) {
            self.reports.push((self.clock + 300, from, is_reliable, id));
        }
        for (index, (to, payload)) in messages.iter().enumerate() {
            if !(is_lost && index == 0) {
                self.enqueue(timestamp, from, *to, is_reliable, payload.clone());
            }
        }
    }

    fn enqueue(
        &mut self,
        timestamp: u64,
        from: ProcessId,
        to: ProcessId,
        is_reliable: bool,
        payload: Vec<u8>,
    ) {
        self.sequence += 1;
        let message = Message { timestamp, from, to, is_reliable, payload };
        self.messages.insert((timestamp, from.0, self.sequence), message);
    }

    /// Returns the commit barrier of a process. What is sent later has a timestamp above.
    fn barrier(&mut self, process: ProcessId) -> u64 {
        let lag = self.lags.entry(process).or_insert(0);
        if self.random.percent(20) {
            *lag = self.random.below(LAG_MAX_NS);
        }
        self.clock.saturating_sub(*lag)
    }

    /// Lets replicas take snapshots, ask each other what is stored, and install snapshots that may
    /// count.
    fn take_snapshots(&mut self) {
        let mut installed: Option<Timestamp> = None;
        for (process, replica) in &mut self.replicas {
            let Some(disk) = self.disks.get_mut(process).filter(|disk| disk.stored.is_some())
            else {
                continue;
            };
            installed = installed.max(disk.install(|last| replica.stored_by_all(last)));
            if !self.snapshot_random.percent(10) {
                continue;
            }
            if let Some((_, (last, _), _)) = &disk.next_image {
                replica.await_stored(*last);
                continue;
            }
            let mut image = Vec::new();
            let number = replica.save(&mut image);
            let is_new = disk.image.as_ref().is_none_or(|(last, ..)| number > *last);
            let position = replica.executed_position().filter(|_| is_new);
            disk.next_image = position.map(|position| (number, position, image));
        }
        let Some(at) = installed else { return };
        // A disk without the state of a peer is completed by that of the peer.
        let lacks = |process: &&ProcessId| {
            let disk = &self.disks[process];
            disk.stored.is_some() && !disk.has_all_until(at)
        };
        if let Some(process) = self.replicas.keys().find(lacks) {
            let dropped = format!("{process:?} lacks writes up to {at:?}, which others drop");
            self.violations.push(dropped);
        }
    }

    /// Delivers to each process what its barrier has passed: best effort at once.
    fn deliver(&mut self) {
        let processes: Vec<ProcessId> = self.replicas.keys().copied().collect();
        for process in processes {
            let barrier = self.barrier(process);
            let is_due = |message: &Message| {
                message.to == process && (!message.is_reliable || message.timestamp < barrier)
            };
            let replica = self.replicas.get_mut(&process).expect("a replica");
            for (_, message) in self.messages.extract_if(.., |_, message| is_due(message)) {
                let timestamp = Timestamp::from_ns(message.timestamp);
                replica.on_message(message.is_reliable, timestamp, message.from, &message.payload);
            }
            replica.on_barrier(Timestamp::from_ns(barrier));
            let first = Disk { stored: Some(0), ..Disk::default() };
            let disk = self.disks.entry(process).or_insert(first);
            if let Some((number, image)) = replica.poll_image() {
                let position = replica.executed_position();
                *disk = Disk::default();
                disk.image = position.map(|position| (number, position, image));
            }
            let new: Vec<Record> = std::iter::from_fn(|| replica.poll_record()).collect();
            let executed = new.iter().map(|record| (record.position(), record.request.clone()));
            self.executed.extend(executed);
            disk.records.extend(new);
            if self.random.percent(30) && replica.is_serving() {
                disk.stored = Some(disk.records.len());
                let first = disk.image.as_ref().map_or(0, |(number, ..)| *number);
                replica.on_stored(first + disk.records.len() as u64);
            }
            let mut replies = Vec::new();
            while let Some(reply) = replica.poll_reply() {
                replies.push(reply);
            }
            for reply in replies {
                if self.random.percent(self.faults.reply_lost) || self.failed.contains(&process) {
                    continue;
                }
                let timestamp = self.stamp();
                self.enqueue(timestamp, process, reply.to, false, reply.payload);
            }
        }
        if self.faults.is_durable {
            self.take_snapshots();
        }
        let is_reply = |message: &Message| message.to.0 >= FIRST_CLIENT;
        for (_, message) in self.messages.extract_if(.., |_, message| is_reply(message)) {
            let client = (message.to.0 - FIRST_CLIENT) as usize;
            let now = Mono::from_ns(self.clock);
            self.clients[client].on_message(now, message.from, &message.payload);
        }
    }

    fn finish(&mut self) {
        for client in 0..self.clients.len() {
            while let Some(Finished { transaction, outcome }) = self.clients[client].poll_finished()
            {
                let started = self.started.remove(&(client, transaction));
                let (invoked, kind, parts) = started.expect("a transaction ends once");
                let committed = outcome.expect("a replica of each shard is up");
                let completed = self.clock;
                if self.faults.is_durable && kind == Kind::Write {
                    self.check_stored(committed.at, &parts);
                }
                let client = client + self.generations[client];
                let observed = Observed { client, kind, parts, invoked, completed, committed };
                self.observed.push(observed);
            }
        }
    }

    /// Checks that a write is on the disks of all replicas of its shards that are up.
    fn check_stored(&mut self, at: Timestamp, parts: &[(u16, Vec<u8>)]) {
        for (process, replica) in &self.replicas {
            let disk = self.disks.get(process).expect("it has run");
            let is_stored = disk.has(at) || self.returned.contains(process);
            if parts.iter().any(|(shard, _)| *shard == replica.shard()) && !is_stored {
                self.violations.push(format!("write at {at:?} is not on the disk of {process:?}"));
            }
        }
    }

    fn fail(&mut self, process: ProcessId) {
        self.failed.insert(process);
        self.replicas.remove(&process);
        self.messages.retain(|_, message| message.to != process);
        let at = Timestamp::from_ns(self.stamp());
        self.ended.push((process, at));
        for client in &mut self.clients {
            client.on_process_ended(process, at);
        }
        for replica in self.replicas.values_mut() {
            replica.on_process_ended(process, at);
        }
    }

    /// Starts a process again that has failed, without its state.
    fn start_again(&mut self, process: ProcessId) {
        self.failed.remove(&process);
        let options = ReplicaOptions { is_durable: self.faults.is_durable };
        let catch_up = CatchUpOptions {
            // Some replicas have to start over.
            retained_bytes_max: if self.clock.is_multiple_of(2) { 300 } else { usize::MAX },
            ..CatchUpOptions::new(self.clock, TIMEOUT_NS)
        };
        let shard = (process.0 / u32::from(REPLICAS)) as u16;
        let state = Registers::default();
        let mut replica =
            Replica::returning((process, shard), placement(), state, options, catch_up);
        for (ended, at) in &self.ended {
            if *ended != process {
                replica.on_process_ended(*ended, *at);
            }
        }
        self.replicas.insert(process, replica);
        self.disks.insert(process, Disk::default());
        self.returned.insert(process);
    }

    /// Starts a client in place of one without unfinished transactions. The new one takes all
    /// replicas for up; its scatterings to a failed one are reported to it as failed.
    fn start_client(&mut self) {
        let idle = self.clients.iter().position(|client| client.unfinished() == 0);
        let Some(idle) = idle else { return };
        let options = client_options(&self.faults);
        self.clients[idle] = Client::new(self.clock, placement(), options);
        self.generations[idle] += CLIENTS as usize;
    }

    pub fn disagreements(&self) -> u64 {
        self.clients.iter().map(|client| client.stats().disagreements).sum()
    }
}
