//! The fields of a header, whether or not its checks hold.

use onepipe_base::{Address, Instance, Timestamp};
use onepipe_wire::{
    Flags, Header, Opcode, SHARED_DATA_RECEIVERS_MAX, header_unchecked, is_hop_intact,
};

use super::Field;

/// Returns the fields of the header at the front of `bytes`; none if they are too few.
pub(super) fn fields(bytes: &[u8], near: Timestamp) -> Vec<Field> {
    let Some(header) = header_unchecked(bytes) else { return Vec::new() };
    let opcode = header.opcode();
    let is_hop_only = opcode.as_ref().is_ok_and(|opcode| opcode.is_hop_only());
    let mut fields = vec![
        Field::new("version", format!("{:#04x}", header.version())),
        match &opcode {
            Ok(opcode) => Field::new("opcode", format!("{opcode:?} ({:#04x})", *opcode as u8)),
            Err(error) => Field::new("opcode", error),
        },
        Field::new("flags", flags(&header, opcode.ok())),
        Field::new("hops", header.hops()),
    ];
    match is_hop_only {
        true => fields.extend([
            Field::new("sender", instance(header.sender())),
            Field::new("peer", instance(header.peer())),
        ]),
        false => fields.extend([
            Field::new("src", instance(header.sender())),
            Field::new(
                "dst",
                match header.is_unaddressed() {
                    true => "no address".to_string(),
                    false => format!("process {}", header.dst().0),
                },
            ),
            match header.run(SHARED_DATA_RECEIVERS_MAX) {
                Some(part) if header.is_unaddressed() && header.psn().0 != 0 => Field::new(
                    "receivers",
                    format!("{} to {} of the list", part.start, part.end - 1),
                ),
                _ => Field::new("psn", header.psn().0),
            },
        ]),
    }
    let hop_tag = match header.key_epoch() {
        0 if is_hop_intact(bytes) => "holds".to_string(),
        0 => "does not hold".to_string(),
        epoch => format!("made with a key of epoch {epoch}"),
    };
    fields.extend([Field::new("hop_tag", hop_tag), Field::new("length", header.length())]);
    if header.has_timestamps() {
        let promises = header.promises(near);
        fields.extend([
            Field::new("message_ts", header.message_ts(near).as_ns()),
            Field::new("barrier", promises.barrier.as_ns()),
            Field::new("commit", promises.commit.as_ns()),
        ]);
    }
    fields
}

fn instance(instance: Option<Instance>) -> String {
    let Some(Instance { address, incarnation }) = instance else { return "no address".into() };
    let address = match address {
        Address::Process(process) => format!("process {}", process.0),
        Address::Switch(switch) => format!("switch {}", switch.0),
    };
    format!("{address}, incarnation {}", incarnation.0)
}

/// Returns the names of the flags that are set. Some bits have another name in frames of a link.
fn flags(header: &Header, opcode: Option<Opcode>) -> String {
    let is_hop_only = opcode.is_some_and(|opcode| opcode.is_hop_only());
    let name = |in_frames, on_links| if is_hop_only { on_links } else { in_frames };
    let names = [
        (Flags::END_OF_MESSAGE, name("END_OF_MESSAGE", "ON_DEMAND")),
        (Flags::CONGESTION, "CONGESTION"),
        (Flags::ACK_NOW, "ACK_NOW"),
        (Flags::RESERVED, "RESERVED"),
        (Flags::UNORDERED, name("UNORDERED", "UNFED")),
        (Flags::PIGGYBACK, name("PIGGYBACK", "HOLDS")),
        (Flags::SINGLE, name("SINGLE", "PREVIOUS_HOLDS")),
        (Flags::DETACHED, "DETACHED"),
    ];
    let set = names.iter().filter(|(flag, _)| header.has(*flag)).map(|(_, name)| *name);
    let set: Vec<&str> = set.collect();
    if set.is_empty() { "none".into() } else { set.join(" ") }
}
