//! Free timeslots of each endpoint in a batch, and the filter for blocked flows.

use alloc::boxed::Box;

use onepipe_simd::{BitTable, PartitionKernel, PartitionTables};

use super::capacity::Limit;
use crate::config::NODES_MAX;
use crate::flow::{Flow, Flows};

/// Number of flows that are filtered before the first of them is served. The grants depend on this
/// number.
pub(super) const CHUNK: usize = 256;

/// One word per endpoint number. As long as the range of numbers, so that indexing needs no bounds
/// check.
type Words = Box<[u64; NODES_MAX as usize]>;

/// The free timeslots of each endpoint in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FreeSlots {
    nodes: usize,
    /// As source.
    pub from: Words,
    /// As destination.
    pub to: Words,
    /// Which endpoints had free timeslots at the last update, as source and as destination.
    marks: [BitTable; 2],
    /// Grants since the last update may have changed `marks`.
    is_stale: bool,
    /// The SIMD partition kernel, if the CPU supports it. The result is the same without.
    kernel: Option<PartitionKernel>,
}

impl FreeSlots {
    pub fn new(nodes: usize) -> Self {
        let words = || {
            let words = alloc::vec![0; NODES_MAX as usize].into_boxed_slice();
            words.try_into().expect("the length matches")
        };
        Self {
            nodes,
            from: words(),
            to: words(),
            marks: [BitTable::NONE; 2],
            is_stale: true,
            kernel: PartitionKernel::detect().filter(|_| nodes <= BitTable::NUMBERS),
        }
    }

    /// Starts a batch in which all timeslots of `all` are free.
    pub fn begin(&mut self, all: u64) {
        self.from[..self.nodes].fill(all);
        self.to[..self.nodes].fill(all);
        self.is_stale = true;
    }

    /// Asserts that the free timeslots are those of `all` that are not taken, as source and as
    /// destination.
    pub fn check_invariants(&self, all: u64, taken: &[[u64; NODES_MAX as usize]; 2]) {
        for (free, taken) in [&self.from, &self.to].into_iter().zip(taken) {
            for node in 0..self.nodes {
                assert_eq!(free[node], all & !taken[node], "what {node} was not granted is free");
            }
        }
    }

    /// Notes that timeslots were granted.
    pub fn on_granted(&mut self) {
        self.is_stale = true;
    }

    /// Disables CPU-specific instructions.
    #[cfg(test)]
    pub fn disable_simd(&mut self) {
        self.kernel = None;
    }

    /// Writes those of `flows` with free timeslots at both ends to `open` and returns their number.
    /// Of the others, flows with neither end free yield; the rest is forwarded.
    ///
    /// At high load most flows are blocked. They are separated by one bit per endpoint, whether
    /// any timeslot is free; all of these bits fit into a few vector registers.
    #[inline]
    pub fn partition(
        &mut self,
        flows: &[Flow],
        open: &mut [Flow],
        forwarded: &mut Flows,
        yielded: &mut Flows,
    ) -> usize {
        let outputs = [open, forwarded.spare_mut(), yielded.spare_mut()];
        let [open_count, forwarded_count, yielded_count] = match self.kernel {
            Some(kernel) => {
                let [first, second] = &mut self.marks;
                if self.is_stale {
                    kernel.mark(&self.from[..self.nodes], first);
                    kernel.mark(&self.to[..self.nodes], second);
                    self.is_stale = false;
                }
                let tables =
                    PartitionTables { first, second, exempt: Flow::NO_YIELD, step: Flow::YIELD };
                kernel.partition(Flow::words(flows), tables, outputs.map(Flow::words_mut))
            }
            None => self.partition_portable(flows, outputs),
        };
        let all = open_count + forwarded_count + yielded_count;
        debug_assert_eq!(all, flows.len(), "each flow has one output");
        forwarded.grow(forwarded_count);
        yielded.grow(yielded_count);
        open_count
    }

    fn partition_portable(&self, flows: &[Flow], outputs: [&mut [Flow]; 3]) -> [usize; 3] {
        let [open, forwarded, yielded] = outputs;
        let (mut open_count, mut forwarded_count, mut yielded_count) = (0, 0, 0);
        for &flow in flows {
            let (from, to) = (self.from[flow.src()], self.to[flow.dst()]);
            let is_open = from != 0 && to != 0;
            let yields = from | to | flow.no_yield() == 0;
            open[open_count] = flow;
            forwarded[forwarded_count] = flow;
            yielded[yielded_count] = flow.yielded();
            open_count += usize::from(is_open);
            yielded_count += usize::from(yields);
            forwarded_count = forwarded_count + 1 - usize::from(is_open) - usize::from(yields);
        }
        [open_count, forwarded_count, yielded_count]
    }

    /// Moves those of `open` with a common free timeslot to its front, returns their number, and
    /// forwards the others.
    #[inline]
    pub fn retain_open(
        &self,
        limit: &impl Limit,
        open: &mut [Flow],
        forwarded: &mut Flows,
    ) -> usize {
        let (mut open_count, mut blocked) = (0, 0);
        let spare = forwarded.spare_mut();
        for at in 0..open.len() {
            let flow = open[at];
            let (src, dst) = (flow.src(), flow.dst());
            let is_blocked = self.from[src] & self.to[dst] & limit.free(src, dst) == 0;
            spare[blocked] = flow;
            open[open_count] = flow;
            blocked += usize::from(is_blocked);
            open_count = open_count + 1 - usize::from(is_blocked);
        }
        forwarded.grow(blocked);
        open_count
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Returns the open, forwarded and yielded flows.
    fn partitioned(free_slots: &mut FreeSlots, flows: &[Flow]) -> [Vec<Flow>; 3] {
        let mut open = alloc::vec![Flow::default(); CHUNK];
        let [mut forwarded, mut yielded] = [(); 2].map(|()| Flows::new(CHUNK as u32));
        let open_count = free_slots.partition(flows, &mut open, &mut forwarded, &mut yielded);
        [&open[..open_count], forwarded.as_slice(), yielded.as_slice()].map(<[Flow]>::to_vec)
    }

    proptest! {
        #[test]
        fn only_flows_with_both_ends_busy_yield(
            flows in prop::collection::vec((0u16..90, 0u16..90, 0u8..=64), 0..CHUNK),
            (from, to) in any::<([bool; 90], [bool; 90])>(),
        ) {
            let mut free_slots = FreeSlots::new(90);
            free_slots.begin(u64::MAX);
            for node in 0..90 {
                free_slots.from[node] *= u64::from(from[node]);
                free_slots.to[node] *= u64::from(to[node]);
            }
            let flows: Vec<_> = flows
                .into_iter()
                .map(|(src, dst, yielded_count)| Flow::new(src, dst, 5, yielded_count))
                .collect();
            let mut expected = [(); 3].map(|()| Vec::new());
            for flow in &flows {
                let ends = [from[flow.src()], to[flow.dst()]];
                let class = match ends {
                    [true, true] => 0,
                    [false, false] if flow.no_yield() == 0 => 2,
                    _ => 1,
                };
                expected[class].push(if class == 2 { flow.yielded() } else { *flow });
            }
            prop_assert_eq!(&partitioned(&mut free_slots, &flows), &expected);
            free_slots.disable_simd();
            prop_assert_eq!(&partitioned(&mut free_slots, &flows), &expected);
        }
    }
}
