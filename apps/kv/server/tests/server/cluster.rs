//! A store in this process, over the shared memory of this machine.

use crate::harness;

use std::sync::mpsc::channel;

use harness::{bulk, command, execute, options};
use onepipe_base::Timestamp;
use onepipe_kv::Value;
use onepipe_kv_server::{Backend, BackendError, Cluster, ClusterOptions, Replies};
use onepipe_transaction::{Exact, ReadMode, State};

fn start(name: &str, replicas: u16, reads: ReadMode) -> Cluster {
    Cluster::start(&options(name, replicas, reads)).expect("the fabric is new")
}

#[test]
fn transactions_span_shards() {
    for replicas in [1, 3] {
        let cluster = start(&format!("span-{replicas}"), replicas, ReadMode::Strict);
        let node = cluster.handle();
        let replies = execute(&node, &["MSET a 1 b 2 c 3 d 4", "INCR a", "DEL d"]);
        assert_eq!(replies, Ok(vec![Value::Ok, Value::Integer(2), Value::Integer(1)]));
        let found = Value::Array(vec![bulk("2"), bulk("2"), bulk("3"), Value::Null]);
        assert_eq!(execute(&node, &["MGET a b c d"]), Ok(vec![found]));
        assert_eq!(node.stats().disagreements, 0);
    }
}

/// Each writer sets the same number under keys of all shards. A reader must never see two.
#[test]
fn reads_see_whole_transactions() {
    for reads in [ReadMode::Strict, ReadMode::Snapshot] {
        let cluster = start(&format!("whole-{reads:?}"), 2, reads);
        let node = cluster.handle();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let node = node.clone();
                scope.spawn(move || {
                    for number in 0..200 {
                        let number = number * 2 + writer;
                        let line = format!("MSET a {number} b {number} c {number} d {number}");
                        assert_eq!(execute(&node, &[&line]), Ok(vec![Value::Ok]));
                    }
                });
            }
            for _ in 0..300 {
                let replies = execute(&node, &["MGET a b c d"]).expect("all replicas are up");
                let Value::Array(values) = &replies[0] else { panic!("{replies:?}") };
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            }
        });
    }
}

/// The state of another application: a sum, to which each part adds its first byte.
struct Sum(u64);

impl State for Sum {
    fn execute(&mut self, _at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        self.0 += u64::from(part.first().copied().unwrap_or_default());
        results.extend(self.0.to_be_bytes());
    }

    fn read(&self, at: Timestamp, _part: &[u8], results: &mut Vec<u8>) -> Exact {
        results.extend(self.0.to_be_bytes());
        Exact { from: Some(at), until: None }
    }

    fn digest(&self) -> u64 {
        self.0
    }

    fn save(&self, _bytes: &mut Vec<u8>) {}

    fn load(&mut self, _bytes: &[u8]) -> bool {
        false
    }
}

#[test]
fn nodes_hold_states_of_other_applications() {
    let options = options("states", 2, ReadMode::Strict);
    let initial = |shard| Sum(100 * u64::from(shard));
    let cluster = Cluster::start_states(&options, initial).expect("the fabric is new");
    let execute = |is_read_only, parts: &[(u16, Vec<u8>)]| {
        let (finished, results) = channel();
        let on_results = Box::new(move |results| finished.send(results).expect("it is awaited"));
        cluster.handle().execute(is_read_only, parts.to_vec(), on_results);
        results.recv().expect("each transaction finishes")
    };
    let sums = |of: &[(u16, u64)]| {
        Ok(of.iter().map(|(shard, sum)| (*shard, sum.to_be_bytes().to_vec())).collect())
    };
    assert_eq!(execute(false, &[(0, vec![7]), (2, vec![9])]), sums(&[(0, 7), (2, 209)]));
    assert_eq!(execute(true, &[(1, vec![]), (2, vec![])]), sums(&[(1, 100), (2, 209)]));
    // The parts are not in the order of their shards.
    let refused = execute(false, &[(2, vec![1]), (0, vec![1])]);
    assert!(matches!(refused, Err(BackendError::Results(_))), "{refused:?}");
    assert_eq!(cluster.handle().stats().disagreements, 0);
}

/// Messages above the limits of the fabric are errors, and the store goes on.
#[test]
fn oversize_messages_are_errors() {
    let cluster = start("oversize", 3, ReadMode::Strict);
    let node = cluster.handle();
    let large = "v".repeat(6 << 20);
    // Each of six replicas has the whole transaction.
    let line = format!("MSET a {large} b {large}");
    assert_eq!(execute(&node, &[&line]), Err(BackendError::TooLarge));
    assert_eq!(execute(&node, &["MGET a b"]), Ok(vec![Value::Array(vec![Value::Null; 2])]));
    let lens = (1..=3).map(|count| {
        let replies = execute(&node, &[&format!("APPEND a {large}")]);
        assert_eq!(replies, Ok(vec![Value::Integer(count * (6 << 20))]));
        execute(&node, &["GET a"]).expect("there is a reply").remove(0)
    });
    let lens: Vec<_> = lens.map(|reply| matches!(reply, Value::Bulk(_))).collect();
    assert_eq!(lens, [true, true, false]);
    assert_eq!(execute(&node, &["STRLEN a", "SET a 1"]).expect("the store goes on").len(), 2);
    assert_eq!(execute(&node, &["GET a"]), Ok(vec![bulk("1")]));
}

/// Nodes of one thread answer each other, those of several wake each other, and all of them leave
/// while transactions are in flight.
#[test]
fn any_number_of_threads_drives_the_nodes() {
    for threads in [1, 2, 3, 100] {
        let options = options(&format!("threads-{threads}"), 2, ReadMode::Strict);
        let cluster = Cluster::start(&ClusterOptions { threads, ..options }).expect("it is new");
        let node = cluster.handle();
        for number in 1..=20 {
            let replies = execute(&node, &["MSET a 1 b 2 c 3", "INCR d"]);
            assert_eq!(replies, Ok(vec![Value::Ok, Value::Integer(number)]));
        }
        let (send, receive) = channel();
        for _ in 0..100 {
            let send = send.clone();
            let on_replies = Box::new(move |replies| drop(send.send(replies)));
            node.begin(vec![command("MSET a 1 b 2 c 3")], on_replies);
        }
        drop(send);
        drop(cluster);
        let outcomes: Vec<Replies> = receive.iter().collect();
        assert_eq!(outcomes.len(), 100, "each transaction has an outcome");
        assert!(outcomes.iter().all(|outcome| match outcome {
            Ok(replies) => *replies == [Value::Ok],
            Err(error) => matches!(error, BackendError::Ended(_)),
        }));
    }
}
