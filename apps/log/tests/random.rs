//! Runs with random faults: no committed entry is lost or moved, logs are equal in the end, and
//! all entries of clients that go on are committed.

mod fabric;

use std::ops::Range;

use fabric::run::{Faults, run};

/// Returns the number of committed entries, and of views.
fn runs(seeds: Range<u64>) -> (usize, u64) {
    let (mut committed, mut views) = (0, 0);
    for seed in seeds {
        let faults = Faults::of_seed(seed);
        match run(seed, faults) {
            Ok(fabric) => {
                committed += fabric.users.iter().map(|user| user.committed.len()).sum::<usize>();
                views += fabric.nodes[0].replica.as_ref().map_or(0, |one| one.view().number);
            }
            Err(error) => panic!("seed {seed} with {faults:?}: {error}"),
        }
    }
    println!("{committed} entries were committed in {views} views");
    (committed, views)
}

#[test]
fn logs_agree_under_random_faults() {
    let (committed, views) = runs(0..400);
    assert!(committed > 4_000 && views > 400, "the runs do little");
}

#[test]
#[ignore = "minutes: cargo test -p onepipe-log --test random -- --ignored"]
fn logs_agree_under_random_faults_of_many_seeds() {
    runs(400..40_000);
}
