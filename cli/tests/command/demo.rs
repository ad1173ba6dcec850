//! `onepipe demo`: invariants hold, each check detects its fault, and nothing is left behind.

use std::process::Command;

use crate::program::{Running, errors, exclusive, json, onepipe, output, segments, wait_until};

fn check_demo(transport: &[&str]) {
    let _guard = exclusive();
    let arguments = ["demo", "--json", "--processes", "3", "--seconds", "2"];
    let output = output(&[&arguments, transport].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}{printed}", errors(&output));
    let report = json(&output);
    assert_eq!((&report["processes"], &report["violations"]), (&3.into(), &0.into()), "{report}");
    assert_eq!(report["transport"], *transport.last().unwrap_or(&"shm"));
    assert_eq!(report["killed"], 2);
    assert!(report["messages_delivered"].as_u64().is_some_and(|count| count > 1000), "{report}");
    assert!(report["messages_compared"].as_u64().is_some_and(|count| count > 1000), "{report}");
    assert!(
        report["windows_compared_in_full"].as_u64().is_some_and(|count| count > 10),
        "{report}"
    );
    for key in ["seconds", "per_process_rate", "recovered_in_us"] {
        assert!(report[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {report}");
    }
    let latency = |key: &str| report["latency_us"][key].as_f64().unwrap_or(-1.0);
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99"), "{report}");
    assert!(latency("p99") <= latency("max"), "{report}");
}

#[test]
fn survives_kill_over_shared_memory() {
    check_demo(&[]);
}

#[test]
fn survives_kill_over_udp() {
    check_demo(&["--transport", "udp"]);
}

/// Both services at once, with a controller and a real kill.
#[test]
fn reliable_scatterings_are_atomic_after_kill() {
    let _guard = exclusive();
    for transport in ["shm", "udp"] {
        let arguments = ["demo", "--reliable", "--json", "--processes", "3", "--seconds", "2"];
        let output =
            output(&[&arguments, &["--rate", "2000", "--transport", transport][..]].concat());
        assert_eq!(output.status.code(), Some(0), "{transport}: {}", errors(&output));
        let report = json(&output);
        assert_eq!(
            (&report["violations"], &report["atomicity"]),
            (&0.into(), &"held".into()),
            "{report}"
        );
        assert_eq!(
            (&report["killed"], &report["transport"]),
            (&2.into(), &transport.into()),
            "{report}"
        );
        for (key, least) in [
            ("reliable_messages_compared", 1_000.0),
            ("reliable_windows_compared", 10.0),
            ("reliable_scatterings_recalled", 0.0),
            ("detected_in_us", 1.0),
            ("recovered_in_us", 1.0),
            ("best_effort_recovered_in_us", 1.0),
        ] {
            assert!(report[key].as_f64().is_some_and(|value| value >= least), "{key}: {report}");
        }
    }
}

#[test]
fn reports_no_failure_without_kill() {
    let _guard = exclusive();
    let arguments = ["--processes", "2", "--seconds", "1", "--rate", "500", "--no-kill"];
    let output = output(&[&["demo", "--reliable", "--json"], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report = json(&output);
    assert_eq!(
        (&report["violations"], &report["atomicity"]),
        (&0.into(), &"held".into()),
        "{report}"
    );
    assert!(report["killed"].is_null() && report["detected_in_us"].is_null(), "{report}");
}

#[test]
fn table_ends_with_verdict() {
    let _guard = exclusive();
    let output =
        output(&["demo", "--processes", "2", "--seconds", "1", "--rate", "500", "--no-kill"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().last(), Some("  verdict    every invariant held"), "{text}");
    assert!(!text.contains("was killed") && !text.contains('\x1b'), "{text}");
}

/// Each of the checks, with a worker that injects the fault.
#[test]
fn detects_injected_faults() {
    let _guard = exclusive();
    for (wrong, expected) in [
        ("order", "deliveries were not above the one before them"),
        ("swap", "at other positions in the order"),
        ("loss", "process 0"),
    ] {
        let arguments =
            ["--processes", "2", "--seconds", "1", "--no-kill", "--inject-fault", wrong];
        let output = output(&[&["demo", "--json"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        let report = json(&output);
        assert!(report["violations"].as_u64().is_some_and(|count| count > 0), "{wrong}: {report}");
        assert!(report["violation_texts"].to_string().contains(expected), "{wrong}: {report}");
    }
}

/// Kinds of demos that are interrupted or killed.
const KINDS: [&[&str]; 4] = [
    &["--transport", "shm"],
    &["--transport", "udp"],
    &["--transport", "shm", "--reliable"],
    &["--transport", "udp", "--reliable"],
];

/// Returns the files of a demo in shared memory: its segment and its store.
fn files(demo: &Running) -> Vec<String> {
    let name = format!("demo-{}", demo.child.id());
    [segments(&name), segments(&format!("{name}.redb"))].concat()
}

fn long_demo(kind: &[&str]) -> Running {
    let arguments = ["demo", "--processes", "3", "--seconds", "600", "--rate", "1000"];
    let mut demo = Running::start(&mut onepipe(&[&arguments, kind].concat()));
    assert!(demo.line().starts_with("3 processes"));
    assert!(demo.line().contains("1 s"), "the demo runs");
    demo
}

#[test]
fn ctrl_c_ends_all_processes() {
    let _guard = exclusive();
    for kind in KINDS {
        let mut demo = long_demo(kind);
        assert!(demo.descendants().len() > 3, "the demo itself and its workers");
        demo.signal("-INT");
        assert_eq!(demo.status(), Some(130));
        assert_eq!(demo.descendants(), [""; 0], "{kind:?}");
        assert_eq!(files(&demo), [""; 0], "{kind:?}");
    }
}

/// No parent is left for the cleanup: the workers notice, and the last one removes the segment; the
/// controller removes its store.
#[test]
fn killed_demo_leaves_nothing_behind() {
    let _guard = exclusive();
    for kind in KINDS {
        let mut demo = long_demo(kind);
        demo.signal("-KILL");
        assert_eq!(demo.status(), None);
        wait_until("the workers end", || demo.descendants().is_empty());
        assert_eq!(files(&demo), [""; 0], "{kind:?}");
    }
}

#[test]
fn reports_worker_that_cannot_start() {
    let _guard = exclusive();
    // Files may not grow, so the segment cannot be created.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$0\" demo --seconds 600"]);
    let output = shell.arg(env!("CARGO_BIN_EXE_onepipe")).output().expect("a shell runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = errors(&output);
    assert!(errors.starts_with("onepipe: process ") && errors.contains("has failed"), "{errors}");
}

#[test]
fn demo_leaves_no_file_behind() {
    let _guard = exclusive();
    let arguments = ["demo", "--json", "--processes", "2", "--seconds", "0.3", "--rate", "100"];
    let mut demo = Running::start(&mut onepipe(&arguments));
    assert_eq!(demo.status(), Some(0));
    assert_eq!(demo.descendants(), [""; 0]);
    assert_eq!(segments(&format!("demo-{}", demo.child.id())), [""; 0]);
}
