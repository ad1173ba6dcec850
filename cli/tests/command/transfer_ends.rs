//! `onepipe transfer` with endpoints, arbiters or switches that fail or misbehave.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onepipe::{ProcessId, Transfer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::Switch;
use crate::program::{Running, errors, exclusive, output, wait_for, wait_until};
use crate::transfer::{Lab, arbiter, content, names};

/// Creates a file that takes so long to send that the test acts in the middle.
fn sparse_file(folder: &Path) -> PathBuf {
    let path = folder.join("long");
    let file = std::fs::File::create(&path).expect("test file is written");
    file.set_len(1 << 30).expect("it takes none");
    path
}

/// Waits until part of the file is written.
fn wait_for_partial_file(out: &Path) {
    wait_until("some has come", || {
        let parts = std::fs::read_dir(out).expect("a folder").flatten();
        parts.into_iter().any(|part| part.metadata().is_ok_and(|part| part.len() > 0))
    });
}

#[test]
fn receiver_learns_of_interrupted_sender() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("test file is written");
    let mut receiver = lab.receive(&out, &[]);
    let mut sender = lab.sender(&sparse_file(folder.path()), &[]);
    wait_for_partial_file(&out);
    // Much data is in flight now; the abort message must overtake it.
    sender.signal("-INT");
    assert_eq!(sender.status(), Some(130));
    let line = receiver.stderr_line();
    assert!(line.contains("process 1 aborted its file: its sender was interrupted"), "{line}");
    assert_eq!(names(&out), [""; 0]);
}

/// A peer that dies in the middle of a transfer, after it had replied.
#[test]
fn names_party_that_dies_during_transfer() {
    let turn = exclusive();
    let dies = |kill: fn(&Lab, &Running), stderr: &[&str]| {
        let lab = Lab { wait: "6s", ..Lab::start() };
        let folder = TempDir::new().expect("a folder");
        let out = folder.path().join("out");
        std::fs::create_dir(&out).expect("test file is written");
        let receiver = lab.receive(&out, &[]);
        let mut sender = lab.sender(&sparse_file(folder.path()), &[]);
        wait_for_partial_file(&out);
        kill(&lab, &receiver);
        let line = sender.stderr_line();
        for stderr_line in stderr {
            assert!(line.contains(stderr_line), "{stderr_line:?} is not in {line}");
        }
        assert_eq!(sender.status(), Some(1));
        receiver
    };
    let mut receiver = dies(
        |lab, _| lab.arbiter.signal("-KILL"),
        &["gave up after", "arbiter 1000 answered until ", "no arbiter does any more"],
    );
    dies(|lab, _| lab.arbiter.signal("-STOP"), &["arbiter 1000 answered until "]);
    dies(|lab, _| lab.switch.process.signal("-KILL"), &["no switch listens at 127.0.0.1:"]);
    dies(
        |_, receiver| receiver.signal("-KILL"),
        &["process 0 does not answer, though arbiter 1000 gives timeslots"],
    );
    // The receiver could not be notified, and must not report the sender as failed.
    drop(turn);
    let line = receiver.stderr_line();
    assert!(line.contains("no message for 30 s: no switch listens"), "{line}");
}

/// The time for which a process was stopped does not count as a timeout.
#[test]
fn stopped_sender_resumes() {
    let _guard = exclusive();
    let lab = Lab { wait: "8s", ..Lab::start() };
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    std::fs::create_dir(&out).expect("test file is written");
    std::fs::write(&file, content(16 << 20)).expect("test file is written");
    let mut receiver = lab.receive(&out, &[]);
    let mut sender = lab.sender(&file, &[]);
    wait_for_partial_file(&out);
    sender.signal("-STOP");
    std::thread::sleep(Duration::from_secs(9));
    sender.signal("-CONT");
    assert_eq!(sender.status(), Some(0), "{}", sender.stderr_line());
    assert_eq!(receiver.status(), Some(0));
}

/// Parts of two versions of a file make no file.
#[test]
fn aborts_file_modified_while_sent() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    std::fs::create_dir(&out).expect("test file is written");
    let bytes: u64 = 4 << 20;
    for now in [0, bytes / 2, bytes + 1] {
        std::fs::write(&file, content(bytes as usize)).expect("test file is written");
        // No receiver runs yet, so most of the file is not read.
        let mut sender = lab.sender(&file, &[]);
        sender.wait_for_signal_handler();
        let changed = std::fs::File::options().write(true).open(&file);
        changed.and_then(|file| file.set_len(now)).expect("test file is written");
        let mut receiver = lab.receive(&out, &[]);
        let why = format!("original had {bytes} bytes and was modified");
        let line = sender.stderr_line();
        assert!(line.contains(&why), "{line}");
        assert_eq!(sender.status(), Some(1));
        let line = receiver.stderr_line();
        assert!(line.contains(&why), "{line}");
        assert_eq!(names(&out), [""; 0]);
    }
}

/// The sender may be any program, so its messages are validated.
#[test]
fn receiver_rejects_data_that_contradicts_offer() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("test file is written");
    let mut receiver = lab.receive(&out, &["--forever"]);
    let end = Transfer::builder().switch(&lab.switch.address).process(3);
    let end = end.slot(Duration::from_micros(200)).open().expect("an endpoint");
    let type_line = |file: u32, word: Value, bytes: &[u8]| {
        let line = json!({ "version": 2, "file": file, "body": word }).to_string();
        let object = [line.as_bytes(), b"\n", bytes].concat();
        let sent = end.send(ProcessId(0), object).expect("test file is written");
        assert_eq!(sent.wait(Duration::from_secs(60)), Some(Ok(())));
    };
    let mut expect_line = |stderr_line: &str| {
        let line = receiver.stderr_line();
        assert!(line.contains(stderr_line) && !line.contains('\x1b'), "{line}");
    };
    let begin = |name: &str| json!({ "Open": { "name": name, "bytes": 10 } });
    let chunk = json!({ "Data": { "offset": 0 } });

    type_line(1, begin("shorter"), b"");
    type_line(1, chunk.clone(), b"12345");
    type_line(1, json!({ "Finish": { "bytes": 5, "digest": "" } }), b"");
    expect_line("process 3: 5 of 10 bytes were received");
    type_line(2, begin("longer"), b"");
    type_line(2, chunk, b"1234567890a");
    expect_line("process 3: received more bytes than announced");
    type_line(3, begin("\x1b[2J"), b"");
    expect_line("process 3: \"\\u{1b}[2J\" is not a valid name: it contains control characters");
    type_line(4, begin("given up"), b"");
    type_line(4, json!({ "Failed": { "reason": "\x1b[2J" } }), b"");
    expect_line("process 3 aborted its file: ");
    assert_eq!(names(&out), [""; 0]);
}

/// A process reports that another one uses its id.
#[test]
fn reports_duplicate_process_ids() {
    let _guard = exclusive();
    let lab = Lab { wait: "15s", ..Lab::start() };
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("test file is written");
    let file = sparse_file(folder.path());
    let mut receiver = lab.receive(&out, &["--forever"]);
    let mut first = lab.sender(&file, &[]);
    wait_for_partial_file(&out);
    // Each of the two resets the session of the other one with the arbiter. If the second one gets
    // no timeslot, it gives up, and the first one goes on.
    let mut attempts = 0;
    let line = loop {
        attempts += 1;
        assert!(attempts <= 5, "the receiver has noticed none of 5 processes");
        let mut second = lab.sender(&file, &["--name", "other"]);
        let line = wait_for("one of the two notices", || {
            let noticed = receiver.stderr_line_within(Duration::from_millis(100));
            noticed.map(Ok).or_else(|| second.stderr_line_within(Duration::ZERO).map(Err))
        });
        match line {
            Ok(line) => {
                second.signal("-INT");
                assert_eq!(second.status(), Some(130));
                break line;
            }
            Err(line) => {
                assert!(line.contains("does another process use id 1?"), "{line}");
                assert_eq!(second.status(), Some(1));
            }
        }
    };
    assert!(line.contains("does another process use id 1?"), "{line}");
    // It is notified, or times out because messages for process 1 go to the other one.
    let line = first.stderr_line();
    assert!(line.contains("does another process use id 1?"), "{line}");
    assert_eq!(first.status(), Some(1));

    let mut sender = lab.sender(&file, &["--process", "2", "--name", "third"]);
    wait_until("it is coming", || names(&out).iter().any(|name| name.starts_with("third.")));
    // An idle receiver sends little, and frames to it go to the one that has sent last: it may get
    // none, and then the transfer goes on.
    let mut others = Vec::new();
    let line = loop {
        assert!(others.len() < 10, "none of 10 receivers has got a frame");
        others.push(lab.receive(&out, &["--forever"]));
        if let Some(line) = sender.stderr_line_within(Duration::from_secs(8)) {
            break line;
        }
    };
    assert!(line.contains("another process uses id 0"), "{line}");
    assert_eq!(sender.status(), Some(1));
}

/// A missing peer is named, with what was asked, after a bounded time.
#[test]
fn names_party_that_does_not_answer() {
    let _guard = exclusive();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("original");
    std::fs::write(&file, b"x").expect("test file is written");
    let file = file.to_str().expect("UTF-8 path");
    let gives_up = |side: &[&str], udp: &str, arguments: &[&str], stderr: &[&str]| {
        let common = ["--udp", udp, "--timeout", "3s"];
        let output = output(&[&["transfer"], side, &common, arguments].concat());
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for stderr_line in stderr {
            assert!(errors.contains(stderr_line), "{stderr_line:?} is not in {errors}");
        }
    };
    let (send, receive) = (["send", file], ["receive"]);
    // A port that was in use a moment ago.
    let closed_address = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let closed_address = closed_address.expect("an address").to_string();
    gives_up(
        &send,
        &closed_address,
        &["--wait", "200ms"],
        &[&format!("no switch answers at {closed_address}"), "endpoint 1"],
    );

    let switch = Switch::start(&[]);
    let asked =
        ["no arbiter answers: 1002, 1003 was asked", &switch.address, "timeslots of 64.0 us"];
    let options = ["--arbiter", "1002,1003", "--slot", "64us"];
    gives_up(&receive, &switch.address, &options, &asked);

    let _arbiter = arbiter(&switch, &["--slot", "150us"]);
    let slot = ["--slot", "150us"];
    let missing = ["process 0 does not answer", "onepipe transfer receive --process 0"];
    gives_up(&send, &switch.address, &slot, &missing);
    let other = ["arbiter 1000 has timeslots of 150000 ns", "--slot and --nodes must be"];
    gives_up(&send, &switch.address, &["--slot", "64us"], &other);
    gives_up(&receive, &switch.address, &["--slot", "64us"], &other);
    let beyond = ["process 70 behind", "has timeslots of 150000 ns and 64 endpoints"];
    let options = [&slot[..], &["--process", "70", "--nodes", "128"]].concat();
    gives_up(&receive, &switch.address, &options, &beyond);
}
