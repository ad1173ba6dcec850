//! What is agreed before a group begins, and what each member chooses for itself.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_wire::{BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN, HEADER_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::schedule::{Algorithm, Plain, ScheduleError};

/// Bytes of a frame before those of a piece.
pub const PIECE_FRONT_LEN: usize = HEADER_LEN + BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN;
/// Objects of a group that may be under way at a time, at most.
pub const OBJECTS_MAX: u32 = 8;
/// Bytes of the longest piece where no frame carries it: any block but a huge one is one piece.
const SHARED_PIECE_LEN: u32 = 1 << 30;
/// Blocks of an object at most where all members share memory: each of them costs a frame to every
/// member, and all are dealt at once. So blocks of large objects are larger.
pub(crate) const SHARED_BLOCKS_MAX: usize = 512;
/// Such a block is a multiple of so many bytes: whole pages are quicker.
const SHARED_BLOCK_UNIT: u64 = 1 << 16;
/// A frame that says what a member must be able to say fits this many bytes.
const FRAME_LEN_MIN: usize = 512;

/// Names a group; whoever creates it chooses a number that no other group of these processes has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// What a link does with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// It keeps them in order and holds back what the other end cannot take: TCP, shared memory. A
    /// frame is missing only if it was corrupt.
    Reliable,
    /// It may lose, repeat and reorder them: UDP. The group paces itself and sends again.
    Lossy,
}

/// A member, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Who.
    pub process: ProcessId,
    /// Through which of our ports; our own entry's is of no meaning.
    pub port: Port,
    /// What the link does.
    pub link: Link,
}

/// When an object is handed to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// As soon as it is whole here, and every one before it.
    AtOnce,
    /// When every member is known to hold it; after a failure, every survivor, if these are more
    /// than half of the group. So nobody delivers what another correct member cannot.
    AllOrNone,
}

/// How a member is set up. Members must agree on what is marked with *.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// * The group.
    pub group: GroupId,
    /// * Its members; the first is the root. Nobody is in it twice.
    pub members: Vec<Member>,
    /// Our own rank: our place in the list.
    pub own: u32,
    /// Our own life.
    pub incarnation: Incarnation,
    /// * How blocks travel. Default: the binomial pipeline.
    pub algorithm: Algorithm,
    /// * Objects lie where every member can reach them, and frames carry none of their bytes. Who
    ///   is handed a block finds it there, and copies it or uses it where it is. Links are
    ///   reliable. Default no.
    pub is_shared: bool,
    /// * Bytes of a block that one frame carries. Default 1,200, for frames that fit an Ethernet
    ///   frame; up to 65,000 where frames may be as long.
    pub piece_len: u32,
    /// Bytes of the longest frame that a slot holds: a piece must fit. Default 1,400.
    pub frame_len_max: usize,
    /// Bytes of each block of what we send. Default 1 MiB (the paper's); design: bulk.md
    /// section 4 says how to choose it.
    pub block_len: u32,
    /// Whether each block of what we send gets a digest that every receiver checks. Default yes.
    pub has_digests: bool,
    /// Blocks for which a sender has tokens ahead. Default 2 (design: bulk.md section 3); 4 is
    /// quicker where the members are no power of two.
    pub lookahead_blocks: u32,
    /// * Objects that may be under way at a time, 1 to 8. Default 4.
    pub objects_max: u32,
    /// * When objects are delivered. Default: at once.
    pub delivery: Delivery,
    /// Bytes of an object that we take at most. Default 2^40.
    pub object_len_max: u64,
    /// A member is taken for failed when it has answered nothing for so long. Default 2 s.
    pub dead_after_ns: u64,
    /// A sign of life is sent to the leader when nothing else was for so long. Default 250 ms.
    pub keepalive_ns: u64,
    /// A frame without answer is asked after no earlier than this. Default 5 ms.
    pub probe_min_ns: u64,
    /// An acknowledgement may wait for company for so long. Default 250 us.
    pub ack_delay_ns: u64,
}

impl Config {
    /// The defaults.
    pub fn new(group: GroupId, members: Vec<Member>, own: u32, incarnation: Incarnation) -> Self {
        Self {
            group,
            members,
            own,
            incarnation,
            algorithm: Algorithm::Plain(Plain::Pipeline),
            is_shared: false,
            piece_len: 1_200,
            frame_len_max: 1_400,
            block_len: 1 << 20,
            has_digests: true,
            lookahead_blocks: 2,
            objects_max: 4,
            delivery: Delivery::AtOnce,
            object_len_max: 1 << 40,
            dead_after_ns: 2_000_000_000,
            keepalive_ns: 250_000_000,
            probe_min_ns: 5_000_000,
            ack_delay_ns: 250_000,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let value = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(ConfigError::Value { name, value }),
        };
        if self.own as usize >= self.members.len() {
            return Err(ConfigError::Value { name: "own", value: self.own.into() });
        }
        let mut processes: Vec<ProcessId> =
            self.members.iter().map(|member| member.process).collect();
        processes.sort_unstable();
        if let Some(pair) = processes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::DuplicateMember(pair[0]));
        }
        let frame = self.frame_len_max;
        let fits = self.staged_bytes() + PIECE_FRONT_LEN <= frame;
        value(fits && self.piece_len > 0, "piece_len", self.piece_len.into())?;
        let frames = FRAME_LEN_MIN..=HEADER_LEN + usize::from(u16::MAX);
        value(frames.contains(&frame), "frame_len_max", frame as u64)?;
        value(self.block_len > 0, "block_len", self.block_len.into())?;
        let ahead = (1..=1 << 16).contains(&self.lookahead_blocks);
        value(ahead, "lookahead_blocks", self.lookahead_blocks.into())?;
        let objects = (1..=OBJECTS_MAX).contains(&self.objects_max);
        value(objects, "objects_max", self.objects_max.into())?;
        value(self.probe_min_ns > 0, "probe_min_ns", self.probe_min_ns)?;
        value(self.keepalive_ns > 0, "keepalive_ns", self.keepalive_ns)?;
        let patient = self.dead_after_ns > self.keepalive_ns;
        value(patient, "dead_after_ns", self.dead_after_ns)
    }

    /// Bytes of the longest piece.
    pub(crate) fn piece_len(&self) -> u32 {
        if self.is_shared { SHARED_PIECE_LEN } else { self.piece_len }
    }

    /// Bytes of the longest piece that a frame carries.
    pub(crate) fn staged_bytes(&self) -> usize {
        if self.is_shared { 0 } else { self.piece_len as usize }
    }

    /// Bytes of each block of an object of so many.
    pub(crate) fn block_len_of(&self, bytes: u64) -> u32 {
        if !self.is_shared {
            return self.block_len;
        }
        let least = bytes.div_ceil(SHARED_BLOCKS_MAX as u64).next_multiple_of(SHARED_BLOCK_UNIT);
        self.block_len.max(u32::try_from(least).unwrap_or(u32::MAX))
    }

    /// A digest of what all members must agree on.
    pub(crate) fn plan(&self) -> u32 {
        let mut plan = u64::from(self.piece_len());
        let mut mix = |word: u64| plan = xxh3_64_with_seed(&word.to_be_bytes(), plan);
        for member in &self.members {
            mix(member.process.0.into());
        }
        mix(self.objects_max.into());
        mix(u64::from(self.delivery == Delivery::AllOrNone));
        match &self.algorithm {
            Algorithm::Plain(plain) => mix(*plain as u64),
            Algorithm::Racks { across, inside, sizes } => {
                mix(*across as u64 + 16);
                mix(*inside as u64 + 16);
                sizes.iter().for_each(|size| mix((*size).into()));
            }
        }
        plan as u32
    }
}

/// A group that cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting makes no sense.
    #[error("{name} cannot be {value}")]
    Value {
        /// Which one.
        name: &'static str,
        /// What it was.
        value: u64,
    },
    /// A process is a member twice.
    #[error("process {} is a member twice", .0.0)]
    DuplicateMember(ProcessId),
    /// There is no such schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}
