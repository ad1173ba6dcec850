//! A durable store over several runs: all replicas lose power, and start again from their disks.

use crate::fabric;

use fabric::Faults;
use fabric::check::run;
use proptest::prelude::*;

/// Returns the faults of a run, by its seed.
fn faults(seed: u64) -> Faults {
    Faults {
        lost: seed % 17,
        reply_lost: seed % 13,
        unknown: seed % 11,
        fails: !seed.is_multiple_of(5),
        returns: !seed.is_multiple_of(3),
        is_durable: true,
        restarts: 1 + seed % 4,
    }
}

/// Runs that failed before a mistake was mended. Without the mending they fail again.
const FORMER_FAILURES: [(u64, &str); 6] = [
    (3, "a client that went on sent a write again that replicas no longer knew of"),
    (11, "two runs had one number, as no log knew of the first"),
    (18, "the image of a returned replica passed for void: it is later than the end"),
    (157, "the image of a peer replaced the only record of a write that another shard lacked"),
    (733, "the same"),
    (1_322, "the image had a write that was executed later, and no record of it"),
];

#[test]
fn former_failures_hold() {
    for (seed, what) in FORMER_FAILURES {
        assert_eq!(run(seed, faults(seed)), Ok(()), "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever each disk has lost, all replicas go on with the same writes, and none is missing
    /// that a client has seen.
    #[test]
    fn all_runs_see_one_order(seed in any::<u64>()) {
        prop_assert_eq!(run(seed, faults(seed)), Ok(()));
    }
}
