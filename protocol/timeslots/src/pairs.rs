//! Which pairs have an active flow, and what they have requested since it became active.

use alloc::vec::Vec;

use crate::flow::Flows;

/// Maximum number of timeslots that a pair may have queued beside its active flow.
pub(crate) const QUEUED_MAX: u32 = u16::MAX as u32 - 1;
/// Up to this number of endpoints all counts are scanned directly: with two bytes per pair, half a
/// mebibyte stays in the cache.
const DENSE_NODES_MAX: usize = 512;

/// The timeslots that each pair with an active [`crate::Flow`] has queued beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pairs {
    /// For some hundreds of endpoints.
    Dense(Dense),
    /// For thousands of endpoints.
    Sparse(Sparse),
}

impl Pairs {
    /// Creates a table for `nodes` endpoints.
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        match nodes <= DENSE_NODES_MAX {
            true => Self::Dense(Dense::new(nodes)),
            false => Self::Sparse(Sparse::new(nodes)),
        }
    }

    /// Queues up to `slots` timeslots for the pair. Returns how many were taken, or `None` if the
    /// pair has no active flow.
    pub fn request(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        match self {
            Self::Dense(pairs) => pairs.request(src, dst, slots),
            Self::Sparse(pairs) => pairs.request(src, dst, slots),
        }
    }

    /// Queues `slots` timeslots for a pair with an active flow, on the fast path. Returns false and
    /// changes nothing if the limit is exceeded or the table has no fast path.
    #[inline]
    pub fn request_fast(&mut self, src: usize, dst: usize, slots: u32) -> bool {
        match self {
            Self::Dense(pairs) => pairs.request_fast(src, dst, slots),
            Self::Sparse(_) => false,
        }
    }

    /// Marks the pair as having an active flow. Returns false if it had one already.
    #[inline]
    pub fn activate(&mut self, src: usize, dst: usize) -> bool {
        match self {
            Self::Dense(pairs) => pairs.activate(src, dst),
            Self::Sparse(pairs) => pairs.activate(src, dst),
        }
    }

    /// Renews the flows in `drained`. A flow whose pair has queued more stays there, and is
    /// appended to `renewed` with the queued timeslots; the others are removed and their pairs
    /// become inactive. `now` is the batch modulo 256 in which they restart, if the policy uses it.
    pub fn renew(&mut self, drained: &mut Flows, now: Option<u8>, renewed: &mut Flows) {
        match self {
            Self::Dense(pairs) => renew(drained, now, renewed, |src, dst| pairs.take(src, dst)),
            Self::Sparse(pairs) => renew(drained, now, renewed, |src, dst| pairs.take(src, dst)),
        }
    }

    /// Returns the number of active flows, and the timeslots queued beside them.
    pub fn count(&self) -> (usize, u64) {
        match self {
            Self::Dense(pairs) => {
                let active = pairs.counts.iter().filter(|count| **count > 0);
                (active.clone().count(), active.map(|count| u64::from(*count) - 1).sum())
            }
            Self::Sparse(pairs) => {
                let flows = u64::MAX / 3 * HAS_FLOW;
                let active = pairs.bits.iter().map(|bits| (bits & flows).count_ones() as usize);
                (active.sum(), pairs.queued.iter().map(|queued| u64::from(*queued)).sum())
            }
        }
    }

    /// Deactivates all pairs of `src`. Returns the number of its active flows and the timeslots
    /// queued beside them.
    pub fn forget(&mut self, src: usize) -> (u32, u64) {
        match self {
            Self::Dense(pairs) => pairs.forget(src),
            Self::Sparse(pairs) => pairs.forget(src),
        }
    }
}

/// Implements [`Pairs::renew`] with `take`, which returns and clears what a pair has queued.
#[inline]
fn renew(
    drained: &mut Flows,
    now: Option<u8>,
    renewed: &mut Flows,
    mut take: impl FnMut(usize, usize) -> u32,
) {
    drained.retain_rare(|flow| {
        let queued = take(flow.src(), flow.dst());
        if queued > 0 {
            let flow = flow.renewed(queued);
            renewed.push(now.map_or(flow, |now| flow.with_age(0, now)));
        }
        queued > 0
    });
}

/// One count per pair, a row for each source.
///
/// Bits would take less memory, but consecutive steps would modify the same word and so could not
/// overlap in the CPU: measured with 256 endpoints, bits take a fifth longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dense {
    /// 0: no active flow; otherwise the queued timeslots plus one.
    counts: Vec<u16>,
    nodes: usize,
}

impl Dense {
    fn new(nodes: usize) -> Self {
        Self { counts: alloc::vec![0; nodes * nodes], nodes }
    }

    fn request(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        let count = &mut self.counts[src * self.nodes + dst];
        let queued = u32::from(*count).checked_sub(1)?;
        debug_assert!(queued <= QUEUED_MAX, "the queue of a pair is bounded");
        let taken = slots.min(QUEUED_MAX - queued);
        *count += taken as u16;
        Some(taken)
    }

    #[inline]
    fn request_fast(&mut self, src: usize, dst: usize, slots: u32) -> bool {
        let count = &mut self.counts[src * self.nodes + dst];
        let queued = u32::from(*count) + slots;
        let is_taken = queued <= QUEUED_MAX + 1;
        if is_taken {
            *count = queued as u16;
        }
        is_taken
    }

    #[inline]
    fn activate(&mut self, src: usize, dst: usize) -> bool {
        let count = &mut self.counts[src * self.nodes + dst];
        let is_first = *count == 0;
        if is_first {
            *count = 1;
        }
        is_first
    }

    #[inline]
    fn take(&mut self, src: usize, dst: usize) -> u32 {
        let count = &mut self.counts[src * self.nodes + dst];
        debug_assert_ne!(*count, 0, "the pair has a flow");
        let queued = count.saturating_sub(1);
        *count = u16::from(queued > 0);
        u32::from(queued)
    }

    fn forget(&mut self, src: usize) -> (u32, u64) {
        let row = &mut self.counts[src * self.nodes..][..self.nodes];
        let flows = row.iter().map(|count| u32::from(*count > 0)).sum();
        let queued = row.iter().map(|count| u64::from(count.saturating_sub(1))).sum();
        row.fill(0);
        (flows, queued)
    }
}

/// Two bits per pair, and counts that are read only where a bit is set. The counts of 4,096
/// endpoints far exceed the cache; their bits nearly fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sparse {
    /// For each pair one bit for an active flow and one for queued timeslots, a row for each
    /// source.
    bits: Vec<u64>,
    /// Timeslots queued beside the active flow.
    queued: Vec<u16>,
    nodes: usize,
}

const HAS_FLOW: u64 = 1;
const HAS_QUEUED: u64 = 2;

impl Sparse {
    fn new(nodes: usize) -> Self {
        let bits = alloc::vec![0; (nodes * nodes).div_ceil(32)];
        Self { bits, queued: alloc::vec![0; nodes * nodes], nodes }
    }

    fn request(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        let pair = src * self.nodes + dst;
        let (bits, shift) = (&mut self.bits[pair / 32], pair % 32 * 2);
        if *bits >> shift & HAS_FLOW == 0 {
            return None;
        }
        let queued = &mut self.queued[pair];
        debug_assert!(u32::from(*queued) <= QUEUED_MAX, "the queue of a pair is bounded");
        let taken = slots.min(QUEUED_MAX - u32::from(*queued));
        *queued += taken as u16;
        *bits |= (if *queued > 0 { HAS_QUEUED } else { 0 }) << shift;
        Some(taken)
    }

    #[inline]
    fn activate(&mut self, src: usize, dst: usize) -> bool {
        let pair = src * self.nodes + dst;
        let (bits, shift) = (&mut self.bits[pair / 32], pair % 32 * 2);
        let is_first = *bits >> shift & HAS_FLOW == 0;
        *bits |= HAS_FLOW << shift;
        is_first
    }

    #[inline]
    fn take(&mut self, src: usize, dst: usize) -> u32 {
        let pair = src * self.nodes + dst;
        let (bits, shift) = (&mut self.bits[pair / 32], pair % 32 * 2);
        debug_assert_eq!(*bits >> shift & HAS_FLOW, HAS_FLOW, "the pair has a flow");
        if *bits >> shift & HAS_QUEUED == 0 {
            *bits &= !(HAS_FLOW << shift);
            return 0;
        }
        *bits &= !(HAS_QUEUED << shift);
        u32::from(core::mem::take(&mut self.queued[pair]))
    }

    fn forget(&mut self, src: usize) -> (u32, u64) {
        let (mut flows, mut queued) = (0, 0);
        let (mut pair, end) = (src * self.nodes, (src + 1) * self.nodes);
        while pair < end {
            // The pairs of the row that share a word.
            let word_end = (pair / 32 + 1) * 32;
            let last = word_end.min(end);
            let own = u64::MAX << (pair % 32 * 2) & u64::MAX >> ((word_end - last) * 2);
            let bits = &mut self.bits[pair / 32];
            let mut rest = *bits & own;
            *bits &= !own;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                match bit % 2 {
                    0 => flows += 1,
                    _ => {
                        let count = &mut self.queued[pair / 32 * 32 + bit / 2];
                        queued += u64::from(core::mem::take(count));
                    }
                }
            }
            pair = last;
        }
        (flows, queued)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::flow::Flow;

    proptest! {
        #[test]
        fn pair_table_matches_a_map(
            steps in prop::collection::vec((0u32..40, 0usize..70, 0usize..2, 0u32..40_000), 1..400),
            is_dense in any::<bool>(),
        ) {
            let mut pairs = if is_dense { Pairs::new(70) } else { Pairs::Sparse(Sparse::new(70)) };
            let mut expected: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            for (what, src, dst, slots) in steps {
                let (what, dst) = (if what == 39 { 3 } else { what % 3 }, dst * 69);
                if what == 3 {
                    let own = expected.iter().filter(|((of, _), _)| *of == src);
                    let queued = own.clone().map(|(_, queued)| u64::from(*queued)).sum();
                    prop_assert_eq!(pairs.forget(src), (own.count() as u32, queued));
                    expected.retain(|(of, _), _| *of != src);
                    continue;
                }
                match (what, expected.get_mut(&(src, dst))) {
                    (0, it) => {
                        let is_first = it.is_none();
                        prop_assert_eq!(pairs.activate(src, dst), is_first);
                        if is_first {
                            expected.insert((src, dst), 0);
                        }
                    }
                    (2, Some(queued)) => {
                        let had = core::mem::take(queued);
                        let (mut drained, mut renewed) = (Flows::new(1), Flows::new(1));
                        drained.push(Flow::new(src as u16, dst as u16, 0, 3));
                        let now = (src % 2 == 0).then_some(5);
                        pairs.renew(&mut drained, now, &mut renewed);
                        let again = Flow::new(src as u16, dst as u16, had, now.unwrap_or(3));
                        let count = usize::from(had > 0);
                        prop_assert_eq!(
                            (renewed.as_slice(), drained.len()),
                            (&[again][..count], count)
                        );
                        if had == 0 {
                            expected.remove(&(src, dst));
                        }
                    }
                    (_, Some(queued)) => {
                        let taken = slots.min(QUEUED_MAX - *queued);
                        prop_assert_eq!(pairs.request(src, dst, slots), Some(taken));
                        *queued += taken;
                    }
                    _ => prop_assert_eq!(pairs.request(src, dst, slots), None),
                }
            }
        }
    }
}
