//! The replica of a node, with its state and its journal.

use std::sync::Arc;

use onepipe::{ProcessId, Timestamp};
use onepipe_base::Mono;
use onepipe_log::{Executor, LogReplica, LogStart, ScatteringKind, StartPhase, State};

use crate::handle::{CommittedEntries, ReadFailure};
use crate::outbox::{Outbox, Source};
use crate::read_index::Extent;
use crate::shared::NodeStats;
use crate::storage::Storage;

/// Entries that a state applies until it begins to make them durable. That also happens ten times a
/// second.
const SYNC_ENTRIES: u64 = 1 << 12;
/// Limit on the bytes of entries that a program gets in one call.
const READ_BYTES_MAX: usize = 1 << 20;

/// The replica of a node.
pub(crate) struct Member<S> {
    replica: LogReplica,
    executor: Executor<S>,
    storage: Option<Storage>,
    /// `None` once the log is open.
    start: Option<LogStart>,
    /// Number of entries that the state has applied when it was last made durable.
    synced: u64,
    installed: u64,
    now: Mono,
}

impl<S: State> Member<S> {
    pub fn new(replica: LogReplica, state: S, storage: Option<Storage>, start: LogStart) -> Self {
        let executor = Executor::new(state);
        let (synced, now) = (executor.applied(), Mono::from_ns(0));
        Self { replica, executor, storage, start: Some(start), synced, installed: 0, now }
    }

    /// Handles a message that is no reply to a client.
    pub fn on_message(
        &mut self,
        (is_reliable, at, from): (bool, Timestamp, ProcessId),
        payload: &[u8],
        outbox: &mut Outbox,
    ) {
        if let Some(start) = &mut self.start {
            // Requests of clients come again.
            start.on_message(is_reliable, at, from, payload);
            self.begin();
        } else if let Some(answer) = LogStart::answer(payload) {
            if self.replica.is_whole() {
                outbox.push_message(Source::Start, from, answer);
            }
        } else {
            self.replica.on_message(is_reliable, at, from, payload);
        }
    }

    /// Handles a message of the state of another replica.
    pub fn on_state_message(&mut self, from: ProcessId, payload: &[u8]) {
        self.executor.state_mut().on_message(from, payload);
    }

    /// Begins to serve or to catch up, if the log is open.
    fn begin(&mut self) {
        let Some(start) = &self.start else { return };
        match start.phase() {
            StartPhase::Pending | StartPhase::Failed(_) => return,
            StartPhase::Founded(at, founding) => {
                if !self.replica.found(*at, founding) {
                    self.replica.rejoin(self.now);
                }
                tracing::info!(view = founding.view.number, "the log is open");
            }
            StartPhase::Joins => {
                tracing::info!("catching up from other replicas");
                self.replica.rejoin(self.now);
            }
        }
        let ends: Vec<_> = start.ends().collect();
        self.start = None;
        for (process, at) in ends {
            self.replica.on_ended(process, at);
        }
    }

    pub fn on_send_failed(&mut self, source: Source, kind: ScatteringKind) {
        match &mut self.start {
            Some(start) if source == Source::Start && kind.is_reliable() => start.on_send_failed(),
            None if source == Source::Replica => self.replica.on_send_failed(kind),
            _ => {}
        }
    }

    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) {
        match &mut self.start {
            Some(start) => start.on_ended(process, at),
            None => self.replica.on_ended(process, at),
        }
    }

    pub fn on_barrier(&mut self, barrier: Timestamp) {
        if self.start.is_none() {
            self.replica.on_barrier(barrier);
        }
    }

    /// Notes what the client of this node knows to be committed.
    pub fn on_committed(&mut self, len: u64, checksum: u64) {
        if self.start.is_none() {
            self.replica.on_committed(len, checksum);
        }
    }

    /// Stores and applies what there is. Returns whether there was something, or why the node must
    /// end.
    pub fn advance(&mut self) -> Result<bool, Arc<str>> {
        if let Some(start) = &self.start {
            return match start.phase() {
                StartPhase::Failed(error) => Err(error.to_string().into()),
                _ => Ok(false),
            };
        }
        if let Some(storage) = &mut self.storage {
            storage.store(&mut self.replica)?;
        }
        let has_applied = self.executor.advance(&mut self.replica);
        if self.executor.applied() >= self.synced.saturating_add(SYNC_ENTRIES) {
            self.begin_sync();
        }
        self.executor.failure().map_or(Ok(has_applied), |reason| Err(reason.into()))
    }

    fn begin_sync(&mut self) {
        self.synced = self.executor.applied();
        self.executor.begin_sync();
    }

    /// Looks at the disk, about ten times a second. Returns why the node must end, if it must.
    pub fn advance_disk(&mut self) -> Result<(), Arc<str>> {
        self.installed += self.replica.take_stats().installed;
        if self.executor.applied() != self.synced {
            self.begin_sync();
        }
        match &mut self.storage {
            Some(storage) => storage.advance(&self.replica),
            None => Ok(()),
        }
    }

    /// Takes what the machines have to send.
    pub fn poll_scatterings(&mut self, now: Mono, outbox: &mut Outbox) {
        self.now = now;
        if let Some(start) = &mut self.start {
            while let Some(scattering) = start.poll_scattering(now) {
                outbox.push(Source::Start, scattering);
            }
            return;
        }
        self.replica.handle_timeout(now);
        while let Some(scattering) = self.replica.poll_scattering() {
            outbox.push(Source::Replica, scattering);
        }
    }

    /// Reads committed entries of the own log.
    pub fn read(&self, index: u64) -> Result<CommittedEntries, ReadFailure> {
        let (base_len, committed_len) = (self.replica.base_len(), self.replica.committed_len());
        if index < base_len {
            return Err(ReadFailure::Trimmed(base_len));
        }
        let mut bytes = 0;
        let fits = |entry: &&onepipe_log::Entry| {
            let is_first = bytes == 0;
            bytes += entry.payload.len() + 1;
            is_first || bytes <= READ_BYTES_MAX
        };
        let entries = (index..committed_len).filter_map(|index| self.replica.entry(index));
        let entries = entries.take_while(fits).cloned().collect();
        Ok(CommittedEntries { index, entries, committed_len })
    }

    /// Takes the last message of the replica, which is about to end.
    pub fn leave(&mut self, outbox: &mut Outbox) {
        if self.start.is_none() {
            self.replica.leave();
            while let Some(scattering) = self.replica.poll_scattering() {
                outbox.push(Source::Replica, scattering);
            }
        }
    }

    /// Returns what the log has, if this is the whole log of a member whose state may be read.
    pub fn extent(&self) -> Option<Extent> {
        let is_current = self.start.is_none() && self.executor.is_current(&self.replica);
        let (len, committed_len) = (self.replica.len(), self.replica.committed_len());
        is_current.then_some(Extent { len, committed_len })
    }

    /// Returns whether the machines have a deadline.
    pub fn has_deadline(&self) -> bool {
        self.start.is_some() || self.replica.poll_timeout().is_some()
    }

    pub fn stats(&self) -> NodeStats {
        NodeStats {
            is_serving: self.start.is_none() && self.replica.is_serving(),
            is_current: self.start.is_none() && self.executor.is_current(&self.replica),
            view: self.replica.view().number,
            members: self.replica.view().members.len(),
            committed_len: self.replica.committed_len(),
            base_len: self.replica.base_len(),
            applied: self.executor.applied(),
            appended: 0,
            checkpoints: self.storage.as_ref().map_or(0, Storage::checkpoints),
            installed: self.installed,
            waiting: self.start.as_ref().map(LogStart::missing).unwrap_or_default(),
        }
    }
}
