//! Mutation runs: checks that each seeded bug is detected.

use onepipe_base::mistake::{Mistake, choose};

use crate::swarm::Swarm;

/// Bugs that random runs detect: all of them.
pub const CAUGHT_BY_SEEDS: &[Mistake] = &[
    Mistake::QuorumForgotten,
    Mistake::GapsIgnored,
    Mistake::PendingForgotten,
    Mistake::NewTimestamp,
    Mistake::StaleEpoch,
    Mistake::AckTwice,
    Mistake::ProposedTwice,
    Mistake::VotesWithoutMemory,
];

/// Runs a seed with a bug, and returns the first violation found as text. A failed assertion of a
/// machine counts as a violation.
///
/// The bug is selected for the whole process during the run, and deselected afterwards.
pub fn first_violation(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let outcome = Swarm::draw(seed).attempt();
    choose(None);
    if outcome.is_panic {
        return Some("an assertion".to_owned());
    }
    outcome.violations.first().map(|text| kind(text).to_owned())
}

/// Like [`first_violation`], but `None` if the seed shows a violation even without the bug.
pub fn caught(mistake: Mistake, seed: u64) -> Option<String> {
    let first_violation = first_violation(Some(mistake), seed)?;
    self::first_violation(None, seed).is_none().then_some(first_violation)
}

/// Returns the property that a violation is about.
fn kind(text: &str) -> &'static str {
    let kinds = [
        (" delivered (", "order"),
        ("has timestamps", "agreement"),
        ("or others", "agreement"),
        ("had delivered other messages", "agreement"),
        ("two leaders", "one leader"),
        ("no replica delivered", "validity"),
        ("has not completed", "validity"),
        ("is not complete", "validity"),
        ("has not sent", "validity"),
        ("is not concerned", "genuineness"),
        (" is behind ", "capacity"),
    ];
    let found = kinds.iter().find(|(part, _)| text.contains(part));
    found.map_or("integrity", |(_, kind)| kind)
}
