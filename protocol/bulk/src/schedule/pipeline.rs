//! The binomial pipeline among any number of members: some vertices of the hypercube are doubled
//! (design: bulk.md section 2, "Other n").
//!
//! To the outside a doubled vertex acts as one. In each step one twin takes what comes in and the
//! other one sends what goes out; meanwhile the first hands the second a block that it got earlier.

use super::Transfer;
use super::hypercube::Hypercube;

/// `members` over the vertices of the largest hypercube that they fill. At least two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BinomialPipeline {
    members: u32,
    cube: Hypercube,
    /// 2^d.
    vertices: u32,
}

impl BinomialPipeline {
    pub const fn new(members: u32) -> Self {
        let dimensions = members.ilog2();
        Self { members, cube: Hypercube::new(dimensions), vertices: 1 << dimensions }
    }

    /// One more step than the hypercube's where there are twins: they even out.
    pub const fn steps(self, blocks: u32) -> u64 {
        self.cube.steps(blocks) + (self.members > self.vertices) as u64
    }

    pub fn outgoing(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let vertex = self.vertex(rank);
        let Some(twin) = self.twin(rank) else { return self.outside(vertex, blocks, step) };
        let is_last = step >= self.cube.steps(blocks);
        let block = match (self.receiver(vertex, step) == rank, is_last) {
            (true, _) => self.inside(vertex, blocks, step)?,
            (false, true) => self.back(vertex, blocks, step)?,
            (false, false) => return self.outside(vertex, blocks, step),
        };
        Some(Transfer { peer: twin, block })
    }

    pub fn incoming(self, rank: u32, blocks: u32, step: u64) -> Option<Transfer> {
        let vertex = self.vertex(rank);
        if let Some(twin) = self.twin(rank)
            && (step >= self.cube.steps(blocks) || self.receiver(vertex, step) != rank)
        {
            let of_twin = self.outgoing(twin, blocks, step)?;
            return (of_twin.peer == rank).then_some(Transfer { peer: twin, block: of_twin.block });
        }
        if step >= self.cube.steps(blocks) {
            return None;
        }
        let block = self.cube.incoming(vertex, blocks, step)?;
        let partner = self.cube.partner(vertex, step);
        Some(Transfer { peer: self.sender(partner, step), block })
    }

    /// What the vertex sends to another one, whichever of its members does.
    fn outside(self, vertex: u32, blocks: u32, step: u64) -> Option<Transfer> {
        if step >= self.cube.steps(blocks) {
            return None;
        }
        let block = self.cube.outgoing(vertex, blocks, step)?;
        let partner = self.cube.partner(vertex, step);
        Some(Transfer { peer: self.receiver(partner, step), block })
    }

    /// What the twin that receives in `step` hands to the other one meanwhile.
    fn inside(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        let turns = self.cube.turns(vertex, step);
        let before = step.checked_sub(1)?;
        let from = match (turns, self.cube.turns(vertex, before) == turns) {
            (0, _) | (1, false) => return None,
            (_, true) => before,
            (_, false) => self.cube.step_of(vertex, turns - 2),
        };
        self.cube.incoming(vertex, blocks, from)
    }

    /// What the other one hands back in the last step: the block that came to it last.
    fn back(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        let before = self.cube.turns(vertex, step).checked_sub(1)?;
        self.cube.incoming(vertex, blocks, self.cube.step_of(vertex, before))
    }

    /// Which member takes what comes to `vertex` in `step`. Roles change with each turn.
    fn receiver(self, vertex: u32, step: u64) -> u32 {
        match self.twin(vertex) {
            Some(twin) if self.cube.turns(vertex, step) % 2 == 1 => twin,
            _ => vertex,
        }
    }

    /// Which member sends for `vertex` in `step`.
    fn sender(self, vertex: u32, step: u64) -> u32 {
        let receiver = self.receiver(vertex, step);
        self.twin(receiver).unwrap_or(receiver)
    }

    const fn vertex(self, rank: u32) -> u32 {
        if rank < self.vertices { rank } else { rank + 1 - self.vertices }
    }

    fn twin(self, rank: u32) -> Option<u32> {
        if rank >= self.vertices {
            return Some(rank + 1 - self.vertices);
        }
        let twin = rank + self.vertices - 1;
        (rank > 0 && twin < self.members).then_some(twin)
    }
}
