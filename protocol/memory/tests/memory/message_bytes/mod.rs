//! Messages survive their encoding, and no bytes of others make a machine panic.

mod properties;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_memory::{
    ClientOptions, MemoryClient, MemoryOwner, Operation, Order, Outcome, OwnerOptions, Reason,
    Refusal, Region, RegionId, Reply, Request, Rights,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Small numbers, which machines take for theirs, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, any::<u64>(), Just(u64::MAX)]
}

/// Returns encoded requests.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let operation = (0..4_u8, 0..3_u32, number(), number(), vec(any::<u8>(), 0..20));
    let execute =
        (number(), number(), vec(operation, 1..5)).prop_map(|(session, number, parts)| {
            let operation =
                |(code, region, offset, value, bytes): &'_ (u8, u32, u64, u64, Vec<u8>)| {
                    let (region, offset) = (RegionId(*region), *offset);
                    match code {
                        0 => Operation::Read { region, offset, len: *value as u32 },
                        // The vector outlives the request, which is encoded below.
                        1 => Operation::Write { region, offset, bytes: Vec::leak(bytes.clone()) },
                        2 => Operation::CompareAndSwap {
                            region,
                            offset,
                            expected: *value,
                            new: offset,
                        },
                        _ => Operation::FetchAdd { region, offset, addend: *value },
                    }
                };
            let operations: Vec<_> = parts.iter().map(operation).collect();
            let order = if session % 2 == 1 { Order::Owner } else { Order::Total };
            let finished = number / 2;
            let request = Request::Execute { session, number, finished, order, operations };
            let bytes = request.to_bytes();
            assert_eq!(Request::parse(&bytes), Some(request));
            bytes
        });
    let ask = (number(), number()).prop_map(|(session, number)| {
        let bytes = Request::Ask { session, number }.to_bytes();
        assert_eq!(Request::parse(&bytes), Some(Request::Ask { session, number }));
        bytes
    });
    prop_oneof![execute, ask]
}

fn reply() -> impl Strategy<Value = Vec<u8>> {
    let outcome = prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Outcome::Read),
        Just(Outcome::Written),
        (number(), any::<bool>())
            .prop_map(|(previous, is_swapped)| Outcome::Compared { previous, is_swapped }),
        number().prop_map(|previous| Outcome::Added { previous }),
        Just(Outcome::Skipped),
    ];
    let reason = prop_oneof![
        Just(Reason::UnknownRegion),
        number().prop_map(|len| Reason::OutOfBounds { len }),
        Just(Reason::NoRight),
        Just(Reason::Misaligned),
        number().prop_map(|limit| Reason::ResultTooLong { limit }),
        number().prop_map(|limit| Reason::TooManyRequests { limit }),
        number().prop_map(|limit| Reason::TooManyBytes { limit }),
        Just(Reason::NotReliable),
    ];
    let result = prop_oneof![
        vec(outcome, 0..5).prop_map(Ok),
        (any::<u16>(), reason).prop_map(|(index, reason)| Err(Refusal { index, reason })),
    ];
    (number(), number(), number(), result).prop_map(|(session, number, at, result)| {
        let reply = Reply { session, number, at: Timestamp::from_ns(at), result };
        let bytes = reply.to_bytes();
        assert_eq!(Reply::parse(&bytes), Some(reply));
        bytes
    })
}

/// Messages, some of which are cut off or changed.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let message = prop_oneof![request(), reply(), vec(any::<u8>(), 0..60)];
    (message, any::<Option<(prop::sample::Index, u8)>>(), 0..4_u8).prop_map(
        |(mut bytes, change, kind)| {
            if let Some((index, byte)) = change.filter(|_| !bytes.is_empty()) {
                let index = index.index(bytes.len());
                match kind {
                    0 => bytes[index] = byte,
                    1 => bytes.truncate(index),
                    _ => {}
                }
            }
            bytes
        },
    )
}

proptest! {
    #[test]
    fn no_message_makes_an_owner_panic(
        messages in vec((any::<bool>(), 0..3_u32, message()), 1..20),
    ) {
        let mut owner = MemoryOwner::new(OwnerOptions::default());
        owner.register(RegionId(1), Region::new(vec![0; 24], Rights::all())).expect("once");
        for (at, (is_reliable, from, bytes)) in messages.into_iter().enumerate() {
            owner.on_message(is_reliable, Timestamp::from_ns(at as u64), ProcessId(from), &bytes);
            if at % 3 == 0 {
                owner.on_barrier(Timestamp::from_ns(at as u64));
            }
            while owner.poll_reply().is_some() {}
        }
    }

    #[test]
    fn no_message_makes_a_client_panic(messages in vec((0..3_u32, message()), 1..20)) {
        let now = Mono::from_ns(0);
        let mut client = MemoryClient::new(1, ClientOptions::default());
        let read: &[_] = &[Operation::Read { region: RegionId(1), offset: 0, len: 8 }];
        for (from, bytes) in messages {
            client.submit(&[(ProcessId(0), read), (ProcessId(1), read)]).expect("few in flight");
            while client.poll_scattering(now).is_some() {}
            client.on_message(now, ProcessId(from), &bytes);
            client.handle_timeout(Mono::from_ns(u64::MAX));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_messages_are_safe(
        mode in 0..3_u8, bytes in vec(any::<u8>(), 0..300),
    ) {
        properties::check_messages(&[&[mode], &bytes[..]].concat());
    }
}

#[test]
fn corpus_messages_are_safe() {
    onepipe_verify_testing::check_corpus("memory", properties::check_messages);
}
