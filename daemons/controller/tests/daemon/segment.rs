//! A controller in shared memory, among processes that are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use onepipe_daemon_controller::Attachment;

use crate::fabric::process_in;
use crate::harness::{Replica, config, is};

const VICTIM: &str = "segment::killed_process_failure_outlives_the_controller";
/// Names the fabric that the child is to join.
const FABRIC: &str = "ONEPIPE_TEST_FABRIC";

/// A child process that has joined as process 3, and does nothing more.
struct Victim(Child);

impl Victim {
    fn start(fabric: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", VICTIM, "--nocapture"])
            .env(FABRIC, fabric)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can start itself");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let joined = lines.map_while(Result::ok).find(|line| line.contains("joined"));
        assert!(joined.is_some(), "the child has ended");
        Self(child)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn be_a_victim(fabric: &str) -> ! {
    let _process = process_in(fabric, 3);
    println!("joined");
    loop {
        std::thread::park();
    }
}

#[test]
fn killed_process_failure_outlives_the_controller() {
    if let Ok(fabric) = std::env::var(FABRIC) {
        be_a_victim(&fabric);
    }
    let fabric = format!("test-{}-killed", std::process::id());
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("log");
    let attachment = Attachment::Segment(fabric.clone());
    let processes: Vec<_> = (0..3).map(|id| process_in(&fabric, id)).collect();
    let victim = Victim::start(&fabric);
    let replica = Replica::start(&config(attachment.clone(), 6), &store);
    replica.until("all up", |report| {
        (0..4).all(|id| is(report, &format!("process {id}"), "up")) && report.epoch == Some(1)
    });
    drop(victim);
    let report = replica.until("decided and recovered", |report| {
        report.failures.len() == 1 && report.open.is_empty() && report.frozen.is_empty()
    });
    let failure = report.failures[0].clone();
    assert!(failure.name == "process 3" && failure.is_exact, "{failure:?}");
    let counter = |name: &str| report.counters[name];
    assert_eq!((counter("failures"), counter("inexact"), counter("partitions")), (1, 0, 0));

    drop(replica);
    let other = Replica::start(&config(attachment, 7), &store);
    let report = other.until("active", |report| report.epoch == Some(2));
    assert_eq!(report.failures, [failure], "decisions are final");
    other.until("the others up", |report| {
        (0..3).all(|id| is(report, &format!("process {id}"), "up"))
    });
    drop(processes);
}
