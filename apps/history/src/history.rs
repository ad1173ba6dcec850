//! A history: events in the order in which they happened, paired into transactions.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

use crate::event::{Event, EventKind, Found, Key, Operation};

/// Why a sequence of events is no history. Positions count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The file cannot be read.
    #[error("cannot read the history")]
    Io(#[from] io::Error),
    /// A line is no event.
    #[error("line {line}: {error}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What the parser says.
        error: serde_json::Error,
    },
    /// A process begins a transaction before the previous one has completed.
    #[error("event {event}: process {process} already has a transaction in flight")]
    Overlap {
        /// The invocation.
        event: usize,
        /// The process.
        process: u32,
    },
    /// A completion has no invocation.
    #[error("event {event}: process {process} has no transaction in flight")]
    NotInvoked {
        /// The completion.
        event: usize,
        /// The process.
        process: u32,
    },
    /// A completion has other operations than its invocation.
    #[error("event {event}: the operations differ from those of the invocation")]
    OtherOperations {
        /// The completion.
        event: usize,
    },
    /// A key is used as a list and as a register.
    #[error("event {event}: key {key} is used as a list and as a register")]
    MixedKey {
        /// The event that contradicts an earlier one.
        event: usize,
        /// The key.
        key: Key,
    },
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A list that grows by appends.
    List,
    /// A register that is overwritten.
    Register,
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction has committed.
    Ok,
    /// The transaction was certainly not executed.
    Fail,
    /// The outcome is unknown: it was reported as such, or the transaction was still in flight at
    /// the end of the history.
    Info,
}

/// A transaction: an invocation with its completion.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The client.
    pub process: u32,
    /// Position of the invocation.
    pub invoked: usize,
    /// Position of the completion; `None` if the transaction was in flight at the end.
    pub completed: Option<usize>,
    /// How it ended.
    pub outcome: Outcome,
    /// The operations; results of reads are known if the outcome is [`Outcome::Ok`].
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// Returns the position after which the transaction certainly has its final effect: that of
    /// its completion, or [`usize::MAX`] if its outcome is unknown.
    pub fn ends(&self) -> usize {
        match (self.outcome, self.completed) {
            (Outcome::Ok | Outcome::Fail, Some(completed)) => completed,
            _ => usize::MAX,
        }
    }

    /// Returns the number of the transaction in reports, where it is named `T7`, say: the position
    /// of its completion, or of its invocation if it has none.
    pub fn number(&self) -> usize {
        self.completed.unwrap_or(self.invoked)
    }

    /// Returns the name, the client and the operations as text.
    pub fn describe(&self) -> String {
        let operations: Vec<String> = self.operations.iter().map(Operation::to_string).collect();
        let outcome = match self.outcome {
            Outcome::Ok => "ok",
            Outcome::Fail => "failed",
            Outcome::Info => "unknown outcome",
        };
        let (number, process) = (self.number(), self.process);
        format!("T{number} (process {process}, {outcome}): {}", operations.join(", "))
    }
}

/// A well-formed history.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    transactions: Vec<Transaction>,
    kinds: BTreeMap<Key, KeyKind>,
}

impl History {
    /// Pairs events, which are in the order in which they happened.
    pub fn new(events: Vec<Event>) -> Result<Self, HistoryError> {
        let mut history = Self::default();
        let mut in_flight: HashMap<u32, usize> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            history.learn_kinds(at, event)?;
            let process = event.process;
            if event.kind == EventKind::Invoke {
                if in_flight.insert(process, history.transactions.len()).is_some() {
                    return Err(HistoryError::Overlap { event: at, process });
                }
                history.transactions.push(Transaction {
                    process,
                    invoked: at,
                    completed: None,
                    outcome: Outcome::Info,
                    operations: event.operations.clone(),
                });
                continue;
            }
            let index = in_flight.remove(&process);
            let index = index.ok_or(HistoryError::NotInvoked { event: at, process })?;
            complete(&mut history.transactions[index], at, event)?;
        }
        history.events = events;
        Ok(history)
    }

    /// Merges the histories of several recorders by the times of their events. The clocks of the
    /// recorders must agree, and a process must have the same number in all. Events of one time
    /// count as concurrent: the invocations among them come first.
    pub fn merge(histories: impl IntoIterator<Item = Self>) -> Result<Self, HistoryError> {
        let mut events: Vec<Event> =
            histories.into_iter().flat_map(|history| history.events).collect();
        events.sort_by_key(|event| (event.time_ns, event.kind != EventKind::Invoke));
        Self::new(events)
    }

    /// Parses JSON lines. Events that are no transactions, and empty lines, are skipped.
    pub fn from_json_lines(text: &str) -> Result<Self, HistoryError> {
        let mut events = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let event = Event::from_json(line);
            events.extend(event.map_err(|error| HistoryError::Line { line: at + 1, error })?);
        }
        Self::new(events)
    }

    /// Reads a file of JSON lines.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, HistoryError> {
        Self::from_json_lines(&std::fs::read_to_string(path)?)
    }

    /// Writes the history as JSON lines.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        for (index, event) in self.events.iter().enumerate() {
            writeln!(to, "{}", event.to_json(index)?)?;
        }
        to.flush()
    }

    /// Returns the events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the transactions in the order of their invocations.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Returns every key that was written, or read as a list or a register, with its kind.
    pub fn kinds(&self) -> &BTreeMap<Key, KeyKind> {
        &self.kinds
    }

    fn learn_kinds(&mut self, at: usize, event: &Event) -> Result<(), HistoryError> {
        for operation in &event.operations {
            let kind = match operation {
                Operation::Append { .. } | Operation::Read { found: Found::List(_), .. } => {
                    KeyKind::List
                }
                Operation::Write { .. } | Operation::Read { found: Found::Value(_), .. } => {
                    KeyKind::Register
                }
                Operation::Read { found: Found::Nil, .. } => continue,
            };
            let key = operation.key();
            match self.kinds.get(key) {
                None => drop(self.kinds.insert(key.clone(), kind)),
                Some(known) if *known == kind => {}
                Some(_) => return Err(HistoryError::MixedKey { event: at, key: key.clone() }),
            }
        }
        Ok(())
    }
}

fn complete(transaction: &mut Transaction, at: usize, event: &Event) -> Result<(), HistoryError> {
    transaction.completed = Some(at);
    let (invoked, results) = (&transaction.operations, &event.operations);
    let is_same = invoked.len() == results.len()
        && invoked.iter().zip(results).all(|(invoked, result)| invoked.is_answered_by(result));
    transaction.outcome = match event.kind {
        EventKind::Ok if !is_same => return Err(HistoryError::OtherOperations { event: at }),
        EventKind::Ok => {
            transaction.operations.clone_from(results);
            Outcome::Ok
        }
        EventKind::Fail => Outcome::Fail,
        EventKind::Info | EventKind::Invoke => Outcome::Info,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Result<History, HistoryError> {
        History::from_json_lines(&lines.join("\n"))
    }

    const INVOKE: &str = r#"{"type":"invoke","process":1,"value":[["append","x",1]]}"#;
    const OK: &str = r#"{"type":"ok","process":1,"value":[["append","x",1]]}"#;

    #[test]
    fn pairs_invocations_with_completions() {
        let history = parse(&[INVOKE, OK, "", INVOKE]).expect("well-formed");
        let [first, second] = history.transactions() else { panic!("{history:?}") };
        assert_eq!((first.invoked, first.completed, first.outcome), (0, Some(1), Outcome::Ok));
        assert_eq!((second.invoked, second.completed, second.outcome), (2, None, Outcome::Info));
        assert_eq!((first.ends(), second.ends()), (1, usize::MAX));
        assert_eq!(first.describe(), r#"T1 (process 1, ok): append("x", 1)"#);
    }

    #[test]
    fn refuses_what_is_no_history() {
        let other = r#"{"type":"ok","process":1,"value":[["append","x",2]]}"#;
        let register = r#"{"type":"invoke","process":2,"value":[["w","x",2]]}"#;
        for (lines, error) in [
            (vec![INVOKE, INVOKE], "event 1: process 1 already has a transaction in flight"),
            (vec![OK], "event 0: process 1 has no transaction in flight"),
            (vec![INVOKE, other], "event 1: the operations differ from those of the invocation"),
            (vec![INVOKE, register], "event 1: key \"x\" is used as a list and as a register"),
            (vec!["{"], "line 1: EOF while parsing an object at line 1 column 1"),
        ] {
            assert_eq!(parse(&lines).expect_err(error).to_string(), error);
        }
    }

    #[test]
    fn merges_by_time_with_invocations_first() {
        let event = |kind, process, time_ns| Event {
            kind,
            process,
            time_ns,
            operations: vec![Operation::append("x", i64::from(process))],
        };
        let one = History::new(vec![event(EventKind::Invoke, 1, 5), event(EventKind::Ok, 1, 10)]);
        let two = History::new(vec![event(EventKind::Invoke, 2, 10), event(EventKind::Ok, 2, 12)]);
        let both = [one.expect("well-formed"), two.expect("well-formed")];
        let merged = History::merge(both).expect("well-formed");
        let order: Vec<_> = merged.events().iter().map(|e| (e.process, e.kind)).collect();
        assert_eq!(order[1..3], [(2, EventKind::Invoke), (1, EventKind::Ok)]);
    }
}
