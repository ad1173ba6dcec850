//! Frames that a story lets an endpoint receive.

use onepipe_base::{Address, Incarnation, Instance, ProcessId, Psn, SwitchId, Timestamp};
use onepipe_wire::{
    Ack, AckDelay, Connect, Flags, FragmentHeader, HEADER_LEN, Header, Message, Opcode,
    PiggybackedAck, Probe, Recall, seal, write_fragment_header, write_message,
};

use super::words::Words;

/// The process that a story is about.
pub const OWN: Instance =
    Instance { address: Address::Process(ProcessId(0)), incarnation: Incarnation(1) };

/// Returns the frame of a line. Promises that it does not name are `clock`.
pub fn frame(words: Words<'_>, clock: Timestamp) -> Vec<u8> {
    let mut bytes = vec![0; 4_096];
    let (opcode, promises) = (words.opcode(), words.promises(clock));
    let header = if opcode.is_hop_only() {
        let switch =
            Instance { address: Address::Switch(SwitchId(9)), incarnation: Incarnation(1) };
        Header::hop_only(opcode, switch, Some(OWN), promises)
    } else {
        let from = ProcessId(words.must("src") as u32);
        let piggyback = words.number("acks").map_or(0, |_| Flags::PIGGYBACK);
        let timestamp = words.timestamp("ts").unwrap_or(promises.barrier);
        Header::new(opcode, from, ProcessId(0), words.incarnation())
            .stamped(timestamp, promises, words.psn("psn"))
            .flagged(words.flags() | piggyback)
    };
    let payload_len = payload(words, opcode, &mut bytes[HEADER_LEN..]).expect("it fits a frame");
    let frame_len = seal(&mut bytes, header, payload_len);
    bytes.truncate(frame_len);
    bytes
}

/// Writes the payload of a frame. Returns its length.
fn payload(words: Words<'_>, opcode: Opcode, payload: &mut [u8]) -> Option<usize> {
    match opcode.in_best_effort() {
        Opcode::Data => {
            let mut used = 0;
            if let Some(cumulative) = words.number("acks") {
                let ack = PiggybackedAck {
                    cumulative: Psn(cumulative as u32),
                    consumed: words.small("consumed"),
                    acked_incarnation: 1,
                    received: words.number("received").unwrap_or(cumulative) as u8,
                    marked: words.small("marked") as u8,
                    delay: AckDelay(words.small("delay") as u16),
                };
                used = ack.write(payload)?;
            }
            for (delta_ns, (_, bytes)) in (0..).zip(words.messages()) {
                let index = words.small("index") as u16;
                let message = Message { delta_ns, index, payload: &bytes };
                used += write_message(&mut payload[used..], message)?;
            }
            Some(used)
        }
        Opcode::Fragment => {
            let header = FragmentHeader {
                index: words.small("index") as u16,
                message_len: words.must("of") as u32,
                offset: words.must("offset") as u32,
            };
            write_fragment_header(payload, header);
            Some(12 + words.must("len") as usize)
        }
        Opcode::Ack | Opcode::Nak | Opcode::Grant => {
            let cumulative = words.small("cum");
            let ack = Ack {
                cumulative: Psn(cumulative),
                received: words.number("received").map_or(cumulative, |received| received as u32),
                marked: words.small("marked"),
                window_bytes: words.number("window").unwrap_or(65_536) as u32,
                consumed_bytes: words.number("consumed").unwrap_or(0),
                acked_incarnation: 1,
                reservation_id: words.small("id"),
                reservation: match words.text("reservation") {
                    Some("granted") => Ack::RESERVATION_GRANTED,
                    Some("refused") => Ack::RESERVATION_REFUSED,
                    _ => Ack::RESERVATION_PENDING,
                },
                delay: AckDelay(words.small("delay") as u16),
            };
            // The first packet is the last bit of a word, as in a number.
            let bits = |name| {
                words.text(name).map_or(0, |bits| u64::from_str_radix(bits, 2).expect("binary"))
            };
            let word = (bits("got"), bits("rejected"));
            let words = usize::from(word != (0, 0));
            ack.write(payload, [word][..words].iter().copied())
        }
        Opcode::Connect => {
            let reservation_bytes = words.number("bytes").unwrap_or(0);
            let ack_delay_ns = words.number("delay").unwrap_or(250_000) as u32;
            let reservation_id = words.small("id");
            Connect { reservation_id, reservation_bytes, ack_delay_ns }.write(payload)
        }
        Opcode::Probe => {
            let (resolved, until) = (words.psn("resolved"), words.psn("until"));
            Probe { resolved, until, reservation_done: words.small("done") }.write(payload)
        }
        Opcode::Recall | Opcode::RecallAck => {
            Some(Recall::write(payload, words.timestamp("of").into_iter()))
        }
        _ => Some(0),
    }
}
