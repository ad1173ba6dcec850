//! `onepipe transfer` where an end, or what is between them, dies or does what it should not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onepipe::{ProcessId, Transfer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::Switch;
use crate::program::{Beside, alone, errors, output, wait_until};
use crate::transfer::{Lab, arbiter, content, names};

/// A file that takes so long to send that what comes of it is decided meanwhile.
fn long(folder: &Path) -> PathBuf {
    let path = folder.join("long");
    let file = std::fs::File::create(&path).expect("there is room");
    file.set_len(1 << 30).expect("it takes none");
    path
}

/// Waits until a part of it is written.
fn is_coming(out: &Path) {
    wait_until("some has come", || {
        let parts = std::fs::read_dir(out).expect("a folder").flatten();
        parts.into_iter().any(|part| part.metadata().is_ok_and(|part| part.len() > 0))
    });
}

#[test]
fn a_receiver_hears_at_once_that_its_sender_was_interrupted() {
    let _turn = alone();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("there is room");
    let mut receiver = lab.receive(&out, &[]);
    let mut sender = lab.sender(&long(folder.path()), &[]);
    is_coming(&out);
    // Much is on its way now, and what is said behind it would not be heard.
    sender.signal("-INT");
    assert_eq!(sender.status(), Some(130));
    let heard = receiver.complaint();
    assert!(heard.contains("the file of process 1: its sender was interrupted"), "{heard}");
    assert_eq!(names(&out), [""; 0]);
}

/// Who dies in the middle, when all had answered until then.
#[test]
fn who_dies_in_the_middle_is_named() {
    let turn = alone();
    let dies = |kill: fn(&Lab, &Beside), complaints: &[&str]| {
        let lab = Lab { wait: "6s", ..Lab::start() };
        let folder = TempDir::new().expect("a folder");
        let out = folder.path().join("out");
        std::fs::create_dir(&out).expect("there is room");
        let receiver = lab.receive(&out, &[]);
        let mut sender = lab.sender(&long(folder.path()), &[]);
        is_coming(&out);
        kill(&lab, &receiver);
        let heard = sender.complaint();
        for complaint in complaints {
            assert!(heard.contains(complaint), "{complaint:?} is not in {heard}");
        }
        assert_eq!(sender.status(), Some(1));
        receiver
    };
    let mut receiver = dies(
        |lab, _| lab.arbiter.signal("-KILL"),
        &["gave up after", "arbiter 1000 answered until ", "no arbiter does any more"],
    );
    dies(|lab, _| lab.arbiter.signal("-STOP"), &["arbiter 1000 answered until "]);
    dies(|lab, _| lab.switch.beside.signal("-KILL"), &["nobody listens at 127.0.0.1:"]);
    dies(
        |_, receiver| receiver.signal("-KILL"),
        &["process 0 does not answer, though arbiter 1000 gives timeslots"],
    );
    // It was told nothing, as nobody is left by whom; and does not take the sender for dead.
    drop(turn);
    let heard = receiver.complaint();
    assert!(heard.contains("it has said nothing for 30 s: nobody listens"), "{heard}");
}

/// A process that was stopped for longer than it waits for others has not waited.
#[test]
fn who_was_stopped_for_long_goes_on() {
    let _turn = alone();
    let lab = Lab { wait: "8s", ..Lab::start() };
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    std::fs::create_dir(&out).expect("there is room");
    std::fs::write(&file, content(16 << 20)).expect("there is room");
    let mut receiver = lab.receive(&out, &[]);
    let mut sender = lab.sender(&file, &[]);
    is_coming(&out);
    sender.signal("-STOP");
    std::thread::sleep(Duration::from_secs(9));
    sender.signal("-CONT");
    assert_eq!(sender.status(), Some(0), "{}", sender.complaint());
    assert_eq!(receiver.status(), Some(0));
}

/// Half of what it was and half of what it is now is no file.
#[test]
fn a_file_that_is_written_to_while_it_is_sent_is_given_up_at_both_ends() {
    let _turn = alone();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let (file, out) = (folder.path().join("original"), folder.path().join("out"));
    std::fs::create_dir(&out).expect("there is room");
    let bytes: u64 = 4 << 20;
    for now in [0, bytes / 2, bytes + 1] {
        std::fs::write(&file, content(bytes as usize)).expect("there is room");
        // Nobody receives it yet, so most of it is not read.
        let mut sender = lab.sender(&file, &[]);
        sender.listens_to_interrupts();
        let changed = std::fs::File::options().write(true).open(&file);
        changed.and_then(|file| file.set_len(now)).expect("there is room");
        let mut receiver = lab.receive(&out, &[]);
        let why = format!("original had {bytes} bytes, and has other ones now");
        let heard = sender.complaint();
        assert!(heard.contains(&why), "{heard}");
        assert_eq!(sender.status(), Some(1));
        let heard = receiver.complaint();
        assert!(heard.contains(&why), "{heard}");
        assert_eq!(names(&out), [""; 0]);
    }
}

/// Who sends need not be this program: what it says is judged.
#[test]
fn a_receiver_takes_nothing_that_does_not_fit_what_was_announced() {
    let _turn = alone();
    let lab = Lab::start();
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("there is room");
    let mut receiver = lab.receive(&out, &["--forever"]);
    let end = Transfer::builder().switch(&lab.switch.address).process(3);
    let end = end.slot(Duration::from_micros(200)).open().expect("it needs nobody");
    let say = |file: u32, word: Value, bytes: &[u8]| {
        let line = json!({ "version": 1, "file": file, "word": word }).to_string();
        let object = [line.as_bytes(), b"\n", bytes].concat();
        let sent = end.send(ProcessId(0), object).expect("there is room");
        assert_eq!(sent.wait(Duration::from_secs(60)), Some(Ok(())));
    };
    let mut judged = |complaint: &str| {
        let heard = receiver.complaint();
        assert!(heard.contains(complaint) && !heard.contains('\x1b'), "{heard}");
    };
    let begin = |name: &str| json!({ "Begin": { "name": name, "bytes": 10 } });
    let chunk = json!({ "Chunk": { "offset": 0 } });

    say(1, begin("shorter"), b"");
    say(1, chunk.clone(), b"12345");
    say(1, json!({ "End": { "bytes": 5, "digest": "" } }), b"");
    judged("process 3: 5 bytes came of 10");
    say(2, begin("longer"), b"");
    say(2, chunk, b"1234567890a");
    judged("process 3: more bytes come than it was to have");
    say(3, begin("\x1b[2J"), b"");
    judged("process 3: \"\\u{1b}[2J\" is no name: it has control characters");
    say(4, begin("given up"), b"");
    say(4, json!({ "Failed": { "why": "\x1b[2J" } }), b"");
    judged("nothing comes of the file of process 3: ");
    assert_eq!(names(&out), [""; 0]);
}

/// Whoever has a number that another one has, too, is told of it.
#[test]
fn two_processes_of_one_number_are_named() {
    let _turn = alone();
    let lab = Lab { wait: "15s", ..Lab::start() };
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("there is room");
    let file = long(folder.path());
    let mut receiver = lab.receive(&out, &["--forever"]);
    let mut first = lab.sender(&file, &[]);
    is_coming(&out);
    let mut second = lab.sender(&file, &["--name", "other"]);
    let heard = receiver.complaint();
    assert!(heard.contains("is another one process 1, too?"), "{heard}");
    second.signal("-INT");
    assert_eq!(second.status(), Some(130));
    // It is told, or nothing comes of it any more, as what is for process 1 came to the other one.
    let heard = first.complaint();
    assert!(heard.contains("is another one process 1, too?"), "{heard}");
    assert_eq!(first.status(), Some(1));

    let mut sender = lab.sender(&file, &["--process", "2", "--name", "third"]);
    wait_until("it is coming", || names(&out).iter().any(|name| name.starts_with("third.")));
    let _other = lab.receive(&out, &["--forever"]);
    let heard = sender.complaint();
    assert!(heard.contains("another one is process 0, too"), "{heard}");
    assert_eq!(sender.status(), Some(1));
}

/// Whoever is not there is named, with what was asked of whom, after a bounded time.
#[test]
fn who_does_not_answer_is_named() {
    let _turn = alone();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("original");
    std::fs::write(&file, b"x").expect("there is room");
    let file = file.to_str().expect("a plain path");
    let gives_up = |side: &[&str], udp: &str, arguments: &[&str], complaints: &[&str]| {
        let place = ["--udp", udp, "--wait", "3s"];
        let output = output(&[&["transfer"], side, &place, arguments].concat());
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for complaint in complaints {
            assert!(errors.contains(complaint), "{complaint:?} is not in {errors}");
        }
    };
    let (send, receive) = (["send", file], ["receive"]);
    // A port that was somebody's a moment ago.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let nobody = nobody.expect("an address").to_string();
    gives_up(&send, &nobody, &[], &[&format!("nobody listens at {nobody}"), "process 1"]);

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
