//! `onepipe demo`: all hold, each check can fail, nothing is left behind.

use std::process::Command;

use crate::program::{Beside, alone, errors, json, onepipe, output, segments, wait_until};

fn a_demo_holds(transport: &[&str]) {
    let _turn = alone();
    let arguments = ["demo", "--json", "--processes", "3", "--seconds", "2"];
    let output = output(&[&arguments, transport].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let said = json(&output);
    assert_eq!((&said["processes"], &said["violations"]), (&3.into(), &0.into()), "{said}");
    assert_eq!(said["transport"], *transport.last().unwrap_or(&"shm"));
    assert_eq!(said["killed"], 2);
    assert!(said["messages_delivered"].as_u64().is_some_and(|count| count > 1000), "{said}");
    assert!(said["messages_compared"].as_u64().is_some_and(|count| count > 1000), "{said}");
    assert!(said["windows_compared_in_full"].as_u64().is_some_and(|count| count > 10), "{said}");
    for key in ["seconds", "per_process_rate", "recovered_in_us"] {
        assert!(said[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {said}");
    }
    let latency = |key: &str| said["latency_us"][key].as_f64().unwrap_or(-1.0);
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99"), "{said}");
    assert!(latency("p99") <= latency("max"), "{said}");
}

#[test]
fn over_shared_memory_every_invariant_holds_and_a_kill_is_survived() {
    a_demo_holds(&[]);
}

#[test]
fn over_udp_every_invariant_holds_and_a_kill_is_survived() {
    a_demo_holds(&["--transport", "udp"]);
}

#[test]
fn a_table_for_people_ends_with_the_verdict() {
    let _turn = alone();
    let output =
        output(&["demo", "--processes", "2", "--seconds", "1", "--rate", "500", "--no-kill"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().last(), Some("  verdict    every invariant held"), "{text}");
    assert!(!text.contains("was killed") && !text.contains('\x1b'), "{text}");
}

/// Each of the checks, fed by a worker that really does wrong.
#[test]
fn a_worker_that_does_wrong_is_found_out() {
    let _turn = alone();
    for (wrong, expected) in [
        ("order", "deliveries were not above the one before them"),
        ("swap", "in other places of the order"),
        ("loss", "process 0"),
    ] {
        let arguments = ["--processes", "2", "--seconds", "1", "--no-kill", "--wrong", wrong];
        let output = output(&[&["demo", "--json"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        let said = json(&output);
        assert!(said["violations"].as_u64().is_some_and(|count| count > 0), "{wrong}: {said}");
        assert!(said["violation_texts"].to_string().contains(expected), "{wrong}: {said}");
    }
}

fn long_demo(transport: &str) -> Beside {
    let arguments = ["demo", "--processes", "3", "--seconds", "600", "--rate", "1000"];
    let mut demo =
        Beside::start(&mut onepipe(&[&arguments, &["--transport", transport][..]].concat()));
    assert!(demo.line().starts_with("3 processes"));
    assert!(demo.line().contains("1 s"), "it is under way");
    demo
}

#[test]
fn ctrl_c_ends_everything() {
    let _turn = alone();
    for transport in ["shm", "udp"] {
        let mut demo = long_demo(transport);
        assert!(demo.descendants().len() > 3, "the demo itself and its workers");
        demo.signal("-INT");
        assert_eq!(demo.status(), Some(130));
        assert_eq!(demo.descendants(), [""; 0], "{transport}");
        assert_eq!(segments(&format!("demo-{}", demo.child.id())), [""; 0]);
    }
}

/// Nobody is left who could clean up: the workers notice, and the last one removes the memory.
#[test]
fn a_demo_that_is_killed_leaves_nothing_either() {
    let _turn = alone();
    for transport in ["shm", "udp"] {
        let mut demo = long_demo(transport);
        demo.signal("-KILL");
        assert_eq!(demo.status(), None);
        wait_until("the workers end", || demo.descendants().is_empty());
        assert_eq!(segments(&format!("demo-{}", demo.child.id())), [""; 0]);
    }
}

#[test]
fn a_worker_that_cannot_start_is_an_error_that_says_so() {
    let _turn = alone();
    // Files may not grow: the segment cannot be made.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$0\" demo --seconds 600"]);
    let output = shell.arg(env!("CARGO_BIN_EXE_onepipe")).output().expect("a shell runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = errors(&output);
    assert!(errors.starts_with("onepipe: process ") && errors.contains("has failed"), "{errors}");
}

#[test]
fn a_demo_leaves_no_file_behind() {
    let _turn = alone();
    let arguments = ["demo", "--json", "--processes", "2", "--seconds", "0.3", "--rate", "100"];
    let mut demo = Beside::start(&mut onepipe(&arguments));
    assert_eq!(demo.status(), Some(0));
    assert_eq!(demo.descendants(), [""; 0]);
    assert_eq!(segments(&format!("demo-{}", demo.child.id())), [""; 0]);
}
