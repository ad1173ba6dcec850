//! Real processes that are killed at any instant: the example `shared_list`, which `cargo test`
//! builds unless it is given the name of a test. The fabric has no controller, so appends wait
//! until a replica that was killed is started again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use onepipe::ProcessId;
use onepipe_log_server::replace_replica;

/// Limit on any wait. Only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

/// Returns the path of the example, which `cargo test` builds beside this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(Path::parent).expect("tests are in target/*/deps");
    target.join("examples/shared_list")
}

/// A replica in a process.
struct Replica {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The lines that were reported as committed, by their index.
    committed: BTreeMap<usize, String>,
}

impl Replica {
    fn start(directory: &Path, process: u32) -> Self {
        let mut child = Command::new(program())
            .arg(directory)
            .arg(process.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo test builds the examples");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, committed: BTreeMap::new() }
    }

    fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it was not killed");
        writeln!(stdin, "{line}").expect("it runs");
    }

    fn note(&mut self, line: &str) {
        if let Some(committed) = line.strip_prefix("committed ") {
            let (index, text) = committed.split_once(' ').expect("an index and a text");
            self.committed.insert(index.parse().expect("a number"), text.to_owned());
        }
    }

    /// Takes lines until one begins with `start`, and returns that.
    fn wait(&mut self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG);
            let line = line.unwrap_or_else(|error| panic!("no line {start:?}: {error}"));
            self.note(&line);
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Takes lines until this number of them is committed.
    fn wait_committed(&mut self, count: usize) {
        while self.committed.len() < count {
            self.wait("committed ");
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is a child");
        while let Ok(line) = self.lines.recv_timeout(HANG) {
            self.note(&line);
        }
    }

    /// Returns the list, and its last line.
    fn list(&mut self) -> (Vec<String>, String) {
        self.send("?");
        let mut list = Vec::new();
        loop {
            let line = self.lines.recv_timeout(HANG).expect("it answers");
            self.note(&line);
            match line.strip_prefix("line ") {
                Some(line) => list.push(line.to_owned()),
                None if line.starts_with("end ") => return (list, line),
                None => {}
            }
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_all(directory: &Path) -> Vec<Replica> {
    let mut replicas: Vec<_> = (0..3).map(|process| Replica::start(directory, process)).collect();
    replicas.iter_mut().for_each(|replica| drop(replica.wait("serving")));
    replicas
}

/// Waits until all lists have `count` lines or more and are equal, and returns the list.
fn equal_lists(replicas: &mut [Replica], count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let lists: Vec<_> = replicas.iter_mut().map(|replica| replica.list().0).collect();
        if lists[0].len() >= count && lists.iter().all(|list| *list == lists[0]) {
            return lists.into_iter().next().expect("there are three");
        }
        assert!(began.elapsed() < HANG, "lists differ: {lists:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a replica has trimmed its log.
fn wait_trimmed(replica: &mut Replica) {
    let began = Instant::now();
    while replica.list().1.contains("trimmed 0,") {
        assert!(began.elapsed() < HANG, "the log is not trimmed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that all lines that were reported as committed are in the list, at their indices.
fn check(list: &[String], committed: &BTreeMap<usize, String>) {
    for (index, text) in committed {
        assert_eq!(list.get(*index), Some(text), "line {index} was committed");
    }
}

#[test]
fn no_committed_line_is_lost_by_kills() {
    let parent = tempfile::tempdir().expect("a folder for the test");
    let directory = parent.path().join(format!("list-{}", std::process::id()));
    let mut committed = BTreeMap::new();
    let mut sent = 0;
    let mut append = |replica: &mut Replica, lines: usize| {
        for _ in 0..lines {
            sent += 1;
            replica.send(&format!("text {sent}"));
        }
    };
    let mut replicas = start_all(&directory);
    append(&mut replicas[0], 100);
    replicas[0].wait_committed(100);

    // One replica is killed while lines are in flight, and returns.
    append(&mut replicas[0], 50);
    replicas[2].kill();
    append(&mut replicas[0], 50);
    replicas[2] = Replica::start(&directory, 2);
    append(&mut replicas[0], 50);
    replicas[2].wait("serving");
    replicas[0].wait_committed(250);
    check(&equal_lists(&mut replicas, 250), &replicas[0].committed);
    wait_trimmed(&mut replicas[2]);

    // All are killed while lines are in flight, several times.
    for round in 0..4_u64 {
        append(&mut replicas[1], 60);
        replicas[1].wait_committed(10 + 10 * round as usize);
        for replica in &mut replicas {
            replica.kill();
            committed.append(&mut replica.committed);
        }
        replicas = start_all(&directory);
        let list = equal_lists(&mut replicas, committed.len());
        check(&list, &committed);
    }

    // A replica whose directory is lost does not start, unless it is to get everything from the
    // others.
    replicas[1].kill();
    std::fs::remove_dir_all(directory.join("replica-1")).expect("it is there");
    std::fs::remove_file(directory.join("list-1")).expect("it is there");
    append(&mut replicas[0], 10);
    wait_trimmed(&mut replicas[0]);
    let refused = Command::new(program()).arg(&directory).arg("1").output().expect("it starts");
    let reason = String::from_utf8_lossy(&refused.stderr);
    assert!(reason.contains("process 1 has no log") && reason.contains("log replace"), "{reason}");
    replace_replica(&directory, ProcessId(1)).expect("it does not run");
    replicas[1] = Replica::start(&directory, 1);
    replicas[1].wait("serving");
    replicas[0].wait_committed(10);
    committed.append(&mut replicas[0].committed);
    check(&equal_lists(&mut replicas, committed.len()), &committed);
    assert!(replicas[1].list().1.contains("installed 1"), "the log before was trimmed");
}
