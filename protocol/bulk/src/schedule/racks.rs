//! Two levels: among one leader for each rack, then from each leader through its rack.
//!
//! A round has two steps, because a leader that relays has two sends for each block: across racks
//! in the even step, inside its rack in the odd one. No block crosses to a rack twice (design:
//! docs/design/bulk.md, "Why has a round of the hybrid two steps?").
//!
//! A leader gets its blocks in whatever order the schedule among leaders has. What it deals inside
//! its rack is therefore not the object but the *stream* of what arrives: position x is the block
//! of x rounds after its first one, if there is any. So it relays each block in the round in which
//! it arrives, and nobody need look back.

use alloc::vec::Vec;

use super::{First, FlatSchedule, Transfer};

/// Members in racks; the first of each is its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Racks {
    across: FlatSchedule,
    /// By rank: which rack.
    rack_of: Vec<u32>,
    /// By rack.
    inside: Vec<Inside>,
}

/// One rack's part of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inside {
    level: FlatSchedule,
    /// The leader's rank.
    leader: u32,
    members: u32,
    /// In which step among leaders its own leader gets its first block: of an object of one block,
    /// and of any other.
    first: [u64; 2],
}

impl Racks {
    /// Racks of `sizes` members, one behind the other in the order of ranks; none is empty.
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
        // Not the first position need hold a block, but within the dimensions one does.
        let from = 2 * inside.first(blocks) + 1;
        (from..self.steps(blocks)).step_by(2).find_map(|step| {
            let found = self.incoming(rank, blocks, step)?;
            Some(First { step, from: found.peer, block: found.block })
        })
    }

    /// How long the stream is that the rack's leader deals.
    fn positions(&self, rack: u32, blocks: u32) -> u32 {
        match rack {
            0 => blocks,
            _ if blocks == 1 => 1,
            _ => (self.across.steps(blocks) - self.inside[rack as usize].first(blocks)) as u32,
        }
    }

    /// The block at a position of a rack's stream.
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
