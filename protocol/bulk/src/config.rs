//! Configuration of a group: the settings that members must agree on, and those of each member.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_wire::{BULK_HEADER_LEN, BULK_PIECE_HEADER_LEN, SHORT_HEADER_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::schedule::{Algorithm, Plain, ScheduleError};

/// Length in bytes of the headers in front of a piece.
pub const PIECE_FRONT_LEN: usize = SHORT_HEADER_LEN + BULK_HEADER_LEN + BULK_PIECE_HEADER_LEN;
/// Maximum number of active objects of a group.
pub const OBJECTS_MAX: u32 = 8;
/// Maximum length of a piece where frames carry no data: any block but a huge one is one piece.
const SHARED_PIECE_LEN: u32 = 1 << 30;
/// Maximum number of blocks of an object in shared memory. Each block costs a frame to every
/// member, and all blocks are queued at once, so large objects get larger blocks.
pub(crate) const SHARED_BLOCKS_MAX: usize = 512;
/// Granularity in bytes of the block length in shared memory, so that blocks are whole pages.
const SHARED_BLOCK_UNIT: u64 = 1 << 16;
const _: () = assert!(SHARED_BLOCK_UNIT.is_power_of_two(), "blocks are whole pages");
/// Minimum length of a frame: holds every control frame.
pub(crate) const FRAME_LEN_MIN: usize = 512;
const _: () = assert!(PIECE_FRONT_LEN < FRAME_LEN_MIN, "the shortest frame holds a piece");

/// Identifies a group. The creator chooses a number that no other group of these processes has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// Properties of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// Keeps frames in order and provides flow control: TCP, shared memory. A frame is lost only if
    /// it was corrupt.
    Reliable,
    /// May lose, duplicate and reorder frames: UDP. The group does congestion control and
    /// retransmits.
    Lossy,
}

/// Member of a group, and the link to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Process id.
    pub process: ProcessId,
    /// Own port that leads to the member; ignored in the own entry.
    pub port: Port,
    /// Properties of the link.
    pub link: Link,
}

/// When an object is delivered to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// As soon as this object and every earlier one is complete at this member.
    AtOnce,
    /// When every member is known to have it; after a failure, every survivor, provided that the
    /// survivors are more than half of the group. So no member delivers an object that another
    /// correct member cannot deliver.
    AllOrNone,
}

/// Settings of a member. All members must agree on those marked with *.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// * The group.
    pub group: GroupId,
    /// * Members, without duplicates; the first one is the root.
    pub members: Vec<Member>,
    /// Own rank: the index of this member in the list.
    pub own: u32,
    /// Own incarnation.
    pub incarnation: Incarnation,
    /// * Schedule of the blocks. Default: the binomial pipeline.
    pub algorithm: Algorithm,
    /// * Whether objects are in memory shared by all members, so that frames carry no data. A
    ///   receiver copies a block from there, or uses it in place. Requires reliable links. Default
    ///   no.
    pub is_shared: bool,
    /// * Length of a piece in bytes: the data of one frame. Default 1,200, which fits an Ethernet
    ///   frame; up to 65,000 where the network permits.
    pub piece_len: u32,
    /// Maximum length of a frame in bytes: a piece with its headers must fit. Default 1,400.
    pub frame_len_max: usize,
    /// Length of the blocks of objects sent by this member, in bytes. Default 1 MiB, as in the
    /// paper.
    pub block_len: u32,
    /// Whether blocks sent by this member carry digests that receivers verify. Default yes.
    pub has_digests: bool,
    /// Number of blocks per sender that may be sent ahead of the receiver's progress (tokens).
    /// Default 2; 4 is faster if the number of members is not a power of two.
    pub lookahead_blocks: u32,
    /// * Maximum number of active objects, 1 to 8. Default 4.
    pub objects_max: u32,
    /// * When objects are delivered. Default: at once.
    pub delivery: Delivery,
    /// Maximum length of a received object in bytes. Default 2^40.
    pub object_len_max: u64,
    /// Failure timeout: a member that has left frames unanswered for this long, in ns, has failed.
    /// Default 2 s.
    pub dead_after_ns: u64,
    /// Interval of keepalives to the leader, in ns. Default 250 ms.
    pub keepalive_ns: u64,
    /// Minimum probe timeout for unacknowledged frames, in ns. Default 5 ms.
    pub probe_min_ns: u64,
    /// Maximum delay of an acknowledgement, in ns. Default 250 us.
    pub ack_delay_ns: u64,
}

impl Config {
    /// Returns the default settings.
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
        let value = |is_valid, name, value| match is_valid {
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
        let fits = self.frame_data_max() + PIECE_FRONT_LEN <= frame;
        value(fits && self.piece_len > 0, "piece_len", self.piece_len.into())?;
        let frames = FRAME_LEN_MIN..=SHORT_HEADER_LEN + usize::from(u16::MAX);
        value(frames.contains(&frame), "frame_len_max", frame as u64)?;
        value(self.block_len > 0, "block_len", self.block_len.into())?;
        let ahead = (1..=1 << 16).contains(&self.lookahead_blocks);
        value(ahead, "lookahead_blocks", self.lookahead_blocks.into())?;
        let objects = (1..=OBJECTS_MAX).contains(&self.objects_max);
        value(objects, "objects_max", self.objects_max.into())?;
        value(self.probe_min_ns > 0, "probe_min_ns", self.probe_min_ns)?;
        value(self.keepalive_ns > 0, "keepalive_ns", self.keepalive_ns)?;
        let outlasts_keepalive = self.dead_after_ns > self.keepalive_ns;
        value(outlasts_keepalive, "dead_after_ns", self.dead_after_ns)
    }

    /// Returns the maximum length of a piece in bytes.
    pub(crate) fn piece_len(&self) -> u32 {
        if self.is_shared { SHARED_PIECE_LEN } else { self.piece_len }
    }

    /// Returns the maximum number of bytes of an object in a frame; 0 in shared memory.
    pub(crate) fn frame_data_max(&self) -> usize {
        if self.is_shared { 0 } else { self.piece_len as usize }
    }

    //= spec/bulk.md#R15
    /// Returns the block length for an object of `bytes` bytes.
    pub(crate) fn block_len_of(&self, bytes: u64) -> u32 {
        if !self.is_shared {
            return self.block_len;
        }
        let least = bytes.div_ceil(SHARED_BLOCKS_MAX as u64).next_multiple_of(SHARED_BLOCK_UNIT);
        self.block_len.max(u32::try_from(least).unwrap_or(u32::MAX))
    }

    //= spec/bulk.md#R8
    /// Returns a digest of all settings that members must agree on.
    pub(crate) fn config_digest(&self) -> u32 {
        let mut config_digest = u64::from(self.piece_len());
        let mut mix =
            |word: u64| config_digest = xxh3_64_with_seed(&word.to_be_bytes(), config_digest);
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
        config_digest as u32
    }
}

/// Reason why a group cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting is out of range.
    #[error("{name} cannot be {value}")]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// The group has begun, so its frames and pieces have a length.
    #[error("frame_len_max cannot change: the group has sent or received already")]
    Begun,
    /// A process is listed twice among the members.
    #[error("process {} is a member twice", .0.0)]
    DuplicateMember(ProcessId),
    /// The algorithm has no schedule for the members.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}
