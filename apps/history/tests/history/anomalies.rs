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
    let all = "G-single lost-update";
    assert_found("lost-update-list", [all, all, all, "not-linearizable"]);
    // Without real time the order of the two values is unknown.
    let unordered = "G2 lost-update";
    let strict = "G-single G2 lost-update";
    assert_found("lost-update-register", [strict, unordered, unordered, "not-linearizable"]);
}

#[test]
fn finds_dirty_and_aborted_reads() {
    let all = "G1b G-single";
    assert_found("dirty-read", [all, all, all, "not-linearizable"]);
    assert_found("circular-reads", ["G1c", "G1c", "G1c", "-"]);
    assert_found("aborted-read-list", ["G1a", "G1a", "G1a", "not-linearizable"]);
    assert_found("aborted-read-register", ["G1a", "G1a", "G1a", "not-linearizable"]);
}

#[test]
fn finds_fractured_reads_over_two_keys() {
    assert_found("fractured-read", ["G-single", "G-single", "G-single", "-"]);
    assert_found("fractured-read-register", ["G-single", "G-single", "G-single", "-"]);
}

#[test]
fn finds_write_skew_and_long_forks() {
    assert_found("write-skew", ["G2", "G2", "G2", "-"]);
    assert_found("long-fork", ["G-nonadjacent", "G-nonadjacent", "G-nonadjacent", "-"]);
}

#[test]
fn separates_stale_reads_from_unserializable_ones() {
    let stale = "G-single-realtime";
    assert_found("stale-read-list", [stale, "-", "-", "not-linearizable"]);
    assert_found("stale-read-register", [stale, "-", "-", "not-linearizable"]);
    assert_found("stale-read-own-write", [stale, "G-single-process", "-", "not-linearizable"]);
}

#[test]
fn finds_reads_of_later_writes() {
    let found = ["future-read", "future-read", "future-read", "not-linearizable"];
    assert_found("future-read-register", found);
}

#[test]
fn finds_shards_that_order_differently() {
    assert_found("opposite-orders", ["G0", "G0", "G0", "-"]);
}

#[test]
fn finds_duplicates_and_invented_values() {
    let twice = "duplicate-elements";
    let strict = "G-single-realtime duplicate-elements";
    assert_found("duplicate-append", [strict, twice, twice, "not-linearizable"]);
    let invented = "phantom-value";
    assert_found("phantom", [invented, invented, invented, "not-linearizable"]);
}

/// Asserts what the check of durability finds.
#[track_caller]
fn assert_durable(name: &str, expected: &str) {
    let report = check(name);
    let verdict = report.durable.as_ref().expect("the history has final reads");
    assert_eq!(names(verdict), expected, "{name}: {report}");
}

#[test]
fn compares_final_reads_with_acknowledgements() {
    assert_durable("durable-lost", "lost-write");
    assert_durable("durable-overwritten", "lost-write");
    assert_durable("durable-torn", "torn-transaction");
    assert_durable("durable-resurrected", "G1a");
    assert_durable("duplicate-append", "duplicate-elements");
    assert_durable("phantom", "phantom-value");
}
