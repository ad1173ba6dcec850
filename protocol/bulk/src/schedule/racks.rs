//! Two-level schedule: among the leaders of the racks, and from each leader through its rack.
//!
//! A round has two steps, because a relaying leader sends each block twice: across racks in even
//! steps, inside its rack in odd ones. No block crosses to a rack twice
//! (`docs/design/bulk.md`, "Why has a round of the hybrid two steps?").
//!
//! A leader receives blocks in the order of the schedule among leaders. Inside its rack it
//! therefore sends the *stream* of arriving blocks instead of the object: position x is the block
//! that arrived x rounds after the first one, if any. So each block is relayed in the round in
//! which it arrives, without a search for it.

use alloc::vec::Vec;

use super::{First, FlatSchedule, Transfer};

//= spec/bulk.md#R5
/// Members in racks; the first member of each rack is its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Racks {
    across: FlatSchedule,
    /// Rack by rank.
    rack_of: Vec<u32>,
    /// Schedule inside each rack.
    inside: Vec<Inside>,
}

/// Schedule of one rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inside {
    level: FlatSchedule,
    /// Rank of the leader.
    leader: u32,
    members: u32,
    /// Step among leaders in which the leader receives its first block: of an object of one block,
    /// and of a longer one.
    first: [u64; 2],
}

impl Racks {
    /// Creates racks of `sizes` members, in the order of ranks; none is empty.
    pub fn new(
        across: impl Fn(u32) -> FlatSchedule,
        inside: impl Fn(u32) -> FlatSchedule,
        sizes: &[u32],
    ) -> Self {
        let across = across(sizes.len() as u32);
        let mut racks =
            Self { across, rack_of: Vec::new(), inside: Vec::with_capacity(sizes.len()) };
        for (rack, members) in (0u32..).zip(sizes.iter().copied()) {
            let first =
                [1, 2].map(|blocks| across.first_block(rack, blocks).map_or(0, |at| at.step));
            let leader = racks.members();
            racks.inside.push(Inside { level: inside(members), leader, members, first });
            racks.rack_of.extend((0..members).map(|_| rack));
        }
        racks
    }

    pub fn members(&self) -> u32 {
        self.rack_of.len() as u32
    }

    pub fn steps(&self, blocks: u32) -> u64 {
        let across = self.across.steps(blocks);
        let rounds = (0u32..).zip(&self.inside).map(|(rack, inside)| match inside.members {
            1 => across,
            _ => inside.first(blocks) + inside.level.steps(self.positions(rack, blocks)),
        });
        2 * rounds.max().unwrap_or(0)
    }

    pub fn outgoing(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        self.transfer(rank, blocks, step, FlatSchedule::outgoing)
    }

    pub fn incoming(&self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        self.transfer(rank, blocks, step, FlatSchedule::incoming)
    }

    fn transfer(
        &self,
        rank: u32,
        blocks: u32,
        step: u64,
        of: fn(FlatSchedule, u32, u32, u64) -> Option<Transfer>,
    ) -> Option<Transfer> {
        let (rack, round) = (self.rack_of[rank as usize], step / 2);
        let inside = &self.inside[rack as usize];
        if step.is_multiple_of(2) {
            let is_on = rank == inside.leader && round < self.across.steps(blocks);
            let found = is_on.then(|| of(self.across, rack, blocks, round)).flatten()?;
            let peer = self.inside[found.peer as usize].leader;
            return Some(Transfer { peer, block: found.block });
        }
        let positions = self.positions(rack, blocks);
        debug_assert!(rank >= inside.leader, "the leader is the first member of its rack");
        let since = round.checked_sub(inside.first(blocks))?;
        if since >= inside.level.steps(positions) {
            return None;
        }
        let found = of(inside.level, rank - inside.leader, positions, since)?;
        let block = self.block_at(rack, found.block, blocks)?;
        Some(Transfer { peer: inside.leader + found.peer, block })
    }

    pub fn first_block(&self, rank: u32, blocks: u32) -> Option<First> {
        let rack = self.rack_of[rank as usize];
        let inside = &self.inside[rack as usize];
        if rank == inside.leader {
            let first = self.across.first_block(rack, blocks)?;
            let from = self.inside[first.from as usize].leader;
            return Some(First { step: 2 * first.step, from, block: first.block });
        }
        // The first positions may be empty, but not as many as there are dimensions.
        let from = 2 * inside.first(blocks) + 1;
        (from..self.steps(blocks)).step_by(2).find_map(|step| {
            let found = self.incoming(rank, blocks, step)?;
            Some(First { step, from: found.peer, block: found.block })
        })
    }

    /// Returns the length of the leader's stream.
    fn positions(&self, rack: u32, blocks: u32) -> u32 {
        match rack {
            0 => blocks,
            _ if blocks == 1 => 1,
            _ => (self.across.steps(blocks) - self.inside[rack as usize].first(blocks)) as u32,
        }
    }

    /// Returns the block at a position of a rack's stream, or `None` if the position is empty.
    fn block_at(&self, rack: u32, position: u32, blocks: u32) -> Option<u32> {
        if rack == 0 {
            return Some(position);
        }
        let round = self.inside[rack as usize].first(blocks) + u64::from(position);
        self.across.incoming(rack, blocks, round).map(|found| found.block)
    }
}

impl Inside {
    const fn first(&self, blocks: u32) -> u64 {
        self.first[(blocks > 1) as usize]
    }
}
