//! Which slots of one's own arena are free, and who may have how many.

/// The free slots of this process's arena, last given back first: that one is still in the cache.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Vec<u32>,
    slots: usize,
}

/// How full a receiver's share is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    /// Below half.
    Low,
    /// Half of it: frames bear the congestion mark.
    Half,
    /// Three quarters: no new burst is begun while the receiver is merely slow.
    Tight,
    /// All of it: the frame waits, or is dropped if the receiver has stopped.
    Full,
}

impl Arena {
    /// An arena of `slots` slots, free but for those that `is_taken`.
    pub(crate) fn new(slots: u32, is_taken: impl Fn(u32) -> bool) -> Self {
        let mut free = Vec::with_capacity(slots as usize);
        free.extend((0..slots).rev().filter(|slot| !is_taken(*slot)));
        Self { free, slots: slots as usize }
    }

    /// The slot to use next.
    #[inline]
    pub(crate) fn top(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the slot that `top` answered.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.free.pop();
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) {
        debug_assert!(self.free.len() < self.slots, "given back more than taken");
        self.free.push(slot);
    }

    /// Slots that nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// How full the share of a receiver is that has `in_flight` frames, in a ring of `entries`.
    ///
    /// A share is the ring, but less than what is free: a receiver that has stopped takes half of
    /// the arena at most, another that stops after it half of the rest, and the last slot is never
    /// sent away, so that there is always one to go on with (dynamic thresholds: Choudhury and
    /// Hahne, IEEE/ACM ToN 1998).
    #[inline]
    pub(crate) fn fill(&self, in_flight: usize, entries: usize) -> Fill {
        let share = entries.min(self.free.len().saturating_sub(1));
        match in_flight {
            _ if in_flight >= share => Fill::Full,
            _ if in_flight * 4 > share * 3 => Fill::Tight,
            _ if in_flight * 2 > share => Fill::Half,
            _ => Fill::Low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_released_slot_is_reused_first() {
        let mut arena = Arena::new(4, |slot| slot == 1);
        assert_eq!((arena.top(), arena.free()), (Some(0), 3));
        arena.take();
        assert_eq!(arena.top(), Some(2));
        arena.release(0);
        assert_eq!(arena.top(), Some(0));
    }

    #[test]
    fn stopped_receivers_leave_slots_for_others() {
        let mut arena = Arena::new(64, |_| false);
        let mut in_flight = [0; 3];
        for stopped in &mut in_flight {
            while arena.fill(*stopped, 64) < Fill::Full {
                arena.take();
                *stopped += 1;
            }
        }
        assert_eq!(in_flight, [32, 16, 8]);
        assert_eq!(arena.free(), 8);
    }

    #[test]
    fn ring_bounds_a_share_too() {
        let arena = Arena::new(64, |_| false);
        let fills = [8, 9, 13, 16].map(|in_flight| arena.fill(in_flight, 16));
        assert_eq!(fills, [Fill::Low, Fill::Half, Fill::Tight, Fill::Full]);
    }
}
