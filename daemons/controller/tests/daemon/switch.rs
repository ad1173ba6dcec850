//! A controller behind a switch, among processes that die.

use onepipe_daemon_controller::{Attachment, Report};

use crate::fabric::{process, switch};
use crate::harness::{Replica, TIMEOUT, config, is};

fn are_up(report: &Report, mut processes: impl Iterator<Item = u32>) -> bool {
    processes.all(|id| is(report, &format!("process {id}"), "up"))
}

#[test]
fn dead_process_failure_outlives_the_controller() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("log");
    let (_switch, address) = switch();
    let attachment = Attachment::Switch(address);
    let mut processes: Vec<_> = (0..4).map(|id| process(address, id)).collect();
    let replica = Replica::start(&config(attachment.clone(), 6), &store);
    let report = replica.until("all up", |report| are_up(report, 0..4) && report.epoch == Some(1));
    assert_eq!(report.attachments.len(), 1, "the switch");

    processes.pop();
    let report = replica.until("decided and recovered", |report| {
        report.failures.len() == 1 && report.open.is_empty() && report.frozen.is_empty()
    });
    let failure = report.failures[0].clone();
    assert!(failure.name == "process 3" && failure.is_exact, "{failure:?}");
    let counter = |name: &str| report.counters[name];
    assert_eq!((counter("failures"), counter("inexact"), counter("partitions")), (1, 0, 0));

    // Another replica knows the failure, and decides about others.
    drop(replica);
    let other = Replica::start(&config(attachment, 7), &store);
    let report = other.until("active and the processes up", |report| {
        are_up(report, 0..3) && report.epoch == Some(2)
    });
    assert_eq!(report.failures, [failure], "decisions are final");
    processes.pop();
    let report = other.until("decided and recovered", |report| {
        report.failures.len() == 2 && report.open.is_empty() && report.frozen.is_empty()
    });
    assert_eq!(report.failures[1].name, "process 2");
    assert!(are_up(&report, 0..2));
}

#[test]
fn isolated_replica_resigns_to_a_connected_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("log");
    let (switch_of_one, address) = switch();
    let mut first = config(Attachment::Switch(address), 6);
    first.machine.isolated_after_ns = 300_000_000;
    first.resign_pause = TIMEOUT;
    let one = Replica::start(&first, &store);
    one.until("active and attached", |report| {
        report.epoch == Some(1) && report.attachments.len() == 1
    });
    let (_switch_of_other, address) = switch();
    let other = Replica::start(&config(Attachment::Switch(address), 7), &store);
    drop(switch_of_one);
    other.until("active and attached", |report| {
        report.epoch == Some(2) && report.attachments.len() == 1
    });
    assert_eq!(one.report().epoch, None);
}
