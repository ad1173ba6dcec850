//! Receivers over UDP or an overlay that were killed, stopped, or never joined. Reliable
//! scatterings end although no controller is there.

#[path = "api/harness/mod.rs"]
mod harness;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::switch::{Running, process};
use harness::{DEADLINE, message, to};
use onepipe::{Builder, Event, FailureReason, Outcome, Pipe, ProcessId, SendFailed};
use onepipe_daemon_switch::Controllers;

/// Set in a child process: the address of the switch, or "overlay " and that of the aggregator.
const ROLE: &str = "ONEPIPE_TEST_RECEIVER";
const GIVE_UP_NS: u64 = 500_000_000;
const CHILD: u32 = 2;
const ABSENT: u32 = 5;

/// Joins in the child process.
fn join_child(role: &str) -> Pipe {
    let builder = Pipe::builder().process(CHILD).processes(8);
    let builder = match role.strip_prefix("overlay ") {
        Some(address) => builder.overlay(address),
        None => builder.udp(role),
    };
    builder.join().expect("the switch is there")
}

/// Runs the child process: sends a message to process 0, and receives until it is killed.
fn receive_forever(role: &str) {
    let mut pipe = join_child(role);
    pipe.scatter_reliably(&[to(0, b"hello")]).expect("there is capacity");
    while pipe.recv().is_ok() {}
}

/// Runs the child process: returns each best-effort message to its sender until it is killed.
fn return_forever(role: &str) {
    let mut pipe = join_child(role);
    while let Ok(event) = pipe.recv() {
        if let Some(message) = event.message() {
            pipe.scatter(&[to(message.from.0, &message.payload)]).expect("there is capacity");
        }
    }
}

struct Receiver(Child);

impl Receiver {
    /// Runs `test` in a child process with this role.
    fn start(test: &str, role: &str) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this test can start itself"))
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.expect("kill is installed").success());
    }

    /// Stops the process, and waits until each of its threads is stopped.
    fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.0.id());
        let is_running = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
            !stat.expect("its state").contains(") T ")
        };
        while std::fs::read_dir(&tasks).expect("the process runs").any(is_running) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.kill().expect("the process is a child");
        self.0.wait().expect("the process is a child");
    }
}

fn join(builder: Builder) -> Pipe {
    let builder = builder.tune(|config| config.give_up_after_ns = GIVE_UP_NS);
    builder.join().expect("the switch is there")
}

/// Receives `count` reports of failed messages, in the order of their receivers.
fn failures(pipe: &mut Pipe, count: usize) -> Vec<(u32, Outcome, FailureReason)> {
    let mut all = Vec::new();
    while all.len() < count {
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::SendFailed(SendFailed { to, outcome, reason, .. })) => {
                all.push((to.0, outcome, reason));
            }
            other => panic!("{other:?}"),
        }
    }
    all.sort_by_key(|(to, ..)| *to);
    all
}

/// Sends to a child process of this role, which is killed, and to a process that has never joined.
fn receivers_are_given_up(test: &str, role: &str, process: impl Fn(u32) -> Builder) {
    let (mut zero, mut one) = (join(process(0)), join(process(1)));
    let child = Receiver::start(test, role);
    assert_eq!(message(&mut zero).payload, b"hello");
    zero.scatter_reliably(&[to(1, b"all"), to(CHILD, b"all")]).expect("there is capacity");
    assert_eq!(message(&mut one).payload, b"all");
    drop(child);
    let began = Instant::now();
    zero.scatter_reliably(&[to(1, b"torn"), to(CHILD, b"torn")]).expect("there is capacity");
    zero.scatter_reliably(&[to(1, b"behind it")]).expect("there is capacity");
    let open = zero.open_scatterings();
    assert!(open[0].timestamp.is_some() && open[0].receivers.iter().any(|to| to.0 == CHILD));
    let failed = |to, outcome| (to, outcome, FailureReason::NoController);
    let expected = [failed(1, Outcome::Lost), failed(CHILD, Outcome::Unknown)];
    assert_eq!(failures(&mut zero, 2), expected);
    // The time since the last request before the scattering may count.
    assert!(began.elapsed() >= Duration::from_nanos(GIVE_UP_NS / 2), "it may still answer");
    assert_eq!(message(&mut one).payload, b"behind it");
    zero.scatter_reliably(&[to(1, b"half"), to(ABSENT, b"half")]).expect("there is capacity");
    let lost = |to| (to, Outcome::Lost, FailureReason::NeverJoined);
    assert_eq!(failures(&mut zero, 2), [lost(1), lost(ABSENT)]);
    assert!(zero.open_scatterings().is_empty());
    assert_eq!(one.recv_timeout(Duration::from_millis(50)), None);
}

//= spec/failure.md#R55
//= spec/failure.md#R56
#[test]
fn killed_and_absent_receivers_are_given_up() {
    if let Ok(role) = std::env::var(ROLE) {
        return receive_forever(&role);
    }
    let switch = Running::start("127.0.0.1:0");
    let test = "killed_and_absent_receivers_are_given_up";
    receivers_are_given_up(test, &switch.address.to_string(), |id| process(&switch, id));
}

//= spec/failure.md#R55
//= spec/failure.md#R56
#[test]
fn receivers_in_an_overlay_are_given_up() {
    if let Ok(role) = std::env::var(ROLE) {
        return receive_forever(&role);
    }
    let aggregator = Running::start_with("127.0.0.1:0", |config| config.above = "aggregator");
    let role = format!("overlay {}", aggregator.address);
    receivers_are_given_up("receivers_in_an_overlay_are_given_up", &role, |id| {
        process(&aggregator, id).overlay(aggregator.address)
    });
}

/// Sends until the child process has returned a message.
fn until_returned(pipe: &mut Pipe) {
    loop {
        let sent = pipe.scatter(&[to(CHILD, b"hello")]).expect("there is capacity");
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::Message(_)) => return,
            Some(Event::SendFailed(failed)) => assert_eq!(failed.scattering, sent),
            other => panic!("{other:?}"),
        }
    }
}

//= spec/ordering.md#R27
/// A receiver that is stopped for half of the link timeout delivers what it was sent: its sender
/// asks again. A sender that does not ask for as long reports an unknown outcome.
#[test]
fn message_to_a_stopped_receiver_is_delivered() {
    if let Ok(role) = std::env::var(ROLE) {
        return return_forever(&role);
    }
    let switch = Running::start_with("127.0.0.1:0", |config| {
        config.link_timeout_ns = 5_000_000_000;
        // They are not needed for best effort, and decide how long outcomes are asked for.
        config.controllers = Some(Controllers { first: ProcessId(7), count: 1 });
    });
    let join = |id| Pipe::builder().process(id).udp(switch.address);
    let mut zero = join(0).join().expect("the switch is there");
    let hasty = join(1).tune(|config| config.unknown_after_ns = 0);
    let mut hasty = hasty.join().expect("the switch is there");
    assert_eq!(zero.config().unknown_after_ns, 60_000_000_000, "the terms name controllers");
    let role = switch.address.to_string();
    let child = Receiver::start("message_to_a_stopped_receiver_is_delivered", &role);
    until_returned(&mut zero);
    until_returned(&mut hasty);
    child.stop();
    zero.scatter(&[to(CHILD, b"asleep")]).expect("there is capacity");
    hasty.scatter(&[to(CHILD, b"hasty")]).expect("there is capacity");
    assert_eq!(zero.recv_timeout(Duration::from_millis(2_500)), None);
    assert_eq!(failures(&mut hasty, 1), [(CHILD, Outcome::Unknown, FailureReason::NoAnswer)]);
    child.signal("-CONT");
    assert_eq!(message(&mut zero).payload, b"asleep");
}
