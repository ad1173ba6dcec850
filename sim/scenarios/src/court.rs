//! The controllers' world: their store with its delays, their leases, and who they are.

use std::collections::VecDeque;

use onepipe_base::{Now, ProcessId};
use onepipe_controller::{
    Controller, Epoch, MemoryStore, Record, RecordId, Refused, Stats, Store, StoreError,
};
use onepipe_sim_check::Reigns;
use onepipe_sim_engine::Random;

use crate::Court;

/// The store of a fabric's controllers, shared by all replicas, and their leases.
#[derive(Debug)]
pub(crate) struct Courthouse {
    plan: Court,
    store: MemoryStore,
    random: Random,
    replicas: Vec<Replica>,
    /// When the lease of the active replica runs out, in ns of the run.
    lease_until_ns: u64,
    /// The store does not answer before then, in ns of the run.
    down_until_ns: u64,
    pub reigns: Reigns,
    /// What former lives of the replicas have counted.
    former: CourtStats,
}

/// What the controllers of a run have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CourtStats {
    /// Epochs: how often a replica became active.
    pub epochs: u64,
    /// Lives decided to have failed.
    pub failures: u64,
    /// Of these, without all the registers that decide them.
    pub inexact: u64,
    /// Links given up between correct processes that have no other way to each other.
    pub partitions: u64,
    /// Frames handed on.
    pub relayed: u64,
    /// Processes that gave no sign of life.
    pub silent: u64,
    /// Recalls recorded.
    pub undeliverable: u64,
    /// Answers to processes that had failed.
    pub recoveries: u64,
}

impl CourtStats {
    fn add(&mut self, stats: &Stats) {
        self.failures += stats.failures;
        self.inexact += stats.inexact;
        self.partitions += stats.partitions;
        self.relayed += stats.relayed;
        self.silent += stats.pings_unanswered;
        self.undeliverable += stats.undeliverables;
        self.recoveries += stats.recoveries;
    }
}

/// One replica, through all its lives.
#[derive(Debug, Default)]
struct Replica {
    lives: u32,
    /// What this life has counted.
    stats: Stats,
    epoch: Option<Epoch>,
    /// Records on their way into the store, and what it has answered.
    writing: VecDeque<(RecordId, Record)>,
    answers: VecDeque<(RecordId, Result<(), Refused>)>,
    /// It has resigned, and does not campaign before then, in ns of the run.
    pauses_until_ns: u64,
    /// It dies at the record behind so many: before that is written, or before it hears of it.
    dies_at: Option<(u32, bool)>,
    is_dying: bool,
}

impl Replica {
    /// Whether it dies of this record, which `is_written` or is about to be.
    fn dies_of(&mut self, is_written: bool) -> bool {
        if let Some((left, when)) = &mut self.dies_at
            && *when == is_written
        {
            self.is_dying = *left == 0;
            *left = left.saturating_sub(1);
        }
        self.is_dying
    }
}

impl Courthouse {
    pub fn new(plan: Court, seed: u64) -> Self {
        let replicas = (0..plan.replicas).map(|_| Replica::default()).collect();
        Self {
            plan,
            store: MemoryStore::new(),
            random: Random::named(seed, "store", 0),
            replicas,
            lease_until_ns: 0,
            down_until_ns: 0,
            reigns: Reigns::new(),
            former: CourtStats::default(),
        }
    }

    /// The next life of replica `place`.
    pub fn next_life(&mut self, place: usize) -> u32 {
        let replica = &mut self.replicas[place];
        self.former.add(&replica.stats);
        *replica = Replica { lives: replica.lives + 1, ..Replica::default() };
        replica.lives
    }

    /// Which life replica `place` is in.
    pub fn life(&self, place: usize) -> u32 {
        self.replicas[place].lives
    }

    /// How often a replica looks after its lease, in ns.
    pub fn renew_ns(&self) -> u64 {
        self.plan.renew_ns
    }

    /// The store does not answer for `ns` from `at_ns` on.
    pub fn fail_store(&mut self, at_ns: u64, ns: u64) {
        self.down_until_ns = at_ns + ns;
    }

    /// The lease of the active replica runs out early: another one may become active while it does
    /// not know.
    pub fn lapse(&mut self) {
        self.lease_until_ns = 0;
    }

    /// Everything works again.
    pub fn heal(&mut self) {
        self.down_until_ns = 0;
    }

    /// Replica `place` dies at the record behind the next `records`: before it is written, or when
    /// it is, before the replica hears of it.
    pub fn die_at(&mut self, place: usize, records: u32, is_written: bool) {
        self.replicas[place].dies_at = Some((records, is_written));
    }

    /// Whether it is to die now.
    pub fn is_dying(&self, place: usize) -> bool {
        self.replicas[place].is_dying
    }

    /// Takes the records that a replica wants written. Answers how many ns until the store has
    /// done so, for each of them.
    pub fn take_records(&mut self, place: usize, controller: &mut Controller) -> Vec<u64> {
        let mut waits = Vec::new();
        self.replicas[place].stats = *controller.stats();
        while let Some(record) = controller.poll_persist() {
            if self.replicas[place].dies_of(false) {
                break;
            }
            self.replicas[place].writing.push_back(record);
            waits.push(self.wait_ns());
        }
        waits
    }

    /// The store handles the oldest record of a replica. Answers how long until the replica hears
    /// of it.
    pub fn write(&mut self, at_ns: u64, place: usize) -> Option<u64> {
        let (id, record) = self.replicas[place].writing.pop_front()?;
        let result = match self.replicas[place].epoch {
            _ if at_ns < self.down_until_ns => Err(Refused::Failed),
            None => Err(Refused::Deposed),
            Some(epoch) => match self.store.append(epoch, &record) {
                Ok(()) if self.random.happens(self.plan.answers_lost_ppm) => Err(Refused::Failed),
                Ok(()) => Ok(()),
                Err(StoreError::Deposed) => Err(Refused::Deposed),
                Err(StoreError::Failed(_)) => Err(Refused::Failed),
            },
        };
        if self.replicas[place].dies_of(true) {
            return None;
        }
        self.replicas[place].answers.push_back((id, result));
        Some(self.wait_ns())
    }

    /// A replica hears what has become of its oldest record.
    pub fn answer(&mut self, at_ns: u64, now: Now, place: usize, controller: &mut Controller) {
        if let Some((id, result)) = self.replicas[place].answers.pop_front() {
            controller.handle_persisted(now, id, result);
            if let (Err(Refused::Deposed), Some(epoch)) = (result, self.replicas[place].epoch) {
                self.told_over(at_ns, epoch, controller);
            }
        }
    }

    /// A replica was told that `epoch` is over.
    fn told_over(&mut self, at_ns: u64, epoch: Epoch, controller: &Controller) {
        let goes_on = controller.status().active == Some(epoch);
        self.reigns.told_over(epoch.0, controller.config().process, goes_on, at_ns);
    }

    /// A replica looks after its lease, or asks for one.
    pub fn campaign(&mut self, at_ns: u64, now: Now, place: usize, controller: &mut Controller) {
        if at_ns < self.down_until_ns {
            return;
        }
        let process = controller.config().process;
        if let Some(epoch) = self.replicas[place].epoch.filter(|_| controller.is_active()) {
            match self.store.renew(epoch) {
                Ok(()) => self.lease_until_ns = at_ns + self.plan.lease_ns,
                Err(_) => {
                    controller.depose(now);
                    self.told_over(at_ns, epoch, controller);
                }
            }
            return;
        }
        if at_ns < self.replicas[place].pauses_until_ns {
            return;
        }
        if at_ns >= self.lease_until_ns {
            self.store.lapse();
        }
        let Ok(Some(epoch)) = self.store.campaign(process) else { return };
        let Ok(records) = self.store.load() else { return };
        self.lease_until_ns = at_ns + self.plan.lease_ns;
        let replica = &mut self.replicas[place];
        replica.epoch = Some(epoch);
        replica.writing.clear();
        replica.answers.clear();
        controller.activate(now, epoch, &records);
    }

    /// A replica hears nobody, and makes room for another.
    pub fn resign(&mut self, at_ns: u64, now: Now, place: usize, controller: &mut Controller) {
        let replica = &mut self.replicas[place];
        replica.pauses_until_ns = at_ns + 2 * self.plan.lease_ns;
        if let Some(epoch) = replica.epoch.take() {
            controller.depose(now);
            // Whether or not the store has heard of it: the lease runs out in any case.
            if at_ns >= self.down_until_ns && self.store.resign(epoch).is_ok() {
                self.lease_until_ns = 0;
            }
        }
    }

    /// A replica says that it is active.
    pub fn on_active(&mut self, at_ns: u64, process: ProcessId, epoch: Epoch) {
        self.reigns.seen(epoch.0, process, at_ns);
    }

    /// What all replicas have counted in all their lives.
    pub fn stats(&self) -> CourtStats {
        let mut stats = CourtStats { epochs: self.reigns.epochs(), ..self.former };
        self.replicas.iter().for_each(|replica| stats.add(&replica.stats));
        stats
    }

    fn wait_ns(&mut self) -> u64 {
        self.random.between(1, self.plan.store_ns.max(1))
    }
}
