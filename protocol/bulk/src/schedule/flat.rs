//! Schedule without racks: dispatches to one of the algorithms.

use super::pipeline::BinomialPipeline;
use super::plain::{Chain, Sequential, Tree};
use super::{First, Plain, Transfer};

/// Schedule in which all members are equal. A group of one member has no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FlatSchedule {
    Alone,
    Sequential(Sequential),
    Chain(Chain),
    Tree(Tree),
    Pipeline(BinomialPipeline, Tree),
}

impl FlatSchedule {
    pub const fn new(plain: Plain, members: u32) -> Self {
        match plain {
            _ if members < 2 => Self::Alone,
            Plain::Sequential => Self::Sequential(Sequential { members }),
            Plain::Chain => Self::Chain(Chain { members }),
            Plain::Tree => Self::Tree(Tree { members }),
            Plain::Pipeline => Self::Pipeline(BinomialPipeline::new(members), Tree { members }),
        }
    }

    //= spec/bulk.md#R3
    /// Returns the number of steps; `blocks` is at least 1.
    pub const fn steps(self, blocks: u32) -> u64 {
        match self {
            Self::Alone => 0,
            Self::Sequential(sequential) => sequential.steps(blocks),
            Self::Chain(chain) => chain.steps(blocks),
            Self::Tree(tree) => tree.steps(blocks),
            // A single block cannot be pipelined; the tree takes as many steps.
            Self::Pipeline(pipeline, _) => pipeline.steps(blocks),
        }
    }

    /// Returns what `rank` sends in `step`, which must be less than [`Self::steps`].
    pub fn outgoing(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        match self {
            Self::Alone => None,
            Self::Sequential(sequential) => sequential.outgoing(rank, blocks, step),
            Self::Chain(chain) => chain.outgoing(rank, blocks, step),
            Self::Tree(tree) => tree.outgoing(rank, blocks, step),
            Self::Pipeline(_, tree) if blocks == 1 => tree.outgoing(rank, blocks, step),
            Self::Pipeline(pipeline, _) => pipeline.outgoing(rank, blocks, step),
        }
    }

    /// Returns what `rank` receives in `step`, which must be less than [`Self::steps`].
    pub fn incoming(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        match self {
            Self::Alone => None,
            Self::Sequential(sequential) => sequential.incoming(rank, blocks, step),
            Self::Chain(chain) => chain.incoming(rank, blocks, step),
            Self::Tree(tree) => tree.incoming(rank, blocks, step),
            Self::Pipeline(_, tree) if blocks == 1 => tree.incoming(rank, blocks, step),
            Self::Pipeline(pipeline, _) => pipeline.incoming(rank, blocks, step),
        }
    }

    /// Returns when and from which rank the first block arrives at `rank`; `None` for the root.
    pub fn first_block(self, rank: u32, blocks: u32) -> Option<First> {
        let found = |step| {
            let from = self.incoming(rank, blocks, step)?;
            Some(First { step, from: from.peer, block: from.block })
        };
        let (stage, blocks) = (rank.checked_ilog2()?, u64::from(blocks));
        match self {
            Self::Alone => None,
            Self::Sequential(_) => found(blocks * u64::from(rank - 1)),
            Self::Chain(_) => found(u64::from(rank - 1)),
            Self::Tree(_) => found(blocks * u64::from(stage)),
            // Within twice the number of dimensions every vertex has received a block.
            Self::Pipeline(..) => (0..self.steps(blocks as u32)).find_map(found),
        }
    }
}
