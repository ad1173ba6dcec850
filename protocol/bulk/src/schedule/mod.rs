//! Who sends which block to whom in each step: a pure function of (members, rank, blocks, step).
//!
//! Nobody negotiates a route. Each member works out its own steps, and so does the one at the other
//! end; no step takes more than O(log members) work. Step numbers order a member's transfers; they
//! are not times.

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

/// One block on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The rank of who receives it, or, of an incoming one, of who sends it.
    pub peer: u32,
    /// Which block.
    pub block: u32,
}

/// How a member gets its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct First {
    /// In which step.
    pub step: u64,
    /// From which rank.
    pub from: u32,
    /// Which one it is.
    pub block: u32,
}

/// A schedule in which all members are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plain {
    /// The root sends everything to each member in turn: B(n-1) steps. The yardstick.
    Sequential,
    /// Each member relays to the next: B+n-2 steps. For objects of many blocks.
    Chain,
    /// Whoever has the whole object hands it on: B log2(n) steps.
    Tree,
    /// The binomial pipeline: B+log2(n)-1 steps, one more if n is no power of two.
    Pipeline,
}

/// How blocks travel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// All members are alike.
    Plain(Plain),
    /// Rack by rack: a schedule among one leader for each rack, and one from each leader through
    /// its rack. Only (racks-1)B blocks cross from one rack to another.
    Racks {
        /// Among leaders: a chain or a pipeline.
        across: Plain,
        /// Inside each rack.
        inside: Plain,
        /// Members of each rack, in the order of ranks. The first one of each is its leader.
        sizes: Vec<u32>,
    },
}

/// No schedule can be made of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Not between 1 and [`MEMBERS_MAX`] members.
    #[error("a group cannot have {0} members")]
    Members(u32),
    /// The racks do not hold as many members as the group has, or one of them is empty.
    #[error("the racks do not hold the members")]
    Racks,
    /// Among leaders only a chain or a pipeline relays block by block.
    #[error("racks can be linked by a chain or a pipeline only")]
    Across,
}

/// Members of a group at most.
pub const MEMBERS_MAX: u32 = 1 << 12;
/// Blocks of an object at most: step numbers and positions stay below 2^32.
pub const BLOCKS_MAX: u32 = 1 << 30;

/// The schedule of a group.
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
    /// The schedule of `members` by `algorithm`.
    ///
    /// # Errors
    /// When there is none.
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

    /// How many take part.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// How many steps an object of `blocks` blocks takes, 1 to [`BLOCKS_MAX`].
    pub fn steps(&self, blocks: u32) -> u64 {
        match &self.form {
            Form::FlatSchedule(level) => level.steps(blocks),
            Form::Racks(racks) => racks.steps(blocks),
        }
    }

    /// Whether `rank` may have anything to send at all.
    pub fn relays(&self, rank: u32) -> bool {
        !matches!(self.form, Form::FlatSchedule(FlatSchedule::Sequential(_))) || rank == 0
    }

    /// What `rank` sends in `step`, one of the first [`Schedule::steps`].
    pub fn outgoing(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        match &self.form {
            Form::FlatSchedule(level) => level.outgoing(rank, blocks, step),
            Form::Racks(racks) => racks.outgoing(rank, blocks, step),
        }
    }

    /// What `rank` receives in `step`, one of the first [`Schedule::steps`].
    pub fn incoming(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        match &self.form {
            Form::FlatSchedule(level) => level.incoming(rank, blocks, step),
            Form::Racks(racks) => racks.incoming(rank, blocks, step),
        }
    }

    /// Who sends `rank` its first block, and which one; `None` for the root.
    ///
    /// Step and sender are the same for all objects of two blocks or more, so they are known before
    /// anything is known of the object; not so, among racks, for those who are no leaders.
    pub fn first_block(&self, rank: u32, blocks: u32) -> Option<First> {
        match &self.form {
            Form::FlatSchedule(level) => level.first_block(rank, blocks),
            Form::Racks(racks) => racks.first_block(rank, blocks),
        }
    }
}
