//! A store in a directory survives the end of all its replicas.

use crate::harness;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{bulk, execute, options, start_in};
use onepipe_journal::SyncPolicy;
use onepipe_kv::Value;
use onepipe_kv_server::{Cluster, ClusterError, ClusterOptions, StorageOptions};
use onepipe_transaction::ReadMode;

const KEYS: &str = "MGET a b c d";

fn values(text: &str) -> Value {
    Value::Array(text.split(' ').map(bulk).collect())
}

/// Returns the only segment of a replica's log.
fn segment(directory: &Path, replica: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory.join(replica)).expect("the replica has a directory");
    let is_log = |path: &PathBuf| path.to_string_lossy().contains("/log-");
    let paths = entries.by_ref().map(|entry| entry.expect("an entry").path());
    paths.into_iter().find(is_log).expect("a log")
}

#[test]
fn writes_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..3 {
        let cluster = start_in(directory.path(), &format!("restart-{round}"), 2);
        let node = cluster.handle();
        if round > 0 {
            let before = round - 1;
            let expected = values(&format!("{before} {before} {before} {before}"));
            assert_eq!(execute(&node, &[KEYS]), Ok(vec![expected]), "round {round}");
        }
        let line = format!("MSET a {round} b {round} c {round} d {round}");
        assert_eq!(execute(&node, &[&line]), Ok(vec![Value::Ok]));
    }
}

/// The logs of a whole shard, and of one replica of another, end before the last write, as after a
/// loss of power: the rest of the logs complete them.
#[test]
fn logs_complete_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut lens = Vec::new();
    for round in 0..2 {
        let cluster = start_in(directory.path(), &format!("complete-{round}"), 2);
        let node = cluster.handle();
        let line = format!("MSET a {round} b {round} c {round} d {round}");
        assert_eq!(execute(&node, &[&line]), Ok(vec![Value::Ok]));
        drop(cluster);
        let short = ["shard-0-0", "shard-0-1", "shard-1-1"];
        let paths = short.map(|replica| segment(directory.path(), replica));
        lens.push(paths.map(|path| (fs::metadata(&path).expect("a file").len(), path)));
    }
    for (len, path) in &lens[0] {
        let file = fs::OpenOptions::new().write(true).open(path).expect("a log");
        file.set_len(*len).expect("it is shortened");
    }
    for round in ["complete-2", "complete-3"] {
        let cluster = start_in(directory.path(), round, 2);
        assert_eq!(execute(&cluster.handle(), &[KEYS]), Ok(vec![values("1 1 1 1")]), "{round}");
    }
}

#[test]
fn damage_and_other_shapes_are_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |replicas: u16, name: &str| {
        let (policy, snapshot_bytes) = (SyncPolicy::Always, u64::MAX);
        let storage = StorageOptions { directory: directory.path().into(), policy, snapshot_bytes };
        let options = options(name, replicas, ReadMode::Strict);
        Cluster::start(&ClusterOptions { storage: Some(storage), ..options }).map(drop)
    };
    {
        let cluster = start_in(directory.path(), "damage-0", 1);
        for number in 0..20 {
            let line = format!("MSET a {number} b {number} c {number} d {number}");
            assert_eq!(execute(&cluster.handle(), &[&line]), Ok(vec![Value::Ok]));
        }
        // Two programs do not share a directory.
        let error = start(1, "damage-1").expect_err("the directory is in use").to_string();
        assert!(error.contains("shard-0-0"), "{error}");
    }
    let error = start(2, "damage-2").expect_err("another number of replicas").to_string();
    assert!(error.contains("3 replicas, not 6"), "{error}");
    let path = segment(directory.path(), "shard-1-0");
    let mut bytes = fs::read(&path).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("it is damaged");
    let error = start(1, "damage-3").expect_err("the log is damaged");
    assert!(matches!(error, ClusterError::Storage(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&*path.to_string_lossy()), "names the file: {text}");
}
