//! A replica goes on from its image, and from records after it.

use crate::fabric::registers::Registers;
use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{
    Answer, ImageHeader, Members, Record, Replica, ReplicaOptions, Reply, Request, RequestKind,
};

const CLIENT: ProcessId = ProcessId(7);
const OTHER: ProcessId = ProcessId(1);

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn replica() -> Replica<Registers> {
    Replica::new(0, Registers::default(), ReplicaOptions { is_durable: true })
}

fn request(kind: RequestKind, number: u64, parts: &[(u16, &[u8])]) -> Vec<u8> {
    let (session, attempt, finished, view) = (5, 0, 0, None);
    let parts = parts.to_vec();
    let mut bytes = Vec::new();
    Request { kind, session, number, attempt, finished, view, parts }.write(&mut bytes);
    bytes
}

/// Delivers a write, and returns its record if it is executed.
fn write(replica: &mut Replica<Registers>, ns: u64, number: u64) -> Option<Record> {
    let payload = request(RequestKind::Write, number, &[(0, &[1, 2])]);
    replica.on_message(true, at(ns), CLIENT, &payload);
    replica.poll_record()
}

fn is_outdated(replica: &mut Replica<Registers>) -> bool {
    let reply = replica.poll_reply().expect("an answer");
    matches!(Reply::parse(&reply.payload).expect("a reply").answer, Answer::Outdated(_))
}

#[test]
fn goes_on_after_an_image_and_records() {
    let mut before = replica();
    for number in 0..3 {
        write(&mut before, 10 + number, number).expect("it is new");
    }
    let mut image = Vec::new();
    assert_eq!((before.save(&mut image), before.recorded()), (3, 3));
    let position = Some((at(12), CLIENT));
    let header = ImageHeader { shard: 0, number: 3, position, members: Members::default() };
    assert_eq!(ImageHeader::parse(&image), Some(header));
    let record = write(&mut before, 20, 3).expect("it is new");

    let mut restarted = replica();
    assert!(restarted.load(&image));
    restarted.replay(&record);
    assert_eq!(restarted.state(), before.state());
    assert_eq!(restarted.recorded(), 4);
    assert_eq!(restarted.executed_position(), Some((at(20), CLIENT)));
    assert!(!Replica::new(1, Registers::default(), ReplicaOptions::default()).load(&image));
}

#[test]
fn clients_and_members_of_the_previous_run_are_dropped() {
    let mut before = replica();
    write(&mut before, 10, 0).expect("it is new");
    // Another process is admitted: writes of clients that do not know of it are refused.
    before.on_message(true, at(15), OTHER, &request(RequestKind::Admit, 1, &[]));
    assert_eq!(write(&mut before, 20, 1), None);
    let mut image = Vec::new();
    before.save(&mut image);

    let mut restarted = replica();
    assert!(restarted.load(&image));
    assert_eq!(write(&mut restarted, 30, 2), None);
    assert!(is_outdated(&mut restarted));
    let mut with_sessions = Vec::new();
    restarted.save(&mut with_sessions);
    restarted.begin_run(Members::of_run(1, true, std::iter::empty()));
    let mut without = Vec::new();
    restarted.save(&mut without);
    assert!(without.len() < with_sessions.len(), "sessions take space");
    write(&mut restarted, 40, 3).expect("no admission of this run precedes it");
}

#[test]
fn stored_below_excludes_what_may_be_lost() {
    let mut replica = replica();
    assert_eq!(replica.stored_below(), None);
    // A shard without writes goes with its barrier.
    replica.on_barrier(at(5));
    assert_eq!(replica.stored_below(), Some(at(5)));
    for (ns, number) in [(10, 0), (10, 1), (12, 2)] {
        write(&mut replica, ns, number).expect("it is new");
    }
    replica.on_barrier(at(20));
    assert_eq!(replica.stored_below(), Some(at(10)));
    // The second write at the same timestamp may be lost.
    replica.on_stored(1);
    assert_eq!(replica.stored_below(), Some(at(10)));
    replica.on_stored(2);
    assert_eq!(replica.stored_below(), Some(at(12)));
    // Written is not stored, and answered all the same.
    while replica.poll_reply().is_some() {}
    replica.on_written(3);
    assert!(replica.poll_reply().is_some());
    assert_eq!(replica.stored_below(), Some(at(12)));
    replica.on_stored(3);
    assert_eq!(replica.stored_below(), Some(at(20)));
}
