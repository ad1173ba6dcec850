//! `onepipe log`: a replicated log of programs that are killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::lab::Controller;
use crate::program::{Running, errors, onepipe, output, unique, wait_until};

/// Returns the lines of a program that has ended well.
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = output(arguments);
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// A program that serves, until it is dropped.
fn serve(fabric: &str, data: &Path, options: &[&str]) -> Running {
    let of_log = ["log", "serve", "--fabric", fabric];
    let mut running = Running::start(onepipe(&of_log).args(options).arg("--data").arg(data));
    assert!(running.line().starts_with("replicas 3, in "));
    running
}

fn wait_open(running: &mut Running) {
    let line = running.line();
    assert!(line.starts_with("the log is open, with "), "{line}");
}

#[test]
fn log_in_one_program_survives_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let fabric = unique("log");
    let log = |arguments: &[&str]| lines(&[arguments, &["--fabric", &fabric]].concat());
    for round in 0..2 {
        let mut running = serve(&fabric, folder.path(), &[]);
        wait_open(&mut running);
        let indices = log(&["log", "append", "first", "second"]);
        assert_eq!(indices, [(2 * round).to_string(), (2 * round + 1).to_string()]);
        running.signal("-KILL");
        running.status();
    }
    let mut running = serve(&fabric, folder.path(), &[]);
    wait_open(&mut running);
    assert_eq!(log(&["log", "read"]), ["0 first", "1 second", "2 first", "3 second"]);
    assert_eq!(log(&["log", "read", "--from", "3"]), ["3 second"]);
    running.signal("-INT");
    assert_eq!(running.status(), Some(0));
    let last = running.remaining_lines().pop().expect("it prints counters");
    assert!(last.starts_with("4 committed entries, view "), "{last}");
}

#[test]
fn log_whose_directory_is_lost_goes_on_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let fabric = unique("log-lost");
    let mut running = serve(&fabric, folder.path(), &[]);
    wait_open(&mut running);
    assert_eq!(lines(&["log", "append", "one", "--fabric", &fabric]), ["0"]);
    running.signal("-KILL");
    running.status();
    std::fs::remove_dir_all(folder.path().join("replica-1")).expect("it is there");
    let of_log = ["log", "serve", "--fabric", &fabric, "--data"];
    let refused = onepipe(&of_log).arg(folder.path()).output().expect("the program starts");
    assert_eq!(refused.status.code(), Some(1));
    let text = errors(&refused);
    assert!(text.contains("process 1 ") && text.contains("`onepipe log replace`"), "{text}");
    let data = folder.path().to_str().expect("text");
    lines(&["log", "replace", "--data", data, "--replica", "1"]);
    let mut running = serve(&fabric, folder.path(), &[]);
    wait_open(&mut running);
    assert_eq!(lines(&["log", "append", "two", "--fabric", &fabric]), ["1"]);
    assert_eq!(lines(&["log", "read", "--fabric", &fabric]), ["0 one", "1 two"]);
}

/// Appends entries with ascending numbers, several at once, and notes which are committed.
struct Appender {
    running: Running,
    sent: Vec<String>,
    committed: usize,
}

impl Appender {
    fn start(fabric: &str) -> Self {
        let mut command = onepipe(&["log", "append", "--process", "4", "--fabric", fabric]);
        let running = Running::start(command.stdin(Stdio::piped()));
        Self { running, sent: Vec::new(), committed: 0 }
    }

    fn send(&mut self, name: &str, entries: usize) {
        let stdin = self.running.child.stdin.as_mut().expect("it is piped");
        for _ in 0..entries {
            let entry = format!("{name}-{}", self.sent.len());
            writeln!(stdin, "{entry}").expect("it runs");
            self.sent.push(entry);
        }
    }

    /// Takes the index of the next entry that is committed.
    fn take(&mut self, line: &str, committed: &mut BTreeMap<u64, String>) {
        let index = line.parse().unwrap_or_else(|_| panic!("no index: {line:?}"));
        committed.insert(index, self.sent[self.committed].clone());
        self.committed += 1;
    }

    fn wait(&mut self, entries: usize, committed: &mut BTreeMap<u64, String>) {
        for _ in 0..entries {
            let line = self.running.line();
            self.take(&line, committed);
        }
    }

    fn kill(mut self, committed: &mut BTreeMap<u64, String>) {
        self.running.signal("-KILL");
        self.running.status();
        for line in self.running.remaining_lines() {
            self.take(&line, committed);
        }
    }
}

#[test]
fn log_goes_on_without_a_killed_replica_and_survives_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let fabric = unique("log-kills");
    let store = folder.path().join("decisions");
    let mut start = onepipe(&["controller", "--fabric", &fabric]);
    let mut controller = Controller::begin(start.arg("--store").arg(&store));
    assert!(controller.process.line().starts_with("active in epoch "));
    let data = folder.path().join("log");
    let start = |process: usize| serve(&fabric, &data, &["--process", &process.to_string()]);
    let start_all = || {
        let mut replicas: Vec<Running> = (0..3).map(start).collect();
        replicas.iter_mut().for_each(wait_open);
        replicas
    };
    let mut replicas = start_all();
    let mut committed = BTreeMap::new();
    let mut appender = Appender::start(&fabric);
    appender.send("a", 20);
    appender.wait(20, &mut committed);

    // Each replica is killed while entries are in flight. The others go on without it.
    for (process, replica) in replicas.iter_mut().enumerate() {
        appender.send("b", 20);
        replica.signal("-KILL");
        replica.status();
        appender.wait(20, &mut committed);
        *replica = start(process);
        wait_open(replica);
    }

    // All programs are killed while entries are in flight.
    for round in 0..3 {
        appender.send("c", 40);
        appender.wait(1 + 10 * round, &mut committed);
        replicas.iter().for_each(|replica| replica.signal("-KILL"));
        replicas.iter_mut().for_each(|replica| assert_eq!(replica.status(), None, "killed"));
        appender.kill(&mut committed);
        replicas = start_all();
        appender = Appender::start(&fabric);
        let mut entries = Vec::new();
        wait_until("all committed entries can be read", || {
            entries = lines(&["log", "read", "--process", "5", "--fabric", &fabric]);
            entries.len() >= committed.len()
        });
        for (index, entry) in &committed {
            let line = entries.get(*index as usize);
            assert_eq!(line, Some(&format!("{index} {entry}")), "round {round}");
        }
    }
}
