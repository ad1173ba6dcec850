//! A model of the fabric: messages are delivered in one order, each process lags behind by its own
//! time, scatterings and replies are lost, processes fail.

#![allow(dead_code, reason = "each test uses a part")]

pub mod check;
mod clients;
mod delivery;
mod disk;
mod failures;
mod network;
mod random;
pub mod registers;
mod restarts;
mod starting;

use std::collections::{BTreeMap, BTreeSet};

use clients::{Observed, Sent, client_options};
use disk::Disk;
use network::Message;
use onepipe_base::{ProcessId, ScatteringId, Timestamp};
use onepipe_transaction::{Client, Kind, Placement, Replica, ReplicaOptions, TransactionId};
use random::Random;
use registers::Registers;
use starting::Starting;

const SHARDS: u16 = 3;
const REPLICAS: u16 = 2;
const CLIENTS: u32 = 3;
/// Processes 0 to 5 are replicas, 6 to 8 clients.
const FIRST_CLIENT: u32 = (SHARDS * REPLICAS) as u32;
/// A process has received all below the clock less its lag, at most this.
const LAG_MAX_NS: u64 = 400;
const TIMEOUT_NS: u64 = 2_000;

/// Returns the shard of a replica.
fn shard_of(process: ProcessId) -> u16 {
    (process.0 / u32::from(REPLICAS)) as u16
}

fn placement() -> Placement {
    Placement::consecutive(0, SHARDS, REPLICAS).expect("two replicas of each shard")
}

/// When a transaction was submitted, and what it does.
type Started = (u64, Kind, Vec<(u16, Vec<u8>)>);

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
    /// One replica of each of the first two shards fails half-way; with `restarts`, any replica at
    /// any time.
    pub fails: bool,
    /// The failed replicas return without their state, and a client that knows of nothing starts.
    pub returns: bool,
    /// Replicas store what they execute.
    pub is_durable: bool,
    /// How often all replicas lose power at once, and start again from their disks. If this is not
    /// 0, they are durable.
    pub restarts: u64,
}

pub struct Fabric {
    random: Random,
    /// When replicas take snapshots: a sequence of its own.
    snapshot_random: Random,
    /// When processes fail and the power is lost: a sequence of its own.
    failure_random: Random,
    faults: Faults,
    /// How often a replica has stored all that it has written, in percent of the steps.
    store_percent: u64,
    clock: u64,
    last_stamp: u64,
    messages: BTreeMap<(u64, u32, u64), Message>,
    sequence: u64,
    pub replicas: BTreeMap<ProcessId, Replica<Registers>>,
    /// Processes that start with their disks.
    starting: BTreeMap<ProcessId, Starting>,
    pub disks: BTreeMap<ProcessId, Disk>,
    /// Every write that clients have sent.
    pub sent: BTreeMap<Timestamp, Sent>,
    /// When the current run was opened.
    opened: Option<Timestamp>,
    /// What the founders of this run have executed before, by shard.
    founded: BTreeMap<u16, Vec<(Timestamp, Vec<u8>)>>,
    /// Number of transactions that were observed in previous runs.
    observed_before: usize,
    /// Replies that differed, to clients that do not exist any more.
    disagreements: u64,
    /// When the power is lost next.
    next_loss: Option<u64>,
    losses: u64,
    /// All replicas of a shard have failed in this run: clients get errors.
    has_outage: bool,
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
            let options = client_options(faults.is_durable);
            Client::new(7, placement(), options)
        };
        let mut fabric = Self {
            random: Random::new(seed),
            snapshot_random: Random::new(seed ^ 0x5a),
            failure_random: Random::new(seed ^ 0xa5),
            faults,
            store_percent: if faults.restarts > 0 {
                [30, 10, 3][(seed / 64 % 3) as usize]
            } else {
                30
            },
            clock: 1_000_000,
            last_stamp: 0,
            messages: BTreeMap::new(),
            sequence: 0,
            replicas: (0..FIRST_CLIENT).map(replica).collect(),
            starting: BTreeMap::new(),
            disks: BTreeMap::new(),
            sent: BTreeMap::new(),
            opened: None,
            founded: BTreeMap::new(),
            observed_before: 0,
            disagreements: 0,
            next_loss: None,
            losses: 0,
            has_outage: false,
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
        };
        if faults.restarts > 0 {
            // Each replica is a program, and starts with an empty log.
            fabric.replicas.clear();
            (0..FIRST_CLIENT).for_each(|process| fabric.begin_start(ProcessId(process)));
        }
        fabric
    }

    /// Submits random transactions for `steps` steps, then lets all end.
    pub fn run(&mut self, steps: u64) {
        for step in 0..steps {
            if self.random.percent(30) {
                self.submit();
            }
            if self.faults.restarts > 0 {
                self.disturb(step, steps);
            } else {
                self.change_processes(step, steps);
            }
            self.step();
            if step == steps - 10 && self.faults.restarts == 0 {
                let runs = |process: &ProcessId| self.replicas.contains_key(process);
                let disks = self.disks.iter().filter(|(process, _)| runs(process));
                let disks = disks.map(|(process, disk)| (*process, disk.clone())).collect();
                self.power_loss = Some((disks, self.observed.len()));
            }
        }
        if self.faults.restarts > 0 {
            self.start_all_again();
        }
        let is_open = |client: &Client| client.unfinished() > 0;
        for _ in 0..1_000_000 {
            let has_all = self.starting.is_empty() && !self.clients.iter().any(is_open);
            if has_all && self.replicas.values().all(Replica::is_serving) {
                break;
            }
            if self.faults.restarts > 0 {
                self.restart_lost();
                self.restart_unserved();
            }
            self.step();
        }
        let open: Vec<usize> = self.clients.iter().map(Client::unfinished).collect();
        assert_eq!(open, [0; CLIENTS as usize], "all transactions end");
        assert!(self.starting.is_empty(), "all processes start");
        // All replicas catch up.
        self.clock += 10 * LAG_MAX_NS;
        self.lags.clear();
        self.deliver();
    }

    fn step(&mut self) {
        self.clock += 1 + self.random.below(60);
        self.send_of_clients();
        let due: Vec<_> = self.reports.extract_if(.., |report| report.0 <= self.clock).collect();
        for (_, sender, is_reliable, id) in due {
            if let Some(replica) = self.replicas.get_mut(&sender) {
                replica.on_send_failed(id);
            } else if let Some(client) = sender.0.checked_sub(FIRST_CLIENT) {
                self.clients[client as usize].on_send_failed(is_reliable, id);
            }
        }
        self.send_of_replicas();
        self.send_of_starting();
        self.deliver();
        self.finish();
    }
}
