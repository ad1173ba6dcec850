//! Edge colouring of a bipartite multigraph, one edge at a time.

use alloc::vec::Vec;

/// The colour of an edge that has none.
const COLOURLESS: u8 = u8::MAX;

/// A packet that goes from one rack to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    pub src: u16,
    pub from: u16,
    pub to: u16,
    pub colour: u8,
}

/// Where an edge ends: at the rack that it leaves, or at that which it enters.
const LEAVES: usize = 0;
const ENTERS: usize = 1;

impl Edge {
    #[inline]
    fn rack(&self, side: usize) -> usize {
        usize::from(if side == LEAVES { self.from } else { self.to })
    }
}

/// Which colours are free at each rack, and who has the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Colouring {
    free: [Vec<u64>; 2],
    usable: Vec<u64>,
    /// The edge of each colour at each rack; right only where the colour is taken.
    holders: [Vec<[u16; 64]>; 2],
    /// The edges that change their colours, while they do.
    chain: Vec<u16>,
}

impl Colouring {
    pub fn new(racks: usize) -> Self {
        let free = || alloc::vec![0; racks];
        let holders = || alloc::vec![[0; 64]; racks];
        Self {
            free: [free(), free()],
            usable: free(),
            holders: [holders(), holders()],
            // It passes each rack twice at most, once on each side.
            chain: Vec::with_capacity(2 * racks),
        }
    }

    /// Nothing has a colour yet; each rack may use the lowest `limit` of its usable ones.
    pub fn begin(&mut self, usable: &[u64], limit: u32) {
        let mask = if limit >= 64 { u64::MAX } else { (1 << limit) - 1 };
        for (rack, usable) in usable.iter().enumerate() {
            self.usable[rack] = usable & mask;
            self.free[LEAVES][rack] = usable & mask;
            self.free[ENTERS][rack] = usable & mask;
        }
    }

    /// Edges that end at one rack on one side, at most: what the busiest rack sends or receives.
    pub fn count(&mut self, edges: &[Edge]) -> u32 {
        for side in &mut self.free {
            side.fill(0);
        }
        let mut most = 0;
        for edge in edges {
            for side in [LEAVES, ENTERS] {
                let count = &mut self.free[side][edge.rack(side)];
                *count += 1;
                most = most.max(*count);
            }
        }
        most as u32
    }

    /// Gives the edge at `at` a colour, and others another if need be. Answers whether it could.
    #[inline]
    pub fn place(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        let edge = edges[at];
        let (from, to) = (edge.rack(LEAVES), edge.rack(ENTERS));
        let free = self.free[LEAVES][from] & self.free[ENTERS][to];
        if free == 0 {
            return self.place_by_flip(edges, at, flips);
        }
        self.give(edges, at, free.trailing_zeros());
        true
    }

    #[inline]
    fn give(&mut self, edges: &mut [Edge], at: usize, colour: u32) {
        let edge = &mut edges[at];
        edge.colour = colour as u8;
        for side in [LEAVES, ENTERS] {
            let rack = edge.rack(side);
            self.free[side][rack] &= !(1 << colour);
            self.holders[side][rack][colour as usize] = at as u16;
        }
    }

    /// No colour is free at both ends: one that is free at the first is made so at the other, by
    /// exchanging it with one that is free there, along all edges of the two that hang together.
    #[cold]
    fn place_by_flip(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        edges[at].colour = COLOURLESS;
        let (from, to) = (edges[at].rack(LEAVES), edges[at].rack(ENTERS));
        // Of those that the other end can use at all, though others have them.
        let mut ours = self.free[LEAVES][from] & self.usable[to];
        while ours != 0 {
            let one = ours.trailing_zeros();
            let mut theirs = self.free[ENTERS][to];
            while theirs != 0 {
                let other = theirs.trailing_zeros();
                if self.flip(edges, to, one, other) {
                    *flips += 1;
                    self.give(edges, at, one);
                    return true;
                }
                theirs &= theirs - 1;
            }
            ours &= ours - 1;
        }
        false
    }

    /// Exchanges colours `one` and `other` along the path that begins with the edge of `one` that
    /// enters rack `start`. Not if that would give the rack at its end a colour that it cannot use.
    fn flip(&mut self, edges: &mut [Edge], start: usize, one: u32, other: u32) -> bool {
        self.chain.clear();
        let (mut side, mut rack, mut colour) = (ENTERS, start, one);
        while self.is_taken(side, rack, colour) {
            let at = self.holders[side][rack][colour as usize];
            self.chain.push(at);
            side = 1 - side;
            rack = edges[usize::from(at)].rack(side);
            colour = one + other - colour;
        }
        if self.usable[rack] >> colour & 1 == 0 {
            return false;
        }
        for at in &self.chain {
            let edge = &mut edges[usize::from(*at)];
            let colour = one + other - u32::from(edge.colour);
            edge.colour = colour as u8;
            for side in [LEAVES, ENTERS] {
                self.holders[side][edge.rack(side)][colour as usize] = *at;
            }
        }
        // Between its ends both colours were taken before and are now.
        let both = 1 << one | 1 << other;
        self.free[ENTERS][start] ^= both;
        self.free[side][rack] ^= both;
        true
    }

    #[inline]
    fn is_taken(&self, side: usize, rack: usize, colour: u32) -> bool {
        (self.usable[rack] & !self.free[side][rack]) >> colour & 1 == 1
    }
}
