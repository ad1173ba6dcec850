//! `onepipe kv repair`: from the error of a damaged log to a store that runs again.

use std::path::Path;

use crate::kv::Store;
use crate::program::{errors, json, output, unique};

/// Damages the middle of a replica's log. Returns its path.
fn damage(data: &Path, replica: &str) -> String {
    let files = std::fs::read_dir(data.join(replica)).expect("the replica has a directory");
    let mut paths = files.map(|file| file.expect("an entry").path());
    let log = paths.find(|path| path.to_string_lossy().contains("/log-")).expect("a log");
    let mut bytes = std::fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).expect("it is damaged");
    log.to_string_lossy().into_owned()
}

#[test]
fn damaged_log_is_named_and_repaired() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let replicas = ["--replicas", "2"];
    let mut store = Store::start(&unique("kv-repair"), &data, &replicas);
    for number in 1..=20 {
        let line = format!("MSET a {number} b {number} c {number}");
        assert_eq!(store.command(&line, 1), Some(vec!["+OK".to_owned()]));
    }
    let data_text = data.to_str().expect("a path of this test");
    let in_use = output(&["kv", "repair", "--data", data_text]);
    assert_eq!(in_use.status.code(), Some(1));
    assert!(errors(&in_use).contains("is locked by process"), "{}", errors(&in_use));
    store.running.signal("-KILL");
    store.running.status();
    let _ = output(&["clean"]);
    let log = damage(&data, "shard-1-1");

    let fabric = unique("kv-repair");
    let serve = ["kv", "serve", "--resp", "127.0.0.1:0", "--fabric", &fabric, "--data", data_text];
    let refused = output(&[&serve[..], &replicas].concat());
    let error = errors(&refused);
    assert_eq!(refused.status.code(), Some(1));
    assert!(error.contains(&log) && error.contains("is damaged at byte"), "{error}");
    assert!(error.contains(&format!("onepipe kv repair --data {data_text}")), "{error}");

    let repaired = output(&["kv", "repair", "--data", data_text, "--json"]);
    let logs = &json(&repaired)["repaired"];
    assert_eq!(logs.as_array().map(Vec::len), Some(1), "{logs}");
    assert_eq!(logs[0]["lost"], 0, "{logs}");
    let copy = logs[0]["copy"].as_str().expect("a path");
    assert!(Path::new(copy).is_dir(), "{copy}");
    let again = output(&["kv", "repair", "--data", data_text]);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(text, format!("all logs in {data_text} are intact\n"));
    let mut store = Store::start(&fabric, &data, &replicas);
    assert_eq!(store.numbers(), [20; 3]);
}
