//! Binomial pipeline among any number of members: up to two members, called twins, share a vertex
//! of the hypercube (RDMC).
//!
//! Twins act as one vertex towards the others. In each step one of them receives for the vertex and
//! the other one sends; meanwhile the first sends the second a block that it received earlier.

use super::Transfer;
use super::hypercube::Hypercube;

//= spec/bulk.md#R4
/// `members` members, at least two, on the vertices of the largest hypercube that they fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BinomialPipeline {
    members: u32,
    cube: Hypercube,
    /// Number of vertices: 2^d.
    vertices: u32,
}

impl BinomialPipeline {
    pub const fn new(members: u32) -> Self {
        debug_assert!(members > 1, "one member receives nothing");
        let dimensions = members.ilog2();
        Self { members, cube: Hypercube::new(dimensions), vertices: 1 << dimensions }
    }

    /// Returns the number of steps. With twins it is one more than the hypercube's, in which the
    /// twins exchange their last blocks.
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

    /// Returns what the vertex sends to its partner in `step`.
    fn outside(self, vertex: u32, blocks: u32, step: u64) -> Option<Transfer> {
        if step >= self.cube.steps(blocks) {
            return None;
        }
        let block = self.cube.outgoing(vertex, blocks, step)?;
        let partner = self.cube.partner(vertex, step);
        Some(Transfer { peer: self.receiver(partner, step), block })
    }

    /// Returns the block that the receiving twin sends to the other one in `step`.
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

    /// Returns the block that the other twin sends back in the last step: its last one.
    fn back(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        let before = self.cube.turns(vertex, step).checked_sub(1)?;
        self.cube.incoming(vertex, blocks, self.cube.step_of(vertex, before))
    }

    /// Returns the member that receives for `vertex` in `step`. The twins alternate.
    fn receiver(self, vertex: u32, step: u64) -> u32 {
        match self.twin(vertex) {
            Some(twin) if self.cube.turns(vertex, step) % 2 == 1 => twin,
            _ => vertex,
        }
    }

    /// Returns the member that sends for `vertex` in `step`.
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
