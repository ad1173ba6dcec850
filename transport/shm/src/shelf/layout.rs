//! Where everything lies in the file of a shelf.

use crate::mapping::Mapping;
use crate::shelf::claim::Claim;

/// "1pshelf" and a number that goes up whenever anything changes its place or its meaning.
pub(super) const MAGIC: u64 = 0x3170_7368_656c_6601;
pub(super) const MAGIC_AT: usize = 0;
/// Regions of a shelf at most.
pub(super) const REGIONS_MAX: usize = 1024;
/// A line of its own for the words of each region.
const CLAIM_LEN: usize = 64;
const CLAIMS_AT: usize = PAGE_BYTES;
pub(super) const PAGE_BYTES: usize = 4096;
/// Regions begin here.
pub(super) const HEADER_LEN: usize = CLAIMS_AT + REGIONS_MAX * CLAIM_LEN;

/// Bytes of a [`Place`] in a frame.
pub const PLACE_LEN: usize = 32;

/// Where an object lies on a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The region, how often it was used before, where it begins in the file, how large it is.
    pub(super) region: u64,
    pub(super) generation: u64,
    pub(super) at: u64,
    pub(super) capacity: u64,
}

impl Place {
    /// As it stands in a frame.
    pub fn to_bytes(self) -> [u8; PLACE_LEN] {
        let mut bytes = [0; PLACE_LEN];
        let words = [self.region, self.generation, self.at, self.capacity];
        for (room, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *room = word.to_be_bytes();
        }
        bytes
    }

    /// What stands in a frame; `None` of anything that cannot be a place.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PLACE_LEN] = bytes.get(..PLACE_LEN)?.try_into().ok()?;
        let word = |at: usize| u64::from_be_bytes(bytes.as_chunks::<8>().0[at]);
        let place = Self { region: word(0), generation: word(1), at: word(2), capacity: word(3) };
        let is_page = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES as u64);
        let is_place = place.region < REGIONS_MAX as u64
            && place.at >= HEADER_LEN as u64
            && is_page(place.at)
            && is_page(place.capacity)
            && place.at.checked_add(place.capacity).is_some_and(|end| end <= i64::MAX as u64);
        is_place.then_some(place)
    }
}

/// The words of a region; `header` is the front of the file.
pub(super) fn claim(header: &Mapping, region: usize) -> Claim<'_> {
    let at = CLAIMS_AT + region * CLAIM_LEN;
    Claim { readers: header.word(at), generation: header.word(at + 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_and_nonsense_is_not() {
        let at = HEADER_LEN as u64;
        let place = Place { region: 7, generation: u64::MAX, at, capacity: 8192 };
        assert_eq!(Place::parse(&place.to_bytes()), Some(place));
        assert_eq!(Place::parse(&place.to_bytes()[1..]), None, "too short");
        for wrong in [
            Place { region: REGIONS_MAX as u64, ..place },
            Place { at: at - 4096, ..place },
            Place { at: at + 1, ..place },
            Place { capacity: 5, ..place },
            Place { at: u64::MAX - 4095, ..place },
            Place { at: i64::MAX as u64 & !4095, ..place },
        ] {
            assert_eq!(Place::parse(&wrong.to_bytes()), None, "{wrong:?}");
        }
    }
}
