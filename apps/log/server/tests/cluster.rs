//! A log whose replicas all run in this process.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onepipe_log::{Entry, NoState, Part, PartRequest, State};
use onepipe_log_server::{AppendFailure, Cluster, ClusterOptions, LogHandle, ReadFailure};

/// Limit on any wait. Only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

fn options(name: &str, directory: Option<&Path>) -> ClusterOptions {
    let mut options = ClusterOptions::new(format!("{name}-{}", std::process::id()), 3);
    options.directory = directory.map(Path::to_owned);
    options
}

/// Appends entries, all at once, and returns their indices.
fn append(handle: &LogHandle, entries: &[String]) -> Vec<u64> {
    let (sender, committed) = channel();
    for entry in entries {
        let sender = sender.clone();
        let on_committed = move |result| sender.send(result).expect("the test waits");
        handle.append(entry.clone().into_bytes(), Box::new(on_committed));
    }
    let next = || committed.recv_timeout(HANG).expect("it is committed");
    entries.iter().map(|_| next().expect("it is committed").position.index).collect()
}

/// Reads all committed entries.
fn read(handle: &LogHandle) -> Result<Vec<String>, ReadFailure> {
    let mut entries = Vec::new();
    loop {
        let (sender, read) = channel();
        let on_entries = move |result| sender.send(result).expect("the test waits");
        handle.read(entries.len() as u64, Box::new(on_entries));
        let read = read.recv_timeout(HANG).expect("it is answered")?;
        if read.entries.is_empty() {
            return Ok(entries);
        }
        let texts = read.entries.iter().map(|one| String::from_utf8_lossy(&one.payload).into());
        entries.extend(texts);
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn texts(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name} {number}")).collect()
}

#[test]
fn committed_entries_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a folder for the test");
    let options = options("log-restart", Some(directory.path()));
    let mut expected = Vec::new();
    for round in 0..3 {
        let cluster = Cluster::start(&options, |_| NoState).expect("the log starts");
        let entries = texts(&format!("round {round}"), 40);
        let first = expected.len() as u64;
        let indices = append(&cluster.handle(), &entries);
        assert_eq!(indices, (first..first + 40).collect::<Vec<_>>());
        expected.extend(entries);
        for replica in cluster.replicas() {
            wait("all replicas have all entries", || read(&replica).as_ref() == Ok(&expected));
        }
        assert_eq!(read(&cluster.handle()), Ok(expected.clone()));
    }
}

#[test]
fn replica_appends_what_others_read() {
    let cluster = Cluster::start(&options("log-memory", None), |_| NoState).expect("it starts");
    let replicas: Vec<_> = cluster.replicas().collect();
    let entries = texts("of replica 1", 10);
    append(&replicas[1], &entries);
    // The node of the client has a replica, which knows at once.
    assert_eq!(read(&replicas[1]).as_ref(), Ok(&entries));
    wait("another replica is notified", || read(&replicas[2]).as_ref() == Ok(&entries));
}

#[test]
fn log_goes_on_without_a_replica_that_was_stopped() {
    let mut cluster = Cluster::start(&options("log-stop", None), |_| NoState).expect("it starts");
    let handle = cluster.handle();
    append(&handle, &texts("before", 20));
    cluster.stop(1);
    append(&handle, &texts("after", 20));
    wait("the view has two members", || handle.stats().members == 2);
    cluster.stop(0);
    append(&handle, &texts("alone", 20));
    assert_eq!(read(&handle).expect("it goes on").len(), 60);
}

#[test]
fn entry_longer_than_a_message_is_refused() {
    let cluster = Cluster::start(&options("log-long", None), |_| NoState).expect("it starts");
    let (sender, appended) = channel();
    let on_committed = move |result| sender.send(result).expect("the test waits");
    cluster.handle().append(vec![0; 64 << 20], Box::new(on_committed));
    let refused = appended.recv_timeout(HANG).expect("it is answered").expect_err("too long");
    assert!(matches!(refused, AppendFailure::TooLong { len, .. } if len == 64 << 20), "{refused}");
}

#[test]
fn damaged_journal_is_refused() {
    let directory = tempfile::tempdir().expect("a folder for the test");
    let options = options("log-damage", Some(directory.path()));
    let cluster = Cluster::start(&options, |_| NoState).expect("the log starts");
    // More than one synchronisation: the damage is not at the end.
    for entry in texts("entry", 8) {
        append(&cluster.handle(), &[entry]);
    }
    drop(cluster);
    let files = fs::read_dir(directory.path().join("replica-1")).expect("it is there").flatten();
    let segment = files.map(|file| file.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"))
    });
    let segment = segment.expect("it has records");
    let mut bytes = fs::read(&segment).expect("it can be read");
    bytes[150] ^= 1;
    fs::write(&segment, bytes).expect("it can be written");
    let refused = Cluster::start(&options, |_| NoState).err().expect("it is damaged").to_string();
    assert!(refused.contains("is damaged at byte"), "{refused}");
}

/// A state that claims to include entries.
struct Claims(u64);

impl State for Claims {
    fn apply(&mut self, _: u64, _: &Entry) {}

    fn begin_sync(&mut self) {}

    fn durable_len(&self) -> u64 {
        self.0
    }

    fn read_part(&mut self, _: &PartRequest) -> Option<Part> {
        None
    }

    fn install_part(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn finish_install(&mut self, _: u64) {}
}

#[test]
fn state_of_a_longer_log_is_refused() {
    let directory = tempfile::tempdir().expect("a folder for the test");
    let options = options("log-ahead", Some(directory.path()));
    let cluster = Cluster::start(&options, |_| NoState).expect("the log starts");
    append(&cluster.handle(), &texts("entry", 3));
    drop(cluster);
    let refused = Cluster::start(&options, |_| Claims(4)).err().expect("the log has 3 entries");
    let reason = std::error::Error::source(&refused).expect("it has a reason").to_string();
    assert!(reason.contains("includes 4 entries, and the log has 3"), "{reason}");
    drop(Cluster::start(&options, |_| Claims(3)).expect("the log has 3 entries"));
}
