//! Requests and replies are parsed as they were written, and arbitrary bytes are refused.

use onepipe_base::Timestamp;
use onepipe_transaction::{
    Answer, Client, ClientOptions, Kind, PARTS_MAX, Placement, Reply, Request, RequestKind,
    SubmitError,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn timestamp() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_ns)
}

fn kind() -> impl Strategy<Value = RequestKind> {
    prop_oneof![
        Just(RequestKind::Write),
        Just(RequestKind::StrictRead),
        timestamp().prop_map(RequestKind::SnapshotRead),
    ]
}

proptest! {
    #[test]
    fn requests_are_parsed_as_written(
        kind in kind(),
        (session, number, attempt, back) in any::<(u64, u64, u32, u64)>(),
        view in proptest::option::of((0..u64::MAX).prop_map(Timestamp::from_ns)),
        parts in btree_map(any::<u16>(), vec(any::<u8>(), 0..40), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let finished = number.saturating_sub(back);
        let parts = parts.iter().map(|(shard, part)| (*shard, part.as_slice())).collect();
        let view = view.filter(|_| kind == RequestKind::Write);
        let request = Request { kind, session, number, attempt, finished, view, parts };
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        prop_assert_eq!(Request::parse(&bytes), Some(request));
        prop_assert!(Request::is_request(&bytes) && !Reply::is_reply(&bytes));
        prop_assert_eq!(Request::parse(&bytes[..cut.index(bytes.len())]), None);
    }

    #[test]
    fn replies_are_parsed_as_written(
        code in 0..5_u8,
        (session, number, attempt, shard) in any::<(u64, u64, u32, u16)>(),
        (at, until) in (timestamp(), timestamp()),
        results in vec(any::<u8>(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let answer = match code {
            0 => Answer::Written { at, results: &results },
            1 => Answer::Read { from: at, until, results: &results },
            2 => Answer::Outdated(&results),
            3 => Answer::Absent(at),
            _ => Answer::Refused,
        };
        let reply = Reply { session, number, attempt, shard, answer };
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        prop_assert_eq!(Reply::parse(&bytes), Some(reply));
        prop_assert!(Reply::is_reply(&bytes) && !Request::is_request(&bytes));
        prop_assert_eq!(Reply::parse(&bytes[..cut.index(bytes.len())]), None);
    }

    #[test]
    fn arbitrary_bytes_are_no_message_or_a_whole_one(bytes in vec(any::<u8>(), 0..80)) {
        let mut again = Vec::new();
        if let Some(request) = Request::parse(&bytes) {
            request.write(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        again.clear();
        if let Some(reply) = Reply::parse(&bytes) {
            reply.write(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }
}

#[test]
fn more_parts_than_replicas_accept_are_refused_at_submission() {
    let placement = Placement::consecutive(0, u16::MAX, 1).expect("shards of one replica");
    let mut client = Client::new(1, placement, ClientOptions::default());
    let mut parts: Vec<(u16, Vec<u8>)> =
        (0..=PARTS_MAX as u16).map(|shard| (shard, Vec::new())).collect();
    let refused = client.submit(Kind::Write, parts.clone());
    assert_eq!(refused, Err(SubmitError::TooManyParts(PARTS_MAX + 1)));
    parts.pop();
    client.submit(Kind::Write, parts).expect("as many parts as replicas accept");
}
