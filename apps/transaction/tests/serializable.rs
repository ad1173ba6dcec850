//! Transactions over a model of the fabric take place in one order, whatever is lost.

mod fabric;

use fabric::Faults;
use fabric::check::run;
use proptest::prelude::*;

fn faults() -> impl Strategy<Value = Faults> {
    (0..20_u64, 0..20_u64, 0..20_u64, any::<bool>(), any::<bool>()).prop_map(
        |(lost, reply_lost, unknown, fails, is_durable)| Faults {
            lost,
            reply_lost,
            unknown,
            fails,
            is_durable,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn all_processes_see_one_order(seed in any::<u64>(), faults in faults()) {
        prop_assert_eq!(run(seed, faults), Ok(()));
    }
}
