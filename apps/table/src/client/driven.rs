//! A client with a machine for its requests, which a driver of scatterings drives.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_memory::{ClientStats, MemoryClient, OutgoingScattering};

use super::TableClient;
use crate::layout::Layout;
use crate::outcome::TableOptions;

impl TableClient {
    /// Creates a client. `replicas` has those of each shard, the same for all clients; `session` is
    /// as for [`MemoryClient::new`].
    pub fn new(
        session: u64,
        layout: Layout,
        replicas: Vec<Vec<ProcessId>>,
        options: TableOptions,
    ) -> Self {
        let memory = MemoryClient::new(session, options.memory);
        // Clients begin at different replicas.
        Self::over(memory, session as usize, layout, replicas, options.reserved)
    }

    /// Returns what its requests have done.
    pub fn memory_stats(&self) -> ClientStats {
        self.memory.stats()
    }

    /// See [`MemoryClient::poll_scattering`].
    pub fn poll_scattering(&mut self, now: Mono) -> Option<OutgoingScattering> {
        self.memory.poll_scattering(now)
    }

    /// See [`MemoryClient::on_submitted`].
    pub fn on_submitted(&mut self, scattering: &OutgoingScattering, id: ScatteringId) {
        self.memory.on_submitted(scattering, id);
    }

    /// See [`MemoryClient::on_refused`].
    pub fn on_refused(&mut self, scattering: &OutgoingScattering) {
        self.memory.on_refused(scattering);
    }

    /// See [`MemoryClient::on_unsendable`].
    pub fn on_unsendable(&mut self, scattering: &OutgoingScattering) {
        self.memory.on_unsendable(scattering);
        self.advance();
    }

    /// See [`MemoryClient::on_message`].
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        self.memory.on_message(now, from, payload);
        self.advance();
    }

    /// See [`MemoryClient::on_send_failed`].
    pub fn on_send_failed(&mut self, now: Mono, is_reliable: bool, scattering: ScatteringId) {
        self.memory.on_send_failed(now, is_reliable, scattering);
    }

    /// Notes that a process has ended: a replica among those is not used any more.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.remove_replica(process);
        self.memory.on_process_ended(process, at);
        self.advance();
    }

    /// See [`MemoryClient::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Mono) {
        self.memory.handle_timeout(now);
        self.advance();
    }

    /// See [`MemoryClient::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.memory.poll_timeout()
    }

    fn advance(&mut self) {
        while let Some(completed) = self.memory.poll_completed() {
            self.on_completed(completed);
        }
    }
}
