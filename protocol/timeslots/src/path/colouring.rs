//! Edge colouring of a bipartite multigraph: colours for the edges that find none unless others are
//! recoloured.

use alloc::vec::Vec;

/// The colour of an edge that has none.
const COLOURLESS: u8 = u8::MAX;

/// A packet from one rack to another: its source, the two racks and its colour. In one word, so
/// that it is written at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Edge(u64);

/// The ends of an edge: the rack that it leaves, and the rack that it enters.
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

/// The free colours of each rack in one timeslot, and the edges that hold the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Colouring {
    free: [Vec<u64>; 2],
    usable: Vec<u64>,
    /// Start of each rack's outgoing edges, and the end of the last rack's. The initially
    /// uncoloured edges of all racks follow.
    begins: Vec<u16>,
    /// The incoming edge of each rack by colour, valid only for taken colours. Outgoing edges of a
    /// rack are few and contiguous, so they are searched linearly.
    entering: Vec<[u16; 64]>,
    /// The edges recoloured for the edge that was coloured last.
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
            // A chain passes each rack at most twice, once on each side.
            chain: Vec::with_capacity(2 * racks),
        }
    }

    /// Starts a timeslot with the coloured edges, ordered by rack. `of` returns for each rack its
    /// usable colours, the free ones on its outgoing and incoming side, and the start of its edges.
    pub fn begin(&mut self, of: impl Fn(usize) -> ([u64; 3], u16), edges: &[Edge]) {
        for rack in 0..self.usable.len() {
            let ([usable, leaving, entering], begin) = of(rack);
            self.usable[rack] = usable;
            self.free[LEAVES][rack] = leaving;
            self.free[ENTERS][rack] = entering;
            self.begins[rack] = begin;
        }
        *self.begins.last_mut().expect("one entry more than racks") = edges.len() as u16;
        for (at, edge) in edges.iter().enumerate() {
            self.entering[edge.rack(ENTERS)][usize::from(edge.colour() & 63)] = at as u16;
        }
    }

    /// Returns the edge of `rack` that holds a taken colour at `side`.
    fn holder(&self, edges: &[Edge], side: usize, rack: usize, colour: u32) -> u16 {
        if side == ENTERS {
            return self.entering[rack][colour as usize];
        }
        let begin = self.begins[rack];
        let uncoloured = *self.begins.last().expect("one entry more than racks");
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

    /// Returns the edges recoloured for the edge that was coloured last.
    pub fn changed(&self) -> &[u16] {
        &self.chain
    }

    /// Colours the edge at `at`, and recolours others if necessary. Returns false if impossible.
    pub fn colour_edge(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        self.chain.clear();
        let edge = edges[at];
        let (from, to) = (edge.rack(LEAVES), edge.rack(ENTERS));
        let free = self.free[LEAVES][from] & self.free[ENTERS][to];
        if free == 0 {
            return self.colour_by_flip(edges, at, flips);
        }
        self.assign_colour(edges, at, free.trailing_zeros());
        true
    }

    #[inline]
    fn assign_colour(&mut self, edges: &mut [Edge], at: usize, colour: u32) {
        let edge = &mut edges[at];
        edge.set_colour(colour as u8);
        for side in [LEAVES, ENTERS] {
            self.free[side][edge.rack(side)] &= !(1 << colour);
        }
        self.entering[edge.rack(ENTERS)][colour as usize] = at as u16;
    }

    /// Colours an edge whose ends have no free colour in common: frees a colour of the first end at
    /// the second by swapping it with another one along an alternating path.
    fn colour_by_flip(&mut self, edges: &mut [Edge], at: usize, flips: &mut u64) -> bool {
        edges[at].set_colour(COLOURLESS);
        let (from, to) = (edges[at].rack(LEAVES), edges[at].rack(ENTERS));
        // Restricted to colours that the other end can use.
        let mut ours = self.free[LEAVES][from] & self.usable[to];
        if self.colour_by_one(edges, at, ours) {
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
                    self.assign_colour(edges, at, one);
                    return true;
                }
                theirs &= theirs - 1;
            }
            ours &= ours - 1;
        }
        false
    }

    /// Tries the common case of [`Colouring::colour_by_flip`]: one other edge, which enters the
    /// same rack with a colour of `ours`, takes a colour that is free at both its ends. This
    /// examines far less than an alternating path.
    fn colour_by_one(&mut self, edges: &mut [Edge], at: usize, mut ours: u64) -> bool {
        let to = edges[at].rack(ENTERS);
        while ours != 0 {
            let one = ours.trailing_zeros();
            let holder = self.entering[to][one as usize];
            let edge = edges[usize::from(holder)];
            let free = self.free[LEAVES][edge.rack(LEAVES)] & self.free[ENTERS][to];
            if free != 0 {
                self.chain.push(holder);
                self.assign_colour(edges, usize::from(holder), free.trailing_zeros());
                self.free[LEAVES][edge.rack(LEAVES)] |= 1 << one;
                self.assign_colour(edges, at, one);
                return true;
            }
            ours &= ours - 1;
        }
        false
    }

    /// Swaps colours `one` and `other` along the alternating path that begins with the edge of
    /// `one` that enters rack `start`. Fails if the rack at its end cannot use the swapped colour.
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
        // At the racks between the ends both colours are taken, before and after.
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
