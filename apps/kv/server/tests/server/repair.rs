//! A damaged log is completed from those of other replicas and shards.

use crate::harness;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{bulk, execute, start_in};
use onepipe_kv::Value;
use onepipe_kv_server::{RepairError, repair};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const WRITES: u32 = 12;

/// Returns the only segment of a replica's log.
fn segment(directory: &Path, replica: &str) -> PathBuf {
    let entries = fs::read_dir(directory.join(replica)).expect("the replica has a directory");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths.find(|path| path.to_string_lossy().contains("/log-")).expect("a log")
}

/// Writes to all shards, and to one.
fn fill(directory: &Path, name: &str, replicas: u16) {
    let cluster = start_in(directory, name, replicas);
    for number in 0..WRITES {
        let line = format!("MSET a {number} b {number} c {number} d {number}");
        assert_eq!(execute(&cluster.handle(), &[&line]), Ok(vec![Value::Ok]));
        let count = execute(&cluster.handle(), &["INCR counter"]);
        assert_eq!(count, Ok(vec![Value::Integer(i64::from(number) + 1)]));
    }
}

fn check(directory: &Path, name: &str, replicas: u16, counter: u32) {
    let cluster = start_in(directory, name, replicas);
    let last = bulk(&(WRITES - 1).to_string());
    let mut expected = vec![last; 4];
    expected.push(bulk(&counter.to_string()));
    let found = execute(&cluster.handle(), &["MGET a b c d counter"]);
    assert_eq!(found, Ok(vec![Value::Array(expected)]));
}

/// Copies a store: directories of files.
fn copy(from: &Path, to: &Path) {
    for replica in fs::read_dir(from).expect("a store").map(|entry| entry.expect("an entry")) {
        let to = to.join(replica.file_name());
        fs::create_dir(&to).expect("it is new");
        for file in fs::read_dir(replica.path()).expect("a replica") {
            let file = file.expect("an entry");
            fs::copy(file.path(), to.join(file.file_name())).expect("it is copied");
        }
    }
}

#[test]
fn bytes_changed_anywhere_lose_nothing() {
    let intact = tempfile::tempdir().expect("a directory");
    fill(intact.path(), "repair-fill", 2);
    let mut runner = TestRunner::new(Config { cases: 6, ..Config::default() });
    let edits = prop::collection::vec((any::<u16>(), 1u8..), 1..4);
    let damage = prop::collection::vec((0..2, edits), 3);
    let repaired = std::cell::Cell::new(0);
    let outcome = runner.run(&damage, |damage| {
        let directory = tempfile::tempdir().expect("a directory");
        copy(intact.path(), directory.path());
        // One of the two logs of each shard is damaged.
        for (shard, (replica, edits)) in damage.into_iter().enumerate() {
            let path = segment(directory.path(), &format!("shard-{shard}-{replica}"));
            let mut bytes = fs::read(&path).expect("a log");
            for (at, change) in edits {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= change;
            }
            fs::write(&path, &bytes).expect("it is damaged");
        }
        let replaced = repair(directory.path(), false).expect("another replica has all");
        for log in &replaced {
            repaired.set(repaired.get() + 1);
            assert!(log.copy.is_dir() && log.lost == Some(0), "{log:?}");
        }
        assert_eq!(repair(directory.path(), false).expect("all is whole"), []);
        check(directory.path(), "repair-check", 2, WRITES);
        Ok(())
    });
    outcome.expect("each damage is repaired");
    assert!(repaired.get() > 6, "most damage is not at the end: {}", repaired.get());
}

/// The only replica of each shard is damaged: other shards hold the transactions over all of them,
/// and none holds those of one shard alone.
#[test]
fn loss_is_refused_unless_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fill(path, "loss-fill", 1);
    let mut repaired = 0;
    for shard in 0..3 {
        let replica = format!("shard-{shard}-0");
        let log = segment(path, &replica);
        let intact = fs::read(&log).expect("a log");
        let mut bytes = intact.clone();
        // Some records in the middle.
        let (from, to) = (bytes.len() / 3, bytes.len() / 2);
        bytes[from..to].fill(0xff);
        fs::write(&log, &bytes).expect("it is damaged");
        match repair(path, false) {
            Ok(replaced) => {
                assert_eq!(replaced.len(), 1, "{replaced:?}");
                assert!(replaced[0].lost == Some(0) && replaced[0].added > 0, "{replaced:?}");
                repaired += 1;
            }
            Err(error @ RepairError::Loss { lost: 1.., .. }) => {
                let text = error.to_string();
                assert!(text.contains(&*log.to_string_lossy()), "{text}");
                assert!(text.contains("--accept-loss") && text.contains("at byte"), "{text}");
                assert_eq!(fs::read(&log).expect("a log"), bytes, "nothing is changed");
                let replaced = repair(path, true).expect("the loss is accepted");
                let lost = replaced[0].lost.expect("it is known");
                assert!(lost > 0, "{replaced:?}");
                let found = segment(&replaced[0].copy, "");
                assert_eq!(fs::read(&found).expect("a log"), bytes, "the damaged log remains");
                check(path, "loss-check", 1, WRITES - lost as u32);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(repaired, 2, "the counter is on one shard");
}

#[test]
fn interrupted_repair_is_completed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fill(path, "interrupted-fill", 1);
    let (log, damaged) = (path.join("shard-1-0"), path.join("damaged-shard-1-0-1"));
    // The system has stopped between the two renamings.
    let replacement = path.join("replacement-shard-1-0");
    fs::rename(&log, &replacement).expect("it is renamed");
    fs::create_dir(&damaged).expect("it is new");
    assert_eq!(repair(path, false).expect("the replacement is whole"), []);
    assert!(log.is_dir() && !replacement.exists());
    // The system has stopped while the replacement was written.
    fs::create_dir(&replacement).expect("it is new");
    assert_eq!(repair(path, false).expect("the log is intact"), []);
    assert!(!replacement.exists());
    check(path, "interrupted-check", 1, WRITES);
    fs::rename(&log, path.join("elsewhere")).expect("it is renamed");
    let error = repair(path, false).expect_err("a replica is missing").to_string();
    assert!(error.contains("shard-1-0 is missing"), "{error}");
}
