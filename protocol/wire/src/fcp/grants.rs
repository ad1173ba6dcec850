//! Grants of an endpoint: a bitmap of timeslots, and for each granted timeslot its destination and
//! path, encoded relative to the lowest ones in as few bits as distinguish them.

use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::GRANT;

/// Maximum number of bits of a destination, and of a path.
const DST_BITS_MAX: u8 = 16;
const PATH_BITS_MAX: u8 = 8;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct GrantLayout {
    kind: u8,
    dst_bits: u8,
    path_bits: u8,
    path: u8,
    dst: U16,
    base: [u8; 6],
    slots: U64,
}

const _: () = assert!(size_of::<GrantLayout>() == 20);

/// A granted timeslot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpGrant {
    /// The timeslot, below 64, relative to [`FcpGrants::base`].
    pub slot: u8,
    /// The destination.
    pub dst: u16,
    /// The path, or [`crate::NO_PATH`].
    pub path: u8,
}

/// The granted timeslots of a part.
#[derive(Clone, Copy, Debug)]
pub struct FcpGrants<'a> {
    layout: &'a GrantLayout,
    codes: &'a [u8],
}

impl<'a> FcpGrants<'a> {
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (layout, rest) = GrantLayout::ref_from_prefix(bytes).ok()?;
        let slots = layout.slots.get();
        if slots == 0 || layout.dst_bits > DST_BITS_MAX || layout.path_bits > PATH_BITS_MAX {
            return None;
        }
        let bits = slots.count_ones() as usize * layout.width() as usize;
        let (codes, rest) = rest.split_at_checked(bits.div_ceil(8))?;
        let unused = codes.len() * 8 - bits;
        let has_zero_padding =
            codes.last().is_none_or(|last| last.trailing_zeros() as usize >= unused);
        let all = Self { layout, codes };
        (has_zero_padding && all.is_minimal()).then_some((all, rest))
    }

    /// Returns whether the encoding is minimal, so that each set of grants has exactly one valid
    /// encoding, and all destinations and paths are in range.
    fn is_minimal(&self) -> bool {
        let (mut dsts, mut paths) = (Range::NONE, Range::NONE);
        for (_, dst, path) in self.codes() {
            dsts.add(dst);
            paths.add(path);
        }
        let is_minimal = |range: Range, bits: u8, min: u16, max: u16| {
            range.min == 0 && range.bits() == bits && range.max <= max - min
        };
        is_minimal(dsts, self.layout.dst_bits, self.layout.dst.get(), u16::MAX)
            && is_minimal(paths, self.layout.path_bits, self.layout.path.into(), u8::MAX.into())
    }

    /// Returns the number of the first timeslot of the bitmap, modulo 2^48.
    pub fn base(&self) -> u64 {
        self.layout.base.iter().fold(0, |base, byte| base << 8 | u64::from(*byte))
    }

    /// Returns the bitmap: bit `i` is timeslot [`base`](Self::base) + `i`.
    pub fn slots(&self) -> u64 {
        self.layout.slots.get()
    }

    /// Returns the grants in ascending order of timeslots.
    pub fn grants(self) -> impl Iterator<Item = FcpGrant> + 'a {
        let (dst_min, path_min) = (self.layout.dst.get(), self.layout.path);
        self.codes().map(move |(slot, dst, path)| FcpGrant {
            slot,
            dst: dst_min.wrapping_add(dst),
            path: path_min.wrapping_add(path as u8),
        })
    }

    /// Returns, for each grant, its timeslot, and its destination and path minus the lowest ones.
    fn codes(self) -> impl Iterator<Item = (u8, u16, u16)> + 'a {
        let (width, path_bits) = (self.layout.width(), self.layout.path_bits);
        let (mut slots, mut bytes) = (self.layout.slots.get(), self.codes.iter());
        let (mut bit_buffer, mut bits) = (0u64, 0);
        core::iter::from_fn(move || {
            let slot = slots.trailing_zeros() as u8;
            slots &= slots.checked_sub(1)?;
            while bits < width {
                bit_buffer = bit_buffer << 8 | u64::from(*bytes.next()?);
                bits += 8;
            }
            bits -= width;
            let code = (bit_buffer >> bits) & !(u64::MAX << width);
            Some((slot, (code >> path_bits) as u16, (code & !(u64::MAX << path_bits)) as u16))
        })
    }
}

impl GrantLayout {
    const fn width(&self) -> u32 {
        (self.dst_bits + self.path_bits) as u32
    }
}

/// Range of the values of a field.
#[derive(Clone, Copy)]
struct Range {
    min: u16,
    max: u16,
}

impl Range {
    const NONE: Self = Self { min: u16::MAX, max: 0 };

    const fn add(&mut self, value: u16) {
        self.min = if value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
    }

    /// Returns the number of bits that distinguish the values.
    const fn bits(self) -> u8 {
        (u16::BITS - (self.max - self.min).leading_zeros()) as u8
    }
}

/// Writes a part into `buf`. Returns its length, or `None` if it does not fit.
pub(super) fn write(
    buf: &mut [u8],
    base: u64,
    slots: u64,
    grant_at: impl Fn(usize) -> (u16, u8),
) -> Option<usize> {
    let set_slots = || {
        let mut rest = slots;
        core::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest.checked_sub(1)?;
            Some(slot)
        })
    };
    let (mut dsts, mut paths) = (Range::NONE, Range::NONE);
    for (dst, path) in set_slots().map(&grant_at) {
        dsts.add(dst);
        paths.add(path.into());
    }
    let mut base_bytes = [0; 6];
    base_bytes.copy_from_slice(&base.to_be_bytes()[2..]);
    let layout = GrantLayout {
        kind: GRANT,
        dst_bits: dsts.bits(),
        path_bits: paths.bits(),
        path: paths.min as u8,
        dst: U16::new(dsts.min),
        base: base_bytes,
        slots: U64::new(slots),
    };
    let width = layout.width();
    let bytes = size_of::<GrantLayout>() + (slots.count_ones() * width).div_ceil(8) as usize;
    let (front, codes) = buf.get_mut(..bytes)?.split_at_mut(size_of::<GrantLayout>());
    front.copy_from_slice(layout.as_bytes());
    let (mut bit_buffer, mut bits) = (0u64, 0);
    let mut codes = codes.iter_mut();
    for (dst, path) in set_slots().map(&grant_at) {
        let code =
            u64::from(dst - dsts.min) << layout.path_bits | u64::from(u16::from(path) - paths.min);
        (bit_buffer, bits) = (bit_buffer << width | code, bits + width);
        while bits >= 8 {
            bits -= 8;
            *codes.next()? = (bit_buffer >> bits) as u8;
        }
    }
    if bits > 0 {
        *codes.next()? = (bit_buffer << (8 - bits)) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn grants_use_minimal_bits() {
        let written = |slots: u64, grant_at: fn(usize) -> (u16, u8)| {
            let mut buf = [0xff; 200];
            let bytes = write(&mut buf, 7, slots, grant_at).expect("it fits");
            let (read, rest) = FcpGrants::split(&buf[..bytes]).expect("just written");
            assert_eq!((read.base(), read.slots(), rest.len()), (7, slots, 0));
            let grants: Vec<FcpGrant> = read.grants().collect();
            assert_eq!(grants.len(), slots.count_ones() as usize);
            for FcpGrant { slot, dst, path } in grants {
                assert!(slots >> slot & 1 == 1 && (dst, path) == grant_at(slot.into()));
            }
            bytes - size_of::<GrantLayout>()
        };
        assert_eq!(written(u64::MAX, |_| (9, 255)), 0, "all to one, by one path");
        assert_eq!(written(u64::MAX, |slot| (300 + slot as u16 % 31, 255)), 40);
        assert_eq!(written(0xff, |slot| (4_000 + slot as u16, slot as u8 % 4)), 5);
        assert_eq!(written(1 | 1 << 63, |slot| (slot as u16 * 1_040, slot as u8 * 4)), 6);
    }

    #[test]
    fn refuses_non_canonical_encoding() {
        let split = |dst_bits: u8, dst: u16, slots: u64, codes: &[u8]| {
            let [high, low] = dst.to_be_bytes();
            let front = [GRANT, dst_bits, 0, 255, high, low, 0, 0, 0, 0, 0, 9];
            let bytes = [&front[..], &slots.to_be_bytes(), codes].concat();
            FcpGrants::split(&bytes).is_some_and(|(_, rest)| rest.is_empty())
        };
        assert!(split(1, 7, 0b11, &[0b0100_0000]) && split(0, 7, 0b11, &[]));
        assert!(!split(0, 7, 0, &[]), "none at all");
        assert!(!split(1, 7, 0b11, &[0b0100_0001]), "something behind the last");
        assert!(!split(1, 7, 0b11, &[0b1100_0000]), "none has the least");
        assert!(!split(2, 7, 0b11, &[0b0001_0000]), "one bit would do");
        assert!(!split(1, 65_535, 0b11, &[0b0100_0000]), "beyond all processes");
        assert!(!split(17, 7, 0b1, &[0, 0, 0]));
    }
}
