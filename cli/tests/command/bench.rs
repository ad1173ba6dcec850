//! `onepipe bench`.

use serde_json::Value;

use crate::program::{Running, errors, exclusive, json, onepipe, output, wait_until};

#[test]
fn list_names_all_benchmarks() {
    let output = output(&["bench", "--list"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    for name in [
        "reorder", "endpoint", "pair", "order", "sim", "switch", "bulk", "memory", "table",
        "arbiter",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn interrupted_recovery_prints_partial_report() {
    let _guard = exclusive();
    let arguments = ["bench", "recovery", "--kills", "1", "--soak", "600", "--json"];
    let mut bench = Running::start(&mut onepipe(&arguments));
    // The first kill is done when its controller has exited and another one runs.
    let mut controllers = std::collections::BTreeSet::new();
    wait_until("the soak has begun", || {
        controllers.extend(bench.descendants_named("controller"));
        controllers.len() == 2
    });
    bench.signal("-TERM");
    let report: Value = serde_json::from_str(&bench.line()).expect("one object");
    assert_eq!(bench.status(), Some(130), "{report}");
    assert_eq!(
        (&report["kills"], &report["was_interrupted"]),
        (&1.into(), &true.into()),
        "{report}"
    );
    assert_eq!(
        (&report["violations"], &report["soak_minutes"]),
        (&0.into(), &0.0.into()),
        "{report}"
    );
    for key in ["gap_us", "detected_us"] {
        assert!(report[key]["p50"].as_f64().is_some_and(|us| us > 0.0), "{key}: {report}");
    }
}

#[test]
fn measures_rival_against_ours() {
    let _guard = exclusive();
    let output = output(&[
        "bench",
        "order",
        "--rival",
        "unordered",
        "--transport",
        "shm",
        "--seconds",
        "0.5",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report = json(&output);
    let results = report["results"].as_array().expect("cases");
    assert_eq!(results.len(), 4, "two lengths, messages and CPU time: {report}");
    for result in results {
        let case = result["case"].as_str().expect("a name");
        assert!(case.starts_with("rival=unordered transport=shm processes=3"), "{case}");
        let is_more = |key: &str| result[key].as_f64().is_some_and(|number| number > 0.0);
        assert!(is_more("value") && is_more("yardstick"), "{result}");
    }
}

#[test]
fn measures_registered_memory_beside_requests_to_application() {
    let _guard = exclusive();
    let arguments = ["bench", "memory", "--transport", "shm", "--seconds", "0.1", "--json"];
    let output = output(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report = json(&output);
    let results = report["results"].as_array().expect("cases");
    assert_eq!(results.len(), 9, "p50, p99 and rate of three operations: {report}");
    for (result, number) in results.iter().zip(0..) {
        let case = result["case"].as_str().expect("a name");
        let kind = ["read", "write", "fetch-add"][number / 3];
        assert!(case.starts_with(&format!("transport=shm {kind} bytes=")), "{case}");
        let is_more = |key: &str| result[key].as_f64().is_some_and(|number| number > 0.0);
        assert!(is_more("value") && is_more("yardstick"), "{result}");
    }
}

#[test]
fn measures_table_beside_fences_and_beside_leader() {
    let _guard = exclusive();
    for (replicas, transport) in [("1", "shm"), ("2", "udp")] {
        let arguments = ["bench", "table", "--replicas", replicas, "--transport", transport];
        let output = output(&[&arguments[..], &["--seconds", "0.1", "--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let report = json(&output);
        let results = report["results"].as_array().expect("cases");
        assert_eq!(results.len(), 4, "latency and rate of two operations: {report}");
        for (result, number) in results.iter().zip(0..) {
            let case = result["case"].as_str().expect("a name");
            let kind = ["insert", "look-up"][number / 2];
            let name = format!("transport={transport} {kind} replicas={replicas} ");
            assert!(case.starts_with(&name), "{case}");
            let is_more = |key: &str| result[key].as_f64().is_some_and(|number| number > 0.0);
            assert!(is_more("value") && is_more("yardstick"), "{result}");
        }
    }
}

#[test]
fn rejects_invalid_rival() {
    for arguments in [
        &["bench", "order", "--rival", "switch-sequencer", "--transport", "shm"][..],
        &["bench", "pair", "--rival", "token"],
        &["bench", "order", "--rival", "paxos"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn only_arbiter_takes_a_part() {
    for arguments in [&["bench", "arbiter"][..], &["bench", "reorder", "alloc"]] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains("bench arbiter"), "{}", errors(&output));
    }
}

/// In real time, with deadlines that are easy to meet.
#[test]
fn grants_timeslots_a_lead_before_they_begin() {
    let tiny = ["--nodes", "8", "--slot-ns", "100000", "--seconds", "0.2", "--runs", "3"];
    let lead = ["--load", "0.5", "--cores", "1", "--lead", "30s", "--json"];
    let output = output(&[&["bench", "arbiter", "realtime"][..], &tiny, &lead].concat());
    let report = json(&output);
    let details = report["results"][0]["details"].as_array().expect("a list of details");
    let value = |name: &str| {
        let detail = details.iter().find(|detail| detail["name"] == name);
        detail
            .and_then(|detail| detail["value"].as_f64())
            .unwrap_or_else(|| panic!("{name}: {report}"))
    };
    assert_eq!((value("lead"), value("late"), value("skipped")), (30e6, 0.0, 0.0), "{report}");
    assert!(value("batches") > 10.0 && value("longest stall") >= 0.0, "{report}");
}
