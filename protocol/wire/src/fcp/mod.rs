//! Control packets of scheduled transfer (Fastpass Control Protocol): requests of an endpoint, and
//! grants of the arbiter.
//!
//! Both directions use the same layout: a header that acknowledges packets, and parts. The checksum
//! covers all of it, seeded with the last reset, so that it fails if the two ends are out of step
//! (docs/design/arbiter.md, "Who notices that both ends are out of step?").

mod grants;
mod totals;
mod writer;

use onepipe_base::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

pub use grants::{FcpGrant, FcpGrants};
pub use totals::{FcpEncoding, FcpTotal, FcpTotals};
pub use writer::FcpWriter;

/// Length of the header of a control packet.
pub const FCP_HEADER_LEN: usize = 8;
/// Length of the checksum, which comes first and does not cover itself.
const CHECK_LEN: usize = 4;
/// The kinds of parts.
const RESET: u8 = 1;
const TOTALS: u8 = 2;
const GRANT: u8 = 3;
const MAP: u8 = 4;
const SHORT_MAP: u8 = 5;
const HOLES: u8 = 6;
const ARRIVAL: u8 = 7;
/// Unit of [`FcpArrival::early_ns`] on the wire, in ns.
const ARRIVAL_UNIT_NS: u64 = 64;
/// Length of the last part, which lists missing packets.
const HOLES_LEN: usize = 9;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    check: U32,
    received: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResetLayout {
    kind: u8,
    reserved: u8,
    time: U64,
    epoch: U32,
    slot_ns: U32,
    nodes: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ArrivalLayout {
    kind: u8,
    batch_slots: u8,
    early: U16,
}

const _: () = assert!(size_of::<Layout>() == FCP_HEADER_LEN);

/// Parameters on which an endpoint and its arbiter must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpParams {
    /// Length of a timeslot, ns.
    pub slot_ns: u32,
    /// Number of endpoints: the processes below it.
    pub nodes: u16,
}

/// Restarts all totals and sequence numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpReset {
    /// Time of the reset, all 64 bits in ns: the later one of two resets counts.
    pub time: Timestamp,
    /// The epoch of the arbiter: see [`crate::Watchdog`]; from an endpoint, the highest epoch that
    /// it knows.
    pub epoch: u32,
    /// The parameters of the sender.
    pub params: FcpParams,
}

/// Arrival of the endpoint's last packet, relative to the end of the batch whose allocation could
/// consider its requests first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpArrival {
    /// Time from the arrival to the end of that batch, in ns; sent in multiples of 64, up to 4 ms.
    pub early_ns: u64,
    /// Interval of batches, in timeslots.
    pub batch_slots: u8,
}

/// A part of a control packet.
#[derive(Clone, Copy, Debug)]
pub enum FcpPart<'a> {
    /// Resets all totals. Comes first.
    Reset(FcpReset),
    /// From an endpoint, all timeslots requested since the reset; from an arbiter, all granted.
    Totals(FcpTotals<'a>),
    /// Granted timeslots.
    Grants(FcpGrants<'a>),
    /// Arrival of the packet with the highest acknowledged number.
    Arrival(FcpArrival),
}

/// A control packet, borrowed from its bytes. Its parts are well formed; use [`Fcp::is_in_step`] to
/// check that the sender is in step.
#[derive(Clone, Copy, Debug)]
pub struct Fcp<'a> {
    /// Sequence number, from 1 after a reset, modulo 2^32.
    pub sequence: u32,
    /// The highest sequence number that its sender has received, 0 if none.
    pub received: u32,
    /// Selective acknowledgement: bit `i` is number `received - i`, set if it was received or never
    /// existed.
    pub received_bits: u64,
    bytes: &'a [u8],
}

impl<'a> Fcp<'a> {
    /// Parses the payload of a frame with opcode [`crate::Opcode::Fcp`] and this PSN.
    ///
    /// # Errors
    /// If it does not consist of a header and well-formed parts.
    pub fn parse(psn: u32, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Ok((layout, mut rest)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (FCP_HEADER_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "control packet", need, got });
        };
        let mut received_bits = u64::MAX;
        let mut is_first = true;
        while !rest.is_empty() {
            let refused = || DecodeError::Field { field: "part", value: u64::from(rest[0]) };
            if let Some(holes) = split_holes(rest) {
                received_bits = !holes;
                break;
            }
            let (part, behind) = split_part(rest).ok_or_else(refused)?;
            if matches!(part, FcpPart::Reset(_)) && !is_first {
                return Err(refused());
            }
            (is_first, rest) = (false, behind);
        }
        Ok(Self { sequence: psn, received: layout.received.get(), received_bits, bytes: payload })
    }

    /// Returns whether the checksum matches this seed.
    pub fn is_in_step(&self, seed: u64) -> bool {
        let (check, covered) = self.bytes.split_at(CHECK_LEN);
        check == checksum(covered, seed)
    }

    /// Returns the reset, if the packet begins with one.
    pub fn reset(&self) -> Option<FcpReset> {
        match self.parts().next() {
            Some(FcpPart::Reset(reset)) => Some(reset),
            _ => None,
        }
    }

    /// Returns whether the packet is relative to the receiver's state: it has totals modulo 2^8. A
    /// receiver that has processed a later packet must not use it.
    pub fn is_relative(&self) -> bool {
        let is_short = |totals: &FcpTotals<'_>| totals.encoding() == FcpEncoding::ShortMap;
        self.parts().any(|part| matches!(part, FcpPart::Totals(totals) if is_short(&totals)))
    }

    /// Returns the parts in order.
    pub fn parts(&self) -> impl Iterator<Item = FcpPart<'a>> + 'a {
        let mut rest = &self.bytes[FCP_HEADER_LEN..];
        core::iter::from_fn(move || {
            let (part, behind) = split_part(rest)?;
            rest = behind;
            Some(part)
        })
    }
}

fn checksum(covered: &[u8], seed: u64) -> [u8; CHECK_LEN] {
    (xxh3_64_with_seed(covered, seed) as u32).to_be_bytes()
}

/// Returns the missing packets if `bytes` are exactly a holes part.
fn split_holes(bytes: &[u8]) -> Option<u64> {
    let (&[HOLES, ref holes @ ..], []) = bytes.split_first_chunk::<HOLES_LEN>()? else {
        return None;
    };
    // Bit 0 is the highest received packet itself; a part without holes must not be sent.
    Some(u64::from_be_bytes(*holes)).filter(|holes| *holes != 0 && holes & 1 == 0)
}

/// Splits the first part from `bytes`; `None` if it is malformed.
fn split_part(bytes: &[u8]) -> Option<(FcpPart<'_>, &[u8])> {
    match *bytes.first()? {
        RESET => {
            let (layout, rest) = ResetLayout::ref_from_prefix(bytes).ok()?;
            let (time, epoch) = (Timestamp::from_ns(layout.time.get()), layout.epoch.get());
            let params = FcpParams { slot_ns: layout.slot_ns.get(), nodes: layout.nodes.get() };
            Some((FcpPart::Reset(FcpReset { time, epoch, params }), rest))
        }
        TOTALS | MAP | SHORT_MAP => {
            FcpTotals::split(bytes).map(|(totals, rest)| (FcpPart::Totals(totals), rest))
        }
        ARRIVAL => {
            let (layout, rest) = ArrivalLayout::ref_from_prefix(bytes).ok()?;
            let (early_ns, batch_slots) =
                (u64::from(layout.early.get()) * ARRIVAL_UNIT_NS, layout.batch_slots);
            (batch_slots > 0)
                .then_some((FcpPart::Arrival(FcpArrival { early_ns, batch_slots }), rest))
        }
        GRANT => FcpGrants::split(bytes).map(|(grants, rest)| (FcpPart::Grants(grants), rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn parts_round_trip_and_report_overflow() {
        let params = FcpParams { slot_ns: 1 << 30, nodes: 4_096 };
        let reset = FcpReset { time: Timestamp::from_ns(u64::MAX - 1), epoch: 9, params };
        let totals = [1u16, 2, 9].map(|dst| FcpTotal { dst, total: 65_535 - dst });
        let [slots, base] = [1 | 1 << 63, (1 << 48) - 2];
        let of = |slot: usize| if slot == 0 { (7, 255) } else { (9, 1) };
        let mut buf = [0xff; 8 + 20 + (2 + 12) + (20 + 3) + (4 + 2 + 6) + 9];
        let mut writer = FcpWriter::new(&mut buf, 4, !0b110).expect("it fits");
        assert!(writer.reset(reset) && writer.totals(FcpEncoding::List, &totals) == 3);
        assert!(writer.grants(base, slots, of));
        assert_eq!(writer.totals(FcpEncoding::Map, &totals), 3);
        assert!(!writer.grants(base, slots, of), "it is full");
        assert_eq!(
            (0, 0),
            (
                writer.totals(FcpEncoding::List, &totals),
                writer.totals(FcpEncoding::ShortMap, &totals)
            )
        );
        let bytes = writer.finish(77);
        assert_eq!(bytes, buf.len());
        let fcp = Fcp::parse(5, &buf).expect("just written");
        assert!(fcp.is_in_step(77) && !fcp.is_in_step(78));
        assert_eq!((fcp.sequence, fcp.received, fcp.received_bits), (5, 4, !0b110));
        assert_eq!(fcp.reset(), Some(reset));
        let parts: Vec<FcpPart<'_>> = fcp.parts().collect();
        let [_, FcpPart::Totals(list), FcpPart::Grants(given), FcpPart::Totals(map)] = parts[..]
        else {
            panic!("{parts:?}")
        };
        for (all, encoding) in [(list, FcpEncoding::List), (map, FcpEncoding::Map)] {
            assert_eq!(
                (all.encoding(), all.totals().collect::<Vec<_>>()),
                (encoding, totals.to_vec())
            );
        }
        assert_eq!((given.base(), given.slots()), (base, slots));
        let grants: Vec<FcpGrant> = given.grants().collect();
        let grant = |slot, (dst, path)| FcpGrant { slot, dst, path };
        assert_eq!(grants, [grant(0, (7, 255)), grant(63, (9, 1))]);
        let ends: Vec<usize> =
            (0..=bytes).filter(|end| Fcp::parse(5, &buf[..*end]).is_ok()).collect();
        assert_eq!(ends, [8, 28, 42, 65, 77, bytes], "whole parts only");
    }

    #[test]
    fn holes_part_stands_last_and_alone() {
        let part = |holes: u64| [&[HOLES][..], &holes.to_be_bytes()].concat();
        assert_eq!(split_holes(&part(0b110)), Some(0b110));
        assert_eq!((split_holes(&part(0)), split_holes(&part(0b111))), (None, None));
        assert_eq!(split_holes(&[part(0b110), part(0b110)].concat()), None);
    }
}
