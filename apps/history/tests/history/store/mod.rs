//! A transactional store in memory with seeded mistakes, and clients that run at random.
#![allow(dead_code, reason = "each user of this module needs a part of it")]

use std::collections::BTreeMap;

use onepipe_history::{Event, EventKind, Found, History, Key, Operation};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What the store does wrong, with some probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The store makes no mistake.
    None,
    /// Reads return an earlier state of one key.
    StaleRead,
    /// An acknowledged append has no effect.
    LostAppend,
    /// An append takes effect twice.
    DuplicatedAppend,
    /// Two transactions that append to the same two keys take effect in opposite orders on them.
    SwappedOrder,
    /// A failed transaction takes effect.
    FailedAppend,
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Seed of all choices.
    pub seed: u64,
    /// Number of clients that run at the same time.
    pub clients: u32,
    /// Number of transactions of all clients.
    pub transactions: u32,
    /// Number of keys in use at a time.
    pub keys: u32,
    /// Number of writes of a key after which a fresh one replaces it.
    pub writes_max: u32,
    /// Whether keys are registers rather than lists.
    pub has_registers: bool,
    /// Percentage of transactions with a known failure and of those with an unknown outcome.
    pub failures: u32,
    /// What the store does wrong.
    pub mistake: Mistake,
}

/// A client's transaction: invoked, then applied at one instant, then completed.
struct Client {
    operations: Vec<Operation>,
    results: Option<Vec<Operation>>,
    outcome: EventKind,
}

struct Generator {
    load: Load,
    random: Xoshiro256PlusPlus,
    events: Vec<Event>,
    /// For each key: its states, oldest first.
    states: BTreeMap<Key, Vec<Found>>,
    keys: Vec<(i64, u32)>,
    keys_used: i64,
    value: i64,
    /// Transactions of unknown outcome that have not taken effect.
    delayed: Vec<Vec<Operation>>,
    /// The two keys to which the last executed transaction appended, if it did nothing else.
    pair: Option<[Key; 2]>,
    /// Number of mistakes made.
    mistakes: u32,
}

/// Returns a history, with a final read of every key, and the number of mistakes made.
pub fn generate(load: Load) -> (History, u32) {
    let keys = (0..i64::from(load.keys)).map(|key| (key, 0)).collect();
    let mut generator = Generator {
        load,
        random: Xoshiro256PlusPlus::seed_from_u64(load.seed),
        events: Vec::new(),
        states: BTreeMap::new(),
        keys,
        keys_used: i64::from(load.keys),
        value: 0,
        delayed: Vec::new(),
        pair: None,
        mistakes: 0,
    };
    generator.run();
    (History::new(generator.events).expect("clients run one transaction each"), generator.mistakes)
}

/// Returns the keys of a transaction that only appends, to two keys.
fn pair_of(operations: &[Operation]) -> Option<[Key; 2]> {
    match operations {
        [Operation::Append { key, .. }, Operation::Append { key: other, .. }] => {
            Some([key.clone(), other.clone()])
        }
        _ => None,
    }
}

impl Generator {
    fn below(&mut self, bound: u32) -> u32 {
        (self.random.next_u64() % u64::from(bound)) as u32
    }

    fn errs(&mut self, mistake: Mistake) -> bool {
        self.load.mistake == mistake && self.below(8) == 0
    }

    fn run(&mut self) {
        let mut clients: Vec<Option<Client>> = (0..self.load.clients).map(|_| None).collect();
        let mut begun = 0;
        while begun < self.load.transactions || clients.iter().any(Option::is_some) {
            let at = self.below(self.load.clients) as usize;
            let process = at as u32;
            match &mut clients[at] {
                None if begun < self.load.transactions => {
                    begun += 1;
                    let client = self.begin();
                    self.record(EventKind::Invoke, process, client.operations.clone());
                    clients[at] = Some(client);
                }
                None => {}
                Some(client) if client.results.is_none() => {
                    let client_outcome = client.outcome;
                    let operations = client.operations.clone();
                    client.results = Some(self.execute(client_outcome, operations));
                }
                Some(_) => {
                    let client = clients[at].take().expect("the client is busy");
                    let results = client.results.expect("the transaction was executed");
                    self.record(client.outcome, process, results);
                }
            }
            if !self.delayed.is_empty() && self.below(20) == 0 {
                let operations = self.delayed.swap_remove(0);
                self.apply(&operations);
            }
        }
        self.read_all();
    }

    fn begin(&mut self) -> Client {
        let mut operations = Vec::new();
        if self.load.mistake == Mistake::SwappedOrder && self.below(2) == 0 {
            self.value += 1;
            let element = self.value;
            let pair = [self.keys[0].0, self.keys[1].0];
            operations.extend(pair.map(|key| Operation::append(key, element)));
            return Client { operations, results: None, outcome: EventKind::Ok };
        }
        let mut written = Vec::new();
        for _ in 0..=self.below(3) {
            let slot = self.below(self.load.keys) as usize;
            let key = self.keys[slot].0;
            if self.below(2) == 0 || written.contains(&key) {
                operations.push(Operation::read(key));
                continue;
            }
            written.push(key);
            self.value += 1;
            operations.push(if self.load.has_registers {
                Operation::write(key, self.value)
            } else {
                Operation::append(key, self.value)
            });
            self.keys[slot].1 += 1;
            if self.keys[slot].1 == self.load.writes_max {
                self.keys[slot] = (self.keys_used, 0);
                self.keys_used += 1;
            }
        }
        let lot = self.below(100);
        let outcome = if lot < self.load.failures {
            EventKind::Fail
        } else if lot < 2 * self.load.failures {
            EventKind::Info
        } else {
            EventKind::Ok
        };
        Client { operations, results: None, outcome }
    }

    fn execute(&mut self, outcome: EventKind, operations: Vec<Operation>) -> Vec<Operation> {
        match outcome {
            EventKind::Ok => {
                let previous = self.pair.take();
                let results = self.apply(&operations);
                self.pair = pair_of(&operations);
                if previous.is_some() && previous == self.pair && self.errs(Mistake::SwappedOrder) {
                    self.swap_last();
                }
                return results;
            }
            EventKind::Fail if self.load.mistake == Mistake::FailedAppend => {
                self.mistakes += u32::from(operations.iter().any(|op| op.written().is_some()));
                self.apply(&operations);
            }
            EventKind::Info if self.below(2) == 0 => drop(self.apply(&operations)),
            EventKind::Info if self.below(2) == 0 => self.delayed.push(operations.clone()),
            _ => {}
        }
        operations
    }

    /// Exchanges the last two elements of the second key of the pair, which no read has seen.
    fn swap_last(&mut self) {
        let [_, key] = self.pair.as_ref().expect("the last transaction appended to a pair");
        let newest = self.states.get_mut(key).and_then(|states| states.last_mut());
        if let Some(Found::List(elements)) = newest {
            let end = elements.len();
            elements.swap(end - 1, end - 2);
            self.mistakes += 1;
        }
    }

    /// Applies a transaction at once and returns its results.
    fn apply(&mut self, operations: &[Operation]) -> Vec<Operation> {
        self.pair = None;
        operations.iter().map(|operation| self.apply_one(operation)).collect()
    }

    fn apply_one(&mut self, operation: &Operation) -> Operation {
        let key = operation.key().clone();
        let is_stale = self.errs(Mistake::StaleRead);
        let (is_lost, is_twice) =
            (self.errs(Mistake::LostAppend), self.errs(Mistake::DuplicatedAppend));
        let states = self.states.entry(key.clone()).or_insert_with(|| vec![Found::Nil]);
        let newest = states.last().expect("the first state is nil").clone();
        match operation {
            Operation::Read { .. } => {
                let mut found = newest;
                if is_stale && states.len() > 3 {
                    found = states[states.len() - 4].clone();
                    self.mistakes += 1;
                }
                return Operation::Read { key, found };
            }
            Operation::Write { value, .. } if !is_lost => states.push(Found::Value(*value)),
            Operation::Append { element, .. } if !is_lost => {
                let mut elements = match newest {
                    Found::List(elements) => elements,
                    Found::Nil | Found::Value(_) => Vec::new(),
                };
                elements.push(*element);
                if is_twice {
                    elements.push(*element);
                    self.mistakes += 1;
                }
                states.push(Found::List(elements));
            }
            Operation::Write { .. } | Operation::Append { .. } => self.mistakes += 1,
        }
        operation.clone()
    }

    fn read_all(&mut self) {
        let keys: Vec<Key> = self.states.keys().cloned().collect();
        let reads: Vec<Operation> = keys.into_iter().map(Operation::read).collect();
        self.record(EventKind::Invoke, self.load.clients, reads.clone());
        self.load.mistake = Mistake::None;
        let results = self.apply(&reads);
        self.record(EventKind::Ok, self.load.clients, results);
    }

    fn record(&mut self, kind: EventKind, process: u32, operations: Vec<Operation>) {
        let time_ns = 1_000 * self.events.len() as u64;
        self.events.push(Event { kind, process, time_ns, operations });
    }
}
