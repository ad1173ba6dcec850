//! Random frames of bulk multicast: decoding never panics, encoding round-trips, and invalid frames
//! are refused.

use onepipe_wire::{
    BULK_HEADER_LEN, BULK_WORDS_MAX, BulkAckView, BulkHaveView, BulkPiece, BulkPieceHeader,
    BulkRefused, BulkStateView, DecodeError, Extent, Opcode,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

const BULK: [Opcode; 7] = [
    Opcode::BulkPiece,
    Opcode::BulkState,
    Opcode::BulkAck,
    Opcode::BulkFailures,
    Opcode::BulkHave,
    Opcode::BulkWant,
    Opcode::BulkRefused,
];

proptest! {
    #[test]
    fn arbitrary_bytes_round_trip_without_panic(
        opcode in prop::sample::select(&BULK[..]),
        payload in vec(prop_oneof![Just(0u8), Just(1u8), any::<u8>()], 0..140),
    ) {
        properties::body(opcode, &payload);
        if let Some(written) = properties::rewritten(opcode, &payload) {
            for bytes in BULK_HEADER_LEN..written.len() {
                let cut = properties::rewritten(opcode, &written[..bytes]);
                // A piece may have fewer bytes, and failures any number of whole entries.
                let may = matches!(opcode, Opcode::BulkPiece | Opcode::BulkFailures);
                prop_assert!(cut.is_none() || may);
            }
        }
    }

    #[test]
    fn refuses_piece_outside_block_or_object(
        (bytes, block_len) in (0..2_000u64, 1..100u32),
        (block, offset, length) in (0..50u32, 0..120u32, 0..120usize),
    ) {
        let extent = Extent { bytes, block_len, has_digests: true };
        let header = BulkPieceHeader {
            object: 1, extent, digest: 2, block, offset, ordinal: 3, is_offer: false,
        };
        let mut buf = vec![0; 40 + length];
        header.write(&mut buf).expect("it fits");
        let begins = u64::from(block) * u64::from(block_len) + u64::from(offset);
        let lies_within = u64::from(offset) + length as u64 <= block_len.into()
            && begins + length as u64 <= bytes;
        prop_assert_eq!(BulkPiece::parse(&buf).is_ok(), lies_within);
    }
}

#[test]
fn refuses_invalid_fields_by_name() {
    let refuses = |error: Option<DecodeError>, name: &str| match error {
        Some(DecodeError::Field { field, .. }) => assert_eq!(field, name),
        other => panic!("{name}: {other:?}"),
    };
    let mut piece = [0u8; 40];
    refuses(BulkPiece::parse(&piece).err(), "block length");
    piece[23] = 1;
    assert!(BulkPiece::parse(&piece).is_ok());
    piece[36] = 2;
    refuses(BulkPiece::parse(&piece).err(), "digest mode");
    (piece[36], piece[37]) = (1, 2);
    refuses(BulkPiece::parse(&piece).err(), "offer");

    let mut state = [0u8; 36];
    state[32] = 2;
    refuses(BulkStateView::parse(&state).err(), "flags of a bulk state");
    state[32] = 4;
    refuses(BulkStateView::parse(&state).err(), "flags of a bulk state");

    let mut ack = [0u8; 16 + 8 * (BULK_WORDS_MAX + 1)];
    ack[13] = BULK_WORDS_MAX as u8 + 1;
    refuses(BulkAckView::parse(&ack).err(), "words of a bulk acknowledgement");

    let mut have = [0u8; 40];
    assert!(BulkHaveView::parse(&have).is_ok());
    // Found by fuzzing: the sum of the forbidden fields overflowed.
    have[..8].fill(0xff);
    have[29] = 1;
    refuses(BulkHaveView::parse(&have).err(), "words of an unknown object");
    refuses(BulkRefused::parse(&[0; 4]).err(), "reason of a bulk refusal");
    refuses(BulkRefused::parse(&[4; 4]).err(), "reason of a bulk refusal");
}
