//! Nodes that start from their logs.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use onepipe::{Pipe, ProcessId, Timestamp};
use onepipe_journal::SyncPolicy;
use onepipe_kv::{Command, Value, shard_of};
use onepipe_transaction::{ClientOptions, Members, Placement, ReadMode, Record};

use crate::backend::Backend;
use crate::node::Node;
use crate::options::NodeOptions;
use crate::storage::{StorageOptions, append_to, open_one, repair};

/// Shards, and replicas of each: two processes in any case.
type Shape = (u16, u16);

/// Returns shard and number of the replica of process 1.
fn second(shape: Shape) -> (u16, u16) {
    (shape.0 - 1, shape.1 - 1)
}

fn storage(directory: &Path) -> StorageOptions {
    let (policy, snapshot_bytes) = (SyncPolicy::Always, u64::MAX);
    StorageOptions { directory: directory.into(), policy, snapshot_bytes }
}

fn start(directory: &Path, fabric: &str, shape: Shape) -> [Node; 2] {
    let placement = Placement::consecutive(0, shape.0, shape.1).expect("two processes");
    [0, 1].map(|process| {
        let (placement, reads) = (placement.clone(), ReadMode::Strict);
        let options = NodeOptions { placement, reads, client: ClientOptions::default() };
        let builder = Pipe::builder().fabric(fabric).process(process).processes(2);
        let node = Node::join_stored(ProcessId(process), builder, options, &storage(directory));
        node.expect("the log is intact")
    })
}

fn execute(node: &Node, words: &[&str]) -> Value {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let (send, replies) = channel();
    let commands = vec![Command::parse(&words).expect("a command")];
    node.handle().begin(commands, Box::new(move |replies| drop(send.send(replies))));
    let replies = replies.recv_timeout(Duration::from_secs(60)).expect("there are replies");
    replies.expect("the store is open").remove(0)
}

/// Returns a key of a shard.
fn key_of(shard: u16, shape: Shape) -> String {
    let keys = (0..100).map(|number| format!("key{number}"));
    let mut of_shard = keys.filter(|key| shard_of(key.as_bytes(), shape.0) == shard);
    of_shard.next().expect("half of all keys")
}

fn records(directory: &Path, shape: Shape, replica: (u16, u16)) -> (Vec<Record>, Members) {
    let (_, own) = open_one(&storage(directory), shape, replica).expect("the log is intact");
    (own.records, own.summary.members)
}

/// Executes writes of both processes, the last one `SET second 2`, and lets the log of process 0
/// say that process 1 had ended before that. Returns a key of each process.
fn declare_failed(directory: &Path, fabric: &str, shape: Shape) -> [String; 2] {
    let [first, second_key] = [key_of(0, shape), key_of(second(shape).0, shape)];
    let nodes = start(directory, fabric, shape);
    assert_eq!(execute(&nodes[0], &["MSET", &first, "1", &second_key, "1"]), Value::Ok);
    assert_eq!(execute(&nodes[0], &["SET", &second_key, "2"]), Value::Ok);
    drop(nodes);
    let end = records(directory, shape, second(shape)).0.last().expect("two writes").at;
    let (records, mut members) = records(directory, shape, (0, 0));
    let last = records.last().expect("a write");
    assert!(members.on_ended(ProcessId(1), end));
    let mut later = Record { number: last.number + 1, ..last.clone() };
    (later.at, later.members) = (Timestamp::from_ns(end.as_ns() + 1), Some(Box::new(members)));
    append_to(&storage(directory), shape, (0, 0), &[later]).expect("the log can be written");
    [first, second_key]
}

/// The other shard has gone on, and knows that process 1 had been declared failed before its last
/// write. There is no other replica of the shard.
#[test]
fn void_records_are_cut_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let (fabric, shape) = (format!("kv-void-{}", std::process::id()), (2, 1));
    let [first, second] = declare_failed(directory.path(), &fabric, shape);
    for expected in ["1", "3"] {
        let nodes = start(directory.path(), &fabric, shape);
        assert_eq!(execute(&nodes[0], &["GET", &second]), Value::Bulk(expected.into()));
        // What is written now is of the next run, in which process 1 has not ended.
        assert_eq!(execute(&nodes[1], &["SET", &second, "3"]), Value::Ok);
        assert_eq!(execute(&nodes[1], &["GET", &first]), Value::Bulk("1".into()));
    }
}

/// In a shard with another replica, the write has taken place there.
#[test]
fn repair_drops_void_records() {
    for (shape, expected) in [((2, 1), "1"), ((1, 2), "2")] {
        let directory = tempfile::tempdir().expect("a directory");
        let fabric = format!("kv-void-repair-{}-{}", shape.0, std::process::id());
        let [_, second] = declare_failed(directory.path(), &fabric, shape);
        let repaired = repair(directory.path(), false).expect("nothing is lost");
        assert_eq!(repaired.len(), 1, "{repaired:?}");
        let again = repair(directory.path(), false).expect("nothing is lost");
        assert_eq!(again, [], "the log is whole");
        let nodes = start(directory.path(), &fabric, shape);
        assert_eq!(execute(&nodes[1], &["GET", &second]), Value::Bulk(expected.into()));
    }
}
