//! Runs with random faults: no committed entry is lost or moved, logs are equal in the end, and
//! all entries of clients that go on are committed.

mod fabric;

use std::ops::Range;

use fabric::run::{Faults, run};
use fabric::store::{JournalStore, ListStore, Store};

/// Returns the number of committed entries, and of views.
fn runs<S: Store>(seeds: Range<u64>, has_states: bool) -> (usize, u64) {
    let (mut committed, mut views) = (0, 0);
    for seed in seeds {
        let faults = Faults::of_seed(seed);
        match run::<S>(seed, faults, has_states) {
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

/// As [`runs`]. Returns the number of trimmed entries, and of states that were read from others.
fn trimming_runs(seeds: Range<u64>) -> (u64, u64) {
    let (mut trimmed, mut installed) = (0, 0);
    for seed in seeds {
        let faults = Faults::of_seed(seed);
        match run::<JournalStore>(seed, faults, true) {
            Ok(fabric) => {
                for mut replica in fabric.nodes.into_iter().filter_map(|node| node.replica) {
                    trimmed += replica.base_len();
                    installed += replica.take_stats().installed;
                }
            }
            Err(error) => panic!("seed {seed} with {faults:?}: {error}"),
        }
    }
    println!("{trimmed} entries were trimmed, {installed} states were read from other replicas");
    (trimmed, installed)
}

#[test]
fn logs_agree_under_random_faults() {
    let (committed, views) = runs::<ListStore>(0..400, false);
    assert!(committed > 4_000 && views > 400, "the runs do little");
}

#[test]
#[ignore = "minutes: cargo test -p onepipe-log --test random -- --ignored"]
fn logs_agree_under_random_faults_of_many_seeds() {
    runs::<ListStore>(400..40_000, false);
}

#[test]
fn logs_in_journals_agree_under_random_faults() {
    let (committed, views) = runs::<JournalStore>(0..200, false);
    assert!(committed > 2_000 && views > 200, "the runs do little");
}

#[test]
fn states_agree_while_logs_are_trimmed() {
    let (trimmed, installed) = trimming_runs(0..300);
    assert!(trimmed > 3_000 && installed > 20, "the runs do little");
}

#[test]
#[ignore = "minutes: cargo test -p onepipe-log --test random -- --ignored"]
fn states_agree_while_logs_are_trimmed_of_many_seeds() {
    trimming_runs(300..20_000);
}

/// The end of the previous incarnation of a joiner, reported to a member after the request to join,
/// once made that member send it no statement: the joiner began another view than the rest.
#[test]
fn end_reported_late_does_not_exclude_a_joiner() {
    let seed = 14_742;
    run::<JournalStore>(seed, Faults::of_seed(seed), true).expect("all logs are equal in the end");
}
