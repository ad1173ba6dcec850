//! Whether a mistake of the machines is caught (testing.md row 40).

use onepipe_base::mistake::{Mistake, choose};

use crate::swarm::Swarm;

/// The mistakes that seeds show: all of them.
pub const CAUGHT_BY_SEEDS: &[Mistake] = &[
    Mistake::QuorumForgotten,
    Mistake::GapsIgnored,
    Mistake::PendingForgotten,
    Mistake::NewTimestamp,
    Mistake::StaleEpoch,
    Mistake::AckTwice,
    Mistake::ProposedTwice,
];

/// What a run with a mistake has shown first, as text; an assertion is one of the machines
/// themselves. `None`: nothing.
///
/// The mistake is chosen for the whole program while this runs, and none afterwards.
pub fn first_violation(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let outcome = Swarm::draw(seed).attempt();
    choose(None);
    if outcome.is_panic {
        return Some("an assertion".to_owned());
    }
    outcome.violations.first().map(|text| kind(text).to_owned())
}

/// As [`shown`], if nothing is wrong at this seed without the mistake.
pub fn caught(mistake: Mistake, seed: u64) -> Option<String> {
    let first_violation = first_violation(Some(mistake), seed)?;
    self::first_violation(None, seed).is_none().then_some(first_violation)
}

/// Which of the rules a complaint is about.
fn kind(text: &str) -> &'static str {
    let kinds = [
        (" delivers (", "order"),
        ("is at ", "agreement"),
        ("or others", "agreement"),
        ("died with, something else", "agreement"),
        ("two leaders", "one leader"),
        ("nobody delivers", "validity"),
        ("is not over", "validity"),
        ("has not sent", "validity"),
        (" tells ", "genuineness"),
        (" is behind ", "room"),
    ];
    let found = kinds.iter().find(|(part, _)| text.contains(part));
    found.map_or("integrity", |(_, kind)| kind)
}
