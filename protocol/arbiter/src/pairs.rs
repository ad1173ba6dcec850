//! Which pairs have a flow under way, and what they have asked for since.

use alloc::vec::Vec;

use crate::demand::Flows;

/// What a pair may ask for beside its flow, at most.
pub(crate) const MORE_MAX: u32 = u16::MAX as u32 - 1;
/// Endpoints up to which the counts of all pairs are looked at each time: two bytes a pair, so
/// that half a mebibyte is in the cache whatever else is.
const DENSE_NODES_MAX: usize = 512;
/// What each pair with a [`crate::Flow`] under way has asked for since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pairs {
    /// Of some hundreds of endpoints.
    Dense(Dense),
    /// Of thousands.
    Sparse(Sparse),
}

impl Pairs {
    /// Of so many endpoints.
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        match nodes <= DENSE_NODES_MAX {
            true => Self::Dense(Dense::new(nodes)),
            false => Self::Sparse(Sparse::new(nodes)),
        }
    }

    /// The pair asks for up to `slots` more. Answers how many were taken; `None` if it has no flow
    /// under way.
    pub fn ask(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        match self {
            Self::Dense(pairs) => pairs.ask(src, dst, slots),
            Self::Sparse(pairs) => pairs.ask(src, dst, slots),
        }
    }

    /// The pair, which has a flow under way, asks for `slots` more. Answers false, and takes
    /// nothing, if that is too much or not known at once.
    #[inline]
    pub fn ask_plainly(&mut self, src: usize, dst: usize, slots: u32) -> bool {
        match self {
            Self::Dense(pairs) => pairs.ask_plainly(src, dst, slots),
            Self::Sparse(_) => false,
        }
    }

    /// A flow of this pair is under way now. Answers false when there is one already.
    #[inline]
    pub fn begin(&mut self, src: usize, dst: usize) -> bool {
        match self {
            Self::Dense(pairs) => pairs.begin(src, dst),
            Self::Sparse(pairs) => pairs.begin(src, dst),
        }
    }

    /// The flows of `dry` have run dry: those that have asked for more since stay there, and go to
    /// `renewed` with what they have asked for. The others are forgotten. `now`: the batch that
    /// they come in again, modulo 256, if that is of any account.
    pub fn renew(&mut self, dry: &mut Flows, now: Option<u8>, renewed: &mut Flows) {
        match self {
            Self::Dense(pairs) => renew(dry, now, renewed, |src, dst| pairs.take(src, dst)),
            Self::Sparse(pairs) => renew(dry, now, renewed, |src, dst| pairs.take(src, dst)),
        }
    }

    /// No pair of `src` has a flow now. Answers how many had one, and what they had asked for
    /// beside it.
    pub fn forget(&mut self, src: usize) -> (u32, u64) {
        match self {
            Self::Dense(pairs) => pairs.forget(src),
            Self::Sparse(pairs) => pairs.forget(src),
        }
    }
}

/// [`Pairs::renew`], where `take` says what a pair has asked for.
#[inline]
fn renew(
    dry: &mut Flows,
    now: Option<u8>,
    renewed: &mut Flows,
    mut take: impl FnMut(usize, usize) -> u32,
) {
    dry.retain_rare(|flow| {
        let more = take(flow.src(), flow.dst());
        if more > 0 {
            let flow = flow.renewed(more);
            renewed.push(now.map_or(flow, |now| flow.with_age(0, now)));
        }
        more > 0
    });
}

/// A count for each pair: a row for each source.
///
/// Bits in place of counts would take less room, but steps that follow each other would change the
/// same word too often to be done side by side: measured, 256 endpoints take a fifth longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dense {
    /// Zero: no flow. Otherwise what was asked for beside it, plus one.
    counts: Vec<u16>,
    nodes: usize,
}

impl Dense {
    fn new(nodes: usize) -> Self {
        Self { counts: alloc::vec![0; nodes * nodes], nodes }
    }

    fn ask(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        let count = &mut self.counts[src * self.nodes + dst];
        let more = u32::from(*count).checked_sub(1)?;
        let taken = slots.min(MORE_MAX - more);
        *count += taken as u16;
        Some(taken)
    }

    #[inline]
    fn ask_plainly(&mut self, src: usize, dst: usize, slots: u32) -> bool {
        let count = &mut self.counts[src * self.nodes + dst];
        let more = u32::from(*count) + slots;
        let is_taken = more <= MORE_MAX + 1;
        if is_taken {
            *count = more as u16;
        }
        is_taken
    }

    #[inline]
    fn begin(&mut self, src: usize, dst: usize) -> bool {
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
        debug_assert_ne!(*count, 0, "it had a flow");
        let more = count.saturating_sub(1);
        *count = u16::from(more > 0);
        u32::from(more)
    }

    fn forget(&mut self, src: usize) -> (u32, u64) {
        let row = &mut self.counts[src * self.nodes..][..self.nodes];
        let flows = row.iter().map(|count| u32::from(*count > 0)).sum();
        let more = row.iter().map(|count| u64::from(count.saturating_sub(1))).sum();
        row.fill(0);
        (flows, more)
    }
}

/// Two bits for each pair, and counts that are looked at only where there is one: the counts of
/// 4,096 endpoints are far larger than a cache, their bits hardly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sparse {
    /// Of each pair whether it has a flow, and then whether it has asked for more: a row for each
    /// source.
    bits: Vec<u64>,
    /// What they have asked for beside their flow.
    more: Vec<u16>,
    nodes: usize,
}

const HAS_FLOW: u64 = 1;
const HAS_MORE: u64 = 2;

impl Sparse {
    fn new(nodes: usize) -> Self {
        let bits = alloc::vec![0; (nodes * nodes).div_ceil(32)];
        Self { bits, more: alloc::vec![0; nodes * nodes], nodes }
    }

    fn ask(&mut self, src: usize, dst: usize, slots: u32) -> Option<u32> {
        let pair = src * self.nodes + dst;
        let (bits, shift) = (&mut self.bits[pair / 32], pair % 32 * 2);
        if *bits >> shift & HAS_FLOW == 0 {
            return None;
        }
        let more = &mut self.more[pair];
        let taken = slots.min(MORE_MAX - u32::from(*more));
        *more += taken as u16;
        *bits |= (if *more > 0 { HAS_MORE } else { 0 }) << shift;
        Some(taken)
    }

    #[inline]
    fn begin(&mut self, src: usize, dst: usize) -> bool {
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
        debug_assert_eq!(*bits >> shift & HAS_FLOW, HAS_FLOW, "it had a flow");
        if *bits >> shift & HAS_MORE == 0 {
            *bits &= !(HAS_FLOW << shift);
            return 0;
        }
        *bits &= !(HAS_MORE << shift);
        u32::from(core::mem::take(&mut self.more[pair]))
    }

    fn forget(&mut self, src: usize) -> (u32, u64) {
        let (mut flows, mut more) = (0, 0);
        let (mut pair, end) = (src * self.nodes, (src + 1) * self.nodes);
        while pair < end {
            // Those of the row that are in the same word.
            let behind = (pair / 32 + 1) * 32;
            let last = behind.min(end);
            let own = u64::MAX << (pair % 32 * 2) & u64::MAX >> ((behind - last) * 2);
            let bits = &mut self.bits[pair / 32];
            let mut rest = *bits & own;
            *bits &= !own;
            while rest != 0 {
                let place = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                match place % 2 {
                    0 => flows += 1,
                    _ => {
                        let asked = &mut self.more[pair / 32 * 32 + place / 2];
                        more += u64::from(core::mem::take(asked));
                    }
                }
            }
            pair = last;
        }
        (flows, more)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::demand::Flow;

    proptest! {
        #[test]
        fn the_table_knows_what_a_map_knows(
            steps in prop::collection::vec((0u32..40, 0usize..70, 0usize..2, 0u32..40_000), 1..400),
            is_dense in any::<bool>(),
        ) {
            let mut pairs = if is_dense { Pairs::new(70) } else { Pairs::Sparse(Sparse::new(70)) };
            let mut known: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            for (what, src, dst, slots) in steps {
                let (what, dst) = (if what == 39 { 3 } else { what % 3 }, dst * 69);
                if what == 3 {
                    let own = known.iter().filter(|((of, _), _)| *of == src);
                    let more = own.clone().map(|(_, more)| u64::from(*more)).sum();
                    prop_assert_eq!(pairs.forget(src), (own.count() as u32, more));
                    known.retain(|(of, _), _| *of != src);
                    continue;
                }
                match (what, known.get_mut(&(src, dst))) {
                    (0, it) => {
                        let is_first = it.is_none();
                        prop_assert_eq!(pairs.begin(src, dst), is_first);
                        if is_first {
                            known.insert((src, dst), 0);
                        }
                    }
                    (2, Some(more)) => {
                        let had = core::mem::take(more);
                        let (mut dry, mut renewed) = (Flows::new(1), Flows::new(1));
                        dry.push(Flow::new(src as u16, dst as u16, 0, 3));
                        let now = (src % 2 == 0).then_some(5);
                        pairs.renew(&mut dry, now, &mut renewed);
                        let again = Flow::new(src as u16, dst as u16, had, now.unwrap_or(3));
                        let count = usize::from(had > 0);
                        prop_assert_eq!((renewed.as_slice(), dry.len()), (&[again][..count], count));
                        if had == 0 {
                            known.remove(&(src, dst));
                        }
                    }
                    (_, Some(more)) => {
                        let taken = slots.min(MORE_MAX - *more);
                        prop_assert_eq!(pairs.ask(src, dst, slots), Some(taken));
                        *more += taken;
                    }
                    _ => prop_assert_eq!(pairs.ask(src, dst, slots), None),
                }
            }
        }
    }
}
