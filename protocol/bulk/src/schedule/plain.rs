//! Sequential, chain and binomial tree schedules (RDMC).

use super::Transfer;

/// The root sends all blocks to one member after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sequential {
    pub members: u32,
}

impl Sequential {
    pub const fn steps(self, blocks: u32) -> u64 {
        blocks as u64 * (self.members as u64 - 1)
    }

    pub fn outgoing(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let (peer, block) = (step / u64::from(blocks) + 1, step % u64::from(blocks));
        (rank == 0).then_some(Transfer { peer: peer as u32, block: block as u32 })
    }

    pub fn incoming(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let sent = self.outgoing(0, blocks, step)?;
        (sent.peer == rank).then_some(Transfer { peer: 0, block: sent.block })
    }
}

/// Each member relays to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chain {
    pub members: u32,
}

impl Chain {
    pub const fn steps(self, blocks: u32) -> u64 {
        blocks as u64 + self.members as u64 - 2
    }

    pub fn outgoing(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let block = step.checked_sub(rank.into()).filter(|block| *block < blocks.into())?;
        (rank + 1 < self.members).then_some(Transfer { peer: rank + 1, block: block as u32 })
    }

    pub fn incoming(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let peer = rank.checked_sub(1)?;
        let sent = self.outgoing(peer, blocks, step)?;
        Some(Transfer { peer, block: sent.block })
    }
}

/// Each member with the whole object sends it on, so their number doubles in each stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tree {
    pub members: u32,
}

impl Tree {
    pub const fn steps(self, blocks: u32) -> u64 {
        blocks as u64 * self.members.next_power_of_two().ilog2() as u64
    }

    pub fn outgoing(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let (have, block) = Self::stage(blocks, step);
        let peer = rank.checked_add(have).filter(|peer| rank < have && *peer < self.members)?;
        Some(Transfer { peer, block })
    }

    pub fn incoming(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let (have, block) = Self::stage(blocks, step);
        let peer = rank.checked_sub(have).filter(|peer| *peer < have)?;
        Some(Transfer { peer, block })
    }

    /// Returns how many members have the object in this step, and which block they send.
    const fn stage(blocks: u32, step: u64) -> (u32, u32) {
        (1 << (step / blocks as u64), (step % blocks as u64) as u32)
    }
}
