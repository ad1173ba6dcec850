//! The bodies of golden frames of agreed multicast.

use onepipe_wire::{Amcast, Frame};

use crate::golden::Golden;
use crate::properties;

pub fn packet(golden: &Golden, frame: &Frame<'_>) {
    let (read, _) = Amcast::parse(frame.payload).expect("a golden packet");
    assert_eq!(u64::from(read.id.client), golden.number("client"));
    assert_eq!(u64::from(read.id.sequence), golden.number("sequence"));
    assert_eq!(read.groups.to_bits(), golden.number("groups"));
    assert_eq!(u64::from(read.group.0), golden.number("group"));
    assert_eq!(u64::from(read.flags), golden.number("amcast_flags"));
    assert_eq!(u64::from(read.epoch), golden.number("epoch"));
    assert_eq!(read.timestamp.0, golden.number("timestamp"));
    assert_eq!(read.clock.0, golden.number("clock"));
    assert_eq!(read.barrier.0, golden.number("settled"));
    assert_eq!(read.position, golden.number("position"));
    assert_eq!(read.count, golden.number("count"));
    assert_eq!(u64::from(read.further), golden.number("more"));
    let packets = Amcast::packets(frame.opcode, frame.payload);
    let packets: Vec<_> = packets.map(|packet| packet.expect("a golden packet")).collect();
    let messages = golden.bytes_of("message");
    assert_eq!(packets.len() as u64, golden.number("more") + 1, "{}", golden.name);
    for (nth, (packet, message)) in (0..).zip(&packets) {
        assert_eq!(*packet, read.nth(nth), "{}", golden.name);
        assert_eq!(*message, messages.get(usize::from(nth)).copied().unwrap_or_default());
    }
    let written = properties::rewritten(frame.opcode, frame.payload).expect("a golden packet");
    assert_eq!(written, frame.payload, "{}", golden.name);
}
