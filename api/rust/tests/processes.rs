//! Real processes: one is killed, the others go on and agree; it rejoins under its id.

mod harness;

use std::process::{Child, Command, Stdio};

use harness::{DEADLINE, fabric, message, number, process, to};
use onepipe::{Event, Link, Message, Pipe, ProcessId};

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
    let name = fabric("killed");
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
