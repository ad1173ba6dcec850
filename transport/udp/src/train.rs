//! Trains: frames for one destination that the kernel takes as one.
//!
//! All cars of a train have the same length, but for the last, which may be shorter. A frame that
//! is a little shorter than the cars is padded (its header says where it ends); one that is much
//! shorter ends the train.

/// The most frames in a train (Linux: `UDP_MAX_SEGMENTS`, 64 before 6.8).
pub(crate) const FRAMES_MAX: usize = 64;
/// The most bytes in a train: what fits a datagram, IPv6 header and all.
const LEN_MAX: usize = 65_000;

/// A stretch of memory that goes into a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// From this offset of the exchange's memory.
    Bytes { at: usize, bytes: usize },
    /// Padding.
    Zeros(usize),
}

impl Piece {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes { bytes, .. } | Self::Zeros(bytes) => bytes,
        }
    }
}

/// One train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    /// Which of the pieces it consists of.
    pub(crate) first_piece: usize,
    pub(crate) pieces: usize,
    /// The length of every car but perhaps the last.
    pub(crate) car_bytes: usize,
    pub(crate) bytes: usize,
    pub(crate) frames: usize,
    pub(crate) is_closed: bool,
}

/// The trains that wait to leave for one destination, in order.
#[derive(Debug)]
pub(crate) struct Trains {
    trains: Vec<Train>,
    pieces: Vec<Piece>,
    /// Trains before this one have left.
    left: usize,
    frames_max: usize,
    pieces_max: usize,
}

impl Trains {
    /// No trains; later at most `pieces_max` pieces, and `frames_max` frames in each.
    pub(crate) fn new(frames_max: usize, pieces_max: usize) -> Self {
        let trains = Vec::with_capacity(pieces_max);
        let pieces = Vec::with_capacity(pieces_max);
        Self { trains, pieces, left: 0, frames_max, pieces_max }
    }

    /// Puts a frame behind all others. Answers false when there is no room.
    #[inline]
    pub(crate) fn push(&mut self, at: usize, bytes: usize) -> bool {
        // A frame and its padding.
        if self.pieces.len() + 2 > self.pieces_max {
            return false;
        }
        if let Some(train) = self.trains[self.left..].last_mut()
            && !train.is_closed
            && bytes <= train.car_bytes
            && train.frames < self.frames_max
            && train.bytes + train.car_bytes <= LEN_MAX
        {
            let padding = train.car_bytes - bytes;
            train.bytes += bytes;
            train.frames += 1;
            match self.pieces.last_mut() {
                Some(Piece::Bytes { at: last_at, bytes: last_len })
                    if *last_at + *last_len == at =>
                {
                    *last_len += bytes;
                }
                _ => {
                    self.pieces.push(Piece::Bytes { at, bytes });
                    train.pieces += 1;
                }
            }
            if padding * 2 > train.car_bytes {
                train.is_closed = true;
            } else if padding > 0 {
                self.pieces.push(Piece::Zeros(padding));
                train.bytes += padding;
                train.pieces += 1;
            }
            return true;
        }
        self.trains.push(Train {
            first_piece: self.pieces.len(),
            pieces: 1,
            car_bytes: bytes,
            bytes,
            frames: 1,
            is_closed: false,
        });
        self.pieces.push(Piece::Bytes { at, bytes });
        true
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == self.trains.len()
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> &[Train] {
        &self.trains[self.left..]
    }

    /// What `train` consists of.
    pub(crate) fn pieces(&self, train: &Train) -> &[Piece] {
        &self.pieces[train.first_piece..train.first_piece + train.pieces]
    }

    /// The first `count` of those that waited have left.
    pub(crate) fn on_left(&mut self, count: usize) {
        self.left += count;
        if self.is_empty() {
            self.clear();
        }
    }

    /// From now on every frame is a train of its own.
    pub(crate) fn end_trains(&mut self) {
        self.frames_max = 1;
        if let Some(train) = self.trains.last_mut() {
            train.is_closed = true;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.trains.clear();
        self.pieces.clear();
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(frames: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut trains = Trains::new(FRAMES_MAX, 1024);
        let mut at = 0;
        for bytes in frames {
            assert!(trains.push(at, *bytes));
            at += bytes;
        }
        let shape = |train: &Train| (train.car_bytes, train.frames, train.bytes);
        trains.waiting().iter().map(shape).collect()
    }

    #[test]
    fn equal_frames_that_lie_together_are_one_train_of_one_piece() {
        let mut trains = Trains::new(FRAMES_MAX, 16);
        for frame in 0..5 {
            assert!(trains.push(frame * 100, 100));
        }
        let train = trains.waiting()[0];
        assert_eq!(trains.pieces(&train), [Piece::Bytes { at: 0, bytes: 500 }]);
        assert_eq!((train.frames, trains.waiting().len()), (5, 1));
    }

    #[test]
    fn a_little_shorter_is_padded_much_shorter_ends_and_longer_begins() {
        assert_eq!(shape(&[100, 60, 100]), [(100, 3, 300)]);
        assert_eq!(shape(&[100, 40, 100]), [(100, 2, 140), (100, 1, 100)]);
        assert_eq!(shape(&[100, 101]), [(100, 1, 100), (101, 1, 101)]);
        assert_eq!(shape(&[1472; 46]), [(1472, 44, 44 * 1472), (1472, 2, 2 * 1472)]);
        assert_eq!(shape(&[52; 70]), [(52, 64, 64 * 52), (52, 6, 6 * 52)]);
        assert_eq!(shape(&[65_000, 10]), [(65_000, 1, 65_000), (10, 1, 10)]);
    }

    proptest! {
        /// What a kernel that cuts trains into cars hands over is every frame in order, each at the
        /// front of a car.
        #[test]
        fn cutting_trains_gives_every_frame_back(
            frames in prop::collection::vec((1usize..3000, prop::bool::ANY), 1..200),
            frames_max in 1usize..65,
        ) {
            let mut trains = Trains::new(frames_max, 1024);
            let mut memory = Vec::new();
            let mut expected = Vec::new();
            for (number, (bytes, apart)) in frames.into_iter().enumerate() {
                memory.resize(memory.len() + usize::from(apart), 0xee);
                prop_assert!(trains.push(memory.len(), bytes));
                let frame = vec![number as u8 + 1; bytes];
                memory.extend(&frame);
                expected.push(frame);
            }
            let mut cars = Vec::new();
            for train in trains.waiting() {
                let mut bytes = Vec::new();
                for piece in trains.pieces(train) {
                    match *piece {
                        Piece::Bytes { at, bytes: count } => bytes.extend(&memory[at..at + count]),
                        Piece::Zeros(count) => bytes.resize(bytes.len() + count, 0),
                    }
                }
                prop_assert_eq!(bytes.len(), train.bytes);
                prop_assert!(train.bytes <= 65_000 && train.frames <= frames_max);
                let cut: Vec<_> = bytes.chunks(train.car_bytes).map(<[u8]>::to_vec).collect();
                prop_assert_eq!(cut.len(), train.frames);
                cars.extend(cut);
            }
            prop_assert_eq!(cars.len(), expected.len());
            for (car, frame) in cars.iter().zip(&expected) {
                prop_assert_eq!(&car[..frame.len()], &frame[..]);
                prop_assert!(car[frame.len()..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
