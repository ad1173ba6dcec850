//! The environment of the controllers: their store with its delays, and their leases.

use std::collections::VecDeque;

use onepipe_base::{Now, ProcessId};
use onepipe_controller::{
    Controller, Epoch, MemoryStore, PersistError, Record, RecordId, Stats, Store, StoreError,
};
use onepipe_sim_check::ControllerEpochs;
use onepipe_sim_engine::Random;

use crate::ControlPlanePlan;

/// The store that all controller replicas share, and their leases.
#[derive(Debug)]
pub struct ControlPlane {
    plan: ControlPlanePlan,
    store: MemoryStore,
    random: Random,
    replicas: Vec<Replica>,
    /// Expiry of the active replica's lease, in ns of the run.
    lease_until_ns: u64,
    /// End of the store's unavailability, in ns of the run.
    down_until_ns: u64,
    /// The records of the latest store, while an older copy is in use.
    latest: Option<Vec<Record>>,
    /// Checks which replicas are active in each epoch.
    pub epochs: ControllerEpochs,
    /// Totals of the replicas' previous incarnations.
    previous: ControlPlaneStats,
}

/// Totals over all controllers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlPlaneStats {
    /// Number of epochs: how often a replica became active.
    pub epochs: u64,
    /// Failed incarnations.
    pub failures: u64,
    /// Incarnations that left gracefully.
    pub leaves: u64,
    /// Of these, incarnations whose failure timestamp was decided without all registers.
    pub inexact: u64,
    /// Links that were given up although the correct processes at their ends have no other path.
    pub partitions: u64,
    /// Relayed frames.
    pub relayed: u64,
    /// Processes that did not answer a ping.
    pub unresponsive: u64,
    /// Recalls recorded as undeliverable.
    pub undeliverable: u64,
    /// Recoveries served to processes that had failed.
    pub recoveries: u64,
}

impl ControlPlaneStats {
    fn add(&mut self, stats: &Stats) {
        self.failures += stats.failures + stats.switch_failures;
        self.leaves += stats.leaves;
        self.inexact += stats.inexact;
        self.partitions += stats.partitions;
        self.relayed += stats.relayed;
        self.unresponsive += stats.pings_unanswered;
        self.undeliverable += stats.undeliverables;
        self.recoveries += stats.recoveries;
    }
}

/// One replica with all its incarnations.
#[derive(Debug, Default)]
struct Replica {
    incarnations: u32,
    /// Counters of the current incarnation.
    stats: Stats,
    /// The last epoch that the replica was activated for, until it resigns.
    epoch: Option<Epoch>,
    /// Records on their way to the store, and the replies of the store.
    in_flight: VecDeque<(RecordId, Record)>,
    replies: VecDeque<(RecordId, Result<(), PersistError>)>,
    /// End of the time in which the replica does not campaign because it has resigned, in ns of the
    /// run.
    no_campaign_until_ns: u64,
    /// Crash point: the number of records before the one at which the replica crashes, and whether
    /// the store has written that record by then.
    crash_point: Option<(u32, bool)>,
    is_crashing: bool,
}

impl Replica {
    /// Counts a record, before or after it `is_written`. Returns whether the replica crashes there.
    fn hits_crash_point(&mut self, is_written: bool) -> bool {
        if let Some((left, after_write)) = &mut self.crash_point
            && *after_write == is_written
        {
            self.is_crashing = *left == 0;
            *left = left.saturating_sub(1);
        }
        self.is_crashing
    }
}

impl ControlPlane {
    pub fn new(plan: ControlPlanePlan, seed: u64) -> Self {
        let replicas = (0..plan.replicas).map(|_| Replica::default()).collect();
        Self {
            plan,
            store: MemoryStore::new(),
            random: Random::named(seed, "store", 0),
            replicas,
            lease_until_ns: 0,
            down_until_ns: 0,
            latest: None,
            epochs: ControllerEpochs::new(),
            previous: ControlPlaneStats::default(),
        }
    }

    /// Starts the next incarnation of replica `index`.
    pub fn next_incarnation(&mut self, index: usize) -> u32 {
        let replica = &mut self.replicas[index];
        self.previous.add(&replica.stats);
        *replica = Replica { incarnations: replica.incarnations + 1, ..Replica::default() };
        replica.incarnations
    }

    /// Returns the current incarnation of replica `index`.
    pub fn incarnation(&self, index: usize) -> u32 {
        self.replicas[index].incarnations
    }

    /// Returns the interval at which a replica renews or requests its lease, in ns.
    pub fn renew_ns(&self) -> u64 {
        self.plan.renew_ns
    }

    /// Makes the store unavailable for `ns` from `at_ns` on.
    pub fn fail_store(&mut self, at_ns: u64, ns: u64) {
        self.down_until_ns = at_ns + ns;
    }

    /// Expires the active replica's lease early: another one may become active while the first
    /// still considers itself active.
    pub fn expire_lease(&mut self) {
        self.lease_until_ns = 0;
    }

    /// Puts an older copy of the store in its place, which lacks an epoch, a failure or a recall
    /// that the latest one has; `number` decides which. Processes do not know of other records.
    pub fn put_old_store(&mut self, number: u64) {
        let mut records = self.store.records();
        let is_known = |record: &Record| {
            matches!(
                record,
                Record::Epoch { .. } | Record::Failed(_) | Record::Undeliverable { .. }
            )
        };
        let known = records.iter().enumerate().skip(1).filter(|(_, record)| is_known(record));
        let lengths: Vec<usize> = known.map(|(index, _)| index).collect();
        if lengths.is_empty() {
            return;
        }
        let latest = records.clone();
        records.truncate(lengths[(number % lengths.len() as u64) as usize]);
        self.put_back(records);
        self.latest.get_or_insert(latest);
    }

    /// Puts a store in place: no replica is active in it.
    fn put_back(&mut self, records: Vec<Record>) {
        self.store.put_back(records);
        self.epochs.restart();
        self.lease_until_ns = 0;
        for replica in &mut self.replicas {
            replica.epoch = None;
            replica.in_flight.clear();
            replica.replies.clear();
        }
    }

    /// Handles that a replica has refused the store. If its epoch is not over, an operator puts the
    /// latest store back.
    pub fn on_outdated(&mut self, at_ns: u64, index: usize, process: ProcessId, epoch: Epoch) {
        if self.replicas[index].epoch.take() != Some(epoch) || self.store.renew(epoch).is_err() {
            return;
        }
        match self.latest.take() {
            Some(latest) => self.put_back(latest),
            None => self.epochs.refused_without_reason(epoch.0, process, at_ns),
        }
    }

    /// Makes the store available.
    pub fn heal(&mut self) {
        self.down_until_ns = 0;
    }

    /// Crashes replica `index` at the record that follows the next `records` ones: before the store
    /// has the record, or, if `is_written`, after the store has written it and before the replica
    /// learns of it.
    pub fn crash_at(&mut self, index: usize, records: u32, is_written: bool) {
        self.replicas[index].crash_point = Some((records, is_written));
    }

    /// Whether the replica has reached its crash point.
    pub fn is_crashing(&self, index: usize) -> bool {
        self.replicas[index].is_crashing
    }

    /// Takes the records that a replica wants to persist. Returns for each of them the delay in ns
    /// until the store handles it.
    pub fn take_records(&mut self, index: usize, controller: &mut Controller) -> Vec<u64> {
        let mut delays_ns = Vec::new();
        self.replicas[index].stats = *controller.stats();
        while let Some(record) = controller.poll_persist() {
            if self.replicas[index].hits_crash_point(false) {
                break;
            }
            self.replicas[index].in_flight.push_back(record);
            delays_ns.push(self.draw_delay_ns());
        }
        delays_ns
    }

    /// Lets the store handle the oldest record of a replica. Returns the delay of the reply in ns;
    /// `None` if the replica crashes instead, or has no record in flight.
    pub fn write(&mut self, at_ns: u64, index: usize) -> Option<u64> {
        let (id, record) = self.replicas[index].in_flight.pop_front()?;
        let result = match self.replicas[index].epoch {
            _ if at_ns < self.down_until_ns => Err(PersistError::Failed),
            None => Err(PersistError::Deposed),
            Some(epoch) => match self.store.append(epoch, &record) {
                Ok(()) if self.random.happens(self.plan.reply_loss_ppm) => {
                    Err(PersistError::Failed)
                }
                Ok(()) => Ok(()),
                Err(StoreError::Deposed) => Err(PersistError::Deposed),
                Err(StoreError::Failed(_)) => Err(PersistError::Failed),
            },
        };
        if self.replicas[index].hits_crash_point(true) {
            return None;
        }
        self.replicas[index].replies.push_back((id, result));
        Some(self.draw_delay_ns())
    }

    /// Delivers the oldest reply of the store to a replica.
    pub fn deliver_reply(
        &mut self,
        at_ns: u64,
        now: Now,
        index: usize,
        controller: &mut Controller,
    ) {
        if let Some((id, result)) = self.replicas[index].replies.pop_front() {
            controller.handle_persisted(now, id, result);
            if let (Err(PersistError::Deposed), Some(epoch)) = (result, self.replicas[index].epoch)
            {
                self.epoch_ended(at_ns, epoch, controller);
            }
        }
    }

    /// Records that a replica was notified of the end of `epoch`.
    fn epoch_ended(&mut self, at_ns: u64, epoch: Epoch, controller: &Controller) {
        let is_still_active = controller.status().active == Some(epoch);
        self.epochs.epoch_ended(epoch.0, controller.config().process, is_still_active, at_ns);
    }

    /// Renews the lease of a replica, or requests one.
    pub fn campaign(&mut self, at_ns: u64, now: Now, index: usize, controller: &mut Controller) {
        if at_ns < self.down_until_ns {
            return;
        }
        let process = controller.config().process;
        if let Some(epoch) = self.replicas[index].epoch.filter(|_| controller.is_active()) {
            match self.store.renew(epoch) {
                Ok(()) => self.lease_until_ns = at_ns + self.plan.lease_ns,
                Err(_) => {
                    controller.depose(now);
                    self.epoch_ended(at_ns, epoch, controller);
                }
            }
            return;
        }
        if at_ns < self.replicas[index].no_campaign_until_ns {
            return;
        }
        if at_ns >= self.lease_until_ns {
            self.store.expire_lease();
        }
        let Ok(Some(epoch)) = self.store.campaign(process) else { return };
        let Ok(records) = self.store.load() else { return };
        self.lease_until_ns = at_ns + self.plan.lease_ns;
        let replica = &mut self.replicas[index];
        replica.epoch = Some(epoch);
        replica.in_flight.clear();
        replica.replies.clear();
        controller.activate(now, epoch, &records);
    }

    /// Resigns an isolated replica so that another one can become active.
    pub fn resign(&mut self, at_ns: u64, now: Now, index: usize, controller: &mut Controller) {
        let replica = &mut self.replicas[index];
        replica.no_campaign_until_ns = at_ns + 2 * self.plan.lease_ns;
        if let Some(epoch) = replica.epoch.take() {
            controller.depose(now);
            // Even if the store does not learn of it, the lease expires.
            if at_ns >= self.down_until_ns && self.store.resign(epoch).is_ok() {
                self.lease_until_ns = 0;
            }
        }
    }

    /// Records that a replica is active.
    pub fn on_active(&mut self, at_ns: u64, process: ProcessId, epoch: Epoch) {
        self.epochs.observe(epoch.0, process, at_ns);
    }

    /// Returns the totals of all replicas over all incarnations.
    pub fn stats(&self) -> ControlPlaneStats {
        let mut stats = ControlPlaneStats { epochs: self.epochs.epochs(), ..self.previous };
        self.replicas.iter().for_each(|replica| stats.add(&replica.stats));
        stats
    }

    /// Draws the delay of one request or reply.
    fn draw_delay_ns(&mut self) -> u64 {
        self.random.between(1, self.plan.store_ns.max(1))
    }
}
