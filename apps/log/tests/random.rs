//! Runs with random faults: no committed entry is lost or moved, logs are equal in the end, and
//! all entries of clients that go on are committed.

mod fabric;

use fabric::run::{Faults, run};

#[test]
fn logs_agree_under_random_faults() {
    let (mut committed, mut views) = (0, 0);
    for seed in 0..400 {
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
    assert!(committed > 4_000 && views > 400, "the runs do little");
}
