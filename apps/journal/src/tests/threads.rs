//! The writer's thread.

use std::sync::mpsc;
use std::time::Duration;

use super::{STORE, small_segments};
use crate::disk::Disk;
use crate::memory::MemoryDisk;
use crate::{Journal, JournalError, Options, Status, SyncPolicy, Writer};

const TIMEOUT: Duration = Duration::from_secs(20);

fn start(disk: &MemoryDisk, options: Options) -> (Writer<MemoryDisk>, mpsc::Receiver<Status>) {
    let (journal, _) = Journal::open_on(disk.clone(), options).expect("it opens");
    let (sender, receiver) = mpsc::channel();
    let on_change = move |status: &Status| drop(sender.send(status.clone()));
    (Writer::start(journal, on_change).expect("a thread"), receiver)
}

fn wait_for(receiver: &mpsc::Receiver<Status>, until: impl Fn(&Status) -> bool) -> Status {
    loop {
        let status = receiver.recv_timeout(TIMEOUT).expect("the writer reports in time");
        if until(&status) {
            return status;
        }
    }
}

#[test]
fn one_sync_makes_many_queued_records_durable() {
    let disk = MemoryDisk::new();
    let (writer, receiver) = start(&disk, Options::new(STORE));
    for position in 1..=1_000 {
        writer.append(position, vec![1; 10]).expect("it is queued");
    }
    wait_for(&receiver, |status| status.progress.durable == 1_000);
    assert_eq!((writer.durable(), writer.acknowledged()), (1_000, 1_000));
    let journal = writer.close().expect("the disk works");
    assert_eq!(journal.progress().durable, 1_000);
    drop(journal);
    disk.restart(1);
    let (_, recovered) = Journal::open_on(disk, Options::new(STORE)).expect("it opens");
    assert_eq!(recovered.records.len(), 1_000);
}

#[test]
fn writer_reports_a_failure_and_resumes_after_reopen() {
    let disk = MemoryDisk::new();
    let (writer, receiver) = start(&disk, Options::new(STORE));
    disk.fail_syncs(1);
    writer.append(1, b"one".to_vec()).expect("it is queued");
    wait_for(&receiver, |status| status.failure.is_some());
    writer.append(2, b"two".to_vec()).expect("it is queued");
    assert_eq!(writer.durable(), 0);
    writer.reopen().expect("the thread runs");
    let status = wait_for(&receiver, |status| status.progress.durable == 2);
    assert!(status.failure.is_none());
}

#[test]
fn writer_installs_a_snapshot_that_another_thread_wrote() {
    let disk = MemoryDisk::new();
    let (writer, receiver) = start(&disk, small_segments());
    for position in 1..=50 {
        writer.append(position, vec![1; 100]).expect("it is queued");
    }
    let mut snapshot = writer.begin_snapshot(40).expect("the disk works");
    let finished = std::thread::spawn(move || {
        snapshot.append(b"the sum of ")?;
        snapshot.append_from(&mut &b"forty records"[..])?;
        snapshot.finish()
    });
    let finished = finished.join().expect("no panic").expect("the disk works");
    writer.install(finished).expect("the thread runs");
    wait_for(&receiver, |status| status.snapshot == 40 && status.progress.durable == 50);
    drop(writer);
    let (_, recovered) = Journal::open_on(disk, small_segments()).expect("it opens");
    assert_eq!(recovered.snapshot.expect("there is one").bytes, b"the sum of forty records");
    assert!(recovered.records.iter().map(|record| record.position).eq(41..=50));
}

#[test]
fn writer_reports_each_installation() {
    let disk = MemoryDisk::new();
    let (writer, receiver) = start(&disk, small_segments());
    writer.append(1, vec![1; 100]).expect("it is queued");
    wait_for(&receiver, |status| status.progress.durable == 1);
    writer.append(2, vec![1; 100]).expect("it is queued");
    wait_for(&receiver, |status| status.progress.durable == 2);
    let finished = writer.begin_snapshot(2).and_then(|snapshot| snapshot.finish());
    disk.set_capacity(Some(0));
    writer.append(3, vec![1; 100]).expect("it is queued");
    wait_for(&receiver, |status| status.failure.is_some());
    writer.install(finished.expect("the disk works")).expect("the thread runs");
    let status = wait_for(&receiver, |status| status.installations == 1);
    assert!(status.snapshot_error.is_some() && status.snapshot == 0, "{status:?}");
    let files = disk.list().expect("the disk works");
    assert!(!files.iter().any(|name| name.contains("snapshot")), "it is removed: {files:?}");

    disk.set_capacity(None);
    writer.reopen().expect("the thread runs");
    let finished = writer.begin_snapshot(3).and_then(|snapshot| snapshot.finish());
    writer.install(finished.expect("the disk works")).expect("the thread runs");
    let status = wait_for(&receiver, |status| status.installations == 2);
    assert!(status.snapshot_error.is_none() && status.snapshot == 3, "{status:?}");
    let (count, status) = (status.installations, writer.status());
    assert_eq!((count, status.snapshot), (2, 3));
}

#[test]
fn writer_syncs_within_a_second_when_no_record_follows() {
    let disk = MemoryDisk::new();
    let options = Options { policy: SyncPolicy::EverySecond, ..Options::new(STORE) };
    let (writer, receiver) = start(&disk, options);
    writer.append(1, b"one".to_vec()).expect("it is queued");
    wait_for(&receiver, |status| status.progress.written == 1);
    wait_for(&receiver, |status| status.progress.durable == 1);
    assert_eq!(writer.acknowledged(), 1);
}

#[test]
fn a_stopped_writer_refuses_records() {
    let disk = MemoryDisk::new();
    let (journal, _) = Journal::open_on(disk, Options::new(STORE)).expect("it opens");
    let writer = Writer::start(journal, |_| panic!("a callback that fails")).expect("a thread");
    writer.append(1, b"one".to_vec()).expect("it is queued");
    let refused = (2..).find_map(|position| {
        std::thread::sleep(Duration::from_millis(1));
        writer.append(position, Vec::new()).err()
    });
    assert!(matches!(refused, Some(JournalError::Stopped)));
    writer.close().expect_err("the thread has ended");
}
