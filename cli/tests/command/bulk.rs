//! `onepipe bulk`: real processes, real sockets, real files.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, errors, json, onepipe, output, wait_until};

/// A receiver; a restarted one must be found at the same address.
struct Receiver {
    program: Running,
    address: String,
    out: PathBuf,
}

impl Receiver {
    fn start(listen: &str, out: &Path, more: &[&str]) -> Self {
        let path = out.to_str().expect("UTF-8 path");
        let of = ["bulk", "recv", "--listen", listen, "--out", path, "--json"];
        let mut program = Running::start(&mut onepipe(&[&of, more].concat()));
        let line = program.line();
        let address = line.strip_prefix("listening at ").expect("address is printed").to_owned();
        Self { program, address, out: out.to_owned() }
    }

    fn report(&mut self) -> Value {
        let line = self.program.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn part(&self) -> PathBuf {
        PathBuf::from(format!("{}.onepipe-part", self.out.display()))
    }
}

fn file(folder: &TempDir, bytes: usize) -> (PathBuf, Vec<u8>) {
    let path = folder.path().join("original");
    let bytes: Vec<u8> =
        (0..bytes as u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    std::fs::write(&path, &bytes).expect("test file is written");
    (path, bytes)
}

fn send<'a>(file: &'a Path, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let of = ["bulk", "send", file.to_str().expect("UTF-8 path"), "--to", to, "--json"];
    [&of, more].concat()
}

fn addresses(receivers: &[Receiver]) -> String {
    receivers.iter().map(|receiver| receiver.address.as_str()).collect::<Vec<_>>().join(",")
}

#[test]
fn all_receivers_get_file_with_digest() {
    for (bytes, schedule, transport) in [
        (0, "pipeline", "tcp"),
        (3_000_007, "pipeline", "tcp"),
        (70_000, "chain", "tcp"),
        (0, "chain", "udp"),
        (3_000_007, "pipeline", "udp"),
        (0, "pipeline", "shm"),
        (3_000_007, "pipeline", "shm"),
    ] {
        let folder = TempDir::new().expect("a folder");
        let (original, content) = file(&folder, bytes);
        let mut receivers: Vec<Receiver> = (0..3)
            .map(|at| folder.path().join(format!("copy{at}")))
            .map(|out| Receiver::start("127.0.0.1:0", &out, &[]))
            .collect();
        let to = addresses(&receivers);
        let sizes = ["--chunk", "1000000", "--block", "64KiB", "--schedule", schedule];
        let how = ["--transport", transport];
        let sent = output(&send(&original, &to, &[&sizes[..], &how].concat()));
        assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
        let sent = json(&sent);
        assert_eq!((&sent["command"], &sent["bytes"]), (&"bulk send".into(), &bytes.into()));
        for receiver in &mut receivers {
            let report = receiver.report();
            assert_eq!((&report["digest"], &report["bytes"]), (&sent["digest"], &bytes.into()));
            assert_eq!(report["from"], 0);
            assert_eq!(receiver.program.status(), Some(0));
            assert!(std::fs::read(&receiver.out).expect("file exists") == content);
            assert!(!receiver.part().exists());
        }
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 4, "the file and its copies, nothing else");
    }
}

/// Ends a receiver in the middle of the file with `signal`, and checks its exit status. The last
/// receiver writes into a pipe that is read only for a while, so that the others wait in the middle
/// of the file.
fn receiver_that_ends_is_left_out(transport: &str, signal: &str, status: Option<i32>) {
    let folder = TempDir::new().expect("a folder");
    let (original, content) = file(&folder, 8 << 20);
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    // Opening a pipe blocks until both ends are open.
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || File::open(fifo).expect("a pipe")
    });
    let outs = [folder.path().join("copy0"), folder.path().join("copy1"), fifo];
    let mut receivers = outs.map(|out| Receiver::start("127.0.0.1:0", &out, &[]));
    let to = addresses(&receivers);
    let more = ["--chunk", "64KiB", "--connect-timeout", "60s", "--transport", transport];
    let mut sender = Running::start(&mut onepipe(&send(&original, &to, &more)));
    let mut reader = reader.join().expect("no panic");
    let mut beginning = vec![0; 1 << 20];
    reader.read_exact(&mut beginning).expect("it comes");
    assert!(beginning == content[..1 << 20]);

    let part = receivers[0].part();
    wait_until("a part is there", || std::fs::metadata(&part).is_ok_and(|it| it.len() >= 1 << 20));
    receivers[0].program.wait_for_signal_handler();
    receivers[0].program.signal(signal);
    assert_eq!(receivers[0].program.status(), status);
    assert!(part.exists(), "it is resumed");
    let address = receivers[0].address.clone();
    let mut again = Receiver::start(&address, &receivers[0].out.clone(), &[]);
    // A pipe cannot seek back, so its receiver fails permanently.
    let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert_eq!(receivers[1].report()["bytes"], 8 << 20);
    let report = again.report();
    assert!(report["from"].as_u64() >= Some(1 << 20), "{report}");
    for receiver in [&receivers[1], &again] {
        assert!(std::fs::read(&receiver.out).expect("file exists") == content);
    }
    let line: Value = serde_json::from_str(&sender.line()).expect("one JSON object");
    assert_eq!(sender.status(), Some(1));
    let state = |at: usize| line["receivers"][at]["state"].as_str();
    assert_eq!(
        (state(0), state(1), state(2)),
        (Some("complete"), Some("complete"), Some("failed"))
    );
    let why = line["receivers"][2]["error"].as_str().expect("error message");
    assert!(why.contains("fifo") && why.contains("cannot resume"), "{why}");
    assert_eq!(receivers[2].program.status(), Some(1));
    drain.join().expect("no panic").expect("it can be read");
}

#[test]
fn killed_receiver_resumes() {
    receiver_that_ends_is_left_out("tcp", "-KILL", None);
}

#[test]
fn killed_receiver_resumes_over_udp() {
    receiver_that_ends_is_left_out("udp", "-KILL", None);
}

#[test]
fn interrupted_receiver_resumes() {
    receiver_that_ends_is_left_out("tcp", "-INT", Some(130));
    receiver_that_ends_is_left_out("udp", "-TERM", Some(130));
}

#[test]
fn killed_receiver_resumes_over_shared_memory() {
    receiver_that_ends_is_left_out("shm", "-KILL", None);
}

/// Returns the files in shared memory that these processes have created.
fn left_by(pids: &[u32]) -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").expect("memory has names");
    let names = names.map(|entry| entry.expect("it is read").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let is_theirs = |name: &String| pids.iter().any(|pid| name.contains(&format!("-bulk-{pid}-")));
    names.filter(is_theirs).collect()
}

#[test]
fn next_start_removes_segments_of_killed_members() {
    let folder = TempDir::new().expect("a folder");
    let (original, _) = file(&folder, 8 << 20);
    let more =
        ["--chunk", "64KiB", "--block", "4KiB", "--transport", "shm", "--connect-timeout", "1s"];
    let mut pids = Vec::new();
    // Before and during the rendezvous, and while blocks are sent: no phase may leave a file
    // behind.
    for delay_ms in [1, 4, 8, 16, 32, 64, 128] {
        let outs = [0, 1].map(|at| folder.path().join(format!("killed{delay_ms}-{at}")));
        let receivers = outs.map(|out| Receiver::start("127.0.0.1:0", &out, &[]));
        let to = addresses(&receivers);
        let sender = Running::start(&mut onepipe(&send(&original, &to, &more)));
        std::thread::sleep(Duration::from_millis(delay_ms));
        for mut program in receivers.into_iter().map(|it| it.program).chain([sender]) {
            pids.push(program.child.id());
            // Fails when the process has exited already.
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
    }
    let out = folder.path().join("copy");
    let mut receiver = Receiver::start("127.0.0.1:0", &out, &[]);
    let sent = output(&send(&original, &receiver.address.clone(), &more));
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert_eq!(receiver.program.status(), Some(0));
    assert_eq!(left_by(&pids), Vec::<String>::new());
}

#[test]
fn full_disk_fails_only_its_receiver() {
    let folder = TempDir::new().expect("a folder");
    let (original, content) = file(&folder, 1 << 20);
    let outs = [folder.path().join("copy"), PathBuf::from("/dev/full")];
    let mut receivers = outs.map(|out| Receiver::start("127.0.0.1:0", &out, &[]));
    let to = addresses(&receivers);
    let sent = output(&send(&original, &to, &["--chunk", "64KiB", "--connect-timeout", "1s"]));
    assert_eq!(sent.status.code(), Some(1));
    assert!(errors(&sent).contains("No space left on device"), "{}", errors(&sent));
    let report = json(&sent);
    assert_eq!(report["receivers"][0]["state"], "complete");
    assert_eq!(report["receivers"][1]["state"], "failed");
    assert_eq!((receivers[0].program.status(), receivers[1].program.status()), (Some(0), Some(1)));
    assert!(std::fs::read(&receivers[0].out).expect("file exists") == content);
}

#[test]
fn another_sender_resumes_after_interrupt() {
    let folder = TempDir::new().expect("a folder");
    let (original, content) = file(&folder, 4 << 20);
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || File::open(fifo).expect("a pipe")
    });
    let mut receiver = Receiver::start("127.0.0.1:0", &folder.path().join("copy"), &[]);
    let slow = Receiver::start("127.0.0.1:0", &fifo, &[]);
    let to = format!("{},{}", receiver.address, slow.address);
    let mut sender = Running::start(&mut onepipe(&send(&original, &to, &["--chunk", "64KiB"])));
    let reader = reader.join().expect("no panic");
    let part = receiver.part();
    wait_until("a part is there", || std::fs::metadata(&part).is_ok_and(|it| it.len() > 0));
    sender.wait_for_signal_handler();
    sender.signal("-INT");
    assert_eq!(sender.status(), Some(130));
    drop((reader, slow));
    let sent = output(&send(&original, &receiver.address, &["--chunk", "64KiB"]));
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert!(receiver.report()["from"].as_u64() > Some(0));
    assert_eq!(receiver.program.status(), Some(0));
    assert!(std::fs::read(&receiver.out).expect("file exists") == content);
}

#[test]
fn rejects_invalid_arguments() {
    let folder = TempDir::new().expect("a folder");
    let (original, _) = file(&folder, 10);
    let refused = |arguments: &[&str], status, stderr_line: &str| {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(errors(&output).contains(stderr_line), "{arguments:?}: {}", errors(&output));
    };
    refused(&["bulk", "send", "/nowhere", "--to", "127.0.0.1:9"], 1, "cannot read /nowhere");
    refused(
        &["bulk", "send", "/", "--to", "127.0.0.1:9"],
        1,
        "it is a directory, not a regular file",
    );
    refused(&send(&original, "nowhere", &[]), 2, "nowhere");
    refused(&send(&original, "127.0.0.1:9", &["--transport", "pigeon"]), 2, "tcp, udp");
    refused(&send(&original, "127.0.0.1:9,127.0.0.1:9", &[]), 2, "127.0.0.1:9 is named twice");
    refused(
        &send(&original, "127.0.0.1:9", &["--connect-timeout", "1ns"]),
        1,
        "127.0.0.1:9: not delivered",
    );
    refused(&["bulk", "recv", "--listen", "192.0.2.1:9"], 1, "cannot listen at 192.0.2.1:9");

    // An existing file is kept, and the sender is notified.
    let out = folder.path().join("copy");
    File::create(&out).and_then(|mut file| file.write_all(b"mine")).expect("test file is written");
    let mut receiver = Receiver::start("127.0.0.1:0", &out, &[]);
    refused(&send(&original, &receiver.address, &[]), 1, "already exists");
    assert_eq!(receiver.program.status(), Some(1));
    assert_eq!(std::fs::read(&out).expect("file exists"), b"mine");
    let mut receiver = Receiver::start("127.0.0.1:0", &out, &["--force"]);
    assert_eq!(output(&send(&original, &receiver.address, &[])).status.code(), Some(0));
    assert_eq!(receiver.program.status(), Some(0));
    assert_eq!(std::fs::read(&out).expect("file exists").len(), 10);
}

#[test]
fn connections_of_strangers_are_counted() {
    let folder = TempDir::new().expect("a folder");
    let (original, _) = file(&folder, 10);
    let out = folder.path().join("out");
    let mut receiver = Receiver::start("127.0.0.1:0", &out, &[]);
    let mut stranger = TcpStream::connect(&receiver.address).expect("it listens");
    stranger.write_all(&[b'?'; 64]).expect("it listens");
    // The receiver closes the connection; what it had not read resets it.
    let _ = stranger.read(&mut [0]);
    assert_eq!(output(&send(&original, &receiver.address, &[])).status.code(), Some(0));
    let report = receiver.report();
    let counts = ["connections_refused", "connections_timed_out"].map(|name| report[name].as_u64());
    assert_eq!(counts, [Some(1), Some(0)], "{report}");
}

/// What a sender chooses does no harm, and the receiver goes on waiting for another sender.
#[test]
fn senders_choose_nothing_but_a_new_file() {
    let folder = TempDir::new().expect("a folder");
    let (original, content) = file(&folder, 1000);
    let inbox = folder.path().join("in");
    std::fs::create_dir(&inbox).expect("a folder");
    let start = |more: &[&str]| Receiver::start("127.0.0.1:0", &inbox, more);
    let refused = |receiver: &Receiver, name: &str, expected: &str| {
        let named = folder.path().join(name);
        std::fs::write(&named, &content).expect("test file is written");
        let sent = output(&send(&named, &receiver.address, &[]));
        assert_eq!(sent.status.code(), Some(1), "{name:?}");
        assert!(errors(&sent).contains(expected), "{name:?}: {}", errors(&sent));
    };
    let mut receiver = start(&["--max-bytes", "1000"]);
    refused(&receiver, ".profile", "\".profile\" is not a valid file name: it begins with a dot");
    refused(&receiver, "a\u{202e}gpj.exe", "it contains control characters");
    refused(&receiver, "a\x1b[2J", "it contains control characters");
    std::fs::write(folder.path().join("long"), vec![1; 1001]).expect("test file is written");
    let sent = output(&send(&folder.path().join("long"), &receiver.address, &[]));
    assert!(errors(&sent).contains("this receiver takes 1000 (--max-bytes)"), "{}", errors(&sent));
    assert_eq!(output(&send(&original, &receiver.address, &[])).status.code(), Some(0));
    assert_eq!(receiver.program.status(), Some(0));
    let received = inbox.join("original");
    assert!(std::fs::read(&received).expect("it is complete") == content);
    let mode = std::fs::metadata(&received).expect("it is complete").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);

    // Files that others have prepared in the folder are neither written nor waited for.
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").expect("test file is written");
    for part in ["linked.onepipe-part", "noted.onepipe-note"] {
        std::os::unix::fs::symlink(&victim, inbox.join(part)).expect("a link");
    }
    let fifo = inbox.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    for (name, expected) in [
        ("linked", "cannot open "),
        ("noted", "cannot write "),
        ("pipe", "pipe already exists (--force replaces it)"),
    ] {
        let mut receiver = start(&[]);
        refused(&receiver, name, expected);
        assert_eq!(receiver.program.status(), Some(1));
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "precious");
}
