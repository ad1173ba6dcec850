use onepipe::ProcessId;
use onepipe_journal::{Journal, MemoryDisk, Options};

use super::*;
use crate::storage::layout::store_id;
use crate::storage::sample::{REPLICA, SHAPE, at, execute, grow, image, options, replica, store};

/// Number of writes at each timestamp.
const AT_ONCE: u64 = 3;
const WRITES: u64 = 40;

#[test]
fn replica_goes_on_after_what_its_own_log_holds() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(directory.path());
    let mut expected = replica();
    for last in [0, 4, 4, 9] {
        let opened = open_replica(&options, SHAPE, REPLICA).expect("it is whole");
        let Restored { replica, mut journal, .. } = opened.restored;
        assert_eq!(image(&replica), image(&expected), "with clients, up to {last}");
        let next = replica.recorded() + 1;
        assert_eq!(opened.log.records.len() as u64, next - 1);
        grow(&mut expected, &mut journal, last);
    }
    let opened = open_replica(&options, SHAPE, REPLICA).expect("it is whole");
    let Restored { replica, mut journal, log_bytes, snapshot_bytes, .. } = opened.restored;
    assert!(log_bytes > 0 && snapshot_bytes == 0);
    journal.snapshot(9, &image(&replica)).expect("the disk works");
    drop(journal);
    let opened = open_replica(&options, SHAPE, REPLICA).expect("it is whole");
    assert_eq!(opened.log.snapshot, Some((9, (at(9), ProcessId(7)))));
    assert_eq!(opened.log.records, []);
    let Restored { replica, log_bytes, snapshot_bytes, .. } = opened.restored;
    assert_eq!((log_bytes, snapshot_bytes), (0, image(&expected).len() as u64));
    assert_eq!(image(&replica), image(&expected));
}

/// Several programs share the directory of a store on one machine.
#[test]
fn replicas_of_one_directory_do_not_concern_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let (options, shape) = (options(directory.path()), (2, 2));
    let first = open_replica(&options, shape, (1, 0)).expect("it is new");
    let second = open_replica(&options, shape, (0, 1)).expect("another is in use");
    let error = open_replica(&options, shape, (1, 0)).map(drop).expect_err("it is in use");
    assert!(error.to_string().contains("is locked by process"), "{error}");
    assert!(!directory.path().join("shard-0-0").exists());
    drop((first, second));
    let error = open_replica(&options, (2, 1), (1, 0)).map(|_| "an empty log has no store");
    assert_eq!(error.ok(), Some("an empty log has no store"));
}

/// Executes a write. Some have one timestamp.
fn push(replica: &mut Replica<Store>, number: u64) {
    let value = number.to_string();
    execute(replica, number, at(number / AT_ONCE), &[b"RPUSH", b"a", value.as_bytes()]);
}

/// Returns the replica that has executed the writes below `before`, and no other.
fn executed_below(before: Timestamp) -> Replica<Store> {
    let mut replica = replica();
    for number in 1..=WRITES {
        if at(number / AT_ONCE) < before {
            push(&mut replica, number);
        }
    }
    replica
}

fn small_segments() -> Options {
    let snapshot_count = 2;
    Options { segment_bytes: 400, snapshot_count, ..Options::new(store_id(0, SHAPE)) }
}

/// Returns the disk of a log of all writes, with snapshots after those of `snapshots`.
fn disk_with(snapshots: &[u64]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), small_segments()).expect("it is new");
    let mut replica = replica();
    for number in 1..=WRITES {
        push(&mut replica, number);
        store(&mut replica, &mut journal);
        if snapshots.contains(&number) {
            journal.snapshot(number, &image(&replica)).expect("the disk works");
        }
    }
    disk
}

#[test]
fn rebuilt_replica_has_executed_what_is_below() {
    for snapshots in [&[][..], &[13], &[12, 20], &[13, 22, 31]] {
        let disk = disk_with(snapshots);
        // The journal removes what the older of two snapshots replaces.
        let oldest = snapshots.iter().rev().take(2).next_back();
        let refused_until = oldest.map(|oldest| at(oldest / AT_ONCE));
        for before in 0..=at(WRITES / AT_ONCE + 1).as_ns() {
            let before = Timestamp::from_ns(before);
            match rebuild(&disk, store_id(0, SHAPE), 0, before) {
                Ok(Rebuilt { replica: rebuilt, contents, .. }) => {
                    let expected = image(&executed_below(before));
                    assert_eq!(image(&rebuilt), expected, "{snapshots:?} {before:?}");
                    let mut again = replica();
                    assert!(contents.number == 0 || again.load(&contents.image));
                    contents.records.iter().for_each(|record| again.replay(record));
                    assert_eq!(image(&again), expected, "{snapshots:?} {before:?}");
                    assert!(Some(before) > refused_until, "{snapshots:?} {before:?}");
                }
                Err(StorageError::NotBack { missing: 1, .. }) => {
                    assert!(Some(before) <= refused_until, "{snapshots:?} {before:?}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Records that only a later snapshot holds may be below the timestamp, too.
#[test]
fn log_that_lacks_records_below_is_refused() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = Journal::open_on(disk.clone(), small_segments()).expect("it is new");
    let mut replica = replica();
    for number in 1..=4 {
        execute(&mut replica, number, at(number), &[b"RPUSH", b"a", b"1"]);
    }
    store(&mut replica, &mut journal);
    // A state from a peer: the log has none of the records from 5 to 9.
    for number in 5..=9 {
        execute(&mut replica, number, at(number), &[b"RPUSH", b"a", b"1"]);
        while replica.poll_record().is_some() {}
    }
    journal.snapshot(9, &image(&replica)).expect("the disk works");
    let rebuild = |before| rebuild(&disk, store_id(0, SHAPE), 0, before);
    for before in 5..=9 {
        let error = rebuild(at(before)).err().expect("record 5 is not there").to_string();
        assert!(error.contains("record ") && error.contains(&at(before).as_ns().to_string()));
    }
    assert_eq!(rebuild(at(10)).expect("the snapshot").replica.recorded(), 9);
}

#[test]
fn log_in_use_is_read_again_under_its_own_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(directory.path());
    let opened = open_replica(&options, SHAPE, REPLICA).expect("it is new");
    let Restored { mut replica, mut journal, .. } = opened.restored;
    grow(&mut replica, &mut journal, 6);
    let writer = onepipe_journal::Writer::start(journal, |_| {}).expect("a thread");
    let rebuilt = rebuild(writer.disk(), store_id(0, SHAPE), 0, at(4)).expect("it is whole");
    assert_eq!(rebuilt.replica.recorded(), 3);
}
