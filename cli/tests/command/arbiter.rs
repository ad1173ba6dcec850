//! `onepipe arbiter`: real processes behind a real switch.

use serde_json::Value;

use crate::program::{Beside, errors, onepipe, output};

/// Who is off its core for less is not dead.
const TAKEOVER: &str = "500ms";

#[test]
fn an_arbiter_takes_over_from_one_that_is_killed() {
    let mut switch = Beside::start(&mut onepipe(&["switch", "--listen", "127.0.0.1:0"]));
    let line = switch.line();
    let at = line.strip_prefix("listening at ").expect("it says where");
    let arbiter = |process, others: &[&str]| {
        let of = ["arbiter", "--udp", at, "--process", process, "--takeover", TAKEOVER, "--json"];
        let mut arbiter = Beside::start(&mut onepipe(&[&of, others].concat()));
        assert_eq!(arbiter.line(), format!("arbiter {process} behind {at}"));
        arbiter
    };
    let mut primary = arbiter("1000", &["--peers", "1001"]);
    assert!(primary.line().starts_with("primary from timeslot "));
    let mut other = arbiter("1001", &["--peers", "1000", "--secondary"]);
    primary.signal("-KILL");
    assert!(other.line().starts_with("primary from timeslot "));
    other.signal("-INT");
    let report: Value = serde_json::from_str(&other.line()).expect("one JSON object");
    assert_eq!(other.status(), Some(0));
    assert_eq!((&report["process"], &report["takeovers"]), (&1001.into(), &1.into()));
    assert_eq!((&report["is_primary"], &report["slots_granted"]), (&true.into(), &0.into()));
}

#[test]
fn an_arbiter_that_cannot_be_is_refused() {
    let refused = |arguments: &[&str], status, complaint: &str| {
        let output = output(&[&["arbiter"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(errors(&output).contains(complaint), "{arguments:?}: {}", errors(&output));
    };
    refused(&[], 2, "--udp <ADDRESS>");
    refused(&["--udp", "nowhere"], 2, "nowhere");
    refused(&["--udp", "127.0.0.1:9", "--secondary"], 2, "--peers");
    refused(&["--udp", "127.0.0.1:9", "--process", "7"], 1, "process cannot be 7");
    refused(&["--udp", "127.0.0.1:9", "--nodes", "5000"], 2, "5000");
    refused(&["--udp", "127.0.0.1:9", "--slot", "10"], 2, "has no unit");
}
