//! Runs the examples as real processes. `cargo test -p onepipe` builds them; before `--test
//! examples` alone, `cargo build -p onepipe --examples` does.

use std::path::PathBuf;
use std::process::{Command, Output};

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
    let page = include_str!("../../../README.md");
    let program = include_str!("../examples/readme.rs");
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
