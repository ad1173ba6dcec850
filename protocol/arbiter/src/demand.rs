//! Which pairs want timeslots, and how many.

use alloc::vec::Vec;

/// A pair that wants timeslots, in one word: who, to whom, for how many batches it has waited, and
/// how many timeslots it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow(u64);

/// Batches that are counted while a pair waits.
pub(crate) const AGE_MAX: u32 = 0xff;

impl Flow {
    pub const fn new(src: u16, dst: u16, backlog: u32) -> Self {
        Self((src as u64) << 48 | (dst as u64) << 32 | backlog as u64)
    }

    #[inline]
    pub fn src(self) -> u16 {
        (self.0 >> 48) as u16
    }

    #[inline]
    pub fn dst(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Timeslots that it wants, below 2^24.
    #[inline]
    pub fn backlog(self) -> u32 {
        self.0 as u32 & 0x00ff_ffff
    }

    /// Batches that have given it nothing since it was served or came.
    #[inline]
    pub fn age(self) -> u32 {
        self.0 as u32 >> 24
    }

    /// With `slots` fewer, as it has been given them now.
    #[inline]
    pub fn served(self, slots: u32) -> Self {
        Self((self.0 - u64::from(slots)) & !(u64::from(AGE_MAX) << 24))
    }

    /// A batch has given it nothing.
    #[inline]
    pub fn aged(self) -> Self {
        Self(if self.age() < AGE_MAX { self.0 + (1 << 24) } else { self.0 })
    }
}

/// What each pair with a [`Flow`] under way has asked for since: a row for each source, two octets
/// a pair, so that the rows of a few hundred endpoints stay in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pairs {
    /// Zero: no flow. Otherwise what was asked for beside it, plus one.
    counts: Vec<u16>,
    nodes: usize,
    used: u32,
    used_max: u32,
}

/// What a pair may ask for beside its flow, at most.
pub(crate) const MORE_MAX: u32 = u16::MAX as u32 - 1;

impl Pairs {
    /// Of so many endpoints, for so many pairs at a time.
    pub fn new(nodes: u32, pairs_max: u32) -> Self {
        let nodes = nodes as usize;
        Self { counts: alloc::vec![0; nodes * nodes], nodes, used: 0, used_max: pairs_max }
    }

    /// How many have a flow under way.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// The pair asks for up to `slots` more. Answers how many were taken; `None` if it has no flow
    /// under way.
    #[inline]
    pub fn ask(&mut self, src: u16, dst: u16, slots: u32) -> Option<u32> {
        let count = &mut self.counts[usize::from(src) * self.nodes + usize::from(dst)];
        let more = u32::from(*count).checked_sub(1)?;
        let taken = slots.min(MORE_MAX - more);
        *count += taken as u16;
        Some(taken)
    }

    /// A flow of this pair, which has none, is under way now. Answers false when there are as many
    /// as may be.
    #[inline]
    pub fn begin(&mut self, src: u16, dst: u16) -> bool {
        if self.used >= self.used_max {
            return false;
        }
        let count = &mut self.counts[usize::from(src) * self.nodes + usize::from(dst)];
        debug_assert_eq!(*count, 0, "a pair has one flow");
        *count = 1;
        self.used += 1;
        true
    }

    /// The pair's flow has run dry: what it has asked for since; if nothing, it has no flow now.
    #[inline]
    pub fn take(&mut self, src: u16, dst: u16) -> u32 {
        let count = &mut self.counts[usize::from(src) * self.nodes + usize::from(dst)];
        debug_assert_ne!(*count, 0, "it had a flow");
        let more = u32::from(*count).saturating_sub(1);
        *count = u16::from(more > 0);
        self.used -= u32::from(more == 0);
        more
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flow_is_one_word_and_loses_nothing() {
        let flow = Flow::new(4095, 17, 0x00ff_ffff).aged().aged();
        assert_eq!((flow.src(), flow.dst(), flow.backlog(), flow.age()), (4095, 17, 0xff_ffff, 2));
        let served = flow.served(0xff_fffe);
        assert_eq!((served.src(), served.dst(), served.backlog(), served.age()), (4095, 17, 1, 0));
        let mut old = Flow::new(1, 2, 3);
        (0..1_000).for_each(|_| old = old.aged());
        assert_eq!((old.age(), old.backlog()), (AGE_MAX, 3));
    }

    proptest! {
        #[test]
        fn the_table_knows_what_a_map_knows(
            steps in prop::collection::vec((0u32..3, 0u16..6, 0u16..6, 1u32..40_000), 1..400),
        ) {
            let mut pairs = Pairs::new(6, 20);
            let mut known: BTreeMap<(u16, u16), u32> = BTreeMap::new();
            for (what, src, dst, slots) in steps {
                match (what, known.get_mut(&(src, dst))) {
                    (0, None) => {
                        let has_room = known.len() < 20;
                        prop_assert_eq!(pairs.begin(src, dst), has_room);
                        if has_room {
                            known.insert((src, dst), 0);
                        }
                    }
                    (2, Some(more)) => {
                        let had = core::mem::take(more);
                        prop_assert_eq!(pairs.take(src, dst), had);
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
                prop_assert_eq!(pairs.len() as usize, known.len());
            }
        }
    }
}
