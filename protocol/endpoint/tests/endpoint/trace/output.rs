//! Frames and events of an endpoint, as lines of a story.

use std::fmt::Write;

use onepipe_base::Timestamp;
use onepipe_endpoint::{Event, Outcome, SendFailed};
use onepipe_verify_testing::grouped;
use onepipe_wire::{
    Ack, AckView, Connect, Flags, Fragment, Frame, Messages, Opcode, PiggybackedAck, Probe, Recall,
    SharedReceivers,
};

use super::ORIGIN_NS;
use super::words::{FLAGS, kebab};

/// Formats a timestamp by its distance from the origin of the story.
fn stamp(timestamp: Timestamp) -> String {
    timestamp.as_ns().checked_sub(ORIGIN_NS).map_or_else(|| "none".into(), grouped)
}

/// Formats a short text as text, and anything else by its length.
pub fn content(payload: &[u8]) -> String {
    let is_text = payload.iter().all(u8::is_ascii_graphic) && payload.len() <= 20;
    match str::from_utf8(payload) {
        Ok(text) if is_text => format!("{text:?}"),
        _ => format!("{} bytes", grouped(payload.len() as u64)),
    }
}

/// Appends a field if it is not 0.
fn field(line: &mut String, name: &str, value: u64) {
    if value > 0 {
        write!(line, " {name}={}", grouped(value)).expect("to a string");
    }
}

/// Returns the line of a frame that was sent.
pub fn frame(bytes: &[u8], clock: Timestamp) -> String {
    let frame = Frame::parse(bytes).expect("the endpoint seals its frames");
    let (header, opcode) = (frame.header, frame.opcode);
    let mut line = format!("    tx {}", kebab(opcode));
    if !opcode.is_hop_only() && !opcode.is_shared() {
        write!(line, " dst={}", header.dst().0).expect("to a string");
    }
    if opcode.has_messages() {
        if !opcode.is_shared() {
            write!(line, " psn={}", header.psn().0).expect("to a string");
        }
        write!(line, " ts={}", stamp(header.message_ts(clock))).expect("to a string");
    }
    let promises = header.promises(clock);
    write!(line, " b={}", stamp(promises.barrier)).expect("to a string");
    if promises.commit != promises.barrier {
        write!(line, " c={}", stamp(promises.commit)).expect("to a string");
    }
    payload(&mut line, &frame, clock);
    for (name, flag) in FLAGS {
        if header.has(*flag) && opcode.has_messages() {
            write!(line, " {name}").expect("to a string");
        }
    }
    if opcode.in_best_effort() == Opcode::Fragment && !header.has(Flags::END_OF_MESSAGE) {
        line.push_str(" more");
    }
    line
}

fn payload(line: &mut String, frame: &Frame<'_>, clock: Timestamp) {
    let mut payload = frame.payload;
    match frame.opcode.in_best_effort() {
        Opcode::Data | Opcode::SharedData => {
            if frame.opcode.is_shared() {
                let (receivers, rest) = SharedReceivers::parse(payload).expect("well formed");
                payload = rest;
                for (at, to) in receivers.iter().enumerate() {
                    write!(line, " dst={}/psn={}", to.process.0, to.psn.0).expect("to a string");
                    if let Some(ack) = receivers.ack(at) {
                        write!(line, "/acks={}", ack.cumulative.0).expect("to a string");
                    }
                }
            }
            if !frame.opcode.is_shared() && frame.header.has(Flags::PIGGYBACK) {
                let (ack, rest) = PiggybackedAck::split(payload).expect("well formed");
                payload = rest;
                write!(line, " acks={}", ack.cumulative.0).expect("to a string");
                field(line, "consumed", ack.consumed.into());
                field(line, "marked", ack.marked.into());
                field(line, "delay", ack.delay.ns());
            }
            let is_single = !frame.opcode.is_shared() && frame.header.has(Flags::SINGLE);
            let messages =
                if is_single { Messages::single(payload) } else { Messages::new(payload) };
            for message in messages {
                let message = message.expect("well formed");
                write!(line, " {}", content(message.payload)).expect("to a string");
            }
        }
        Opcode::Fragment => {
            let fragment = Fragment::parse(payload).expect("well formed");
            let end = fragment.header.offset as usize + fragment.piece.len();
            let (offset, len) = (fragment.header.offset, fragment.header.message_len);
            write!(
                line,
                " {}..{} of {}",
                grouped(offset.into()),
                grouped(end as u64),
                grouped(len.into())
            )
            .expect("to a string");
        }
        Opcode::Ack | Opcode::Nak | Opcode::Grant => {
            let view = AckView::parse(payload).expect("well formed");
            let ack = view.ack;
            write!(line, " cum={}", ack.cumulative.0).expect("to a string");
            for (got, rejected) in view.words() {
                write!(line, " got={got:b} rejected={rejected:b}").expect("to a string");
            }
            write!(line, " window={}", grouped(ack.window_bytes.into())).expect("to a string");
            field(line, "consumed", ack.consumed_bytes);
            field(line, "marked", ack.marked.into());
            field(line, "delay", ack.delay.ns());
            field(line, "id", ack.reservation_id.into());
            match ack.reservation {
                Ack::RESERVATION_GRANTED => line.push_str(" reservation=granted"),
                Ack::RESERVATION_REFUSED => line.push_str(" reservation=refused"),
                _ => {}
            }
        }
        Opcode::Connect => {
            let connect = Connect::parse(payload).expect("well formed");
            write!(line, " psn={}", frame.header.psn().0).expect("to a string");
            field(line, "id", connect.reservation_id.into());
            field(line, "bytes", connect.reservation_bytes);
        }
        Opcode::Probe => {
            let probe = Probe::parse(payload).expect("well formed");
            let (resolved, until) = (probe.resolved.0, probe.until.0);
            write!(line, " resolved={resolved} until={until}").expect("to a string");
            field(line, "done", probe.reservation_done.into());
        }
        Opcode::Recall | Opcode::RecallAck => {
            let recall = Recall::parse(payload).expect("well formed");
            for timestamp in recall.timestamps(clock) {
                write!(line, " of={}", stamp(timestamp)).expect("to a string");
            }
        }
        _ => {}
    }
}

/// Returns the line of an event.
pub fn event(event: &Event, payload: &[u8]) -> String {
    match event {
        Event::Delivered(delivery) => {
            let (from, ts) = (delivery.from.0, stamp(delivery.timestamp));
            let order = if delivery.is_unordered { " unordered" } else { "" };
            format!("    delivered from={from} ts={ts} {}{order}", content(payload))
        }
        Event::SendFailed(SendFailed { scattering, to, outcome, reason, .. }) => {
            let outcome = match outcome {
                Outcome::Lost => "lost",
                Outcome::Unknown => "unknown",
            };
            format!("    {outcome} scattering={} dst={} ({reason})", scattering.0, to.0)
        }
        Event::LinkLost(port) => format!("    link-lost port={}", port.0),
        other => panic!("{other:?} has no word yet"),
    }
}
