//! Totals of timeslots by destination: a list, or a bitmap if there are many.

use super::{MAP, SHORT_MAP, TOTALS};

/// Length of the header of a list, and of a map.
pub(super) const LIST_LEN: usize = 2;
pub(super) const MAP_LEN: usize = 4;
/// Length of a list entry.
pub(super) const ENTRY_LEN: usize = 4;

/// Number of timeslots to `dst` requested, or granted, since the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FcpTotal {
    /// The destination.
    pub dst: u16,
    /// The number modulo 2^16; in a [`FcpEncoding::ShortMap`] modulo 2^8.
    pub total: u16,
}

/// Encoding of totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FcpEncoding {
    /// Each total with its destination: four bytes.
    List,
    /// A bitmap of destinations, and two bytes for each total.
    Map,
    /// As a map, with one byte for each total: the receiver infers the rest.
    ShortMap,
}

impl FcpEncoding {
    /// Length of a total without its destination.
    pub(super) const fn total_len(self) -> usize {
        match self {
            Self::List | Self::Map => 2,
            Self::ShortMap => 1,
        }
    }

    /// Length of the bitmap from `first` to `last`.
    pub(super) const fn map_len(first: u16, last: u16) -> usize {
        (last - first) as usize / 8 + 1
    }

    /// Returns the shortest encoding: of the two complete ones, or of all three.
    pub fn shortest(totals: &[FcpTotal], may_be_short: bool) -> Self {
        let all = || totals.iter().map(|total| total.dst);
        let (Some(first), Some(last)) = (all().min(), all().max()) else { return Self::List };
        let map = if may_be_short { Self::ShortMap } else { Self::Map };
        let map_len = Self::map_len(first, last);
        let mapped = MAP_LEN + map_len + totals.len() * map.total_len();
        let listed = LIST_LEN + totals.len() * ENTRY_LEN;
        if mapped < listed && map_len <= usize::from(u8::MAX) { map } else { Self::List }
    }
}

/// The totals of a part.
#[derive(Clone, Copy, Debug)]
pub struct FcpTotals<'a> {
    encoding: FcpEncoding,
    first: u16,
    /// Bitmap of destinations from `first` on, lowest bit of a byte first; empty for a list.
    map: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> FcpTotals<'a> {
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let encoding = match *bytes.first()? {
            TOTALS => {
                let count = usize::from(*bytes.get(1)?);
                let entries = bytes.get(LIST_LEN..)?;
                let (bytes, rest) = entries.split_at_checked(count * ENTRY_LEN)?;
                let all = Self { encoding: FcpEncoding::List, first: 0, map: &[], bytes };
                return (count > 0).then_some((all, rest));
            }
            MAP => FcpEncoding::Map,
            SHORT_MAP => FcpEncoding::ShortMap,
            _ => return None,
        };
        let (&[_, map_len, high, low], rest) = bytes.split_first_chunk::<MAP_LEN>()?;
        let (map, rest) = rest.split_at_checked(usize::from(map_len))?;
        // Each set of totals has exactly one valid encoding.
        if map.first()? & 1 == 0 || *map.last()? == 0 {
            return None;
        }
        let first = u16::from_be_bytes([high, low]);
        let span = map.len() * 8 - map.last()?.leading_zeros() as usize - 1;
        if usize::from(first) + span > usize::from(u16::MAX) {
            return None;
        }
        let count: u32 = map.iter().map(|byte| byte.count_ones()).sum();
        let (bytes, rest) = rest.split_at_checked(count as usize * encoding.total_len())?;
        Some((Self { encoding, first, map, bytes }, rest))
    }

    /// Returns the encoding.
    pub fn encoding(&self) -> FcpEncoding {
        self.encoding
    }

    /// Returns each total.
    pub fn totals(self) -> impl Iterator<Item = FcpTotal> + 'a {
        let mut rest = self.bytes;
        let (mut byte_index, mut bits) = (0, self.map.first().copied().unwrap_or_default());
        core::iter::from_fn(move || {
            let mut next = |bytes: usize| {
                let (value, behind) = rest.split_at_checked(bytes)?;
                rest = behind;
                Some(value.iter().fold(0, |value, byte| value << 8 | u16::from(*byte)))
            };
            if self.encoding == FcpEncoding::List {
                return Some(FcpTotal { dst: next(2)?, total: next(2)? });
            }
            while bits == 0 {
                byte_index += 1;
                bits = *self.map.get(byte_index)?;
            }
            let dst = self.first + (byte_index * 8) as u16 + bits.trailing_zeros() as u16;
            bits &= bits - 1;
            Some(FcpTotal { dst, total: next(self.encoding.total_len())? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> bool {
        FcpTotals::split(bytes).is_some()
    }

    #[test]
    fn refuses_non_canonical_encoding() {
        assert!(!split(&[TOTALS, 0]) && split(&[TOTALS, 1, 0, 0, 0, 0]));
        assert!(!split(&[TOTALS, 1, 0, 0, 0]));
        assert!(split(&[MAP, 1, 0, 7, 0b101, 0, 1, 0, 2]));
        assert!(!split(&[MAP, 1, 0, 7, 0b100, 0, 1]), "the first is marked");
        assert!(!split(&[MAP, 2, 0, 7, 1, 0, 0, 1]), "and one of the last eight");
        assert!(!split(&[MAP, 0, 0, 7]) && !split(&[MAP, 1, 0, 7, 0]));
        assert!(split(&[SHORT_MAP, 2, 0, 7, 1, 1, 5, 6]) && !split(&[SHORT_MAP, 2, 0, 7, 1, 1, 5]));
        assert!(split(&[SHORT_MAP, 1, 255, 254, 0b11, 5, 6]));
        assert!(!split(&[SHORT_MAP, 1, 255, 254, 0b101, 5, 6]), "beyond all processes");
    }

    #[test]
    fn selects_shortest_form() {
        let of = |every: usize, count: usize| {
            let all: [FcpTotal; 40] =
                core::array::from_fn(|at| FcpTotal { dst: (at * every) as u16, total: 9 });
            [false, true].map(|may_be_short| FcpEncoding::shortest(&all[..count], may_be_short))
        };
        assert_eq!(of(1, 30), [FcpEncoding::Map, FcpEncoding::ShortMap]);
        assert_eq!(of(1, 1), [FcpEncoding::List, FcpEncoding::List]);
        assert_eq!(of(20, 30), [FcpEncoding::List, FcpEncoding::ShortMap]);
        assert_eq!(of(60, 40), [FcpEncoding::List, FcpEncoding::List]);
    }
}
