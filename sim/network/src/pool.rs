//! Frames in flight, in places that are used again.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a line of the cache: a place begins with one, and a header fits into it.
const LINE_BYTES: usize = 64;
/// Bytes in front of a frame that say how long it is.
const LENGTH_BYTES: usize = 4;
/// Bytes of the frames in small places: a frame of one 64-byte message, or an acknowledgement,
/// fits.
const SMALL_BYTES: usize = 3 * LINE_BYTES - LENGTH_BYTES;
/// Marks a large place.
const LARGE: u32 = 1 << 31;

/// Where a frame lies in the [`Pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRef(u32);

/// All frames in flight. Two sizes of places, each with its free list, last-in-first-out so that
/// the places in use stay in the cache; nothing is allocated in the steady state.
#[derive(Debug)]
pub struct Pool {
    small: Places,
    large: Places,
}

impl Pool {
    /// A pool for frames of up to `frame_len_max`.
    pub fn new(frame_len_max: usize) -> Self {
        Self { small: Places::new(SMALL_BYTES), large: Places::new(frame_len_max) }
    }

    /// Copies a frame in.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> FrameRef {
        if bytes.len() <= SMALL_BYTES {
            FrameRef(self.small.put(bytes))
        } else {
            FrameRef(self.large.put(bytes) | LARGE)
        }
    }

    /// A second frame with the same bytes.
    pub fn duplicate(&mut self, frame: FrameRef) -> FrameRef {
        let bytes = self.bytes(frame).to_vec();
        self.put(&bytes)
    }

    /// Fetches the beginning of the frame into the cache. The answer means nothing, but must be
    /// used.
    #[inline]
    pub fn fetch_header(&self, frame: FrameRef) -> u64 {
        let length = if frame.0 & LARGE == 0 {
            self.small.length(frame.0)
        } else {
            self.large.length(frame.0 ^ LARGE)
        };
        length.into()
    }

    /// Fetches what a small place holds behind its first line, as [`Pool::fetch_header`] does.
    #[inline]
    pub fn fetch_payload(&self, frame: FrameRef) -> u64 {
        if frame.0 & LARGE == 0 { self.small.fetch_rest(frame.0) } else { 0 }
    }

    /// The frame's bytes.
    #[inline]
    pub fn bytes(&self, frame: FrameRef) -> &[u8] {
        let (places, index) = if frame.0 & LARGE == 0 {
            (&self.small, frame.0)
        } else {
            (&self.large, frame.0 ^ LARGE)
        };
        places.bytes(index)
    }

    /// The frame's bytes, to rewrite.
    #[inline]
    pub fn bytes_mut(&mut self, frame: FrameRef) -> &mut [u8] {
        if frame.0 & LARGE == 0 {
            self.small.bytes_mut(frame.0)
        } else {
            self.large.bytes_mut(frame.0 ^ LARGE)
        }
    }

    /// Cuts the frame to its first `bytes`.
    pub fn truncate(&mut self, frame: FrameRef, bytes: usize) {
        if frame.0 & LARGE == 0 {
            self.small.truncate(frame.0, bytes);
        } else {
            self.large.truncate(frame.0 ^ LARGE, bytes);
        }
    }

    /// Gives the place back. The reference must not be used again.
    #[inline]
    pub fn free(&mut self, frame: FrameRef) {
        if frame.0 & LARGE == 0 {
            self.small.free.push(frame.0);
        } else {
            self.large.free.push(frame.0 ^ LARGE);
        }
    }

    /// How many frames are in flight.
    pub fn in_flight(&self) -> usize {
        self.small.in_use() + self.large.in_use()
    }
}

/// A line of the cache.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// Places of one size: a frame's length, then the frame, so that both cost one line.
#[derive(Debug)]
struct Places {
    bytes_max: usize,
    /// Lines of a place.
    size: usize,
    lines: Vec<Line>,
    free: Vec<u32>,
}

impl Places {
    fn new(bytes_max: usize) -> Self {
        let size = (LENGTH_BYTES + bytes_max).div_ceil(LINE_BYTES);
        Self { bytes_max, size, lines: Vec::new(), free: Vec::new() }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) -> u32 {
        assert!(bytes.len() <= self.bytes_max, "a frame of {} bytes", bytes.len());
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        self.set_length(index, bytes.len() as u32);
        self.bytes_mut(index).copy_from_slice(bytes);
        index
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let index = self.count() as u32;
        assert!(index < LARGE, "two billion frames in flight");
        self.lines.resize(self.lines.len() + self.size, Line([0; LINE_BYTES]));
        index
    }

    fn count(&self) -> usize {
        self.lines.len() / self.size
    }

    #[inline]
    fn first(&self, index: u32) -> usize {
        index as usize * self.size
    }

    #[inline]
    fn length(&self, index: u32) -> u32 {
        let line = &self.lines[self.first(index)].0;
        u32::from_le_bytes([line[0], line[1], line[2], line[3]])
    }

    #[inline]
    fn set_length(&mut self, index: u32, bytes: u32) {
        let first = self.first(index);
        self.lines[first].0[..LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
    }

    #[inline]
    fn bytes(&self, index: u32) -> &[u8] {
        let (first, end) = (self.first(index), LENGTH_BYTES + self.length(index) as usize);
        let lines = &self.lines[first..first + self.size];
        &lines.as_bytes()[LENGTH_BYTES..end]
    }

    #[inline]
    fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        let (first, end) = (self.first(index), LENGTH_BYTES + self.length(index) as usize);
        let lines = &mut self.lines[first..first + self.size];
        &mut lines.as_mut_bytes()[LENGTH_BYTES..end]
    }

    #[inline]
    fn fetch_rest(&self, index: u32) -> u64 {
        let first = self.first(index);
        let rest = &self.lines[first + 1..first + self.size];
        rest.iter().fold(0, |all, line| all ^ u64::from(line.0[0]))
    }

    fn truncate(&mut self, index: u32, bytes: usize) {
        self.set_length(index, self.length(index).min(bytes as u32));
    }

    fn in_use(&self) -> usize {
        self.count() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sizes_keep_their_bytes_and_places_are_used_again() {
        let mut pool = Pool::new(1_500);
        for _ in 0..100 {
            let small = pool.put(&[7; SMALL_BYTES]);
            let large = pool.put(&[9; SMALL_BYTES + 1]);
            let copy = pool.duplicate(large);
            pool.bytes_mut(large)[0] = 1;
            assert_eq!(pool.bytes(small), [7; SMALL_BYTES]);
            assert_eq!(pool.bytes(copy), [9; SMALL_BYTES + 1]);
            pool.truncate(large, 3);
            assert_eq!(pool.bytes(large), [1, 9, 9]);
            assert_eq!(pool.in_flight(), 3);
            [small, large, copy].into_iter().for_each(|frame| pool.free(frame));
        }
        assert_eq!((pool.small.count(), pool.large.count()), (1, 2));
    }
}
