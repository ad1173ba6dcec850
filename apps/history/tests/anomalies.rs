//! Known anomalies as small histories: the right check finds each, by its name.

use std::path::Path;

use onepipe_history::{Report, Verdict, check_file};

/// Names of the kinds that a check found, or `-`.
fn names(verdict: &Verdict) -> String {
    assert!(!matches!(verdict, Verdict::Undecided(_)), "{verdict}");
    let names: Vec<String> = verdict.kinds().iter().map(ToString::to_string).collect();
    if names.is_empty() { "-".to_string() } else { names.join(" ") }
}

fn check(name: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    check_file(path.with_extension("jsonl")).expect("a history")
}

/// Asserts what strict serializability, serializability in sessions, serializability, and
/// linearizability of each key find.
#[track_caller]
fn assert_found(name: &str, expected: [&str; 4]) {
    let report = check(name);
    let verdicts = [&report.strict, &report.session, &report.serializable, &report.linearizable];
    assert_eq!(verdicts.map(names), expected, "{name}\n{report}");
    let all_valid = expected.iter().all(|names| *names == "-");
    for (_, verdict) in report.verdicts().take(4) {
        assert_eq!(verdict.to_string() == "valid", verdict.is_valid());
        for anomaly in verdict.anomalies() {
            assert!(!anomaly.explanation.is_empty(), "{name}");
        }
    }
    if !all_valid {
        assert!(!report.is_valid());
    }
}

#[test]
fn good_histories_pass() {
    for name in ["good-lists", "good-registers", "good-unknown-outcome"] {
        assert_found(name, ["-"; 4]);
        assert!(check(name).is_valid(), "{name}: {}", check(name));
    }
}

#[test]
fn finds_lost_updates() {
    for name in ["lost-update-list", "lost-update-register"] {
        assert_found(name, ["?"; 4]);
    }
}

#[test]
fn finds_dirty_reads() {
    assert_found("dirty-read", ["?"; 4]);
    assert_found("aborted-read-list", ["?"; 4]);
    assert_found("aborted-read-register", ["?"; 4]);
}

#[test]
fn finds_fractured_reads_over_two_keys() {
    assert_found("fractured-read", ["?"; 4]);
    assert_found("fractured-read-register", ["?"; 4]);
}

#[test]
fn finds_write_skew_and_long_forks() {
    assert_found("write-skew", ["?"; 4]);
    assert_found("long-fork", ["?"; 4]);
}

#[test]
fn separates_stale_reads_from_unserializable_ones() {
    assert_found("stale-read-list", ["?"; 4]);
    assert_found("stale-read-register", ["?"; 4]);
    assert_found("stale-read-own-write", ["?"; 4]);
}

#[test]
fn finds_shards_that_order_differently() {
    assert_found("opposite-orders", ["?"; 4]);
}

#[test]
fn finds_duplicates_and_invented_values() {
    assert_found("duplicate-append", ["?"; 4]);
    assert_found("phantom", ["?"; 4]);
}
