//! Verdicts of the checks, with counterexamples for people.

use std::fmt;

/// The order of transactions that counts besides the dependencies of the data: in a check, and in a
/// cycle that it has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// None. A cycle shows that the history is not serializable.
    Data,
    /// The order of a client's transactions.
    Session,
    /// Real time: one transaction had completed before the other was invoked.
    RealTime,
}

/// Kind of an anomaly. The names of the first group are those of Adya and Elle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AnomalyKind {
    /// A cycle of writes alone.
    G0(Order),
    /// An aborted read: a value of a transaction that failed was observed.
    G1a,
    /// An intermediate read: a value that its own transaction replaced was observed.
    G1b,
    /// A cycle of writes and of reads of what was written.
    G1c(Order),
    /// A cycle with one anti-dependency (a read of a value that another transaction overwrote):
    /// fractured reads, and with [`Order::RealTime`] stale ones.
    GSingle(Order),
    /// A cycle with several anti-dependencies of which no two are adjacent: a long fork.
    GNonadjacent(Order),
    /// A cycle with adjacent anti-dependencies: write skew.
    G2(Order),
    /// Two transactions read the same version and both replaced it.
    LostUpdate,
    /// A committed write is based on one of a transaction that failed.
    DirtyUpdate,
    /// A transaction contradicts its own earlier reads and writes.
    Internal,
    /// A transaction read its own write before it happened.
    FutureRead,
    /// A list contains an element twice.
    Duplicate,
    /// Two reads of a list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// No order of a register's values agrees with its reads.
    CyclicVersions,
    /// A value was observed that no transaction wrote.
    Phantom,
    /// A transaction of unknown outcome took effect in part.
    Torn,
    /// An acknowledged write is missing at the end.
    Lost,
    /// No order of the operations of a key explains their results.
    NotLinearizable,
    /// An anomaly that `adya` reports under a name that has no variant here.
    Other,
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, order) = match self {
            Self::G0(order) => ("G0", order),
            Self::G1c(order) => ("G1c", order),
            Self::GSingle(order) => ("G-single", order),
            Self::GNonadjacent(order) => ("G-nonadjacent", order),
            Self::G2(order) => ("G2", order),
            Self::G1a => ("G1a", &Order::Data),
            Self::G1b => ("G1b", &Order::Data),
            Self::LostUpdate => ("lost-update", &Order::Data),
            Self::DirtyUpdate => ("dirty-update", &Order::Data),
            Self::Internal => ("internal", &Order::Data),
            Self::FutureRead => ("future-read", &Order::Data),
            Self::Duplicate => ("duplicate-elements", &Order::Data),
            Self::IncompatibleOrder => ("incompatible-order", &Order::Data),
            Self::CyclicVersions => ("cyclic-versions", &Order::Data),
            Self::Phantom => ("phantom-value", &Order::Data),
            Self::Torn => ("torn-transaction", &Order::Data),
            Self::Lost => ("lost-write", &Order::Data),
            Self::NotLinearizable => ("not-linearizable", &Order::Data),
            Self::Other => ("other", &Order::Data),
        };
        f.write_str(name)?;
        f.write_str(match order {
            Order::Data => "",
            Order::Session => "-process",
            Order::RealTime => "-realtime",
        })
    }
}

/// One anomaly with its counterexample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind.
    pub kind: AnomalyKind,
    /// Positions in the history of the completions of the transactions involved (invocations of
    /// those without a completion), in the order of the cycle.
    pub transactions: Vec<usize>,
    /// The counterexample. `T7` is the transaction whose completion is event 7.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.explanation.trim_end())
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The history contains no anomaly that the check looks for.
    Valid,
    /// The history contains these anomalies, sorted by kind.
    Violated(Vec<Anomaly>),
    /// The check cannot decide, for this reason.
    Undecided(String),
}

impl Verdict {
    /// Returns [`Verdict::Violated`] with these anomalies, or [`Verdict::Valid`] if there is none.
    pub(crate) fn of(mut anomalies: Vec<Anomaly>) -> Self {
        anomalies.sort_by(|a, b| (a.kind, &a.transactions).cmp(&(b.kind, &b.transactions)));
        if anomalies.is_empty() { Self::Valid } else { Self::Violated(anomalies) }
    }

    /// Returns whether the history passed. A check that cannot decide has not passed.
    pub fn is_valid(&self) -> bool {
        *self == Self::Valid
    }

    /// Returns the anomalies.
    pub fn anomalies(&self) -> &[Anomaly] {
        match self {
            Self::Violated(anomalies) => anomalies,
            Self::Valid | Self::Undecided(_) => &[],
        }
    }

    /// Returns the kinds of the anomalies, each once, in their order.
    pub fn kinds(&self) -> Vec<AnomalyKind> {
        let mut kinds: Vec<_> = self.anomalies().iter().map(|anomaly| anomaly.kind).collect();
        kinds.dedup();
        kinds
    }
}

/// Number of anomalies that the text of a verdict lists.
const LISTED_MAX: usize = 10;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("valid"),
            Self::Undecided(reason) => write!(f, "undecided: {reason}"),
            Self::Violated(anomalies) => {
                write!(f, "violated by {} anomalies", anomalies.len())?;
                for anomaly in anomalies.iter().take(LISTED_MAX) {
                    write!(f, "\n{anomaly}")?;
                }
                let unlisted = anomalies.len().saturating_sub(LISTED_MAX);
                if unlisted > 0 {
                    write!(f, "\nand {unlisted} more")?;
                }
                Ok(())
            }
        }
    }
}
