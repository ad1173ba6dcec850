//! `onepipe sim`: a seed determines the history.

use serde_json::Value;

use crate::program::{Running, errors, json, onepipe, output};

fn simulate(more: &[&str]) -> Value {
    let arguments =
        ["sim", "--topology", "star:4", "--processes", "4", "--duration", "300us", "--json"];
    let output = output(&[&arguments, more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    json(&output)
}

#[test]
fn same_seed_gives_same_history() {
    let run = |seed| simulate(&["--seed", seed]);
    let (first, again, other) = (run("7"), run("7"), run("8"));
    for key in ["trace_hash", "events", "latency_us", "messages_delivered"] {
        assert_eq!(first[key], again[key], "{key}");
    }
    assert_ne!(first["trace_hash"], other["trace_hash"]);
    assert_eq!((&first["violations"], &first["messages_lost"]), (&0.into(), &0.into()));
    assert!(first["messages_delivered"].as_u64().is_some_and(|count| count > 100), "{first}");
    assert!(first["events_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{first}");
    assert!(first["wall_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{first}");
}

#[test]
fn losses_are_reported_and_break_nothing() {
    let report = simulate(&["--loss", "5%"]);
    assert_eq!(
        (&report["violations"], &report["messages_open"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    assert!(report["messages_lost"].as_u64().is_some_and(|count| count > 0), "{report}");
    let sum = |keys: &[&str]| keys.iter().filter_map(|key| report[key].as_u64()).sum::<u64>();
    let outcomes = sum(&["messages_delivered", "messages_lost", "messages_unknown"]);
    assert!(outcomes >= sum(&["messages_submitted"]), "{report}");
}

#[test]
fn every_workload_and_topology_runs() {
    for workload in ["all-to-all", "random", "ping"] {
        let report = simulate(&["--workload", workload, "--interval", "20us"]);
        assert_eq!(report["violations"], 0, "{workload}: {report}");
    }
    for topology in ["leaf-spine:2x2x2", "fat-tree:2", "testbed"] {
        let arguments = ["sim", "--json", "--duration", "50us", "--processes", "2", "--topology"];
        let output = output(&[&arguments[..], &[topology]].concat());
        assert_eq!(output.status.code(), Some(0), "{topology}: {}", errors(&output));
        assert_eq!(json(&output)["topology"], topology);
    }
}

#[test]
fn every_form_runs_with_expected_latency() {
    let p50 = |form| {
        let report =
            simulate(&["--form", form, "--workload", "ping", "--interval", "20us", "--seed", "3"]);
        assert_eq!(
            (&report["violations"], &report["messages_lost"]),
            (&0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["form"], form);
        report["latency_us"]["p50"].as_f64().expect("a number")
    };
    let (chip, delegate, cpu) = (p50("chip"), p50("delegate"), p50("switch-cpu"));
    assert!(chip < delegate && delegate < cpu, "{chip} us, {delegate} us, {cpu} us");
}

#[test]
fn writes_trace_to_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.txt");
    let path = path.to_str().expect("UTF-8 path");
    simulate(&["--trace", path, "--trace-events", "50"]);
    let text = std::fs::read_to_string(path).expect("trace file");
    assert_eq!(text.lines().count(), 50);

    let nowhere = folder.path().join("no/such/folder");
    let nowhere = nowhere.to_str().expect("UTF-8 path");
    let output = output(&["sim", "--duration", "10us", "--trace", nowhere]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("cannot write the trace to"), "{}", errors(&output));
}

/// Runs seeds with all kinds of faults twice: same counters, no violations.
#[test]
fn fuzzing_is_deterministic_by_seed() {
    let run = || {
        let output = output(&["sim", "fuzz", "--seeds", "6", "--seed", "100", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        json(&output)
    };
    let (report, again) = (run(), run());
    assert_eq!((&report["first_seed"], &report["seeds"]), (&100.into(), &6.into()), "{report}");
    assert_eq!((&report["failed_seeds"], &report["panics"]), (&0.into(), &0.into()), "{report}");
    assert!(report["first_failing"].is_null(), "{report}");
    assert!(report["rules_broken"].as_object().is_some_and(|rules| rules.is_empty()), "{report}");
    assert_eq!(report["was_interrupted"], false);
    for key in ["events", "deliveries_checked", "reliable_deliveries_checked"] {
        assert!(report[key].as_u64().is_some_and(|count| count > 100), "{key}: {report}");
        assert_eq!(report[key], again[key], "{key}");
    }
    assert_eq!(report["faults"], again["faults"]);
    let faults = report["faults"].as_object().expect("a count for each kind");
    assert!(faults.values().any(|count| count.as_u64() > Some(0)), "{report}");
    for key in ["wall_seconds", "seeds_per_hour", "deliveries_per_second"] {
        assert!(report[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {report}");
    }
}

#[test]
fn traced_seed_writes_history_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = onepipe(&["sim", "fuzz", "--seed", "100", "--trace"]);
    let output = command.current_dir(&folder).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("history    seed-100.txt"), "{text}");
    assert_eq!(text.lines().last(), Some("  verdict    every invariant held"));
    let history = std::fs::read_to_string(folder.path().join("seed-100.txt")).expect("written");
    assert!(history.lines().count() > 100);
}

#[test]
fn fuzzes_amcast_and_leader_failover() {
    let run = |arguments: &[&str]| {
        let output = output(&[&["sim"], arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        json(&output)
    };
    let report = run(&["fuzz", "--service", "amcast", "--seeds", "12", "--seed", "100"]);
    assert_eq!(
        (&report["service"], &report["failed_seeds"]),
        (&"amcast".into(), &0.into()),
        "{report}"
    );
    for key in ["events", "deliveries_checked", "elections"] {
        assert!(report[key].as_u64().is_some_and(|count| count > 3), "{key}: {report}");
    }
    let report = run(&["fail-over", "--crashes", "5", "--victim", "switch"]);
    assert_eq!((&report["crashes"], &report["victim"]), (&5.into(), &"switch".into()), "{report}");
    let of = |what: &str, key: &str| report[what][key].as_f64().expect("a number");
    assert!(of("to_new_message_us", "p50") > 50.0 && of("to_new_message_us", "max") < 2_000.0);
    assert!(of("to_next_delivery_us", "p50") <= of("to_new_message_us", "p50"), "{report}");
}

#[test]
fn ctrl_c_prints_partial_fuzz_report() {
    let arguments = ["sim", "fuzz", "--seeds", "10000000", "--seed", "100", "--json"];
    let mut fuzz = Running::start(&mut onepipe(&arguments));
    fuzz.wait_for_signal_handler();
    fuzz.signal("-INT");
    let report: Value = serde_json::from_str(&fuzz.line()).expect("the last line is JSON");
    assert_eq!(fuzz.status(), Some(130), "{report}");
    assert_eq!(report["was_interrupted"], true);
    assert!(report["seeds"].as_u64().is_some_and(|seeds| seeds < 10_000_000), "{report}");
}
