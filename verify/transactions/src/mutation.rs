//! Detection of seeded mistakes of transactions.

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};

use crate::run::run;

/// The mistakes that random scenarios detect. The model of the fabric in `apps/transaction/tests`
/// detects all mistakes of transactions. Among those that the scenarios do not detect:
///
/// - `reply-before-store` needs a store;
/// - `executed-twice` needs a reliable scattering that is delivered and reported as failed, which
///   the endpoints have not done in any scenario so far;
/// - `snapshot-for-strict` and `own-write-missed` need a replica whose commit barrier lags behind
///   another's by more than a round trip, while its best-effort barrier does not.
pub const SIMULATED: &[Mistake] = &[
    Mistake::ReadAtDelivery,
    Mistake::ExactnessIgnored,
    Mistake::ShardMissed,
    Mistake::OneReplyOfAll,
];

/// Runs a seed with a mistake. Returns the names of the checks that detect it.
///
/// The mistake is selected for the whole program during the run.
pub fn detected(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let report = catch_unwind(|| run(seed));
    choose(None);
    let Ok(report) = report else { return Some("an assertion".to_owned()) };
    let names = report.violations.iter().map(|what| match what.split_once(':') {
        Some((name, _)) => name,
        None => what,
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the result of [`detected`] if the seed passes without the mistake.
pub fn caught(mistake: Mistake, seed: u64) -> Option<String> {
    detected(Some(mistake), seed).filter(|_| detected(None, seed).is_none())
}
