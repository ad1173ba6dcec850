//! The layout of the file of a page pool, and locations of pages in frames.

use crate::mapping::Mapping;
use crate::page_pool::claim::Claim;
use crate::sync::Ordering;

/// The magic number of a page pool: seven ASCII bytes, then the version of the layout, incremented
/// whenever a field moves or changes its meaning.
pub(super) const MAGIC: u64 = 0x3170_7368_656c_6601;
pub(super) const MAGIC_AT: usize = 0;
/// Maximum number of regions of a pool.
pub(super) const REGIONS_MAX: usize = 1024;
/// Size of a claim: each on a cache line of its own.
const CLAIM_LEN: usize = 64;
const CLAIMS_AT: usize = PAGE_BYTES;
pub(super) const PAGE_BYTES: usize = 4096;
/// Length of the header; regions begin behind it.
pub(super) const HEADER_LEN: usize = CLAIMS_AT + REGIONS_MAX * CLAIM_LEN;

/// Length of a [`PageLocation`] in a frame.
pub const PAGE_LOCATION_LEN: usize = 32;

/// The location of a page in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageLocation {
    /// Index of the region that holds the page.
    pub(super) region: u64,
    /// Generation of the region in which the page was allocated.
    pub(super) generation: u64,
    /// Offset of the region in the file.
    pub(super) at: u64,
    /// Size of the region in bytes; the page may be shorter.
    pub(super) capacity: u64,
}

impl PageLocation {
    /// Encodes the location as in a frame.
    pub fn to_bytes(self) -> [u8; PAGE_LOCATION_LEN] {
        let mut bytes = [0; PAGE_LOCATION_LEN];
        let words = [self.region, self.generation, self.at, self.capacity];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_be_bytes();
        }
        bytes
    }

    /// Decodes a location; `None` for bytes that cannot be a location.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PAGE_LOCATION_LEN] = bytes.get(..PAGE_LOCATION_LEN)?.try_into().ok()?;
        let word = |at: usize| u64::from_be_bytes(bytes.as_chunks::<8>().0[at]);
        let location =
            Self { region: word(0), generation: word(1), at: word(2), capacity: word(3) };
        let is_page_multiple = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES as u64);
        let is_valid = location.region < REGIONS_MAX as u64
            && location.at >= HEADER_LEN as u64
            && is_page_multiple(location.at)
            && is_page_multiple(location.capacity)
            && location.at.checked_add(location.capacity).is_some_and(|end| end <= i64::MAX as u64);
        is_valid.then_some(location)
    }
}

/// Whether `header`, which maps the beginning of the file, is no longer that of a pool: the file
/// was shortened, so that zeros are mapped or were written since.
pub(super) fn is_lost(header: &Mapping) -> bool {
    header.word(MAGIC_AT).load(Ordering::Relaxed) != MAGIC || header.is_lost()
}

/// The claim of a region; `header` maps the beginning of the file.
pub(super) fn claim(header: &Mapping, region: usize) -> Claim<'_> {
    let at = CLAIMS_AT + region * CLAIM_LEN;
    Claim { readers: header.word(at), generation: header.word(at + 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_round_trips_and_invalid_ones_are_rejected() {
        let at = HEADER_LEN as u64;
        let location = PageLocation { region: 7, generation: u64::MAX, at, capacity: 8192 };
        assert_eq!(PageLocation::parse(&location.to_bytes()), Some(location));
        assert_eq!(PageLocation::parse(&location.to_bytes()[1..]), None, "too short");
        for wrong in [
            PageLocation { region: REGIONS_MAX as u64, ..location },
            PageLocation { at: at - 4096, ..location },
            PageLocation { at: at + 1, ..location },
            PageLocation { capacity: 5, ..location },
            PageLocation { at: u64::MAX - 4095, ..location },
            PageLocation { at: i64::MAX as u64 & !4095, ..location },
        ] {
            assert_eq!(PageLocation::parse(&wrong.to_bytes()), None, "{wrong:?}");
        }
    }
}
