//! Buffers for frames in flight.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a cache line. Every buffer begins at the start of one, so that the length and the
/// header of a frame are in one cache line.
const CACHE_LINE_BYTES: usize = 64;
/// Bytes of the length prefix of a buffer.
const LENGTH_PREFIX_BYTES: usize = 4;
/// Cache lines of a small buffer: they hold a frame with one 64-byte message, or an
/// acknowledgement.
const SMALL_LINES: usize = 3;
/// Largest frame of a small buffer.
const SMALL_BYTES: usize = SMALL_LINES * CACHE_LINE_BYTES - LENGTH_PREFIX_BYTES;
/// Number of unused buffers of each size, small and large, that all pools of a network may have
/// together, and the least and the most for one of them.
const SPARES: [(usize, usize, usize); 2] = [(65_536, 32, 1_024), (4_096, 2, 64)];

/// Reference to a frame in the [`Pool`] of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRef(u32);

/// The bytes of a frame, on the way from one pool to another.
#[derive(Debug, Default)]
pub struct Buffer(Box<[CacheLine]>);

/// The frames in flight of one part of a network, in buffers of two sizes. The free lists are
/// last-in-first-out so that the buffers in use stay in the cache. Nothing is allocated in the
/// steady state.
#[derive(Debug)]
pub struct Pool {
    bytes_max: usize,
    /// Limits on the unused buffers of each size. A pool whose node receives more frames than it
    /// sends would otherwise collect the buffers of all others.
    spares_max: [usize; 2],
    buffers: Vec<Buffer>,
    /// References whose buffers are unused: small ones, large ones.
    free: [Vec<u32>; 2],
    /// References without a buffer.
    vacant: Vec<u32>,
}

impl Pool {
    /// Creates one of `pools` pools for frames of up to `frame_len_max` bytes.
    pub fn new(frame_len_max: usize, pools: usize) -> Self {
        let spares_max = SPARES.map(|(all, least, most)| (all / pools.max(1)).clamp(least, most));
        let free = [vec![], vec![]];
        Self { bytes_max: frame_len_max, spares_max, buffers: vec![], free, vacant: vec![] }
    }

    /// Copies a frame into a free buffer.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> FrameRef {
        let is_large = bytes.len() > SMALL_BYTES;
        let index = match self.free[usize::from(is_large)].pop() {
            Some(index) => index,
            None => self.grow(is_large, bytes.len()),
        };
        let buffer = &mut self.buffers[index as usize];
        buffer.set_len(bytes.len() as u32);
        buffer.bytes_mut().copy_from_slice(bytes);
        FrameRef(index)
    }

    /// Copies a frame into a second buffer.
    pub fn duplicate(&mut self, frame: FrameRef) -> FrameRef {
        let bytes = self.bytes(frame).to_vec();
        self.put(&bytes)
    }

    /// Prefetches the header of the frame. The result carries no information, but must be used so
    /// that the load is not optimized away.
    #[inline]
    pub fn prefetch_header(&self, frame: FrameRef) -> u64 {
        self.buffers[frame.0 as usize].len().into()
    }

    /// Prefetches the rest of a small buffer, like [`Pool::prefetch_header`].
    #[inline]
    pub fn prefetch_payload(&self, frame: FrameRef) -> u64 {
        match &*self.buffers[frame.0 as usize].0 {
            [_, one, other] => u64::from(one.0[0]) ^ u64::from(other.0[0]),
            _ => 0,
        }
    }

    /// Returns the frame's bytes.
    #[inline]
    pub fn bytes(&self, frame: FrameRef) -> &[u8] {
        self.buffers[frame.0 as usize].bytes()
    }

    /// Returns the frame's bytes for modification.
    #[inline]
    pub fn bytes_mut(&mut self, frame: FrameRef) -> &mut [u8] {
        self.buffers[frame.0 as usize].bytes_mut()
    }

    /// Truncates the frame to its first `bytes`.
    pub fn truncate(&mut self, frame: FrameRef, bytes: usize) {
        let buffer = &mut self.buffers[frame.0 as usize];
        buffer.set_len(buffer.len().min(bytes as u32));
    }

    /// Frees the buffer. The reference must not be used again.
    #[inline]
    pub fn free(&mut self, frame: FrameRef) {
        let size = usize::from(self.buffers[frame.0 as usize].is_large());
        self.free[size].push(frame.0);
    }

    /// Takes a frame out of the pool. The reference must not be used again.
    #[inline]
    pub fn detach(&mut self, frame: FrameRef) -> Buffer {
        self.vacant.push(frame.0);
        std::mem::take(&mut self.buffers[frame.0 as usize])
    }

    /// Adds a frame of another pool.
    #[inline]
    pub fn attach(&mut self, frame: Buffer) -> FrameRef {
        self.drop_excess(usize::from(frame.is_large()));
        let index = self.vacate();
        self.buffers[index as usize] = frame;
        FrameRef(index)
    }

    /// Returns the number of frames in flight.
    pub fn in_flight(&self) -> usize {
        self.buffers.len() - self.vacant.len() - self.free[0].len() - self.free[1].len()
    }

    /// Allocates one more buffer.
    #[cold]
    fn grow(&mut self, is_large: bool, len: usize) -> u32 {
        assert!(len <= self.bytes_max.max(SMALL_BYTES), "a frame of {len} bytes is too long");
        let bytes = LENGTH_PREFIX_BYTES + self.bytes_max;
        let lines = if is_large { bytes.div_ceil(CACHE_LINE_BYTES) } else { SMALL_LINES };
        let index = self.vacate();
        let buffer = vec![CacheLine([0; CACHE_LINE_BYTES]); lines];
        self.buffers[index as usize] = Buffer(buffer.into_boxed_slice());
        index
    }

    /// Returns a reference without a buffer.
    #[inline]
    fn vacate(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.buffers.push(Buffer::default());
            u32::try_from(self.buffers.len() - 1).expect("fewer than 2^32 frames are in flight")
        })
    }

    /// Returns an unused buffer of a size to the allocator if there are too many.
    #[inline]
    fn drop_excess(&mut self, size: usize) {
        if self.free[size].len() >= self.spares_max[size]
            && let Some(index) = self.free[size].pop()
        {
            self.buffers[index as usize] = Buffer::default();
            self.vacant.push(index);
        }
    }
}

/// A cache line.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
struct CacheLine([u8; CACHE_LINE_BYTES]);

/// The length of the frame in front of the frame.
impl Buffer {
    #[inline]
    fn is_large(&self) -> bool {
        self.0.len() > SMALL_LINES
    }

    #[inline]
    fn len(&self) -> u32 {
        let line = &self.0[0].0;
        u32::from_le_bytes([line[0], line[1], line[2], line[3]])
    }

    #[inline]
    fn set_len(&mut self, bytes: u32) {
        self.0[0].0[..LENGTH_PREFIX_BYTES].copy_from_slice(&bytes.to_le_bytes());
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        let end = LENGTH_PREFIX_BYTES + self.len() as usize;
        &self.0.as_bytes()[LENGTH_PREFIX_BYTES..end]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let end = LENGTH_PREFIX_BYTES + self.len() as usize;
        &mut self.0.as_mut_bytes()[LENGTH_PREFIX_BYTES..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_buffers_of_both_sizes() {
        let mut pool = Pool::new(1_500, 1);
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
        assert_eq!(pool.buffers.len(), 3);
    }

    #[test]
    fn frames_move_between_pools_without_a_copy() {
        for (pools, spares_max) in [(2, 1_024), (1_000_000, 32)] {
            let (mut one, mut other) = (Pool::new(1_500, pools), Pool::new(1_500, pools));
            for _ in 0..100 {
                let frame = one.put(&[5; 100]);
                let at = one.bytes(frame).as_ptr();
                let buffer = one.detach(frame);
                let frame = other.attach(buffer);
                assert_eq!((other.bytes(frame), other.bytes(frame).as_ptr()), (&[5; 100][..], at));
                assert_eq!((one.in_flight(), other.in_flight()), (0, 1));
                other.free(frame);
            }
            // All frames went one way: the receiver does not collect buffers without limit.
            for _ in 0..2 * spares_max {
                let frame = one.put(&[5; 100]);
                let frame = other.attach(one.detach(frame));
                other.free(frame);
            }
            assert_eq!(other.free[0].len(), spares_max);
            assert!(other.buffers.len() <= spares_max + 1 && one.buffers.len() == 1);
        }
    }
}
