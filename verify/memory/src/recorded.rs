//! A load of random calls, which records the history.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_history::{MapCall, MapOperation};
use onepipe_sim_engine::Random;
use onepipe_table::{Outcome, TableError};
use onepipe_verify_transactions::Terminal;

use crate::load::{Command, Done, Load, Next};

/// Parameters of the random calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Number of keys.
    pub keys: u64,
    /// Length of a value in bytes, a multiple of 8.
    pub value_len: u32,
    /// Share of look-ups, in percent.
    pub look_ups_percent: u64,
    /// Longest pause of a terminal after a call, in ns.
    pub pause_ns_max: u64,
}

/// The phase of the load: what the terminals do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The terminals call the table at random.
    Random,
    /// The terminals call nothing.
    Quiet,
    /// The first terminal of this client looks all keys up; the next one has this number.
    Final(ProcessId, u64),
}

/// A load of random calls. The table is empty at first, and values are unique.
#[derive(Debug)]
pub struct Recorded {
    mix: Mix,
    random: Random,
    phase: Phase,
    last_value: i64,
    /// Number of begins and ends of calls so far.
    events: usize,
    calls: Vec<MapCall>,
    /// Index in `calls` of the call in flight of each terminal.
    open: BTreeMap<Terminal, usize>,
    /// Calls that have failed without an effect.
    failed: Vec<usize>,
    ended: u64,
    changes: u64,
    in_doubt: u64,
    violations: Vec<String>,
}

impl Recorded {
    /// Creates the load; `random` draws the calls.
    pub fn new(mix: Mix, random: Random) -> Self {
        Self {
            mix,
            random,
            phase: Phase::Quiet,
            last_value: 0,
            events: 0,
            calls: Vec::new(),
            open: BTreeMap::new(),
            failed: Vec::new(),
            ended: 0,
            changes: 0,
            in_doubt: 0,
            violations: Vec::new(),
        }
    }

    /// Calls nothing from now on.
    pub fn stop(&mut self) {
        self.phase = Phase::Quiet;
    }

    /// Calls at random from now on.
    pub fn start(&mut self) {
        self.phase = Phase::Random;
    }

    /// Lets one client look all keys up, one after the other.
    pub fn look_up_all(&mut self, client: ProcessId) {
        self.phase = Phase::Final(client, 0);
    }

    /// Returns whether all keys were looked up.
    pub fn has_looked_up_all(&self) -> bool {
        matches!(self.phase, Phase::Final(_, next) if next == self.mix.keys)
    }

    /// Returns the calls, without those that have failed.
    pub fn calls(&self) -> Vec<MapCall> {
        let calls = self.calls.iter().enumerate();
        let calls = calls.filter(|(index, _)| self.failed.binary_search(index).is_err());
        // A look-up without a result says nothing.
        let is_known = |call: &MapCall| {
            call.ends.is_some() || !matches!(call.operation, MapOperation::LookUp(_))
        };
        calls.map(|(_, call)| *call).filter(is_known).collect()
    }

    /// Returns the numbers of calls that have ended with a result, of those that have changed the
    /// table, and of those whose effect is unknown.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.ended, self.changes, self.in_doubt)
    }

    /// Returns what was wrong with the results of single calls.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    fn begin(&mut self, terminal: Terminal, key: u64, operation: MapOperation) {
        let begins = self.events;
        self.events += 1;
        self.open.insert(terminal, self.calls.len());
        self.calls.push(MapCall { key, operation, begins, ends: None });
    }

    /// Returns the bytes of a value: its number, again and again.
    fn bytes(&self, value: i64) -> Vec<u8> {
        value.to_le_bytes().repeat(self.mix.value_len as usize / 8)
    }

    /// Returns the number of a value; `None` if its words differ.
    fn number(&self, bytes: &[u8]) -> Option<i64> {
        let word: [u8; 8] = *bytes.first_chunk()?;
        let value = i64::from_le_bytes(word);
        (bytes == self.bytes(value)).then_some(value)
    }
}

impl Load for Recorded {
    fn content(&mut self, _: u16) -> Vec<(u64, Vec<u8>)> {
        Vec::new()
    }

    fn next(&mut self, _: u64, terminal: Terminal) -> Next {
        match self.phase {
            Phase::Quiet => Next::Stop,
            Phase::Final(client, key) if client == terminal.process && terminal.index == 0 => {
                if key == self.mix.keys {
                    return Next::Stop;
                }
                self.phase = Phase::Final(client, key + 1);
                self.begin(terminal, key, MapOperation::LookUp(None));
                Next::Call(key, Command::LookUp)
            }
            Phase::Final(..) => Next::Stop,
            Phase::Random if self.random.below(2) == 0 => {
                Next::Wait(self.random.between(1, self.mix.pause_ns_max))
            }
            Phase::Random => {
                let key = self.random.below(self.mix.keys);
                self.last_value += 1;
                let value = self.last_value;
                let bytes = self.bytes(value);
                let (operation, command) = match self.random.below(100) {
                    percent if percent < self.mix.look_ups_percent => {
                        (MapOperation::LookUp(None), Command::LookUp)
                    }
                    percent if percent % 5 < 2 => {
                        (MapOperation::Insert(value, None), Command::Insert(bytes))
                    }
                    percent if percent % 5 < 3 => {
                        (MapOperation::Update(value, None), Command::Update(bytes))
                    }
                    _ => (MapOperation::Delete(None), Command::Delete),
                };
                self.begin(terminal, key, operation);
                Next::Call(key, command)
            }
        }
    }

    fn done(&mut self, done: Done) {
        let Some(index) = self.open.remove(&done.terminal) else { return };
        let called = self.calls[index].operation;
        let operation = match (called, &done.outcome) {
            (MapOperation::LookUp(_), Ok(Outcome::Found(bytes))) => match self.number(bytes) {
                Some(value) => MapOperation::LookUp(Some(value)),
                None => {
                    self.violations.push(format!("torn value: {bytes:?}"));
                    return;
                }
            },
            (MapOperation::LookUp(_), Ok(Outcome::Missing)) => MapOperation::LookUp(None),
            (
                MapOperation::Insert(value, _),
                Ok(outcome @ (Outcome::Inserted | Outcome::Exists)),
            ) => MapOperation::Insert(value, Some(*outcome == Outcome::Inserted)),
            (
                MapOperation::Update(value, _),
                Ok(outcome @ (Outcome::Updated | Outcome::Missing)),
            ) => MapOperation::Update(value, Some(*outcome == Outcome::Updated)),
            (MapOperation::Delete(_), Ok(outcome @ (Outcome::Deleted | Outcome::Missing))) => {
                MapOperation::Delete(Some(*outcome == Outcome::Deleted))
            }
            (_, Err(TableError::InDoubt(_))) => {
                self.in_doubt += 1;
                return;
            }
            (_, Err(error)) if matches!(self.phase, Phase::Final(..)) => {
                self.violations.push(format!("a final look-up ended with {error}"));
                return;
            }
            (_, Err(TableError::Unavailable(_) | TableError::Full(_) | TableError::Busy)) => {
                let position = self.failed.partition_point(|failed| *failed < index);
                self.failed.insert(position, index);
                return;
            }
            (_, outcome) => {
                self.violations.push(format!("{called:?} ended with {outcome:?}"));
                return;
            }
        };
        self.ended += 1;
        self.changes += u64::from(matches!(
            operation,
            MapOperation::Insert(_, Some(true))
                | MapOperation::Update(_, Some(true))
                | MapOperation::Delete(Some(true))
        ));
        let ends = Some(self.events);
        self.events += 1;
        self.calls[index] = MapCall { operation, ends, ..self.calls[index] };
    }
}
