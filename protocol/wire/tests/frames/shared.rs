//! Shared frames: encoded, replicated and read.

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{
    Ack, AckBundle, AckDelay, BundledAck, DecodeError, Flags, Frame, HEADER_LEN, Header, Message,
    Messages, Opcode, PiggybackedAck, Receivers, SHARED_DATA_RECEIVER_LEN, SharedReceiver,
    SharedReceivers, parse_header, seal, write_message,
};

fn receiver(process: u32) -> SharedReceiver {
    let (psn, index) = (Psn(100 + process), process as u16);
    let is_ack_wanted = process == 2;
    SharedReceiver { process: ProcessId(process), psn, index, is_ack_wanted, has_ack: false }
}

/// Returns a sealed frame for `receivers` with two messages.
fn shared(opcode: Opcode, receivers: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let payload = &mut bytes[HEADER_LEN..];
    let list = receivers.iter().map(|process| receiver(*process));
    let mut len = SharedReceivers::write(payload, list).expect("it fits");
    for (delta_ns, text) in [(0, &b"one"[..]), (7, b"")] {
        let message = Message { delta_ns, index: 0, payload: text };
        len += write_message(&mut payload[len..], message).expect("it fits");
    }
    let promises = Promises::both(Timestamp::from_ns(5));
    let header = Header::new(opcode, ProcessId(9), ProcessId(0), Incarnation(1))
        .stamped(Timestamp::from_ns(6), promises, Psn(0))
        .flagged(Flags::END_OF_MESSAGE)
        .unaddressed();
    let frame_len = seal(&mut bytes, header, len);
    bytes.truncate(frame_len);
    bytes
}

fn copy_for(frame: &[u8], process: u32) -> Vec<u8> {
    let mut copy = frame.to_vec();
    let (header, _) = parse_header(frame).expect("a frame");
    assert!(header.is_unaddressed());
    header.write_copy(&mut copy, (ProcessId(process), receiver(process).psn));
    copy
}

//= spec/ordering.md#R53
#[test]
fn copy_reads_as_the_data_frame_of_its_receiver() {
    for (opcode, plain) in
        [(Opcode::SharedData, Opcode::Data), (Opcode::ReliableSharedData, Opcode::ReliableData)]
    {
        let frame = shared(opcode, &[1, 2, 3]);
        for process in [1, 2, 3] {
            let mut copy = copy_for(&frame, process);
            let read = Frame::parse_for(&mut copy, ProcessId(process)).expect("its copy");
            assert_eq!((read.opcode, read.header.opcode()), (plain, Ok(plain)));
            assert_eq!((read.header.dst().0, read.header.psn().0), (process, 100 + process));
            assert_eq!(read.header.has(Flags::ACK_NOW), process == 2);
            let messages: Vec<_> =
                Messages::new(read.payload).map(|message| message.expect("whole")).collect();
            let read = messages.iter().map(|message| (message.index, message.payload));
            assert!(read.eq([(process as u16, &b"one"[..]), (process as u16, b"")]));
            assert_eq!(messages[1].delta_ns, 7);
        }
    }
}

//= spec/ordering.md#R53
#[test]
fn refuses_copies_for_others_and_frames_without_receiver() {
    let frame = shared(Opcode::SharedData, &[1, 2]);
    let unknown = |value| Some(DecodeError::Field { field: "receiver", value });
    for (mut bytes, own, refused) in [
        (frame.clone(), 1, unknown(u32::MAX.into())),
        (copy_for(&frame, 2), 1, unknown(2)),
        (copy_for(&frame, 3), 3, unknown(3)),
        (copy_for(&frame, 2), 2, None),
    ] {
        assert_eq!(Frame::parse_for(&mut bytes, ProcessId(own)).err(), refused);
    }
    // The address is in the list, so a changed PSN is found although no end-to-end check covers it.
    let (header, _) = parse_header(&frame).expect("a frame");
    let mut copy = frame.clone();
    header.write_copy(&mut copy, (ProcessId(1), Psn(7)));
    assert_eq!(Frame::parse_for(&mut copy, ProcessId(1)).err(), unknown(1));
}

//= spec/ordering.md#R52
#[test]
fn copy_for_several_states_its_part_of_the_list() {
    let frame = shared(Opcode::SharedData, &[1, 2, 3]);
    let run = |bytes: &[u8], count| parse_header(bytes).expect("a frame").0.run(count);
    assert_eq!(run(&frame, 3), Some(0..3), "the sender's frame is for all");
    let (header, _) = parse_header(&frame).expect("a frame");
    let mut copy = frame.clone();
    for part in [0..3, 1..3, 2..3] {
        header.write_run(&mut copy, part.clone());
        assert_eq!(run(&copy, 3), Some(part));
        assert!(parse_header(&copy).expect("a frame").0.is_unaddressed());
        assert!(Frame::parse_for(&mut copy.clone(), ProcessId(3)).is_err(), "it has no receiver");
    }
    assert_eq!(run(&copy, 2), None, "a part beyond the list");
    for psn in [0x0101, 0x0201, 0x01_0003, u32::MAX] {
        header.write_copy(&mut copy, (ProcessId(1), Psn(psn)));
        assert_eq!(run(&copy, 3), None, "{psn:#x}");
    }
}

//= spec/ordering.md#R87
#[test]
fn copy_has_the_acknowledgement_of_its_receiver() {
    let ack = |process: u32| PiggybackedAck {
        cumulative: Psn(1_000 + process),
        consumed: 2_000 + process,
        acked_incarnation: 3,
        received: 4,
        marked: 5,
        delay: AckDelay(6),
    };
    let mut bytes = vec![0; 512];
    let payload = &mut bytes[HEADER_LEN..];
    let list =
        [1, 2, 3].map(|process| SharedReceiver { has_ack: process != 2, ..receiver(process) });
    let mut len = SharedReceivers::write(payload, list.into_iter()).expect("it fits");
    for process in [1, 3] {
        len += ack(process).write(&mut payload[len..]).expect("it fits");
    }
    let message = Message { delta_ns: 0, index: 0, payload: b"one" };
    len += write_message(&mut payload[len..], message).expect("it fits");
    let header = Header::new(Opcode::SharedData, ProcessId(9), ProcessId(0), Incarnation(1));
    let frame_len = seal(&mut bytes, header.unaddressed(), len);
    bytes.truncate(frame_len);
    for process in [1, 2, 3] {
        let mut copy = copy_for(&bytes, process);
        let read = Frame::parse_for(&mut copy, ProcessId(process)).expect("its copy");
        assert_eq!(read.header.has(Flags::PIGGYBACK), process != 2);
        let (own, messages) = match process {
            2 => (None, read.payload),
            _ => PiggybackedAck::split(read.payload)
                .map(|(ack, rest)| (Some(ack), rest))
                .expect("it fits"),
        };
        assert_eq!(own, (process != 2).then(|| ack(process)));
        let messages: Vec<_> = Messages::new(messages).map(|one| one.expect("whole")).collect();
        assert_eq!(messages, [Message { index: process as u16, ..message }]);
    }
    let payload = &bytes[HEADER_LEN..];
    let (list, messages) = SharedReceivers::parse(payload).expect("a list");
    let acks: Vec<_> = (0..4).map(|position| list.ack(position)).collect();
    assert_eq!(acks, [Some(ack(1)), None, Some(ack(3)), None]);
    let listed = payload.len() - messages.len();
    let (need, got) = (listed, listed - 1);
    let truncated = DecodeError::Truncated { part: "list of receivers", need, got };
    assert_eq!(SharedReceivers::parse(&payload[..got]).err(), Some(truncated));
}

#[test]
fn refuses_malformed_lists() {
    let field = |value| DecodeError::Field { field: "number of receivers", value };
    let truncated = |need, got| DecodeError::Truncated { part: "list of receivers", need, got };
    let mut list = [0; SharedReceivers::list_len(65)];
    for (count, len, refused) in [
        (0, list.len(), field(0)),
        (65, list.len(), field(65)),
        (2, 27, truncated(28, 27)),
        (1, 3, truncated(4, 3)),
    ] {
        list[0] = count;
        assert_eq!(SharedReceivers::parse(&list[..len]).err(), Some(refused));
    }
    list[0] = 64;
    let (read, rest) = SharedReceivers::parse(&list).expect("a list");
    assert_eq!((read.count(), rest.len()), (64, SHARED_DATA_RECEIVER_LEN));
    assert!(SharedReceivers::write(&mut list[..15], [receiver(1)].into_iter()).is_none());
}

#[test]
fn message_that_is_cut_off_is_left_alone() {
    let mut bytes = vec![0; 128];
    let len = SharedReceivers::write(&mut bytes[HEADER_LEN..], [receiver(1)].into_iter());
    let len = len.expect("it fits");
    bytes[HEADER_LEN + len..][..9].copy_from_slice(&[0, 4, 0, 0, 0, 0, 0, 0, 1]);
    let header = Header::new(Opcode::SharedData, ProcessId(9), ProcessId(0), Incarnation(1));
    seal(&mut bytes, header.unaddressed(), len + 9);
    let mut copy = copy_for(&bytes, 1);
    let read = Frame::parse_for(&mut copy, ProcessId(1)).expect("its copy");
    assert!(Messages::new(read.payload).next().is_some_and(|message| message.is_err()));
}

fn reliable_ack(from: u32, to: u32, words: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let ack = Ack {
        cumulative: Psn(100 + from),
        received: from,
        marked: 0,
        window_bytes: 1 << 20,
        consumed_bytes: 5,
        acked_incarnation: 1,
        reservation_id: 0,
        reservation: Ack::RESERVATION_PENDING,
        delay: AckDelay(0),
    };
    let len = ack.write(&mut bytes[HEADER_LEN..], words.iter().copied()).expect("it fits");
    let header =
        Header::new(Opcode::ReliableAck, ProcessId(from), ProcessId(to), Incarnation(from + 1));
    let at = Timestamp::from_ns(9);
    let frame_len = seal(&mut bytes, header.stamped(at, Promises::both(at), Psn::FIRST), len);
    bytes.truncate(frame_len);
    bytes
}

//= spec/ordering.md#R91
#[test]
fn bundled_acknowledgement_reads_as_its_frame() {
    let frames = [reliable_ack(1, 17, &[]), reliable_ack(2, 18, &[]), reliable_ack(3, 17, &[])];
    let acks = frames.clone().map(|frame| BundledAck::of_frame(&frame).expect("without words"));
    let mut bytes = vec![0; 512];
    let len = AckBundle::write(&mut bytes[HEADER_LEN..], acks.into_iter()).expect("it fits");
    let (first, at) = (acks[0].from, Timestamp::from_ns(10));
    let header =
        Header::new(Opcode::ReliableAckBundle, first.process, ProcessId(17), first.incarnation)
            .stamped(at, Promises::both(at), Psn::FIRST)
            .unaddressed();
    let frame_len = seal(&mut bytes, header, len);
    bytes.truncate(frame_len);
    let (header, opcode) = parse_header(&bytes).expect("a frame");
    let list = Receivers::parse(opcode, &bytes[HEADER_LEN..]).expect("a list");
    assert_eq!((list.count(), header.run(3)), (3, Some(0..3)));
    for (position, frame) in frames.iter().enumerate() {
        let mut copy = bytes.clone();
        header.write_copy(&mut copy, list.get(position).expect("it is in the list"));
        let read = Frame::parse_for(&mut copy, acks[position].to).expect("its copy");
        let alone = Frame::parse(frame).expect("a frame");
        assert_eq!((read.opcode, read.payload), (alone.opcode, alone.payload));
        assert_eq!(read.header.sender(), alone.header.sender());
    }
    // A copy for another process, and an entry that the list does not have.
    for receiver in [(ProcessId(17), Psn(1)), (ProcessId(17), Psn(3))] {
        let mut copy = bytes.clone();
        header.write_copy(&mut copy, receiver);
        let refused = DecodeError::Field { field: "receiver", value: 17 };
        assert_eq!(Frame::parse_for(&mut copy, ProcessId(17)).err(), Some(refused));
    }
}

//= spec/ordering.md#R91
#[test]
fn bundles_take_plain_and_intact_acknowledgements_only() {
    assert!(BundledAck::of_frame(&reliable_ack(1, 17, &[(1, 0)])).is_none());
    assert!(BundledAck::of_frame(&shared(Opcode::ReliableSharedData, &[1])).is_none());
    let mut damaged = reliable_ack(1, 17, &[]);
    damaged[HEADER_LEN + 3] ^= 1;
    assert!(BundledAck::of_frame(&damaged).is_none());
    let refused = |payload: &[u8]| AckBundle::parse(payload).err();
    let field = |value| DecodeError::Field { field: "number of acknowledgements", value };
    let truncated = |need, got| DecodeError::Truncated { part: "acknowledgements", need, got };
    let mut payload = [0; AckBundle::len_of(17)];
    assert_eq!(refused(&payload), Some(field(0)));
    payload[0] = 17;
    assert_eq!(refused(&payload), Some(field(17)));
    payload[0] = 2;
    assert_eq!(refused(&payload[..99]), Some(truncated(100, 99)));
    assert_eq!(refused(&payload[..3]), Some(truncated(4, 3)));
}
