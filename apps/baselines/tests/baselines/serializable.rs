//! Histories of each protocol in a model network, and the state of the servers at the end.

use crate::model;

use model::lists::{ListLoad, Lists};
use model::{Faults, Model, Setup};
use onepipe_baselines::{FarmReads, Protocol};
use onepipe_history::{Verdict, strict_serializability};
use proptest::prelude::*;

const SHARDS: u16 = 3;

fn setup(protocol: Protocol, seed: u64, faults: Faults) -> Setup {
    Setup { protocol, shards: SHARDS, replicas: 2, clients: 6, faults, seed }
}

/// Runs transactions. Returns the verdict on their history, and what is wrong at the end.
fn run(setup: Setup, count: u64) -> (Verdict, Result<(), String>) {
    let mut model = Model::new(setup, |_| Lists::default());
    let mut load = ListLoad::new(SHARDS);
    model.run(count, &mut load);
    let history = load.recorder.history().expect("well-formed");
    assert!(history.transactions().len() as u64 == count);
    (strict_serializability(&history), model.check_end())
}

fn protocols() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Farm(FarmReads::Validated)),
        Just(Protocol::TwoPhaseLocking),
        Just(Protocol::Optimistic),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn histories_are_serializable_and_replicas_are_equal(
        protocol in protocols(),
        seed in any::<u64>(),
        lost in 0_u64..20,
        duplicated in 0_u64..20,
    ) {
        let (verdict, end) = run(setup(protocol, seed, Faults { lost, duplicated }), 150);
        prop_assert!(verdict.is_valid(), "{protocol:?}: {verdict}");
        prop_assert_eq!(end, Ok(()));
    }
}

/// Entries behind a lost one were taken for slow ones, so that timeouts grew without end.
#[test]
fn lost_entries_do_not_lengthen_timeouts() {
    let faults = Faults { lost: 19, duplicated: 3 };
    let setup = setup(Protocol::Optimistic, 13_304_681_848_709_999_376, faults);
    assert_eq!(run(setup, 150).1, Ok(()));
}

/// Returns the first of 100 seeds with a short history that is violated.
fn first_violation(protocol: Protocol) -> Option<u64> {
    let is_violated = |seed: &u64| {
        let faults = Faults { lost: 10, duplicated: 0 };
        let setup = Setup { replicas: 1, ..setup(protocol, *seed, faults) };
        let (verdict, _) = run(setup, 40);
        matches!(verdict, Verdict::Violated(_))
    };
    (0..100).find(is_violated)
}

#[test]
fn the_checks_catch_a_store_without_concurrency_control() {
    assert_ne!(first_violation(Protocol::NonTx), None);
}

#[test]
fn reads_in_one_round_are_not_serializable() {
    assert_ne!(first_violation(Protocol::Farm(FarmReads::OneRound)), None);
    assert_eq!(first_violation(Protocol::Farm(FarmReads::Validated)), None);
}
