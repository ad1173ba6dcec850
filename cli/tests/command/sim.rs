//! `onepipe sim`: one seed is one history.

use serde_json::Value;

use crate::program::{errors, json, output};

fn simulate(more: &[&str]) -> Value {
    let arguments =
        ["sim", "--topology", "star:4", "--processes", "4", "--duration", "300us", "--json"];
    let output = output(&[&arguments, more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    json(&output)
}

#[test]
fn the_same_seed_is_the_same_history_and_another_is_another() {
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
    let said = simulate(&["--loss", "5%"]);
    assert_eq!((&said["violations"], &said["messages_open"]), (&0.into(), &0.into()), "{said}");
    assert!(said["messages_lost"].as_u64().is_some_and(|count| count > 0), "{said}");
    let sum = |keys: &[&str]| keys.iter().filter_map(|key| said[key].as_u64()).sum::<u64>();
    let fates = sum(&["messages_delivered", "messages_lost", "messages_unknown"]);
    assert!(fates >= sum(&["messages_submitted"]), "{said}");
}

#[test]
fn every_workload_runs_and_every_topology_too() {
    for workload in ["all-to-all", "random", "ping"] {
        let said = simulate(&["--workload", workload, "--interval", "20us"]);
        assert_eq!(said["violations"], 0, "{workload}: {said}");
    }
    for topology in ["leaf-spine:2x2x2", "fat-tree:2", "testbed"] {
        let arguments = ["sim", "--json", "--duration", "50us", "--processes", "2", "--topology"];
        let output = output(&[&arguments[..], &[topology]].concat());
        assert_eq!(output.status.code(), Some(0), "{topology}: {}", errors(&output));
        assert_eq!(json(&output)["topology"], topology);
    }
}

#[test]
fn a_trace_is_written_where_asked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.txt");
    let path = path.to_str().expect("a path in plain letters");
    simulate(&["--trace", path, "--trace-events", "50"]);
    let text = std::fs::read_to_string(path).expect("the trace is there");
    assert_eq!(text.lines().count(), 50);

    let nowhere = folder.path().join("no/such/folder");
    let nowhere = nowhere.to_str().expect("a path in plain letters");
    let output = output(&["sim", "--duration", "10us", "--trace", nowhere]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("cannot write the trace to"), "{}", errors(&output));
}
