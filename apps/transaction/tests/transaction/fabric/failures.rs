//! Processes that fail and start again.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{CatchUpOptions, Replica, ReplicaOptions};

use super::disk::Disk;
use super::registers::Registers;
use super::{FIRST_CLIENT, Fabric, TIMEOUT_NS, placement, shard_of};

impl Fabric {
    /// Lets the same processes fail and return at the same steps in all runs.
    pub(super) fn change_processes(&mut self, step: u64, steps: u64) {
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
    }

    /// Returns the replicas that run or start, in ascending order.
    pub(super) fn running(&self) -> Vec<ProcessId> {
        let runs = |process: &ProcessId| {
            self.replicas.contains_key(process) || self.starting.contains_key(process)
        };
        (0..FIRST_CLIENT).map(ProcessId).filter(runs).collect()
    }

    fn fail(&mut self, process: ProcessId) {
        let at = Timestamp::from_ns(self.stamp());
        self.end(process, at);
    }

    /// Ends a process at a timestamp.
    pub(super) fn end(&mut self, process: ProcessId, at: Timestamp) {
        self.failed.insert(process);
        self.replicas.remove(&process);
        self.starting.remove(&process);
        self.messages.retain(|_, message| message.to != process);
        self.ended.push((process, at));
        for client in &mut self.clients {
            client.on_process_ended(process, at);
        }
        if self.faults.restarts > 0 && self.failure_random.percent(50) {
            // The others are notified when all messages before have been delivered.
            for to in self.running() {
                self.enqueue(at.as_ns(), process, to, true, Vec::new());
            }
            return;
        }
        for replica in self.replicas.values_mut() {
            replica.on_process_ended(process, at);
        }
        for starting in self.starting.values_mut() {
            starting.start.on_process_ended(process, at);
        }
    }

    /// Starts a process again that has failed, without its state.
    fn start_again(&mut self, process: ProcessId) {
        let options = ReplicaOptions { is_durable: self.faults.is_durable };
        let (of, state) = ((process, shard_of(process)), Registers::default());
        let catch_up = self.catch_up_options(self.clock);
        let mut replica = Replica::returning(of, placement(), state, options, catch_up);
        for (ended, at) in &self.ended {
            if *ended != process {
                replica.on_process_ended(*ended, *at);
            }
        }
        self.failed.remove(&process);
        self.replicas.insert(process, replica);
        self.disks.entry(process).or_insert_with(Disk::empty).replace(None, Vec::new());
        self.returned.insert(process);
    }

    /// Returns how a replica catches up in a session.
    pub(super) fn catch_up_options(&self, session: u64) -> CatchUpOptions {
        CatchUpOptions {
            // Some replicas have to start over.
            retained_bytes_max: if self.clock.is_multiple_of(2) { 300 } else { usize::MAX },
            ..CatchUpOptions::new(session, TIMEOUT_NS)
        }
    }
}
