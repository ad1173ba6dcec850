//! The embedded store: one file, for replicas of one machine.

mod log;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onepipe_base::ProcessId;
use onepipe_controller::{Epoch, Record, RecordError, Store, StoreError};
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, WriteTransaction};

use log::{DIGEST_KEY, EPOCH_KEY, FORMAT_KEY, LOG, LogEntry, NUMBERS, OpenLog, extend};

/// Version of the tables. The first one has no digest; any other was written by another
/// version of this program.
const FORMAT_VERSION: u64 = 2;
const FORMAT_WITHOUT_DIGEST: u64 = 1;
/// A few pages: a log is short, and read once.
const CACHE_BYTES: usize = 4 << 20;
/// The shortest time between two attempts to open the file of the current epoch again.
const REOPEN_INTERVAL: Duration = Duration::from_millis(100);

/// Records in one file, and an election by its lock: the kernel holds it for the active replica and
/// releases it when that process ends, however it ends. So there is no lease to renew, and no
/// replica takes over from a process that is merely stopped.
///
/// A database that has had an error of the system rejects all further calls. So the file is closed
/// after an error and opened again by a later call, in the same epoch unless another replica has
/// begun one in between.
#[derive(Debug)]
pub struct RedbStore {
    path: PathBuf,
    /// The term of this replica while it is active.
    term: Option<Term>,
}

#[derive(Debug)]
struct Term {
    epoch: Epoch,
    file: TermFile,
    /// The last record that was written, unless a replacement of the log has failed since.
    last: Option<LogEntry>,
}

/// The file during a term.
#[derive(Debug)]
enum TermFile {
    Open(Database),
    /// Closed after an error; opened again once `retry_at` is over.
    Closed {
        kind: io::ErrorKind,
        reason: String,
        retry_at: Instant,
    },
}

/// Why the file is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedbError {
    /// The system returned an error.
    #[error("cannot use {path} ({advice})", path = path.display(), advice = advice(source.kind()))]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process has the lock of the file.
    #[error("{path} is in use by the active controller", path = path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a controller's store.
    #[error(
        "{path} is not a controller's store: {reason}; name another file, or move this one away",
        path = path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file is damaged.
    #[error(
        "{path} is damaged: {reason}; an older copy lacks decisions: move the file away and restart \
         all nodes of the fabric",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file lacks a record that was written: it is an older copy.
    #[error(
        "{path} has gone back in time: it lacks record {index}, which was written in this epoch; put \
         the latest file back, or restart all nodes of the fabric",
        path = path.display()
    )]
    WentBack {
        /// The file.
        path: PathBuf,
        /// Index in the log of the missing record.
        index: u64,
    },
    /// A record is not readable by this version.
    #[error(
        "record {at} in {path} is unreadable: use the version that has written it",
        path = path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// Its index in the log.
        at: u64,
        /// The cause.
        source: RecordError,
    },
}

impl RedbStore {
    /// Creates a store at `path`. The file is opened, or created, by the first campaign.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), term: None }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file and takes its lock. `None` if another process holds it.
    fn open(&self) -> Result<Option<Database>, RedbError> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create()?,
            Err(error) => return Err(self.system(error)),
            // Files are created as a whole (see `create`), so this one was truncated; redb would
            // initialize it again, with epochs from 1.
            Ok(file) if file.len() == 0 => return Err(self.damaged("it is empty")),
            Ok(_) => {}
        }
        match Builder::new().set_cache_size(CACHE_BYTES).open(&self.path) {
            Ok(database) => Ok(Some(database)),
            Err(DatabaseError::DatabaseAlreadyOpen) => Ok(None),
            Err(error) => Err(self.store_error(error.into())),
        }
    }

    /// Creates the file under a temporary name and links it as a whole: a crash leaves none or all
    /// of it. If another process does the same at the same time, one file wins.
    fn create(&self) -> Result<(), RedbError> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut temp_path = self.path.clone().into_os_string();
        temp_path.push(format!(".new-{}-{:?}", std::process::id(), std::thread::current().id()));
        let temp_path = PathBuf::from(temp_path);
        let created = self.initialize(&temp_path).and_then(|()| {
            match fs::hard_link(&temp_path, &self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked
                    .and_then(|()| File::open(folder)?.sync_all())
                    .map_err(|error| self.system(error)),
            }
        });
        // The temporary file may not exist.
        let _ = fs::remove_file(&temp_path);
        created
    }

    fn initialize(&self, temp_path: &Path) -> Result<(), RedbError> {
        // Left behind by a process with the same id.
        let _ = fs::remove_file(temp_path);
        let database =
            Builder::new().create(temp_path).map_err(|error| self.store_error(error.into()))?;
        self.write(&database, |transaction| {
            transaction.open_table(LOG)?;
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(FORMAT_KEY, FORMAT_VERSION)?;
            numbers.insert(DIGEST_KEY, 0)?;
            numbers.insert(EPOCH_KEY, 0)?;
            Ok(())
        })
    }

    /// Runs one durable, atomic transaction.
    fn write<T>(
        &self,
        database: &Database,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, RedbError> {
        let done = || {
            let transaction = database.begin_write()?;
            let done = change(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        done().map_err(|error| self.store_error(error))
    }

    /// Starts the next epoch, and records in the log that `replica` is active in it.
    fn begin_epoch(
        &self,
        database: &Database,
        replica: ProcessId,
    ) -> Result<(Epoch, LogEntry), RedbError> {
        let last = self.read_number(database, EPOCH_KEY)?;
        let is_later = |record: &Record| match record {
            Record::Epoch { epoch, .. } => u64::from(epoch.0) > last,
            _ => false,
        };
        let has_later = self.read_log(database)?.iter().any(is_later);
        let epoch = u32::try_from(last).ok().and_then(|last| last.checked_add(1)).map(Epoch);
        let epoch = epoch.filter(|_| !has_later);
        let epoch = epoch.ok_or_else(|| self.damaged(format!("its last epoch is {last}")))?;
        let entry = self.write(database, |transaction| {
            let mut log = OpenLog::open(transaction)?;
            log.numbers.insert(FORMAT_KEY, FORMAT_VERSION)?;
            log.numbers.insert(EPOCH_KEY, u64::from(epoch.0))?;
            log.push(&Record::Epoch { epoch, replica })
        })?;
        Ok((epoch, entry))
    }

    /// Returns whether the log has a digest.
    fn has_digest(&self, database: &Database) -> Result<bool, RedbError> {
        match self.read_number(database, FORMAT_KEY)? {
            FORMAT_VERSION => Ok(true),
            FORMAT_WITHOUT_DIGEST => Ok(false),
            format => {
                let reason = format!("its format is {format}, this version reads {FORMAT_VERSION}");
                Err(self.foreign(reason))
            }
        }
    }

    fn read_number(&self, database: &Database, name: &str) -> Result<u64, RedbError> {
        let read = || {
            let numbers = database.begin_read()?.open_table(NUMBERS)?;
            Ok(numbers.get(name)?.map(|number| number.value()))
        };
        let number: Option<u64> = read().map_err(|error| self.store_error(error))?;
        number.ok_or_else(|| self.damaged(format!("it has no number for {name:?}")))
    }

    //= spec/failure.md#R70
    fn read_log(&self, database: &Database) -> Result<Vec<Record>, RedbError> {
        let read = || {
            let log = database.begin_read()?.open_table(LOG)?;
            let entries = log.iter()?.map(|entry| {
                let (at, bytes) = entry?;
                Ok((at.value(), bytes.value().to_vec()))
            });
            entries.collect::<Result<Vec<_>, redb::Error>>()
        };
        let entries = read().map_err(|error| self.store_error(error))?;
        if self.has_digest(database)? {
            let digest = self.read_number(database, DIGEST_KEY)?;
            let found = entries.iter().fold(0, |digest, (at, bytes)| extend(digest, *at, bytes));
            if found != digest {
                return Err(self.damaged("its records are not those that were written"));
            }
        }
        let decode = |(at, bytes): (u64, Vec<u8>)| {
            let path = self.path.clone();
            Record::decode(&bytes).map_err(|source| RedbError::Record { path, at, source })
        };
        entries.into_iter().map(decode).collect()
    }

    /// Runs `call` on the database of this replica's term, which must be `epoch`.
    //= spec/failure.md#R52
    fn in_term<T>(
        &mut self,
        epoch: Epoch,
        call: impl FnOnce(&Self, &Database) -> Result<T, RedbError>,
    ) -> Result<T, StoreError<RedbError>> {
        let term = self.term.take_if(|term| term.epoch == epoch).ok_or(StoreError::Deposed)?;
        let Term { file, last, .. } = term;
        let result = match file {
            TermFile::Open(database) => call(self, &database).map(|done| (done, database)),
            TermFile::Closed { kind, reason, retry_at } if Instant::now() < retry_at => {
                let error = self.system(io::Error::new(kind, reason.clone()));
                let file = TermFile::Closed { kind, reason, retry_at };
                self.term = Some(Term { epoch, file, last });
                return Err(StoreError::Failed(error));
            }
            TermFile::Closed { .. } => match self.reopen(epoch, last.as_ref()) {
                Ok(Some(database)) => call(self, &database).map(|done| (done, database)),
                Ok(None) => return Err(StoreError::Deposed),
                Err(error) => Err(error),
            },
        };
        let (file, result) = match result {
            Ok((done, database)) => (TermFile::Open(database), Ok(done)),
            Err(error) => (TermFile::closed_by(&error), Err(StoreError::Failed(error))),
        };
        self.term = Some(Term { epoch, file, last });
        result
    }

    /// Opens the file again. Returns `None` if another replica has begun an epoch since.
    //= spec/failure.md#R54
    fn reopen(&self, epoch: Epoch, last: Option<&LogEntry>) -> Result<Option<Database>, RedbError> {
        let Some(database) = self.open()? else { return Ok(None) };
        let found = self.read_number(&database, EPOCH_KEY)?;
        if found > u64::from(epoch.0) {
            return Ok(None);
        }
        let has = |LogEntry { index, bytes }: &LogEntry| {
            let log = database.begin_read()?.open_table(LOG)?;
            Ok(log.get(*index)?.is_some_and(|found| found.value() == bytes.as_slice()))
        };
        if let Some(last) = last
            && !has(last).map_err(|error| self.store_error(error))?
        {
            return Err(RedbError::WentBack { path: self.path.clone(), index: last.index });
        }
        Ok((found == u64::from(epoch.0)).then_some(database))
    }

    /// Notes the last record that is known to be written.
    fn set_last(&mut self, last: Option<LogEntry>) {
        if let Some(term) = &mut self.term {
            term.last = last;
        }
    }

    /// Returns what an error of the database says about the file.
    fn store_error(&self, error: redb::Error) -> RedbError {
        match error {
            redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
                // redb reports a file with a wrong magic number like this.
                self.foreign(source.to_string())
            }
            redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.damaged(source.to_string())
            }
            redb::Error::Io(source) => self.system(source),
            redb::Error::PreviousIo => self.system(io::Error::other("an earlier call has failed")),
            redb::Error::UpgradeRequired(version) => {
                self.foreign(format!("its database has format {version}"))
            }
            redb::Error::TableDoesNotExist(table) => {
                self.foreign(format!("the database has no table {table}"))
            }
            redb::Error::DatabaseAlreadyOpen => self.held(),
            error => self.damaged(error.to_string()),
        }
    }

    fn system(&self, source: io::Error) -> RedbError {
        RedbError::System { path: self.path.clone(), source }
    }

    fn held(&self) -> RedbError {
        RedbError::Held { path: self.path.clone() }
    }

    fn foreign(&self, reason: impl Into<String>) -> RedbError {
        RedbError::Foreign { path: self.path.clone(), reason: reason.into() }
    }

    fn damaged(&self, reason: impl Into<String>) -> RedbError {
        RedbError::Damaged { path: self.path.clone(), reason: reason.into() }
    }
}

impl TermFile {
    fn closed_by(error: &RedbError) -> Self {
        let (kind, reason) = match error {
            RedbError::System { source, .. } => (source.kind(), source.to_string()),
            other => (io::ErrorKind::Other, other.to_string()),
        };
        Self::Closed { kind, reason, retry_at: Instant::now() + REOPEN_INTERVAL }
    }
}

/// Returns what an operator does about an error of the system.
fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on its disk: the store is then used again by itself"
        }
        io::ErrorKind::NotFound => "create its folder: the store is then used again by itself",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make it writable: the store is then used again by itself"
        }
        io::ErrorKind::IsADirectory => "name a file instead of a directory",
        _ => "it is tried again",
    }
}

impl Store for RedbStore {
    type Error = RedbError;

    fn campaign(&mut self, replica: ProcessId) -> Result<Option<Epoch>, RedbError> {
        let database = match self.term.take() {
            Some(Term { file: TermFile::Open(database), .. }) => database,
            _ => match self.open()? {
                Some(database) => database,
                None => return Ok(None),
            },
        };
        let (epoch, entry) = self.begin_epoch(&database, replica)?;
        self.term = Some(Term { epoch, file: TermFile::Open(database), last: Some(entry) });
        Ok(Some(epoch))
    }

    fn renew(&mut self, epoch: Epoch) -> Result<(), StoreError<RedbError>> {
        self.in_term(epoch, |_, _| Ok(()))
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<RedbError>> {
        self.term.take_if(|term| term.epoch == epoch).map(drop).ok_or(StoreError::Deposed)
    }

    fn load(&mut self) -> Result<Vec<Record>, RedbError> {
        let Some(epoch) = self.term.as_ref().map(|term| term.epoch) else {
            return match self.open()? {
                Some(database) => self.read_log(&database),
                None => Err(self.held()),
            };
        };
        self.in_term(epoch, Self::read_log).map_err(|error| match error {
            StoreError::Deposed => self.held(),
            StoreError::Failed(error) => error,
        })
    }

    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<RedbError>> {
        let entry = self.in_term(epoch, |store, database| {
            store.write(database, |transaction| OpenLog::open(transaction)?.push(record))
        })?;
        self.set_last(Some(entry));
        Ok(())
    }

    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<RedbError>> {
        let replace = |transaction: &WriteTransaction| {
            let mut log = OpenLog::open(transaction)?;
            log.clear()?;
            let mut last = None;
            for record in records {
                last = Some(log.push(record)?);
            }
            Ok(last)
        };
        let replaced = self.in_term(epoch, |store, database| store.write(database, replace));
        // After a failure the log is the previous one or the new one.
        let (last, result) = match replaced {
            Ok(last) => (last, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.set_last(last);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ProcessId = ProcessId(90);

    /// Closes the file, as an error does whose cause is over.
    fn close(store: &mut RedbStore) {
        let term = store.term.as_mut().expect("active");
        let (kind, reason) = (io::ErrorKind::StorageFull, "full".to_owned());
        term.file = TermFile::Closed { kind, reason, retry_at: Instant::now() };
    }

    #[test]
    fn file_without_a_digest_gets_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("controller.redb");
        let mut store = RedbStore::new(&path);
        let epoch = store.campaign(REPLICA).expect("a new file").expect("no other replica");
        store.append(epoch, &Record::Members(Vec::new())).expect("active");
        drop(store);
        let database = Database::open(&path).expect("closed");
        let transaction = database.begin_write().expect("a database");
        let mut numbers = transaction.open_table(NUMBERS).expect("it exists");
        numbers.remove(DIGEST_KEY).expect("it exists");
        numbers.insert(FORMAT_KEY, FORMAT_WITHOUT_DIGEST).expect("an open table");
        drop(numbers);
        transaction.commit().expect("a disk");
        drop(database);
        for epoch in [2, 3] {
            let mut store = RedbStore::new(&path);
            assert_eq!(store.campaign(REPLICA).expect("it is readable"), Some(Epoch(epoch)));
            assert_eq!(store.load().expect("active").len(), 1 + epoch as usize);
        }
        let store = RedbStore::new(&path);
        let database = store.open().expect("closed").expect("closed");
        assert!(store.has_digest(&database).expect("it is readable"));
        store
            .write(&database, |transaction| {
                transaction.open_table(LOG)?.insert(1, [1].as_slice())?;
                Ok(())
            })
            .expect("a disk");
        assert!(matches!(store.read_log(&database), Err(RedbError::Damaged { .. })));
    }

    //= spec/failure.md#R54
    #[test]
    fn older_copy_is_refused_while_active() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("controller.redb");
        let record = Record::Members(Vec::new());
        let mut store = RedbStore::new(&path);
        let epoch = store.campaign(REPLICA).expect("a new file").expect("no other replica");
        close(&mut store);
        let older = fs::read(&path).expect("it is closed");
        store.append(epoch, &record).expect("opened again");
        close(&mut store);
        let latest = fs::read(&path).expect("it is closed");

        fs::write(&path, &older).expect("write");
        let refused = store.append(epoch, &record).expect_err("an older copy");
        assert!(matches!(refused, StoreError::Failed(RedbError::WentBack { index: 1, .. })));
        fs::write(&path, &latest).expect("write");
        close(&mut store);
        store.append(epoch, &record).expect("the latest file");
        let log = store.load().expect("active");
        assert_eq!(
            log,
            [Record::Epoch { epoch, replica: REPLICA }, record.clone(), record.clone()]
        );

        // A replacement of the log, and the epoch of another replica, are no step back.
        store.replace(epoch, &[]).expect("active");
        close(&mut store);
        store.renew(epoch).expect("nothing is missing");
        close(&mut store);
        RedbStore::new(&path).campaign(REPLICA).expect("it is a store").expect("it was closed");
        assert!(matches!(store.renew(epoch), Err(StoreError::Deposed)));
    }
}
