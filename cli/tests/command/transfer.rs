//! `onepipe transfer`: real processes behind a real switch, with an arbiter.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::lab::Switch;
use crate::program::{Running, errors, exclusive, json, onepipe, output, wait_until};

/// Long enough for a busy machine.
const SLOT: &str = "200us";
/// Timeout of peers, long enough for a busy machine.
const PATIENT: &str = "60s";

/// A switch with an arbiter.
pub struct Lab {
    pub switch: Switch,
    pub arbiter: Running,
    /// Timeout of the endpoints.
    pub wait: &'static str,
}

impl Lab {
    pub fn start() -> Self {
        let switch = Switch::start(&[]);
        let arbiter = arbiter(&switch, &["--slot", SLOT]);
        Self { switch, arbiter, wait: PATIENT }
    }

    /// Returns the arguments of an endpoint.
    fn command<'a>(&'a self, side: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        let common = ["--udp", &self.switch.address, "--slot", SLOT, "--timeout", self.wait];
        [&["transfer", side], &common[..], arguments].concat()
    }

    pub fn receive(&self, out: &Path, arguments: &[&str]) -> Running {
        let out = ["--out", out.to_str().expect("UTF-8 path"), "--json"];
        let command = self.command("receive", &[&out, arguments].concat());
        let mut process = Running::start_with_stderr(&mut onepipe(&command));
        // Standard output is JSON only.
        assert!(process.stderr_line().starts_with("process "));
        assert!(process.stderr_line().starts_with("ready: arbiter 1000 gives timeslots"));
        process
    }

    fn send(&self, file: &Path, arguments: &[&str]) -> Output {
        let file = [file.to_str().expect("UTF-8 path"), "--json"];
        output(&self.command("send", &[&file, arguments].concat()))
    }

    /// Starts a sender with captured standard error.
    pub fn sender(&self, file: &Path, arguments: &[&str]) -> Running {
        let file = file.to_str().expect("UTF-8 path");
        let command = self.command("send", &[&[file], arguments].concat());
        Running::start_with_stderr(&mut onepipe(&command))
    }

    /// Starts a sender of standard input, which stays open.
    pub fn pipe(&self, arguments: &[&str]) -> Running {
        let command = self.command("send", &[&["-"], arguments].concat());
        Running::start(onepipe(&command).stdin(Stdio::piped()))
    }
}

pub fn arbiter(switch: &Switch, arguments: &[&str]) -> Running {
    let command = ["arbiter", "--udp", &switch.address];
    let mut arbiter = Running::start_with_stderr(&mut onepipe(&[&command, arguments].concat()));
    assert!(arbiter.line().starts_with("arbiter "));
    arbiter
}

pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn report(process: &mut Running) -> Value {
    let line = process.line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn transfers_file_and_reports_counters() {
    let _guard = exclusive();
    let lab = Lab::start();
    for bytes in [0, 1, 300_007] {
        let folder = TempDir::new().expect("a folder");
        let (file, out) = (folder.path().join("original"), folder.path().join("out"));
        std::fs::create_dir(&out).expect("test file is written");
        std::fs::write(&file, content(bytes)).expect("test file is written");
        let mut receiver = lab.receive(&out, &[]);
        let sent = lab.send(&file, &[]);
        assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
        let (sent, received) = (json(&sent), report(&mut receiver));
        assert_eq!(receiver.status(), Some(0));
        assert_eq!((&sent["bytes"], &received["bytes"]), (&bytes.into(), &bytes.into()));
        assert_eq!((&sent["digest"], &sent["to"]), (&received["digest"], &0.into()));
        assert_eq!(
            (&received["command"], &received["from"]),
            (&"transfer receive".into(), &1.into())
        );
        assert_eq!(sent["arbiters"][0]["process"], 1000, "{sent}");
        assert!(sent["pieces"]["sent"].as_u64() >= Some(bytes as u64 / 1_472), "{sent}");
        assert!(sent["pieces"]["retransmitted"].is_u64(), "{sent}");
        assert!(sent["goodput_bits_per_s"].is_f64() && sent["control"]["sent"].is_u64(), "{sent}");
        assert_eq!(names(&out), ["original"]);
        assert!(std::fs::read(out.join("original")).expect("file exists") == content(bytes));
    }
}

#[test]
fn transfers_pipe_to_pipe() {
    let _guard = exclusive();
    let lab = Lab::start();
    let command = lab.command("receive", &["--process", "5", "--out", "-"]);
    let receiver = onepipe(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // A pipe buffers less than the file, so it is read meanwhile.
    let receiver = receiver.expect("the program starts");
    let receiver = std::thread::spawn(move || receiver.wait_with_output().expect("it exits"));
    let mut sender = lab.pipe(&["--to", "5", "--process", "6"]);
    let mut input = sender.child.stdin.take().expect("its input is piped");
    for part in content(200_000).chunks(70_000) {
        input.write_all(part).expect("write to its stdin");
    }
    drop(input);
    assert_eq!(sender.status(), Some(0));
    let received = receiver.join().expect("no panic");
    assert_eq!(received.status.code(), Some(0), "{}", errors(&received));
    assert!(received.stdout == content(200_000), "{} bytes", received.stdout.len());
}

#[test]
fn several_senders_share_one_receiver() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("test file is written");
    let file = folder.path().join("original");
    std::fs::write(&file, content(100_000)).expect("test file is written");
    let mut receiver = lab.receive(&out, &["--forever"]);
    let mut senders: Vec<Running> = ["1", "2", "3"]
        .map(|process| {
            let file = file.to_str().expect("UTF-8 path");
            let command = lab.command("send", &[file, "--process", process, "--name", process]);
            Running::start(&mut onepipe(&command))
        })
        .into();
    for sender in &mut senders {
        assert_eq!(sender.status(), Some(0));
    }
    let mut from: Vec<Value> =
        senders.iter().map(|_| report(&mut receiver)["from"].clone()).collect();
    from.sort_by_key(Value::as_u64);
    assert_eq!(from, [1, 2, 3]);
    let mut names = names(&out);
    names.sort();
    assert_eq!(names, ["1", "2", "3"]);
    assert!(names.iter().all(|name| std::fs::read(out.join(name)).ok() == Some(content(100_000))));
    receiver.signal("-INT");
    assert_eq!(receiver.status(), Some(130));
}

#[test]
fn interrupt_removes_partial_file_and_notifies_peer() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("copy");
    let is_coming = || {
        let names = names(folder.path());
        let part = names.iter().find(|name| name.starts_with("copy.onepipe-part"));
        let length = |name| std::fs::metadata(folder.path().join(name)).map_or(0, |it| it.len());
        part.is_some_and(|name| length(name) > 0)
    };
    let mut receiver = lab.receive(&out, &[]);
    let begin = |sender: &mut Running| {
        let input = sender.child.stdin.as_mut().expect("its input is piped");
        input.write_all(&content(50_000)).expect("write to its stdin");
        wait_until("a part is there", is_coming);
    };
    let mut sender = lab.pipe(&[]);
    begin(&mut sender);
    sender.signal("-INT");
    assert_eq!(sender.status(), Some(130));
    wait_until("the part is gone", || names(folder.path()).is_empty());

    // The receiver waits for another sender.
    let mut sender = lab.pipe(&["--process", "2"]);
    begin(&mut sender);
    receiver.signal("-INT");
    assert_eq!(receiver.status(), Some(130));
    assert_eq!(names(folder.path()), [""; 0]);
    assert_eq!(sender.status(), Some(1));
}

#[test]
fn existing_file_is_preserved_and_sender_notified() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    let copy = out.join("copy");
    std::fs::create_dir(&out).expect("test file is written");
    std::fs::write(&file, b"theirs").expect("test file is written");
    std::fs::write(&copy, b"mine").expect("test file is written");
    let mut receiver = lab.receive(&out, &[]);
    let name = ["--name", "copy"];
    let sent = lab.send(&file, &name);
    assert_eq!((sent.status.code(), receiver.status()), (Some(1), Some(1)));
    assert!(errors(&sent).contains("already exists"), "{}", errors(&sent));
    assert_eq!(std::fs::read(&copy).expect("file exists"), b"mine");
    for out in [&out, &copy] {
        std::fs::write(&copy, b"mine").expect("test file is written");
        let mut receiver = lab.receive(out, &["--force"]);
        assert_eq!((lab.send(&file, &name).status.code(), receiver.status()), (Some(0), Some(0)));
        assert_eq!(std::fs::read(&copy).expect("file exists"), b"theirs");
    }
}

/// An unwritable destination is rejected before data arrives, and a directory is created.
#[test]
fn checks_destination_before_receiving() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, nowhere) = (path("file"), path("no/where"));
    std::fs::write(&file, b"mine").expect("test file is written");
    let refused = |out: &str, arguments: &[&str], stderr_line: &str| {
        // No switch runs, but the command fails before it would wait for one.
        let command = ["transfer", "receive", "--udp", "127.0.0.1:1", "--out", out];
        let output = output(&[&command, arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains(stderr_line), "{}", errors(&output));
    };
    refused(&file, &[], "already exists (--force replaces it)");
    refused(&file, &["--forever", "--force"], "is not a directory");
    refused(&format!("{file}/"), &["--force"], "cannot create the directory");
    refused(&nowhere, &[], "there is no directory");
    assert_eq!(names(folder.path()), ["file"]);
    refused(&format!("{nowhere}/"), &["--wait", "200ms"], "no switch answers");
    refused(&path("in"), &["--forever", "--wait", "200ms"], "no switch answers");
    assert!(Path::new(&nowhere).is_dir() && Path::new(&path("in")).is_dir());
    refused("/dev/null", &["--forever", "--wait", "200ms"], "no switch answers");
}

/// Endpoints that have used the first arbiter, and new ones, are served by the second.
#[test]
fn transfer_survives_arbiter_failover() {
    let _guard = exclusive();
    let switch = Switch::start(&[]);
    let two = ["--slot", SLOT, "--takeover", "500ms"];
    let mut first = arbiter(&switch, &[&two[..], &["--peers", "1001"]].concat());
    assert!(first.line().starts_with("primary from timeslot "));
    let second = ["--process", "1001", "--peers", "1000", "--secondary"];
    let mut second = arbiter(&switch, &[&two[..], &second].concat());
    let lab = Lab { switch, arbiter: first, wait: PATIENT };
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("copy");
    let both = ["--arbiter", "1000,1001"];
    let mut receiver = lab.receive(&out, &both);
    let mut sender = lab.pipe(&[&both[..], &["--json"]].concat());
    let mut input = sender.child.stdin.take().expect("its input is piped");
    input.write_all(&content(50_000)).expect("write to its stdin");
    wait_until("some has come", || !names(folder.path()).is_empty());
    lab.arbiter.signal("-KILL");
    assert!(second.line().starts_with("primary from timeslot "));
    input.write_all(&content(50_000)).expect("write to its stdin");
    drop(input);
    let sent = report(&mut sender);
    assert_eq!((sender.status(), receiver.status()), (Some(0), Some(0)));
    let served = sent["arbiters"].as_array().expect("a list");
    let served: Vec<_> = served.iter().map(|arbiter| arbiter["process"].clone()).collect();
    assert_eq!(served, [1000, 1001], "{sent}");
    assert!(
        std::fs::read(&out).expect("file exists") == [content(50_000), content(50_000)].concat()
    );

    let command = lab.command("receive", &["--out", out.to_str().expect("plain"), "--force"]);
    let mut receiver = Running::start(&mut onepipe(&[&command[..], &both].concat()));
    assert!(receiver.line().starts_with("process 0 behind "));
    assert!(receiver.line().starts_with("ready: arbiter 1001 "));
    let file = folder.path().join("original");
    std::fs::write(&file, content(9_000)).expect("test file is written");
    let sent = lab.send(&file, &both);
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert_eq!(json(&sent)["arbiters"][0]["process"], 1001);
    assert_eq!(receiver.status(), Some(0));
}

/// The restarted switch has no addresses, and the waiting receiver sends keepalives only.
#[test]
fn waiting_receiver_survives_switch_restart() {
    let _guard = exclusive();
    let mut lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    std::fs::write(&file, content(50_000)).expect("test file is written");
    let mut receiver = lab.receive(&out, &[]);
    lab.switch.process.signal("-KILL");
    lab.switch.process.status();
    let address = lab.switch.address.clone();
    lab.switch = Switch::start_at(&address, &[]);
    let sent = lab.send(&file, &[]);
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert_eq!(receiver.status(), Some(0));
    assert!(std::fs::read(&out).expect("file exists") == content(50_000));
}

/// Interrupts a program. Returns its lines and the final JSON object.
fn interrupted(process: &mut Running) -> (Vec<String>, Value) {
    process.signal("-INT");
    let lines = std::iter::repeat_with(|| process.line());
    let mut lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let last = lines.pop().expect("a last line");
    (lines, serde_json::from_str(&last).unwrap_or_else(|error| panic!("{error}: {last:?}")))
}

/// One link is dead from the start, and another one was for a moment before. Timeslots are long
/// enough to be used on a busy machine.
#[test]
fn transfer_avoids_dead_link() {
    let _guard = exclusive();
    let racks = ["--rack-nodes", "1", "--paths", "4", "--json"];
    let dead = ["--lossy-link", "rack=1,path=2,after=1ms", "--lossy-link", "rack=1,path=3,for=1ms"];
    let mut switch = Switch::start(&[&racks[..], &dead].concat());
    let mut arbiter = arbiter(&switch, &[&racks[..], &["--slot", "5ms"]].concat());
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("copy"));
    std::fs::write(&file, content(300_000)).expect("test file is written");
    let [file, to] = [&file, &out].map(|path| path.to_str().expect("UTF-8 path"));
    let common = ["--udp", &switch.address, "--slot", "5ms", "--timeout", "60s"];
    let receive = [&["transfer", "receive", "--out", to], &common[..]].concat();
    let mut receiver = Running::start(&mut onepipe(&receive));
    assert!(receiver.line().starts_with("process "));
    assert!(receiver.line().starts_with("ready: "));
    let sent = output(&[&["transfer", "send", file], &common[..]].concat());
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert_eq!(receiver.status(), Some(0));
    assert!(std::fs::read(&out).expect("file exists") == content(300_000));

    let (_, report) = interrupted(&mut arbiter);
    // Two racks: what goes up from one comes down to the other.
    let log = std::iter::repeat_with(|| arbiter.stderr_line());
    let log: Vec<String> = log.take_while(|line| !line.is_empty()).collect();
    let named = log.iter().find(|line| line.contains(" avoids the link of rack "));
    assert!(named.is_some_and(|line| line.ends_with(" to path 2")), "{log:?} {report}");
    assert!(report["faults_found"].as_u64() >= Some(1), "{report}");
    assert!(report["packets_lost"].as_u64() >= Some(6), "{report}");
    assert!(report["avoided"].is_array(), "{report}");
    let (_, counters) = interrupted(&mut switch.process);
    let of = |path: u64, what: &str| {
        let links = counters["racks"]["links"].as_array().expect("a list");
        let link = links.iter().find(|link| {
            (link["rack"].as_u64(), link["path"].as_u64()) == (Some(1), Some(path))
                && link["direction"] == "up"
        });
        link.and_then(|link| link[what].as_u64()).expect("link counters")
    };
    assert!(of(2, "lost") >= 6 && of(2, "lost") == of(2, "frames"), "{counters}");
    assert!(of(3, "lost") == 0 && of(3, "frames") > of(2, "frames"), "{counters}");
    assert_eq!(counters["racks"]["frames_without_path"], 0);
}

#[test]
fn rejects_invalid_arguments() {
    let refused = |arguments: &[&str], status, stderr_line: &str| {
        let output = output(&[&["transfer"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(stderr_line), "{arguments:?}: {}", errors(&output));
    };
    refused(&[], 2, "onepipe transfer");
    refused(&["send"], 2, "<FILE>");
    refused(&["send", "/nowhere"], 1, "cannot read /nowhere");
    refused(&["send", "/"], 1, "cannot send /: it is a directory");
    refused(&["send", "x", "--to", "64"], 2, "--to 64 is not an endpoint: endpoints are 0 to 63");
    refused(&["send", "x", "--to", "1"], 2, "--to 1 is this process itself");
    refused(
        &["receive", "--process", "70"],
        2,
        "--process 70 is not an endpoint: endpoints are 0 to 63",
    );
    refused(&["receive", "--nodes", "5000"], 2, "5000 is not in 2..=4096");
    refused(&["receive", "--arbiter", "63"], 2, "--arbiter 63 is the id of an endpoint");
    refused(&["receive", "--arbiter", "1000,1000"], 2, "--arbiter names 1000 twice");
    refused(&["receive", "--arbiter", "91,92,93,94,95,96,97,98,99"], 2, "names 9: at most 8");
    refused(&["receive", "--slot", "1ns"], 2, "a full frame takes 10ns to 1s");
    refused(&["receive", "--slot", "100"], 2, "has no unit");
    refused(&["receive", "--udp", "nowhere"], 2, "nowhere");
    refused(&["send", "/etc/passwd", "--name", "\x1b[2J"], 1, "it contains control characters");
    refused(&["receive", "--out", "-", "--forever"], 2, "takes one file");
}
