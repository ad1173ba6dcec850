//! A crash in every operation.

use proptest::prelude::*;

use super::model::{Step, crash_everywhere, script};

#[test]
fn durable_records_survive_a_crash_in_every_operation() {
    let mut operations = 0;
    for seed in 0..600 {
        operations += crash_everywhere(seed, &script(seed, 25)).expect("nothing durable is lost");
    }
    assert!(operations > 10_000, "{operations} operations were crashed in");
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u16..1500).prop_map(Step::Append),
        1 => Just(Step::Flush),
        2 => Just(Step::Sync),
        1 => Just(Step::Snapshot),
        1 => Just(Step::PeerSnapshot),
        1 => Just(Step::FailSync),
        1 => Just(Step::KillProcess),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_script_survives_a_crash_in_every_operation(seed: u64, steps in steps()) {
        let crashed = crash_everywhere(seed, &steps);
        prop_assert!(crashed.is_ok(), "{}", crashed.unwrap_err());
    }
}
