//! A load of random transactions on lists and registers, which records the history.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_history::{Event, EventKind, Found, History, HistoryError, Key, Operation};
use onepipe_kv::{Command, Plan, Store, Value};
use onepipe_sim_engine::Random;
use onepipe_transaction::{Committed, Kind, ReadMode};

use crate::load::{Done, Load, Next, Terminal};

/// Parameters of the random transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Number of shards.
    pub shards: u16,
    /// Number of lists, and of registers.
    pub keys: u32,
    /// Largest number of operations of a transaction.
    pub operations_max: u64,
    /// Share of transactions that only read, in percent; half of them are snapshot reads.
    pub reads_percent: u64,
    /// Longest pause of a terminal after a transaction, in ns.
    pub pause_ns_max: u64,
}

/// The phase of the load: what the terminals do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The terminals submit random transactions.
    Random,
    /// The terminals submit nothing.
    Quiet,
    /// The first terminal of this client reads all keys; the next one has this number.
    Final(ProcessId, u32),
}

/// A transaction in flight.
#[derive(Debug)]
struct OpenTransaction {
    /// Number of the terminal's process in the history.
    process: u32,
    operations: Vec<Operation>,
    plan: Plan,
    kind: Kind,
}

/// Counts of transactions by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Committed writes.
    pub writes: u64,
    /// Strict reads.
    pub strict_reads: u64,
    /// Snapshot reads.
    pub snapshot_reads: u64,
    /// Transactions whose shard had no replica left.
    pub unavailable: u64,
    /// Attempts beyond the first.
    pub repeated: u64,
}

/// A load of random transactions on lists and registers. Values are unique.
#[derive(Debug)]
pub struct Recorded {
    mix: Mix,
    random: Random,
    phase: Phase,
    last_value: i64,
    last_process: u32,
    processes: BTreeMap<Terminal, u32>,
    open: BTreeMap<Terminal, OpenTransaction>,
    /// Events, and whether each belongs to a snapshot read.
    events: Vec<(Event, bool)>,
    counts: Counts,
    violations: Vec<String>,
}

impl Recorded {
    /// Creates the load; `random` draws the transactions.
    pub fn new(mix: Mix, random: Random) -> Self {
        Self {
            mix,
            random,
            phase: Phase::Random,
            last_value: 0,
            last_process: 0,
            processes: BTreeMap::new(),
            open: BTreeMap::new(),
            events: Vec::new(),
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// Submits nothing from now on.
    pub fn stop(&mut self) {
        self.phase = Phase::Quiet;
    }

    /// Submits random transactions from now on.
    pub fn start(&mut self) {
        self.phase = Phase::Random;
    }

    /// Lets one client read all keys by strict reads, one after the other.
    pub fn read_all(&mut self, client: ProcessId) {
        self.phase = Phase::Final(client, 0);
    }

    /// Returns the number of keys that the final reads have not requested yet.
    pub fn unread(&self) -> u32 {
        match self.phase {
            Phase::Final(_, next) => 2 * self.mix.keys - next,
            Phase::Random | Phase::Quiet => 0,
        }
    }

    /// Returns the history: of all transactions, or without snapshot reads.
    ///
    /// # Errors
    /// The events are no history.
    pub fn history(&self, has_snapshot_reads: bool) -> Result<History, HistoryError> {
        let events =
            self.events.iter().filter(|(_, is_snapshot)| has_snapshot_reads || !is_snapshot);
        History::new(events.map(|(event, _)| event.clone()).collect())
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns what was wrong with the results of single transactions.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    fn record(
        &mut self,
        at_ns: u64,
        kind: EventKind,
        open: &OpenTransaction,
        operations: Vec<Operation>,
    ) {
        let is_snapshot = open.kind == Kind::Read(ReadMode::Snapshot);
        let event = Event { kind, process: open.process, time_ns: at_ns, operations };
        self.events.push((event, is_snapshot));
    }

    fn begin(
        &mut self,
        at_ns: u64,
        terminal: Terminal,
        kind: Kind,
        operations: Vec<Operation>,
    ) -> Next {
        let commands: Vec<Command> = operations.iter().map(command).collect();
        let plan = Plan::new(&commands, self.mix.shards);
        let parts = plan.parts().to_vec();
        let process = *self.processes.entry(terminal).or_insert_with(|| {
            self.last_process += 1;
            self.last_process
        });
        let open = OpenTransaction { process, operations: operations.clone(), plan, kind };
        self.record(at_ns, EventKind::Invoke, &open, operations);
        self.open.insert(terminal, open);
        Next::Submit(kind, parts)
    }

    fn draw(&mut self) -> (Kind, Vec<Operation>) {
        let reads_only = self.random.below(100) < self.mix.reads_percent;
        let count = self.random.between(1, self.mix.operations_max);
        let mut operations: Vec<Operation> = Vec::new();
        for index in 0..count {
            let number = self.random.below(2 * u64::from(self.mix.keys)) as u32;
            let key = self.key(number);
            if operations.iter().any(|earlier| *earlier.key() == key) {
                continue;
            }
            // The first operation decides that the transaction writes.
            let writes = !reads_only && (index == 0 || self.random.below(2) == 0);
            operations.push(match writes {
                false => Operation::read(key),
                true => {
                    self.last_value += 1;
                    match number < self.mix.keys {
                        true => Operation::Append { key, element: self.last_value },
                        false => Operation::Write { key, value: self.last_value },
                    }
                }
            });
        }
        let kind = match (reads_only, self.random.below(2)) {
            (false, _) => Kind::Write,
            (true, 0) => Kind::Read(ReadMode::Strict),
            (true, _) => Kind::Read(ReadMode::Snapshot),
        };
        (kind, operations)
    }

    /// Returns the name of a key: first the lists, then the registers.
    fn key(&self, number: u32) -> Key {
        Key::Text(match number < self.mix.keys {
            true => format!("list{number}"),
            false => format!("register{number}"),
        })
    }

    fn on_committed(&mut self, at_ns: u64, open: &OpenTransaction, committed: &Committed) {
        match open.kind {
            Kind::Write => self.counts.writes += 1,
            Kind::Read(ReadMode::Strict) => self.counts.strict_reads += 1,
            Kind::Read(ReadMode::Snapshot) => self.counts.snapshot_reads += 1,
        }
        self.counts.repeated += u64::from(committed.attempts) - 1;
        let results = committed.results.iter().map(|(shard, bytes)| (*shard, bytes.as_slice()));
        let results: Vec<(u16, &[u8])> = results.collect();
        let replies = open.plan.replies(&results);
        let answered = replies.map_err(|error| error.to_string()).and_then(|replies| {
            let pairs = open.operations.iter().zip(replies);
            pairs.map(|(operation, reply)| answer(operation, &reply)).collect()
        });
        match answered {
            Ok(operations) => self.record(at_ns, EventKind::Ok, open, operations),
            Err(what) => self.violations.push(what),
        }
    }
}

impl Load<Store> for Recorded {
    fn state(&mut self, _: u16) -> Store {
        Store::default()
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        match self.phase {
            Phase::Quiet => Next::Stop,
            Phase::Final(client, next) if client == terminal.process && terminal.index == 0 => {
                if next == 2 * self.mix.keys {
                    return Next::Stop;
                }
                self.phase = Phase::Final(client, next + 1);
                let operations = vec![Operation::read(self.key(next))];
                self.begin(at_ns, terminal, Kind::Read(ReadMode::Strict), operations)
            }
            Phase::Final(..) => Next::Stop,
            Phase::Random if self.random.below(2) == 0 => {
                Next::Wait(self.random.between(1, self.mix.pause_ns_max))
            }
            Phase::Random => {
                let (kind, operations) = self.draw();
                self.begin(at_ns, terminal, kind, operations)
            }
        }
    }

    fn done(&mut self, done: Done) {
        let Some(open) = self.open.remove(&done.terminal) else { return };
        match &done.outcome {
            Ok(committed) => self.on_committed(done.at_ns, &open, committed),
            Err(_) => {
                self.counts.unavailable += 1;
                let is_write = open.kind == Kind::Write;
                let kind = if is_write { EventKind::Info } else { EventKind::Fail };
                self.record(done.at_ns, kind, &open, open.operations.clone());
                // The outcome may be unknown: the terminal gets a new process, as what it submits
                // next need not take place later.
                self.processes.remove(&done.terminal);
            }
        }
    }
}

/// Returns the command of an operation.
fn command(operation: &Operation) -> Command {
    let words: Vec<String> = match operation {
        Operation::Append { key, element } => {
            vec!["RPUSH".into(), name(key), element.to_string()]
        }
        Operation::Write { key, value } => vec!["SET".into(), name(key), value.to_string()],
        Operation::Read { key, .. } if name(key).starts_with("list") => {
            vec!["LRANGE".into(), name(key), "0".into(), "-1".into()]
        }
        Operation::Read { key, .. } => vec!["GET".into(), name(key)],
    };
    let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
    Command::parse(&words).expect("the store knows these commands")
}

fn name(key: &Key) -> String {
    match key {
        Key::Number(number) => number.to_string(),
        Key::Text(text) => text.clone(),
    }
}

/// Returns the operation with its result.
fn answer(operation: &Operation, reply: &Value) -> Result<Operation, String> {
    let found = match (operation, reply) {
        (Operation::Append { .. }, Value::Integer(_)) | (Operation::Write { .. }, Value::Ok) => {
            return Ok(operation.clone());
        }
        (Operation::Read { .. }, Value::Null) => Found::Nil,
        (Operation::Read { .. }, Value::Bulk(text)) => Found::Value(number(text)?),
        (Operation::Read { .. }, Value::Array(elements)) => {
            let elements = elements.iter().map(|element| match element {
                Value::Bulk(text) => number(text),
                other => Err(format!("an element is {other:?}")),
            });
            Found::List(elements.collect::<Result<_, _>>()?)
        }
        _ => return Err(format!("{operation} was answered by {reply:?}")),
    };
    Ok(Operation::Read { key: operation.key().clone(), found })
}

fn number(text: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| format!("{text:?} is no number"))
}
