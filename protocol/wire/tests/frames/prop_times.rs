//! 48-bit times around the wrap, decoded by clocks that lag or lead.

use onepipe_base::{
    Incarnation, Mono, Port, ProcessId, Promises, Psn, Registers, Timestamp, WIRE_MODULUS,
};
use onepipe_wire::{Frame, HEADER_LEN, Header, Opcode, rewrite_promises, seal};
use proptest::prelude::*;

/// Half the range: the maximum error of a reader's clock, 39.1 h.
const HALF: u64 = WIRE_MODULUS / 2;

fn frame(ts: Timestamp, promises: Promises) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    let header = Header::new(Opcode::Beacon, ProcessId(0), ProcessId(0), Incarnation(0));
    seal(&mut bytes, header.stamped(ts, promises, Psn::FIRST), 0);
    bytes
}

/// A wrap, plus or minus three nanoseconds.
fn near_a_wrap() -> impl Strategy<Value = Timestamp> {
    let about = prop_oneof![0u64..1_000, 0..HALF];
    (1u64..60_000, about, any::<bool>()).prop_map(|(wrap, distance, is_above)| {
        let wrap = wrap * WIRE_MODULUS;
        Timestamp::from_ns(if is_above { wrap + distance } else { wrap - 1 - distance })
    })
}

proptest! {
    #[test]
    fn times_round_trip_across_wrap(
        near in near_a_wrap(),
        (message, barrier, commit) in (-5_000i64..5_000, -5_000i64..5_000, -5_000i64..5_000),
    ) {
        let at = |offset: i64| Timestamp::from_ns(near.as_ns().wrapping_add_signed(offset));
        let promises = Promises { barrier: at(barrier), commit: at(commit) };
        let bytes = frame(at(message), promises);
        let header = Frame::parse(&bytes).expect("sealed just now").header;
        prop_assert_eq!(header.message_ts(near), at(message));
        prop_assert_eq!(header.promises(near), promises);
        // The three are ordered by their full values, not by the 48 bits.
        prop_assert_eq!(header.message_ts(near) < header.promises(near).barrier, message < barrier);
    }

    #[test]
    fn readers_with_different_clocks_agree(
        ts in near_a_wrap(),
        skews in prop::collection::vec(-(HALF as i64) + 1..HALF as i64, 1..8),
    ) {
        let bytes = frame(ts, Promises::both(ts));
        let header = Frame::parse(&bytes).expect("sealed just now").header;
        for skew in skews {
            let Some(near) = ts.as_ns().checked_add_signed(skew) else { continue };
            prop_assert_eq!(header.message_ts(Timestamp::from_ns(near)), ts);
        }
    }

    #[test]
    fn minimum_over_links_is_right_across_wrap(
        wrap in 1u64..60_000,
        offsets in prop::collection::vec(-500i64..500, 2..6),
        own in -500i64..500,
    ) {
        // A switch that decodes promises on both sides of the wrap, and forwards the minimum.
        let wrap = wrap * WIRE_MODULUS;
        let at = |offset: i64| Timestamp::from_ns(wrap.wrapping_add_signed(offset));
        let near = at(own);
        let mut registers = Registers::new(offsets.len() as u16);
        for (port, offset) in offsets.iter().enumerate() {
            let bytes = frame(at(*offset), Promises::both(at(*offset)));
            let promises = Frame::parse(&bytes).expect("sealed").header.promises(near);
            registers.update(Mono::from_ns(0), Port(port as u16), promises);
        }
        let least = registers.minimum().expect("links are live");
        let expected = offsets.iter().min().copied().expect("two or more");
        prop_assert_eq!(least.barrier, at(expected));
        let mut bytes = frame(near, Promises::both(near));
        rewrite_promises(&mut bytes, least);
        let header = Frame::parse(&bytes).expect("rewritten").header;
        prop_assert_eq!(header.promises(near), least);
    }

    #[test]
    fn expanded_time_is_within_half_range(
        wire in any::<u64>(),
        near in prop_oneof![any::<u64>(), 0..HALF, u64::MAX - HALF..=u64::MAX],
    ) {
        // Whatever a foreign frame says, a reader moves at most 39.1 h, unless its own clock is so
        // close to the end of the 64-bit range that there is no such time.
        let bytes = frame(Timestamp::from_ns(wire), Promises::both(Timestamp::from_ns(wire)));
        let header = Frame::parse(&bytes).expect("sealed just now").header;
        let read = header.message_ts(Timestamp::from_ns(near));
        prop_assert_eq!(read.to_wire(), Timestamp::from_ns(wire).to_wire());
        let fits = (HALF..u64::MAX - HALF).contains(&near);
        let limit = if fits { HALF } else { WIRE_MODULUS };
        prop_assert!(read.as_ns().abs_diff(near) <= limit);
    }
}

//= spec/ordering.md#R1
#[test]
fn no_time_expands_before_origin() {
    // A foreign or damaged time that would lie before the origin must not become the end of time:
    // such a barrier would let every message pass.
    let bytes = frame(
        Timestamp::from_ns(WIRE_MODULUS - 1),
        Promises::both(Timestamp::from_ns(WIRE_MODULUS - 1)),
    );
    let header = Frame::parse(&bytes).expect("sealed just now").header;
    let read = header.promises(Timestamp::from_ns(5)).barrier;
    assert_eq!(read, Timestamp::from_ns(WIRE_MODULUS - 1));
}
