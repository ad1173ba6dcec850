//! Starts stores, and executes commands on them.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use onepipe_journal::SyncPolicy;
use onepipe_kv::{Command, Value};
use onepipe_kv_server::{Backend, Cluster, ClusterOptions, NodeHandle, Replies, StorageOptions};
use onepipe_transaction::{ClientOptions, ReadMode};

pub const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the settings of a store of three shards.
pub fn options(name: &str, replicas: u16, reads: ReadMode) -> ClusterOptions {
    let fabric = format!("kv-{name}-{}", std::process::id());
    let client = ClientOptions::default();
    ClusterOptions { fabric, shards: 3, replicas, storage: None, reads, client, threads: 0 }
}

pub fn storage(directory: &Path, (policy, snapshot_bytes): (SyncPolicy, u64)) -> StorageOptions {
    StorageOptions { directory: directory.into(), policy, snapshot_bytes }
}

/// Starts a store in a directory, which takes no snapshots.
pub fn start_in(directory: &Path, name: &str, replicas: u16) -> Cluster {
    start_with(directory, name, replicas, (SyncPolicy::Always, u64::MAX))
}

/// Starts a store in a directory that takes a snapshot when a log has grown by `snapshot_bytes`.
pub fn start_with(
    directory: &Path,
    name: &str,
    replicas: u16,
    (policy, snapshot_bytes): (SyncPolicy, u64),
) -> Cluster {
    let storage = storage(directory, (policy, snapshot_bytes));
    let options = options(name, replicas, ReadMode::Strict);
    let options = ClusterOptions { storage: Some(storage), ..options };
    Cluster::start(&options).expect("the directory is a store of this shape, or empty")
}

pub fn command(line: &str) -> Command {
    let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Command::parse(&words).expect("a command")
}

/// Executes one transaction of all commands.
pub fn execute(node: &NodeHandle, lines: &[&str]) -> Replies {
    let (send, receive) = channel();
    let commands = lines.iter().map(|line| command(line)).collect();
    node.begin(commands, Box::new(move |replies| drop(send.send(replies))));
    receive.recv_timeout(DEADLINE).expect("each transaction has replies")
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}
