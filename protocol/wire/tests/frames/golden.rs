//! Golden frames: the files `testdata/*.hex` are decoded and encoded, byte for byte.
//!
//! In these files `#` begins a comment, `name:` labels the bytes that follow, and `@ name = value`
//! gives the value of a 48-bit time expanded against `near`, or of packed bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onepipe_base::Timestamp;
use onepipe_wire::{
    AckBundle, AckView, Connect, DecodeError, Flags, Fragment, Frame, Message, Messages, Opcode,
    PiggybackedAck, Probe, SharedReceivers, VERSION, header_len,
};

use crate::{golden_amcast, golden_bulk, golden_control, golden_join, golden_slots, properties};

/// A file of `testdata`.
pub struct Golden {
    pub name: String,
    /// All bytes, padding included.
    bytes: Vec<u8>,
    /// Labels with their bytes, in the order of the file.
    parts: Vec<(String, Vec<u8>)>,
    times: Vec<(String, u64)>,
}

impl Golden {
    fn read(path: &Path) -> Self {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("it can be read");
        let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
        let mut times = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(time) = line.strip_prefix('@') {
                let (label, values) = time.split_once('=').expect("@ name = value");
                for value in values.split_whitespace() {
                    let value = value.parse().expect("a decimal number");
                    times.push((label.trim().to_string(), value));
                }
                continue;
            }
            let (label, hex) = line.split_once(':').unwrap_or(("", line));
            let byte = |word: &str| u8::from_str_radix(word, 16).expect("hexadecimal bytes");
            let bytes: Vec<u8> = hex.split_whitespace().map(byte).collect();
            match parts.last_mut() {
                Some((_, part)) if label.is_empty() => part.extend(bytes),
                _ if line.is_empty() => {}
                _ => parts.push((label.trim().to_string(), bytes)),
            }
        }
        let bytes = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        Self { name, bytes, parts, times }
    }

    fn all() -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata");
        let entries = fs::read_dir(folder).expect("testdata is there");
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("readable").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn named(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        Self::read(&path)
    }

    /// Returns the numbers after every occurrence of `label`.
    pub fn numbers(&self, label: &str) -> Vec<u64> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let parts = self.parts.iter().filter(|(name, _)| name == label);
        parts.map(|(_, bytes)| number(bytes)).collect()
    }

    /// Returns the decimal numbers of every `@ label = numbers`.
    pub fn words(&self, label: &str) -> Vec<u64> {
        self.times.iter().filter(|(name, _)| name == label).map(|(_, value)| *value).collect()
    }

    pub fn number(&self, label: &str) -> u64 {
        let numbers = self.numbers(label);
        assert!(!numbers.is_empty(), "{}: no {label}", self.name);
        numbers[0]
    }

    /// Returns whether bytes have this label.
    fn has(&self, label: &str) -> bool {
        self.parts.iter().any(|(name, _)| name == label)
    }

    pub fn bytes_of(&self, label: &str) -> Vec<&[u8]> {
        let parts = self.parts.iter().filter(|(name, _)| name == label);
        parts.map(|(_, bytes)| bytes.as_slice()).collect()
    }

    pub fn time(&self, label: &str) -> Timestamp {
        let found = self.times.iter().find(|(name, _)| name == label);
        Timestamp::from_ns(found.unwrap_or_else(|| panic!("{}: no @ {label}", self.name)).1)
    }

    fn header_len(&self) -> usize {
        header_len(self.number("opcode") as u8)
    }

    fn frame(&self) -> Frame<'_> {
        Frame::parse(&self.bytes).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

#[test]
fn every_opcode_has_a_golden_frame() {
    let met: BTreeSet<u8> =
        Golden::all().iter().map(|golden| golden.frame().opcode as u8).collect();
    let all: BTreeSet<u8> = Opcode::ALL.iter().map(|opcode| *opcode as u8).collect();
    assert_eq!(met, all);
}

#[test]
fn headers_match_labels() {
    for golden in Golden::all() {
        let (frame, name) = (golden.frame(), &golden.name);
        let (header, near) = (frame.header, golden.time("near"));
        assert_eq!(frame.opcode as u8, golden.number("opcode") as u8, "{name}");
        assert_eq!(u64::from(header.psn().0), golden.number("psn"), "{name}");
        assert_eq!(u64::from(header.src().0), golden.number("src"), "{name}");
        assert_eq!(u64::from(header.dst().0), golden.number("dst"), "{name}");
        assert_eq!(u64::from(header.incarnation().0), golden.number("incarnation"), "{name}");
        // The first `length` of a file is that of the header; coalesced messages have further ones.
        assert_eq!(header.length() as u64, golden.number("length"), "{name}");
        assert_eq!(u64::from(header.hops()), golden.number("hops"), "{name}");
        let flags = (0..8).map(|bit| 1 << bit).filter(|flag| header.has(*flag)).sum::<u8>();
        assert_eq!(u64::from(flags), golden.number("flags"), "{name}");
        assert_eq!(header.has_timestamps(), golden.has("commit"), "{name}");
        if !header.has_timestamps() {
            continue;
        }
        assert_eq!(header.message_ts(near), golden.time("message_ts"), "{name}");
        assert_eq!(header.promises(near).barrier, golden.time("barrier"), "{name}");
        assert_eq!(header.promises(near).commit, golden.time("commit"), "{name}");
    }
}

//= spec/failure.md#R11
#[test]
fn hop_only_frames_name_both_instances() {
    for golden in Golden::all() {
        let frame = golden.frame();
        if frame.opcode.is_hop_only() {
            golden_control::both_ends(&golden, &frame);
        }
    }
}

#[test]
fn golden_frames_round_trip() {
    for golden in Golden::all() {
        let frame = golden.frame();
        let written = properties::resealed(&frame);
        assert_eq!(
            golden.bytes[..golden.header_len() + frame.payload.len()],
            written,
            "{}",
            golden.name
        );
    }
}

#[test]
fn bodies_match_labels_and_round_trip() {
    for golden in Golden::all() {
        let frame = golden.frame();
        match frame.opcode.in_best_effort() {
            Opcode::Data => messages(&golden, &frame),
            Opcode::SharedData => shared(&golden, &frame),
            Opcode::ReliableAckBundle => ack_bundle(&golden, &frame),
            Opcode::Fragment => fragment(&golden, &frame),
            Opcode::Ack | Opcode::Nak | Opcode::Grant => acknowledgement(&golden, &frame),
            Opcode::Probe => probe(&golden, &frame),
            Opcode::Connect => connect(&golden, &frame),
            Opcode::Recall | Opcode::RecallAck => golden_control::recall(&golden, &frame),
            Opcode::Announce => golden_control::announce(&golden, &frame),
            Opcode::AnnounceAck | Opcode::UndeliverableAck => {
                golden_control::acked_tip(&golden, &frame)
            }
            Opcode::Flood | Opcode::Notice => golden_control::flood(&golden, &frame),
            Opcode::FloodAck | Opcode::Completed => golden_control::flood_ack(&golden, &frame),
            Opcode::Relay | Opcode::Relayed => golden_control::relay(&golden, &frame),
            Opcode::Undeliverable => golden_control::undeliverable(&golden, &frame),
            Opcode::Recovery => golden_control::recovery(&golden, &frame),
            Opcode::AddressAd => golden_control::ad(&golden, &frame),
            Opcode::Join if !frame.payload.is_empty() => golden_join::request(&golden, &frame),
            Opcode::JoinAnswer => golden_join::answer(&golden, &frame),
            Opcode::Members => golden_join::members(&golden, &frame),
            Opcode::Fcp => golden_slots::fcp(&golden, &frame),
            Opcode::Slot => golden_slots::slot(&golden, &frame),
            Opcode::Watchdog => golden_slots::watchdog(&golden, &frame),
            Opcode::Drops => golden_slots::drops(&golden, &frame),
            opcode if opcode.is_amcast() => golden_amcast::packet(&golden, &frame),
            Opcode::Foreign => assert_eq!(golden.bytes_of("anything"), [frame.payload]),
            _ if golden_bulk::body(&golden, &frame) => {}
            _ => assert_eq!(frame.payload, [0u8; 0], "{}", golden.name),
        }
    }
}

fn shared(golden: &Golden, frame: &Frame<'_>) {
    let (list, behind) = SharedReceivers::parse(frame.payload).expect("a golden list");
    let (processes, psns) = (golden.numbers("process"), golden.numbers("receiver_psn"));
    let (indices, flags) = (golden.numbers("receiver_index"), golden.numbers("receiver_flags"));
    assert_eq!((list.count() as u64, list.count()), (golden.number("receivers"), psns.len()));
    for (at, receiver) in list.iter().enumerate() {
        assert_eq!(u64::from(receiver.process.0), processes[at]);
        assert_eq!(u64::from(receiver.psn.0), psns[at]);
        assert_eq!(u64::from(receiver.index), indices[at]);
        assert_eq!(receiver.is_ack_wanted, flags[at] & 4 != 0);
        assert_eq!(receiver.has_ack, flags[at] & 32 != 0);
    }
    let mut written = vec![0xff; frame.payload.len()];
    let receivers = list.iter().collect::<Vec<_>>().into_iter();
    let mut len = SharedReceivers::write(&mut written, receivers).expect("it fits");
    for ack in (0..list.count()).filter_map(|at| list.ack(at)) {
        assert_eq!(u64::from(ack.cumulative.0), golden.number("cumulative"));
        len += ack.write(&mut written[len..]).expect("it fits");
    }
    assert_eq!(len, frame.payload.len() - behind.len());
    assert_eq!(written[..len], frame.payload[..len]);
    let message = Messages::new(behind).next().expect("one message").expect("a golden message");
    assert_eq!([message.payload], golden.bytes_of("message")[..]);
}

fn ack_bundle(golden: &Golden, frame: &Frame<'_>) {
    let bundle = AckBundle::parse(frame.payload).expect("a golden bundle");
    assert_eq!(bundle.count() as u64, golden.number("acks"));
    let all: Vec<_> = (0..bundle.count()).filter_map(|at| bundle.get(at)).collect();
    let numbers = ["ack_src", "ack_inc", "ack_dst", "cumulative"].map(|name| golden.numbers(name));
    for (at, ack) in all.iter().enumerate() {
        let view = AckView::parse(&ack.ack).expect("a golden acknowledgement");
        let read = [ack.from.process.0, ack.from.incarnation.0, ack.to.0, view.ack.cumulative.0];
        assert_eq!(read.map(u64::from), [0, 1, 2, 3].map(|field: usize| numbers[field][at]));
    }
    let mut written = vec![0xff; frame.payload.len()];
    let len = AckBundle::write(&mut written, all.into_iter()).expect("it fits");
    assert_eq!(written[..len], *frame.payload);
}

fn messages(golden: &Golden, frame: &Frame<'_>) {
    let (lengths, indices) = (golden.numbers("length"), golden.numbers("index"));
    let deltas = golden.numbers("delta");
    let mut payloads = golden.bytes_of("message").into_iter();
    let mut written = vec![0; frame.payload.len()];
    let (mut at, mut end, mut behind) = (0, 0, frame.payload);
    if frame.header.has(Flags::PIGGYBACK) {
        let (ack, messages) = PiggybackedAck::split(frame.payload).expect("a golden frame");
        assert_eq!(u64::from(ack.cumulative.0), golden.number("cumulative"));
        assert_eq!(u64::from(ack.consumed), golden.number("consumed"));
        assert_eq!(u64::from(ack.acked_incarnation), golden.number("connection"));
        assert_eq!(u64::from(ack.received), golden.number("received"));
        assert_eq!(u64::from(ack.marked), golden.number("marked"));
        assert_eq!(u64::from(ack.delay.0), golden.number("delay"));
        end = ack.write(&mut written).expect("it fits");
        behind = messages;
    }
    let messages = Messages::of_frame(&frame.header, frame.payload).expect("a golden frame");
    if frame.header.has(Flags::SINGLE) {
        let read: Vec<_> = messages.map(|message| message.expect("a golden message")).collect();
        let message = Message { delta_ns: 0, index: 0, payload: behind };
        assert_eq!((read, payloads.next()), (vec![message], Some(behind)));
        return;
    }
    for message in messages {
        let message = message.expect("a golden message");
        assert_eq!(message.payload.len() as u64, lengths[at + 1]);
        assert_eq!(u64::from(message.index), indices[at]);
        assert_eq!(u64::from(message.delta_ns), deltas[at]);
        if !message.payload.is_empty() {
            assert_eq!(Some(message.payload), payloads.next());
        }
        end += onepipe_wire::write_message(&mut written[end..], message).expect("it fits");
        at += 1;
    }
    assert_eq!((at, payloads.next()), (indices.len(), None), "{}", golden.name);
    assert_eq!(written, frame.payload);
}

fn fragment(golden: &Golden, frame: &Frame<'_>) {
    let fragment = Fragment::parse(frame.payload).expect("a golden fragment");
    assert_eq!(u64::from(fragment.header.index), golden.number("index"));
    assert_eq!(u64::from(fragment.header.message_len), golden.number("message_octets"));
    assert_eq!(u64::from(fragment.header.offset), golden.number("offset"));
    assert_eq!([fragment.piece], golden.bytes_of("piece")[..]);
    let ends = fragment.header.offset as usize + fragment.piece.len();
    let is_last = ends == fragment.header.message_len as usize;
    assert_eq!(frame.header.has(Flags::END_OF_MESSAGE), is_last);
    let mut written = frame.payload.to_vec();
    written[..onepipe_wire::FRAGMENT_HEADER_LEN].fill(0xff);
    onepipe_wire::write_fragment_header(&mut written, fragment.header);
    assert_eq!(written, frame.payload);
}

fn acknowledgement(golden: &Golden, frame: &Frame<'_>) {
    let read = AckView::parse(frame.payload).expect("a golden acknowledgement");
    let ack = read.ack;
    assert_eq!(u64::from(ack.cumulative.0), golden.number("cumulative"));
    assert_eq!(u64::from(ack.received), golden.number("received"));
    assert_eq!(u64::from(ack.marked), golden.number("marked"));
    assert_eq!(u64::from(ack.window_bytes), golden.number("window"));
    assert_eq!(ack.consumed_bytes, golden.number("consumed"));
    assert_eq!(u64::from(ack.reservation_id), golden.number("room_id"));
    assert_eq!(u64::from(ack.acked_incarnation), golden.number("connection"));
    assert_eq!(u64::from(ack.reservation), golden.number("room"));
    assert_eq!(u64::from(ack.delay.0), golden.number("delay"));
    assert_eq!(read.words().len() as u64, golden.number("words"));
    let (received, rejected): (Vec<u64>, Vec<u64>) = read.words().unzip();
    assert_eq!(received, golden.numbers("received_bits"));
    assert_eq!(rejected, golden.numbers("fenced_bits"));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(ack.write(&mut written, read.words()), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

fn probe(golden: &Golden, frame: &Frame<'_>) {
    let probe = Probe::parse(frame.payload).expect("a golden probe");
    assert_eq!(u64::from(probe.resolved.0), golden.number("settled"));
    assert_eq!(u64::from(probe.until.0), golden.number("until"));
    assert_eq!(u64::from(probe.reservation_done), golden.number("room_done"));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(probe.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

fn connect(golden: &Golden, frame: &Frame<'_>) {
    let connect = Connect::parse(frame.payload).expect("a golden connect");
    assert_eq!(connect.reservation_bytes, golden.number("room_octets"));
    assert_eq!(u64::from(connect.reservation_id), golden.number("room_id"));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(connect.write(&mut written), Some(frame.payload.len()));
    assert_eq!(written, frame.payload);
}

#[test]
fn padding_is_ignored_by_parser() {
    let golden = Golden::named("padded.hex");
    let padding = golden.bytes_of("padding")[0].len();
    let end = golden.bytes.len() - padding;
    assert!(padding > 0);
    let mut bytes = golden.bytes.clone();
    bytes[end..].fill(0);
    assert_eq!(Frame::parse(&bytes).expect("intact").payload, golden.frame().payload);
    assert_eq!(Frame::parse(&bytes[..end]).expect("intact").payload, golden.frame().payload);
    let cut = Frame::parse(&bytes[..end - 1]).map(|frame| frame.opcode);
    assert!(matches!(cut, Err(DecodeError::Truncated { part: "payload", .. })));
}

//= spec/ordering.md#R35
#[test]
fn refuses_any_bit_flip_and_truncation() {
    for golden in Golden::all() {
        let end = golden.header_len() + golden.frame().payload.len();
        for length in 0..end {
            assert!(Frame::parse(&golden.bytes[..length]).is_err(), "{} cut", golden.name);
        }
        for bit in 0..end * 8 {
            let mut bytes = golden.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::parse(&bytes).is_err(), "{}: bit {bit} flipped", golden.name);
        }
    }
}

/// Recomputes both checks from the description in `docs/wire-format.md`, so that the golden frames
/// match the specification and not only this encoder.
#[test]
fn checks_match_specification() {
    for golden in Golden::all() {
        let payload = golden.frame().payload;
        let header = &golden.bytes[..golden.header_len()];
        let mut fixed = header.to_vec();
        fixed[2] &= !0x02;
        fixed[3] = 0;
        fixed[20..36].fill(0);
        if let Some(promises) = fixed.get_mut(44..56) {
            promises.fill(0);
        }
        if golden.frame().opcode.is_shared() {
            fixed[8..12].fill(0);
            fixed[16..20].fill(0);
        }
        let xxh3 = xxhash_rust::xxh3::xxh3_64;
        let end_to_end = xxh3(&fixed).rotate_left(17) ^ xxh3(payload);
        assert_eq!(end_to_end, golden.number("integrity"), "{}", golden.name);
        let mut covered = [&header[..28], &header[36..]].concat();
        covered.resize(48, 0);
        let tag = crc32c(covered);
        assert_eq!(u64::from(tag), golden.number("hop_tag"), "{}", golden.name);
    }
}

/// Returns the frame in another version, sealed as the specification says.
fn in_version(frame: &[u8], version: u8) -> Vec<u8> {
    let (mut header, payload) = (frame[..56].to_vec(), &frame[56..]);
    header[0] = version;
    let mut fixed = header.clone();
    (fixed[3], fixed[2]) = (0, fixed[2] & !0x02);
    fixed[20..36].fill(0);
    fixed[44..56].fill(0);
    let xxh3 = xxhash_rust::xxh3::xxh3_64;
    let integrity = xxh3(&fixed).rotate_left(17) ^ xxh3(payload);
    header[20..28].copy_from_slice(&integrity.to_be_bytes());
    let tag = u64::from(crc32c([&header[..28], &header[36..]].concat()));
    header[28..36].copy_from_slice(&tag.to_be_bytes());
    [&header, payload].concat()
}

//= spec/ordering.md#R90
#[test]
fn joins_of_later_versions_are_read() {
    let joins = ["join-request.hex", "join-accepted.hex", "join-not-admitted.hex"];
    for (name, is_join) in joins.map(|name| (name, true)).into_iter().chain([("beacon.hex", false)])
    {
        let golden = Golden::named(name);
        assert_eq!(in_version(&golden.bytes, VERSION), golden.bytes);
        for (version, is_later) in [(VERSION + 1, true), (u8::MAX, true), (VERSION - 1, false)] {
            let frame = in_version(&golden.bytes, version);
            let parsed = Frame::parse(&frame).map(|_| ());
            assert_eq!(parsed, Err(DecodeError::Version(version)), "{name}");
            let join = Frame::parse_join(&frame).map(|frame| frame.payload.to_vec());
            let payload = golden.frame().payload.to_vec();
            assert_eq!(join.is_ok(), is_join && is_later, "{name} in {version:#x}: {join:?}");
            assert!(join.is_err() || join == Ok(payload));
        }
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: Vec<u8>) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

fn specification() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire-format.md");
    fs::read_to_string(path).expect("the description is there")
}

#[test]
fn specification_lists_every_opcode_and_flag() {
    let text = specification();
    for opcode in Opcode::ALL {
        let row = format!("\n| {:#04x} | {opcode:?} |", *opcode as u8);
        assert!(text.contains(&row), "{row}");
    }
    let flags = [
        ("END_OF_MESSAGE", Flags::END_OF_MESSAGE),
        ("CONGESTION", Flags::CONGESTION),
        ("ACK_NOW", Flags::ACK_NOW),
        ("RESERVED", Flags::RESERVED),
    ];
    for (name, flag) in flags {
        let row = format!("\n| {} | {name} |", flag.trailing_zeros());
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn example_of_specification_is_a_golden_frame() {
    let text = specification();
    let by_hand = text.split("## A frame by hand").nth(1).expect("the section is there");
    let rows = by_hand.split("```").nth(1).expect("the bytes are there").lines();
    let is_byte = |word: &&str| word.len() == 2 && u8::from_str_radix(word, 16).is_ok();
    let byte = |word| u8::from_str_radix(word, 16).expect("filtered just now");
    let bytes: Vec<u8> =
        rows.flat_map(|row| row.split_whitespace().filter(is_byte).map(byte)).collect();
    assert_eq!(bytes, Golden::named("data.hex").bytes);
}
