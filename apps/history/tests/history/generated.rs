//! Histories of a correct store pass every check; those of a store with a mistake do not.

use crate::store;

use onepipe_history::{AnomalyKind, Order, Report, check};
use proptest::prelude::*;
use store::{Load, Mistake, generate};

fn load(has_registers: bool, mistake: Mistake) -> impl Strategy<Value = Load> {
    (any::<u64>(), 1u32..10, 1u32..6, 0u32..12).prop_map(move |(seed, clients, keys, failures)| {
        Load {
            seed,
            clients,
            transactions: 200,
            keys,
            writes_max: 40,
            has_registers,
            failures,
            mistake,
        }
    })
}

fn report(load: Load) -> (Report, u32) {
    let (history, mistakes) = generate(load);
    (check(&history), mistakes)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_correct_store_passes(load in (any::<bool>()).prop_flat_map(|r| load(r, Mistake::None))) {
        let (report, _) = report(load);
        prop_assert!(report.is_valid(), "{}", report);
        prop_assert!(report.durable.is_some());
    }

    #[test]
    fn stale_reads_are_not_strict(load in load(false, Mistake::StaleRead)) {
        let (report, mistakes) = report(load);
        prop_assume!(mistakes > 0);
        prop_assert!(!report.strict.is_valid() && !report.linearizable.is_valid());
    }

    #[test]
    fn lost_appends_are_found(load in load(false, Mistake::LostAppend)) {
        let (report, mistakes) = report(load);
        prop_assume!(mistakes > 3);
        prop_assert!(report.durable.is_some_and(|verdict| !verdict.is_valid()));
        prop_assert!(!report.strict.is_valid() && !report.linearizable.is_valid());
    }

    #[test]
    fn duplicated_appends_are_found(load in load(false, Mistake::DuplicatedAppend)) {
        let (report, mistakes) = report(load);
        prop_assume!(mistakes > 0);
        prop_assert!(!report.serializable.is_valid() && !report.linearizable.is_valid());
        prop_assert!(report.durable.is_some_and(|verdict| !verdict.is_valid()));
    }

    #[test]
    fn opposite_orders_on_two_keys_are_found(load in load(false, Mistake::SwappedOrder)) {
        let (report, mistakes) = report(Load { keys: load.keys + 1, ..load });
        prop_assume!(mistakes > 0);
        let kinds = report.serializable.kinds();
        prop_assert!(kinds.contains(&AnomalyKind::G0(Order::Data)), "{}", report);
    }

    #[test]
    fn effects_of_failed_transactions_are_found(load in load(false, Mistake::FailedAppend)) {
        let (report, mistakes) = report(load);
        prop_assume!(mistakes > 0);
        prop_assert!(!report.serializable.is_valid());
        prop_assert!(report.durable.is_some_and(|verdict| !verdict.is_valid()));
    }

    #[test]
    fn stale_reads_of_registers_are_not_strict(load in load(true, Mistake::StaleRead)) {
        let (report, mistakes) = report(load);
        prop_assume!(mistakes > 3);
        prop_assert!(!report.linearizable.is_valid() && !report.strict.is_valid());
    }
}
