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
use crate::storage::{StorageOptions, append_to, open_one};

/// Two shards of one replica each.
const SHAPE: (u16, u16) = (2, 1);

fn storage(directory: &Path) -> StorageOptions {
    let (policy, snapshot_bytes) = (SyncPolicy::Always, u64::MAX);
    StorageOptions { directory: directory.into(), policy, snapshot_bytes }
}

fn start(directory: &Path, fabric: &str) -> [Node; 2] {
    let placement = Placement::consecutive(0, SHAPE.0, SHAPE.1).expect("two shards");
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
fn key_of(shard: u16) -> String {
    let keys = (0..100).map(|number| format!("key{number}"));
    let mut of_shard = keys.filter(|key| shard_of(key.as_bytes(), SHAPE.0) == shard);
    of_shard.next().expect("half of all keys")
}

fn records(directory: &Path, shard: u16) -> (Vec<Record>, Members) {
    let (_, own) = open_one(&storage(directory), SHAPE, (shard, 0)).expect("the log is intact");
    (own.records, own.summary.members)
}

/// Appends a record to a log that says that process 1 had ended.
fn note_end(directory: &Path, at: Timestamp) {
    let (records, mut members) = records(directory, 0);
    let last = records.last().expect("a write");
    assert!(members.on_ended(ProcessId(1), at));
    let mut later = Record { number: last.number + 1, ..last.clone() };
    (later.at, later.members) = (Timestamp::from_ns(at.as_ns() + 1), Some(Box::new(members)));
    append_to(&storage(directory), SHAPE, (0, 0), &[later]).expect("the log can be written");
}

/// The other shard has gone on, and knows that process 1 had been declared failed before its last
/// write. There is no other replica of the shard.
#[test]
fn void_records_are_cut_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let fabric = format!("kv-void-{}", std::process::id());
    let [first, second] = [key_of(0), key_of(1)];
    let nodes = start(directory.path(), &fabric);
    assert_eq!(execute(&nodes[0], &["MSET", &first, "1", &second, "1"]), Value::Ok);
    assert_eq!(execute(&nodes[0], &["SET", &second, "2"]), Value::Ok);
    drop(nodes);
    let last = records(directory.path(), 1).0.last().expect("two writes").at;
    note_end(directory.path(), last);
    for round in 0..2 {
        let nodes = start(directory.path(), &fabric);
        let expected = if round == 0 { "1" } else { "3" };
        assert_eq!(execute(&nodes[0], &["GET", &second]), Value::Bulk(expected.into()));
        // What is written now is of the next run, in which process 1 has not ended.
        assert_eq!(execute(&nodes[1], &["SET", &second, "3"]), Value::Ok);
        assert_eq!(execute(&nodes[1], &["GET", &first]), Value::Bulk("1".into()));
    }
}
