//! All checks at once.

use std::fmt;
use std::path::Path;

use crate::durability::{FinalReads, durability};
use crate::history::{History, HistoryError};
use crate::isolation::{serializability, strict_serializability};
use crate::linearizability::linearizability;
use crate::verdict::{Order, Verdict};

/// The verdict of every check on one history.
#[derive(Clone, Debug)]
pub struct Report {
    /// Strict serializability.
    pub strict: Verdict,
    /// Serializability with the order of each client's transactions.
    pub session: Verdict,
    /// Serializability alone.
    pub serializable: Verdict,
    /// Linearizability of each key.
    pub linearizable: Verdict,
    /// Durability, by the final reads that the history contains; `None` if it contains none.
    pub durable: Option<Verdict>,
}

impl Report {
    /// Returns whether every check passed.
    pub fn is_valid(&self) -> bool {
        self.verdicts().all(|(_, verdict)| verdict.is_valid())
    }

    /// Returns each check that was made, by name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let always = [
            ("strict serializability", &self.strict),
            ("session serializability", &self.session),
            ("serializability", &self.serializable),
            ("linearizability of each key", &self.linearizable),
        ];
        always.into_iter().chain(self.durable.as_ref().map(|verdict| ("durability", verdict)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in self.verdicts() {
            writeln!(f, "{name}: {verdict}")?;
        }
        Ok(())
    }
}

/// Makes every check.
pub fn check(history: &History) -> Report {
    let at_end = FinalReads::of(history);
    Report {
        strict: strict_serializability(history),
        session: serializability(history, Order::Session),
        serializable: serializability(history, Order::Data),
        linearizable: linearizability(history),
        durable: (!at_end.is_empty()).then(|| durability(history, &at_end)),
    }
}

/// Makes every check on a file of JSON lines.
pub fn check_file(path: impl AsRef<Path>) -> Result<Report, HistoryError> {
    Ok(check(&History::read(path)?))
}
