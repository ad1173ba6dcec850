//! Real processes: one is killed, the others go on and agree; it rejoins under its id.

#[path = "api/harness/mod.rs"]
mod harness;

use std::process::{Child, Command, Stdio};

use harness::{DEADLINE, fabric, message, number, process, to};
use onepipe::{
    EmbeddedPipe, Event, LeaveError, Link, Message, Pipe, ProcessId, ReceiveError, SendError,
};

/// Set in a child process that sends: `fabric process`.
const ROLE: &str = "ONEPIPE_TEST_TALKER";
const RECEIVERS: [u32; 2] = [0, 1];
const SENDER: u32 = 2;

/// Runs the child process: sends numbers to all receivers until it is killed.
fn send_forever(role: &str) {
    let (fabric, id) = role.split_once(' ').expect("the parent has set it");
    let mut pipe = process(fabric, id.parse().expect("a number")).join().expect("the id is free");
    assert!(pipe.wait_for_peers(RECEIVERS.len(), DEADLINE));
    for number in 0u64.. {
        let payload = number.to_be_bytes();
        let messages: Vec<Message<'_>> = RECEIVERS.map(|id| to(id, &payload)).into();
        pipe.scatter_wait(&messages, DEADLINE).expect("the receivers read");
        pipe.poll(|_| {});
    }
}

struct Sender(Child);

impl Sender {
    fn start(test: &str, fabric: &str) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, format!("{fabric} {SENDER}"))
            .stdout(Stdio::null())
            .spawn()
            .expect("this test can start itself");
        Self(child)
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Sender {
    /// The process never ends by itself, also when an assertion has failed here.
    fn drop(&mut self) {
        self.0.kill().expect("the process is a child");
        self.0.wait().expect("the process is a child");
    }
}

/// Receives until the process is reported dead; returns its numbers.
fn until_lost(pipe: &mut Pipe) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::Message(m)) => numbers.push(number(&m)),
            Some(Event::LinkLost(Link::Process(lost))) => {
                assert_eq!(lost, ProcessId(SENDER));
                return numbers;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn killed_process_stalls_no_other_and_may_return() {
    if let Ok(role) = std::env::var(ROLE) {
        return send_forever(&role);
    }
    let name = fabric("killed-sender");
    let mut pipes: Vec<Pipe> =
        RECEIVERS.map(|id| process(&name, id).join().expect("the id is free")).into();
    for round in 0..3u64 {
        let sender = Sender::start("killed_process_stalls_no_other_and_may_return", &name);
        for pipe in &mut pipes {
            // Make sure that it is sending.
            for expected in 0..100 {
                assert_eq!(number(&message(pipe)), expected, "of round {round}");
            }
        }
        sender.kill();
        // What it had published is delivered in order without a gap; receivers may differ at the
        // end.
        for pipe in &mut pipes {
            let numbers = until_lost(pipe);
            assert!(numbers.iter().copied().eq(100..100 + numbers.len() as u64));
        }
        let payload = round.to_be_bytes();
        pipes[0].scatter(&RECEIVERS.map(|id| to(id, &payload))).expect("there is capacity");
        for pipe in &mut pipes {
            let m = message(pipe);
            assert_eq!((m.from, number(&m)), (ProcessId(0), round), "the others go on");
            assert_eq!(pipe.peers().len(), 1);
        }
        pipes[1].scatter(&[to(1, b"i am"), to(0, b"still here")]).expect("there is capacity");
        assert_eq!(message(&mut pipes[0]).payload, b"still here");
        assert_eq!(message(&mut pipes[1]).payload, b"i am");
    }
    for pipe in &mut pipes {
        pipe.leave().expect("the survivors know everything of each other");
    }
    let left = std::fs::read_dir("/dev/shm").expect("/dev/shm is available");
    let names = left.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(names.filter(|file| file.contains(&name)).count(), 0, "nothing is left behind");
}

#[test]
fn stopped_process_keeps_its_id_until_killed() {
    if let Ok(role) = std::env::var(ROLE) {
        return send_forever(&role);
    }
    let name = fabric("stopped");
    let mut pipes: Vec<Pipe> =
        RECEIVERS.map(|id| process(&name, id).join().expect("the id is free")).into();
    let sender = Sender::start("stopped_process_keeps_its_id_until_killed", &name);
    message(&mut pipes[0]);
    message(&mut pipes[1]);
    // It is alive, but does not run.
    let stopped = Command::new("kill").args(["-STOP", &sender.0.id().to_string()]).status();
    assert!(stopped.expect("there is a kill command").success());
    let error =
        process(&name, SENDER).join().map(drop).expect_err("the process still holds its id");
    assert!(error.to_string().contains(&format!("pid {}", sender.0.id())));
    sender.kill();
    for pipe in &mut pipes {
        until_lost(pipe);
    }
    process(&name, SENDER).join().expect("the id of a dead process is free");
}

/// The exit status of a child process that was notified of the error.
const REPORTED: i32 = 3;

/// Runs the child process: receives until the pipe ends with an error.
fn receive_until_error(role: &str) -> ! {
    let (fabric, id) = role.split_once(' ').expect("the parent has set it");
    let mut pipe = process(fabric, id.parse().expect("a number")).join().expect("the id is free");
    loop {
        match pipe.recv() {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, ReceiveError::SegmentLost(_)), "{error}");
                std::process::exit(REPORTED);
            }
        }
    }
}

//= spec/ordering.md#R84
#[test]
fn shortened_segment_ends_every_pipe_with_an_error() {
    let test = "shortened_segment_ends_every_pipe_with_an_error";
    if let Ok(role) = std::env::var(ROLE) {
        receive_until_error(&role);
    }
    let name = fabric("shortened");
    let join = |id| process(&name, id).join().expect("the id is free");
    let (mut caller_driven, mut thread_driven) = (join(0), join(1));
    let mut embedded: EmbeddedPipe = process(&name, 2).embedded().expect("the id is free");
    let (sender, events) = std::sync::mpsc::channel();
    thread_driven.on_message(move |event| _ = sender.send(event == Event::SegmentLost));
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, format!("{name} 3"))
        .stdout(Stdio::null())
        .spawn()
        .expect("this test can start itself");
    assert!(caller_driven.wait_for_peers(3, DEADLINE));

    let files = std::fs::read_dir("/dev/shm").expect("/dev/shm is available").flatten();
    let mut paths = files.map(|file| file.path());
    let path = paths.find(|path| path.to_string_lossy().ends_with(&format!("-{name}")));
    let path = path.expect("the segment has a name");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file exists");
    file.set_len(0).expect("the file belongs to this user");

    let status = child.wait().expect("the process is a child");
    assert_eq!(status.code(), Some(REPORTED), "{status}");

    assert_eq!(caller_driven.recv_timeout(DEADLINE), Some(Event::SegmentLost));
    let Err(ReceiveError::SegmentLost(lost)) = caller_driven.recv() else { panic!("it was lost") };
    assert_eq!(lost.path, path);
    assert_eq!(caller_driven.scatter(&[to(1, b"too late")]), Err(SendError::Left));
    assert_eq!(caller_driven.leave(), Err(LeaveError::SegmentLost(lost.clone())));

    let mut is_lost = false;
    while !is_lost {
        is_lost = events.recv_timeout(DEADLINE).expect("the callback gets the event");
    }
    assert_eq!(thread_driven.leave(), Err(LeaveError::SegmentLost(lost.clone())));

    let began = std::time::Instant::now();
    let mut is_lost = false;
    while !is_lost {
        let progress = embedded.poll(|event| is_lost |= event == Event::SegmentLost);
        embedded.rest(progress);
        assert!(began.elapsed() < DEADLINE, "the event is reported");
    }
    assert_eq!(embedded.leave(|_| {}), Err(LeaveError::SegmentLost(lost)));
    assert!(!path.exists(), "the last to leave removes the segment");
}
