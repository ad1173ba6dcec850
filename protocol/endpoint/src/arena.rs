//! An arena for payloads in send and receive buffers.
//!
//! Payloads are appended to chunks; a chunk is reused once every payload in it was released. The
//! chunk freed last is reused first, so that a shallow buffer stays in the cache however large its
//! limit is. The owner bounds the memory in use (windows, send buffer); the arena only places it.

use alloc::vec::Vec;

use onepipe_base::copy_payload;

/// Sizes of ordinary chunks in bytes, for small payloads and for others. Chunks of small payloads
/// are filled again and again, by each of many endpoints on one processor, so they must be small,
/// too, to stay in its cache.
const CHUNK_BYTES: [usize; 2] = [8 << 10, 64 << 10];
/// Largest small payload.
const SMALL_BYTES_MAX: usize = CHUNK_BYTES[0] / 16;
/// A larger payload gets a dedicated chunk, which is freed afterwards.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES[1] / 4;

/// Position of a payload: the index of its chunk in the upper half, the offset in the lower half. A
/// single word, because it is copied for each message: two halves written separately would have to
/// leave the store buffer before they could be copied as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PayloadRef(u64);

impl PayloadRef {
    /// No payload.
    pub const NONE: Self = Self((u32::MAX as u64) << 32);

    #[inline]
    fn new(chunk: u32, offset: u32) -> Self {
        Self(u64::from(chunk) << 32 | u64::from(offset))
    }

    #[inline]
    fn chunk(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    fn offset(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the position `len` bytes further on in the same payload.
    #[inline]
    pub fn plus(self, len: usize) -> Self {
        Self(self.0 + len as u64)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Chunk {
    bytes: Vec<u8>,
    used: usize,
    /// References that were not released.
    refs: u32,
}

/// Recycled chunks that hold payloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PayloadArena {
    chunks: Vec<Chunk>,
    /// Ordinary chunks of each size without payloads.
    free: [Vec<u32>; 2],
    /// Indices of dedicated chunks that were freed.
    vacant: Vec<u32>,
    /// The ordinary chunk of each size that is being filled.
    current: [u32; 2],
}

impl PayloadArena {
    /// Allocates nothing before the first payload: an endpoint has two arenas for each service, and
    /// many endpoints use one service only.
    pub fn new() -> Self {
        // Too full for any payload, even an empty one.
        let none = Chunk { bytes: Vec::new(), used: CHUNK_BYTES[1] + 1, refs: 0 };
        let free = [Vec::new(), Vec::new()];
        Self { chunks: alloc::vec![none], free, vacant: Vec::new(), current: [0; 2] }
    }

    /// Allocates `len` bytes with `refs` references (at least one), which are released one by one.
    #[inline]
    pub fn alloc(&mut self, len: usize, refs: u32) -> PayloadRef {
        debug_assert!(refs > 0, "a payload without references would never be freed");
        if len > SHARED_BYTES_MAX {
            return self.alloc_dedicated(len, refs);
        }
        let size = usize::from(len > SMALL_BYTES_MAX);
        if self.chunks[self.current[size] as usize].used + len > CHUNK_BYTES[size] {
            self.next_chunk(size);
        }
        let chunk = &mut self.chunks[self.current[size] as usize];
        let offset = chunk.used as u32;
        chunk.used += len;
        chunk.refs += refs;
        PayloadRef::new(self.current[size], offset)
    }

    /// Stores a copy of `payload` with one reference.
    #[inline]
    pub fn store(&mut self, payload: &[u8]) -> PayloadRef {
        let len = payload.len();
        let current = self.current[usize::from(len > SMALL_BYTES_MAX)];
        let chunk = &mut self.chunks[current as usize];
        // Both conditions in one look at the chunk: most payloads fit the current one.
        if len <= SHARED_BYTES_MAX
            && let Some(free) = chunk.bytes.get_mut(chunk.used..chunk.used + len)
        {
            copy_payload(free, payload);
            let offset = chunk.used as u32;
            chunk.used += len;
            chunk.refs += 1;
            return PayloadRef::new(current, offset);
        }
        self.store_in_new_chunk(payload)
    }

    #[inline(never)]
    fn store_in_new_chunk(&mut self, payload: &[u8]) -> PayloadRef {
        let payload_ref = self.alloc(payload.len(), 1);
        self.get_mut(payload_ref, payload.len()).copy_from_slice(payload);
        payload_ref
    }

    /// Adds a reference to the payload at `payload_ref`, which has others.
    #[inline]
    pub fn retain(&mut self, payload_ref: PayloadRef) {
        self.chunks[payload_ref.chunk()].refs += 1;
    }

    #[inline]
    pub fn get(&self, payload_ref: PayloadRef, len: usize) -> &[u8] {
        let offset = payload_ref.offset();
        &self.chunks[payload_ref.chunk()].bytes[offset..offset + len]
    }

    #[inline]
    pub fn get_mut(&mut self, payload_ref: PayloadRef, len: usize) -> &mut [u8] {
        let offset = payload_ref.offset();
        &mut self.chunks[payload_ref.chunk()].bytes[offset..offset + len]
    }

    /// Releases one reference to the payload at `payload_ref`.
    #[inline]
    pub fn release(&mut self, payload_ref: PayloadRef) {
        let chunk = &mut self.chunks[payload_ref.chunk()];
        debug_assert!(chunk.refs > 0, "released twice");
        chunk.refs = chunk.refs.saturating_sub(1);
        if chunk.refs > 0 {
            return;
        }
        chunk.used = 0;
        let index = payload_ref.chunk() as u32;
        match size_of_chunk(chunk) {
            None => {
                chunk.bytes = Vec::new();
                self.vacant.push(index);
            }
            Some(size) if index != self.current[size] => self.free[size].push(index),
            Some(_) => {}
        }
    }

    /// Returns the number of references that were not released.
    pub fn references(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.refs as usize).sum()
    }

    /// Checks that only chunks without payloads are free, and that none is free twice.
    pub fn check_invariants(&self) {
        let free = self.free[0].len() + self.free[1].len();
        assert!(free + self.vacant.len() < self.chunks.len(), "no chunk is free twice");
        for (size, all) in self.free.iter().enumerate() {
            let current = self.current[size];
            assert!((current as usize) < self.chunks.len(), "one chunk is being filled");
            assert!(!all.contains(&current), "the chunk that is being filled is not free");
            for &free in all {
                let chunk = &self.chunks[free as usize];
                assert_eq!(chunk.refs, 0, "a free chunk holds no payload");
                assert_eq!(size_of_chunk(chunk), Some(size), "a free chunk has its size");
            }
        }
        for &vacant in &self.vacant {
            let chunk = &self.chunks[vacant as usize];
            assert!(chunk.refs == 0 && chunk.bytes.is_empty(), "a vacant chunk has no memory");
        }
    }

    fn next_chunk(&mut self, size: usize) {
        // The previous chunk keeps its payloads and returns to `free` through `release`.
        self.current[size] = match self.free[size].pop() {
            Some(free) => free,
            None => self.add_chunk(CHUNK_BYTES[size]),
        };
    }

    #[cold]
    fn alloc_dedicated(&mut self, len: usize, refs: u32) -> PayloadRef {
        // A dedicated chunk must not have the length of an ordinary one, which distinguishes them.
        let chunk_len = if CHUNK_BYTES.contains(&len) { len + 1 } else { len };
        let index = match self.vacant.pop() {
            Some(vacant) => {
                self.chunks[vacant as usize].bytes = alloc::vec![0; chunk_len];
                vacant
            }
            None => self.add_chunk(chunk_len),
        };
        let chunk = &mut self.chunks[index as usize];
        chunk.used = len;
        chunk.refs = refs;
        PayloadRef::new(index, 0)
    }

    fn add_chunk(&mut self, len: usize) -> u32 {
        let chunk = Chunk { bytes: alloc::vec![0; len], used: 0, refs: 0 };
        self.chunks.push(chunk);
        // Reserved here, so that `release` never allocates.
        for free in &mut self.free {
            free.reserve(self.chunks.len() - free.len());
        }
        self.vacant.reserve(self.chunks.len() - self.vacant.len());
        (self.chunks.len() - 1) as u32
    }
}

/// Returns the size of an ordinary chunk, as an index; `None` for a dedicated one.
#[inline]
fn size_of_chunk(chunk: &Chunk) -> Option<usize> {
    CHUNK_BYTES.iter().position(|bytes| chunk.bytes.len() == *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_chunk_is_reused_first() {
        let mut arena = PayloadArena::new();
        let first: Vec<_> = (0..4).map(|_| arena.alloc(16 << 10, 1)).collect();
        let second = arena.alloc(SMALL_BYTES_MAX + 1, 1);
        assert_ne!(first[0].chunk(), second.chunk());
        for payload_ref in first.iter() {
            arena.release(*payload_ref);
        }
        let filled: Vec<_> = (0..5).map(|_| arena.alloc(16 << 10, 1)).collect();
        assert_eq!(filled[4].chunk(), first[0].chunk());
        assert_eq!(arena.chunks.len(), 1 + 2);
    }

    #[test]
    fn small_payloads_have_small_chunks() {
        let mut arena = PayloadArena::new();
        // A shallow buffer: eight payloads at a time, and many thousands in turn.
        let mut held = alloc::collections::VecDeque::new();
        for number in 0..10_000u32 {
            held.push_back(arena.store(&[number as u8; 64]));
            if held.len() > 8 {
                arena.release(held.pop_front().expect("nine are held"));
            }
            arena.check_invariants();
        }
        let bytes: usize = arena.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(bytes <= 3 * CHUNK_BYTES[0], "{bytes} bytes");
        let large = arena.store(&[7; SMALL_BYTES_MAX + 1]);
        assert_eq!(arena.get(large, 3), [7; 3]);
        assert_eq!(arena.chunks[large.chunk()].bytes.len(), CHUNK_BYTES[1]);
    }

    #[test]
    fn allocates_nothing_before_the_first_payload() {
        let mut arena = PayloadArena::new();
        assert!(arena.chunks.iter().all(|chunk| chunk.bytes.capacity() == 0));
        let payload_ref = arena.alloc(0, 1);
        assert_eq!(arena.get(payload_ref, 0), []);
        arena.release(payload_ref);
        assert_eq!(arena.alloc(1, 1), payload_ref);
    }

    #[test]
    fn stored_payloads_lie_as_allocated_ones_do() {
        let (mut stored, mut allocated) = (PayloadArena::new(), PayloadArena::new());
        let payload: Vec<u8> = (0..40_000).map(|n| n as u8).collect();
        for len in [0, 1, 64, 64, 16 << 10, 16 << 10, 16 << 10, 16_200, 64, 40_000, 0] {
            let payload_ref = stored.store(&payload[..len]);
            assert_eq!(payload_ref, allocated.alloc(len, 1));
            assert_eq!(stored.get(payload_ref, len), &payload[..len]);
        }
        let chunks = |arena: &PayloadArena| {
            arena.chunks.iter().map(|chunk| (chunk.used, chunk.refs)).collect::<Vec<_>>()
        };
        assert_eq!(chunks(&stored), chunks(&allocated));
    }

    #[test]
    fn payload_is_freed_with_its_last_reference() {
        let mut arena = PayloadArena::new();
        let payload_ref = arena.alloc(100, 2);
        arena.get_mut(payload_ref, 100).fill(7);
        arena.release(payload_ref);
        assert_eq!(arena.get(payload_ref.plus(60), 40), [7; 40]);
        arena.release(payload_ref.plus(50));
        assert_eq!(arena.alloc(10, 1), payload_ref);
    }

    #[test]
    fn large_payload_gets_its_own_chunk_and_frees_it() {
        let mut arena = PayloadArena::new();
        for len in [CHUNK_BYTES[1], 16 << 20] {
            let payload_ref = arena.alloc(len, 1);
            assert_eq!(arena.get(payload_ref, len).len(), len);
            arena.release(payload_ref);
            assert!(arena.chunks[payload_ref.chunk()].bytes.is_empty());
        }
        assert_eq!(arena.chunks.len(), 2);
    }
}
