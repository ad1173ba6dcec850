//! Clients of a real store that is stopped and killed: `onepipe kv check` accepts their history.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use onepipe_history::{Found, Operation, Recorder};
use redis::{ConnectionLike, Value};

use crate::kv::Store;
use crate::program::{errors, json, output, unique, wait_until};

const CLIENTS: u32 = 4;
const ROUNDS: u32 = 3;
/// Number of lists, and of registers. Their names are on all three shards.
const KEYS: i64 = 3;
/// Transactions of a round after which the store is killed; stopped for a while after half of them.
const ROUND: usize = 120;

fn key(kind: &str, number: i64) -> String {
    format!("{kind}{number}")
}

/// What all clients share.
pub struct Load {
    pub recorder: Recorder,
    /// The last written value: values are unique.
    last: AtomicI64,
}

impl Load {
    pub fn new() -> Self {
        Self { recorder: Recorder::new(), last: AtomicI64::new(1) }
    }

    /// Reads all keys.
    pub fn read_all(&self, connection: &mut redis::Connection, process: u32) -> bool {
        let keys =
            ["list", "register"].into_iter().flat_map(|kind| (0..KEYS).map(move |n| key(kind, n)));
        let reads = keys.map(|key| Operation::read(&*key)).collect();
        self.execute(connection, process, reads)
    }

    /// Lets `onepipe kv check` judge the history.
    pub fn check(&self, directory: &Path) {
        let path = directory.join("history.jsonl");
        let history = self.recorder.history().expect("a history");
        history.write(std::fs::File::create(&path).expect("it is new")).expect("it is written");
        let checked = output(&["kv", "check", path.to_str().expect("a path of a test"), "--json"]);
        let verdict = json(&checked);
        assert_eq!(verdict["valid"], true, "{verdict} {}", errors(&checked));
        assert_eq!(verdict["durability"]["verdict"], "valid", "{verdict}");
    }

    /// Returns the operations of a transaction. `random` decides.
    fn draw(&self, random: u64) -> Vec<Operation> {
        let mut operations = Vec::new();
        for number in 0..KEYS {
            let next = || self.last.fetch_add(1, Ordering::Relaxed);
            let (list, register) = (key("list", number), key("register", number));
            match random >> (8 * number) & 7 {
                0 | 1 => operations.push(Operation::append(&*list, next())),
                2 => operations.push(Operation::write(&*register, next())),
                3 | 4 => operations.push(Operation::read(&*list)),
                5 => operations.push(Operation::read(&*register)),
                _ => {}
            }
        }
        if operations.is_empty() {
            operations.push(Operation::read("list0"));
        }
        operations
    }

    /// Executes a transaction, and records it. Returns false if its outcome is unknown, as the
    /// store has ended or a shard is unavailable.
    fn execute(
        &self,
        connection: &mut redis::Connection,
        process: u32,
        operations: Vec<Operation>,
    ) -> bool {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for operation in &operations {
            let name = operation.key().to_string().replace('"', "");
            match operation {
                Operation::Append { element, .. } => pipe.cmd("RPUSH").arg(name).arg(*element),
                Operation::Write { value, .. } => pipe.cmd("SET").arg(name).arg(*value),
                Operation::Read { .. } if name.starts_with("list") => {
                    pipe.cmd("LRANGE").arg(name).arg(0).arg(-1)
                }
                Operation::Read { .. } => pipe.cmd("GET").arg(name),
            };
        }
        let in_flight = self.recorder.invoke(process, operations.clone());
        // `Pipeline::query` discards the text of an error that is the reply to `EXEC`.
        let packed = pipe.get_packed_pipeline();
        let replies = connection
            .req_packed_commands(&packed, operations.len() + 1, 1)
            .map(|mut replies| replies.pop());
        match replies {
            Ok(Some(Value::Array(replies))) => {
                assert_eq!(replies.len(), operations.len());
                let results = operations.into_iter().zip(&replies);
                in_flight.ok(results.map(|(operation, reply)| answer(operation, reply)).collect());
                true
            }
            Ok(Some(Value::ServerError(error))) => {
                let text = error.details().unwrap_or_default();
                let is_expected = error.code() == "CLUSTERDOWN"
                    || text.contains("started again")
                    || text.contains("has ended");
                assert!(is_expected, "{error:?}");
                in_flight.info();
                false
            }
            Err(error) if error.is_io_error() => {
                in_flight.info();
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Executes transactions until the outcome of one is unknown.
    fn run(&self, port: u16, process: u32) {
        self.run_until(port, process, &AtomicBool::new(false));
    }

    /// Executes transactions until the outcome of one is unknown, or until `has_ended`.
    pub fn run_until(&self, port: u16, process: u32, has_ended: &AtomicBool) {
        let Some(mut connection) = connect(port) else { return };
        let mut random = u64::from(process).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while !has_ended.load(Ordering::Relaxed) {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if !self.execute(&mut connection, process, self.draw(random)) {
                return;
            }
        }
    }
}

pub fn connect(port: u16) -> Option<redis::Connection> {
    let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
    client.get_connection().ok()
}

/// Returns a read with what was found, or another operation as it is.
fn answer(operation: Operation, reply: &Value) -> Operation {
    let number = |value: &Value| match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).parse().expect("a number"),
        other => panic!("{other:?} is no number"),
    };
    match operation {
        Operation::Read { key, .. } => {
            let found = match reply {
                Value::Nil => Found::Nil,
                Value::Array(elements) => Found::List(elements.iter().map(number).collect()),
                value => Found::Value(number(value)),
            };
            Operation::Read { key, found }
        }
        other => other,
    }
}

#[test]
fn history_of_a_killed_store_is_strictly_serializable() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let load = Load::new();
    for round in 0..ROUNDS {
        let store = Store::start(&unique("kv-history"), &data, &["--replicas", "2"]);
        let (port, before) = (store.port(), load.recorder.len());
        // An invocation and a completion are two events.
        let has_run = |count: usize| load.recorder.len() >= before + 2 * count;
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let load = &load;
                scope.spawn(move || load.run(port, round * CLIENTS + client));
            }
            wait_until("half of the transactions", || has_run(ROUND / 2));
            store.running.signal("-STOP");
            std::thread::sleep(Duration::from_millis(200));
            store.running.signal("-CONT");
            wait_until("all transactions", || has_run(ROUND));
            store.running.signal("-KILL");
        });
        let _ = output(&["clean"]);
    }
    let store = Store::start(&unique("kv-history"), &data, &["--replicas", "2"]);
    let mut connection = connect(store.port()).expect("the store listens");
    assert!(load.read_all(&mut connection, ROUNDS * CLIENTS), "the store runs");
    load.check(directory.path());
}
