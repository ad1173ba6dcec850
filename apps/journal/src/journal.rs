//! The journal: buffers records, writes them, and says up to where they are durable.

mod prune;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::active::Active;
use crate::directory::Directory;
use crate::disk::{Disk, DiskFile};
use crate::error::{Failure, JournalError, OpenError, Operation};
use crate::format::{
    Link, PAYLOAD_MAX, RECORD_HEADER_LEN, SegmentHeader, SegmentKey, segment_name,
};
use crate::mistake::{Mistake, makes};
use crate::options::{Options, StoreId, SyncPolicy};
use crate::plan::Plan;
use crate::recover::apply;
use crate::recovered::{Record, Recovered, Repair};
use crate::salvage::Salvaged;
use crate::snapshot::{FinishedSnapshot, SnapshotWriter};

/// Bytes that are handed to the system in one write, unless one record is longer.
const WRITE_LEN: usize = 1 << 20;
/// Interval of [`SyncPolicy::EverySecond`], in ns.
const SECOND_NS: u64 = 1_000_000_000;

/// How far the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Position up to which records survive a crash of the process.
    pub written: u64,
    /// Position up to which records survive a crash of the machine.
    pub durable: u64,
}

impl Progress {
    /// Returns the position up to which replies may be sent under `policy`.
    pub fn acknowledged(&self, policy: SyncPolicy) -> u64 {
        match policy {
            SyncPolicy::Always => self.durable,
            SyncPolicy::EverySecond | SyncPolicy::Never => self.written,
        }
    }
}

/// An open journal. Dropping it writes nothing: call [`Journal::sync`] first.
#[derive(Debug)]
pub struct Journal<D: Disk = Directory> {
    disk: D,
    options: Options,
    /// Segments, ascending, including the active one.
    segments: Vec<Segment>,
    active: Option<Active<D::File>>,
    /// Positions of the retained snapshots, ascending.
    snapshots: Vec<u64>,
    /// Records that are not secured; the first `encoded_count` of them are in the active segment.
    queue: VecDeque<Record>,
    encoded_count: usize,
    /// Payload bytes in `queue`.
    buffered_bytes: usize,
    /// Position of the last record, or of a later snapshot.
    last: u64,
    /// The last record in a segment.
    encoded: Link,
    progress: Progress,
    failure: Option<Failure>,
    last_sync_ns: u64,
}

/// A segment on the disk.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    /// A position that no record before this segment exceeds.
    before: u64,
}

impl Journal {
    /// Opens the journal in the directory `dir`, which is created if it does not exist, and locks
    /// it. All that is returned is durable.
    ///
    /// # Errors
    /// [`OpenError`], if the directory is in use or of another store, if the system fails, or if
    /// acknowledged records may be lost.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<(Self, Recovered), OpenError> {
        Self::open_on(Directory::open(dir.as_ref())?, options)
    }

    /// Repairs the journal of `store` in the directory `dir` so that it opens: cuts the log at the
    /// first damaged record, after copying each file that changes to `damaged-…`. Acknowledged
    /// records may be lost: a replica must catch up from its peers before it serves again. Returns
    /// what was cut off; nothing if the journal was intact.
    ///
    /// # Errors
    /// [`OpenError`], if the directory is in use or of another store, or if the system fails.
    pub fn repair(dir: impl AsRef<Path>, store: StoreId) -> Result<Vec<Repair>, OpenError> {
        Self::repair_on(&Directory::open(dir.as_ref())?, store)
    }

    /// Returns what is intact of the journal of `store` in the directory `dir`, and why it cannot
    /// be opened, if it is damaged. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError`], if the directory is in use or of another store, or if the system fails.
    pub fn salvage(dir: impl AsRef<Path>, store: StoreId) -> Result<Salvaged, OpenError> {
        Self::salvage_on(&Directory::open(dir.as_ref())?, store)
    }
}

impl<D: Disk> Journal<D> {
    /// Opens the journal on `disk`, as [`Journal::open`] does.
    ///
    /// # Errors
    /// See [`Journal::open`].
    pub fn open_on(disk: D, options: Options) -> Result<(Self, Recovered), OpenError> {
        let mut plan = Plan::read(&disk, options.store)?;
        let recovered = apply(&disk, &options, &mut plan)?;
        let base = recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.position);
        let active = match plan.segments.last() {
            Some(segment) => {
                let key = SegmentKey::new(options.store, segment.first);
                let opened = Active::open(&disk, key, segment.first, segment.len, plan.last);
                let path = disk.path(&segment_name(segment.first));
                Some(opened.map_err(|source| OpenError::Io { path, source })?)
            }
            None => None,
        };
        let obsolete = plan
            .obsolete
            .iter()
            .map(|first| Segment { first: *first, before: first.saturating_sub(1) });
        let current = plan
            .segments
            .iter()
            .map(|segment| Segment { first: segment.first, before: segment.previous.position });
        let mut snapshots: Vec<u64> = plan.older_snapshots.iter().rev().copied().collect();
        snapshots.extend(recovered.snapshot.as_ref().map(|snapshot| snapshot.position));
        let last = base.max(plan.last.position);
        let mut journal = Self {
            segments: obsolete.chain(current).collect(),
            active,
            snapshots,
            queue: VecDeque::new(),
            encoded_count: 0,
            buffered_bytes: 0,
            last,
            encoded: plan.last,
            progress: Progress { written: last, durable: last },
            failure: None,
            last_sync_ns: 0,
            disk,
            options,
        };
        journal.prune().map_err(|(path, source)| OpenError::Io { path, source })?;
        Ok((journal, recovered))
    }

    /// Repairs the journal on `disk`, as [`Journal::repair`] does.
    ///
    /// # Errors
    /// See [`Journal::repair`].
    pub fn repair_on(disk: &D, store: StoreId) -> Result<Vec<Repair>, OpenError> {
        crate::repair::repair(disk, store)
    }

    /// Returns what is intact on `disk`, as [`Journal::salvage`] does.
    ///
    /// # Errors
    /// See [`Journal::salvage`].
    pub fn salvage_on(disk: &D, store: StoreId) -> Result<Salvaged, OpenError> {
        crate::salvage::salvage(disk, store)
    }

    /// Returns the settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns how far the log is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns the position of the last record that was appended, or of a later snapshot.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the position of the last snapshot; 0 if there is none.
    pub fn last_snapshot(&self) -> u64 {
        self.snapshots.last().copied().unwrap_or(0)
    }

    /// Returns the number of payload bytes in memory that have not reached the disk.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Returns the failure of the disk that keeps records from becoming durable.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Appends a record in memory. It can be called after a failure of the disk, until the buffer
    /// is full.
    ///
    /// # Errors
    /// [`JournalError::NotAscending`], [`JournalError::TooLong`] or [`JournalError::BufferFull`];
    /// the journal is as before.
    pub fn append(&mut self, position: u64, payload: &[u8]) -> Result<(), JournalError> {
        check(&self.options, self.last, self.buffered_bytes, position, payload.len())?;
        self.push(position, payload.to_vec());
        Ok(())
    }

    /// Appends a record that [`check`] has accepted.
    pub(crate) fn push(&mut self, position: u64, payload: Vec<u8>) {
        assert!(position > self.last, "the caller has checked that positions ascend");
        self.buffered_bytes += payload.len();
        self.queue.push_back(Record { position, payload });
        self.last = position;
    }

    /// Writes all records that were appended, and waits until they are durable if the policy wants
    /// it now. `now_ns` is any clock that ascends.
    ///
    /// # Errors
    /// [`JournalError::Failed`] if the disk fails or has failed since it was last reopened.
    pub fn commit(&mut self, now_ns: u64) -> Result<Progress, JournalError> {
        let is_due = match self.options.policy {
            SyncPolicy::Always => true,
            SyncPolicy::EverySecond => now_ns.saturating_sub(self.last_sync_ns) >= SECOND_NS,
            SyncPolicy::Never => false,
        };
        if !is_due {
            return self.flush();
        }
        self.last_sync_ns = now_ns;
        self.sync()
    }

    /// Writes all records that were appended. They survive a crash of the process.
    ///
    /// # Errors
    /// [`JournalError::Failed`] if the disk fails or has failed since it was last reopened.
    pub fn flush(&mut self) -> Result<Progress, JournalError> {
        self.check_failure()?;
        while self.encoded_count < self.queue.len() {
            self.roll_if_full()?;
            self.write_some()?;
        }
        self.progress.written = self.progress.written.max(self.encoded.position);
        if self.options.policy == SyncPolicy::Never {
            self.secure();
        }
        Ok(self.progress)
    }

    /// Writes all records that were appended and waits until they are durable, with one
    /// `fdatasync` for all of them unless they begin a new segment.
    ///
    /// # Errors
    /// [`JournalError::Failed`] if the disk fails or has failed since it was last reopened.
    pub fn sync(&mut self) -> Result<Progress, JournalError> {
        self.flush()?;
        self.sync_active()?;
        Ok(self.progress)
    }

    /// Tries again after a failure of the disk: cuts off what may not be durable, writes all
    /// records again that were not, in a new segment, and waits until they are durable.
    ///
    /// # Errors
    /// [`JournalError::Failed`] if the disk fails again; all records are retained.
    pub fn reopen(&mut self) -> Result<Progress, JournalError> {
        if self.failure.is_some() && !makes(Mistake::SyncTriedAgain) {
            self.drop_unsecured()?;
        }
        self.failure = None;
        self.sync()
    }

    /// Stores a snapshot: the state after all records up to `position`, which need not be that of a
    /// record. Older snapshots and segments that are no longer needed are removed once it is
    /// durable. A position above that of the last record means that the state came from a peer: the
    /// log goes on after it.
    ///
    /// # Errors
    /// [`JournalError::Snapshot`] if the disk fails, [`JournalError::NotAscending`] if there is a
    /// newer snapshot. The log is as before.
    pub fn snapshot(&mut self, position: u64, bytes: &[u8]) -> Result<(), JournalError> {
        self.snapshot_from(position, &mut &bytes[..])
    }

    /// Stores a snapshot whose state is all that `source` holds, as [`Journal::snapshot`] does.
    ///
    /// # Errors
    /// See [`Journal::snapshot`]; [`JournalError::Source`] if `source` fails.
    pub fn snapshot_from(
        &mut self,
        position: u64,
        source: &mut impl Read,
    ) -> Result<(), JournalError> {
        let mut writer = self.begin_snapshot(position)?;
        writer.append_from(source)?;
        let finished = writer.finish()?;
        self.install(finished)
    }

    /// Begins a snapshot that is written in pieces, by this thread or another one, while the log
    /// goes on. [`Journal::install`] makes it count.
    ///
    /// # Errors
    /// See [`Journal::snapshot`].
    pub fn begin_snapshot(&mut self, position: u64) -> Result<SnapshotWriter<D>, JournalError> {
        self.check_snapshot(position)?;
        if makes(Mistake::OldSnapshotFirst) {
            self.snapshots.clear();
            let _ = self.remove_snapshots_before(position);
        }
        SnapshotWriter::begin(self.disk.clone(), self.options.store, position)
    }

    fn check_snapshot(&self, position: u64) -> Result<(), JournalError> {
        match self.snapshots.last() {
            Some(last) if position <= *last => {
                Err(JournalError::NotAscending { position, last: *last })
            }
            _ => Ok(()),
        }
    }

    fn check_failure(&self) -> Result<(), Failure> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Begins a new segment if the first record that is not encoded needs one.
    fn roll_if_full(&mut self) -> Result<(), Failure> {
        let next = &self.queue[self.encoded_count];
        let (first, record_len) = (next.position, (RECORD_HEADER_LEN + next.payload.len()) as u64);
        let base = self.snapshots.last().copied().unwrap_or(0);
        let is_usable = self.active.as_ref().is_some_and(|active| {
            let fits = active.total_len() + record_len <= self.options.segment_bytes;
            fits && self.encoded.position >= base
        });
        if is_usable {
            return Ok(());
        }
        if !makes(Mistake::RollNotSynced) {
            self.sync_active()?;
        }
        let before = self.encoded.position.max(base);
        let previous = Link { position: before, checksum: self.encoded.checksum };
        let header = SegmentHeader { store: self.options.store, first, previous };
        let created = Active::create(&self.disk, &header);
        let active = created.map_err(|error| self.fail(Operation::Create, first, error))?;
        self.active = Some(active);
        self.segments.push(Segment { first, before });
        Ok(())
    }

    /// Writes records to the active segment until it is full, or as many as one write takes.
    fn write_some(&mut self) -> Result<(), Failure> {
        let Some(active) = &mut self.active else {
            unreachable!("`roll_if_full` has created a segment")
        };
        // The first record always fits: `roll_if_full` has seen to it.
        loop {
            let record = &self.queue[self.encoded_count];
            active.append(record.position, &record.payload);
            self.encoded_count += 1;
            let Some(next) = self.queue.get(self.encoded_count) else { break };
            let next_len = (RECORD_HEADER_LEN + next.payload.len()) as u64;
            let is_full = active.total_len() + next_len > self.options.segment_bytes;
            if is_full || active.buffered_len() >= WRITE_LEN {
                break;
            }
        }
        let (first, written) = (active.first, active.write());
        self.encoded = active.last;
        written.map_err(|error| self.fail(Operation::Write, first, error))
    }

    /// Waits until all that was written is durable.
    fn sync_active(&mut self) -> Result<(), Failure> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let first = active.first;
        if !makes(Mistake::DurableBeforeSync) {
            let synced = active.sync(&self.disk, makes(Mistake::CreateNotSynced));
            synced.map_err(|error| self.fail(Operation::Sync, first, error))?;
        }
        self.progress.durable = self.progress.durable.max(self.encoded.position);
        self.progress.written = self.progress.written.max(self.progress.durable);
        self.secure();
        Ok(())
    }

    /// Forgets the records that were written.
    fn secure(&mut self) {
        if let Some(active) = &mut self.active {
            active.secure();
        }
        for record in self.queue.drain(..self.encoded_count) {
            self.buffered_bytes -= record.payload.len();
        }
        self.encoded_count = 0;
    }

    /// Cuts the active segment to what is secured, and ends it.
    fn drop_unsecured(&mut self) -> Result<(), Failure> {
        let Some(active) = &self.active else { return Ok(()) };
        let (first, (len, last)) = (active.first, active.secured());
        let name = segment_name(first);
        if len == 0 {
            match self.disk.remove(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.fail(Operation::Remove, first, error));
                }
                _ => {}
            }
            self.segments.pop();
        } else {
            let cut = self.disk.open(&name).and_then(|mut file| {
                file.set_len(len)?;
                file.sync_data()
            });
            cut.map_err(|error| self.fail(Operation::Truncate, first, error))?;
        }
        self.active = None;
        self.encoded = last;
        self.encoded_count = 0;
        Ok(())
    }

    /// Makes a failure of segment `first` stick.
    fn fail(&mut self, operation: Operation, first: u64, source: io::Error) -> Failure {
        let path = self.disk.path(&segment_name(first));
        let durable = self.progress.durable;
        let failure = Failure { operation, path, durable, source: Arc::new(source) };
        self.failure = Some(failure.clone());
        failure
    }
}

/// Checks that a record can be appended after position `last`, while `buffered` payload bytes wait.
pub(crate) fn check(
    options: &Options,
    last: u64,
    buffered: usize,
    position: u64,
    len: usize,
) -> Result<(), JournalError> {
    if position <= last {
        return Err(JournalError::NotAscending { position, last });
    }
    if len > PAYLOAD_MAX {
        return Err(JournalError::TooLong { len, max: PAYLOAD_MAX });
    }
    // A record that is longer than the whole buffer is accepted when nothing else waits.
    if buffered > 0 && buffered.saturating_add(len) > options.buffered_bytes_max {
        return Err(JournalError::BufferFull { buffered, max: options.buffered_bytes_max });
    }
    Ok(())
}
