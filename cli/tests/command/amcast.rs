//! Agreed multicast as processes.

use crate::program::{alone, errors, json, output};

#[test]
fn a_demo_goes_on_when_the_leader_is_killed() {
    // A machine that runs all tests at once is busy: who is merely slow is not replaced here.
    let arguments = ["demo", "amcast", "--seconds", "2", "--silence", "300ms", "--rate", "200"];
    let _turn = alone();
    let output = output(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = json(&output);
    assert_eq!(summary["invariants_held"], true, "{summary}");
    let sent = summary["sent"].as_u64().expect("a number");
    assert!(sent > 0);
    for delivered in summary["delivered"].as_array().expect("one for each replica") {
        assert_eq!(delivered.as_u64(), Some(sent), "{summary}");
    }
    assert!(summary["election"].as_str().is_some_and(|line| line.contains("leads group 0")));
    assert!(summary["next_delivery_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{summary}");
}

#[test]
fn a_map_that_makes_no_sense_is_refused() {
    let refused = |arguments: &[&str], why: &str| {
        let output = output(&[&["member"], arguments].concat());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    };
    let group = ["--group", "0=127.0.0.1:45001,127.0.0.1:45002,127.0.0.1:45003"];
    let clients = ["--clients", "127.0.0.1:45009"];
    let own = ["--listen", "127.0.0.1:45001"];
    let with = |more: &[&'static str]| [&group[..], &clients, more].concat();
    refused(&own, "--group");
    refused(
        &with(&["--listen", "127.0.0.1:45008"]),
        "127.0.0.1:45008 is no member of this directory",
    );
    refused(
        &with(&["--listen", "127.0.0.1:45009"]),
        "127.0.0.1:45009 is no member of this directory",
    );
    let unknown = ["--replicas", "1=127.0.0.1:45005", "--listen", "127.0.0.1:45001"];
    refused(&with(&unknown), "group 1 is not named, or has no members");
    let twice = ["--replicas", "0=127.0.0.1:45002", "--listen", "127.0.0.1:45001"];
    refused(&with(&twice), "127.0.0.1:45002 is named twice");
    let two = ["--group", "0=127.0.0.1:45001,127.0.0.1:45002"];
    refused(&[&two[..], &clients, &own].concat(), "members is 2, out of range");
    refused(&[&["--group", "zero"][..], &own].concat(), "names no group");
    refused(&[&["--group", "64=127.0.0.1:45001"][..], &own].concat(), "numbered from 0 to 63");
    refused(&[&group[..], &own].concat(), "no client is named");
}
