//! Messages survive their encoding, and no bytes of others make a machine panic: messages that are
//! well-formed, or nearly, any bytes, and the fuzzer's corpus.

mod properties;

use std::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_log::{
    ClientOptions, Entries, Entry, EntryId, Header, LogClient, LogReplica, Position, Record,
    ReplicaOptions, Reply, Request, Session, Statement, Status, View,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

/// Small numbers, which machines take for theirs, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, any::<u64>(), Just(u64::MAX)]
}

fn process() -> impl Strategy<Value = ProcessId> {
    prop_oneof![0..4_u32, any::<u32>()].prop_map(ProcessId)
}

fn view() -> impl Strategy<Value = View> {
    let members = prop_oneof![Just((0..3).map(ProcessId).collect()), btree_set(process(), 1..5)];
    (number(), members).prop_map(|(number, members)| View { number, members })
}

fn id() -> impl Strategy<Value = EntryId> {
    (number(), process(), number(), 1..u64::MAX).prop_map(|(at, process, session, number)| {
        EntryId { at: Timestamp::from_ns(at), client: Session { process, session }, number }
    })
}

fn header() -> impl Strategy<Value = Header> {
    (view(), number(), number(), number(), (number(), number())).prop_map(
        |(view, session, request, finished, stable)| Header {
            view,
            session,
            request,
            finished,
            stable,
        },
    )
}

fn statement() -> impl Strategy<Value = Statement> {
    (number(), number(), btree_set(id(), 0..3)).prop_map(
        |(stable_len, stable_checksum, entries)| Statement {
            stable_len,
            stable_checksum,
            entries: entries.into_iter().collect(),
        },
    )
}

/// Returns encoded requests, and whether they are reliable.
fn request() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let encoded = |request: Request<'_>| {
        let bytes = request.to_bytes();
        assert_eq!(Request::parse(&bytes), Some(request.clone()));
        (request.is_reliable(), bytes)
    };
    let entry = || (header(), 1..=u64::MAX, number(), vec(any::<u8>(), 0..4));
    let joiners = proptest::collection::btree_map(process(), number(), 0..3);
    prop_oneof![
        entry().prop_map(move |(header, number, _, payload)| {
            encoded(Request::Append(header, number, &payload))
        }),
        entry().prop_map(move |(header, number, at, payload)| {
            encoded(Request::Repair(header, number, Timestamp::from_ns(at), &payload))
        }),
        (header(), 1..=u64::MAX)
            .prop_map(move |(header, last)| { encoded(Request::Ask(header, 1 + last / 2, last)) }),
        (number(), number())
            .prop_map(move |(request, index)| encoded(Request::Read(request, index))),
        view().prop_map(move |view| encoded(Request::Sync(view))),
        (view(), joiners, statement()).prop_map(move |(view, joiners, statement)| {
            let at = |(process, ns)| (process, Timestamp::from_ns(ns));
            let joiners: BTreeMap<_, _> = joiners.into_iter().map(at).collect();
            let restarted = joiners.keys().copied().collect();
            encoded(Request::Statement(view, joiners, restarted, statement))
        }),
        view().prop_map(move |view| encoded(Request::Join(view))),
        Just(()).prop_map(move |()| encoded(Request::Leave)),
    ]
}

fn reply() -> impl Strategy<Value = Vec<u8>> {
    let encoded = |reply: Reply| {
        let bytes = reply.to_bytes();
        assert_eq!(Reply::parse(&bytes), Some(reply));
        bytes
    };
    let position = (number(), number(), number(), number());
    let entry = (id(), vec(any::<u8>(), 0..4)).prop_map(|(id, payload)| Entry { id, payload });
    prop_oneof![
        (view(), number(), number(), number(), vec(position, 0..3)).prop_map(
            move |(view, session, request, last, positions)| {
                let position = |(number, at, index, checksum)| {
                    (number, Position { at: Timestamp::from_ns(at), index, checksum })
                };
                let positions = positions.into_iter().map(position).collect();
                encoded(Reply::Status(Status { view, session, request, last, positions }))
            }
        ),
        (view(), number(), number(), number(), any::<Option<u64>>(), vec(entry, 0..3)).prop_map(
            move |(view, request, index, stable_len, checksum, entries)| {
                let (base_len, committed) = (index / 2, (stable_len, request));
                let reply = Entries {
                    view,
                    request,
                    index,
                    base_len,
                    committed,
                    stable_len,
                    checksum,
                    entries,
                };
                encoded(Reply::Entries(reply))
            }
        ),
    ]
}

/// Messages, some of which are cut off or changed.
fn message() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let reply = (any::<bool>(), reply());
    let message = prop_oneof![request(), reply, (any::<bool>(), vec(any::<u8>(), 0..40))];
    (message, any::<Option<(prop::sample::Index, u8)>>(), 0..4_u8).prop_map(
        |((is_reliable, mut bytes), change, kind)| {
            if let Some((index, byte)) = change.filter(|_| !bytes.is_empty()) {
                let index = index.index(bytes.len());
                match kind {
                    0 => bytes[index] = byte,
                    1 => bytes.truncate(index),
                    _ => {}
                }
            }
            (is_reliable, bytes)
        },
    )
}

proptest! {
    #[test]
    fn no_message_makes_a_replica_panic(
        messages in vec((process(), message()), 1..20),
        is_catching_up in any::<bool>(),
    ) {
        let all: std::collections::BTreeSet<_> = (0..3).map(ProcessId).collect();
        let options = ReplicaOptions { is_durable: false, ..ReplicaOptions::default() };
        let mut replica = LogReplica::new(ProcessId(0), all, options);
        if is_catching_up {
            replica.rejoin(Mono::from_ns(0));
        }
        for (at, (from, (is_reliable, bytes))) in messages.into_iter().enumerate() {
            let _ = Record::parse(1, &bytes);
            replica.on_message(is_reliable, Timestamp::from_ns(at as u64), from, &bytes);
            while replica.poll_scattering().is_some() {}
            replica.handle_timeout(Mono::from_ns(u64::MAX));
        }
    }

    #[test]
    fn no_message_makes_a_client_panic(
        messages in vec((process(), message()), 1..20),
    ) {
        let view = View::first((0..3).map(ProcessId));
        let now = Mono::from_ns(0);
        let mut client = LogClient::new(1, view, ClientOptions::default());
        for (from, (_, bytes)) in messages {
            client.append(now, Vec::new()).expect("few entries are in flight");
            client.on_message(now, from, &bytes);
            while client.poll_scattering().is_some() {}
            client.handle_timeout(Mono::from_ns(u64::MAX));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(mode in 0..6_u8, bytes in vec(any::<u8>(), 0..400)) {
        properties::check_messages(&[&[mode], &bytes[..]].concat());
    }
}

#[test]
fn corpus_messages_are_safe() {
    onepipe_verify_testing::check_corpus("log", properties::check_messages);
}
