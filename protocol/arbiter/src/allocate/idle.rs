//! Free timeslots of each endpoint in a batch, and the filter for blocked flows.

use alloc::boxed::Box;

use onepipe_processor::{Marks, Mesh, Sieve};

use super::capacity::Limit;
use crate::config::NODES_MAX;
use crate::demand::{Flow, Flows};

/// Number of flows that are filtered before the first of them is served. The grants depend on this
/// number.
pub(super) const LOOK: usize = 256;

/// One word per endpoint number. As long as the range of numbers, so that indexing needs no bounds
/// check.
type Words = Box<[u64; NODES_MAX as usize]>;

/// The free timeslots of each endpoint in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Idle {
    nodes: usize,
    /// As source.
    pub from: Words,
    /// As destination.
    pub to: Words,
    /// Which endpoints had free timeslots at the last update, as source and as destination.
    marks: [Marks; 2],
    /// Grants since the last update may have changed `marks`.
    is_stale: bool,
    /// The SIMD partition kernel, if the CPU supports it. The result is the same without.
    sieve: Option<Sieve>,
}

impl Idle {
    pub fn new(nodes: usize) -> Self {
        let words = || {
            let words = alloc::vec![0; NODES_MAX as usize].into_boxed_slice();
            words.try_into().expect("it is as long as that")
        };
        Self {
            nodes,
            from: words(),
            to: words(),
            marks: [Marks::NONE; 2],
            is_stale: true,
            sieve: Sieve::detect().filter(|_| nodes <= Marks::NUMBERS),
        }
    }

    /// Starts a batch in which all timeslots of `all` are free.
    pub fn begin(&mut self, all: u64) {
        self.from[..self.nodes].fill(all);
        self.to[..self.nodes].fill(all);
        self.is_stale = true;
    }

    /// Notes that timeslots were granted.
    pub fn on_given(&mut self) {
        self.is_stale = true;
    }

    /// Disables CPU-specific instructions.
    #[cfg(test)]
    pub fn make_plain(&mut self) {
        self.sieve = None;
    }

    /// Writes those of `flows` with free timeslots at both ends to `open` and returns their number.
    /// Of the others, flows with neither end free yield; the rest is forwarded.
    ///
    /// At high load most flows are blocked. They are told apart by one bit per endpoint, whether
    /// any timeslot is free; all of these bits fit into a few vector registers.
    #[inline]
    pub fn part(
        &mut self,
        flows: &[Flow],
        open: &mut [Flow],
        onward: &mut Flows,
        way: &mut Flows,
    ) -> usize {
        let rooms = [open, onward.room(), way.room()];
        let [opens, onwards, ways] = match self.sieve {
            Some(sieve) => {
                let [first, second] = &mut self.marks;
                if self.is_stale {
                    sieve.mark(&self.from[..self.nodes], first);
                    sieve.mark(&self.to[..self.nodes], second);
                    self.is_stale = false;
                }
                let mesh = Mesh { first, second, exempt: Flow::STAYS, step: Flow::WAY };
                sieve.sift(Flow::words(flows), mesh, rooms.map(Flow::words_mut))
            }
            None => self.part_one_by_one(flows, rooms),
        };
        onward.grow(onwards);
        way.grow(ways);
        opens
    }

    fn part_one_by_one(&self, flows: &[Flow], rooms: [&mut [Flow]; 3]) -> [usize; 3] {
        let [open, onward, way] = rooms;
        let (mut opens, mut onwards, mut ways) = (0, 0, 0);
        for &flow in flows {
            let (from, to) = (self.from[flow.src()], self.to[flow.dst()]);
            let is_open = from != 0 && to != 0;
            let gives_way = from | to | flow.stays() == 0;
            open[opens] = flow;
            onward[onwards] = flow;
            way[ways] = flow.gave_way();
            opens += usize::from(is_open);
            ways += usize::from(gives_way);
            onwards = onwards + 1 - usize::from(is_open) - usize::from(gives_way);
        }
        [opens, onwards, ways]
    }

    /// Moves those of `open` with a common free timeslot to its front, returns their number, and
    /// forwards the others.
    #[inline]
    pub fn look(&self, limit: &impl Limit, open: &mut [Flow], onward: &mut Flows) -> usize {
        let (mut opens, mut blocked) = (0, 0);
        let room = onward.room();
        for at in 0..open.len() {
            let flow = open[at];
            let (src, dst) = (flow.src(), flow.dst());
            let is_blocked = self.from[src] & self.to[dst] & limit.free(src, dst) == 0;
            room[blocked] = flow;
            open[opens] = flow;
            blocked += usize::from(is_blocked);
            opens = opens + 1 - usize::from(is_blocked);
        }
        onward.grow(blocked);
        opens
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Returns the open, forwarded and yielded flows.
    fn parted(idle: &mut Idle, flows: &[Flow]) -> [Vec<Flow>; 3] {
        let mut open = alloc::vec![Flow::default(); LOOK];
        let [mut onward, mut way] = [(); 2].map(|()| Flows::new(LOOK as u32));
        let opens = idle.part(flows, &mut open, &mut onward, &mut way);
        [&open[..opens], onward.as_slice(), way.as_slice()].map(<[Flow]>::to_vec)
    }

    proptest! {
        #[test]
        fn who_has_an_end_that_may_be_idle_does_not_give_way(
            flows in prop::collection::vec((0u16..90, 0u16..90, 0u8..=64), 0..LOOK),
            (from, to) in any::<([bool; 90], [bool; 90])>(),
        ) {
            let mut idle = Idle::new(90);
            idle.begin(u64::MAX);
            for node in 0..90 {
                idle.from[node] *= u64::from(from[node]);
                idle.to[node] *= u64::from(to[node]);
            }
            let flows: Vec<_> =
                flows.into_iter().map(|(src, dst, ways)| Flow::new(src, dst, 5, ways)).collect();
            let mut known = [(); 3].map(|()| Vec::new());
            for flow in &flows {
                let ends = [from[flow.src()], to[flow.dst()]];
                let place = match ends {
                    [true, true] => 0,
                    [false, false] if flow.stays() == 0 => 2,
                    _ => 1,
                };
                known[place].push(if place == 2 { flow.gave_way() } else { *flow });
            }
            prop_assert_eq!(&parted(&mut idle, &flows), &known);
            idle.make_plain();
            prop_assert_eq!(&parted(&mut idle, &flows), &known);
        }
    }
}
