//! Histories of transactions on a key-value store: recording them, and checking isolation.
//!
//! `client → [recorder] → history → checks → verdict`. Clients record the begin and the outcome of
//! each transaction with a [`Recorder`], which several threads share. The checks know nothing of
//! the store: they decide from the requests of clients and the replies to them.
//!
//! | check | promise |
//! |---|---|
//! | [`strict_serializability`] | one order of all transactions, which agrees with real time |
//! | [`serializability`] | the same without real time, with or without the order of each client |
//! | [`linearizability`] | one order of the operations of each single key, in real time |
//! | [`map_linearizability`] | the same of a map's insertions, updates, deletions and look-ups |
//! | [`durability`] | acknowledged writes survive, failed ones left nothing behind |
//!
//! ```
//! use onepipe_history::{AnomalyKind, Found, Operation, Order, Recorder, durability};
//! use onepipe_history::{FinalReads, serializability, strict_serializability};
//!
//! let recorder = Recorder::new();
//! recorder.invoke(1, vec![Operation::append("x", 7)]).ok(vec![Operation::append("x", 7)]);
//! // A read that misses an append which was acknowledged before it began.
//! let found = Operation::Read { key: "x".into(), found: Found::List(vec![]) };
//! recorder.invoke(2, vec![Operation::read("x")]).ok(vec![found]);
//!
//! let history = recorder.history()?;
//! assert!(serializability(&history, Order::Data).is_valid());
//! let verdict = strict_serializability(&history);
//! assert_eq!(verdict.kinds(), [AnomalyKind::GSingle(Order::RealTime)]);
//! let at_end = FinalReads::of(&history);
//! assert_eq!(durability(&history, &at_end).kinds(), [AnomalyKind::Lost]);
//! # Ok::<(), onepipe_history::HistoryError>(())
//! ```
//!
//! Invariants: real time is the order of events, so an invocation is recorded before its
//! transaction is sent, and a completion after its outcome has arrived. The times of events serve
//! to merge histories only. A value is written to a key at most once, because a check recognises a
//! write by its value.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod durability;
mod event;
mod history;
mod isolation;
mod linearizability;
mod map;
mod recorder;
mod registers;
mod report;
mod search;
mod values;
mod verdict;

pub use durability::{FinalReads, durability};
pub use event::{Event, EventKind, Found, Key, Operation};
pub use history::{History, HistoryError, KeyKind, Outcome, Transaction};
pub use isolation::{serializability, strict_serializability};
pub use linearizability::{linearizability, linearizability_with};
pub use map::{MapCall, MapOperation, map_linearizability};
pub use recorder::{InFlight, Recorder};
pub use report::{Report, check, check_file};
pub use verdict::{Anomaly, AnomalyKind, Order, Verdict};
