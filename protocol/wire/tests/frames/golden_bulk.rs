//! The bodies of golden frames of bulk multicast.

use onepipe_base::{Incarnation, Psn};
use onepipe_wire::{
    BulkAck, BulkAckView, BulkFailure, BulkFailures, BulkHaveView, BulkHeader, BulkPiece,
    BulkRefused, BulkState, BulkStateView, BulkWant, Extent, Frame, Opcode,
};

use crate::golden::Golden;
use crate::properties;

/// Compares a frame of bulk multicast with its labels. Returns whether it is one.
pub fn body(golden: &Golden, frame: &Frame<'_>) -> bool {
    if frame.opcode as u8 & 0xf0 != Opcode::BulkPiece as u8 {
        return false;
    }
    let number = |label| golden.number(label);
    let (front, rest) = BulkHeader::parse(frame.payload).expect("a golden front");
    let expected = BulkHeader {
        group: number("group"),
        config_digest: number("plan") as u32,
        from: number("from") as u16,
        failed: number("failed") as u16,
        stable: number("stable") as u32,
    };
    assert_eq!(front, expected, "{}", golden.name);
    match frame.opcode {
        Opcode::BulkPiece => piece(golden, rest),
        Opcode::BulkState => state(golden, rest),
        Opcode::BulkAck => {
            let read = BulkAckView::parse(rest).expect("a golden acknowledgement");
            let ack = BulkAck {
                incarnation: Incarnation(number("life") as u32),
                largest: Psn(number("largest") as u32),
                marked: number("marked") as u32,
            };
            assert_eq!((read.ack, read.words().len() as u64), (ack, number("words")));
            assert!(read.words().eq(golden.numbers("word")));
        }
        Opcode::BulkFailures => {
            let read: Vec<BulkFailure> =
                BulkFailures::parse(rest).expect("golden").entries().collect();
            let column = |label| golden.numbers(label);
            let failure = |at: usize| BulkFailure {
                rank: column("rank")[at] as u16,
                by: column("by")[at] as u16,
                reason: column("reason")[at] as u8,
            };
            assert_eq!(read, (0..column("rank").len()).map(failure).collect::<Vec<_>>());
        }
        Opcode::BulkHave => {
            let read = BulkHaveView::parse(rest).expect("a golden list of blocks");
            let is_known = number("block_octets") > 0;
            assert_eq!(read.have.extent, is_known.then(|| extent(golden)));
            assert_eq!(u64::from(read.have.object), number("object"));
            assert_eq!((read.have.view, read.have.first.into()), (number("view"), number("first")));
            assert!(read.words().eq(golden.numbers("word")));
            assert_eq!(read.words().len() as u64, number("words"));
        }
        Opcode::BulkWant => {
            let read = BulkWant::parse(rest).expect("a golden want");
            let (object, block) = (u64::from(read.object), u64::from(read.block));
            assert_eq!((object, block), (number("object"), number("block")));
        }
        _ => {
            let read = BulkRefused::parse(rest).expect("a golden refusal");
            assert_eq!((read, read as u64), (BulkRefused::Excluded, number("reason")));
        }
    }
    let written = properties::rewritten(frame.opcode, frame.payload);
    assert_eq!(written.as_deref(), Some(frame.payload), "{}", golden.name);
    true
}

fn extent(golden: &Golden) -> Extent {
    Extent {
        bytes: golden.number("octets"),
        block_len: golden.number("block_octets") as u32,
        has_digests: golden.number("kind") == 1,
    }
}

fn piece(golden: &Golden, rest: &[u8]) {
    let number = |label| golden.number(label);
    let piece = BulkPiece::parse(rest).expect("a golden piece");
    let header = piece.header;
    assert_eq!(header.extent, extent(golden));
    assert_eq!(u64::from(header.object), number("object"));
    assert_eq!((header.digest, u64::from(header.block)), (number("digest"), number("block")));
    assert_eq!(u64::from(header.offset), number("offset"));
    assert_eq!(u64::from(header.ordinal), number("ordinal"));
    assert_eq!(header.is_offer, number("offers") == 1);
    assert_eq!(piece.bytes, golden.bytes_of("piece").concat());
}

fn state(golden: &Golden, rest: &[u8]) {
    let number = |label| golden.number(label);
    let read = BulkStateView::parse(rest).expect("a golden state");
    let flags = number("state_flags");
    let expected = BulkState {
        complete: number("complete") as u32,
        known: number("known") as u32,
        resolved: number("settled") as u32,
        total: Some(number("total") as u32).filter(|total| *total < u32::MAX),
        digest: number("object_digest"),
        view: number("view"),
        is_closed: flags & 1 == 1,
        is_clean: flags & 2 == 2,
    };
    assert_eq!(read.state, expected, "{}", golden.name);
    assert_eq!(read.tokens().len() as u64, number("tokens"));
    assert!(read.tokens().map(u64::from).eq(golden.numbers("token")));
}
