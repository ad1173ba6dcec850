//! Binomial pipeline among 2^d vertices (RDMC).
//!
//! In step j all vertices exchange blocks with their neighbour in dimension j mod d. The root sends
//! one block after the other. Any other vertex sends, along the present dimension, a block that it
//! received along an earlier one.

/// Hypercube of 2^d vertices, d at least 1. Vertex 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hypercube {
    dimensions: u32,
}

impl Hypercube {
    pub const fn new(dimensions: u32) -> Self {
        Self { dimensions }
    }

    pub const fn steps(self, blocks: u32) -> u64 {
        blocks as u64 + self.dimensions as u64 - 1
    }

    /// Returns the dimension of the exchanges in `step`.
    pub const fn dimension(self, step: u64) -> u32 {
        (step % self.dimensions as u64) as u32
    }

    pub const fn partner(self, vertex: u32, step: u64) -> u32 {
        vertex ^ 1 << self.dimension(step)
    }

    /// Returns the block that `vertex` sends to its partner in `step`.
    pub fn outgoing(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        debug_assert!(vertex < 1 << self.dimensions, "the hypercube has the vertex");
        let (d, s) = (self.dimensions, self.dimension(step));
        let last = u64::from(blocks) - 1;
        // Rotate the vertex so that the dimension of this step becomes the lowest bit.
        let turned = (vertex >> s | vertex << (d - s)) & ((1 << d) - 1);
        let block = match turned {
            0 => step,
            // The partner is the root, which has all blocks.
            1 => return None,
            _ => (step + u64::from(turned.trailing_zeros())).checked_sub(d.into())?,
        };
        Some(block.min(last) as u32)
    }

    /// Returns the block that `vertex` receives from its partner in `step`.
    pub fn incoming(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        self.outgoing(self.partner(vertex, step), blocks, step)
    }

    /// Returns the number of steps before `step` whose dimension is a set bit of `vertex`.
    pub const fn turns(self, vertex: u32, step: u64) -> u64 {
        let within = vertex & ((1 << self.dimension(step)) - 1);
        step / self.dimensions as u64 * vertex.count_ones() as u64 + within.count_ones() as u64
    }

    /// Returns the latest step that is preceded by `turns` steps as counted by [`Self::turns`]: its
    /// dimension is the next set bit of `vertex`.
    pub fn step_of(self, vertex: u32, turns: u64) -> u64 {
        debug_assert!(vertex > 0, "the root has no turns");
        let each = u64::from(vertex.count_ones());
        let (mut bits, mut skip) = (vertex, turns % each);
        while skip > 0 {
            bits &= bits - 1;
            skip -= 1;
        }
        turns / each * u64::from(self.dimensions) + u64::from(bits.trailing_zeros())
    }
}
