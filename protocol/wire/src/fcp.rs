//! Control packets of scheduled transfer: what an endpoint asks an arbiter for, and what it gets.
//!
//! Both ways the same: a front that says what has been heard, and parts. The check is over all of
//! it and seeded by what both ends have known since their last reset, so that who is out of step
//! is told from who is not (design: arbiter.md section 4).

use onepipe_base::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets of the front of a control packet.
pub const FCP_HEADER_OCTETS: usize = 20;
/// Octets of the check, which stands first and does not cover itself.
const CHECK_OCTETS: usize = 4;
/// The kinds of parts.
const RESET: u8 = 1;
const REQUEST: u8 = 2;
const GRANT: u8 = 3;
/// Octets before the entries of a part, and before those of a grant.
const PART_OCTETS: usize = 2;
const GRANT_OCTETS: usize = 8;
/// The form of an entry whose timeslots are a mask: more are not listed one by one.
const MASK: u8 = 0xff;
/// Timeslots that are listed at most: with one more a mask is as short.
const LISTED_MAX: u32 = 7;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    check: U32,
    sequence: U32,
    heard: U32,
    heard_bits: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResetLayout {
    time: U64,
    epoch: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestLayout {
    dst: U16,
    total: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GrantLayout {
    dst: U16,
    total: U16,
    path: u8,
    form: u8,
}

const _: () = assert!(size_of::<Layout>() == FCP_HEADER_OCTETS);

/// All counts begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpReset {
    /// When, in full nanoseconds: of two resets the later one counts.
    pub time: Timestamp,
    /// The epoch of the arbiter: see [`crate::Watchdog`]; of an endpoint, the highest that it
    /// knows.
    pub epoch: u32,
}

/// "So many timeslots to `dst` I have ever asked for", since the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpRequest {
    /// To whom.
    pub dst: u16,
    /// How many, modulo 2^16.
    pub total: u16,
}

/// Timeslots to `dst` by one path; none, if only the total is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpGrant {
    /// To whom.
    pub dst: u16,
    /// How many were ever given, up to these and with them, since the last reset; modulo 2^16.
    pub total: u16,
    /// By which path, or [`crate::NO_PATH`].
    pub path: u8,
    /// Which: bit 0 is the part's first timeslot.
    pub slots: u64,
}

/// A part of a control packet.
#[derive(Clone, Copy, Debug)]
pub enum FcpPart<'a> {
    /// All counts begin anew. Stands first.
    Reset(FcpReset),
    /// What an endpoint wants.
    Requests(FcpEntries<'a>),
    /// What it gets: the number of the first timeslot, modulo 2^48, and what is counted from there.
    Grants(u64, FcpEntries<'a>),
}

/// A control packet, borrowed from its octets. Its parts are whole; whether it comes from who is in
/// step, [`Fcp::is_in_step`] says.
#[derive(Clone, Copy, Debug)]
pub struct Fcp<'a> {
    /// The packet's number, from 1 after a reset, modulo 2^32.
    pub sequence: u32,
    /// The highest number that its sender has received.
    pub heard: u32,
    /// Bit `i`: number `heard - i` has been received. 0: none yet.
    pub heard_bits: u64,
    octets: &'a [u8],
}

impl<'a> Fcp<'a> {
    /// Reads the payload of a frame with opcode [`crate::Opcode::Fcp`].
    ///
    /// # Errors
    /// When it does not consist of a front and whole parts as a sender writes them.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Ok((layout, mut rest)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (FCP_HEADER_OCTETS, payload.len());
            return Err(DecodeError::Truncated { part: "control packet", need, got });
        };
        let mut is_first = true;
        while !rest.is_empty() {
            let refused = || DecodeError::Field { field: "part", value: u64::from(rest[0]) };
            let (part, behind) = split_part(rest).ok_or_else(refused)?;
            if matches!(part, FcpPart::Reset(_)) && !is_first {
                return Err(refused());
            }
            (is_first, rest) = (false, behind);
        }
        Ok(Self {
            sequence: layout.sequence.get(),
            heard: layout.heard.get(),
            heard_bits: layout.heard_bits.get(),
            octets: payload,
        })
    }

    /// Whether whoever wrote it did so with this seed.
    pub fn is_in_step(&self, seed: u64) -> bool {
        let (check, covered) = self.octets.split_at(CHECK_OCTETS);
        check == checksum(covered, seed)
    }

    /// The reset, if it begins with one.
    pub fn reset(&self) -> Option<FcpReset> {
        match self.parts().next() {
            Some(FcpPart::Reset(reset)) => Some(reset),
            _ => None,
        }
    }

    /// Its parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = FcpPart<'a>> + 'a {
        let mut rest = &self.octets[FCP_HEADER_OCTETS..];
        core::iter::from_fn(move || {
            let (part, behind) = split_part(rest)?;
            rest = behind;
            Some(part)
        })
    }
}

fn checksum(covered: &[u8], seed: u64) -> [u8; CHECK_OCTETS] {
    (xxh3_64_with_seed(covered, seed) as u32).to_be_bytes()
}

/// The first part of `octets` and what is behind it; `None` if there is no whole part.
fn split_part(octets: &[u8]) -> Option<(FcpPart<'_>, &[u8])> {
    let (&kind, &count) = (octets.first()?, octets.get(1)?);
    let entries = |front: usize| {
        let mut rest = octets.get(front..)?;
        let begin = rest;
        for _ in 0..count {
            rest = if kind == REQUEST { rest.get(4..)? } else { split_grant(rest)?.1 };
        }
        let octets = &begin[..begin.len() - rest.len()];
        (count > 0).then_some((FcpEntries { octets }, rest))
    };
    match kind {
        RESET => {
            let (layout, rest) = ResetLayout::ref_from_prefix(&octets[PART_OCTETS..]).ok()?;
            let (time, epoch) = (Timestamp::from_ns(layout.time.get()), layout.epoch.get());
            Some((FcpPart::Reset(FcpReset { time, epoch }), rest))
        }
        REQUEST => entries(PART_OCTETS).map(|(all, rest)| (FcpPart::Requests(all), rest)),
        GRANT => {
            let base = octets.get(PART_OCTETS..GRANT_OCTETS)?;
            let base = base.iter().fold(0, |base, octet| base << 8 | u64::from(*octet));
            entries(GRANT_OCTETS).map(|(all, rest)| (FcpPart::Grants(base, all), rest))
        }
        _ => None,
    }
}

/// The first entry of a grant, if there is a whole one, and what is behind it.
fn split_grant(octets: &[u8]) -> Option<(FcpGrant, &[u8])> {
    let (layout, rest) = GrantLayout::ref_from_prefix(octets).ok()?;
    let (slots, rest) = if layout.form == MASK {
        let (mask, rest) = U64::ref_from_prefix(rest).ok()?;
        (Some(mask.get()).filter(|mask| mask.count_ones() > LISTED_MAX)?, rest)
    } else if u32::from(layout.form) <= LISTED_MAX {
        let (list, rest) = rest.split_at_checked(usize::from(layout.form))?;
        // Ascending, so that there is one way to say it.
        let is_right = list.iter().all(|slot| *slot < 64) && list.is_sorted_by(|a, b| a < b);
        (is_right.then(|| list.iter().fold(0, |all, slot| all | 1 << *slot))?, rest)
    } else {
        return None;
    };
    let (dst, total) = (layout.dst.get(), layout.total.get());
    Some((FcpGrant { dst, total, path: layout.path, slots }, rest))
}

/// The entries of a part.
#[derive(Clone, Copy, Debug)]
pub struct FcpEntries<'a> {
    octets: &'a [u8],
}

impl<'a> FcpEntries<'a> {
    /// As those of [`FcpPart::Requests`].
    pub fn requests(self) -> impl Iterator<Item = FcpRequest> + 'a {
        self.octets.chunks_exact(4).filter_map(|octets| {
            let layout = RequestLayout::ref_from_bytes(octets).ok()?;
            Some(FcpRequest { dst: layout.dst.get(), total: layout.total.get() })
        })
    }

    /// As those of [`FcpPart::Grants`].
    pub fn grants(self) -> impl Iterator<Item = FcpGrant> + 'a {
        let mut rest = self.octets;
        core::iter::from_fn(move || {
            let (grant, behind) = split_grant(rest)?;
            rest = behind;
            Some(grant)
        })
    }
}

/// Writes a control packet, part by part. What does not fit is not written, and said so.
#[derive(Debug)]
pub struct FcpWriter<'a> {
    room: &'a mut [u8],
    octets: usize,
    /// Where the part begins that takes more entries, and of a grant the base.
    open: Option<(usize, u64)>,
}

impl<'a> FcpWriter<'a> {
    /// Begins a packet in `room`; `None` when not even the front fits.
    pub fn new(room: &'a mut [u8], sequence: u32, (heard, heard_bits): (u32, u64)) -> Option<Self> {
        let layout = Layout {
            check: U32::ZERO,
            sequence: U32::new(sequence),
            heard: U32::new(heard),
            heard_bits: U64::new(heard_bits),
        };
        room.get_mut(..FCP_HEADER_OCTETS)?.copy_from_slice(layout.as_bytes());
        Some(Self { room, octets: FCP_HEADER_OCTETS, open: None })
    }

    /// Whether nothing but the front is written.
    pub fn is_empty(&self) -> bool {
        self.octets == FCP_HEADER_OCTETS
    }

    /// A reset, before all other parts. Answers false when it does not fit.
    pub fn reset(&mut self, reset: FcpReset) -> bool {
        debug_assert!(self.is_empty(), "a reset stands first");
        self.open = None;
        let layout =
            ResetLayout { time: U64::new(reset.time.as_ns()), epoch: U32::new(reset.epoch) };
        self.put(&[RESET, 0], layout.as_bytes())
    }

    /// Adds a request. Answers false when it does not fit.
    pub fn request(&mut self, request: FcpRequest) -> bool {
        let layout = RequestLayout { dst: U16::new(request.dst), total: U16::new(request.total) };
        self.add(REQUEST, 0, &[], layout.as_bytes(), &[])
    }

    /// Adds a grant of timeslots that are counted from `base`. Answers false when it does not fit.
    pub fn grant(&mut self, base: u64, grant: FcpGrant) -> bool {
        let count = grant.slots.count_ones();
        let (mut list, mut octets) = ([0; 8], 0);
        if count <= LISTED_MAX {
            let mut slots = grant.slots;
            while slots != 0 {
                list[octets] = slots.trailing_zeros() as u8;
                slots &= slots - 1;
                octets += 1;
            }
        } else {
            (list, octets) = (grant.slots.to_be_bytes(), 8);
        }
        let layout = GrantLayout {
            dst: U16::new(grant.dst),
            total: U16::new(grant.total),
            path: grant.path,
            form: if count <= LISTED_MAX { count as u8 } else { MASK },
        };
        let front = &base.to_be_bytes()[2..];
        self.add(GRANT, base, front, layout.as_bytes(), &list[..octets])
    }

    /// What is added next begins a part of its own.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// Completes the packet. Answers the octets that it has.
    pub fn finish(self, seed: u64) -> usize {
        let (check, covered) = self.room[..self.octets].split_at_mut(CHECK_OCTETS);
        check.copy_from_slice(&checksum(covered, seed));
        self.octets
    }

    /// Adds an entry to the open part, if that is of this kind and base, or to a new one.
    fn add(&mut self, kind: u8, base: u64, front: &[u8], entry: &[u8], slots: &[u8]) -> bool {
        if let Some((begin, open)) = self.open
            && (self.room[begin], open) == (kind, base)
            && self.room[begin + 1] < u8::MAX
        {
            let is_added = self.put(entry, slots);
            self.room[begin + 1] += u8::from(is_added);
            return is_added;
        }
        let begin = self.octets;
        if !(self.put(&[kind, 1], front) && self.put(entry, slots)) {
            self.octets = begin;
            return false;
        }
        self.open = Some((begin, base));
        true
    }

    fn put(&mut self, one: &[u8], other: &[u8]) -> bool {
        let end = self.octets + one.len() + other.len();
        let Some(place) = self.room.get_mut(self.octets..end) else { return false };
        let (first, second) = place.split_at_mut(one.len());
        first.copy_from_slice(one);
        second.copy_from_slice(other);
        self.octets = end;
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn what_fits_survives_and_what_does_not_is_said_so() {
        let grants = [
            FcpGrant { dst: 7, total: 3, path: 1, slots: 1 | 1 << 63 },
            FcpGrant { dst: 8, total: 64, path: 255, slots: u64::MAX },
            FcpGrant { dst: 9, total: 0, path: 255, slots: 0 },
        ];
        let reset = FcpReset { time: Timestamp::from_ns(u64::MAX - 1), epoch: 9 };
        let mut room = [0xff; FCP_HEADER_OCTETS + 14 + 6 + 4 + 8 + (6 + 2) + (6 + 8) + 6];
        let mut writer = FcpWriter::new(&mut room, 5, (4, 0b101)).expect("it fits");
        assert!(writer.reset(reset));
        assert!([1, 2].iter().all(|dst| writer.request(FcpRequest { dst: *dst, total: 65_535 })));
        assert!(grants.iter().all(|grant| writer.grant((1 << 48) - 2, *grant)));
        assert!(!writer.grant((1 << 48) - 2, grants[2]), "it is full");
        let octets = writer.finish(77);
        assert_eq!(octets, room.len());
        let fcp = Fcp::parse(&room).expect("just written");
        assert!(fcp.is_in_step(77) && !fcp.is_in_step(78));
        assert_eq!((fcp.sequence, fcp.heard, fcp.heard_bits), (5, 4, 0b101));
        assert_eq!(fcp.reset(), Some(reset));
        let parts: Vec<FcpPart<'_>> = fcp.parts().collect();
        let [_, FcpPart::Requests(asked), FcpPart::Grants(base, given)] = parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(asked.requests().map(|request| request.dst).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((base, given.grants().collect::<Vec<_>>()), ((1 << 48) - 2, grants.to_vec()));
        let ends: Vec<usize> =
            (0..=octets).filter(|end| Fcp::parse(&room[..*end]).is_ok()).collect();
        assert_eq!(ends, [20, 34, 44, octets], "whole parts only");
    }

    #[test]
    fn there_is_one_way_to_say_it() {
        let part = |octets: &[u8]| split_part(octets).is_some();
        let grant = |form: u8, slots: &[u8]| {
            let mut octets =
                [&[GRANT, 1, 0, 0, 0, 0, 0, 9, 0, 7, 0, 1, 255, form][..], slots].concat();
            let is_right = part(&octets);
            octets[1] = 0;
            assert!(!part(&octets), "no part without entries");
            is_right
        };
        assert!(grant(2, &[3, 9]) && !grant(2, &[9, 3]) && !grant(2, &[3, 3]));
        assert!(!grant(1, &[64]) && !grant(8, &[0, 1, 2, 3, 4, 5, 6, 7]) && grant(0, &[]));
        assert!(
            grant(MASK, &[0, 0, 0, 0, 0, 0, 0, 0xff]) && !grant(MASK, &[0, 0, 0, 0, 0, 0, 0, 0xfe])
        );
        assert!(
            !part(&[4, 1, 0, 0, 0, 0]) && !part(&[REQUEST, 0]) && part(&[REQUEST, 1, 0, 0, 0, 0])
        );
    }
}
