//! What a replica's disk is in a test: a list, or a journal on a disk in memory that loses what was
//! not synchronised.

use std::collections::VecDeque;

use onepipe_journal::{Journal, JournalError, MemoryDisk, Options, StoreId};
use onepipe_log::Record;

/// What is found on a disk.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub checkpoint: Option<(u64, Vec<u8>)>,
    pub records: Vec<Record>,
}

/// The disk of a replica.
pub trait Store: Default {
    /// Queues a record.
    fn append(&mut self, record: Record);
    /// Stores some of what is queued. Returns the last record that survives a loss of power.
    fn store(&mut self) -> Option<u64>;
    /// Whether something is queued.
    fn is_pending(&self) -> bool;
    /// Whether the disk was too full to store something: then the replica ends.
    fn was_full(&self) -> bool {
        false
    }
    /// Replaces the records up to a number. Returns the last record that survives a loss of power.
    fn checkpoint(&mut self, number: u64, bytes: &[u8]) -> u64;
    /// Loses power. `seed` decides what is lost of that which is not stored.
    fn crash(&mut self, seed: u64);
    /// Returns what is on the disk.
    fn open(&mut self) -> Found;
}

/// A list of records, which are stored one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListStore {
    queue: VecDeque<Record>,
    disk: Vec<Record>,
    checkpoint: Option<(u64, Vec<u8>)>,
}

impl Store for ListStore {
    fn append(&mut self, record: Record) {
        self.queue.push_back(record);
    }

    fn store(&mut self) -> Option<u64> {
        let record = self.queue.pop_front()?;
        let number = record.number;
        self.disk.push(record);
        Some(number)
    }

    fn is_pending(&self) -> bool {
        !self.queue.is_empty()
    }

    fn checkpoint(&mut self, number: u64, bytes: &[u8]) -> u64 {
        self.queue.retain(|record| record.number > number);
        self.disk.retain(|record| record.number > number);
        self.checkpoint = Some((number, bytes.to_vec()));
        number
    }

    fn crash(&mut self, _: u64) {
        self.queue.clear();
    }

    fn open(&mut self) -> Found {
        Found { checkpoint: self.checkpoint.clone(), records: self.disk.clone() }
    }
}

const OPTIONS: Options = {
    let mut options = Options::new(StoreId(*b"a log in a test "));
    // Small segments: a run begins many.
    options.segment_bytes = 600;
    options
};

/// A journal on a disk in memory.
#[derive(Debug, Default)]
pub struct JournalStore {
    disk: MemoryDisk,
    journal: Option<Journal<MemoryDisk>>,
    is_written: bool,
    was_full: bool,
}

impl JournalStore {
    /// Lets the disk be full after a number of operations; `None`: no longer.
    pub fn fill_after(&mut self, operations: Option<u64>) {
        if operations.is_some() {
            // A replica that starts has the space for its first file.
            self.journal();
        }
        let disk = &self.disk;
        disk.fill_at(operations.map(|operations| disk.operations() + operations));
        self.was_full &= operations.is_some();
    }

    /// Notes whether the disk was full. Other failures do not occur.
    fn check<T>(&mut self, result: Result<T, JournalError>) -> Option<T> {
        match result {
            Ok(done) => return Some(done),
            Err(JournalError::Failed(failure)) if failure.is_disk_full() => self.was_full = true,
            Err(error) => panic!("the disk works: {error}"),
        }
        None
    }

    fn journal(&mut self) -> &mut Journal<MemoryDisk> {
        let disk = &self.disk;
        self.journal.get_or_insert_with(|| {
            Journal::open_on(disk.clone(), OPTIONS).expect("the disk is intact").0
        })
    }
}

impl Store for JournalStore {
    fn append(&mut self, record: Record) {
        self.is_written = false;
        self.journal().append(record.number, &record.to_bytes()).expect("numbers ascend");
    }

    /// Writes what is queued, or synchronises what is written.
    fn store(&mut self) -> Option<u64> {
        if !std::mem::replace(&mut self.is_written, true) {
            let flushed = self.journal().flush();
            self.check(flushed);
            return None;
        }
        let synced = self.journal().sync();
        self.check(synced).map(|progress| progress.durable)
    }

    fn was_full(&self) -> bool {
        self.was_full
    }

    fn is_pending(&self) -> bool {
        let is_pending = |one: &Journal<_>| one.progress().durable < one.last();
        !self.was_full && self.journal.as_ref().is_some_and(is_pending)
    }

    fn checkpoint(&mut self, number: u64, bytes: &[u8]) -> u64 {
        if self.journal().last_snapshot() < number {
            self.journal().snapshot(number, bytes).expect("the disk works");
        }
        // The journal may have synchronised records behind the checkpoint, too.
        self.journal().progress().durable
    }

    fn crash(&mut self, seed: u64) {
        if let Some(mut journal) = self.journal.take() {
            self.disk.crash_at(self.disk.operations() + seed % 5);
            // The power fails in the middle of writing, or after.
            let _ = journal.sync();
        }
        self.disk.restart(seed);
        self.is_written = false;
    }

    fn open(&mut self) -> Found {
        self.journal = None;
        let opened = Journal::open_on(self.disk.clone(), OPTIONS);
        let (journal, recovered) = opened.expect("a crash leaves a journal that opens");
        self.journal = Some(journal);
        let checkpoint = recovered.snapshot.map(|snapshot| (snapshot.position, snapshot.bytes));
        let parse = |record: &onepipe_journal::Record| {
            Record::parse(record.position, &record.payload).expect("what was stored is a record")
        };
        Found { checkpoint, records: recovered.records.iter().map(parse).collect() }
    }
}
