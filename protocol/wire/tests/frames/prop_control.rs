//! Random recall, link-state and failure bodies: encoding round-trips, truncated bodies are
//! refused, and every bit that is not reserved matters.

use onepipe_base::{
    Address, Cause, Incarnation, Instance, Port, ProcessId, Promises, SwitchId, Timestamp,
};
use onepipe_wire::{
    ANNOUNCE_HEADER_LEN, Announce, AnnounceView, DECISION_TIP_LEN, DecisionTip, DecodeError,
    FAILURE_LEN, FLOOD_ACK_LEN, FLOOD_HEADER_LEN, Failure, Flood, FloodAck, FloodId, FloodKind,
    FloodView, Frame, HEADER_LEN, Header, INSTANCE_LEN, LINK_LEN, Link, LinkState, Opcode,
    RECALL_LEN, RECOVERY_HEADER_LEN, RESOLVED_LEN, Recall, Recovery, RecoveryView, Resolved, Side,
    UNDELIVERABLE_LEN, Undeliverable, seal,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::{self, NEAR};

/// Process ids lie below this bound.
const PROCESSES: u32 = 1 << 31;

/// A time that is exact when expanded against [`NEAR`].
fn any_time() -> impl Strategy<Value = Timestamp> {
    (-(1i64 << 47)..1 << 47)
        .prop_map(|skew| Timestamp::from_ns(NEAR.as_ns().wrapping_add_signed(skew)))
}

fn any_tip() -> impl Strategy<Value = DecisionTip> {
    (1..=u32::MAX, any::<(u32, u64, u32)>(), 0..PROCESSES).prop_map(
        |(epoch, (decided, digest, incarnation), replica)| DecisionTip {
            epoch,
            decided,
            digest,
            replica: ProcessId(replica),
            incarnation: Incarnation(incarnation),
        },
    )
}

fn any_instance() -> impl Strategy<Value = Instance> {
    let process = (0..PROCESSES).prop_map(|id| Address::Process(ProcessId(id)));
    let switch = (0..PROCESSES - 1).prop_map(|id| Address::Switch(SwitchId(id)));
    let last = Just(Address::Switch(SwitchId(PROCESSES - 2)));
    (prop_oneof![process, switch, last], any::<u32>())
        .prop_map(|(address, instance)| Instance { address, incarnation: Incarnation(instance) })
}

fn any_cause() -> impl Strategy<Value = Cause> {
    (0u8..7).prop_map(Cause::from_bits)
}

fn any_link() -> impl Strategy<Value = Link> {
    let frozen = (any::<u32>(), any_time(), any_cause())
        .prop_map(|(number, commit, cause)| LinkState::Frozen { number, commit, cause });
    let state = prop_oneof![Just(LinkState::Up), frozen];
    let side = select(&[Side::Lower, Side::Upper, Side::Direct]);
    (any::<u16>(), side, prop::option::of(any_instance()), state)
        .prop_map(|(port, side, instance, state)| Link { port: Port(port), side, instance, state })
}

prop_compose! {
    fn any_failure()(first in prop_oneof![0..PROCESSES, Just(PROCESSES - 1)])(
        first in Just(first),
        count in prop_oneof![1..=PROCESSES - first, Just(PROCESSES - first)],
        incarnation in any::<u32>(),
        at in any_time(),
        cause in any_cause(),
    ) -> Failure {
        Failure { first: ProcessId(first), count, incarnation: Incarnation(incarnation), at, cause }
    }
}

fn any_resolved() -> impl Strategy<Value = Resolved> {
    (any_instance(), any::<u32>()).prop_map(|(owner, number)| Resolved { owner, number })
}

fn any_flood() -> impl Strategy<Value = Flood> {
    any::<(u32, u32)>().prop_map(|(epoch, sequence)| Flood { id: FloodId { epoch, sequence } })
}

fn any_undeliverable() -> impl Strategy<Value = Undeliverable> {
    (any::<(u32, u32)>(), any_time()).prop_map(|((to, instance), timestamp)| Undeliverable {
        to: ProcessId(to),
        incarnation: Incarnation(instance),
        timestamp,
    })
}

fn any_recall() -> impl Strategy<Value = (ProcessId, Timestamp)> {
    (any::<u32>().prop_map(ProcessId), any_time())
}

prop_compose! {
    fn any_recovery()(
        complete in any_time(), part in 0..u16::MAX, behind in 1..u16::MAX,
    ) -> Recovery {
        Recovery { complete, part, parts: part.saturating_add(behind) }
    }
}

/// Asserts that every shorter payload is refused as truncated.
fn assert_cut_is_refused<'a, T>(
    payload: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    for bytes in 0..payload.len() {
        let refused = parse(&payload[..bytes]).map(|_| ());
        let is_truncated = matches!(refused, Err(DecodeError::Truncated { .. }));
        prop_assert!(is_truncated, "{:?} at {}", refused, bytes);
    }
    Ok(())
}

/// Flips each bit: the `reserved` bytes must not matter; elsewhere the payload must be refused or
/// decoded differently.
fn assert_bits_mean_something(
    opcode: Opcode,
    payload: &[u8],
    reserved: &[usize],
) -> Result<(), TestCaseError> {
    assert_bits_and_causes_mean_something(opcode, payload, reserved, &[])
}

/// As [`assert_bits_mean_something`], where of the bytes `causes` only the lowest three bits mean
/// something. Of the byte that has the flag of a tip, only the lowest bit does.
fn assert_bits_and_causes_mean_something(
    opcode: Opcode,
    payload: &[u8],
    reserved: &[usize],
    causes: &[usize],
) -> Result<(), TestCaseError> {
    for bit in 0..payload.len() * 8 {
        let mut flipped = payload.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        properties::body(opcode, &flipped);
        let is_same = properties::rewritten(opcode, &flipped).as_deref() == Some(payload);
        let is_above_cause = causes.contains(&(bit / 8)) && bit % 8 >= 3;
        let flags_at = match opcode {
            Opcode::Announce => Some(11),
            Opcode::Flood | Opcode::Notice => Some(9),
            _ => None,
        };
        let is_above_flag = flags_at == Some(bit / 8) && bit % 8 >= 1;
        let is_reserved = is_above_cause || is_above_flag || reserved.contains(&(bit / 8));
        prop_assert_eq!(is_same, is_reserved, "bit {}", bit);
    }
    Ok(())
}

proptest! {
    #[test]
    fn hop_only_instances_round_trip(
        (own, peer) in (any_instance(), prop::option::of(any_instance())),
        (barrier, commit) in (any_time(), any_time()),
    ) {
        let promises = Promises { barrier, commit };
        let mut bytes = [0; HEADER_LEN];
        seal(&mut bytes, Header::hop_only(Opcode::Beacon, own, peer, promises), 0);
        let header = Frame::parse(&bytes).expect("sealed just now").header;
        prop_assert_eq!((header.sender(), header.peer()), (Some(own), peer));
        prop_assert_eq!((header.message_ts(NEAR), header.promises(NEAR)), (barrier, promises));
    }

    #[test]
    fn announcement_round_trips(
        links in vec(any_link(), 0..9),
        (buf, spare, at) in (0usize..9, 0usize..LINK_LEN, 0usize..8),
        (generation, first, behind) in any::<(u32, u16, u16)>(),
        tip in prop::option::of(any_tip()),
    ) {
        let count = links.len().min(buf);
        let first = first.min(u16::MAX - 9);
        let total = (first + count as u16).saturating_add(behind);
        let part = Announce { generation, first, total, tip };
        let fixed = ANNOUNCE_HEADER_LEN + tip.map_or(0, |_| DECISION_TIP_LEN);
        let bytes = fixed + count * LINK_LEN;
        prop_assert_eq!(part.write(&mut vec![0; fixed - 1], links.iter().copied()), None);
        // Without any alignment.
        let mut all = vec![0xaa; at + fixed + buf * LINK_LEN + spare];
        let mut left = links.iter().copied();
        let written = part.write(&mut all[at..], left.by_ref());
        prop_assert_eq!(written, Some((count as u16, bytes)));
        prop_assert_eq!(left.len(), links.len() - count, "what does not fit is still to be had");
        let payload = &all[at..at + bytes];
        let read = AnnounceView::parse(payload).expect("written just now");
        prop_assert_eq!(read.announce, part);
        prop_assert_eq!(read.links(NEAR).collect::<Vec<_>>(), &links[..count]);
        assert_cut_is_refused(payload, AnnounceView::parse)?;

        let (mut reserved, mut causes) = (vec![10], Vec::new());
        for (index, link) in links[..count].iter().enumerate() {
            let entry = ANNOUNCE_HEADER_LEN + index * LINK_LEN;
            match link.state {
                LinkState::Up => reserved.extend(entry + 12..entry + 24),
                LinkState::Frozen { .. } => {
                    causes.push(entry + 16);
                    reserved.push(entry + 17);
                }
            }
            if link.instance.is_none() {
                reserved.extend(entry + 8..entry + 12);
            }
        }
        assert_bits_and_causes_mean_something(Opcode::Announce, payload, &reserved, &causes)?;
    }

    #[test]
    fn refuses_announcement_of_too_many_links(
        links in vec(any_link(), 1..5), first in any::<u16>(), missing in 1u16..4,
    ) {
        let end = usize::from(first) + links.len();
        let total = end.saturating_sub(missing.into()).min(u16::MAX.into()) as u16;
        prop_assume!(usize::from(total) < end);
        let mut buf = vec![0; ANNOUNCE_HEADER_LEN + links.len() * LINK_LEN];
        let part = Announce { generation: 0, first, total, tip: None };
        part.write(&mut buf, links.into_iter()).expect("it fits");
        let refused = AnnounceView::parse(&buf).map(|read| read.announce);
        let error = DecodeError::Field { field: "total number of links", value: total.into() };
        prop_assert_eq!(refused, Err(error));
    }

    #[test]
    fn notice_round_trips(
        flood in any_flood(),
        failures in vec(any_failure(), 0..9),
        (buf, spare, at) in (0usize..9, 0usize..FAILURE_LEN, 0usize..8),
        tip in prop::option::of(any_tip()),
    ) {
        let count = failures.len().min(buf);
        let bytes = FLOOD_HEADER_LEN + count * FAILURE_LEN;
        let mut small = vec![0; FLOOD_HEADER_LEN - 1];
        prop_assert_eq!(flood.write_notice(&mut small, failures.iter().copied()), None);
        let spare = spare + tip.map_or(0, |_| DECISION_TIP_LEN);
        let mut all = vec![0xaa; at + FLOOD_HEADER_LEN + buf * FAILURE_LEN + spare];
        let given = failures[..count].iter().copied();
        let written = flood.write_notice(&mut all[at..], given);
        prop_assert_eq!(written, Some((count as u16, bytes)));
        let appended = tip.map(|tip| tip.append_to_flood(&mut all[at..], bytes));
        let bytes = appended.map_or(bytes, |bytes| bytes.expect("there is space"));
        let payload = &all[at..at + bytes];
        let read = FloodView::parse(payload).expect("written just now");
        prop_assert_eq!((read.id, read.kind, read.tip), (flood.id, FloodKind::Notice, tip));
        prop_assert_eq!(read.failures(NEAR).collect::<Vec<_>>(), &failures[..count]);
        prop_assert_eq!(read.resolved().count(), 0);
        assert_cut_is_refused(payload, FloodView::parse)?;

        let upper = (0..count).map(|index| FLOOD_HEADER_LEN + index * FAILURE_LEN + 12);
        let causes: Vec<usize> = upper.collect();
        let reserved: Vec<usize> =
            causes.iter().map(|at| at + 1).collect();
        assert_bits_and_causes_mean_something(Opcode::Flood, payload, &reserved, &causes)?;
    }

    #[test]
    fn resume_round_trips(
        flood in any_flood(),
        resolved in vec(any_resolved(), 0..9),
        (buf, spare, at) in (0usize..9, 0usize..RESOLVED_LEN, 0usize..8),
    ) {
        let count = resolved.len().min(buf);
        let bytes = FLOOD_HEADER_LEN + count * RESOLVED_LEN;
        let mut all = vec![0xaa; at + FLOOD_HEADER_LEN + buf * RESOLVED_LEN + spare];
        let written = flood.write_resume(&mut all[at..], resolved.iter().copied());
        prop_assert_eq!(written, Some((count as u16, bytes)));
        let payload = &all[at..at + bytes];
        let read = FloodView::parse(payload).expect("written just now");
        prop_assert_eq!((read.id, read.kind), (flood.id, FloodKind::Resume));
        prop_assert_eq!(read.resolved().collect::<Vec<_>>(), &resolved[..count]);
        prop_assert_eq!(read.failures(NEAR).len(), 0);
        assert_cut_is_refused(payload, FloodView::parse)?;
        assert_bits_mean_something(Opcode::Notice, payload, &[])?;
    }

    #[test]
    fn freeze_round_trips(
        flood in any_flood(),
        instances in vec(any_instance(), 0..9),
        (buf, spare, at) in (0usize..9, 0usize..INSTANCE_LEN, 0usize..8),
    ) {
        let count = instances.len().min(buf);
        let bytes = FLOOD_HEADER_LEN + count * INSTANCE_LEN;
        let mut all = vec![0xaa; at + FLOOD_HEADER_LEN + buf * INSTANCE_LEN + spare];
        let written = flood.write_freeze(&mut all[at..], instances.iter().copied());
        prop_assert_eq!(written, Some((count as u16, bytes)));
        let payload = &all[at..at + bytes];
        let read = FloodView::parse(payload).expect("written just now");
        prop_assert_eq!((read.id, read.kind), (flood.id, FloodKind::Freeze));
        prop_assert_eq!(read.dead().collect::<Vec<_>>(), &instances[..count]);
        prop_assert_eq!((read.failures(NEAR).len(), read.resolved().count()), (0, 0));
        assert_cut_is_refused(payload, FloodView::parse)?;
        assert_bits_mean_something(Opcode::Flood, payload, &[])?;
    }

    #[test]
    fn flood_ack_round_trips(
        flood in any_flood(),
        kind in select(&[FloodKind::Notice, FloodKind::Resume, FloodKind::Freeze]),
    ) {
        let (ack, mut buf) = (FloodAck { id: flood.id, kind }, [0xaa; FLOOD_ACK_LEN]);
        prop_assert_eq!(ack.write(&mut buf), Some(FLOOD_ACK_LEN));
        prop_assert_eq!(FloodAck::parse(&buf), Ok(ack));
        assert_cut_is_refused(&buf, FloodAck::parse)?;
        assert_bits_mean_something(Opcode::Completed, &buf, &[9, 10, 11])?;
    }

    #[test]
    fn recalls_round_trip(
        timestamps in vec(any_time(), 1..20),
        entries in vec(any_undeliverable(), 1..20),
        at in 0usize..8,
    ) {
        let mut all = vec![0xaa; at + timestamps.len() * RECALL_LEN];
        let payload = &mut all[at..];
        prop_assert_eq!(Recall::write(payload, timestamps.iter().copied()), payload.len());
        let read = Recall::parse(payload).expect("written just now");
        prop_assert_eq!(read.timestamps(NEAR).collect::<Vec<_>>(), &timestamps[..]);
        for bytes in 0..payload.len() {
            let is_whole = bytes > 0 && bytes % RECALL_LEN == 0;
            prop_assert_eq!(Recall::parse(&payload[..bytes]).is_ok(), is_whole);
        }
        let upper = (0..timestamps.len()).map(|index| index * RECALL_LEN);
        let reserved: Vec<usize> = upper.flat_map(|at| [at, at + 1]).collect();
        assert_bits_mean_something(Opcode::Recall, payload, &reserved)?;

        let mut all = vec![0xaa; at + entries.len() * UNDELIVERABLE_LEN];
        let payload = &mut all[at..];
        prop_assert_eq!(Undeliverable::write(payload, entries.iter().copied()), payload.len());
        let read = Undeliverable::parse(payload, NEAR).expect("written just now");
        prop_assert_eq!(read.collect::<Vec<_>>(), &entries[..]);
        for bytes in 0..payload.len() {
            let is_whole = bytes > 0 && bytes % UNDELIVERABLE_LEN == 0;
            prop_assert_eq!(Undeliverable::parse(&payload[..bytes], NEAR).is_ok(), is_whole);
        }
        let upper = (0..entries.len()).map(|index| index * UNDELIVERABLE_LEN + 8);
        let reserved: Vec<usize> = upper.flat_map(|at| [at, at + 1]).collect();
        assert_bits_mean_something(Opcode::Undeliverable, payload, &reserved)?;
    }

    #[test]
    fn recovery_round_trips(
        recovery in any_recovery(),
        failures in vec(any_failure(), 0..6),
        recalls in vec(any_recall(), 0..9),
        (spare, at) in (0usize..12, 0usize..8),
    ) {
        let front = RECOVERY_HEADER_LEN + failures.len() * FAILURE_LEN;
        let bytes = front + recalls.len() * 12;
        let write = |buf: &mut [u8]| {
            recovery.write(buf, failures.iter().copied(), recalls.iter().copied())
        };
        prop_assert_eq!(Recovery::recalls_fitting(bytes + spare, failures.len()), recalls.len());
        prop_assert_eq!(write(&mut vec![0; bytes - 1]), None);
        let mut all = vec![0xaa; at + bytes + spare];
        prop_assert_eq!(write(&mut all[at..]), Some(bytes));
        let payload = &all[at..at + bytes];
        let read = RecoveryView::parse(payload).expect("written just now");
        prop_assert_eq!(read.recovery(NEAR), recovery);
        prop_assert_eq!(read.failures(NEAR).collect::<Vec<_>>(), &failures[..]);
        prop_assert_eq!(read.recalls(NEAR).collect::<Vec<_>>(), &recalls[..]);
        assert_cut_is_refused(payload, RecoveryView::parse)?;

        let failed = (0..failures.len()).map(|at| RECOVERY_HEADER_LEN + at * FAILURE_LEN + 12);
        let taken = (0..recalls.len()).map(|at| front + at * 12 + 4);
        let causes: Vec<usize> = failed.collect();
        let upper = [0].into_iter().chain(taken);
        let reserved = upper.flat_map(|at| [at, at + 1]);
        let reserved: Vec<usize> = reserved.chain(causes.iter().map(|at| at + 1)).collect();
        assert_bits_and_causes_mean_something(Opcode::Recovery, payload, &reserved, &causes)?;
    }

    #[test]
    fn refuses_failures_of_invalid_processes(
        first in prop_oneof![0..PROCESSES, any::<u32>(), Just(u32::MAX)],
        count in prop_oneof![0..3u32, any::<u32>(), Just(PROCESSES), Just(u32::MAX)],
        flood in any_flood(),
    ) {
        let failure = Failure {
            first: ProcessId(first),
            count,
            incarnation: Incarnation(0),
            at: NEAR,
            cause: Cause::Unknown,
        };
        let end = u64::from(first) + u64::from(count);
        let is_whole = count > 0 && end <= PROCESSES.into();
        let mut buf = [0; RECOVERY_HEADER_LEN + FAILURE_LEN];
        let written = flood.write_notice(&mut buf, [failure].into_iter());
        let (_, bytes) = written.expect("it fits");
        prop_assert_eq!(FloodView::parse(&buf[..bytes]).is_ok(), is_whole);
        let recovery = Recovery { complete: NEAR, part: 0, parts: 1 };
        recovery.write(&mut buf, [failure].into_iter(), [].into_iter()).expect("it fits");
        prop_assert_eq!(RecoveryView::parse(&buf).is_ok(), is_whole);
    }
}

#[test]
fn refuses_floods_about_no_address() {
    let owner = Instance { address: Address::Process(ProcessId(1)), incarnation: Incarnation(1) };
    let flood = Flood { id: FloodId { epoch: 1, sequence: 1 } };
    let mut buf = [0; FLOOD_HEADER_LEN + RESOLVED_LEN];
    flood.write_resume(&mut buf, [Resolved { owner, number: 1 }].into_iter()).expect("it fits");
    buf[FLOOD_HEADER_LEN..FLOOD_HEADER_LEN + 4].fill(0xff);
    let error = DecodeError::Field { field: "owner of a link", value: u32::MAX.into() };
    assert_eq!(FloodView::parse(&buf).map(|read| read.id), Err(error));
    let freeze = &mut buf[..FLOOD_HEADER_LEN + INSTANCE_LEN];
    flood.write_freeze(freeze, [owner].into_iter()).expect("it fits");
    freeze[FLOOD_HEADER_LEN..FLOOD_HEADER_LEN + 4].fill(0xff);
    let error = DecodeError::Field { field: "address of a dead instance", value: u32::MAX.into() };
    assert_eq!(FloodView::parse(freeze).map(|read| read.id), Err(error));
}
