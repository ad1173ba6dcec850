//! A replica with a log, for tests.

use std::path::Path;

use onepipe::{ProcessId, Timestamp};
use onepipe_journal::{Disk, Journal, SyncPolicy};
use onepipe_kv::{Command, Plan, Store};
use onepipe_transaction::{Replica, ReplicaOptions, Request, RequestKind};

use super::StorageOptions;
use super::layout::encode;

/// A store of one shard with one replica.
pub const SHAPE: (u16, u16) = (1, 1);
pub const REPLICA: (u16, u16) = (0, 0);

/// Returns the settings of a store in `directory`.
pub fn options(directory: &Path) -> StorageOptions {
    let (policy, snapshot_bytes) = (SyncPolicy::Always, u64::MAX);
    StorageOptions { directory: directory.into(), policy, snapshot_bytes }
}

/// Returns a replica that has executed nothing.
pub fn replica() -> Replica<Store> {
    Replica::new(0, Store::default(), ReplicaOptions { is_durable: true })
}

/// Executes the write `number`, of `words`, at `at`. Two writes in succession have one client.
pub fn execute(replica: &mut Replica<Store>, number: u64, at: Timestamp, words: &[&[u8]]) {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    let plan = Plan::new(&[Command::parse(&words).expect("a command")], SHAPE.0);
    let parts = plan.parts().iter().map(|(shard, part)| (*shard, &part[..])).collect();
    let (kind, session, attempt, finished) = (RequestKind::Write, 1, 0, number.saturating_sub(4));
    let request = Request { kind, session, number, attempt, finished, view: None, parts };
    let mut payload = Vec::new();
    request.write(&mut payload);
    replica.on_message(true, at, ProcessId(7 + (number / 2) as u32 % 2), &payload);
}

/// Executes writes of the list `a` until the replica has executed `last`, at one timestamp each,
/// and stores them.
pub fn grow(replica: &mut Replica<Store>, journal: &mut Journal, last: u64) {
    for number in replica.recorded() + 1..=last {
        let value = number.to_string();
        execute(replica, number, at(number), &[b"RPUSH", b"a", value.as_bytes()]);
    }
    store(replica, journal);
}

/// Appends all that the replica has executed to its log.
pub fn store<D: Disk>(replica: &mut Replica<Store>, journal: &mut Journal<D>) {
    while let Some(record) = replica.poll_record() {
        journal.append(record.number, &encode(&record)).expect("numbers ascend");
    }
    let stored = journal.sync().expect("the disk works").durable;
    replica.on_stored(stored);
}

/// Returns the timestamp of the write `number` of [`grow`].
pub fn at(number: u64) -> Timestamp {
    Timestamp::from_ns(10 * number)
}

/// Returns all that a replica has, encoded.
pub fn image(replica: &Replica<Store>) -> Vec<u8> {
    let mut image = Vec::new();
    replica.save(&mut image);
    image
}
