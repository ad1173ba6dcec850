//! The replicas of a shard fail while another one catches up: clients get an error.

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, Client, ClientOptions, Finished, Kind, Placement, ReadMode, Replica,
    ReplicaOptions, TransactionError,
};

use crate::fabric;

use fabric::registers::Registers;

const PEER: ProcessId = ProcessId(0);
const RETURNING: ProcessId = ProcessId(1);
const CLIENT: ProcessId = ProcessId(2);

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

/// Returns a replica that was admitted at 100, and whose peer has failed before the last part.
fn admitted_alone(placement: &Placement, retained_bytes_max: usize) -> Replica<Registers> {
    let options = ReplicaOptions::default();
    let catch_up = CatchUpOptions { retained_bytes_max, ..CatchUpOptions::new(1, 100) };
    let mut peer = Replica::new(0, Registers::default(), options);
    let of = (RETURNING, 0);
    let state = Registers::default();
    let mut replica = Replica::returning(of, placement.clone(), state, options, catch_up);
    let fetch = replica.poll_scattering(Mono::from_ns(0)).expect("the replica has no state");
    assert_eq!(fetch.messages[0].0, PEER);
    peer.on_message(false, at(10), RETURNING, &fetch.messages[0].1);
    while let Some(part) = peer.poll_scattering(Mono::from_ns(0)) {
        replica.on_message(true, at(20), PEER, &part.messages[0].1);
    }
    let admit = replica.poll_scattering(Mono::from_ns(0)).expect("the replica has all");
    assert!(admit.is_reliable);
    replica.on_message(true, at(100), RETURNING, &admit.messages[0].1);
    replica.on_process_ended(PEER, at(101));
    assert!(!replica.is_serving());
    replica
}

/// Lets a client execute a transaction on a replica from `now` on, with no reply lost.
fn execute(
    (client, replica): (&mut Client, &mut Replica<Registers>),
    kind: Kind,
    now: &mut u64,
) -> Finished {
    client.submit(kind, vec![(0, vec![1, 1])]).expect("nothing is open");
    for _ in 0..1_000 {
        *now += 50;
        let mono = Mono::from_ns(*now);
        replica.handle_timeout(mono);
        while replica.poll_scattering(mono).is_some() {}
        replica.on_barrier(at(*now));
        client.handle_timeout(mono);
        while let Some(scattering) = client.poll_scattering(mono, Some(at(*now))) {
            client.on_submitted(&scattering, ScatteringId(*now));
            let to_replica = scattering.messages.iter().filter(|(to, _)| *to == RETURNING);
            for (_, payload) in to_replica {
                replica.on_message(scattering.is_reliable, at(*now), CLIENT, payload);
            }
        }
        while let Some(reply) = replica.poll_reply() {
            client.on_message(mono, RETURNING, &reply.payload);
        }
        if let Some(finished) = client.poll_finished() {
            return finished;
        }
    }
    panic!("the client waits for ever");
}

#[test]
fn clients_of_a_replica_without_peers_get_an_error() {
    let placement = Placement::consecutive(0, 1, 2).expect("two replicas");
    let mut replica = admitted_alone(&placement, usize::MAX);
    let options =
        ClientOptions { timeout_ns: 500, timeout_min_ns: 100, ..ClientOptions::default() };
    let mut client = Client::new(1, placement, options);
    client.on_process_ended(PEER, at(101));
    let mut now = 200;
    let kinds = [Kind::Write, Kind::Read(ReadMode::Strict), Kind::Read(ReadMode::Snapshot)];
    for kind in kinds.into_iter().chain(kinds) {
        let finished = execute((&mut client, &mut replica), kind, &mut now);
        assert_eq!(finished.outcome, Err(TransactionError::Unavailable(0)), "{kind:?}");
        assert!(replica.is_stranded() && !replica.is_serving());
        assert_eq!(client.unfinished(), 0);
    }
}

/// A replica that cannot catch up gives its admission up when it has retained too much, so that
/// writes in vain do not fill its memory.
#[test]
fn retained_writes_are_bounded() {
    let placement = Placement::consecutive(0, 1, 2).expect("two replicas");
    let mut replica = admitted_alone(&placement, 500);
    let (mut now, mut lengths) = (200, Vec::new());
    for session in 1..=60 {
        // Each client is new, and takes the replica for up.
        let options =
            ClientOptions { timeout_ns: 500, timeout_min_ns: 100, ..ClientOptions::default() };
        let mut client = Client::new(session, placement.clone(), options);
        client.on_process_ended(PEER, at(101));
        let finished = execute((&mut client, &mut replica), Kind::Write, &mut now);
        assert_eq!(finished.outcome, Err(TransactionError::Unavailable(0)));
        lengths.push(format!("{replica:?}").len());
    }
    let (early, late) = lengths.split_at(30);
    assert!(late.iter().max() <= early.iter().max(), "{lengths:?}");
}
