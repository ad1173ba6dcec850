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
    /// The number modulo 2^16; in a [`FcpForm::ShortMap`] modulo 2^8.
    pub total: u16,
}

/// Encoding of totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FcpForm {
    /// Each total with its destination: four bytes.
    List,
    /// A bitmap of destinations, and two bytes for each total.
    Map,
    /// As a map, with one byte for each total: the receiver infers the rest.
    ShortMap,
}

impl FcpForm {
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
        let marks = Self::map_len(first, last);
        let mapped = MAP_LEN + marks + totals.len() * map.total_len();
        let listed = LIST_LEN + totals.len() * ENTRY_LEN;
        if mapped < listed && marks <= usize::from(u8::MAX) { map } else { Self::List }
    }
}

/// The totals of a part.
#[derive(Clone, Copy, Debug)]
pub struct FcpTotals<'a> {
    form: FcpForm,
    first: u16,
    /// Bitmap of destinations from `first` on, lowest bit of a byte first; empty for a list.
    map: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> FcpTotals<'a> {
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let form = match *bytes.first()? {
            TOTALS => {
                let count = usize::from(*bytes.get(1)?);
                let entries = bytes.get(LIST_LEN..)?;
                let (bytes, rest) = entries.split_at_checked(count * ENTRY_LEN)?;
                let all = Self { form: FcpForm::List, first: 0, map: &[], bytes };
                return (count > 0).then_some((all, rest));
            }
            MAP => FcpForm::Map,
            SHORT_MAP => FcpForm::ShortMap,
            _ => return None,
        };
        let (&[_, marks, high, low], rest) = bytes.split_first_chunk::<MAP_LEN>()?;
        let (map, rest) = rest.split_at_checked(usize::from(marks))?;
        // Each set of totals has exactly one valid encoding.
        if map.first()? & 1 == 0 || *map.last()? == 0 {
            return None;
        }
        let first = u16::from_be_bytes([high, low]);
        let span = map.len() * 8 - map.last()?.leading_zeros() as usize - 1;
        if usize::from(first) + span > usize::from(u16::MAX) {
            return None;
        }
        let count: u32 = map.iter().map(|marks| marks.count_ones()).sum();
        let (bytes, rest) = rest.split_at_checked(count as usize * form.total_len())?;
        Some((Self { form, first, map, bytes }, rest))
    }

    /// Returns the encoding.
    pub fn form(&self) -> FcpForm {
        self.form
    }

    /// Returns each total.
    pub fn totals(self) -> impl Iterator<Item = FcpTotal> + 'a {
        let mut rest = self.bytes;
        let (mut byte_index, mut marks) = (0, self.map.first().copied().unwrap_or_default());
        core::iter::from_fn(move || {
            let mut next = |bytes: usize| {
                let (value, behind) = rest.split_at_checked(bytes)?;
                rest = behind;
                Some(value.iter().fold(0, |value, byte| value << 8 | u16::from(*byte)))
            };
            if self.form == FcpForm::List {
                return Some(FcpTotal { dst: next(2)?, total: next(2)? });
            }
            while marks == 0 {
                byte_index += 1;
                marks = *self.map.get(byte_index)?;
            }
            let dst = self.first + (byte_index * 8) as u16 + marks.trailing_zeros() as u16;
            marks &= marks - 1;
            Some(FcpTotal { dst, total: next(self.form.total_len())? })
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
            [false, true].map(|may_be_short| FcpForm::shortest(&all[..count], may_be_short))
        };
        assert_eq!(of(1, 30), [FcpForm::Map, FcpForm::ShortMap]);
        assert_eq!(of(1, 1), [FcpForm::List, FcpForm::List]);
        assert_eq!(of(20, 30), [FcpForm::List, FcpForm::ShortMap]);
        assert_eq!(of(60, 40), [FcpForm::List, FcpForm::List]);
    }
}
