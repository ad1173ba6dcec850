//! The bodies of golden frames of scheduled transfer.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{
    Drops, Fcp, FcpGrant, FcpPart, FcpTotal, Frame, Loss, Slot, Watchdog, write_packet,
};

use crate::golden::Golden;
use crate::properties;

/// The seed of the golden control packets.
const SEED: u64 = 0x1122_3344_5566_7788;

pub fn fcp(golden: &Golden, frame: &Frame<'_>) {
    let number = frame.header.psn().0;
    let read = Fcp::parse(number, frame.payload).expect("a golden control packet");
    assert!(read.is_in_step(SEED) && !read.is_in_step(SEED + 1));
    assert_eq!(u64::from(read.sequence), golden.number("psn"));
    assert_eq!(u64::from(read.received), golden.number("heard"));
    assert_eq!(!read.received_bits, golden.numbers("holes").first().copied().unwrap_or_default());
    let (mut totals, mut grants) = (Vec::new(), Vec::new());
    for part in read.parts() {
        match part {
            FcpPart::Reset(reset) => {
                assert_eq!(reset.time, Timestamp::from_ns(golden.number("time")));
                assert_eq!(u64::from(reset.epoch), golden.number("epoch"));
                assert_eq!(u64::from(reset.params.slot_ns), golden.number("slot_ns"));
                assert_eq!(u64::from(reset.params.nodes), golden.number("nodes"));
            }
            FcpPart::Arrival(arrival) => {
                assert_eq!(arrival.early_ns, 64 * golden.number("early"));
                assert_eq!(u64::from(arrival.batch_slots), golden.number("batch_slots"));
            }
            FcpPart::Totals(all) => totals.extend(all.totals()),
            FcpPart::Grants(all) => {
                assert_eq!(all.base(), golden.number("base"));
                grants.extend(all.grants());
            }
        }
    }
    // Packed values are also listed in decimal.
    let (to, by) = (golden.words("to"), golden.words("by"));
    let each = golden.words("timeslot").into_iter().zip(to.iter().zip(by));
    let each = each.map(|(slot, (dst, path))| FcpGrant {
        slot: slot as u8,
        dst: *dst as u16,
        path: path as u8,
    });
    assert!(grants.into_iter().eq(each), "{}", golden.name);
    let each = to.iter().skip(golden.words("timeslot").len()).zip(golden.numbers("total"));
    let each = each.map(|(dst, total)| FcpTotal { dst: *dst as u16, total: total as u16 });
    assert!(totals.into_iter().eq(each), "{}", golden.name);
    assert_eq!(properties::refcp(&read, SEED), frame.payload, "{}", golden.name);
}

pub fn slot(golden: &Golden, frame: &Frame<'_>) {
    let (slot, packets) = Slot::parse(frame.payload).expect("a golden slot");
    assert_eq!([&slot.label[..]], golden.bytes_of("label")[..]);
    assert_eq!(u64::from(slot.timeslot), golden.number("timeslot"));
    assert_eq!(u64::from(slot.path), golden.number("path"));
    assert_eq!([&slot.earlier[..]], golden.bytes_of("earlier")[..]);
    assert_eq!(packets.collect::<Vec<_>>(), golden.bytes_of("packet"));
    let lengths = golden.numbers("packet_octets");
    assert!(packets.map(|packet| packet.len() as u64).eq(lengths));
    let mut written = vec![0xff; frame.payload.len()];
    let mut end = slot.write(&mut written).expect("it fits");
    for packet in packets {
        end += write_packet(&mut written[end..], packet).expect("it fits");
    }
    assert_eq!((end, written), (frame.payload.len(), frame.payload.to_vec()));
}

pub fn watchdog(golden: &Golden, frame: &Frame<'_>) {
    let read = Watchdog::parse(frame.payload).expect("a golden watchdog");
    assert_eq!(u64::from(read.epoch), golden.number("epoch"));
    assert_eq!(read.primary, ProcessId(golden.number("primary") as u32));
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(read.write(&mut written), Some(written.len()));
    assert_eq!(written, frame.payload);
}

pub fn drops(golden: &Golden, frame: &Frame<'_>) {
    let read: Vec<Loss> = Drops::parse(frame.payload).expect("golden drops").losses().collect();
    let column = |label| golden.numbers(label);
    let loss = |at| Loss {
        src: column("sender")[at] as u16,
        lost: column("lost")[at] as u16,
        path: column("path")[at] as u8,
    };
    assert_eq!(read, (0..column("sender").len()).map(loss).collect::<Vec<_>>());
    let mut written = vec![0xff; frame.payload.len()];
    assert_eq!(Drops::write(&mut written, read.into_iter()), frame.payload.len());
    assert_eq!(written, frame.payload);
}
