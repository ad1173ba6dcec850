//! The binomial pipeline among 2^d vertices (design: bulk.md section 2).
//!
//! In step j all vertices exchange with their neighbour in dimension j mod d. The root deals one
//! block after the other; everybody else hands on, along the current dimension, what came along the
//! ones before it.

/// A hypercube of 2^d vertices, d at least 1. Vertex 0 is the root.
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

    /// The dimension along which everybody exchanges in `step`.
    pub const fn dimension(self, step: u64) -> u32 {
        (step % self.dimensions as u64) as u32
    }

    pub const fn partner(self, vertex: u32, step: u64) -> u32 {
        vertex ^ 1 << self.dimension(step)
    }

    /// The block that `vertex` hands to its partner in `step`, one of the first [`Self::steps`].
    pub fn outgoing(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        let (d, s) = (self.dimensions, self.dimension(step));
        let last = u64::from(blocks) - 1;
        // Rotated so that the dimension of this step is the lowest bit.
        let turned = (vertex >> s | vertex << (d - s)) & ((1 << d) - 1);
        let block = match turned {
            0 => step,
            // The partner is the root, who has everything.
            1 => return None,
            _ => (step + u64::from(turned.trailing_zeros())).checked_sub(d.into())?,
        };
        Some(block.min(last) as u32)
    }

    /// The block that `vertex` is handed by its partner in `step`.
    pub fn incoming(self, vertex: u32, blocks: u32, step: u64) -> Option<u32> {
        self.outgoing(self.partner(vertex, step), blocks, step)
    }

    /// In how many steps before `step` the dimension is one of the bits of `vertex`.
    pub const fn turns(self, vertex: u32, step: u64) -> u64 {
        let within = vertex & ((1 << self.dimension(step)) - 1);
        step / self.dimensions as u64 * vertex.count_ones() as u64 + within.count_ones() as u64
    }

    /// The latest step with so many `turns` of `vertex` before it: the one whose dimension is the
    /// next of its bits.
    pub fn step_of(self, vertex: u32, turns: u64) -> u64 {
        let each = u64::from(vertex.count_ones());
        let (mut bits, mut skip) = (vertex, turns % each);
        while skip > 0 {
            bits &= bits - 1;
            skip -= 1;
        }
        turns / each * u64::from(self.dimensions) + u64::from(bits.trailing_zeros())
    }
}
