//! Serializability, with and without real time, by the dependency graph of Adya and Elle.
//!
//! The crate `adya` infers versions, builds the graph and searches it for cycles. This module
//! prepares what it leaves out: transactions in flight at the end, registers whose writer has an
//! unknown outcome, values that no transaction wrote, and the order of registers in real time.

use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{Opts, Report, Valid, Workload};

use crate::event::{Found, Key, Operation};
use crate::history::{History, KeyKind, Outcome, Transaction};
use crate::registers::real_time_cycles;
use crate::values::{Writers, future_reads};
use crate::verdict::{Anomaly, AnomalyKind, Order, Verdict};

/// Checks strict serializability: one order of all transactions explains every result, and agrees
/// with real time.
pub fn strict_serializability(history: &History) -> Verdict {
    serializability(history, Order::RealTime)
}

/// Checks serializability: one order of all transactions explains every result, and agrees with
/// `order`: with nothing else, with the order of each client's transactions, or with real time.
///
/// Lists are checked completely, as far as reads reveal the order of their elements. Registers hide
/// the order of their values: it is inferred from reads before writes in one transaction and from
/// `order`. Lists and registers of one history are checked separately. Values must be unique for
/// their key, otherwise the verdict is [`Verdict::Undecided`].
pub fn serializability(history: &History, order: Order) -> Verdict {
    let writers = match Writers::new(history) {
        Ok(writers) => writers,
        Err(reason) => return Verdict::Undecided(reason),
    };
    let mut anomalies = writers.phantoms();
    anomalies.extend(future_reads(history));
    for (kind, workload) in
        [(KeyKind::List, Workload::ListAppend), (KeyKind::Register, Workload::RwRegister)]
    {
        let projection = Projection { history, kind, writers: &writers };
        // Real time in registers follows below.
        let is_separate = kind == KeyKind::Register && order == Order::RealTime;
        let options = options(if is_separate { Order::Data } else { order });
        let report = adya::check(&projection.build(), workload, &options);
        if let Some(reason) = undecided(&report) {
            return Verdict::Undecided(reason);
        }
        anomalies.extend(found(report));
    }
    if order == Order::RealTime {
        add_real_time(history, &writers, &mut anomalies);
    }
    Verdict::of(anomalies)
}

/// Adds the cycles of registers with real time, of each kind that has not been found without it.
fn add_real_time(history: &History, writers: &Writers<'_>, anomalies: &mut Vec<Anomaly>) {
    for cycle in real_time_cycles(history, writers) {
        let kind = kind_of(&cycle.name);
        if anomalies.iter().any(|anomaly| anomaly.kind == kind) {
            continue;
        }
        let number = |index: &usize| history.transactions()[*index].number();
        let transactions = cycle.transactions.iter().map(number).collect();
        anomalies.push(Anomaly { kind, transactions, explanation: cycle.explanation });
    }
}

fn options(order: Order) -> Opts {
    let model = match order {
        Order::Data => "serializable",
        Order::Session => "strong-session-serializable",
        Order::RealTime => "strict-serializable",
    };
    Opts {
        models: vec![model.to_string()],
        // Each of these assumptions about single registers follows from the model.
        wfr_keys: true,
        sequential_keys: order == Order::Session,
        ..Opts::default()
    }
}

/// Returns why a report is no verdict. A history without dependencies is valid.
fn undecided(report: &Report) -> Option<String> {
    let is_decided = report.valid != Valid::Unknown
        || report.anomaly_types.iter().all(|name| name == "empty-transaction-graph");
    (!is_decided).then(|| report.anomaly_types.join(", "))
}

fn found(report: Report) -> impl Iterator<Item = Anomaly> {
    // A name that is left out says that there is no graph, or that a search was cut short: then
    // the cycle that was found is reported under its own name.
    let is_anomaly = |name: &str| name != "empty-transaction-graph" && !name.ends_with("timeout");
    let all = report.anomalies.into_iter().filter(move |(name, _)| is_anomaly(name));
    all.flat_map(|(name, anomalies)| {
        anomalies.into_iter().map(move |anomaly| Anomaly {
            kind: kind_of(&name),
            transactions: anomaly.ops.iter().map(|index| *index as usize).collect(),
            explanation: anomaly.explanation,
        })
    })
}

fn kind_of(name: &str) -> AnomalyKind {
    let (base, order) = if let Some(base) = name.strip_suffix("-realtime") {
        (base, Order::RealTime)
    } else if let Some(base) = name.strip_suffix("-process") {
        (base, Order::Session)
    } else {
        (name, Order::Data)
    };
    match base.strip_suffix("-item").unwrap_or(base) {
        "G0" => AnomalyKind::G0(order),
        "G1a" => AnomalyKind::G1a,
        "G1b" => AnomalyKind::G1b,
        "G1c" => AnomalyKind::G1c(order),
        "G-single" => AnomalyKind::GSingle(order),
        "G-nonadjacent" => AnomalyKind::GNonadjacent(order),
        "G2" => AnomalyKind::G2(order),
        "lost-update" => AnomalyKind::LostUpdate,
        "dirty-update" => AnomalyKind::DirtyUpdate,
        "internal" => AnomalyKind::Internal,
        "future-read" => AnomalyKind::FutureRead,
        "duplicate-elements" => AnomalyKind::Duplicate,
        "incompatible-order" => AnomalyKind::IncompatibleOrder,
        "cyclic-versions" => AnomalyKind::CyclicVersions,
        _ => AnomalyKind::Other,
    }
}

/// The part of a history that concerns the keys of one kind.
struct Projection<'h> {
    history: &'h History,
    kind: KeyKind,
    writers: &'h Writers<'h>,
}

impl Projection<'_> {
    /// Returns the history in the form of `adya`.
    fn build(&self) -> adya::History {
        let (mut at, mut last) = (Vec::new(), Vec::new());
        let observed = self.writers.observed();
        let transactions = self.history.transactions();
        let mut interner = Interner::default();
        for (index, transaction) in transactions.iter().enumerate() {
            let is_observed = observed.contains(&index);
            let value = self.operations(transaction, is_observed, &mut interner);
            if value.is_empty() {
                continue;
            }
            // A transaction of unknown outcome may take effect after its client has gone on: it
            // gets a process of its own. If it was observed, it has committed at an unknown time.
            let known = i64::from(transaction.process);
            let own = (1 << 32) + index as i64;
            let (kind, process) = match transaction.outcome {
                Outcome::Ok => (OpType::Ok, known),
                Outcome::Fail => (OpType::Fail, known),
                Outcome::Info if is_observed => (OpType::Ok, own),
                Outcome::Info => (OpType::Info, own),
            };
            let op = |kind, event: usize| Op {
                index: event as u64,
                kind,
                process: Some(process),
                value: value.clone(),
                time: Some(self.history.events()[event].time_ns as i64),
            };
            at.push((transaction.invoked, op(OpType::Invoke, transaction.invoked)));
            let completion = op(kind, transaction.number());
            match transaction.outcome {
                Outcome::Info => last.push(completion),
                Outcome::Ok | Outcome::Fail => at.push((transaction.number(), completion)),
            }
        }
        at.sort_by_key(|(event, _)| *event);
        let ops = at.into_iter().map(|(_, op)| op).chain(last).collect();
        adya::History::from_ops(ops, interner)
    }

    /// Returns the operations on keys of this kind. Reads of unknown result are left out of a
    /// transaction that only counts as committed because it was observed.
    fn operations(
        &self,
        transaction: &Transaction,
        is_observed: bool,
        interner: &mut Interner,
    ) -> Vec<Mop> {
        let mut operations = Vec::new();
        for operation in &transaction.operations {
            let name = operation.key();
            if self.history.kinds().get(name).is_some_and(|kind| *kind != self.kind) {
                continue;
            }
            let key = interner.intern(match name {
                Key::Number(number) => Scalar::Int(*number),
                Key::Text(text) => Scalar::Str(text.clone()),
            });
            let mut id = |value: &i64| interner.intern(Scalar::Int(*value));
            operations.push(match operation {
                Operation::Append { element, .. } => Mop::Append { key, value: id(element) },
                Operation::Write { value, .. } => Mop::Write { key, value: id(value) },
                Operation::Read { .. } if is_observed => continue,
                Operation::Read { found, .. } => {
                    let value = match found {
                        Found::Nil => ReadValue::Nil,
                        Found::List(elements) => ReadValue::List(elements.iter().map(id).collect()),
                        Found::Value(value) => ReadValue::Scalar(id(value)),
                    };
                    Mop::Read { key, value }
                }
            });
        }
        operations
    }
}
