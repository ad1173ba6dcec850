//! `onepipe arbiter`: real processes behind a real switch.

use serde_json::Value;

use crate::lab::Switch;
use crate::program::{Running, errors, exclusive, onepipe, output, wait_until};

/// Longer than a live arbiter is ever descheduled.
const TAKEOVER: &str = "1s";
/// Three takeover times: an unjustified takeover has happened by then.
const STABLE_S: f64 = 3.0;

#[test]
fn secondary_takes_over_only_after_primary_is_killed() {
    let mut switch = Running::start(&mut onepipe(&["switch", "--listen", "127.0.0.1:0"]));
    let line = switch.line();
    let at = line.strip_prefix("listening at ").expect("address is printed");
    // One on a single core, the other one on three threads, for which there may be fewer cores.
    let arbiter = |process, others: &[&str]| {
        let of = ["arbiter", "--udp", at, "--process", process, "--takeover", TAKEOVER, "--json"];
        let others = [others, &["--status-listen", "127.0.0.1:0"]].concat();
        let mut arbiter = Running::start(&mut onepipe(&[&of[..], &others].concat()));
        assert_eq!(arbiter.line(), format!("arbiter {process} behind {at}"));
        let line = arbiter.line();
        let at = line.strip_prefix("status at http://").and_then(|at| at.strip_suffix("/status"));
        (arbiter, at.expect("address is printed").to_owned())
    };
    let (mut primary, at_primary) = arbiter("1000", &["--peers", "1001"]);
    assert!(primary.line().starts_with("primary from timeslot "));
    let (mut other, at_other) =
        arbiter("1001", &["--peers", "1000", "--secondary", "--cores", "3"]);
    let from = format!("{at_primary},{at_other}");
    let status = || {
        let output = output(&["status", "--from", &from, "--json"]);
        serde_json::from_slice::<Value>(&output.stdout).expect("one JSON object")
    };
    let mut report = status();
    assert_eq!(report["controllers"], Value::Array(Vec::new()));
    let began = report["arbiters"][1]["uptime_s"].as_f64().expect("file exists");
    wait_until("both have lived for three takeover times", || {
        report = status();
        report["arbiters"][1]["uptime_s"].as_f64() >= Some(began + STABLE_S)
    });
    // Nothing has failed, so nothing has changed.
    let of = |nth: usize, what: &str| report["arbiters"][nth][what].clone();
    assert_eq!((of(0, "is_primary"), of(1, "is_primary")), (true.into(), false.into()), "{report}");
    assert_eq!((of(0, "takeovers"), of(1, "takeovers")), (1.into(), 0.into()), "{report}");
    assert_eq!((of(0, "threads"), of(1, "threads")), (1.into(), 3.into()), "{report}");
    primary.signal("-KILL");
    assert!(other.line().starts_with("primary from timeslot "));
    other.signal("-INT");
    let report: Value = serde_json::from_str(&other.line()).expect("one JSON object");
    assert_eq!(other.status(), Some(0));
    assert_eq!((&report["process"], &report["takeovers"]), (&1001.into(), &1.into()));
    assert_eq!((&report["is_primary"], &report["slots_granted"]), (&true.into(), &0.into()));
}

#[test]
fn rejects_invalid_arbiter_options() {
    let refused = |arguments: &[&str], status, stderr_line: &str| {
        let output = output(&[&["arbiter"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(errors(&output).contains(stderr_line), "{arguments:?}: {}", errors(&output));
    };
    refused(&[], 2, "--udp <ADDRESS>");
    refused(&["--udp", "nowhere"], 2, "nowhere");
    refused(&["--udp", "127.0.0.1:9", "--secondary"], 2, "--peers");
    refused(&["--udp", "127.0.0.1:9", "--process", "7"], 2, "--process 7 is the id of an endpoint");
    refused(&["--udp", "127.0.0.1:9", "--peers", "1000"], 2, "1000, which is this arbiter itself");
    refused(&["--udp", "127.0.0.1:9", "--peers", "63"], 2, "--peers 63 is the id of an endpoint");
    refused(&["--udp", "127.0.0.1:9", "--peers", "1001,1001"], 2, "--peers names 1001 twice");
    refused(&["--udp", "127.0.0.1:9", "--slot", "1ns"], 2, "a full frame takes 10ns to 1s");
    refused(&["--udp", "127.0.0.1:9", "--slot", "5s"], 2, "a full frame takes 10ns to 1s");
    refused(&["--udp", "127.0.0.1:9", "--lead", "500s"], 2, "reject timeslots that begin more");
    refused(&["--udp", "127.0.0.1:9", "--nodes", "5000"], 2, "5000");
    refused(&["--udp", "127.0.0.1:9", "--slot", "10"], 2, "has no unit");
    refused(&["--udp", "127.0.0.1:9", "--paths", "2"], 2, "--rack-nodes");
    refused(&["--udp", "127.0.0.1:9", "--cores", "0,1,1"], 2, "is descending or a duplicate");
    refused(&["--udp", "127.0.0.1:9", "--cores", "all"], 2, "is not a core");
    refused(&["--udp", "127.0.0.1:9", "--cores", "0,1000"], 1, "cannot run on core 1000");
}

/// The same incast twice: TCP fills the queue, timeslots keep it short.
#[test]
fn demo_arbiter_compares_queues() {
    let _guard = exclusive();
    let arguments = ["demo", "arbiter", "--seconds", "1", "--link-rate", "50M", "--json"];
    let output = output(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().expect("it prints a summary");
    let summary: serde_json::Value = serde_json::from_str(last).expect("the last line is JSON");
    let number = |path: &str| summary.pointer(path).and_then(serde_json::Value::as_f64);
    assert!(number("/unscheduled/goodput_bits_per_s") > Some(1e6), "{summary}");
    assert!(number("/scheduled/goodput_bits_per_s") > Some(1e6), "{summary}");
    let longest = number("/unscheduled/queue_bytes/max");
    assert!(longest > Some(300_000.0), "{summary}");
    assert!(number("/scheduled/queue_bytes/max") < longest, "{summary}");
    assert!(number("/scheduled/pings") > Some(0.0), "{summary}");
    assert_eq!(number("/scheduled/frames_lost"), Some(0.0), "{summary}");
    assert_eq!(number("/timeslots_granted_twice"), Some(0.0), "{summary}");
    // The number of timeslots depends on the load of the machine, their use does not: a full frame
    // carries 1,400 bytes of a flow.
    let used = number("/scheduled/timeslots/used").expect("a number");
    assert!(number("/scheduled/received_bytes") > Some(used * 700.0), "{summary}");
}

/// Both a neighbour that is not served and its switch report why.
#[test]
fn unserved_neighbours_are_reported() {
    let start = |arguments: &[&str]| {
        let command = ["switch", "--listen", "127.0.0.1:0"];
        let mut process = Running::start_with_stderr(&mut onepipe(&[&command, arguments].concat()));
        let line = process.line();
        let address = line.strip_prefix("listening at ").expect("address is printed").to_owned();
        Switch { process, address }
    };
    let arbiter = |switch: &Switch, arguments: &[&str]| {
        let command = ["arbiter", "--udp", &switch.address, "--slot", "200us"];
        let mut process = Running::start(&mut onepipe(&[&command, arguments].concat()));
        assert!(process.line().starts_with("arbiter "));
        process
    };
    let unserved = |switch: &Switch, arguments: &[&str], reason: &str| {
        let command = ["arbiter", "--udp", &switch.address, "--wait", "300ms"];
        let output = output(&[&command, arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains(reason), "{}", errors(&output));
    };
    let mut switch = start(&["--ports", "1"]);
    let _first = arbiter(&switch, &[]);
    let second = ["--process", "1001", "--peers", "1000", "--secondary"];
    unserved(&switch, &second, "all its ports are in use");
    let line = switch.process.stderr_line();
    assert!(line.contains("all 1 ports are in use"), "{line}");
    assert!(line.contains("--ports 1"), "{line}");

    let mut switch = start(&[]);
    unserved(&switch, &["--process", "5000"], "process ids lie below 1024");
    let line = switch.process.stderr_line();
    assert!(
        line.contains("process 5000 is not served: ids must be below --processes 1024"),
        "{line}"
    );

    let mut switch = start(&["--json"]);
    let mut exclusive = arbiter(&switch, &[]);
    assert!(exclusive.line().starts_with("primary from timeslot "));
    std::thread::sleep(std::time::Duration::from_millis(500));
    switch.process.signal("-INT");
    let line = switch.process.line();
    let counters: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert!(counters["frames_unroutable"].as_u64() > Some(0), "{counters}");
    assert_eq!(counters["frames_dropped"], 0, "{counters}");
}
