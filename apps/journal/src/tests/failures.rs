//! Failures of the disk.

use super::{STORE, small_segments};
use crate::memory::MemoryDisk;
use crate::{Journal, JournalError, Options, SyncPolicy};

fn open(disk: &MemoryDisk, options: Options) -> (Journal<MemoryDisk>, Vec<u64>) {
    let (journal, recovered) = Journal::open_on(disk.clone(), options).expect("it opens");
    (journal, recovered.records.iter().map(|record| record.position).collect())
}

#[test]
fn nothing_is_durable_after_a_failed_sync_until_reopened() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk, Options::new(STORE));
    journal.append(1, b"one").expect("it fits");
    journal.sync().expect("the disk works");
    journal.append(2, b"two").expect("it fits");
    disk.fail_syncs(1);
    journal.sync().expect_err("the disk fails");
    journal.append(3, b"three").expect("it is retained in memory");
    let error = journal.sync().expect_err("the failure sticks").to_string();
    assert!(error.contains("up to 1 are durable") && error.contains("reopen"), "{error}");
    assert_eq!(journal.progress().durable, 1);

    assert_eq!(journal.reopen().expect("the disk works again").durable, 3);
    drop(journal);
    disk.restart(7);
    assert_eq!(open(&disk, Options::new(STORE)).1, [1, 2, 3]);
}

#[test]
fn a_full_disk_loses_nothing_and_writing_resumes() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk, small_segments());
    disk.set_capacity(Some(2_000));
    let mut position = 0;
    let failure = loop {
        position += 1;
        journal.append(position, &[7; 100]).expect("it fits into memory");
        match journal.sync() {
            Ok(progress) => assert_eq!(progress.durable, position),
            Err(JournalError::Failed(failure)) => break failure,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(failure.is_disk_full() && failure.to_string().contains("free space"), "{failure}");
    assert_eq!(journal.progress().durable, position - 1);
    journal.append(position + 1, &[8; 100]).expect("it fits into memory");
    journal.reopen().expect_err("the disk is still full");

    disk.set_capacity(None);
    assert_eq!(journal.reopen().expect("the disk has space").durable, position + 1);
    drop(journal);
    disk.restart(3);
    assert!(open(&disk, small_segments()).1.into_iter().eq(1..=position + 1));
}

#[test]
fn every_second_waits_for_the_disk_once_a_second() {
    let disk = MemoryDisk::new();
    let options = Options { policy: SyncPolicy::EverySecond, ..Options::new(STORE) };
    let (mut journal, _) = open(&disk, options);
    journal.append(1, b"one").expect("it fits");
    let progress = journal.commit(400_000_000).expect("the disk works");
    assert_eq!((progress.written, progress.durable), (1, 0));
    assert_eq!(progress.acknowledged(options.policy), 1);
    let progress = journal.commit(1_400_000_000).expect("the disk works");
    assert_eq!((progress.written, progress.durable), (1, 1));
    assert_eq!(journal.buffered_bytes(), 0);
}

#[test]
fn never_retains_nothing_in_memory() {
    let disk = MemoryDisk::new();
    let options = Options { policy: SyncPolicy::Never, ..Options::new(STORE) };
    let (mut journal, _) = open(&disk, options);
    journal.append(1, b"one").expect("it fits");
    let progress = journal.commit(u64::MAX).expect("the disk works");
    assert_eq!((progress.written, progress.durable, journal.buffered_bytes()), (1, 0, 0));
    drop(journal);
    assert_eq!(open(&disk, options).1, [1], "the process crashed, not the machine");
}

#[test]
fn refuses_positions_that_do_not_ascend_and_a_full_buffer() {
    let disk = MemoryDisk::new();
    let options = Options { buffered_bytes_max: 10, ..Options::new(STORE) };
    let (mut journal, _) = open(&disk, options);
    let refused = journal.append(0, b"").expect_err("0 is before every record");
    assert!(matches!(refused, JournalError::NotAscending { position: 0, last: 0 }));
    journal.append(5, &[0; 20]).expect("nothing else waits");
    journal.append(5, b"").expect_err("it does not ascend");
    let refused = journal.append(6, b"x").expect_err("the buffer is full");
    assert!(matches!(refused, JournalError::BufferFull { buffered: 20, max: 10 }));
    journal.sync().expect("the disk works");
    journal.append(6, b"x").expect("the buffer is empty");
    journal.snapshot(9, b"from a peer").expect("the disk works");
    journal.append(9, b"").expect_err("the snapshot holds it");
    journal.snapshot(9, b"").expect_err("there is one");
}
