//! Store of the coordinators, with its delays and the lease of the active coordinator.

use std::collections::VecDeque;

use onepipe_amcast::{Coordinator, Decision};
use onepipe_base::{Now, ProcessId};
use onepipe_controller::{Epoch, Leadership, MemoryStore, Record, Store};
use onepipe_sim_engine::Random;

/// State of a coordinator at the store.
#[derive(Clone, Debug, Default)]
struct CoordinatorState {
    epoch: Option<Epoch>,
    /// Decisions being written.
    writing: VecDeque<Decision>,
}

/// The controllers' store with leases, as used by coordinators.
#[derive(Debug)]
pub(crate) struct CoordinatorStore {
    store: MemoryStore,
    coordinators: Vec<CoordinatorState>,
    lease_ns: u64,
    lease_until_ns: u64,
    store_ns: u64,
    random: Random,
}

impl CoordinatorStore {
    pub fn new(coordinators: u32, (lease_ns, store_ns): (u64, u64), seed: u64) -> Self {
        Self {
            store: MemoryStore::new(),
            coordinators: vec![CoordinatorState::default(); coordinators as usize],
            lease_ns,
            lease_until_ns: 0,
            store_ns,
            random: Random::named(seed, "store", 0),
        }
    }

    /// Returns the interval at which a coordinator renews its lease, in ns.
    pub fn renew_ns(&self) -> u64 {
        self.lease_ns / 4
    }

    /// Lets the lease expire early: another coordinator may become active before the present one
    /// notices.
    pub fn expire_lease(&mut self) {
        self.lease_until_ns = 0;
    }

    /// Drops the pending writes of a coordinator that has crashed.
    pub fn on_crash(&mut self, index: usize) {
        self.coordinators[index] = CoordinatorState::default();
    }

    /// Renews the lease of a coordinator, or tries to acquire it.
    pub fn campaign(
        &mut self,
        at_ns: u64,
        now: Now,
        (index, process): (usize, ProcessId),
        coordinator: &mut Coordinator,
    ) {
        let state = &mut self.coordinators[index];
        if let Some(epoch) = state.epoch.filter(|_| coordinator.is_active()) {
            match self.store.renew(epoch) {
                Ok(()) => self.lease_until_ns = at_ns + self.lease_ns,
                Err(_) => coordinator.deactivate(),
            }
            return;
        }
        if at_ns >= self.lease_until_ns {
            self.store.expire_lease();
        }
        let Ok(Some(epoch)) = self.store.campaign(process) else { return };
        let Ok(records) = self.store.load() else { return };
        self.lease_until_ns = at_ns + self.lease_ns;
        *state = CoordinatorState { epoch: Some(epoch), writing: VecDeque::new() };
        let decisions = records.into_iter().filter_map(|record| match record {
            Record::Leads(Leadership { group, epoch, leader }) => {
                Some(Decision { group, epoch, leader })
            }
            _ => None,
        });
        coordinator.activate(now, decisions);
    }

    /// Submits the decisions of a coordinator. Returns the delay of each write in ns.
    pub fn submit(&mut self, index: usize, coordinator: &mut Coordinator) -> Vec<u64> {
        let mut delays_ns = Vec::new();
        while let Some(decision) = coordinator.poll_persist() {
            self.coordinators[index].writing.push_back(decision);
            delays_ns.push(self.random.between(1, self.store_ns.max(1)));
        }
        delays_ns
    }

    /// Completes the oldest write of a coordinator.
    pub fn write(&mut self, now: Now, index: usize, coordinator: &mut Coordinator) {
        let state = &mut self.coordinators[index];
        let Some(decision) = state.writing.pop_front() else { return };
        let Decision { group, epoch, leader } = decision;
        let record = Record::Leads(Leadership { group, epoch, leader });
        let written = state.epoch.map(|term| self.store.append(term, &record));
        let is_written = written == Some(Ok(()));
        coordinator.handle_persisted(now, decision, is_written);
        if !is_written {
            coordinator.deactivate();
        }
    }
}
