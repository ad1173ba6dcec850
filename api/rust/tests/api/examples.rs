//! Runs the examples as real processes. `cargo test -p onepipe` builds them; before `--test
//! api` alone, `cargo build -p onepipe --examples` does.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use onepipe::{AmcastOptions, GroupId, Loopback, Role};
use onepipe_daemon_member::MemberDaemon;

/// Returns the path of an example, beside this test's own folder.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let profile = test.ancestors().nth(2).expect("it lies in target/<profile>/deps");
    profile.join("examples").join(name)
}

fn run(name: &str) -> String {
    let path = example(name);
    assert!(path.exists(), "{}: cargo build -p onepipe --examples", path.display());
    let Output { status, stdout, stderr } =
        Command::new(path).output().expect("the example can be started");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// The front page shows this program and the form of its output.
#[test]
fn readme() {
    let said = run("readme");
    let texts = ["alice: process 0 at ", "bob: process 0 at "].into_iter();
    let texts = texts.zip(["note to self", "hello bob"]).zip(said.lines());
    for ((start, text), line) in texts {
        let timestamp = line.strip_prefix(start).and_then(|line| line.split_once(": "));
        let (timestamp, payload) = timestamp.expect("sender, timestamp, payload");
        assert!(timestamp.parse::<u64>().is_ok() && payload == text, "{line}");
    }
    assert_eq!(said.lines().count(), 2, "{said}");
    let page = include_str!("../../../../README.md");
    let program = include_str!("../../examples/readme.rs");
    let (_, program) = program.split_once("\n\n").expect("a title and a program");
    assert!(page.contains(program), "README.md shows another program");
}

#[test]
fn hello() {
    let said = run("hello");
    for line in [
        "parent: process 0 says \"note to myself\"",
        "parent: process 1 says \"hello, parent\"",
        "child: process 0 says \"hello, child\"",
    ] {
        assert!(said.lines().any(|said| said == line), "{line:?} is missing from:\n{said}");
    }
}

#[test]
fn chat_log() {
    let said = run("chat_log");
    let last = said.lines().last().expect("the example prints output");
    assert!(last.starts_with("4 logs of ") && last.ends_with(" lines, all the same"), "{last}");
    // No answer may precede its remark.
    let lines: Vec<&str> = said.lines().collect();
    let mut answers = 0;
    for (at, line) in lines.iter().enumerate() {
        if let Some((_, answer)) = line.split_once(": @") {
            let (whom, remark) =
                answer.split_once(" I have read ").expect("an answer has this form");
            let read = format!(" {whom}: {remark}");
            assert!(lines[..at].iter().any(|line| line.ends_with(&read)), "{line} comes too early");
            answers += 1;
        }
    }
    assert!(answers > 0, "there is at least one answer");
}

#[test]
fn hazard() {
    let said = run("hazard");
    let count = |row: &str, column: usize| -> u64 {
        let line = said.lines().find(|line| line.starts_with(row)).expect("the table has this row");
        let numbers: Vec<&str> = line[row.len()..].split_whitespace().collect();
        numbers[column].parse().expect("a number")
    };
    for row in ["write after write", "independent reads"] {
        assert!(count(row, 1) > 0, "{row}: the anomaly is there without order\n{said}");
        assert_eq!(count(row, 3), 0, "{row}: with order it is not\n{said}");
    }
}

#[test]
fn bank() {
    let said = run("bank");
    assert_eq!(said, "900 transfers, 30 audits, always 3000; 3000 in the end\n");
}

#[test]
fn memory() {
    let said = run("memory");
    for number in 1..4 {
        let end = format!(" is number {number} at process 0");
        assert!(said.lines().any(|line| line.ends_with(&end)), "{end:?} is missing from:\n{said}");
    }
    let last = "150 increments, the highest seen is 150, 3 clients";
    assert_eq!(said.lines().last(), Some(last), "{said}");
}

#[test]
fn transfer() {
    let said = run("transfer");
    let from = |process| format!("500000 bytes from process {process}");
    for process in 1..4 {
        assert!(said.lines().any(|line| line == from(process)), "{process}: {said}");
    }
    let last = said.lines().last().expect("the example prints output");
    assert!(last.contains(" Mbit/s; half of the frames found "), "{last}");
}

#[test]
fn group() {
    let said = run("group");
    let digest = blake3::hash(&[b'.'; 1_000_000]).to_hex();
    for own in 1..4 {
        let line = format!("member {own}: BLAKE3 {digest} and 20000000 bytes");
        assert!(said.lines().any(|said| said == line), "{line:?} is missing from:\n{said}");
    }
    let last = "3 members have a file of 1000000 bytes and an object of 20000000";
    assert_eq!(said.lines().last(), Some(last));
}

#[test]
fn register() {
    let said = run("register");
    assert!(said.starts_with("3 replicas, 101 values each, all the same; the last: "), "{said}");
}

#[test]
fn accounts() {
    let said = run("accounts");
    assert!(
        said.starts_with("60 transfers, ") && said.ends_with(" by both; 200 in the end\n"),
        "{said}"
    );
    assert!(!said.contains(" 0 booked") && !said.contains(" 0 refused"), "{said}");
}

/// A client and two replicas of `lines` over three members.
#[test]
fn lines() {
    let loopback = Loopback { groups: 1, members: 3, replicas: 2, clients: 1, coordinators: 0 };
    let directory = loopback.directory().expect("ports of this machine are free");
    let group = GroupId(0);
    let members = directory.of(Role::Member(group));
    let replicas = directory.of(Role::Replica(group));
    let clients = directory.of(Role::Client);
    let text = |addresses: &[SocketAddr]| {
        let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        format!("{addresses:?}")
    };
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let file = folder.path().join("lab.toml");
    let page = format!(
        "clients = {}\n[[groups]]\nmembers = {}\nreplicas = {}\n",
        text(&clients),
        text(&members),
        text(&replicas)
    );
    std::fs::write(&file, page).expect("the folder can be written");
    let start = |role: &str, at: SocketAddr| {
        let mut command = Command::new(example("lines"));
        command.arg(role).arg(&file).arg(at.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("the example can be started")
    };
    let stop = AtomicBool::new(false);
    let (completed, delivered) = std::thread::scope(|scope| {
        let mut doorbells = Vec::new();
        for at in members {
            let options = AmcastOptions::default();
            let mut member = MemberDaemon::new(&directory, at, &options).expect("the port is free");
            doorbells.push(member.doorbell());
            let stop = &stop;
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let mut children: Vec<Child> = replicas.iter().map(|at| start("replica", *at)).collect();
        let mut client = start("client", clients[0]);
        let mut input = client.stdin.take().expect("piped");
        input.write_all(b"one\ntwo\nthree\n").expect("the client reads");
        drop(input);
        let output = client.wait_with_output().expect("the client ends");
        let completed = String::from_utf8_lossy(&output.stdout).into_owned();
        let delivered = children.iter_mut().map(|child| {
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            let lines: Vec<_> = lines.take(3).map_while(Result::ok).collect();
            child.kill().and_then(|()| child.wait()).expect("a replica can be killed");
            lines
        });
        let delivered: Vec<_> = delivered.collect();
        stop.store(true, Ordering::Release);
        doorbells.iter().for_each(|doorbell| doorbell.ring());
        (completed, delivered)
    });
    let completed: Vec<_> = completed.lines().collect();
    assert!(completed.len() == 3 && completed[0].ends_with(" one"), "{completed:?}");
    assert_eq!(delivered[0], completed);
    assert_eq!(delivered[1], completed);
}
