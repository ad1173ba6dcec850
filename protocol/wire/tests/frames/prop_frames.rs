//! Random frames: encoding round-trips, and damaged frames are refused.

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{
    ACK_WORDS_MAX, Ack, AckDelay, AckView, CONNECT_LEN, Connect, DecodeError, FRAGMENT_HEADER_LEN,
    Flags, Fragment, FragmentHeader, Frame, HEADER_LEN, HOPS_MAX, Header, Message, Messages,
    Opcode, PIGGYBACK_LEN, PROBE_LEN, PiggybackedAck, Probe, VERSION, header_len, is_hop_intact,
    mark_congestion, parse_header, pass_hop, rewrite_promises, seal, seal_with_hops,
    write_fragment_header, write_message,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties;

fn any_time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_ns)
}

fn any_promises() -> impl Strategy<Value = Promises> {
    (any_time(), any_time()).prop_map(|(barrier, commit)| Promises { barrier, commit })
}

prop_compose! {
    fn any_header()(
        opcode in select(Opcode::ALL),
        (src, dst, incarnation, psn) in any::<(u32, u32, u32, u32)>(),
        ts in any_time(),
        promises in any_promises(),
        flags in any::<u8>(),
    ) -> Header {
        // The check of a piece with this flag does not cover all of its payload.
        let detached = if opcode == Opcode::BulkPiece { Flags::DETACHED } else { 0 };
        let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(incarnation));
        header.stamped(ts, promises, Psn(psn)).flagged(flags & !detached)
    }
}

/// Returns the length of the header of a frame.
fn front(frame: &[u8]) -> usize {
    header_len(frame[1])
}

prop_compose! {
    /// A frame as sealed by its sender.
    fn any_frame()(
        header in any_header(),
        hops in 0..64u8,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) -> Vec<u8> {
        let opcode = header.opcode().expect("a known one");
        let mut bytes = vec![0xaa; header_len(opcode as u8)];
        bytes.extend_from_slice(&payload);
        let length = seal_with_hops(&mut bytes, header, payload.len(), hops);
        assert_eq!(length, bytes.len());
        bytes
    }
}

prop_compose! {
    fn any_ack()(
        (cumulative, received, marked, window_bytes) in any::<(u32, u32, u32, u32)>(),
        (consumed_bytes, acked_incarnation, reservation_id) in any::<(u64, u32, u32)>(),
        (reservation, delay) in (0..=Ack::RESERVATION_REFUSED, any::<u16>().prop_map(AckDelay)),
    ) -> Ack {
        let cumulative = Psn(cumulative);
        Ack {
            cumulative, received, marked, window_bytes, consumed_bytes, acked_incarnation,
            reservation_id, reservation, delay,
        }
    }
}

proptest! {
    #[test]
    fn header_round_trips(
        (ids, flags) in any::<([u32; 4], u8)>(),
        (ts, promises) in (any_time(), any_promises()),
        opcode in select(Opcode::ALL),
    ) {
        let [src, dst, incarnation, psn] = ids;
        let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(incarnation));
        let header = header.stamped(ts, promises, Psn(psn)).flagged(flags);
        let mut bytes = [0xaa; HEADER_LEN + 4];
        let length = seal(&mut bytes, header, 0);
        prop_assert_eq!(length, header_len(opcode as u8));
        prop_assert_eq!(length == HEADER_LEN, header.has_timestamps());
        let frame = Frame::parse(&bytes[..length]).expect("sealed just now");
        prop_assert_eq!(frame.opcode, opcode);
        prop_assert_eq!(frame.payload, [0u8; 0]);
        let read = frame.header;
        prop_assert_eq!((read.src(), read.dst()), (ProcessId(src), ProcessId(dst)));
        prop_assert_eq!((read.incarnation(), read.psn()), (Incarnation(incarnation), Psn(psn)));
        prop_assert_eq!((read.length(), read.hops()), (0, HOPS_MAX));
        for asked in 0..=u8::MAX {
            prop_assert_eq!(read.has(asked), flags | asked == flags);
        }
        if !read.has_timestamps() {
            return Ok(());
        }
        // Expanded against the time itself, every time is exact, whatever its upper 16 bits.
        prop_assert_eq!(read.message_ts(ts), ts);
        prop_assert_eq!(read.promises(promises.barrier).barrier, promises.barrier);
        prop_assert_eq!(read.promises(promises.commit).commit, promises.commit);
    }

    #[test]
    fn coalesced_messages_round_trip(
        messages in prop::collection::vec(
            (any::<u32>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        spare in 0usize..20,
    ) {
        let mut buf = vec![0xaa; 4096];
        let mut end = 0;
        for (delta_ns, index, payload) in &messages {
            let message = Message { delta_ns: *delta_ns, index: *index, payload };
            let bytes = 8 + payload.len();
            // A buffer one byte too small is refused and left alone.
            let mut small = vec![0xaa; bytes - 1];
            prop_assert_eq!(write_message(&mut small, message), None);
            prop_assert!(small.iter().all(|byte| *byte == 0xaa));
            prop_assert_eq!(write_message(&mut buf[end..], message), Some(bytes));
            end += bytes;
        }
        let read: Result<Vec<_>, _> = Messages::new(&buf[..end]).collect();
        let read = read.expect("written just now");
        prop_assert_eq!(read.len(), messages.len());
        for (message, (delta_ns, index, payload)) in read.iter().zip(&messages) {
            let expected = Message { delta_ns: *delta_ns, index: *index, payload };
            prop_assert_eq!(*message, expected);
        }
        // Trailing bytes that are no message are refused, and end the iteration.
        let cut = &buf[..end.saturating_sub(1 + spare)];
        let mut left = Messages::new(cut);
        let errors = left.by_ref().filter(Result::is_err).count();
        prop_assert!(errors <= 1);
        prop_assert!(left.next().is_none());
    }

    #[test]
    fn fragment_round_trips(
        index in any::<u16>(),
        offset in 3..u32::MAX,
        behind in prop_oneof![-3i64..3, 0..i64::from(u32::MAX)],
        piece in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let end = u64::from(offset) + piece.len() as u64;
        let message_len = (end as i64 + behind).min(i64::from(u32::MAX)) as u32;
        let header = FragmentHeader { index, message_len, offset };
        let mut payload = vec![0xaa; FRAGMENT_HEADER_LEN];
        write_fragment_header(&mut payload, header);
        payload.extend_from_slice(&piece);
        let read = Fragment::parse(&payload);
        if piece.is_empty() || end > u64::from(message_len) {
            let refused = DecodeError::Field { field: "end of fragment", value: end };
            prop_assert_eq!(read, Err(refused));
        } else {
            prop_assert_eq!(read, Ok(Fragment { header, piece: &piece }));
        }
    }

    #[test]
    fn acknowledgement_round_trips(
        ack in any_ack(),
        words in prop::collection::vec(any::<(u64, u64)>(), 0..=ACK_WORDS_MAX),
        spare in 0usize..20,
    ) {
        let bytes = 36 + 16 * words.len();
        let mut buf = vec![0xaa; bytes + spare];
        prop_assert_eq!(ack.write(&mut buf[..bytes - 1], words.iter().copied()), None);
        prop_assert_eq!(ack.write(&mut buf, words.iter().copied()), Some(bytes));
        let read = AckView::parse(&buf).expect("written just now");
        prop_assert_eq!(read.ack, ack);
        prop_assert!(read.words().eq(words.iter().copied()));
        for length in 0..bytes {
            let cut = AckView::parse(&buf[..length]).map(|read| read.ack);
            let is_truncated = matches!(cut, Err(DecodeError::Truncated { .. }));
            prop_assert!(is_truncated, "{:?}", cut);
        }
    }

    #[test]
    fn probes_and_connects_round_trip(
        (resolved, span, reservation_done) in (any::<u32>(), 0..=i32::MAX as u32, any::<u32>()),
        (reservation_id, reservation_bytes, ack_delay_ns) in any::<(u32, u64, u32)>(),
    ) {
        let mut buf = [0xaa; PROBE_LEN];
        let probe =
            Probe { resolved: Psn(resolved), until: Psn(resolved).plus(span), reservation_done };
        prop_assert_eq!(probe.write(&mut buf[..PROBE_LEN - 1]), None);
        prop_assert_eq!(probe.write(&mut buf), Some(PROBE_LEN));
        prop_assert_eq!(Probe::parse(&buf), Ok(probe));
        let cut = Probe::parse(&buf[..PROBE_LEN - 1]);
        let need = PROBE_LEN;
        prop_assert_eq!(cut, Err(DecodeError::Truncated { part: "probe", need, got: need - 1 }));

        let connect = Connect { reservation_id, reservation_bytes, ack_delay_ns };
        prop_assert_eq!(connect.write(&mut buf[..CONNECT_LEN - 1]), None);
        prop_assert_eq!(connect.write(&mut buf), Some(CONNECT_LEN));
        prop_assert_eq!(Connect::parse(&buf), Ok(connect));
        prop_assert!(Connect::parse(&buf[..CONNECT_LEN - 1]).is_err());
    }

    #[test]
    fn refuses_truncated_frame(frame in any_frame()) {
        for length in 0..frame.len() {
            let error = Frame::parse(&frame[..length]).expect_err("cut");
            let is_truncated = matches!(error, DecodeError::Truncated { .. });
            prop_assert!(is_truncated, "{error} at {length}");
            prop_assert!(parse_header(&frame[..length]).is_err());
        }
    }

    #[test]
    fn refuses_frame_with_bit_flip(frame in any_frame()) {
        for bit in 0..frame.len() * 8 {
            let mut wrong = frame.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::parse(&wrong).is_err(), "bit {bit}");
            // A hop detects errors in the header, and none in the payload.
            prop_assert_eq!(parse_header(&wrong).is_err(), bit < front(&frame) * 8);
        }
    }

    #[test]
    fn refuses_frame_with_replaced_bytes(
        frame in any_frame(),
        at in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let at = at.index(frame.len());
        let mut wrong = frame.clone();
        for (byte, noise) in wrong[at..].iter_mut().zip(&noise) {
            *byte = *noise;
        }
        prop_assume!(wrong != frame);
        prop_assert!(Frame::parse(&wrong).is_err());
    }

    #[test]
    fn refuses_swapped_payload(a in any_frame(), b in any_frame()) {
        // A frame that begins with the original payload is valid, with padding.
        prop_assume!(!b[front(&b)..].starts_with(&a[front(&a)..]));
        let mut mixed = a[..front(&a)].to_vec();
        mixed.extend_from_slice(&b[front(&b)..]);
        prop_assert!(Frame::parse(&mixed).is_err());
    }

    #[test]
    fn padding_is_ignored(
        frame in any_frame(), padding in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let padded = [&frame[..], &padding].concat();
        let read = Frame::parse(&padded).expect("intact");
        prop_assert_eq!(read.payload, &frame[front(&frame)..]);
    }

    #[test]
    fn hops_rewrite_only_their_fields(
        frame in any_frame(),
        hops in prop::collection::vec((any_promises(), any::<bool>(), any::<bool>()), 1..6),
    ) {
        let mut travelled = frame.clone();
        let before = Frame::parse(&frame).expect("as sealed");
        let mut budget = before.header.hops();
        let mut is_marked = before.header.has(Flags::CONGESTION);
        let has_timestamps = before.header.has_timestamps();
        let mut said = before.header.promises(properties::NEAR);
        for (promises, meets_queue, is_written) in hops {
            if meets_queue {
                mark_congestion(&mut travelled);
                is_marked = true;
            }
            let was = travelled.clone();
            if !pass_hop(&mut travelled, is_written.then_some(promises)) {
                prop_assert_eq!((budget, &travelled), (0, &was));
                break;
            }
            prop_assert!(is_hop_intact(&travelled));
            budget -= 1;
            if is_written {
                said = promises;
            }
        }
        let after = Frame::parse(&travelled).expect("the end-to-end check still holds");
        prop_assert_eq!((after.header.hops(), after.payload), (budget, before.payload));
        prop_assert_eq!(after.header.has(Flags::CONGESTION), is_marked);
        if has_timestamps {
            prop_assert_eq!(after.header.promises(said.barrier).barrier, said.barrier);
            prop_assert_eq!(after.header.promises(said.commit).commit, said.commit);
        }
        // Only barrier, commit, flags, hops and hop_tag may differ.
        for (at, (old, new)) in frame.iter().zip(&travelled).enumerate() {
            let may_change = matches!(at, 2 | 3 | 28..36) || (has_timestamps && (44..56).contains(&at));
            prop_assert!(may_change || old == new, "byte {at}");
        }
        prop_assert_eq!(travelled[2] & !Flags::CONGESTION, frame[2] & !Flags::CONGESTION);
    }

    #[test]
    fn marking_does_not_repair_corrupt_frame(
        frame in any_frame(), bit in 0..HEADER_LEN * 8,
    ) {
        prop_assume!(bit < front(&frame) * 8);
        // The one error that marking repairs is a lost congestion flag itself.
        let is_lost_mark = bit == 2 * 8 + 1 && frame[2] & Flags::CONGESTION != 0;
        prop_assume!(!is_lost_mark);
        let mut wrong = frame;
        wrong[bit / 8] ^= 1 << (bit % 8);
        mark_congestion(&mut wrong);
        prop_assert!(!is_hop_intact(&wrong) && Frame::parse(&wrong).is_err());
    }

    #[test]
    fn leaves_short_buffers_alone(
        bytes in prop::collection::vec(any::<u8>(), 0..HEADER_LEN), promises in any_promises(),
    ) {
        prop_assume!(bytes.get(1).is_none_or(|opcode| bytes.len() < header_len(*opcode)));
        let mut touched = bytes.clone();
        rewrite_promises(&mut touched, promises);
        mark_congestion(&mut touched);
        prop_assert!(!pass_hop(&mut touched, Some(promises)) && !is_hop_intact(&touched));
        prop_assert_eq!(touched, bytes);
    }

    #[test]
    fn parses_arbitrary_bytes_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        properties::frame(&bytes);
        properties::rewrite(&bytes);
        for opcode in Opcode::ALL {
            properties::messages(&[&[*opcode as u8], &bytes[..]].concat());
        }
    }
}

#[test]
fn reports_unknown_version_and_opcode() {
    let mut bytes = [0; HEADER_LEN];
    let header = Header::new(Opcode::Beacon, ProcessId(1), ProcessId(2), Incarnation(0));
    seal(&mut bytes, header, 0);
    for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
        let mut foreign = bytes;
        foreign[0] = version;
        assert_eq!(parse_header(&foreign).map(|_| ()), Err(DecodeError::Version(version)));
    }
    // A node without keys cannot check a tag that is made with one.
    for epoch in 1..4 {
        let mut keyed = bytes;
        keyed[3] |= epoch << 6;
        assert_eq!(parse_header(&keyed).map(|_| ()), Err(DecodeError::Key(epoch)));
    }
    for code in 0..=u8::MAX {
        let is_known = Opcode::ALL.iter().any(|opcode| *opcode as u8 == code);
        assert_eq!(Opcode::try_from(code).is_ok(), is_known);
        let error = DecodeError::Opcode(code);
        assert!(is_known || Opcode::try_from(code) == Err(error));
    }
}

proptest! {
    #[test]
    fn piggybacked_acknowledgement_follows_the_last_one(
        last in any_ack(),
        (packets, marks, bytes) in (-127..=127i32, -127..=127i32, any::<i32>()),
        (cumulative, delay) in any::<(u32, u16)>(),
    ) {
        let consumed = last.consumed_bytes.saturating_add_signed(bytes.into());
        let expected = Ack {
            cumulative: Psn(cumulative),
            received: last.received.wrapping_add(packets as u32),
            marked: last.marked.wrapping_add(marks as u32),
            consumed_bytes: consumed,
            delay: AckDelay(delay),
            reservation: Ack::RESERVATION_UNSTATED,
            ..last
        };
        let ack = PiggybackedAck {
            cumulative: expected.cumulative,
            consumed: consumed as u32,
            acked_incarnation: last.acked_incarnation,
            received: expected.received as u8,
            marked: expected.marked as u8,
            delay: expected.delay,
        };
        let mut buf = [7; PIGGYBACK_LEN + 3];
        prop_assert_eq!(ack.write(&mut buf[..PIGGYBACK_LEN - 1]), None);
        prop_assert_eq!(ack.write(&mut buf), Some(PIGGYBACK_LEN));
        prop_assert_eq!(PiggybackedAck::split(&buf), Ok((ack, &[7; 3][..])));
        prop_assert!(PiggybackedAck::split(&buf[..PIGGYBACK_LEN - 1]).is_err());
        let view = AckView::of_piggybacked(ack, &last);
        prop_assert_eq!(view.words().len(), 0);
        if consumed == last.consumed_bytes.wrapping_add_signed(bytes.into()) {
            prop_assert_eq!(view.ack, expected);
        }
    }
}

#[test]
fn refuses_invalid_acknowledgements() {
    let ack = Ack {
        cumulative: Psn(0),
        received: 0,
        marked: 0,
        window_bytes: 0,
        consumed_bytes: 0,
        acked_incarnation: 0,
        reservation_id: 0,
        reservation: 0,
        delay: AckDelay::default(),
    };
    let mut buf = [0; 36 + 16 * (ACK_WORDS_MAX + 1)];
    let words = |count| vec![(0, 0); count].into_iter();
    assert_eq!(ack.write(&mut buf, words(ACK_WORDS_MAX + 1)), None);
    ack.write(&mut buf, words(ACK_WORDS_MAX)).expect("as many as there may be");
    buf[32] += 1;
    let words = DecodeError::Field { field: "acknowledgement words", value: 17 };
    assert_eq!(AckView::parse(&buf).map(|read| read.ack), Err(words));
    buf[32..34].copy_from_slice(&[0, 3]);
    let answer = DecodeError::Field { field: "reservation state", value: 3 };
    assert_eq!(AckView::parse(&buf).map(|read| read.ack), Err(answer));
}

#[test]
fn refuses_probe_with_reversed_range() {
    let mut buf = [0; PROBE_LEN];
    let backwards = Probe { resolved: Psn(5), until: Psn(4), reservation_done: 0 };
    backwards.write(&mut buf).expect("it fits");
    let error = DecodeError::Field { field: "end of probe", value: 4 };
    assert_eq!(Probe::parse(&buf), Err(error));
}
