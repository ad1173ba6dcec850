//! Schedules: which member sends which block to which other one in each step.
//!
//! A schedule is a pure function of (members, rank, blocks, step), so no route is negotiated: both
//! ends of a transfer compute it with O(log members) work. Steps order the transfers of a member;
//! they are not times.

mod flat;
mod hypercube;
mod pipeline;
mod plain;
mod racks;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use flat::FlatSchedule;
use racks::Racks;

/// Transfer of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Rank of the receiver, or of the sender if the transfer is incoming.
    pub peer: u32,
    /// Block number.
    pub block: u32,
}

/// How a member receives its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct First {
    /// Step of the transfer.
    pub step: u64,
    /// Rank of the sender.
    pub from: u32,
    /// Block number.
    pub block: u32,
}

/// Schedule in which all members are equal. B is the number of blocks, n that of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plain {
    /// The root sends the object to each member in turn: B(n-1) steps. A baseline.
    Sequential,
    /// Each member relays to the next one: B+n-2 steps. Suits objects with many blocks.
    Chain,
    /// Binomial tree: each member with the whole object sends it to another one: B log2(n) steps.
    Tree,
    /// Binomial pipeline: B+log2(n)-1 steps, one more if n is not a power of two.
    Pipeline,
}

/// Algorithm of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// All members are equal.
    Plain(Plain),
    /// Two levels: one schedule among the leaders of the racks, and one from each leader through
    /// its rack. Only (racks-1)B blocks cross racks.
    Racks {
        /// Schedule among the leaders: chain or pipeline.
        across: Plain,
        /// Schedule inside each rack.
        inside: Plain,
        /// Number of members of each rack, in the order of ranks. The first member of a rack is its
        /// leader.
        sizes: Vec<u32>,
    },
}

/// Reason why there is no schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The number of members is not between 1 and [`MEMBERS_MAX`].
    #[error("a group cannot have {0} members: the range is 1 to {MEMBERS_MAX}")]
    Members(u32),
    /// The racks do not add up to the number of members, or a rack is empty.
    #[error("the sizes of the racks must be positive and add up to the number of members")]
    Racks,
    /// The schedule among leaders must relay block by block.
    #[error("the schedule across racks must be a chain or a pipeline")]
    Across,
}

/// Maximum number of members of a group.
pub const MEMBERS_MAX: u32 = 1 << 12;
/// Maximum number of blocks of an object: step numbers and positions stay below 2^32.
pub const BLOCKS_MAX: u32 = 1 << 30;
const _: () = assert!(MEMBERS_MAX <= 1 << 16, "a rank fits its field of 16 bits");
const _: () = assert!((BLOCKS_MAX as u64 + MEMBERS_MAX as u64) < 1 << 32, "positions fit 32 bits");

//= spec/bulk.md#R1
/// Schedule of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    members: u32,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    FlatSchedule(FlatSchedule),
    Racks(Racks),
}

impl Schedule {
    /// Creates the schedule of `members` members by `algorithm`.
    ///
    /// # Errors
    /// [`ScheduleError`] if the algorithm does not suit the members.
    pub fn new(algorithm: &Algorithm, members: u32) -> Result<Self, ScheduleError> {
        if members == 0 || members > MEMBERS_MAX {
            return Err(ScheduleError::Members(members));
        }
        let form = match algorithm {
            Algorithm::Plain(plain) => Form::FlatSchedule(FlatSchedule::new(*plain, members)),
            Algorithm::Racks { across, inside, sizes } => {
                let mut held = 0u64;
                for size in sizes {
                    held += u64::from(*size);
                }
                if held != members.into() || sizes.contains(&0) {
                    return Err(ScheduleError::Racks);
                }
                if !matches!(across, Plain::Chain | Plain::Pipeline) {
                    return Err(ScheduleError::Across);
                }
                let level = |plain: Plain| move |members| FlatSchedule::new(plain, members);
                Form::Racks(Racks::new(level(*across), level(*inside), sizes))
            }
        };
        Ok(Self { members, form })
    }

    /// Returns the number of members.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Returns the number of steps for an object of `blocks` blocks, 1 to [`BLOCKS_MAX`].
    pub fn steps(&self, blocks: u32) -> u64 {
        match &self.form {
            Form::FlatSchedule(level) => level.steps(blocks),
            Form::Racks(racks) => racks.steps(blocks),
        }
    }

    /// Returns whether `rank` sends blocks at all.
    pub fn relays(&self, rank: u32) -> bool {
        !matches!(self.form, Form::FlatSchedule(FlatSchedule::Sequential(_))) || rank == 0
    }

    //= spec/bulk.md#R1
    //= spec/bulk.md#R2
    /// Returns what `rank` sends in `step`, which must be less than [`Schedule::steps`].
    pub fn outgoing(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        debug_assert!(rank < self.members, "the group has the member");
        let found = match &self.form {
            Form::FlatSchedule(level) => level.outgoing(rank, blocks, step),
            Form::Racks(racks) => racks.outgoing(rank, blocks, step),
        };
        debug_assert!(found.is_none_or(|to| self.has(rank, to, blocks)), "a block for another");
        found
    }

    /// Returns whether a transfer is of one of `blocks` blocks, between `rank` and another member.
    fn has(&self, rank: u32, transfer: Transfer, blocks: u32) -> bool {
        transfer.block < blocks && transfer.peer < self.members && transfer.peer != rank
    }

    //= spec/bulk.md#R1
    /// Returns what `rank` receives in `step`, which must be less than [`Schedule::steps`].
    pub fn incoming(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        debug_assert!(rank < self.members, "the group has the member");
        let found = match &self.form {
            Form::FlatSchedule(level) => level.incoming(rank, blocks, step),
            Form::Racks(racks) => racks.incoming(rank, blocks, step),
        };
        debug_assert!(found.is_none_or(|from| self.has(rank, from, blocks)), "from another");
        found
    }

    //= spec/bulk.md#R6
    /// Returns how `rank` receives its first block; `None` for the root.
    ///
    /// Step and sender are the same for all objects of two or more blocks, so they are known before
    /// the object is. Members of racks that are not leaders are an exception.
    pub fn first_block(&self, rank: u32, blocks: u32) -> Option<First> {
        match &self.form {
            Form::FlatSchedule(level) => level.first_block(rank, blocks),
            Form::Racks(racks) => racks.first_block(rank, blocks),
        }
    }
}
