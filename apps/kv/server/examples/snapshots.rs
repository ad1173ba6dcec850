//! Measures how long a snapshot stops a replica, and how long a store takes to start with
//! snapshots and without: `cargo run --release -p onepipe-kv-server --example snapshots`.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onepipe_kv::{Command, Plan, Store, Value};
use onepipe_kv_server::{Backend, Cluster, ClusterOptions, NodeHandle, StorageOptions, SyncPolicy};
use onepipe_transaction::{ClientOptions, ReadMode, Replica, ReplicaOptions, State};

const KEYS: usize = 1_000_000;
const VALUE_LEN: usize = 100;
/// Keys that one transaction writes.
const BATCH: usize = 500;
/// How often each key is written.
const ROUNDS: usize = 4;
const MB: f64 = 1e6;

fn main() {
    time_image();
    for (name, snapshot_bytes) in [("no snapshots", u64::MAX), ("--snapshot-mib 64", 64 << 20)] {
        time_start(name, snapshot_bytes);
    }
}

/// Returns the commands that write all keys, by transaction.
fn batches() -> impl Iterator<Item = Vec<Command>> {
    (0..KEYS / BATCH).map(|batch| {
        let mut words = vec![b"MSET".to_vec()];
        for key in batch * BATCH..(batch + 1) * BATCH {
            words.extend([format!("key:{key:07}").into_bytes(), vec![b'v'; VALUE_LEN]]);
        }
        vec![Command::parse(&words).expect("MSET takes any keys")]
    })
}

/// Times the encoding of a state, during which a replica stands still, and its loading.
fn time_image() {
    let mut replica = Replica::new(0, Store::default(), ReplicaOptions::default());
    let mut state = Store::default();
    for (commands, at) in batches().zip(1..) {
        let plan = Plan::new(&commands, 1);
        let mut results = Vec::new();
        state.execute(onepipe::Timestamp::from_ns(at), &plan.parts()[0].1, &mut results);
    }
    let mut image = Vec::new();
    Replica::new(0, state, ReplicaOptions::default()).save(&mut image);
    let began = Instant::now();
    assert!(replica.load(&image), "it was encoded by this program");
    let loaded = began.elapsed();
    let mut times: Vec<Duration> = (0..5).map(|_| time_save(&replica, image.len())).collect();
    times.sort();
    println!(
        "an image of {:.0} MB ({KEYS} keys) stops a replica for {:.0} ms, and is loaded in {:.0} ms",
        image.len() as f64 / MB,
        times[2].as_secs_f64() * 1e3,
        loaded.as_secs_f64() * 1e3,
    );
}

/// Times an image in a buffer that is as long as it, which the log of a replica lets expect.
fn time_save(replica: &Replica<Store>, len: usize) -> Duration {
    let (began, mut image) = (Instant::now(), Vec::with_capacity(len));
    replica.save(&mut image);
    began.elapsed()
}

/// Writes all keys several times, and times the next start.
fn time_start(name: &str, snapshot_bytes: u64) {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let began = Instant::now();
    let cluster = start(directory.path(), snapshot_bytes);
    for _ in 0..ROUNDS {
        batches().for_each(|commands| execute(&cluster.handle(), commands));
    }
    let written = began.elapsed();
    drop(cluster);
    let bytes: u64 = std::fs::read_dir(directory.path().join("shard-0-0"))
        .expect("the replica has a directory")
        .map(|file| file.and_then(|file| file.metadata()).map_or(0, |metadata| metadata.len()))
        .sum();
    let began = Instant::now();
    let cluster = start(directory.path(), snapshot_bytes);
    let words = [b"GET".to_vec(), b"key:0000000".to_vec()];
    execute(&cluster.handle(), vec![Command::parse(&words).expect("GET takes a key")]);
    println!(
        "{name}: {:.0} MB on disk after {ROUNDS} writes of each key in {:.1} s; started in {:.2} s",
        bytes as f64 / MB,
        written.as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
}

fn start(directory: &Path, snapshot_bytes: u64) -> Cluster {
    let (directory, policy) = (directory.into(), SyncPolicy::Always);
    let options = ClusterOptions {
        fabric: format!("kv-snapshots-{}", std::process::id()),
        shards: 1,
        replicas: 1,
        storage: Some(StorageOptions { directory, policy, snapshot_bytes }),
        reads: ReadMode::Strict,
        client: ClientOptions::default(),
        threads: 0,
    };
    Cluster::start(&options).expect("the directory is a store, or empty")
}

fn execute(node: &NodeHandle, commands: Vec<Command>) {
    let (send, receive) = channel();
    node.begin(commands, Box::new(move |replies| drop(send.send(replies))));
    let replies = receive.recv().expect("each transaction has replies").expect("the store runs");
    assert!(!matches!(replies[0], Value::Error(_)), "{replies:?}");
}
