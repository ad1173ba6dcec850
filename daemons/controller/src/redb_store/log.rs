//! The tables of the file, and the log in them.

use onepipe_controller::Record;
use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

/// Records by index in the log.
pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("onepipe/log");
/// The epoch, the format and the digest of the log, by name.
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("onepipe/numbers");
pub(super) const EPOCH_KEY: &str = "epoch";
pub(super) const FORMAT_KEY: &str = "format";
/// Digest of all records in the log: the database does not compare its own checksums when it opens
/// a file that was closed.
pub(super) const DIGEST_KEY: &str = "digest";

/// A record in the log.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub(super) index: u64,
    pub(super) bytes: Vec<u8>,
}

/// The log in a transaction that changes it.
pub(super) struct OpenLog<'a> {
    log: Table<'a, u64, &'static [u8]>,
    pub(super) numbers: Table<'a, &'static str, u64>,
}

impl<'a> OpenLog<'a> {
    pub(super) fn open(transaction: &'a WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self { log: transaction.open_table(LOG)?, numbers: transaction.open_table(NUMBERS)? })
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) -> Result<(), redb::Error> {
        self.log.retain(|_, _| false)?;
        self.numbers.insert(DIGEST_KEY, 0)?;
        Ok(())
    }

    /// Appends a record.
    pub(super) fn push(&mut self, record: &Record) -> Result<LogEntry, redb::Error> {
        let index = self.log.last()?.map_or(0, |(last, _)| last.value() + 1);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.log.insert(index, bytes.as_slice())?;
        let digest = self.numbers.get(DIGEST_KEY)?.map(|digest| digest.value());
        let digest = match digest {
            Some(digest) => extend(digest, index, &bytes),
            None => self.digest()?,
        };
        self.numbers.insert(DIGEST_KEY, digest)?;
        Ok(LogEntry { index, bytes })
    }

    /// Returns the digest of a log that has none.
    fn digest(&self) -> Result<u64, redb::Error> {
        let mut digest = 0;
        for entry in self.log.iter()? {
            let (at, bytes) = entry?;
            digest = extend(digest, at.value(), bytes.value());
        }
        Ok(digest)
    }
}

/// Extends the digest of a log by one record: FNV-1a.
pub(super) fn extend(digest: u64, index: u64, bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let numbers = [digest, index, bytes.len() as u64].into_iter().flat_map(u64::to_be_bytes);
    let all = numbers.chain(bytes.iter().copied());
    all.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
