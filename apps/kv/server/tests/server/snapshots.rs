//! Snapshots replace the beginning of a log.

use crate::harness;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{DEADLINE, bulk, execute, start_with};
use onepipe_journal::SyncPolicy;
use onepipe_kv::Value;
use onepipe_kv_server::{
    Backend, Cluster, ClusterError, ClusterOptions, NodeHandle, RepairError, repair,
};
use onepipe_transaction::ReadMode;

const SNAPSHOT_BYTES: u64 = 4_000;
const REPLICAS: [&str; 6] =
    ["shard-0-0", "shard-0-1", "shard-1-0", "shard-1-1", "shard-2-0", "shard-2-1"];

/// Returns the positions in the names of a replica's files that begin with `prefix`, ascending.
fn positions(store: &Path, replica: &str, prefix: &str) -> Vec<u64> {
    let files = fs::read_dir(store.join(replica)).expect("the replica has a directory");
    let names = files.map(|file| file.expect("an entry").file_name());
    let position = |name: std::ffi::OsString| {
        name.to_string_lossy().strip_prefix(prefix).and_then(|digits| digits.parse().ok())
    };
    let mut positions: Vec<u64> = names.filter_map(position).collect();
    positions.sort_unstable();
    positions
}

fn info(node: &NodeHandle, name: &str) -> u64 {
    let lines = node.info();
    let line = lines.iter().find(|(found, _)| *found == name).expect("a line of INFO");
    line.1.parse().expect("a number")
}

fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "it never holds");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn value(number: u64) -> String {
    format!("{number:0100}")
}

/// Writes to all shards until `count` snapshots were taken in this run. Returns the last number.
fn write_until(node: &NodeHandle, first: u64, count: u64) -> u64 {
    let began = Instant::now();
    for number in first.. {
        let value = value(number);
        let line = format!("MSET a {value} b {value} c {value} d {value}");
        assert_eq!(execute(node, &[&line]), Ok(vec![Value::Ok]));
        if info(node, "onepipe_snapshots") >= count {
            return number;
        }
        assert!(began.elapsed() < DEADLINE, "no snapshots");
        // Ten looks of a node at its log in a second.
        std::thread::sleep(Duration::from_millis(2));
    }
    unreachable!("the numbers do not end")
}

fn check(node: &NodeHandle, number: u64) {
    let expected = Value::Array(vec![bulk(&value(number)); 4]);
    assert_eq!(execute(node, &["MGET a b c d"]), Ok(vec![expected]));
}

#[test]
fn restarted_stores_begin_with_their_snapshots() {
    for policy in [SyncPolicy::Always, SyncPolicy::Never] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path();
        let mut number = 0;
        for round in 0..2_u64 {
            let name = format!("snapshots-{policy:?}-{round}");
            let cluster = start_with(store, &name, 2, (policy, SNAPSHOT_BYTES));
            if round > 0 {
                check(&cluster.handle(), number);
                let node = cluster.handle();
                wait_until(|| info(&node, "onepipe_snapshot_bytes") > 0);
            }
            // Each of the six replicas has three on average.
            number = write_until(&cluster.handle(), number + 1, 6 + 6 * round);
            check(&cluster.handle(), number);
        }
        for replica in REPLICAS {
            let snapshots = positions(store, replica, "snapshot-");
            let segments = positions(store, replica, "log-");
            assert_eq!(snapshots.len(), 2, "{replica} of {policy:?}: {snapshots:?}");
            let oldest = segments.iter().filter(|first| **first <= snapshots[0]).count();
            assert!(oldest <= 1, "{snapshots:?} replace {segments:?}");
        }
    }
}

/// A shard that is written rarely does not delay the snapshots of the others, whatever the policy.
#[test]
fn idle_shards_do_not_hold_snapshots_up() {
    for policy in [SyncPolicy::EverySecond, SyncPolicy::Never] {
        let directory = tempfile::tempdir().expect("a directory");
        let name = format!("idle-{policy:?}");
        let cluster = start_with(directory.path(), &name, 1, (policy, SNAPSHOT_BYTES));
        let node = cluster.handle();
        assert_eq!(execute(&node, &["MSET a 1 b 1 c 1 d 1"]), Ok(vec![Value::Ok]));
        let began = Instant::now();
        while info(&node, "onepipe_snapshots") == 0 {
            let line = format!("SET a {}", value(7));
            assert_eq!(execute(&node, &[&line]), Ok(vec![Value::Ok]));
            assert!(began.elapsed() < DEADLINE, "no snapshot");
        }
    }
}

#[test]
fn failed_snapshots_leave_the_log_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let options = (SyncPolicy::Always, SNAPSHOT_BYTES);
    write_until(&start_with(store, "failed-first", 1, options).handle(), 1, 0);
    // No file can be created under the temporary name of any snapshot.
    let replica = store.join("shard-0-0");
    let blocked: Vec<_> =
        (1..1_000).map(|number| replica.join(format!("snapshot-{number:020}.tmp"))).collect();
    let cluster = start_with(store, "failed", 1, options);
    blocked.iter().for_each(|path| fs::create_dir(path).expect("it is new"));
    let (node, mut number, began) = (cluster.handle(), 1, Instant::now());
    while info(&node, "onepipe_failed_snapshots") == 0 {
        number = write_until(&node, number + 1, 0);
        assert!(began.elapsed() < DEADLINE, "no snapshot fails");
    }
    number = write_until(&node, number + 1, 0);
    check(&cluster.handle(), number);
    drop(cluster);
    blocked.iter().for_each(|path| fs::remove_dir(path).expect("no snapshot has replaced it"));
    assert_eq!(positions(store, "shard-0-0", "snapshot-"), []);
    let cluster = start_with(store, "failed-after", 1, options);
    check(&cluster.handle(), number);
    wait_until(|| !positions(store, "shard-0-0", "snapshot-").is_empty());
}

/// Fills a store until all replicas have snapshots. Returns the last number.
fn fill(store: &Path, name: &str, replicas: u16) -> u64 {
    let cluster = start_with(store, name, replicas, (SyncPolicy::Always, SNAPSHOT_BYTES));
    let node = cluster.handle();
    let mut number = 0;
    let has_snapshots = |replica: &&str| !positions(store, replica, "snapshot-").is_empty();
    let names = REPLICAS.iter().filter(|name| store.join(name).is_dir());
    let names: Vec<&str> = names.copied().collect();
    while !names.iter().all(has_snapshots) {
        number = write_until(&node, number + 1, info(&node, "onepipe_snapshots") + 1);
    }
    // Some records follow the snapshots.
    write_until(&node, number + 1, 0)
}

/// Changes a byte in the middle of the files of a replica that begin with `prefix`.
fn damage(store: &Path, replica: &str, prefix: &str) {
    for position in positions(store, replica, prefix) {
        let path = store.join(replica).join(format!("{prefix}{position:020}"));
        let mut bytes = fs::read(&path).expect("it was listed");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("it is damaged");
    }
}

#[test]
fn damaged_snapshots_are_copied_from_another_replica() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let number = fill(store, "copied-fill", 2);
    damage(store, "shard-0-1", "snapshot-");
    damage(store, "shard-1-0", "snapshot-");
    damage(store, "shard-1-0", "log-");
    damage(store, "shard-2-0", "log-");
    let replaced = repair(store, false).expect("another replica of each shard is intact");
    assert_eq!(replaced.len(), 3, "{replaced:?}");
    for (log, from) in replaced.iter().zip(["shard-0-0", "shard-1-1", "shard-2-1"]) {
        assert_eq!(log.lost, Some(0), "{log:?}");
        let is_copied = log.copied_from.as_ref().is_some_and(|path| path.ends_with(from));
        assert!(is_copied || log.directory.ends_with("shard-2-0"), "{log:?}");
    }
    assert_eq!(repair(store, false).expect("all is whole"), []);
    let options = (SyncPolicy::Always, SNAPSHOT_BYTES);
    check(&start_with(store, "copied-check", 2, options).handle(), number);
}

#[test]
fn damaged_snapshot_costs_a_longer_replay() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let mut number = fill(store, "older-fill", 1);
    let options = (SyncPolicy::Always, SNAPSHOT_BYTES);
    while positions(store, "shard-0-0", "snapshot-").len() < 2 {
        let cluster = start_with(store, "older-more", 1, options);
        number = write_until(&cluster.handle(), number + 1, 3);
    }
    let newest = *positions(store, "shard-0-0", "snapshot-").last().expect("two");
    let path = store.join(format!("shard-0-0/snapshot-{newest:020}"));
    let mut bytes = fs::read(&path).expect("a snapshot");
    bytes[50] ^= 1;
    fs::write(&path, bytes).expect("it is damaged");
    check(&start_with(store, "older-check", 1, options).handle(), number);
}

/// A replica's directory was put back from a copy that is older than what others have dropped.
#[test]
fn older_copy_of_a_replica_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let options = (SyncPolicy::Always, SNAPSHOT_BYTES);
    write_until(&start_with(store, "older-copy", 2, options).handle(), 1, 0);
    let (replica, copy) = (store.join("shard-1-0"), store.join("copy"));
    fs::rename(&replica, &copy).expect("it is renamed");
    fs::create_dir(&replica).expect("it is new");
    for file in fs::read_dir(&copy).expect("a replica").map(|file| file.expect("an entry")) {
        fs::copy(file.path(), replica.join(file.file_name())).expect("it is copied");
    }
    // Snapshots hold what the copy lacks.
    let number = fill(store, "older-copy-fill", 2);
    fs::remove_dir_all(&replica).expect("it is removed");
    fs::rename(&copy, &replica).expect("it is renamed");
    let storage = harness::storage(store, options);
    let options_with = harness::options("older-copy-refused", 2, ReadMode::Strict);
    let refused = Cluster::start(&ClusterOptions { storage: Some(storage), ..options_with });
    let error = refused.map(drop).expect_err("the replica is behind");
    assert!(matches!(&error, ClusterError::Storage(error) if error.is_damage()), "{error}");
    let replaced = repair(store, false).expect("the other replica is whole");
    assert_eq!((replaced.len(), replaced[0].lost), (1, Some(0)), "{replaced:?}");
    let from = replaced[0].copied_from.as_ref().expect("a copy");
    assert!(from.ends_with("shard-1-1"), "{replaced:?}");
    check(&start_with(store, "older-copy-check", 2, options).handle(), number);
}

/// The only replica of a shard has lost its snapshots, or a log that others have replaced.
#[test]
fn loss_of_what_others_have_dropped_is_refused() {
    for prefix in ["snapshot-", "log-"] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path();
        let number = fill(store, &format!("dropped-fill-{prefix}"), 1);
        if prefix == "log-" {
            // Without its snapshots the log begins before those of others.
            for position in positions(store, "shard-1-0", "snapshot-") {
                let path = store.join(format!("shard-1-0/snapshot-{position:020}"));
                fs::remove_file(path).expect("it was listed");
            }
        }
        damage(store, "shard-1-0", prefix);
        let error = repair(store, false).expect_err("no other replica has the shard");
        let is_loss = matches!(&error, RepairError::Loss { lost: 1.., .. });
        assert!(is_loss || matches!(&error, RepairError::Overtaken { .. }), "{error}");
        assert!(error.to_string().contains("--accept-loss"), "{error}");
        let replaced = repair(store, true).expect("the loss is accepted");
        assert!(replaced.len() == 1 && replaced[0].lost != Some(0), "{replaced:?}");
        // What other shards hold is there.
        let options = (SyncPolicy::Always, SNAPSHOT_BYTES);
        let cluster = start_with(store, &format!("dropped-check-{prefix}"), 1, options);
        let found = execute(&cluster.handle(), &["MGET a b c d"]).expect("the store runs");
        let Value::Array(values) = &found[0] else { panic!("{found:?}") };
        assert!(values.contains(&bulk(&value(number))), "{values:?}");
    }
}
