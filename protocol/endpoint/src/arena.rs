//! An arena for payloads in send and receive buffers.
//!
//! Payloads are appended to chunks; a chunk is reused once every payload in it was released. The
//! chunk freed last is reused first, so that a shallow buffer stays in the cache however large its
//! limit is. The owner bounds the memory in use (windows, send buffer); the arena only places it.

use alloc::vec::Vec;

use onepipe_base::copy_payload;

/// Size of an ordinary chunk in bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// A larger payload gets a dedicated chunk, which is freed afterwards.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;

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
    /// Ordinary chunks without payloads.
    free: Vec<u32>,
    /// Indices of dedicated chunks that were freed.
    vacant: Vec<u32>,
    /// The ordinary chunk that is being filled.
    current: u32,
}

impl PayloadArena {
    /// Allocates nothing before the first payload: an endpoint has two arenas for each service, and
    /// many endpoints use one service only.
    pub fn new() -> Self {
        // Too full for any payload, even an empty one.
        let none = Chunk { bytes: Vec::new(), used: CHUNK_BYTES + 1, refs: 0 };
        Self { chunks: alloc::vec![none], free: Vec::new(), vacant: Vec::new(), current: 0 }
    }

    /// Allocates `len` bytes with `refs` references (at least one), which are released one by one.
    #[inline]
    pub fn alloc(&mut self, len: usize, refs: u32) -> PayloadRef {
        debug_assert!(refs > 0, "a payload without references would never be freed");
        if len > SHARED_BYTES_MAX {
            return self.alloc_dedicated(len, refs);
        }
        if self.chunks[self.current as usize].used + len > CHUNK_BYTES {
            self.next_chunk();
        }
        let chunk = &mut self.chunks[self.current as usize];
        let offset = chunk.used as u32;
        chunk.used += len;
        chunk.refs += refs;
        PayloadRef::new(self.current, offset)
    }

    /// Stores a copy of `payload` with one reference.
    #[inline]
    pub fn store(&mut self, payload: &[u8]) -> PayloadRef {
        let len = payload.len();
        let chunk = &mut self.chunks[self.current as usize];
        // Both conditions in one look at the chunk: most payloads fit the current one.
        if len <= SHARED_BYTES_MAX
            && let Some(free) = chunk.bytes.get_mut(chunk.used..chunk.used + len)
        {
            copy_payload(free, payload);
            let offset = chunk.used as u32;
            chunk.used += len;
            chunk.refs += 1;
            return PayloadRef::new(self.current, offset);
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
        if chunk.bytes.len() != CHUNK_BYTES {
            chunk.bytes = Vec::new();
            self.vacant.push(payload_ref.chunk() as u32);
        } else if payload_ref.chunk() as u32 != self.current {
            self.free.push(payload_ref.chunk() as u32);
        }
    }

    /// Returns the number of references that were not released.
    pub fn references(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.refs as usize).sum()
    }

    /// Checks that only chunks without payloads are free, and that none is free twice.
    pub fn check_invariants(&self) {
        assert!((self.current as usize) < self.chunks.len(), "one chunk is being filled");
        assert!(self.free.len() + self.vacant.len() < self.chunks.len(), "no chunk is free twice");
        assert!(!self.free.contains(&self.current), "the chunk that is being filled is not free");
        for &free in &self.free {
            let chunk = &self.chunks[free as usize];
            assert_eq!(chunk.refs, 0, "a free chunk holds no payload");
            assert_eq!(chunk.bytes.len(), CHUNK_BYTES, "a free chunk is an ordinary one");
        }
        for &vacant in &self.vacant {
            let chunk = &self.chunks[vacant as usize];
            assert!(chunk.refs == 0 && chunk.bytes.is_empty(), "a vacant chunk has no memory");
        }
    }

    fn next_chunk(&mut self) {
        // The previous chunk keeps its payloads and returns to `free` through `release`.
        self.current = match self.free.pop() {
            Some(free) => free,
            None => self.add_chunk(CHUNK_BYTES),
        };
    }

    #[cold]
    fn alloc_dedicated(&mut self, len: usize, refs: u32) -> PayloadRef {
        // A dedicated chunk must not have the length of an ordinary one, which distinguishes them.
        let chunk_len = if len == CHUNK_BYTES { len + 1 } else { len };
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
        self.free.reserve(self.chunks.len() - self.free.len());
        self.vacant.reserve(self.chunks.len() - self.vacant.len());
        (self.chunks.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_chunk_is_reused_first() {
        let mut arena = PayloadArena::new();
        let first: Vec<_> = (0..4).map(|_| arena.alloc(16 << 10, 1)).collect();
        let second = arena.alloc(1, 1);
        assert_ne!(first[0].chunk(), second.chunk());
        for payload_ref in first.iter() {
            arena.release(*payload_ref);
        }
        let filled: Vec<_> = (0..5).map(|_| arena.alloc(16 << 10, 1)).collect();
        assert_eq!(filled[4].chunk(), first[0].chunk());
        assert_eq!(arena.chunks.len(), 1 + 2);
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
        for len in [CHUNK_BYTES, 16 << 20] {
            let payload_ref = arena.alloc(len, 1);
            assert_eq!(arena.get(payload_ref, len).len(), len);
            arena.release(payload_ref);
            assert!(arena.chunks[payload_ref.chunk()].bytes.is_empty());
        }
        assert_eq!(arena.chunks.len(), 2);
    }
}
