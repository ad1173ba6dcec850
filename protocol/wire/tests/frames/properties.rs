//! Properties that hold for arbitrary bytes: shared by the property tests, the replay of the fuzz
//! corpora and the fuzz targets (`verify/fuzz`).

#[path = "bulk.rs"]
mod bulk;

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{
    Ack, AckBundle, AckView, Amcast, AnnounceView, BundledAck, Connect, DETACHED_FRONT_LEN,
    DecodeError, Drops, FRAGMENT_HEADER_LEN, Failure, Fcp, FcpGrant, FcpPart, FcpTotal, FcpWriter,
    Flags, Flood, FloodAck, FloodKind, FloodView, Fragment, Frame, Header, JoinAnswer, JoinRequest,
    LargeControl, MESSAGE_HEADER_LEN, MarkedMessage, Members, Messages, Opcode, PIGGYBACK_LEN,
    PiggybackedAck, Probe, Recall, Receivers, RecoveryView, SharedReceiver, SharedReceivers, Slot,
    TransferPacket, Undeliverable, Watchdog, header_len, is_hop_intact, mark_congestion,
    open_detached, parse_header, pass_hop, rewrite_promises, seal_unsummed, seal_with_hops,
    write_fragment_header, write_message, write_packet,
};

/// The time against which 48-bit times are expanded; arbitrary.
pub const NEAR: Timestamp = Timestamp::from_ns(5 << 48);

/// Decoding a frame never panics, and only accepts what a sender would have sealed.
pub fn frame(bytes: &[u8]) {
    if let Ok(frame) = Frame::parse(bytes) {
        let end = header_len(frame.opcode as u8) + frame.payload.len();
        assert_eq!(resealed(&frame), bytes[..end]);
        let (header, opcode) = parse_header(bytes).expect("a frame that parses can be forwarded");
        assert_eq!((header, opcode), (frame.header, frame.opcode));
    }
    // Random bytes practically never have valid checks: seal them as a sender would.
    if let Some(sealed) = sealed(bytes) {
        let frame = Frame::parse(&sealed).expect("sealed just now");
        detached(&sealed, &frame);
        assert_eq!(resealed(&frame), sealed);
        copies(&sealed, &frame);
        both_ends(&frame);
        body(frame.opcode, frame.payload);
        unsummed(sealed);
    }
}

//= spec/ordering.md#R54
/// Without checks, anything with a header of this version and all of its payload is a frame.
fn unsummed(mut bytes: Vec<u8>) {
    let frame = Frame::parse(&bytes).expect("sealed just now");
    let (header, payload_len) = (frame.header, frame.payload.len());
    assert_eq!(seal_unsummed(&mut bytes, header, payload_len), bytes.len());
    assert_eq!(Frame::parse(&bytes).map(|_| ()), Err(DecodeError::HopTag));
    let frame = Frame::parse_unsummed(&bytes).expect("complete");
    assert_eq!(
        (frame.opcode, frame.payload),
        (header.opcode().expect("known"), &bytes[header_len(frame.opcode as u8)..])
    );
    assert!(payload_len == 0 || Frame::parse_unsummed(&bytes[..bytes.len() - 1]).is_err());
    // Bytes that were changed decode without a panic.
    for at in 0..bytes.len().min(header_len(bytes[1]) + 16) {
        let before = bytes[at];
        bytes[at] = !before;
        if let Ok(frame) = Frame::parse_unsummed(&bytes) {
            body(frame.opcode, frame.payload);
        }
        bytes[at] = before;
    }
}

/// Each receiver of a shared frame can read its copy, and other frames are read as they are.
fn copies(bytes: &[u8], frame: &Frame<'_>) {
    if !frame.opcode.is_shared() {
        let mut same = bytes.to_vec();
        let read = Frame::parse_for(&mut same, ProcessId(7)).expect("it parses");
        assert_eq!((read.header, read.payload), (frame.header, frame.payload));
        return;
    }
    let list = Receivers::parse(frame.opcode, frame.payload).ok();
    for position in 0..list.map_or(0, |list| list.count()) {
        let receiver = list.and_then(|list| list.get(position)).expect("it is in the list");
        let mut copy = bytes.to_vec();
        frame.header.write_copy(&mut copy, receiver);
        let read = Frame::parse_for(&mut copy, receiver.0);
        let (Ok(read), Some(list)) = (read, list) else { panic!("its own copy") };
        assert_eq!(read.header.dst(), receiver.0);
        match list {
            Receivers::Data(list) => {
                assert_eq!(read.header.psn(), receiver.1);
                assert!(read.opcode.in_best_effort() == Opcode::Data);
                if list.iter().any(|own| {
                    (own.process, own.psn, own.has_ack) == (receiver.0, receiver.1, true)
                }) {
                    let same = PiggybackedAck::split(read.payload).map(|(ack, _)| ack);
                    let mut acks = (0..64).filter_map(|at| list.ack(at));
                    assert!(same.is_ok_and(|same| acks.any(|ack| ack == same)));
                }
            }
            Receivers::Acks(bundle) => {
                let own = bundle.get(position).expect("it is in the list");
                assert_eq!((read.opcode, read.payload), (Opcode::ReliableAck, &own.ack[..]));
                let from = (read.header.src(), read.header.incarnation());
                assert_eq!(from, (own.from.process, own.from.incarnation));
            }
        }
    }
    // Whatever the header says, reading it for a process does not panic.
    let _ = Frame::parse_for(&mut bytes.to_vec(), frame.header.dst());
}

/// The front of a detached piece decodes like the whole frame, and other frames have no such front.
fn detached(bytes: &[u8], frame: &Frame<'_>) {
    let is_apart = frame.opcode == Opcode::BulkPiece
        && frame.header.has(Flags::DETACHED)
        && bytes.len() >= DETACHED_FRONT_LEN;
    let front = &bytes[..bytes.len().min(DETACHED_FRONT_LEN)];
    let opened = open_detached(front);
    assert_eq!(opened.is_ok(), is_apart);
    if let Ok((header, covered, behind)) = opened {
        assert_eq!((header, covered), (frame.header, &frame.payload[..covered.len()]));
        assert_eq!(covered.len() + behind, frame.payload.len());
    }
}

/// Both instances of a hop-only frame are encoded as they were decoded, if there is a sender.
fn both_ends(frame: &Frame<'_>) {
    let (own, peer) = (frame.header.sender(), frame.header.peer());
    let Some(own) = own else { return };
    if !frame.header.has_timestamps() {
        return;
    }
    let promises = frame.header.promises(NEAR);
    let header = Header::hop_only(frame.opcode, own, peer, promises);
    assert_eq!((header.sender(), header.peer()), (Some(own), peer));
    assert_eq!((header.src(), header.incarnation()), (frame.header.src(), own.incarnation));
    assert_eq!(header.dst(), frame.header.dst());
    assert_eq!(header.promises(NEAR), promises);
}

/// Decoding a body never panics, and re-encoding it gives the same bytes. The first byte is the
/// opcode, the others are the payload; or the bytes are a control message of a large payload.
pub fn messages(bytes: &[u8]) {
    let Some((code, payload)) = bytes.split_first() else { return };
    let mut note = Vec::new();
    LargeControl::write_escaped(&[], |part| note.extend_from_slice(part));
    note.truncate(8);
    note.extend_from_slice(payload);
    large_control(&note);
    marked(payload);
    let mut note = written(MarkedMessage::Escaped(&[]));
    note.truncate(7);
    note.extend_from_slice(payload);
    marked(&note);
    for opcode in Opcode::try_from(*code).into_iter() {
        body(opcode, payload);
    }
}

fn written(message: MarkedMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(|part| bytes.extend_from_slice(part));
    bytes
}

/// A marked message has one encoding, and any message round-trips escaped.
fn marked(bytes: &[u8]) {
    let escaped = MarkedMessage::Escaped(bytes);
    assert_eq!(MarkedMessage::parse(&written(escaped)), Ok(Some(escaped)));
    if let Ok(Some(message)) = MarkedMessage::parse(bytes) {
        assert_eq!(written(message), bytes);
    }
}

/// A control message of a large payload round-trips.
fn large_control(bytes: &[u8]) {
    let Ok(Some(note)) = LargeControl::parse(bytes) else { return };
    let mut again = Vec::new();
    let put = |part: &[u8]| again.extend_from_slice(part);
    match note {
        LargeControl::Escaped(message) => LargeControl::write_escaped(message, put),
        LargeControl::Invitation { object, block_len, piece_len, members } => {
            LargeControl::write_invitation(object, block_len, piece_len, members.iter(), put);
        }
        LargeControl::Descriptor(object) => LargeControl::write_descriptor(object, put),
        LargeControl::Withdrawn(group) => LargeControl::write_withdrawn(group, put),
    }
    assert_eq!(LargeControl::parse(&again), Ok(Some(note)));
}

/// The rewriting of a frame by hops does not affect the end-to-end check, and never repairs a
/// corrupt header. Four bytes choose the steps, sixteen are promises, the rest is the frame.
pub fn rewrite(bytes: &[u8]) {
    let Some((steps, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Some((barrier, rest)) = rest.split_first_chunk::<8>() else { return };
    let Some((commit, rest)) = rest.split_first_chunk::<8>() else { return };
    let promises = Promises {
        barrier: Timestamp::from_ns(u64::from_be_bytes(*barrier)),
        commit: Timestamp::from_ns(u64::from_be_bytes(*commit)),
    };
    let mut any = rest.to_vec();
    for step in steps {
        hop(*step, &mut any, promises);
    }
    assert_eq!(any.len(), rest.len());

    let Some(original) = sealed(rest) else { return };
    let mut travelled = original.clone();
    let mut is_rewritten = false;
    for step in steps {
        is_rewritten |= hop(*step, &mut travelled, promises);
    }
    let (before, after) = (parse(&original), parse(&travelled));
    assert_eq!((before.opcode, before.payload), (after.opcode, after.payload));
    assert_eq!(before.header.message_ts(NEAR), after.header.message_ts(NEAR));
    assert_eq!(before.header.psn(), after.header.psn());
    assert_eq!(before.header.src(), after.header.src());
    assert_eq!(before.header.dst(), after.header.dst());
    if !before.header.has_timestamps() {
        return;
    }
    let said = if is_rewritten { promises } else { before.header.promises(NEAR) };
    let described = after.header.promises(NEAR);
    assert_eq!(described.barrier.to_wire(), said.barrier.to_wire());
    assert_eq!(described.commit.to_wire(), said.commit.to_wire());
}

fn parse(bytes: &[u8]) -> Frame<'_> {
    Frame::parse(bytes).expect("hops leave it intact")
}

/// Performs one step of a hop. Returns whether it has written promises.
fn hop(step: u8, bytes: &mut [u8], promises: Promises) -> bool {
    match step % 4 {
        0 => {
            let was = bytes.to_vec();
            let has_passed = pass_hop(bytes, Some(promises));
            if !has_passed {
                assert_eq!(bytes, was, "a frame whose budget is spent is left alone");
            }
            has_passed
        }
        1 => {
            let (was_intact, was) = (is_hop_intact(bytes), bytes.to_vec());
            mark_congestion(bytes);
            if was_intact {
                assert!(is_hop_intact(bytes));
            } else if let Some(tag) = was.get(28..36) {
                assert_eq!(&bytes[28..36], tag, "a wrong tag is not renewed");
            }
            false
        }
        2 => {
            rewrite_promises(bytes, promises);
            true
        }
        _ => false,
    }
}

/// Returns the frame in `bytes` with valid checks; `None` if it is shorter than a header or its
/// opcode is unknown.
pub fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (front, payload) = bytes.split_at_checked(header_len(*bytes.get(1)?))?;
    let payload = &payload[..payload.len().min(usize::from(u16::MAX))];
    let number = |at: usize, bytes: usize| {
        front[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let time = |at| Timestamp::from_ns(number(at, 6));
    let id = |at| number(at, 4) as u32;
    let opcode = Opcode::try_from(front[1]).ok()?;
    let mut header = Header::new(opcode, ProcessId(id(4)), ProcessId(id(8)), Incarnation(id(12)));
    if header.has_timestamps() {
        let promises = Promises { barrier: time(44), commit: time(50) };
        header = header.stamped(time(38), promises, Psn::FIRST);
    }
    let header = header.with_psn(Psn(id(16))).flagged(front[2]);
    let mut sealed = front.to_vec();
    sealed.extend_from_slice(payload);
    seal_with_hops(&mut sealed, header, payload.len(), front[3] & 63);
    Some(sealed)
}

/// Returns what a sender would have written to send `frame`.
pub fn resealed(frame: &Frame<'_>) -> Vec<u8> {
    let old = frame.header;
    let flags = (0..8).map(|bit| 1 << bit).filter(|flag| old.has(*flag)).sum();
    let header = Header::new(frame.opcode, old.src(), old.dst(), old.incarnation())
        .stamped(old.message_ts(NEAR), old.promises(NEAR), old.psn())
        .flagged(flags);
    let mut bytes = vec![0; header_len(frame.opcode as u8)];
    bytes.extend_from_slice(frame.payload);
    seal_with_hops(&mut bytes, header, frame.payload.len(), old.hops());
    bytes
}

/// Decodes the payload as `opcode` demands, encodes the result, and decodes that.
pub fn body(opcode: Opcode, payload: &[u8]) {
    let mut buf = vec![0; payload.len()];
    match opcode.in_best_effort() {
        Opcode::Data => {
            data(payload);
            // With a piggybacked acknowledgement.
            let Ok((ack, messages)) = PiggybackedAck::split(payload) else { return };
            ack.write(&mut buf).expect("as long as before");
            assert_eq!(PiggybackedAck::split(&buf[..PIGGYBACK_LEN]), Ok((ack, &[][..])));
            data(messages);
        }
        Opcode::SharedData => {
            let Ok((list, messages)) = SharedReceivers::parse(payload) else { return };
            let receivers: Vec<SharedReceiver> = list.iter().collect();
            let mut len = SharedReceivers::write(&mut buf, receivers.iter().copied())
                .expect("as long as before");
            for ack in (0..receivers.len()).filter_map(|position| list.ack(position)) {
                len += ack.write(&mut buf[len..]).expect("as long as before");
            }
            assert_eq!(len, payload.len() - messages.len());
            let (again, _) = SharedReceivers::parse(&buf).expect("written just now");
            assert!(again.iter().eq(receivers));
            data(messages);
        }
        Opcode::ReliableAckBundle => {
            let Ok(bundle) = AckBundle::parse(payload) else { return };
            let acks: Vec<BundledAck> =
                (0..bundle.count()).filter_map(|position| bundle.get(position)).collect();
            AckBundle::write(&mut buf, acks.iter().copied()).expect("as long as before");
            let again = AckBundle::parse(&buf).expect("written just now");
            assert!((0..again.count()).filter_map(|position| again.get(position)).eq(acks));
        }
        Opcode::Fragment => {
            let Ok(fragment) = Fragment::parse(payload) else { return };
            write_fragment_header(&mut buf, fragment.header);
            buf[FRAGMENT_HEADER_LEN..].copy_from_slice(fragment.piece);
            assert_eq!(Fragment::parse(&buf), Ok(fragment));
        }
        Opcode::Ack | Opcode::Nak | Opcode::Grant => {
            let Ok(read) = AckView::parse(payload) else { return };
            let written = read.ack.write(&mut buf, read.words()).expect("as long as before");
            let again = AckView::parse(&buf[..written]).expect("written just now");
            assert!(again.words().eq(read.words()));
            assert_eq!(again.ack, Ack { ..read.ack });
        }
        Opcode::Probe => {
            let Ok(probe) = Probe::parse(payload) else { return };
            probe.write(&mut buf).expect("as long as before");
            assert_eq!(Probe::parse(&buf), Ok(probe));
        }
        Opcode::Connect => {
            let Ok(connect) = Connect::parse(payload) else { return };
            connect.write(&mut buf).expect("as long as before");
            assert_eq!(Connect::parse(&buf), Ok(connect));
        }
        Opcode::Relay | Opcode::Relayed => {
            // A frame in a frame, but not nested deeper.
            if let Some(inner) = sealed(payload).filter(|inner| !parse(inner).opcode.is_control()) {
                frame(&inner);
            }
        }
        Opcode::Fcp => {
            let Ok(read) = Fcp::parse(1, payload) else { return };
            let written = refcp(&read, 0);
            let mut was = payload.to_vec();
            if read.reset().is_some() {
                // The byte after the kind of the first part is reserved.
                was[9] = 0;
            }
            // Everything but the checksum, whose seed is unknown.
            assert_eq!(written[4..], was[4..]);
            assert!(Fcp::parse(1, &written).is_ok_and(|read| read.is_in_step(0)));
        }
        _ => {
            let Some(written) = rewritten(opcode, payload) else { return };
            assert_eq!(rewritten(opcode, &written).as_ref(), Some(&written));
            // Bits that differ are reserved, and written as 0.
            for (written, was) in written.iter().zip(payload) {
                assert_eq!(written & !was, 0);
            }
        }
    }
}

/// Re-encodes a control packet of scheduled transfer.
pub fn refcp(read: &Fcp<'_>, seed: u64) -> Vec<u8> {
    let mut buf = vec![0xff; usize::from(u16::MAX)];
    let fits = "as long as before";
    let mut writer = FcpWriter::new(&mut buf, read.received, read.received_bits).expect(fits);
    for part in read.parts() {
        match part {
            FcpPart::Reset(reset) => assert!(writer.reset(reset)),
            FcpPart::Totals(all) => {
                let totals: Vec<FcpTotal> = all.totals().collect();
                assert_eq!(writer.totals(all.encoding(), &totals), totals.len());
            }
            FcpPart::Arrival(arrival) => assert!(writer.arrival(arrival)),
            FcpPart::Grants(all) => {
                let mut given = [(0, 0); 64];
                for FcpGrant { slot, dst, path } in all.grants() {
                    given[usize::from(slot)] = (dst, path);
                }
                assert!(writer.grants(all.base(), all.slots(), |slot| given[slot]));
            }
        }
    }
    let bytes = writer.finish(seed);
    buf.truncate(bytes);
    buf
}

/// Re-encodes a recall, link-state or failure body; `None` if it is refused or the opcode has no
/// such body.
pub fn rewritten(opcode: Opcode, payload: &[u8]) -> Option<Vec<u8>> {
    let mut buf = vec![0xff; payload.len()];
    let fits = "as long as before";
    let bytes = match opcode {
        Opcode::Recall | Opcode::RecallAck => {
            Recall::write(&mut buf, Recall::parse(payload).ok()?.timestamps(NEAR))
        }
        Opcode::Announce => {
            let read = AnnounceView::parse(payload).ok()?;
            let (links, part) = (read.links(NEAR), read.announce);
            assert!(usize::from(part.first) + links.len() <= usize::from(part.total));
            let (count, bytes) = part.write(&mut buf, read.links(NEAR)).expect(fits);
            assert_eq!(usize::from(count), links.len());
            bytes
        }
        Opcode::Flood | Opcode::Notice => {
            let read = FloodView::parse(payload).ok()?;
            read.failures(NEAR).for_each(whole);
            let (flood, count) = (Flood { id: read.id }, read.failures(NEAR).len());
            let (count, written) = match read.kind {
                FloodKind::Notice => (count, flood.write_notice(&mut buf, read.failures(NEAR))),
                FloodKind::Resume => {
                    (read.resolved().count(), flood.write_resume(&mut buf, read.resolved()))
                }
                FloodKind::Freeze => {
                    (read.dead().count(), flood.write_freeze(&mut buf, read.dead()))
                }
            };
            let (wrote, bytes) = written.expect(fits);
            assert_eq!(usize::from(wrote), count);
            read.tip.map_or(bytes, |tip| tip.append_to_flood(&mut buf, bytes).expect(fits))
        }
        Opcode::FloodAck | Opcode::Completed => {
            FloodAck::parse(payload).ok()?.write(&mut buf).expect(fits)
        }
        Opcode::Undeliverable => {
            Undeliverable::write(&mut buf, Undeliverable::parse(payload, NEAR).ok()?)
        }
        Opcode::Recovery => {
            let read = RecoveryView::parse(payload).ok()?;
            read.failures(NEAR).for_each(whole);
            let recovery = read.recovery(NEAR);
            assert!(recovery.part < recovery.parts);
            recovery.write(&mut buf, read.failures(NEAR), read.recalls(NEAR)).expect(fits)
        }
        opcode if opcode.is_amcast() => {
            let mut bytes = 0;
            for run in Amcast::runs(opcode, payload) {
                let run = run.ok()?;
                bytes += run.first.write(&mut buf[bytes..]).expect(fits);
                buf[bytes..bytes + run.messages.len()].copy_from_slice(run.messages);
                bytes += run.messages.len();
            }
            bytes
        }
        Opcode::Join if !payload.is_empty() => {
            JoinRequest::parse(payload).ok()?.write(&mut buf).expect(fits)
        }
        Opcode::JoinAnswer => JoinAnswer::parse(payload).ok()?.write(&mut buf).expect(fits),
        Opcode::Members => Members::parse(payload).ok()?.write(&mut buf).expect(fits),
        Opcode::Watchdog => Watchdog::parse(payload).ok()?.write(&mut buf).expect(fits),
        Opcode::Drops => Drops::write(&mut buf, Drops::parse(payload).ok()?.losses()),
        Opcode::Slot => {
            let (slot, packets) = Slot::parse(payload).ok()?;
            let mut bytes = slot.write(&mut buf).expect(fits);
            for packet in packets {
                transfer(packet);
                bytes += write_packet(&mut buf[bytes..], packet).expect(fits);
            }
            bytes
        }
        _ => return bulk::rewritten(opcode, payload),
    };
    buf.truncate(bytes);
    Some(buf)
}

/// A transfer packet round-trips, except for reserved bytes.
pub fn transfer(packet: &[u8]) {
    let mut buf = vec![0xff; packet.len()];
    let written = match TransferPacket::parse(packet) {
        Ok(TransferPacket::Piece(piece, bytes)) => {
            assert!(piece.index < piece.pieces().expect("it is one of them"));
            let written = piece.write(&mut buf, bytes);
            buf[1] = packet[1];
            written
        }
        Ok(TransferPacket::PieceAck(pieces, words)) => pieces.write(&mut buf, words.iter()),
        Err(_) => return,
    };
    assert_eq!((written, &buf[..]), (Some(packet.len()), packet));
}

/// The processes of an accepted failure have valid ids.
fn whole(failure: Failure) {
    let (first, end) = (failure.first.0, failure.first.0 + failure.count);
    assert!(first < end && end <= 1 << 31);
    let covers = |process| failure.covers(ProcessId(process), failure.incarnation);
    assert!(covers(first) && covers(end - 1) && !covers(end) && !covers(first.wrapping_sub(1)));
}

/// Coalesced messages have no unused byte: re-encoding gives the payload.
fn data(payload: &[u8]) {
    let mut written = Vec::new();
    for message in Messages::new(payload) {
        match message {
            Ok(message) => {
                let start = written.len();
                written.resize(start + MESSAGE_HEADER_LEN + message.payload.len(), 0);
                let bytes = write_message(&mut written[start..], message);
                assert_eq!(bytes, Some(written.len() - start));
            }
            Err(error) => {
                assert!(matches!(error, DecodeError::Truncated { .. }));
                assert!(payload.starts_with(&written));
                return;
            }
        }
    }
    assert_eq!(written, payload);
}
