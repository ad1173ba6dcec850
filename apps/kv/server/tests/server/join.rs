//! Nodes that join one by one form a store, and replace each other while it goes on.

use crate::harness;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::{DEADLINE, bulk, execute};
use onepipe::Pipe;
use onepipe_kv::{Store, Value};
use onepipe_kv_server::{Node, NodeHandle, NodeOptions};
use onepipe_transaction::{ClientOptions, Placement, ReadMode};

const SHARDS: u16 = 2;
const REPLICAS: u16 = 2;
const NODES: u32 = 4;

fn join(fabric: &str, process: u32) -> Node {
    let placement = Placement::consecutive(0, SHARDS, REPLICAS).expect("two of two");
    let options = NodeOptions {
        placement,
        reads: ReadMode::Strict,
        client: ClientOptions { timeout_ns: 20_000_000, ..ClientOptions::default() },
    };
    let builder = Pipe::builder().fabric(fabric).process(process).processes(NODES);
    Node::join(builder, options, |_| Store::default()).expect("the process is free")
}

fn wait(what: &str, is_done: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn get(node: &NodeHandle, key: &str) -> Value {
    let replies = execute(node, &[&format!("GET {key}")]);
    replies.expect("a replica of each shard is up").remove(0)
}

#[test]
fn nodes_replace_each_other_while_the_store_goes_on() {
    let fabric = format!("kv-join-{}", std::process::id());
    let first = join(&fabric, 0);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!first.handle().waiting().is_empty(), "it waits for the others");
    let mut nodes = vec![first];
    nodes.extend((1..NODES).map(|process| join(&fabric, process)));
    wait("the store opens", || nodes.iter().all(|node| node.handle().waiting().is_empty()));

    let writer = nodes[0].handle();
    let (stop, number) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = number.fetch_add(1, Ordering::Relaxed) + 1;
                let line = format!("MSET a {number} b {number} c {number} d {number}");
                assert_eq!(execute(&writer, &[&line]), Ok(vec![Value::Ok]));
            }
        });
        // Every replica but the writer's is replaced by an empty one, one after the other.
        for process in (1..NODES).rev() {
            let index = process as usize;
            let empty = {
                let old = nodes.remove(index);
                drop(old);
                join(&fabric, process)
            };
            let handle = empty.handle();
            nodes.insert(index, empty);
            wait("it catches up", || handle.is_serving());
            let replaced_at = number.load(Ordering::Relaxed);
            wait("writes go on", || number.load(Ordering::Relaxed) > replaced_at + 10);
        }
        stop.store(true, Ordering::Relaxed);
        written.join().expect("all writes are executed");
        let number = number.load(Ordering::Relaxed);
        // The replicas of one shard have none left that has had its state from the beginning.
        for node in &nodes {
            for key in ["a", "b", "c", "d"] {
                assert_eq!(get(&node.handle(), key), bulk(&number.to_string()));
            }
        }
    });
    for node in &nodes {
        assert_eq!(node.handle().stats().disagreements, 0);
    }
}
