//! Transactions over a model of the fabric take place in one order, whatever is lost.

use crate::fabric;

use fabric::Faults;
use fabric::check::run;
use proptest::prelude::*;

fn faults() -> impl Strategy<Value = Faults> {
    (0..20_u64, 0..20_u64, 0..20_u64, any::<(bool, bool, bool)>()).prop_map(
        |(lost, reply_lost, unknown, (fails, returns, is_durable))| Faults {
            lost,
            reply_lost,
            unknown,
            fails,
            returns,
            is_durable,
            restarts: 0,
        },
    )
}

/// Runs that once failed while a replica caught up.
#[test]
fn former_failures_hold() {
    let all = Faults { fails: true, returns: true, ..Faults::default() };
    let with = |lost, reply_lost, unknown, is_durable| Faults {
        lost,
        reply_lost,
        unknown,
        is_durable,
        ..all
    };
    // A refused write whose answer was lost.
    assert_eq!(run(1_083_069_136_119_537_895, with(14, 19, 9, true)), Ok(()));
    // A replica that was admitted twice.
    assert_eq!(run(1_032_163_820_114_938_142, with(11, 6, 11, false)), Ok(()));
    // A replica that learnt of a later admission before its own took effect.
    assert_eq!(run(13_527_030_043_014_280_205, with(19, 16, 0, true)), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn all_processes_see_one_order(seed in any::<u64>(), faults in faults()) {
        prop_assert_eq!(run(seed, faults), Ok(()));
    }
}
