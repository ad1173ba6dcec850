//! A process that is killed while it writes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use onepipe_controller::{Epoch, Store};
use onepipe_daemon_controller::RedbStore;

use crate::OneFile;
use crate::conformance::{ONE, OTHER, numbers, record};

const THIS: &str = "killed::acked_records_survive_a_kill_and_the_lock_is_freed";
/// Names the file of the child.
const FILE: &str = "ONEPIPE_TEST_STORE";

#[test]
fn acked_records_survive_a_kill_and_the_lock_is_freed() {
    if let Some(path) = std::env::var_os(FILE) {
        write_until_killed(RedbStore::new(path));
    }
    let file = OneFile::new();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", THIS, "--nocapture"])
        .env(FILE, file.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut acknowledged = Vec::new();
    let mut other = RedbStore::new(file.path());
    for line in lines {
        let line = line.expect("text");
        let Some(number) = line.strip_prefix("acknowledged ") else { continue };
        acknowledged.push(number.parse().expect("a number"));
        // Lines that it printed before it was killed are read when it may have died.
        if acknowledged.len() <= 40 {
            assert_eq!(other.campaign(OTHER).expect("it is a store"), None);
        }
        if acknowledged.len() == 40 {
            child.kill().expect("it runs");
        }
    }
    child.wait().expect("it was killed");
    assert!(acknowledged.len() >= 40);
    assert_eq!(other.campaign(OTHER).expect("it is a store"), Some(Epoch(2)));
    let found = numbers(&other.load().expect("active"));
    assert!(found.starts_with(&acknowledged), "{found:?} lack some of {acknowledged:?}");
}

fn write_until_killed(mut store: RedbStore) -> ! {
    let epoch = store.campaign(ONE).expect("a new file").expect("no other replica is active");
    let mut number = 0;
    loop {
        store.append(epoch, &record(number)).expect("active");
        println!("acknowledged {number}");
        number += 1;
    }
}
