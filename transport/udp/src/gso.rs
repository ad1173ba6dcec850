//! GSO batches: frames for one destination that the kernel takes as one datagram.
//!
//! All segments of a batch have the same length, except the last, which may be shorter. A frame
//! that is a little shorter than the segment is padded (its header gives its length); one that is
//! much shorter ends the batch.

/// Maximum number of frames in a batch (Linux: `UDP_MAX_SEGMENTS`, 64 before 6.8).
pub(crate) const FRAMES_MAX: usize = 64;
/// Maximum length of a batch: what fits a datagram with an IPv6 header.
const BATCH_LEN_MAX: usize = 65_000;

/// A contiguous range of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoRange {
    /// Bytes of the socket's memory.
    Bytes { at: usize, bytes: usize },
    /// Zero bytes of padding, by number.
    Zeros(usize),
}

impl IoRange {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes { bytes, .. } | Self::Zeros(bytes) => bytes,
        }
    }
}

/// One GSO batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GsoBatch {
    /// Index of its first range in the queue.
    pub(crate) first_range: usize,
    /// Number of its ranges.
    pub(crate) ranges: usize,
    /// Length of every segment, except perhaps the last.
    pub(crate) segment_bytes: usize,
    /// Length of the batch, padding included.
    pub(crate) bytes: usize,
    pub(crate) frames: usize,
    /// No frame can follow, because the last segment is shorter than the others.
    pub(crate) is_closed: bool,
}

/// The queue of batches for one destination.
#[derive(Debug)]
pub(crate) struct GsoQueue {
    batches: Vec<GsoBatch>,
    ranges: Vec<IoRange>,
    /// Number of batches already sent.
    sent: usize,
    frames_max: usize,
    ranges_max: usize,
}

impl GsoQueue {
    /// Makes an empty queue for at most `ranges_max` ranges, and `frames_max` frames per batch.
    pub(crate) fn new(frames_max: usize, ranges_max: usize) -> Self {
        let batches = Vec::with_capacity(ranges_max);
        let ranges = Vec::with_capacity(ranges_max);
        Self { batches, ranges, sent: 0, frames_max, ranges_max }
    }

    /// Appends a frame to the last batch, or else to a new one. Returns false when the queue is
    /// full.
    #[inline]
    pub(crate) fn push(&mut self, at: usize, bytes: usize) -> bool {
        // A frame and its padding take two ranges.
        if self.ranges.len() + 2 > self.ranges_max {
            return false;
        }
        if let Some(batch) = self.batches[self.sent..].last_mut()
            && !batch.is_closed
            && bytes <= batch.segment_bytes
            && batch.frames < self.frames_max
            && batch.bytes + batch.segment_bytes <= BATCH_LEN_MAX
        {
            let padding = batch.segment_bytes - bytes;
            batch.bytes += bytes;
            batch.frames += 1;
            match self.ranges.last_mut() {
                Some(IoRange::Bytes { at: last_at, bytes: last_len })
                    if *last_at + *last_len == at =>
                {
                    *last_len += bytes;
                }
                _ => {
                    self.ranges.push(IoRange::Bytes { at, bytes });
                    batch.ranges += 1;
                }
            }
            // Padding of more than half a segment costs more than a batch of its own for what
            // follows.
            if padding * 2 > batch.segment_bytes {
                batch.is_closed = true;
            } else if padding > 0 {
                self.ranges.push(IoRange::Zeros(padding));
                batch.bytes += padding;
                batch.ranges += 1;
            }
            return true;
        }
        self.batches.push(GsoBatch {
            first_range: self.ranges.len(),
            ranges: 1,
            segment_bytes: bytes,
            bytes,
            frames: 1,
            is_closed: false,
        });
        self.ranges.push(IoRange::Bytes { at, bytes });
        true
    }

    /// Whether no batch is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.batches.len()
    }

    /// The queued batches.
    pub(crate) fn queued(&self) -> &[GsoBatch] {
        &self.batches[self.sent..]
    }

    /// The ranges of `batch`.
    pub(crate) fn ranges(&self, batch: &GsoBatch) -> &[IoRange] {
        &self.ranges[batch.first_range..batch.first_range + batch.ranges]
    }

    /// Removes the first `count` batches, which have been sent.
    pub(crate) fn on_sent(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            self.clear();
        }
    }

    /// Makes every further frame a batch of its own.
    pub(crate) fn disable_gso(&mut self) {
        self.frames_max = 1;
        if let Some(batch) = self.batches.last_mut() {
            batch.is_closed = true;
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.ranges.clear();
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(frames: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut batches = GsoQueue::new(FRAMES_MAX, 1024);
        let mut at = 0;
        for bytes in frames {
            assert!(batches.push(at, *bytes));
            at += bytes;
        }
        let shape = |batch: &GsoBatch| (batch.segment_bytes, batch.frames, batch.bytes);
        batches.queued().iter().map(shape).collect()
    }

    #[test]
    fn contiguous_equal_frames_form_one_range() {
        let mut batches = GsoQueue::new(FRAMES_MAX, 16);
        for frame in 0..5 {
            assert!(batches.push(frame * 100, 100));
        }
        let batch = batches.queued()[0];
        assert_eq!(batches.ranges(&batch), [IoRange::Bytes { at: 0, bytes: 500 }]);
        assert_eq!((batch.frames, batches.queued().len()), (5, 1));
    }

    #[test]
    fn short_frames_are_padded_or_end_the_batch() {
        assert_eq!(shape(&[100, 60, 100]), [(100, 3, 300)]);
        assert_eq!(shape(&[100, 40, 100]), [(100, 2, 140), (100, 1, 100)]);
        assert_eq!(shape(&[100, 101]), [(100, 1, 100), (101, 1, 101)]);
        assert_eq!(shape(&[1472; 46]), [(1472, 44, 44 * 1472), (1472, 2, 2 * 1472)]);
        assert_eq!(shape(&[52; 70]), [(52, 64, 64 * 52), (52, 6, 6 * 52)]);
        assert_eq!(shape(&[65_000, 10]), [(65_000, 1, 65_000), (10, 1, 10)]);
    }

    proptest! {
        /// Segmenting the batches gives every frame in order, each at the front of a segment.
        #[test]
        fn segmenting_batches_gives_every_frame_back(
            frames in prop::collection::vec((1usize..3000, prop::bool::ANY), 1..200),
            frames_max in 1usize..65,
        ) {
            let mut batches = GsoQueue::new(frames_max, 1024);
            let mut memory = Vec::new();
            let mut expected = Vec::new();
            for (number, (bytes, gap)) in frames.into_iter().enumerate() {
                memory.resize(memory.len() + usize::from(gap), 0xee);
                prop_assert!(batches.push(memory.len(), bytes));
                let frame = vec![number as u8 + 1; bytes];
                memory.extend(&frame);
                expected.push(frame);
            }
            let mut segments = Vec::new();
            for batch in batches.queued() {
                let mut bytes = Vec::new();
                for range in batches.ranges(batch) {
                    match *range {
                        IoRange::Bytes { at, bytes: count } => bytes.extend(&memory[at..at + count]),
                        IoRange::Zeros(count) => bytes.resize(bytes.len() + count, 0),
                    }
                }
                prop_assert_eq!(bytes.len(), batch.bytes);
                prop_assert!(batch.bytes <= 65_000 && batch.frames <= frames_max);
                let cut: Vec<_> = bytes.chunks(batch.segment_bytes).map(<[u8]>::to_vec).collect();
                prop_assert_eq!(cut.len(), batch.frames);
                segments.extend(cut);
            }
            prop_assert_eq!(segments.len(), expected.len());
            for (segment, frame) in segments.iter().zip(&expected) {
                prop_assert_eq!(&segment[..frame.len()], &frame[..]);
                prop_assert!(segment[frame.len()..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
