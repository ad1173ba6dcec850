//! Buffers for frames in flight.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a cache line. Every slot begins at the start of one, so that the length and the header
/// of a frame are in one cache line.
const CACHE_LINE_BYTES: usize = 64;
/// Bytes of the length prefix of a slot.
const LENGTH_PREFIX_BYTES: usize = 4;
/// Largest frame of a small slot: holds a frame with one 64-byte message, or an acknowledgement.
const SMALL_BYTES: usize = 3 * CACHE_LINE_BYTES - LENGTH_PREFIX_BYTES;
/// Flag of a [`FrameRef`] that refers to a large slot.
const LARGE: u32 = 1 << 31;

/// Reference to a frame in the [`Pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRef(u32);

/// All frames in flight, in slots of two sizes. The free lists are last-in-first-out so that the
/// slots in use stay in the cache. Nothing is allocated in the steady state.
#[derive(Debug)]
pub struct Pool {
    small: Slab,
    large: Slab,
}

impl Pool {
    /// Creates a pool for frames of up to `frame_len_max` bytes.
    pub fn new(frame_len_max: usize) -> Self {
        Self { small: Slab::new(SMALL_BYTES), large: Slab::new(frame_len_max) }
    }

    /// Copies a frame into a free slot.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> FrameRef {
        if bytes.len() <= SMALL_BYTES {
            FrameRef(self.small.put(bytes))
        } else {
            FrameRef(self.large.put(bytes) | LARGE)
        }
    }

    /// Copies a frame into a second slot.
    pub fn duplicate(&mut self, frame: FrameRef) -> FrameRef {
        let bytes = self.bytes(frame).to_vec();
        self.put(&bytes)
    }

    /// Prefetches the header of the frame. The result carries no information, but must be used so
    /// that the load is not optimized away.
    #[inline]
    pub fn prefetch_header(&self, frame: FrameRef) -> u64 {
        let length = if frame.0 & LARGE == 0 {
            self.small.length(frame.0)
        } else {
            self.large.length(frame.0 ^ LARGE)
        };
        length.into()
    }

    /// Prefetches the rest of a small slot, like [`Pool::prefetch_header`].
    #[inline]
    pub fn prefetch_payload(&self, frame: FrameRef) -> u64 {
        if frame.0 & LARGE == 0 { self.small.prefetch_rest(frame.0) } else { 0 }
    }

    /// Returns the frame's bytes.
    #[inline]
    pub fn bytes(&self, frame: FrameRef) -> &[u8] {
        let (slab, slot) = if frame.0 & LARGE == 0 {
            (&self.small, frame.0)
        } else {
            (&self.large, frame.0 ^ LARGE)
        };
        slab.bytes(slot)
    }

    /// Returns the frame's bytes for modification.
    #[inline]
    pub fn bytes_mut(&mut self, frame: FrameRef) -> &mut [u8] {
        if frame.0 & LARGE == 0 {
            self.small.bytes_mut(frame.0)
        } else {
            self.large.bytes_mut(frame.0 ^ LARGE)
        }
    }

    /// Truncates the frame to its first `bytes`.
    pub fn truncate(&mut self, frame: FrameRef, bytes: usize) {
        if frame.0 & LARGE == 0 {
            self.small.truncate(frame.0, bytes);
        } else {
            self.large.truncate(frame.0 ^ LARGE, bytes);
        }
    }

    /// Frees the slot. The reference must not be used again.
    #[inline]
    pub fn free(&mut self, frame: FrameRef) {
        if frame.0 & LARGE == 0 {
            self.small.free.push(frame.0);
        } else {
            self.large.free.push(frame.0 ^ LARGE);
        }
    }

    /// Returns the number of frames in flight.
    pub fn in_flight(&self) -> usize {
        self.small.in_use() + self.large.in_use()
    }
}

/// A cache line.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
struct CacheLine([u8; CACHE_LINE_BYTES]);

/// Slots of one size, each with the length of its frame in front of the frame.
#[derive(Debug)]
struct Slab {
    bytes_max: usize,
    /// Number of cache lines of a slot.
    slot_lines: usize,
    lines: Vec<CacheLine>,
    /// Free slots.
    free: Vec<u32>,
}

impl Slab {
    fn new(bytes_max: usize) -> Self {
        let slot_lines = (LENGTH_PREFIX_BYTES + bytes_max).div_ceil(CACHE_LINE_BYTES);
        Self { bytes_max, slot_lines, lines: Vec::new(), free: Vec::new() }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) -> u32 {
        assert!(bytes.len() <= self.bytes_max, "a frame of {} bytes is too long", bytes.len());
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        self.set_length(slot, bytes.len() as u32);
        self.bytes_mut(slot).copy_from_slice(bytes);
        slot
    }

    /// Allocates one more slot.
    #[cold]
    fn grow(&mut self) -> u32 {
        let slot = self.slots() as u32;
        assert!(slot < LARGE, "cannot store a frame: 2^31 frames are in flight");
        self.lines.resize(self.lines.len() + self.slot_lines, CacheLine([0; CACHE_LINE_BYTES]));
        slot
    }

    fn slots(&self) -> usize {
        self.lines.len() / self.slot_lines
    }

    /// Returns the index of the first cache line of a slot.
    #[inline]
    fn first_line(&self, slot: u32) -> usize {
        slot as usize * self.slot_lines
    }

    #[inline]
    fn length(&self, slot: u32) -> u32 {
        let line = &self.lines[self.first_line(slot)].0;
        u32::from_le_bytes([line[0], line[1], line[2], line[3]])
    }

    #[inline]
    fn set_length(&mut self, slot: u32, bytes: u32) {
        let first = self.first_line(slot);
        self.lines[first].0[..LENGTH_PREFIX_BYTES].copy_from_slice(&bytes.to_le_bytes());
    }

    #[inline]
    fn bytes(&self, slot: u32) -> &[u8] {
        let (first, end) =
            (self.first_line(slot), LENGTH_PREFIX_BYTES + self.length(slot) as usize);
        let lines = &self.lines[first..first + self.slot_lines];
        &lines.as_bytes()[LENGTH_PREFIX_BYTES..end]
    }

    #[inline]
    fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        let (first, end) =
            (self.first_line(slot), LENGTH_PREFIX_BYTES + self.length(slot) as usize);
        let lines = &mut self.lines[first..first + self.slot_lines];
        &mut lines.as_mut_bytes()[LENGTH_PREFIX_BYTES..end]
    }

    #[inline]
    fn prefetch_rest(&self, slot: u32) -> u64 {
        let first = self.first_line(slot);
        let rest = &self.lines[first + 1..first + self.slot_lines];
        rest.iter().fold(0, |all, line| all ^ u64::from(line.0[0]))
    }

    fn truncate(&mut self, slot: u32, bytes: usize) {
        self.set_length(slot, self.length(slot).min(bytes as u32));
    }

    fn in_use(&self) -> usize {
        self.slots() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_slots_of_both_sizes() {
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
        assert_eq!((pool.small.slots(), pool.large.slots()), (1, 2));
    }
}
