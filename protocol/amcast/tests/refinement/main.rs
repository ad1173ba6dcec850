//! Refinement check: the packets of the real members, in histories with loss, duplication,
//! reordering, crashes and an election, must be permitted by the rules that were explored
//! exhaustively (`../rules`). So the properties of the rules hold for the members, as far as the
//! histories cover. That each seeded bug is detected this way is checked in `../mistakes.rs`.

mod drawn;
#[path = "../amcast/harness/mod.rs"]
mod harness;
#[path = "../rules/model.rs"]
#[allow(dead_code)]
mod model;
mod observer;
mod swept;

use std::cell::RefCell;

use drawn::histories;
use observer::Seen;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use swept::Swept;

/// Runs random histories; none may violate the rules. Returns what was seen in them.
fn check(cases: u32) -> Seen {
    let all = RefCell::new(Seen::new());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let found = TestRunner::new(config).run(&histories(), |history| {
        let seen = history.run_history().map_err(TestCaseError::fail)?;
        for (step, times) in seen {
            *all.borrow_mut().entry(step).or_default() += times;
        }
        Ok(())
    });
    assert!(found.is_ok(), "{}", found.unwrap_err());
    all.into_inner()
}

//= spec/amcast.md#R2
//= spec/amcast.md#R4
//= spec/amcast.md#R10
//= spec/amcast.md#R13
//= spec/amcast.md#R15
//= spec/amcast.md#R22
//= spec/amcast.md#R25
#[test]
fn members_refine_rules() {
    let seen = check(3_000);
    // The histories must cover every step often.
    assert!(seen.len() == 11 && seen.values().all(|times| *times > 1_000), "{seen:?}");
}

#[test]
#[ignore = "ten minutes: cargo test -p onepipe-amcast --test refinement -- --ignored"]
fn members_refine_rules_in_many_histories() {
    check(200_000);
}

/// Checks the number of histories and states, and that all histories ended well that could.
fn is_sound(swept: &Swept, histories: u64, states: usize) {
    let Swept { histories: all, events, decided, states: seen } = swept;
    let summary =
        format!("{all} histories, {events} events, {decided} decided, {} states", seen.len());
    assert!(*all >= histories && seen.len() >= states && 3 * decided > 2 * all, "{summary}");
}

//= spec/amcast.md#R4
//= spec/amcast.md#R22
//= spec/amcast.md#R23
//= spec/amcast.md#R24
//= spec/amcast.md#R25
#[test]
fn election_before_some_events_with_each_fault() {
    is_sound(&Swept::singles(60), 10_000, 500);
}

#[test]
#[ignore = "minutes: cargo test -p onepipe-amcast --test refinement -- --ignored"]
fn election_before_every_event_with_each_fault() {
    is_sound(&Swept::singles(1), 560_256, 1_300);
}

#[test]
#[ignore = "minutes: cargo test -p onepipe-amcast --test refinement -- --ignored"]
fn election_with_crash_and_loss() {
    is_sound(&Swept::triples(15), 267_462, 1_000);
}
