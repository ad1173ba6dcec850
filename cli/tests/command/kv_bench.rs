//! `onepipe kv bench`, with tiny sizes: what is measured, and that nothing is left behind.

use std::path::PathBuf;

use serde_json::Value;

use crate::program::{Running, errors, exclusive, has, json, onepipe, output, wait_until};

const TINY: [&str; 7] = ["--runs", "1", "--seconds", "0.1", "--keys", "1000", "--json"];

/// Runs a benchmark, and returns its report.
fn report(arguments: &[&str]) -> Value {
    let output = output(&[&["kv", "bench"], arguments, &TINY].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let mut reports = json(&output);
    reports["reports"][0].take()
}

/// Returns the side of this name under a load.
fn side<'a>(report: &'a Value, load: &str, name: &str) -> &'a Value {
    let find = |list: &'a Value, key: &str, name: &str| -> &'a Value {
        let found = list.as_array().into_iter().flatten().find(|entry| entry[key] == name);
        found.unwrap_or_else(|| panic!("{name}: {report}"))
    };
    find(&find(&report["loads"], "load", load)["sides"], "side", name)
}

fn has_figures(side: &Value) -> bool {
    ["rate", "p50_us", "p99_us"]
        .iter()
        .all(|key| side[key].as_f64().is_some_and(|number| number > 0.0))
}

/// Returns the folder for the files of a benchmark of this process id.
fn folder(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("onepipe-kv-bench-{pid}"))
}

#[test]
fn list_names_all_benchmarks_of_the_store() {
    let output = output(&["kv", "bench", "--list"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["redis", "etcd", "embedded", "tpcc"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn compares_with_redis_and_its_cluster() {
    if !has("redis-server", "redis-server") || !has("redis-benchmark", "redis-tools") {
        return;
    }
    let _guard = exclusive();
    let report = report(&["redis"]);
    let names = ["onepipe, 3 shards x 1", "onepipe, 3 shards x 3", "redis-server"];
    let cluster = "Redis cluster, 3 nodes";
    for load in ["SET, -P 1", "GET, -P 16"] {
        assert!(names.iter().chain([&cluster]).all(|name| has_figures(side(&report, load, name))));
        assert_eq!(side(&report, load, names[0])["yardstick"], cluster);
    }
    for load in ["MSET of 4 keys, -P 1", "MULTI/EXEC of 4 SETs"] {
        assert!(names.iter().all(|name| has_figures(side(&report, load, name))), "{report}");
        let refused = side(&report, load, cluster)["refused"].as_str();
        assert!(refused.is_some_and(|error| error.starts_with("CROSSSLOT")), "{report}");
    }
    let durable = side(&report, "SET, -P 1", "onepipe, 3 shards x 1, fsync always");
    assert_eq!(durable["yardstick"], "redis-server, appendfsync always");
}

#[test]
fn compares_library_with_redis_on_a_socket() {
    if !has("redis-server", "redis-server") {
        return;
    }
    let _guard = exclusive();
    let report = report(&["embedded", "--operations", "2,512", "--writes", "50"]);
    for load in
        ["2 operations, 5 % writes", "512 operations, 5 % writes", "2 operations, 50 % writes"]
    {
        for name in ["onepipe, 3 shards x 3", "redis-server, Unix socket"] {
            assert!(has_figures(side(&report, load, name)), "{report}");
        }
    }
}

#[cfg(feature = "etcd")]
#[test]
fn compares_with_etcd() {
    if !has("etcd", "etcd-server") {
        return;
    }
    let _guard = exclusive();
    let report = report(&["etcd", "--concurrency", "2"]);
    for (name, yardstick) in [
        ("onepipe, 3 shards x 1, fsync always", "etcd, on disk"),
        ("onepipe, 3 shards x 1, in memory", "etcd, files in memory"),
    ] {
        let ours = side(&report, "2 connections", name);
        assert!(has_figures(ours) && ours["yardstick"] == yardstick, "{report}");
        assert!(has_figures(side(&report, "2 connections", yardstick)), "{report}");
    }
}

#[cfg(not(feature = "etcd"))]
#[test]
fn benchmark_that_cannot_run_says_why() {
    let output = output(&["kv", "bench", "etcd"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("--features etcd"), "{}", errors(&output));
}

#[test]
fn interrupted_benchmark_leaves_nothing() {
    if !has("redis-server", "redis-server") || !has("redis-benchmark", "redis-tools") {
        return;
    }
    let _guard = exclusive();
    let mut bench = Running::start(&mut onepipe(&["kv", "bench", "redis", "--seconds", "60"]));
    let folder = folder(bench.pid());
    let is_load = |path: &String| {
        let line = std::fs::read(format!("{path}/cmdline")).unwrap_or_default();
        // The benchmark begins by asking whether the program is there.
        line.starts_with(b"redis-benchmark\0") && !line.ends_with(b"--version\0")
    };
    wait_until("a load runs", || bench.descendants().iter().any(is_load));
    assert!(folder.exists());
    bench.signal("-INT");
    assert_eq!(bench.status(), Some(130));
    assert!(!folder.exists(), "{}", folder.display());
    wait_until("no process is left", || bench.descendants().is_empty());
}

#[test]
fn checks_data_of_tpcc_after_the_run() {
    let _guard = exclusive();
    let report = report(&["tpcc", "--warehouses", "2", "--scale", "1", "--concurrency", "4"]);
    let ours = side(&report, "4 transactions in flight", "2 warehouses x 3");
    assert!(has_figures(ours) && ours["yardstick"] == "2 warehouses x 1", "{report}");
    let note = report["notes"][0].as_str().expect("a note");
    assert!(note.contains("consistency conditions"), "{note}");
}
