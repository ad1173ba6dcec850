//! Frames in flight, in places that are used again.

/// Octets of a small place: a frame of one 64-octet message, or an acknowledgement, fits.
const SMALL_OCTETS: usize = 192;
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
    /// A pool for frames of up to `frame_octets_max`.
    pub fn new(frame_octets_max: usize) -> Self {
        Self { small: Places::new(SMALL_OCTETS), large: Places::new(frame_octets_max) }
    }

    /// Copies a frame in.
    #[inline]
    pub fn put(&mut self, octets: &[u8]) -> FrameRef {
        if octets.len() <= SMALL_OCTETS {
            FrameRef(self.small.put(octets))
        } else {
            FrameRef(self.large.put(octets) | LARGE)
        }
    }

    /// A second frame with the same octets.
    pub fn duplicate(&mut self, frame: FrameRef) -> FrameRef {
        let octets = self.octets(frame).to_vec();
        self.put(&octets)
    }

    /// The frame's octets.
    #[inline]
    pub fn octets(&self, frame: FrameRef) -> &[u8] {
        let (places, index) = if frame.0 & LARGE == 0 {
            (&self.small, frame.0)
        } else {
            (&self.large, frame.0 ^ LARGE)
        };
        places.octets(index)
    }

    /// The frame's octets, to rewrite.
    #[inline]
    pub fn octets_mut(&mut self, frame: FrameRef) -> &mut [u8] {
        if frame.0 & LARGE == 0 {
            self.small.octets_mut(frame.0)
        } else {
            self.large.octets_mut(frame.0 ^ LARGE)
        }
    }

    /// Cuts the frame to its first `octets`.
    pub fn truncate(&mut self, frame: FrameRef, octets: usize) {
        if frame.0 & LARGE == 0 {
            self.small.truncate(frame.0, octets);
        } else {
            self.large.truncate(frame.0 ^ LARGE, octets);
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

#[derive(Debug)]
struct Places {
    size: usize,
    octets: Vec<u8>,
    lengths: Vec<u32>,
    free: Vec<u32>,
}

impl Places {
    fn new(size: usize) -> Self {
        Self { size, octets: Vec::new(), lengths: Vec::new(), free: Vec::new() }
    }

    #[inline]
    fn put(&mut self, octets: &[u8]) -> u32 {
        assert!(octets.len() <= self.size, "a frame of {} octets", octets.len());
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        self.lengths[index as usize] = octets.len() as u32;
        let start = index as usize * self.size;
        self.octets[start..start + octets.len()].copy_from_slice(octets);
        index
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let index = self.lengths.len() as u32;
        assert!(index < LARGE, "two billion frames in flight");
        self.lengths.push(0);
        self.octets.resize(self.octets.len() + self.size, 0);
        index
    }

    #[inline]
    fn octets(&self, index: u32) -> &[u8] {
        let start = index as usize * self.size;
        &self.octets[start..start + self.lengths[index as usize] as usize]
    }

    #[inline]
    fn octets_mut(&mut self, index: u32) -> &mut [u8] {
        let start = index as usize * self.size;
        &mut self.octets[start..start + self.lengths[index as usize] as usize]
    }

    fn truncate(&mut self, index: u32, octets: usize) {
        let length = &mut self.lengths[index as usize];
        *length = (*length).min(octets as u32);
    }

    fn in_use(&self) -> usize {
        self.lengths.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sizes_keep_their_octets_and_places_are_used_again() {
        let mut pool = Pool::new(1_500);
        for _ in 0..100 {
            let small = pool.put(&[7; SMALL_OCTETS]);
            let large = pool.put(&[9; SMALL_OCTETS + 1]);
            let copy = pool.duplicate(large);
            pool.octets_mut(large)[0] = 1;
            assert_eq!(pool.octets(small), [7; SMALL_OCTETS]);
            assert_eq!(pool.octets(copy), [9; SMALL_OCTETS + 1]);
            pool.truncate(large, 3);
            assert_eq!(pool.octets(large), [1, 9, 9]);
            assert_eq!(pool.in_flight(), 3);
            [small, large, copy].into_iter().for_each(|frame| pool.free(frame));
        }
        assert_eq!((pool.small.lengths.len(), pool.large.lengths.len()), (1, 2));
    }
}
