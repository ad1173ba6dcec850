//! What a replica that catches up gets from its peer, and when it serves.

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, ImageHeader, Placement, Replica, ReplicaOptions, Request, RequestKind,
};

use crate::fabric::registers::Registers;

const PEER: ProcessId = ProcessId(0);
const RETURNING: ProcessId = ProcessId(1);
const CLIENT: ProcessId = ProcessId(2);
const TIMEOUT_NS: u64 = 1_000;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn peer(is_durable: bool) -> Replica<Registers> {
    let mut peer = Replica::new(0, Registers::default(), ReplicaOptions { is_durable });
    peer.on_process_ended(RETURNING, at(10));
    peer
}

fn returning(session: u64, retained_bytes_max: usize) -> Replica<Registers> {
    let placement = Placement::consecutive(0, 1, 2).expect("two replicas");
    let options = ReplicaOptions { is_durable: true };
    let catch_up =
        CatchUpOptions { retained_bytes_max, ..CatchUpOptions::new(session, TIMEOUT_NS) };
    Replica::returning((RETURNING, 0), placement, Registers::default(), options, catch_up)
}

/// Returns what a replica sends next.
fn poll(replica: &mut Replica<Registers>, now: u64) -> Vec<u8> {
    let sent = replica.poll_scattering(Mono::from_ns(now)).expect("there is something to be sent");
    sent.messages[0].1.clone()
}

/// Delivers what a peer has for a replica.
fn feed(peer: &mut Replica<Registers>, replica: &mut Replica<Registers>, ns: u64) {
    while let Some(part) = peer.poll_scattering(Mono::from_ns(0)) {
        replica.on_message(true, at(ns), PEER, &part.messages[0].1);
    }
}

/// Returns a replica that has all, and its request for admission.
fn current(peer: &mut Replica<Registers>, retained_max: usize) -> (Replica<Registers>, Vec<u8>) {
    let mut replica = returning(1, retained_max);
    let fetch = poll(&mut replica, 0);
    peer.on_message(false, at(50), RETURNING, &fetch);
    feed(peer, &mut replica, 60);
    let admit = poll(&mut replica, 0);
    (replica, admit)
}

/// Returns a write of a client that knows of the admission at 100.
fn write(number: u64) -> Vec<u8> {
    let (kind, session, attempt, finished) = (RequestKind::Write, 5, 0, 0);
    let (view, parts) = (Some(at(100)), vec![(0, &[1, 1][..])]);
    let mut payload = Vec::new();
    Request { kind, session, number, attempt, finished, view, parts }.write(&mut payload);
    payload
}

#[test]
fn admission_of_a_previous_incarnation_does_not_count() {
    let mut peer = peer(false);
    let (_, admit) = current(&mut peer, usize::MAX);
    // The peer receives the admission late. It is notified of the end before.
    peer.on_process_ended(RETURNING, at(110));
    let mut next = returning(2, usize::MAX);
    peer.on_message(false, at(120), RETURNING, &poll(&mut next, 0));
    peer.on_message(true, at(100), RETURNING, &admit);
    feed(&mut peer, &mut next, 130);
    assert!(!next.is_serving());
    // Its own does, once the request bears the view that the previous one has made.
    for ns in [140, 160] {
        let admit = poll(&mut next, 0);
        peer.on_message(true, at(ns), RETURNING, &admit);
        next.on_message(true, at(ns), RETURNING, &admit);
        assert!(!next.is_serving());
        feed(&mut peer, &mut next, ns + 10);
    }
    assert!(next.is_serving());
}

#[test]
fn admission_that_was_given_up_does_not_count() {
    let mut peer = peer(false);
    let (mut replica, admit) = current(&mut peer, 100);
    replica.on_message(true, at(100), RETURNING, &admit);
    // The replica retains too much, and asks for the state again.
    for number in 0..4 {
        replica.on_message(true, at(101 + number), CLIENT, &write(number));
    }
    peer.on_message(false, at(110), RETURNING, &poll(&mut replica, 0));
    // The peer has not received the admission and the writes until then.
    peer.on_message(true, at(100), RETURNING, &admit);
    for number in 0..4 {
        peer.on_message(true, at(101 + number), CLIENT, &write(number));
    }
    feed(&mut peer, &mut replica, 120);
    assert!(!replica.is_serving(), "the writes would be missing");
    // The replica fetches the state once more, and is admitted.
    let fetch = poll(&mut replica, 2 * TIMEOUT_NS);
    peer.on_message(false, at(130), RETURNING, &fetch);
    feed(&mut peer, &mut replica, 140);
    let admit = poll(&mut replica, 2 * TIMEOUT_NS);
    peer.on_message(true, at(150), RETURNING, &admit);
    replica.on_message(true, at(150), RETURNING, &admit);
    feed(&mut peer, &mut replica, 160);
    assert!(replica.is_serving());
    assert_eq!((replica.state(), replica.state().get(1) > 1), (peer.state(), true));
}

#[test]
fn image_is_sent_when_all_have_stored_what_it_has() {
    let mut peer = peer(true);
    peer.on_message(true, at(30), CLIENT, &write(0));
    let mut replica = returning(1, usize::MAX);
    peer.on_message(false, at(50), RETURNING, &poll(&mut replica, 0));
    assert!(peer.poll_scattering(Mono::from_ns(0)).is_none());
    peer.on_stored(1);
    peer.on_barrier(at(31));
    feed(&mut peer, &mut replica, 60);
    let admit = poll(&mut replica, 0);
    for to in [&mut peer, &mut replica] {
        to.on_message(true, at(100), RETURNING, &admit);
        to.on_message(true, at(101), CLIENT, &write(1));
    }
    feed(&mut peer, &mut replica, 120);
    assert!(replica.is_serving());
    let (number, image) = replica.poll_image().expect("it was loaded");
    let position = ImageHeader::parse(&image).expect("an image").position;
    assert_eq!((number, position), (1, Some((at(30), CLIENT))));
    let record = replica.poll_record().expect("it was executed");
    assert_eq!((record.number, record.at), (2, at(101)));
}
