//! Edge colouring of a bipartite multigraph: the edges that find no colour without others changing
//! theirs.

use alloc::vec::Vec;

/// The colour of an edge that has none.
const COLOURLESS: u8 = u8::MAX;

/// A packet that goes from one rack to another: its source, the two racks, its colour. In one word,
/// so that it is written at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Edge(u64);

/// Where an edge ends: at the rack that it leaves, or at that which it enters.
const LEAVES: usize = 0;
const ENTERS: usize = 1;

impl Edge {
    #[inline]
    pub const fn new(src: u16, from: u16, to: u16, colour: u8) -> Self {
        Self((src as u64) << 48 | (from as u64) << 32 | (to as u64) << 16 | colour as u64)
    }

    #[inline]
    pub fn src(self) -> usize {
        (self.0 >> 48) as usize
    }

    #[inline]
    pub fn colour(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    fn set_colour(&mut self, colour: u8) {
        self.0 = self.0 & !0xff | u64::from(colour);
    }

    #[inline]
    fn rack(self, side: usize) -> usize {
        (self.0 >> (if side == LEAVES { 32 } else { 16 })) as usize & 0xffff
    }
}

/// Which colours are free at each rack in one timeslot, and who has the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Colouring {
    free: [Vec<u64>; 2],
    usable: Vec<u64>,
    /// Where the edges that leave each rack begin, and where those of the last one end: behind them
    /// are those that had no colour at first, of any rack.
    begins: Vec<u16>,
    /// The edge of each colour that enters each rack; right only where the colour is taken. Those
    /// that leave a rack are few and lie together, so they are looked through.
    entering: Vec<[u16; 64]>,
    /// The edges that have changed their colours for the last one.
    chain: Vec<u16>,
}

impl Colouring {
    pub fn new(racks: usize) -> Self {
        let free = || alloc::vec![0; racks];
        Self {
            free: [free(), free()],
            usable: free(),
            begins: alloc::vec![0; racks + 1],
            entering: alloc::vec![[0; 64]; racks],
            // It passes each rack twice at most, once on each side.
            chain: Vec::with_capacity(2 * racks),
        }
    }

    /// A timeslot in which these edges have their colours, rack by rack. `of` says of each rack
    /// which colours it may use, which are free where edges leave it and where they enter it, and
    /// where its edges begin.
    pub fn begin(&mut self, of: impl Fn(usize) -> ([u64; 3], u16), edges: &[Edge]) {
        for rack in 0..self.usable.len() {
            let ([usable, leaving, entering], begin) = of(rack);
            self.usable[rack] = usable;
            self.free[LEAVES][rack] = leaving;
            self.free[ENTERS][rack] = entering;
            self.begins[rack] = begin;
        }
        *self.begins.last_mut().expect("there is one more than racks") = edges.len() as u16;
        for (at, edge) in edges.iter().enumerate() {
            self.entering[edge.rack(ENTERS)][usize::from(edge.colour() & 63)] = at as u16;
        }
    }

    /// Who has a colour that is taken at the end of `side` of edges of `rack`.
    fn holder(&self, edges: &[Edge], side: usize, rack: usize, colour: u32) -> u16 {
        if side == ENTERS {
            return self.entering[rack][colour as usize];
        }
        let begin = self.begins[rack];
        let uncoloured = *self.begins.last().expect("there is one more than racks");
        let has_it = |edge: &Edge| u32::from(edge.colour()) == colour;
        let own = &edges[usize::from(begin)..usize::from(self.begins[rack + 1])];
        let is_uncoloured = |edge: &Edge| edge.rack(LEAVES) == rack && has_it(edge);
        match own.iter().position(has_it) {
            Some(at) => begin + at as u16,
            None => {
                let at = edges[usize::from(uncoloured)..].iter().position(is_uncoloured);
                uncoloured + at.expect("the colour is taken") as u16
            }
        }
    }

    /// The edges that have changed their colours for that which was placed last.
    pub fn changed(&self) -> &[u16] {
        &self.chain
    }

    /// Gives the edge at `at` a colour, and others another if need be. Answers whether it could.
    pub fn place(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        self.chain.clear();
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
        edge.set_colour(colour as u8);
        for side in [LEAVES, ENTERS] {
            self.free[side][edge.rack(side)] &= !(1 << colour);
        }
        self.entering[edge.rack(ENTERS)][colour as usize] = at as u16;
    }

    /// No colour is free at both ends: one that is free at the first is made so at the other, by
    /// exchanging it with one that is free there, along all edges of the two that hang together.
    fn place_by_flip(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        edges[at].set_colour(COLOURLESS);
        let (from, to) = (edges[at].rack(LEAVES), edges[at].rack(ENTERS));
        // Of those that the other end can use at all, though others have them.
        let mut ours = self.free[LEAVES][from] & self.usable[to];
        if self.place_by_one(edges, at, ours) {
            *flips += 1;
            return true;
        }
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

    /// As [`Colouring::place_by_flip`], if it is enough that one other edge, which has a colour of
    /// `ours` and enters the same rack, takes one that is free at both its ends. Mostly it is, and
    /// far less is looked at than along a chain.
    fn place_by_one(&mut self, edges: &mut [Edge], at: usize, mut ours: u64) -> bool {
        let to = edges[at].rack(ENTERS);
        while ours != 0 {
            let one = ours.trailing_zeros();
            let holder = self.entering[to][one as usize];
            let edge = edges[usize::from(holder)];
            let free = self.free[LEAVES][edge.rack(LEAVES)] & self.free[ENTERS][to];
            if free != 0 {
                self.chain.push(holder);
                self.give(edges, usize::from(holder), free.trailing_zeros());
                self.free[LEAVES][edge.rack(LEAVES)] |= 1 << one;
                self.give(edges, at, one);
                return true;
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
            let at = self.holder(edges, side, rack, colour);
            self.chain.push(at);
            side = 1 - side;
            rack = edges[usize::from(at)].rack(side);
            colour = one + other - colour;
        }
        if self.usable[rack] >> colour & 1 == 0 {
            self.chain.clear();
            return false;
        }
        for at in &self.chain {
            let edge = &mut edges[usize::from(*at)];
            let colour = one + other - u32::from(edge.colour());
            edge.set_colour(colour as u8);
            self.entering[edge.rack(ENTERS)][colour as usize] = *at;
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
