//! The fields of a payload, by opcode.

use onepipe_base::Timestamp;
use onepipe_wire::{
    AckBundle, AckView, AddressAd, Amcast, AnnounceView, BulkAckView, BulkFailures, BulkHaveView,
    BulkHeader, BulkPiece, BulkRefused, BulkStateView, BulkWant, BundledAck, Connect, DecisionTip,
    DecodeError, Drops, Fcp, FcpPart, Flags, FloodAck, FloodView, Fragment, Frame, JoinAnswer,
    JoinRequest, Members, Messages, Opcode, PiggybackedAck, Probe, Recall, RecoveryView,
    SharedReceivers, Slot, TransferPacket, Undeliverable, Watchdog,
};

use super::Field;

/// Number of bytes of a message or of a piece that are printed.
const PREVIEW_LEN: usize = 32;

/// Appends the fields of the payload.
pub(super) fn fields(
    frame: &Frame<'_>,
    near: Timestamp,
    fields: &mut Vec<Field>,
) -> Result<(), DecodeError> {
    let payload = frame.payload;
    match frame.opcode.in_best_effort() {
        Opcode::Data => data(frame, fields),
        Opcode::SharedData => shared_data(payload, fields),
        Opcode::ReliableAckBundle => ack_bundle(payload, fields),
        Opcode::Fragment => {
            let Fragment { header, piece } = Fragment::parse(payload)?;
            fields.push(Field::debug("fragment", header));
            fields.push(Field::new("piece", preview(piece)));
            Ok(())
        }
        Opcode::Ack | Opcode::Nak | Opcode::Grant => {
            let view = AckView::parse(payload)?;
            fields.push(Field::debug("ack", view.ack));
            let pair = |(received, rejected)| format!("{received:#018x} {rejected:#018x}");
            fields.extend(view.words().map(|words| Field::new("received, rejected", pair(words))));
            Ok(())
        }
        Opcode::Probe => one(fields, "probe", Probe::parse(payload)?),
        Opcode::Connect => one(fields, "connect", Connect::parse(payload)?),
        Opcode::Recall | Opcode::RecallAck => {
            let recall = Recall::parse(payload)?;
            let times = recall.timestamps(near).map(|at| Field::new("timestamp", at.as_ns()));
            fields.extend(times);
            Ok(())
        }
        Opcode::Join if !payload.is_empty() => one(fields, "request", JoinRequest::parse(payload)?),
        Opcode::JoinAnswer if !payload.is_empty() => {
            one(fields, "answer", JoinAnswer::parse(payload)?)
        }
        Opcode::Members => one(fields, "members", Members::parse(payload)?),
        Opcode::AddressAd => one(fields, "address", AddressAd::parse(payload)?),
        Opcode::Watchdog => one(fields, "watchdog", Watchdog::parse(payload)?),
        Opcode::Relay | Opcode::Relayed => relayed(payload, near, fields),
        _ => control(frame, near, fields),
    }
}

fn one(
    fields: &mut Vec<Field>,
    name: &'static str,
    value: impl std::fmt::Debug,
) -> Result<(), DecodeError> {
    fields.push(Field::debug(name, value));
    Ok(())
}

fn data(frame: &Frame<'_>, fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let mut payload = frame.payload;
    if frame.header.has(Flags::PIGGYBACK) {
        let (ack, rest) = PiggybackedAck::split(payload)?;
        fields.push(Field::debug("ack", ack));
        payload = rest;
    }
    match frame.header.has(Flags::SINGLE) {
        true => messages(Messages::single(payload), fields),
        false => messages(Messages::new(payload), fields),
    }
}

fn ack_bundle(payload: &[u8], fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let bundle = AckBundle::parse(payload)?;
    for BundledAck { from, to, ack } in (0..bundle.count()).filter_map(|at| bundle.get(at)) {
        let (process, incarnation) = (from.process.0, from.incarnation.0);
        let ends = format!("process {process}, incarnation {incarnation}, to process {}", to.0);
        fields.push(Field::new("from", ends));
        fields.push(Field::debug("ack", AckView::parse(&ack)?.ack));
    }
    Ok(())
}

fn messages(messages: Messages<'_>, fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    for message in messages {
        let message = message?;
        let (index, delta_ns) = (message.index, message.delta_ns);
        let text = format!("index {index}, delta {delta_ns} ns, {}", preview(message.payload));
        fields.push(Field::new("message", text));
    }
    Ok(())
}

fn shared_data(payload: &[u8], fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let (list, rest) = SharedReceivers::parse(payload)?;
    for (position, receiver) in list.iter().enumerate() {
        fields.push(Field::debug("receiver", receiver));
        fields.extend(list.ack(position).map(|ack| Field::debug("ack", ack)));
    }
    messages(Messages::new(rest), fields)
}

/// The header of a frame in a frame, and its payload.
fn relayed(payload: &[u8], near: Timestamp, fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let inner = Frame::parse(payload)?;
    fields.extend(super::header::fields(payload, near));
    // A controller relays no frames for controllers, so this ends here.
    match inner.opcode.is_control() {
        true => Ok(()),
        false => self::fields(&inner, near, fields),
    }
}

/// Frames of controllers, of agreed multicast, of bulk multicast and of scheduled transfer.
fn control(frame: &Frame<'_>, near: Timestamp, fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let payload = frame.payload;
    match frame.opcode {
        Opcode::Announce => {
            let view = AnnounceView::parse(payload)?;
            fields.push(Field::debug("announce", view.announce));
            fields.extend(view.links(near).map(|link| Field::debug("link", link)));
        }
        Opcode::AnnounceAck | Opcode::UndeliverableAck if !payload.is_empty() => {
            fields.push(Field::debug("tip", DecisionTip::parse(payload)?));
        }
        Opcode::Flood | Opcode::Notice => {
            let view = FloodView::parse(payload)?;
            fields.push(Field::debug("flood", view.id));
            fields.push(Field::debug("kind", view.kind));
            fields.extend(view.failures(near).map(|failure| Field::debug("failure", failure)));
            fields.extend(view.resolved().map(|resolved| Field::debug("resolved", resolved)));
            fields.extend(view.dead().map(|dead| Field::debug("dead", dead)));
            fields.extend(view.tip.map(|tip| Field::debug("tip", tip)));
        }
        Opcode::FloodAck | Opcode::Completed => {
            fields.push(Field::debug("flood", FloodAck::parse(payload)?));
        }
        Opcode::Undeliverable => {
            let all = Undeliverable::parse(payload, near)?;
            fields.extend(all.map(|one| Field::debug("undeliverable", one)));
        }
        Opcode::Recovery => {
            let view = RecoveryView::parse(payload)?;
            fields.push(Field::debug("recovery", view.recovery(near)));
            fields.extend(view.failures(near).map(|failure| Field::debug("failure", failure)));
            fields.extend(view.recalls(near).map(|recall| Field::debug("recall", recall)));
        }
        Opcode::Fcp => {
            let fcp = Fcp::parse(frame.header.psn().0, payload)?;
            fields.push(Field::new("received", fcp.received));
            fields.push(Field::new("received_bits", format!("{:#018x}", fcp.received_bits)));
            for part in fcp.parts() {
                match part {
                    FcpPart::Grants(all) => {
                        fields.extend(all.grants().map(|grant| Field::debug("grant", grant)));
                    }
                    FcpPart::Totals(all) => {
                        fields.extend(all.totals().map(|total| Field::debug("total", total)));
                    }
                    other => fields.push(Field::debug("part", other)),
                }
            }
        }
        Opcode::Slot => {
            let (slot, packets) = Slot::parse(payload)?;
            fields.push(Field::debug("slot", slot));
            for packet in packets {
                fields.push(match TransferPacket::parse(packet) {
                    Ok(TransferPacket::Piece(piece, _)) => Field::debug("piece", piece),
                    Ok(TransferPacket::PieceAck(ack, _)) => Field::debug("piece ack", ack),
                    Err(_) => Field::new("packet", preview(packet)),
                });
            }
        }
        Opcode::Drops => {
            let drops = Drops::parse(payload)?;
            fields.extend(drops.losses().map(|loss| Field::debug("loss", loss)));
        }
        opcode if opcode.is_amcast() => {
            for run in Amcast::runs(opcode, payload) {
                let run = run?;
                fields.push(Field::debug("packet", run.first));
                fields.push(Field::new("messages", preview(run.messages)));
            }
        }
        opcode if opcode.is_bulk() => bulk(frame, fields)?,
        _ if !payload.is_empty() => fields.push(Field::new("bytes", preview(payload))),
        _ => {}
    }
    Ok(())
}

fn bulk(frame: &Frame<'_>, fields: &mut Vec<Field>) -> Result<(), DecodeError> {
    let (front, rest) = BulkHeader::parse(frame.payload)?;
    fields.push(Field::debug("bulk", front));
    match frame.opcode {
        Opcode::BulkPiece => {
            let piece = BulkPiece::parse(rest)?;
            fields.push(Field::debug("piece", piece.header));
            fields.push(Field::new("bytes", preview(piece.bytes)));
        }
        Opcode::BulkState => {
            let view = BulkStateView::parse(rest)?;
            fields.push(Field::debug("state", view.state));
            fields.extend(view.tokens().map(|token| Field::new("token", token)));
        }
        Opcode::BulkAck => {
            let view = BulkAckView::parse(rest)?;
            fields.push(Field::debug("ack", view.ack));
            fields.extend(view.words().map(|word| Field::new("word", format!("{word:#018x}"))));
        }
        Opcode::BulkFailures => {
            let failures = BulkFailures::parse(rest)?;
            fields.extend(failures.entries().map(|failure| Field::debug("failure", failure)));
        }
        Opcode::BulkHave => {
            let view = BulkHaveView::parse(rest)?;
            fields.push(Field::debug("have", view.have));
            fields.extend(view.words().map(|word| Field::new("word", format!("{word:#018x}"))));
        }
        Opcode::BulkWant => fields.push(Field::debug("want", BulkWant::parse(rest)?)),
        _ => fields.push(Field::debug("refused", BulkRefused::parse(rest)?)),
    }
    Ok(())
}

/// Returns the length of some bytes and the first of them as text.
fn preview(bytes: &[u8]) -> String {
    let front = &bytes[..bytes.len().min(PREVIEW_LEN)];
    let more = if front.len() < bytes.len() { "…" } else { "" };
    format!("{} bytes: \"{}\"{more}", bytes.len(), front.escape_ascii())
}
