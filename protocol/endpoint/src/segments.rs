//! Where payloads lie while they wait: pieces of recycled segments.
//!
//! Payloads are laid one behind the other into a segment; a segment is used again once everything
//! in it has been released. The segment used last is the one used next, so that a shallow buffer
//! stays in the cache however large its limit is. What may be held at all is the owner's affair
//! (windows, send buffer); this only places it.

use alloc::vec::Vec;

/// Bytes of an ordinary segment.
const SEGMENT_LEN: usize = 64 << 10;
/// A payload above this gets a segment of its own, given back to the allocator afterwards.
const SHARED_BYTES_MAX: usize = SEGMENT_LEN / 4;

/// Where a payload lies: the number of its segment, and in the lower half its offset there. One
/// word, because it is moved on and copied for each message: two halves written one by one would
/// have to leave the store buffer before they can be copied as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place(u64);

impl Place {
    /// Before a place has been set aside.
    pub const NOWHERE: Self = Self((u32::MAX as u64) << 32);

    #[inline]
    fn new(segment: u32, offset: u32) -> Self {
        Self(u64::from(segment) << 32 | u64::from(offset))
    }

    #[inline]
    fn segment(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }

    /// The place `bytes` further on in the same payload.
    #[inline]
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Segment {
    bytes: Vec<u8>,
    used: usize,
    /// Payloads that have not been released.
    live: u32,
}

/// Recycled segments with payloads in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Segments {
    segments: Vec<Segment>,
    /// Ordinary segments with nothing in them.
    free: Vec<u32>,
    /// Numbers whose segment of its own has been given back.
    vacant: Vec<u32>,
    /// The ordinary segment that is being filled.
    current: u32,
}

impl Segments {
    /// Nothing is allocated before the first payload: an endpoint has two of these for each of its
    /// services, and many use one service only.
    pub fn new() -> Self {
        // Too full for any payload, even an empty one.
        let none = Segment { bytes: Vec::new(), used: SEGMENT_LEN + 1, live: 0 };
        Self { segments: alloc::vec![none], free: Vec::new(), vacant: Vec::new(), current: 0 }
    }

    /// Makes room for `bytes` that will be released in `shares` parts (at least one).
    #[inline]
    pub fn reserve(&mut self, bytes: usize, shares: u32) -> Place {
        debug_assert!(shares > 0, "a payload that nobody releases stays for ever");
        if bytes > SHARED_BYTES_MAX {
            return self.reserve_own(bytes, shares);
        }
        if self.segments[self.current as usize].used + bytes > SEGMENT_LEN {
            self.turn_over();
        }
        let segment = &mut self.segments[self.current as usize];
        let offset = segment.used as u32;
        segment.used += bytes;
        segment.live += shares;
        Place::new(self.current, offset)
    }

    #[inline]
    pub fn get(&self, place: Place, bytes: usize) -> &[u8] {
        let offset = place.offset();
        &self.segments[place.segment()].bytes[offset..offset + bytes]
    }

    #[inline]
    pub fn get_mut(&mut self, place: Place, bytes: usize) -> &mut [u8] {
        let offset = place.offset();
        &mut self.segments[place.segment()].bytes[offset..offset + bytes]
    }

    /// Gives back one share of the payload at `place`.
    #[inline]
    pub fn release(&mut self, place: Place) {
        let segment = &mut self.segments[place.segment()];
        debug_assert!(segment.live > 0, "released twice");
        segment.live = segment.live.saturating_sub(1);
        if segment.live > 0 {
            return;
        }
        segment.used = 0;
        if segment.bytes.len() != SEGMENT_LEN {
            segment.bytes = Vec::new();
            self.vacant.push(place.segment() as u32);
        } else if place.segment() as u32 != self.current {
            self.free.push(place.segment() as u32);
        }
    }

    fn turn_over(&mut self) {
        // What was current keeps its payloads and comes back through `release`.
        self.current = match self.free.pop() {
            Some(free) => free,
            None => self.add(SEGMENT_LEN),
        };
    }

    #[cold]
    fn reserve_own(&mut self, bytes: usize, shares: u32) -> Place {
        // Never the length of an ordinary segment: that is how the two are told apart.
        let length = if bytes == SEGMENT_LEN { bytes + 1 } else { bytes };
        let number = match self.vacant.pop() {
            Some(vacant) => {
                self.segments[vacant as usize].bytes = alloc::vec![0; length];
                vacant
            }
            None => self.add(length),
        };
        let segment = &mut self.segments[number as usize];
        segment.used = bytes;
        segment.live = shares;
        Place::new(number, 0)
    }

    fn add(&mut self, bytes: usize) -> u32 {
        let segment = Segment { bytes: alloc::vec![0; bytes], used: 0, live: 0 };
        self.segments.push(segment);
        // Room to give every segment back without allocating then.
        self.free.reserve(self.segments.len() - self.free.len());
        self.vacant.reserve(self.segments.len() - self.vacant.len());
        (self.segments.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_segment_is_the_next_one_used() {
        let mut segments = Segments::new();
        let first: Vec<_> = (0..4).map(|_| segments.reserve(16 << 10, 1)).collect();
        let second = segments.reserve(1, 1);
        assert_ne!(first[0].segment(), second.segment());
        for place in first.iter() {
            segments.release(*place);
        }
        let filled: Vec<_> = (0..5).map(|_| segments.reserve(16 << 10, 1)).collect();
        assert_eq!(filled[4].segment(), first[0].segment());
        assert_eq!(segments.segments.len(), 1 + 2);
    }

    #[test]
    fn nothing_is_allocated_before_the_first_payload_even_an_empty_one() {
        let mut segments = Segments::new();
        assert!(segments.segments.iter().all(|segment| segment.bytes.capacity() == 0));
        let place = segments.reserve(0, 1);
        assert_eq!(segments.get(place, 0), []);
        segments.release(place);
        assert_eq!(segments.reserve(1, 1), place);
    }

    #[test]
    fn shares_of_one_payload_are_released_one_by_one() {
        let mut segments = Segments::new();
        let place = segments.reserve(100, 2);
        segments.get_mut(place, 100).fill(7);
        segments.release(place);
        assert_eq!(segments.get(place.plus(60), 40), [7; 40]);
        segments.release(place.plus(50));
        assert_eq!(segments.reserve(10, 1), place);
    }

    #[test]
    fn a_large_payload_has_a_segment_of_its_own_and_gives_it_back() {
        let mut segments = Segments::new();
        for bytes in [SEGMENT_LEN, 16 << 20] {
            let place = segments.reserve(bytes, 1);
            assert_eq!(segments.get(place, bytes).len(), bytes);
            segments.release(place);
            assert!(segments.segments[place.segment()].bytes.is_empty());
        }
        assert_eq!(segments.segments.len(), 2);
    }
}
