//! `onepipe kv serve --snapshot-mib`: snapshots replace the beginning of the logs.

use std::path::Path;

use crate::kv::Store;
use crate::program::{output, unique};

const WRITES_MAX: u64 = 1_000;

/// Returns the names of the files of a replica, ascending.
fn files(data: &Path, replica: &str) -> Vec<String> {
    let files = std::fs::read_dir(data.join(replica)).expect("the replica has a directory");
    let names = files.map(|file| file.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether snapshots have replaced the first records of a replica.
fn is_shortened(data: &Path, replica: &str) -> bool {
    let names = files(data, replica);
    let snapshots = names.iter().filter(|name| name.starts_with("snapshot-"));
    let first = format!("log-{:020}", 1);
    snapshots.filter(|name| !name.ends_with(".tmp")).count() == 2 && !names.contains(&first)
}

#[test]
fn killed_store_goes_on_from_its_snapshots() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let options = ["--replicas", "2", "--snapshot-mib", "1"];
    let replicas: Vec<String> =
        (0..3).flat_map(|shard| (0..2).map(move |one| format!("shard-{shard}-{one}"))).collect();
    let mut store = Store::start(&unique("kv-snapshots"), data, &options);
    let value = "v".repeat(50_000);
    let mut acknowledged = 0;
    while !replicas.iter().all(|replica| is_shortened(data, replica)) {
        acknowledged += 1;
        assert!(acknowledged <= WRITES_MAX, "no snapshots: {:?}", files(data, &replicas[0]));
        let line = format!("MSET a {acknowledged} b {acknowledged} c {acknowledged} large {value}");
        assert_eq!(store.command(&line, 1), Some(vec!["+OK".to_owned()]));
    }
    store.running.signal("-KILL");
    store.running.status();
    let _ = output(&["clean"]);
    for round in 0..2 {
        let mut store = Store::start(&unique("kv-snapshots"), data, &options);
        assert_eq!(store.numbers(), [acknowledged; 3], "round {round}");
        let len = store.command("STRLEN large", 1).expect("the store runs");
        assert_eq!(len, [format!(":{}", value.len())]);
        // Clients of this run are not those of the last one.
        acknowledged += 1;
        let line = format!("MSET a {acknowledged} b {acknowledged} c {acknowledged}");
        assert_eq!(store.command(&line, 1), Some(vec!["+OK".to_owned()]));
        store.running.signal("-KILL");
        store.running.status();
        let _ = output(&["clean"]);
    }
}
