//! Names, identities and records of the logs of a store.

use std::path::Path;

use onepipe_journal::StoreId;
use onepipe_transaction::Record;

use super::error::StorageError;

/// Returns the name of a replica's directory.
pub fn replica_name(shard: u16, replica: u16) -> String {
    format!("shard-{shard}-{replica}")
}

/// Returns the identity of a log. Logs of stores of another shape, or of another shard, are not
/// taken for this one.
pub fn store_id(shard: u16, (shards, replicas): (u16, u16)) -> StoreId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(b"onepipe\0");
    id[8..10].copy_from_slice(&shards.to_le_bytes());
    id[10..12].copy_from_slice(&replicas.to_le_bytes());
    id[12..14].copy_from_slice(&shard.to_le_bytes());
    StoreId(id)
}

/// Returns the bytes of a record in a log.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    bytes
}

/// Parses a record of the log in `directory`.
pub fn parse(directory: &Path, record: onepipe_journal::Record) -> Result<Record, StorageError> {
    let number = record.position;
    let malformed = StorageError::Record { directory: directory.into(), number };
    Record::parse(number, &record.payload).ok_or(malformed)
}
